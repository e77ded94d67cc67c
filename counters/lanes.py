"""Lanes: who leaves a receipt, so that it can be told from everybody else's.

One call owns a lane from before its commit until its outcome is known; then the next call of this
process may have it. Its marks only rise, so a document that bears a lane's newest mark has taken
exactly that commit. A lane whose call was cut short is never used again.
"""

from __future__ import annotations

import os
import secrets
import string
from collections import deque
from typing import Final

_TOUCHED: Final = 1024
_LETTERS: Final = string.ascii_lowercase
_ALPHABET: Final = string.ascii_lowercase + string.digits


class Lane:
    """One writer's identity in receipts: a random name, and marks that rise.

    The name is a simple field name of 10 characters (51 random bits) from the system's own source,
    never from a seed: two processes with one lane would take each other's receipts for their own.
    """

    __slots__ = ("_last", "_touched", "name")

    def __init__(self) -> None:
        self.name = secrets.choice(_LETTERS) + "".join(secrets.choice(_ALPHABET) for _ in range(9))
        self._last = 0
        self._touched: dict[int, None] = {}

    def next_mark(self, now: int) -> int:
        """A mark never given before: the server's time in microseconds, or just above the last."""
        self._last = max(now, self._last + 1)
        return self._last

    def touches_anew(self, path: str) -> bool:
        """Whether this lane writes to ``path`` for the first time (as far as it remembers)."""
        key = hash(path)
        if key in self._touched:
            return False
        if len(self._touched) >= _TOUCHED:
            self._touched.pop(next(iter(self._touched)))
        self._touched[key] = None
        return True


class Lanes:
    """The free lanes of one process. A forked child starts with none of its parent's."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._free: deque[Lane] = deque()

    def acquire(self) -> Lane:
        """A lane that nobody else has until it is released."""
        if os.getpid() != self._process:
            self._free = deque()
            self._process = os.getpid()
        try:
            return self._free.pop()
        except IndexError:
            return Lane()

    def release(self, lane: Lane) -> None:
        """Give back a lane whose call's outcome is known. All others are simply dropped."""
        self._free.append(lane)
