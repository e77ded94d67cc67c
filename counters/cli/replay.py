"""``counters replay``: count the rows of a user's own file, with the same proof as the demo."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from counters import CounterError, Counters, layout
from counters.cli import proof
from counters.cli.console import busy, complain, counted, out, say
from counters.cli.counting import count
from counters.cli.database import Place, connect
from counters.cli.exits import FAILED, INTERRUPTED, Failure
from counters.cli.leftovers import tell_what_is_left
from counters.cli.options import Database, Project, Writers, examples
from counters.cli.records import Format, Source, Unreadable
from counters.cli.rows import BadRows, rows_of
from counters.cli.template import BadTemplate, PathTemplate
from counters.cli.view import Subject, view_of
from counters.cli.work import Row, busiest, expected

EXAMPLES: Final = examples(
    "counters replay sales.csv --counter 'shops/{shop}/counters/sales'",
    "counters replay sales.csv --counter 'shops/{shop}/counters/cds' --amount cds",
    "counters replay events.jsonl --counter 'users/{uid}/counters/events' \\\n"
    "      --counter 'days/{day}/counters/events' --project my-project",
)

_ROLL_EVERY: Final = 1.0  # seconds
_MOST_NAMED: Final = 10


def replay(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", show_default=False, exists=True, dir_okay=False, help="CSV, TSV or JSON Lines."
        ),
    ],
    counter: Annotated[
        list[str],
        typer.Option(
            metavar="TEMPLATE",
            show_default=False,
            help="The counter's path, with {field} of the row. Several: a row counts on each.",
        ),
    ],
    amount: Annotated[
        str | None,
        typer.Option(metavar="FIELD", show_default=False, help="The field to add; without it, 1 a row."),
    ] = None,
    kind: Annotated[
        Format | None,
        typer.Option("--format", show_default=False, help="Without it, by the file's name."),
    ] = None,
    writers: Writers = 4,
    shards: Annotated[
        int, typer.Option(min=1, max=layout.MAX_SHARDS, metavar="N", help="For counters that are new.")
    ] = layout.DEFAULT_SHARDS,
    rollup: Annotated[bool, typer.Option(help="Roll up, and prove the totals, too.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: Project = None,
    database: Database = None,
) -> None:
    """Count the rows of your own file, and prove that it is exact.

    Works on the emulator at FIRESTORE_EMULATOR_HOST, or on Cloud Firestore, and
    asks before it writes to the latter. Every row is checked before anything is
    written.

    Cut short (Ctrl-C, a lost connection), it says what was counted, and writes
    the rows that were not to a file beside yours, to be replayed.
    """
    kind = kind or Format.of(file)
    if kind is None:
        raise typer.BadParameter(f"what is {file.name}? Its name does not tell", param_hint="--format")
    source = Source(file, kind)
    try:
        templates = [PathTemplate(text) for text in counter]
    except BadTemplate as error:
        raise typer.BadParameter(str(error), param_hint="--counter") from error
    with busy(f"checking {file}"):
        rows = _checked(source, templates, amount)
    counters, place = connect(project, database)
    _agree(rows, place, yes=yes)
    _run(counters, place, source, rows, writers=writers, shards=shards, rolled_up=rollup)


def _checked(source: Source, templates: Sequence[PathTemplate], amount: str | None) -> list[Row]:
    try:
        rows = rows_of(source.records(), templates, amount)
    except BadRows as error:
        for problem in error.problems[:_MOST_NAMED]:
            complain(f"{source.file}, {problem}")
        raise Failure(f"{source.file}: {error}; nothing was written") from error
    except Unreadable as error:
        raise Failure(f"{source.file}: {error}") from error
    if not expected(rows):
        raise Failure(f"{source.file}: there is nothing to count in it")
    return rows


def _agree(rows: Sequence[Row], place: Place, *, yes: bool) -> None:
    """Say what is about to happen; ask first where it is not just an emulator."""
    writes = sum(bool(increment.amount) for row in rows for increment in row.increments)
    on = counted(len(expected(rows)), "counter")
    say(f"{counted(len(rows), 'row')}, {counted(writes, 'increment')} on {on} of {place}")
    if place.host is None and not yes:
        bill = counted(writes, "write")
        typer.confirm(f"This is a real database, and bills {bill} and more. Go on?", abort=True)


def _run(
    counters: Counters,
    place: Place,
    source: Source,
    rows: Sequence[Row],
    *,
    writers: int,
    shards: int,
    rolled_up: bool,
) -> None:
    added = expected(rows)
    with busy(f"reading {counted(len(added), 'counter')}"):
        before = proof.values(counters, added)
    watched = busiest(rows)
    course = count(
        counters,
        place,
        rows,
        writers=writers,
        shards=shards,
        watched=watched,
        roll_every=_ROLL_EVERY if rolled_up else None,
        view=view_of(Subject(len(rows), "rows", watched)),
    )
    if not course.tally.complete:
        tell_what_is_left(course.tally, source)
        raise typer.Exit(INTERRUPTED if course.interrupted else FAILED)
    say(f"\n{counted(len(rows), 'row')} counted, in {course.seconds:.1f} s")
    if course.interrupted:
        raise typer.Exit(INTERRUPTED)
    wanted = {path: before[path] + amount for path, amount in added.items()}
    with busy(f"rolling up, and reading {counted(len(added), 'counter')}"):
        if rolled_up:
            _last_rollup(counters, added)
        lines = proof.prove(counters, wanted, rolled_up=rolled_up)
    out.print(proof.side_by_side([], lines))
    wrong = [line for line in lines if not line.exact]
    if wrong:
        raise Failure(
            f"{len(wrong):,} of {len(lines):,} counters are not as expected; "
            "did somebody else change them meanwhile?"
        )
    say("every row was counted exactly once")


def _last_rollup(counters: Counters, ours: Collection[str]) -> None:
    """Roll up; what fails here shows in the proof, so it is told and no more."""
    try:
        failed = counters.roll_up().failed
    except CounterError as error:
        complain(f"the last rollup failed: {error}")
        return
    for failure in failed:
        if failure.path in ours:
            complain(f"{failure.path} was not rolled up: {failure.error}")
