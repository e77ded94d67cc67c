"""What came of the rows that writers were given. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from counters.cli.protocol import Report
from counters.cli.work import Row


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that is counted in part: ``applied`` of its increments, and perhaps what comes after."""

    row: Row
    applied: int
    unknown: bool

    def __str__(self) -> str:
        """What was counted and what was not, for people."""
        parts = []
        steps = [f"{amount:+d} on {path}" for path, amount in self.row.increments]
        if self.row.child is not None:
            steps.append(self.row.child)
        for number, step in enumerate(steps):
            if number == self.applied and self.unknown:
                outcome = "cannot be known"
            else:
                outcome = "counted" if number < self.applied else "not counted"
            parts.append(f"{step}: {outcome}")
        return f"line {self.row.line}: " + "; ".join(parts)


@dataclass(slots=True)
class Tally:
    """Which rows are counted, which are not, and of which that is not so simple.

    Attributes:
        counted: so many are, completely.
        rest: these are not, not even in part.
        broken: these are in part.
        unknown: these belonged to writers that were killed, and some of them may be counted.
        errors: why writers failed.
        added: so many children were added by writers that told of it.
        found: so often a writer came to add a child, and it was there already.
    """

    counted: int = 0
    rest: list[Row] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    unknown: list[Row] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    added: int = 0
    found: int = 0

    @property
    def complete(self) -> bool:
        """Whether every row is counted."""
        return not (self.rest or self.broken or self.unknown)


def tally(hands: Iterable[tuple[Sequence[Row], Report]]) -> Tally:
    """Add up the last reports of writers that are not at work any more."""
    result = Tally()
    for rows, report in hands:
        result.counted += report.done
        result.added += report.added
        result.found += report.found
        left = rows[report.done :]
        if not report.ended:
            result.unknown += left
            result.errors.append("a writer was killed")
            continue
        if report.error is not None:
            result.errors.append(report.error)
            if report.applied or report.unknown:
                result.broken.append(Broken(left[0], report.applied, report.unknown))
                left = left[1:]
        result.rest += left
    result.rest.sort(key=lambda row: row.line)
    return result
