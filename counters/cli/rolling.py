"""The rollup, run again and again in a thread while a command does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from counters import CounterError, Counters, RollupReport

if TYPE_CHECKING:
    from typing_extensions import Self


class Rolling:
    """Rolls up every so many seconds for as long as the ``with`` block runs.

    A run that fails is tried again at its next turn; ``tell`` is called with the first error of
    several in a row.
    """

    def __init__(self, counters: Counters, every: float, tell: Callable[[str], None]) -> None:
        self._counters = counters
        self._every = every
        self._tell = tell
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.reports: list[RollupReport] = []
        self._failing = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._end.wait(self._every):
            self._roll_up()

    def _roll_up(self) -> None:
        try:
            self.reports.append(self._counters.roll_up())
        except CounterError as error:
            if not self._failing:
                self._tell(f"the rollup failed, and is tried again: {error}")
            self._failing = True
        else:
            self._failing = False
