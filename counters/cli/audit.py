"""``counters audit``: which counts are not true, what may tell why, and their repair."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from counters import Audit, CounterError, Counters, ReferenceCount
from counters.cli.console import complain, counted, err, say
from counters.cli.database import connect
from counters.cli.exits import FAILED
from counters.cli.findings import Findings, as_csv, as_json, show
from counters.cli.options import Database, Project, examples

EXAMPLES: Final = examples(
    "counters audit 'posts/*/likes'               the first 1,000 posts",
    "counters audit 'posts/*/likes' --prefix 2026- --limit 50000",
    "counters audit 'posts/*/likes' --parents posts.txt --csv > audit.csv",
    "counters audit 'posts/*/likes' --explain     what may tell why",
    "counters audit 'posts/*/likes' --repair      shows what it would do, and asks",
)


def audit(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            show_default=False,
            help="The collections of children, with * for any document: 'posts/*/likes'.",
        ),
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", show_default=False, help="The most counts to audit; 1,000, or all in FILE."
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", show_default=False, help="Only parents whose id begins so.")
    ] = "",
    parents: Annotated[
        typer.FileText | None,
        typer.Option(
            metavar="FILE",
            encoding="utf-8",
            show_default=False,
            help="Only these parents: a path or an id a line; - for stdin.",
        ),
    ] = None,
    existing: Annotated[
        bool,
        typer.Option(
            "--existing",
            help="Only parents whose own document exists. With --prefix, only those with it are read.",
        ),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Look for what may tell why a count drifted; 50 to 2,000 reads each."
        ),
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Show what there is to repair, ask, and do it one by one.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before repairing.")] = False,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default=False, help="Who repairs, for the record; your login name."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="All counts, as one JSON object.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="All counts, as CSV.")] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="Counts that are compared at once.")
    ] = 8,
    project: Project = None,
    database: Database = None,
) -> None:
    """Compare reference counts with the documents that they count: drift first.

    Each is compared at one moment, without a lock, so it is exact under live
    traffic. Costs about 4 billed reads a count, and says how many. Fails (exit
    code 1) where a count is not true, or could not be audited, and was not
    repaired.
    """
    if json and csv:
        raise typer.BadParameter("one of --json and --csv", param_hint="--csv")
    counters, place = connect(project, database)
    named = None if parents is None else _names(parents)
    with _progress(pattern, limit if named is None else len(named)) as progress:
        report = counters.audit(
            pattern.strip("/"),
            limit=limit,
            prefix=prefix,
            parents=named,
            missing=not existing,
            concurrency=concurrency,
            progress=progress,
        )
    findings = Findings(pattern.strip("/"), place, report)
    if explain:
        _explain(counters, findings)
    if not json and not csv:
        show(findings)
        if report.drifted and not explain and not repair:
            say("--explain looks for what may tell why, --repair mends the counts")
    if repair and report.drifted:
        _repair(counters, findings, by=_login() if by is None else by, yes=yes)
    if json or csv:
        say(as_json(findings) if json else as_csv(findings))
    if not findings.clean:
        raise typer.Exit(FAILED)


def _names(lines: Iterator[str]) -> list[str]:
    """Parents, one a line; empty lines are passed over."""
    try:
        return [line.strip().strip("/") for line in lines if line.strip().strip("/")]
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"--parents is not in UTF-8: {error}") from error


@contextmanager
def _progress(pattern: str, total: int | None) -> Iterator[Any]:
    """A bar on stderr, where that is a terminal. Yields what to tell how many are done."""
    columns = TextColumn("auditing {task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(pattern, total=total)
        yield lambda done: bar.update(task, completed=done)


def _handle(counters: Counters, found: Audit) -> ReferenceCount:
    client = counters.client
    return ReferenceCount(client.collection(found.children), client.document(found.path), counters)


def _explain(counters: Counters, findings: Findings) -> None:
    for found in findings.report.drifted:
        with _told(f"nothing to tell of {found.path}"):
            findings.evidence[found.path] = _handle(counters, found).explain(found)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Tell of an error and go on."""
    try:
        yield
    except CounterError as error:
        complain(f"{what}: {error}")


# Repair.


def _repair(counters: Counters, findings: Findings, *, by: str, yes: bool) -> None:
    """Say what is to be done, ask, and do it; what cannot be repaired is told and stops nothing."""
    drifted = findings.report.drifted
    _say(f"\nto repair on {findings.place}:")
    for found in drifted:
        _say(f"  {found.difference:+,} on {found.path}{_besides(found)}")
    _say(f"3 writes each; each is audited again just before, and recorded as repaired by {by or 'nobody'}")
    if not yes and not typer.confirm(f"Repair {counted(len(drifted), 'count')}?", err=True):
        return
    for found in drifted:
        handle = _handle(counters, found)
        with _told("not repaired"):
            findings.repaired[found.path] = added = _mend(handle, found, by)
            _say(f"{added:+,} on {found.path}")
    _say(f"repaired {len(findings.repaired):,} of {counted(len(drifted), 'count')}")


def _besides(found: Audit) -> str:
    """What a repair does besides adding."""
    if found.exists:
        return ""
    return ", which is made" if found.actual else ": orphans of a deleted counter, which are deleted"


def _mend(handle: ReferenceCount, found: Audit, by: str) -> int:
    if found.exists:
        return handle.repair(found, by=by)
    if found.actual:
        return handle.backfill(by=by)
    handle.counter.clear_orphans()  # a counter that nobody needs is not made anew
    return found.difference


def _say(message: str) -> None:
    """Tell something on stderr, where it is in nobody's data."""
    err.print(message, markup=False, soft_wrap=True)


def _login() -> str:
    """The name of who is at work here; empty where the system knows none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
