"""The proof: what should have been counted and what was, side by side, counter by counter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from rich.table import Table
from rich.text import Text

from counters import Counters
from counters.cli.database import counter_at
from counters.cli.view import whole

_AT_ONCE: Final = 8
_MOST_LINES: Final = 6


@dataclass(frozen=True, slots=True)
class Line:
    """One counter, or several together; its total counts where ``rolled_up``."""

    name: str
    expected: int
    value: int
    total: int | None
    rolled_up: bool = True

    @property
    def exact(self) -> bool:
        """Whether all that was looked at is as expected."""
        return self.value == self.expected and (self.total == self.expected or not self.rolled_up)


def values(counters: Counters, paths: Iterable[str]) -> dict[str, int]:
    """The exact value of each counter. Price: a ``value()`` each."""
    wanted = list(paths)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda path: counter_at(counters, path).value(), wanted)
        return dict(zip(wanted, found, strict=True))


def totals(counters: Counters, paths: Iterable[str]) -> dict[str, int | None]:
    """The total of each counter. Price: a ``total()`` each."""
    wanted = list(paths)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda path: counter_at(counters, path).total().value, wanted)
        return dict(zip(wanted, found, strict=True))


def prove(
    counters: Counters,
    expected: Mapping[str, int],
    *,
    names: Mapping[str, str] | None = None,
    rolled_up: bool = True,
) -> list[Line]:
    """Read every counter and put it beside what it should be."""
    found = values(counters, expected)
    stored = totals(counters, expected) if rolled_up else {}
    return [
        Line((names or {}).get(path, path), amount, found[path], stored.get(path), rolled_up)
        for path, amount in expected.items()
    ]


def together(name: str, lines: Sequence[Line]) -> Line:
    """Several lines as one, added up."""
    return Line(
        name,
        sum(line.expected for line in lines),
        sum(line.value for line in lines),
        sum(line.total or 0 for line in lines),
        all(line.rolled_up for line in lines),
    )


def side_by_side(headlines: Sequence[Line], lines: Sequence[Line]) -> Table:
    """The proof as a table: the headlines, the first lines, and every line that is not exact."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("")
    table.add_column("expected", justify="right")
    table.add_column("value", justify="right")
    table.add_column("total", justify="right")
    table.add_column("")
    shown = [*lines[:_MOST_LINES], *(line for line in lines[_MOST_LINES:] if not line.exact)]
    for line in [*headlines, *shown]:
        table.add_row(*_cells(line))
    hidden = len(lines) - len(shown)
    if hidden:
        table.add_row(Text(f"{hidden:,} more, each exact", style="dim"))
    return table


def _cells(line: Line) -> Iterable[str | Text]:
    total = whole(line.total) if line.rolled_up else "not asked"
    verdict = Text("exact", style="green") if line.exact else Text("DIFFERENT", style="bold red")
    return Text(line.name), whole(line.expected), whole(line.value), total, verdict
