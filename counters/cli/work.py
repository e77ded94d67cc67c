"""What is to be counted, and how it is dealt out to writers. Pure: no client, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Increment(NamedTuple):
    """An amount to add to the counter at ``path``."""

    path: str
    amount: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the input: the line it is on, and what it adds to which counters.

    ``child`` is the path of a document that it adds to a reference count, where it is not there yet.
    """

    line: int
    increments: tuple[Increment, ...]
    child: str | None = None


def expected(rows: Iterable[Row]) -> dict[str, int]:
    """What the rows add up to, by counter. A counter that only gets zeros is not counted on at all.

    >>> expected([Row(1, (Increment("a/b", 2), Increment("c/d", 0))), Row(2, (Increment("a/b", 3),))])
    {'a/b': 5}
    """
    sums: dict[str, int] = {}
    for row in rows:
        for path, amount in row.increments:
            if amount:
                sums[path] = sums.get(path, 0) + amount
    return sums


def children(rows: Iterable[Row]) -> set[str]:
    """The children that the rows add, each once however many rows do.

    >>> children([Row(1, (), "a/b/c/d"), Row(2, ()), Row(3, (), "a/b/c/d")])
    {'a/b/c/d'}
    """
    return {row.child for row in rows if row.child is not None}


def busiest(rows: Iterable[Row]) -> str:
    """The counter that most increments go to, the first of equals.

    Raises ``ValueError`` where there is nothing to count.
    """
    times: dict[str, int] = {}
    for row in rows:
        for path, amount in row.increments:
            if amount:
                times[path] = times.get(path, 0) + 1
    return max(times, key=times.__getitem__)


def deal(rows: Sequence[Row], hands: int) -> list[Sequence[Row]]:
    """Deal rows out like cards, so that all writers are at about the same place of the input.

    Nobody gets an empty hand: there may be fewer hands than asked for.

    >>> [[row.line for row in hand] for hand in deal([Row(n, ()) for n in range(5)], 2)]
    [[0, 2, 4], [1, 3]]
    """
    return [rows[hand::hands] for hand in range(min(hands, len(rows)))]
