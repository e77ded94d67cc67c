"""The audit of many reference counts: a bounded set of parents, and which of their counts drift.

A count that cannot be audited is reported and stops no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from counters import layout, parents, wire
from counters.audit import Audit, Reads, compare
from counters.context import Call, Context, checked_progress
from counters.errors import CounterError, InvalidType, InvalidValue
from counters.parents import Parents, Pattern
from counters.rollup import SETTLING, checked_concurrency
from counters.steps import Gather, Invoke, Sleep, Steps

DEFAULT_LIMIT: Final = 1000
"""So many counts are audited where neither a limit nor a list says how many."""

_PAGE: Final = 100
"""Counts that are audited in one go: their counter documents are read together."""


@dataclass(frozen=True, slots=True)
class AuditFailure:
    """A count that could not be audited: ``error`` says why, such as which shard is damaged."""

    path: str
    children: str
    error: CounterError

    @property
    def parent(self) -> str:
        """Path of the document that the children belong to."""
        return layout.split_collection(self.children)[0]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit of many found, and what it cost.

    Attributes:
        audits: what was compared; drift first, the largest difference first, then by path.
        failed: counts that could not be audited.
        more: whether there are parents beyond the limit.
        reads: billed document reads.
        seconds: how long it took.
    """

    audits: tuple[Audit, ...]
    failed: tuple[AuditFailure, ...]
    more: bool
    reads: int
    seconds: float

    @property
    def drifted(self) -> tuple[Audit, ...]:
        """The counts that are not true."""
        return tuple(found for found in self.audits if found.difference)


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be audited; checked."""

    pattern: Pattern
    limit: int
    prefix: str
    parents: tuple[str, ...] | None
    missing: bool
    concurrency: int
    progress: Callable[[int], object] | None


def question(
    pattern: object,
    *,
    limit: object,
    prefix: object,
    named: object,
    missing: bool,
    concurrency: object,
    progress: Callable[[int], object] | None,
) -> Question:
    """Check the arguments of ``Counters.audit``. Raises ``InvalidType`` or ``InvalidValue``."""
    wanted = parents.pattern(pattern)
    if not isinstance(prefix, str):
        raise InvalidType(f"a prefix is a str, not {type(prefix).__name__}")
    if prefix and not layout.is_document_id(prefix + "x"):
        raise InvalidValue(f"{prefix!r} is no beginning of a document's id")
    if prefix and (named is not None or not wanted.stars):
        raise InvalidValue("a prefix is for what a * stands for, where no parents are named")
    paths = None if named is None else wanted.parents_of(named)
    return Question(
        pattern=wanted,
        limit=len(paths or ()) or DEFAULT_LIMIT if limit is None else _checked_limit(limit),
        prefix=prefix,
        parents=paths,
        missing=missing,
        concurrency=checked_concurrency(concurrency),
        progress=checked_progress(progress),
    )


def _checked_limit(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidType(f"a limit is an int, not {type(limit).__name__}")
    if limit < 1:
        raise InvalidValue(f"a limit is at least 1, not {limit}")
    return limit


def audit_all(context: Context, database: str, asked: Question) -> Steps[AuditReport]:
    """Audit what is asked for; see ``Counters.audit``."""
    started = context.policy.clock()
    call = Call(context, database)
    reads = Reads()
    audits: list[Audit] = []
    failed: list[AuditFailure] = []
    where = _parents(asked, reads)
    left, more = asked.limit, False
    while where.open and not more:
        # One more than is wanted, so that it is known whether there are others.
        page = yield from where.next_page(call.renewed(), min(_PAGE, left + 1))
        page, more = page[:left], len(page) > left
        left -= len(page)
        if not page:
            continue
        for outcome in (yield from _audit_page(call.renewed(), asked, page, reads)):
            if isinstance(outcome, Audit):
                audits.append(outcome)
            else:
                failed.append(outcome)
        if asked.progress is not None:
            yield Invoke(partial(asked.progress, len(audits) + len(failed)))
    return AuditReport(
        audits=tuple(sorted(audits, key=lambda found: (-abs(found.difference), found.path))),
        failed=tuple(sorted(failed, key=lambda failure: failure.path)),
        more=more,
        reads=reads.number,
        seconds=context.policy.clock() - started,
    )


def _parents(asked: Question, reads: Reads) -> Parents:
    if asked.parents is not None:
        return parents.named(asked.parents)
    return parents.walk(asked.pattern, asked.prefix, missing=asked.missing, reads=reads)


def _audit_page(
    call: Call, asked: Question, page: Sequence[str], reads: Reads
) -> Steps[list[Audit | AuditFailure]]:
    """Audit some: their documents in one request, let settle, then each by itself."""
    counters = [layout.counter_path(parent, asked.pattern.name) for parent in page]
    documents = yield from call.get(*counters)
    reads.documents(len(counters))
    yield Sleep(SETTLING / 1_000_000)
    work = [
        _audit_one(call, documents[counter], asked.pattern.children_of(parent))
        for parent, counter in zip(page, counters, strict=True)
    ]
    outcomes = yield Gather(work, asked.concurrency)
    for _, cost in outcomes:
        reads.number += cost.number
    return [outcome for outcome, _ in outcomes]


def _audit_one(
    call: Call, document: wire.Document, children: str
) -> Steps[tuple[Audit | AuditFailure, Reads]]:
    """One count; what goes wrong with it is its own outcome and nobody else's."""
    reads = Reads()
    try:
        return (yield from compare(call.renewed(), document, children, reads, at_once=False)), reads
    except CounterError as error:
        return AuditFailure(document.path, children, error), reads
