"""A writer process: counts the rows it is given, one increment after the other."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from google.cloud.firestore import Client

from counters import CounterError, Counters, OutcomeUnknown
from counters.cli.protocol import Job, Report
from counters.cli.work import Row

_REPORT_EVERY: Final = 0.1  # seconds
_STDIN: Final = 0
_STDOUT: Final = 1


def count(
    rows: Sequence[Row],
    increment: Callable[[str, int], None],
    add: Callable[[str], bool],
    stopped: Callable[[], bool],
    report: Callable[[Report], None],
) -> Report:
    """Count row after row until all are done, one fails, or it is stopped, never within a row.

    A child is added when its first row is counted, and not asked for again: another writer may have
    added it, and then ``add`` says False. Reports what is done about ten times a second, and returns
    the last report.
    """
    met: dict[str, bool] = {}  # the children, and whether it was this writer that added them

    def so_far(done: int, *, ended: bool = False) -> Report:
        added = sum(met.values())
        return Report(done, ended=ended, added=added, found=len(met) - added)

    reported = time.monotonic()
    for done, row in enumerate(rows):
        if stopped():
            return so_far(done, ended=True)
        applied = 0
        try:
            for path, amount in row.increments:
                increment(path, amount)
                applied += 1
            if row.child is not None and row.child not in met:
                met[row.child] = add(row.child)
        except Exception as error:  # noqa: BLE001 - told to the command, which decides
            known = isinstance(error, CounterError) and not isinstance(error, OutcomeUnknown)
            text = str(error) or type(error).__name__
            return replace(so_far(done, ended=True), error=text, applied=applied, unknown=not known)
        if time.monotonic() - reported >= _REPORT_EVERY:
            report(so_far(done + 1))
            reported = time.monotonic()
    return so_far(len(rows), ended=True)


def main() -> None:
    """Do the job that stdin names."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):  # told to stop before it was told what to do
        _tell(Report(ended=True))
        return
    job = Job.from_line(line)
    stop = threading.Event()
    threading.Thread(target=_wait_for_the_end_of_stdin, args=(stop,), daemon=True).start()
    client = Client(project=job.project, database=job.database)
    counters = Counters(client, shards=job.shards)

    def increment(path: str, amount: int) -> None:
        counters.at(client.document(path)).increment(amount)

    def add(child: str) -> bool:
        collection, _, ident = child.rpartition("/")
        parent, _, name = collection.rpartition("/")
        return counters.children(parent, name).add(ident)

    last = count(job.rows, increment, add, stop.is_set, _tell)
    _tell(last)


def _wait_for_the_end_of_stdin(stop: threading.Event) -> None:
    # Not through sys.stdin, whose lock would be held here while the interpreter ends.
    os.read(_STDIN, 1)
    stop.set()


def _tell(report: Report) -> None:
    with suppress(BrokenPipeError):  # nobody is left to hear it
        os.write(_STDOUT, report.to_line())
