"""``counters demo``: the whole job on real input, with the proof that every CD was counted."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from counters import Counters
from counters.cli import cdnow, faults, plot, proof
from counters.cli.console import busy, complain, counted, out, say
from counters.cli.counting import Course, count
from counters.cli.database import Place, counter_at
from counters.cli.emulator import name_of
from counters.cli.exits import INTERRUPTED, Failure
from counters.cli.options import Database, Writers, examples
from counters.cli.reading import Sample, read
from counters.cli.view import Subject, view_of
from counters.cli.work import Increment, Row, children, expected
from counters.testing import Emulator, find_emulator, open_client

EXAMPLES: Final = examples(
    "counters demo                          5,000 purchases, half a minute",
    "counters demo --all --plot demo.png    all 69,659, and a picture of it",
    "EMULATOR=hidane counters demo          on hidane instead of Google's",
    "counters demo --faults                 the SDK's increment beside ours",
)

_SOME: Final = 5000
_ROLL_EVERY: Final = 1.0  # seconds
_SHARDS_OF_A_DAY: Final = 3  # it sells less than the shop, which gets the default
_DATA: Final = Path("build/CDNOW_master.txt")


def demo(
    data: Annotated[
        Path, typer.Option(metavar="FILE", help="The CDNOW purchases (CDNOW_master.txt).")
    ] = _DATA,
    everything: Annotated[
        bool, typer.Option("--all", help="All purchases, not only the first 5,000.")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw value, total and staleness over time."),
    ] = None,
    writers: Writers = 4,
    lose_answers: Annotated[
        bool,
        typer.Option("--faults", help="Instead, lose a fifth of the answers, and compare with the SDK."),
    ] = False,
    project: Annotated[
        str,
        typer.Option(metavar="ID", help="Any project id will do.", rich_help_panel="Database"),
    ] = "demo-counters",
    database: Database = None,
) -> None:
    """Count real purchases, see it happen, and prove that it is exact.

    Several processes count the purchases of the CD shop CDNOW, day after day.
    Each purchase is two increments: on a counter for the shop, and on one for
    the day; and its customer is added as a child, which counts once however
    often it is done. The rollup runs meanwhile.

    Runs on an emulator: the one at FIRESTORE_EMULATOR_HOST, or else one that is
    started for it and ends with it. Exit code 1 if a single count is off.
    """
    if picture:
        plot.require_matplotlib()
    shop = f"shops/cdnow-{secrets.token_hex(3)}"
    rows = [] if lose_answers else _rows(data, shop, None if everything else _SOME)
    found = find_emulator()
    say(f"on {name_of(found)}")
    with Emulator(found) as emulator, open_client(emulator.host, project, database) as client:
        if lose_answers:
            faults.compare(emulator.host, project, database)
            return
        place = Place(emulator.host, project, database)
        _run(Counters(client), place, rows, shop, writers, picture)


def _rows(data: Path, shop: str, most: int | None) -> list[Row]:
    """The first purchases of the file, in the order of their days, as rows to count."""
    if not data.exists():
        raise Failure(
            f"{data}: no such file; `make demo` gets it, or: pip download --no-deps "
            "lifetimes==0.11.3, unzip the wheel, and name lifetimes/datasets/CDNOW_master.txt with --data"
        )
    with data.open(encoding="utf-8") as lines:
        try:
            purchases = list(cdnow.purchases(lines))[:most]
        except ValueError as error:
            raise Failure(f"{data}: {error}") from error
    purchases.sort(key=lambda purchase: purchase.day)
    return [
        Row(
            purchase.line,
            (
                Increment(f"{shop}/counters/cds", purchase.cds),
                Increment(f"{shop}/days/{purchase.day}/counters/cds", purchase.cds),
            ),
            f"{shop}/customers/{purchase.customer}",
        )
        for purchase in purchases
    ]


def _run(
    counters: Counters, place: Place, rows: Sequence[Row], shop: str, writers: int, picture: Path | None
) -> None:
    wanted, people = expected(rows), len(children(rows))
    watched = f"{shop}/counters/cds"
    if watched not in wanted:
        raise Failure("there is not one CD in these purchases")
    counter = counter_at(counters, watched)
    counter.create()
    customers = counters.children(shop, "customers")
    customers.create()
    say(
        f"{writers} processes count {wanted[watched]:,} CDs in {len(rows):,} purchases, "
        f"for the shop and for each of {len(wanted) - 1:,} days, "
        f"and their {people:,} customers as children\n"
    )
    course = count(
        counters,
        place,
        rows,
        writers=writers,
        shards=_SHARDS_OF_A_DAY,
        watched=watched,
        roll_every=_ROLL_EVERY,
        view=view_of(Subject(len(rows), "purchases", watched, "customers")),
        children=customers.path,
    )
    _stop_unless_complete(course, len(rows))
    with busy(f"rolling up, and reading {len(wanted) + 1:,} counters"):
        last = counters.roll_up()
        end = Sample(course.seconds + last.seconds, len(rows), read(counters, counter))
        names = {**_names(shop, wanted), customers.path: "customers"}
        lines = proof.prove(counters, {**wanted, customers.path: people}, names=names)
        found = customers.audit()
    say(_summary(course, sum(len(row.increments) for row in rows)))
    shop_line, *days, customers_line = lines
    all_days = proof.together(f"all {len(days):,} days", days)
    out.print(proof.side_by_side([shop_line, customers_line, all_days], days))
    say(
        f"\ncustomers as children: an audit finds {found.actual:,}, difference {found.difference:,}; "
        f"{course.tally.added:,} adds said True, {course.tally.found:,} False"
    )
    if picture:
        title = (
            f"{wanted[watched]:,} CDs, counted by {writers} processes, rolled up every {_ROLL_EVERY:g} s"
        )
        plot.draw([*course.samples, end], picture, title=title, counted="CDs sold")
        say(f"plot: {picture}")
    for failure in last.failed:
        complain(f"{failure.path} was not rolled up: {failure.error}")
    wrong = [line.name for line in lines if not line.exact]
    if wrong:
        raise Failure(f"{len(wrong):,} of {len(lines):,} counters are not as expected: {wrong[0]} is one")
    if not found.actual == found.stored == course.tally.added == people:
        raise Failure(f"the customers as children are not as expected, {people:,}")
    say("every CD was counted exactly once, and so was every customer")


def _stop_unless_complete(course: Course, rows: int) -> None:
    """End the command where not every purchase was counted."""
    done = f"{course.tally.counted:,} of {rows:,} purchases were counted"
    if course.interrupted:
        complain(f"interrupted: {done}")
        raise typer.Exit(INTERRUPTED)
    if not course.tally.complete:
        raise Failure(f"{done}: {course.tally.errors[0]}")


def _summary(course: Course, increments: int) -> str:
    ages = [sample.reading.staleness for sample in course.samples if sample.reading.staleness]
    oldest = f"; the total was {max(ages).total_seconds():.1f} s old at most" if ages else ""
    totals = sum(report.counters for report in course.rollups)
    return (
        f"\n{increments:,} increments in {course.seconds:.1f} s ({increments / course.seconds:,.0f}/s), "
        f"{counted(len(course.rollups), 'rollup')} wrote {counted(totals, 'total')} meanwhile{oldest}\n"
    )


def _names(shop: str, paths: Iterable[str]) -> dict[str, str]:
    """What to call the counters: the shop, or the day."""
    return {path: "the shop" if path == f"{shop}/counters/cds" else path.split("/")[3] for path in paths}
