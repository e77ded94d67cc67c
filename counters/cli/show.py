"""``counters show``: everything about one counter, damage included, and what looking cost."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from counters.cli.console import complain, counted, out, say
from counters.cli.database import Place, connect, counter_at
from counters.cli.exits import FAILED
from counters.cli.options import CounterPath, Database, Project, examples
from counters.cli.reading import Reading, Shard, read
from counters.cli.view import age, whole
from counters.errors import CounterNotFound

EXAMPLES: Final = examples(
    "counters show posts/a91f/counters/likes",
    "counters show posts/a91f/counters/likes --json | jq .value",
)


def show(
    path: CounterPath,
    as_json: Annotated[bool, typer.Option("--json", help="The same as one JSON object.")] = False,
    project: Project = None,
    database: Database = None,
) -> None:
    """Show a counter: value, total, settings, every shard.

    Costs one billed read, and one for each shard. Where a shard is damaged, so
    that the value cannot be known, it is named; exit code 1.
    """
    counters, place = connect(project, database)
    reading = read(counters, counter_at(counters, path))
    if reading.settings is None and not reading.shards:
        raise CounterNotFound(f"there is no counter at {reading.path} ({place})")
    if as_json:
        say(json.dumps(as_object(reading), indent=2, ensure_ascii=False))
    else:
        _print(reading, place)
    damaged = [shard.damage for shard in reading.shards if shard.damage]
    for damage in damaged:
        complain(damage)
    if damaged:
        raise typer.Exit(FAILED)


def as_object(reading: Reading) -> dict[str, Any]:
    """A reading as JSON has it."""
    settings, staleness = reading.settings, reading.staleness
    return {
        "path": reading.path,
        "value": reading.value,
        "value_at": reading.moment.isoformat(),
        "total": reading.total.value,
        "as_of": reading.total.as_of and reading.total.as_of.isoformat(),
        "staleness_seconds": None if staleness is None else staleness.total_seconds(),
        "settings": settings
        and {
            "shards": settings.shards,
            "initial": settings.initial,
            "mirrors": [
                {"document": mirror.path, "field": ".".join(mirror.field)}
                for mirror in sorted(settings.mirrors, key=lambda mirror: (mirror.path, mirror.field))
            ],
        },
        "shards": [
            {
                "id": shard.id,
                "value": shard.value,
                "writes": shard.writes,
                "updated_at": shard.updated_at and shard.updated_at.isoformat(),
                "receipts": shard.receipts,
                "damage": shard.damage,
            }
            for shard in reading.shards
        ],
        "reads": reading.reads,
    }


def _print(reading: Reading, place: Place) -> None:
    say(f"{reading.path}\n{place}\n")
    facts = Table.grid(padding=(0, 3))
    value = "cannot be known" if reading.value is None else whole(reading.value)
    facts.add_row("value", Text(value, style="bold"), f"exact at {reading.moment:%Y-%m-%d %H:%M:%S.%f}")
    facts.add_row("total", Text(whole(reading.total.value), style="bold"), age(reading))
    if reading.settings is None:
        facts.add_row("settings", "none", "no counter document: these shards are orphans of a deleted one")
    else:
        count = len(reading.shards)
        facts.add_row("shards", f"{reading.settings.shards:,}", f"to choose from; {count:,} exist")
        facts.add_row("initial", whole(reading.settings.initial))
        for mirror in sorted(reading.settings.mirrors, key=lambda mirror: (mirror.path, mirror.field)):
            facts.add_row("mirror", Text(".".join(mirror.field)), Text(f"of {mirror.path}"))
    out.print(facts)
    out.print()
    if reading.shards:
        out.print(_table(reading.shards))
        out.print()
    say(f"read {counted(reading.reads, 'document')}")


def _table(shards: tuple[Shard, ...]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    for heading in ("shard", "value", "writes"):
        table.add_column(heading, justify="right")
    table.add_column("last write (UTC)")
    table.add_column("receipts", justify="right")
    for shard in shards:
        value = Text("damaged", style="red") if shard.damage else whole(shard.value)
        when = f"{shard.updated_at:%Y-%m-%d %H:%M:%S.%f}"[:-3] if shard.updated_at else "-"
        table.add_row(Text(shard.id), value, whole(shard.writes), when, whole(shard.receipts))
    return table
