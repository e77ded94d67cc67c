"""How calls behave in time: clock, backoff and chance, in one place so that a test can fix them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from counters.receipts import PRUNE_CHANCE


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before trying again: a random share of a bound that grows (full jitter).

    Attempt ``k``, counted from 0, waits between 0 and ``min(longest, first * factor ** k)`` seconds.

    >>> Backoff(first=0.1, factor=2, longest=1).bound(3)
    0.8
    """

    first: float = 0.03
    factor: float = 2.0
    longest: float = 2.0

    def bound(self, attempt: int) -> float:
        """The longest wait before the attempt after ``attempt``, in seconds."""
        return min(self.longest, self.first * self.factor ** min(attempt, 32))


NO_BACKOFF = Backoff(first=0.0)
"""Try again at once. For tests: against a server under contention it makes things worse."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Clock, backoff and chance of a ``Counters``; the defaults are right outside of tests.

    ``seed`` makes the choice of shards and the waits repeatable. ``clock`` gives seconds that only
    rise; it measures durations and is never compared with the server's time. ``prune_chance`` is how
    often the first write of a lane to a shard looks whether old receipts want pruning.
    """

    backoff: Backoff = field(default_factory=Backoff)
    seed: int | None = None
    clock: Callable[[], float] = time.monotonic
    prune_chance: float = PRUNE_CHANCE

    def chance(self) -> random.Random:
        """A source of chance of its own for one process."""
        return random.Random(self.seed)
