"""What a command and its writer processes tell each other: a job in one line, reports in others.

A writer reads its job from stdin and writes reports to stdout, all of it JSON. It goes on for as long
as its stdin stays open, so it also stops when the command that started it has died.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from counters.cli.work import Increment, Row


@dataclass(frozen=True, slots=True)
class Job:
    """What one writer is to count, on which database; new counters get so many shards."""

    project: str
    database: str | None
    shards: int
    rows: Sequence[Row]

    def to_line(self) -> bytes:
        """The job in one line."""
        paths: dict[str, int] = {}
        rows = [
            [
                row.line,
                [[paths.setdefault(path, len(paths)), amount] for path, amount in row.increments],
                row.child,
            ]
            for row in self.rows
        ]
        job = [self.project, self.database, self.shards, list(paths), rows]
        return json.dumps(job, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Job:
        """The job that a line holds."""
        project, database, shards, paths, rows = json.loads(line)
        return cls(
            project,
            database,
            shards,
            [
                Row(number, tuple(Increment(paths[path], amount) for path, amount in increments), child)
                for number, increments, child in rows
            ],
        )


@dataclass(frozen=True, slots=True)
class Report:
    """How far a writer is.

    Attributes:
        done: so many of its rows are counted completely.
        ended: it does nothing any more; without this, it may have done more since.
        error: why it ended, if not because all was done or it was told to stop.
        applied: so many increments of the row at which it failed had been applied.
        unknown: whether the increment, or the child, after those was applied cannot be known.
        added: so many children it added, and counted.
        found: so many children were there already when it came to add them.
    """

    done: int = 0
    ended: bool = False
    error: str | None = None
    applied: int = 0
    unknown: bool = False
    added: int = 0
    found: int = 0

    def to_line(self) -> bytes:
        """The report in one line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Report:
        """The report that a line holds."""
        return cls(**json.loads(line))
