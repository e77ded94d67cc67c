"""The queue at one shard: how long writes wait for it, and how many are refused.

Pure mathematics for ``counters.sizing``, which states the model; nothing of Firestore or of shards.
All times are in units of the time of one commit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

__all__ = ["Waits", "Workload", "least", "offered_load"]

_EXACT_UP_TO: Final = 8.0
"""Beyond this many commit times the tail is used: they differ by less than 1e-9 there."""

_NEAR_ONE: Final = 1e-5
"""Loads nearer to 1 than this are taken as this far below: the tail's formula is 0/0 at 1."""

_NO_LOAD: Final = 1e-12
"""Below this load nobody waits, as far as a float can tell."""


class Workload:
    """The distribution of the work that a write finds at its shard, up to a constant factor.

    For ``load`` commits offered in the time of one,

        G(x) = sum over k = 0, 1, ... up to x of (-load (x - k))^k / k! * exp(load (x - k)).

    >>> work = Workload(0.5)
    >>> (1 - 0.5) * work(0), round((1 - 0.5) * work(3.336), 3)
    (0.5, 0.99)
    """

    def __init__(self, load: float) -> None:
        self.load = 1 - _NEAR_ONE if abs(load - 1) < _NEAR_ONE else load

    def __call__(self, x: float) -> float:
        """G(x). Above the exact range: 1 / (1 - load) less one exponential, or inf if too large."""
        if self.load < _NO_LOAD:
            return 1.0
        if x >= _EXACT_UP_TO:
            exponent = -self._decay * x
            if exponent > 700:  # noqa: PLR2004 - where math.exp overflows
                return math.inf
            spare = 1 - self.load
            return 1 / spare - math.exp(exponent) / (self._decay - spare)
        return math.fsum(
            (-self.load * (x - k)) ** k / math.factorial(k) * math.exp(self.load * (x - k))
            for k in range(int(x) + 1)
        )

    @cached_property
    def _decay(self) -> float:
        """The other root, beside 0, of load (e^t - 1) = t; negative where load exceeds 1."""
        # Newton's steps on a convex function, from a point beyond the root: they never overshoot.
        root = 2 - 2 * math.log(self.load) if self.load < 1 else -self.load
        # Near a load of 1 rounding may keep the steps from getting as small as asked.
        for _ in range(50):
            value = self.load * math.expm1(root) - root
            step = value / (self.load * math.exp(root) - 1)
            root -= step
            if abs(step) <= 1e-13 * abs(root):
                break
        return root

    def integral(self, end: float) -> float:
        """Integral of G from 0 to ``end``; G' = load (G(x) - G(x - 1)) makes it a sum."""
        return math.fsum(self(end - k) - 1 for k in range(math.ceil(end))) / self.load


def offered_load(utilisation: float, longest: float) -> float:
    """The load, retries included, at which a shard carries ``utilisation``, which is below 1."""
    if longest == math.inf:
        return utilisation
    goal = utilisation / (1 - utilisation)

    def enough(load: float) -> bool:
        return load * Workload(load)(longest) >= goal

    high = utilisation
    while not enough(high):
        high *= 1.5
    return least(enough, utilisation, high)


def least(enough: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest number from ``low`` to ``high`` that is enough, by halving the interval."""
    while True:
        middle = (low + high) / 2
        if middle <= low or middle >= high or high - low <= 1e-13 * high:
            return high
        if enough(middle):
            high = middle
        else:
            low = middle


_GRID: Final = 200
"""The waits of refused writes are tabulated in steps of the longest wait divided by this."""

_RARE: Final = 1e-5
"""Numbers of refusals rarer than this are left out of the table."""

_ROUNDING_OF_REFUSED: Final = 1e-11
"""A share of refusals below this is one less a quotient that is 1 but for rounding."""


class Waits:
    """The time from a write's first attempt to the start of its commit.

    ``utilisation`` is the share of time, below 1, for which new writes hold the shard; a write waits
    there for ``longest`` at most. Before the retry after k refusals, counted from 0, it waits a
    random time up to ``backoff(k)``.

    >>> patient = Waits(0.5, math.inf, backoff=lambda refusals: 1.0)
    >>> patient.mean, round(patient.quantile(0.99), 3), patient.refused
    (0.5, 3.336, 0.0)
    """

    def __init__(self, utilisation: float, longest: float, backoff: Callable[[float], float]) -> None:
        load = offered_load(utilisation, longest)
        self.longest = longest
        self.backoff = backoff
        refused = 1 - utilisation / load if load else 0.0
        self.refused = refused if refused > _ROUNDING_OF_REFUSED else 0.0
        self._workload = Workload(load)
        self._at_longest = self._workload(longest) if longest < math.inf else 1 / (1 - load)

    def at_shard(self, x: float) -> float:
        """Distribution of the wait at the shard that takes the write."""
        return 0.0 if x < 0 else min(1.0, self._workload(min(x, self.longest)) / self._at_longest)

    @property
    def mean(self) -> float:
        """The mean wait, refusals and backoffs included."""
        if not self.refused:
            load = self._workload.load
            return load / (2 * (1 - load))
        mean = self.longest - self._workload.integral(self.longest) / self._at_longest
        chance, refusals = self.refused, 0
        while chance > _ROUNDING_OF_REFUSED:
            mean += chance * (self.longest + self.backoff(refusals) / 2)
            chance *= self.refused
            refusals += 1
        return mean

    def longer_than(self, x: float) -> float:
        """The share of writes that wait longer than ``x``."""
        if x < self.longest:  # a write that was refused has waited longer already
            return self.refused + (1 - self.refused) * (1 - self.at_shard(x))
        return 1 - _interpolate(self._table, x / self._step)

    def quantile(self, share: float) -> float:
        """The wait that ``share`` of the writes do not exceed."""
        if 1 - self.refused > share:
            if 1 - self.longer_than(0) >= share:
                return 0.0
            high = min(self.longest, 1.0)
            while high < self.longest and 1 - self.longer_than(high) < share:
                high = min(2 * high, self.longest)
            return least(lambda x: 1 - self.longer_than(x) >= share, 0.0, high)
        after = bisect_left(self._table, share)
        before = self._table[after - 1]
        return self._step * (after - 1 + (share - before) / (self._table[after] - before))

    @cached_property
    def _step(self) -> float:
        # Coarser where backoffs or many refusals make the whole wait much longer than this.
        return max(self.longest, self.backoff(math.inf) / 10, self.mean) / _GRID

    @cached_property
    def _table(self) -> list[float]:
        """The distribution of the whole wait at 0, 1, 2 ... steps, up to where it is all but 1.

        A write refused k times waited k times the longest wait, k backoffs, and then at its shard.
        """
        table: list[float] = []
        part = [self.at_shard(i * self._step) for i in range(math.ceil(self.longest / self._step) + 1)]
        chance, refusals = 1.0, 0
        while chance > _RARE:
            late = refusals * self.longest / self._step
            weight = chance * (1 - self.refused)
            table += [table[-1] if table else 0.0] * (math.ceil(late) + len(part) - len(table))
            table = [old + weight * _interpolate(part, i - late) for i, old in enumerate(table)]
            part = _spread(part, self.backoff(refusals) / self._step)
            chance *= self.refused
            refusals += 1
        return table


def _spread(table: list[float], width: float) -> list[float]:
    """The distribution of what ``table`` tabulates plus a uniform delay of up to ``width`` steps."""
    table = table + [1.0] * math.ceil(width)
    area = list(accumulate(((a + b) / 2 for a, b in pairwise(table)), initial=0.0))
    return [(area[i] - _interpolate(area, i - width)) / width for i in range(len(table))]


def _interpolate(table: list[float], at: float) -> float:
    """The value between the entries of ``table``; 0 before the first, the last after it."""
    if at < 0:
        return 0.0
    below = int(at)
    if below >= len(table) - 1:
        return table[-1]
    return table[below] + (at - below) * (table[below + 1] - table[below])
