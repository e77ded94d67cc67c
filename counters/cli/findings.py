"""What ``counters audit`` found: as a table for people, as JSON, as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from counters import Audit, AuditReport, Evidence
from counters.cli.console import complain, counted, out, say
from counters.cli.database import Place
from counters.cli.view import whole

_MOST_TRUE: Final = 20
"""So many counts that are true are printed; the rest of them are a line. JSON and CSV have all."""

_MOST_NAMED: Final = 10
_COLUMNS: Final = ("parent", "stored", "actual", "difference", "total", "as_of", "repaired", "error")


@dataclass(slots=True)
class Findings:
    """What an audit found, and what was made of it: evidence and repairs, by the counter's path."""

    pattern: str
    place: Place
    report: AuditReport
    evidence: dict[str, Evidence] = field(default_factory=dict)
    repaired: dict[str, int] = field(default_factory=dict)

    @property
    def reads(self) -> int:
        """What looking cost, in billed reads."""
        return self.report.reads + sum(evidence.reads for evidence in self.evidence.values())

    @property
    def true(self) -> tuple[Audit, ...]:
        """The counts without a difference."""
        return self.report.audits[len(self.report.drifted) :]

    @property
    def clean(self) -> bool:
        """Whether every count was looked at and is true by now."""
        drifting = [found for found in self.report.drifted if found.path not in self.repaired]
        return not drifting and not self.report.failed


def show(findings: Findings) -> None:
    """Print all of it, drift first."""
    report = findings.report
    if report.audits or report.failed:
        out.print(_table(findings))
        out.print()
    for found in report.drifted:
        if found.path in findings.evidence:
            say(f"{found.path}: {found.difference:+,}")
            for line in _told(findings.evidence[found.path]):
                say(f"  {line}")
    say(_summary(findings))
    for failure in report.failed:
        complain(f"{failure.path}: {failure.error}")


def _table(findings: Findings) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("parent", overflow="fold")
    for heading in ("stored", "actual", "difference"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for found in findings.report.drifted:
        difference = Text(f"{found.difference:+,}", style="bold red")
        note = "" if found.exists else "no counter document"
        table.add_row(Text(found.parent), whole(found.stored), whole(found.actual), difference, note)
    for failure in findings.report.failed:
        table.add_row(Text(failure.parent), "-", "-", Text("unknown", style="bold red"), "see below")
    for found in findings.true[:_MOST_TRUE]:
        table.add_row(Text(found.parent), whole(found.stored), whole(found.actual), "0", "")
    if len(findings.true) > _MOST_TRUE:
        table.add_row(Text(f"{len(findings.true) - _MOST_TRUE:,} more, each true", style="dim"))
    return table


def _summary(findings: Findings) -> str:
    report = findings.report
    number = len(report.audits) + len(report.failed)
    parts = [f"{counted(number, 'count')} of {findings.pattern}: {len(report.drifted):,} not true"]
    if report.failed:
        parts.append(f"{len(report.failed):,} could not be audited")
    if report.more:
        parts.append("there are more: --limit, --prefix or --parents")
    cost = f"{counted(findings.reads, 'read')}, {report.seconds:.1f} s"
    return f"{', '.join(parts)}; {cost} ({findings.place})"


def _told(evidence: Evidence) -> Iterator[str]:
    """Evidence for people."""
    if evidence.came_after is None:
        yield f"the difference is older than {_when(evidence.came_by)}"
    else:
        yield f"the difference came between {_when(evidence.came_after)} and {_when(evidence.came_by)}"
    if evidence.newest_child is None:
        yield "there are no children"
    else:
        yield f"the newest child, {evidence.newest_child}, changed at {_when(evidence.child_changed_at)}"
    yield f"a shard last counted at {_when(evidence.counted_at)}"
    yield f"a shard last changed at {_when(evidence.shard_changed_at)}"
    if evidence.uncounted:
        yield f"nobody counted {len(evidence.uncounted):,} of the children: {_some(evidence.uncounted)}"
    if evidence.strangers:
        yield f"among the shards, and no shards: {_some(evidence.strangers)}"
    if evidence.orphans:
        yield f"orphans of a counter that was deleted: {counted(evidence.orphans, 'shard')}"
    if evidence.adjusted_at is not None:
        yield f"last repaired at {_when(evidence.adjusted_at)}"


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _when(moment: datetime | None) -> str:
    return "no time" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def as_json(findings: Findings) -> str:
    """All counts, as one JSON object."""
    report = findings.report
    whole_object = {
        "pattern": findings.pattern,
        "counts": list(_rows(findings)),
        "drifted": len(report.drifted),
        "failed": len(report.failed),
        "more": report.more,
        "reads": findings.reads,
        "seconds": round(report.seconds, 3),
    }
    return json.dumps(whole_object, indent=2, ensure_ascii=False)


def as_csv(findings: Findings) -> str:
    """All counts, as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(findings))
    return text.getvalue().rstrip("\n")


def _rows(findings: Findings) -> Iterator[Mapping[str, Any]]:
    """Each count as data: drift first, then what could not be audited."""
    report = findings.report
    for found in report.drifted:
        yield _row(findings, found)
    for failure in report.failed:
        yield {"parent": failure.parent, "path": failure.path, "error": str(failure.error)}
    for found in findings.true:
        yield _row(findings, found)


def _row(findings: Findings, found: Audit) -> dict[str, Any]:
    row: dict[str, Any] = {
        "parent": found.parent,
        "path": found.path,
        "exists": found.exists,
        "stored": found.stored,
        "actual": found.actual,
        "difference": found.difference,
        "total": found.total,
        "as_of": found.as_of.isoformat(),
    }
    if found.path in findings.repaired:
        row["repaired"] = findings.repaired[found.path]
    if found.path in findings.evidence:
        row["evidence"] = _evidence(findings.evidence[found.path])
    return row


def _evidence(evidence: Evidence) -> dict[str, Any]:
    names = (name for name in Evidence.__dataclass_fields__ if name != "reads")
    values = ((name, getattr(evidence, name)) for name in names)
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values}
