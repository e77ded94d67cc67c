"""``counters doctor``: why does my total not move? Answered in one screen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from counters import ReadFailed, wire
from counters.cli import cloud
from counters.cli.cloud import Finding, Level
from counters.cli.console import counted, out, say
from counters.cli.database import Place, connect
from counters.cli.exits import FAILED
from counters.cli.health import Failing, Health, examine
from counters.cli.options import Database, duration, examples

EXAMPLES: Final = examples(
    "counters doctor my-project",
    "counters doctor my-project --region europe-west1 --staleness 10s",
)
_MARKS: Final[dict[Level, tuple[str, str]]] = {
    "good": ("✓", "green"),
    "warning": ("!", "yellow"),
    "bad": ("✗", "red"),
    "unknown": ("?", "dim"),
}
_NAMED: Final = 3
_MIRRORS: Final = "mirrors"


def doctor(
    project: Annotated[
        str | None,
        typer.Argument(
            metavar="PROJECT",
            show_default=False,
            help="Google Cloud project; without it, the one that the environment names.",
        ),
    ] = None,
    database: Database = None,
    region: Annotated[str, typer.Option(metavar="NAME", help="Where the schedule is.")] = "us-central1",
    job: Annotated[str, typer.Option(metavar="NAME", help="Part of its name, or of its URL.")] = "rollup",
    staleness: Annotated[
        float,
        typer.Option(parser=duration, metavar="DURATION", help="How long a change may wait for a total."),
    ] = "3m",  # type: ignore[assignment] # Typer parses it
) -> None:
    """Say whether totals move, and if not, why not: indexes, schedule, last run, failures, orphans.

    Costs one billed read for each shard that changed since the last run (at most 1,000), for its
    counter, and for each counter that failed. Fails (exit code 1) if something keeps a total, or a
    mirror of one, from moving. Indexes, TTL policy and schedule are known to Cloud Firestore itself
    only, not to an emulator.
    """
    counters, place = connect(project, database)
    try:
        health = examine(counters)
        findings = judge(health, timedelta(seconds=staleness))
        cost = f"read {counted(health.reads, 'document')}"
    except ReadFailed as error:
        findings = [Finding("bad", "database", str(error))]
        cost = "read nothing"
    if place.host:
        findings.append(
            Finding("unknown", "index, TTL, schedule", "an emulator has none: ask the real service")
        )
    else:
        findings += cloud.look(cloud.sign_in(), wire.database_of(counters.client), region, job)
    show(place, findings, cost)
    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(FAILED)


def judge(health: Health, staleness: timedelta) -> list[Finding]:
    """What the state of the database means."""
    totals = [failure for failure in health.failing if not failure.total_moves]
    mirrors = [failure for failure in health.failing if failure.total_moves]
    return [
        _rollup(health, staleness),
        _totals(health),
        _failures("failures", totals),
        *([_failures(_MIRRORS, mirrors)] if mirrors else []),
        _orphans(health),
    ]


def _rollup(health: Health, staleness: timedelta) -> Finding:
    waiting = health.longest_waiting
    if health.last_run is None and waiting is None:
        return Finding("good", "last run", "none yet, and there is nothing to roll up")
    if health.last_run is None:
        text = "none has ever ended, and counters wait for it"
    else:
        text = f"the last one that found a change was {_ago(health.moment - health.last_run)} ago"
    if waiting is None or health.moment - waiting.since <= staleness:
        return Finding("good" if health.last_run else "warning", "last run", text)
    return Finding(
        "bad",
        "last run",
        f"{text}; {waiting.path} has waited {_ago(health.moment - waiting.since)}",
        "is the schedule there, and does it succeed? `counters rollup` makes a run by hand",
    )


def _totals(health: Health) -> Finding:
    if not health.shards:
        return Finding("good", "totals", "no shard has changed since the last run: all have all there is")
    text = f"of the counters changed lately {health.current:,} have all of it, {len(health.waiting):,} wait"
    if health.oldest is not None:
        text += f"; the oldest total is {_ago(health.moment - health.oldest)} old"
    return Finding("good", "totals", text)


def _failures(subject: str, failing: Sequence[Failing]) -> Finding:
    if not failing:
        return Finding("good", subject, "none")
    named = "\n".join(f"{failure.path}: {failure.error}" for failure in failing[:_NAMED])
    since = min((failure.since for failure in failing if failure.since), default=None)
    when = f", since {since:%Y-%m-%d %H:%M} UTC" if since else ""
    return Finding(
        "bad",
        subject,
        f"{len(failing):,} failed{when}\n{named}",
        "mend what it says; the next run tries them again",
    )


def _orphans(health: Health) -> Finding:
    if not health.orphans:
        return Finding("good", "orphans", "none among what changed lately")
    return Finding(
        "warning",
        "orphans",
        "\n".join(health.orphans[:_NAMED])
        + (f"\nand {len(health.orphans) - _NAMED:,} more" if len(health.orphans) > _NAMED else ""),
        "shards of deleted counters: create() or delete() clears them",
    )


def show(place: Place, findings: Sequence[Finding], cost: str) -> None:
    """Print the findings, and the verdict."""
    say(f"{place}\n")
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        mark, style = _MARKS[finding.level]
        table.add_row(Text(mark, style), Text(finding.subject), Text(finding.text))
        if finding.remedy:
            table.add_row("", "", Text(f"→ {finding.remedy}", style))
    out.print(table)
    bad = [finding.subject for finding in findings if finding.level == "bad"]
    if bad == [_MIRRORS]:
        say("\nTotals move; a mirror does not.")
    elif bad:
        say(f"\nWhat keeps totals from moving: {', '.join(name for name in bad if name != _MIRRORS)}.")
    else:
        say("\nNothing found that would keep totals from moving.")
    say(cost)


def _ago(time: timedelta) -> str:
    """A duration for people.

    >>> [_ago(timedelta(seconds=seconds)) for seconds in (0.4, 65, 7300, 200_000)]
    ['0.4 s', '65 s', '2.0 h', '2.3 days']
    """
    seconds = time.total_seconds()
    if seconds < 10:  # noqa: PLR2004 - steps that read well
        return f"{seconds:.1f} s"
    if seconds < 600:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    if seconds < 3600:  # noqa: PLR2004
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
