"""``counters increment``: add to a counter by hand."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from counters.cli.console import say
from counters.cli.database import connect, counter_at
from counters.cli.options import CounterPath, Database, Project, examples

EXAMPLES: Final = examples(
    "counters increment posts/a91f/counters/likes",
    "counters increment posts/a91f/counters/likes --by -2",
)


def increment(
    path: CounterPath,
    by: Annotated[int, typer.Option(metavar="N", help="How much; negative to take off.")] = 1,
    project: Project = None,
    database: Database = None,
) -> None:
    """Add to a counter, exactly once.

    A counter that does not exist is created. Costs one billed read and one
    billed write.
    """
    counters, place = connect(project, database)
    counter = counter_at(counters, path)
    counter.increment(by)
    say(f"{by:+,} on {counter.path} ({place})")
