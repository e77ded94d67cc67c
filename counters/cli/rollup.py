"""``counters rollup``: write the totals of what changed, once or again and again."""

from __future__ import annotations

from datetime import datetime, timezone
from time import sleep as _pause
from typing import Annotated, Final

import typer

from counters import CounterError, RollupReport
from counters.cli.console import complain, counted, say
from counters.cli.database import connect
from counters.cli.exits import FAILED
from counters.cli.options import Database, Project, duration, examples

EXAMPLES: Final = examples(
    "counters rollup               one run, as a schedule makes it",
    "counters rollup --every 5s    for local work, until Ctrl-C",
)


def rollup(
    every: Annotated[
        float | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            show_default=False,
            help="Run again after so long (5s, 250ms, 2m), until Ctrl-C.",
        ),
    ] = None,
    project: Project = None,
    database: Database = None,
) -> None:
    """Write the totals of the counters that changed.

    Prints a line for each run. In production a scheduled function does this;
    runs of both may overlap without harm. Exit code 1 where a total could not
    be written.
    """
    counters, place = connect(project, database)
    if every is None:
        if not _tell(counters.roll_up()):
            raise typer.Exit(FAILED)
        return
    say(f"rolling up every {every:g} s: {place}")
    while True:
        try:
            _tell(counters.roll_up())
        except CounterError as error:
            complain(str(error))
        _pause(every)


def _tell(report: RollupReport) -> bool:
    """Print what a run did; whether all went well."""
    say(
        f"{datetime.now(timezone.utc):%H:%M:%S} UTC  {counted(report.counters, 'total')} from "
        f"{counted(report.shards, 'changed shard')}, as of {report.as_of:%H:%M:%S.%f}; "
        f"{counted(report.reads, 'read')}, {counted(report.writes, 'write')}, {report.seconds:.2f} s"
    )
    for path in report.orphans:
        complain(f"{path} has shards but no counter document: create() or delete() clears them")
    for failure in report.failed:
        complain(f"{failure.path}: {failure.error}")
    return not report.failed
