"""The work that ``demo`` and ``replay`` share: writers count, the rollup runs, one watches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from counters import CounterError, Counters, RollupReport
from counters.cli.database import Place, counter_at
from counters.cli.reading import Sample, read
from counters.cli.rolling import Rolling
from counters.cli.tally import Tally, tally
from counters.cli.view import View
from counters.cli.work import Row
from counters.cli.writers import Writers

_LOOK_EVERY: Final = 0.4  # seconds


@dataclass(frozen=True, slots=True)
class Course:
    """How the counting went."""

    seconds: float
    tally: Tally
    samples: Sequence[Sample]
    rollups: Sequence[RollupReport]
    interrupted: bool


def count(
    counters: Counters,
    place: Place,
    rows: Sequence[Row],
    *,
    writers: int,
    shards: int,
    watched: str,
    roll_every: float | None,
    view: View,
    children: str | None = None,
) -> Course:
    """Count the rows with several processes and show one counter meanwhile.

    Beside it, show the value of the reference count at ``children``, if there is one.

    A counter that does not exist yet gets so many ``shards``.
    Returns when all is done, a writer has failed or Ctrl-C was pressed; then nothing runs any more,
    and the course says what was counted and what was not.
    """
    crew = Writers(place, rows, writers, shards=shards)
    rolling = Rolling(counters, roll_every, view.say) if roll_every else None
    counter = counter_at(counters, watched)
    beside = counter_at(counters, children) if children else None
    samples: list[Sample] = []
    interrupted = False
    started = time.monotonic()
    try:
        with view, rolling or nullcontext(), crew:
            try:
                while not crew.wait(_LOOK_EVERY):
                    try:
                        reading = read(counters, counter)
                        added = beside.value() if beside else None
                    except CounterError:
                        continue  # what goes wrong for good, the writers tell
                    samples.append(Sample(time.monotonic() - started, crew.done, reading, added))
                    view.show(samples[-1])
            except KeyboardInterrupt:
                view.say("stopping: writers finish the row they are at (Ctrl-C again kills them)")
                raise
    except KeyboardInterrupt:
        interrupted = True
    return Course(
        seconds=time.monotonic() - started,
        tally=tally((writer.rows, writer.report) for writer in crew.everyone),
        samples=samples,
        rollups=rolling.reports if rolling else [],
        interrupted=interrupted,
    )
