"""Whether a reference count is true, and the one increment that makes it so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from counters import layout, shards, wire
from counters.commit import Refused
from counters.errors import CounterNotFound, StaleAudit
from counters.lifecycle import adjust
from counters.rollup import SETTLING
from counters.settings import Settings, parse, total_in
from counters.steps import Gather, Sleep, Steps

if TYPE_CHECKING:
    from counters.context import Call


@dataclass(frozen=True, slots=True)
class Audit:
    """A reference count beside the truth, both at one moment.

    Attributes:
        path: the counter document's.
        stored: the counter's value, the sum over its shards.
        actual: how many children there were.
        total: what the last rollup wrote; None before the first. Older than the rest.
        as_of: the moment of ``stored`` and ``actual``.
    """

    path: str
    stored: int
    actual: int
    total: int | None
    as_of: datetime

    @property
    def difference(self) -> int:
        """True minus stored: what a repair adds. Anything but 0 is a bug to find."""
        return self.actual - self.stored


def audit(call: Call, counter: str, children: str) -> Steps[Audit]:
    """Compare a counter with its children at one moment, without a lock.

    3 round trips (the last two at once); 1 read for the counter document, 1 per 1,000 shards and
    1 per 1,000 children, at least 1 each. The moment is let settle for 100 ms first.
    """
    document = (yield from call.get(counter))[counter]
    return (yield from _audit_at(call, document, children))


def _audit_at(call: Call, document: wire.Document, children: str) -> Steps[Audit]:
    moment = document.read_time
    yield Sleep(SETTLING / 1_000_000)
    parent, collection = layout.split_collection(children)
    stored, actual = yield Gather(
        [
            shards.value(call, document.path, read_time=moment),
            _count(call, parent, collection, moment),
        ],
        limit=2,
    )
    return Audit(
        path=document.path,
        stored=stored,
        actual=actual,
        total=total_in(document).value,
        as_of=wire.to_datetime(moment),
    )


def _count(call: Call, parent: str, collection: str, moment: int) -> Steps[int]:
    answer = yield from call.ask(
        lambda timeout: wire.count_of(call.database, parent, collection, timeout, read_time=moment)
    )
    return wire.sum_in(answer) or 0


def repair(call: Call, counter: str, children: str, found: Audit, by: str) -> Steps[int]:
    """Add the difference that ``found`` found, if it is still there; return it."""
    while True:
        settings, fresh = yield from _fresh(call, counter, children)
        if fresh.difference != found.difference:
            raise StaleAudit(
                f"{counter}: the difference was {found.difference} and is {fresh.difference} now; "
                "nothing was changed: audit again"
            )
        if (yield from _adjust(call, settings, fresh, "repair", by)):
            return fresh.difference


def backfill(call: Call, counter: str, children: str, by: str) -> Steps[int]:
    """Bring the counter to the number of children as it was at a moment; return what was added."""
    while True:
        settings, fresh = yield from _fresh(call, counter, children)
        if (yield from _adjust(call, settings, fresh, "backfill", by)):
            return fresh.difference


def _fresh(call: Call, counter: str, children: str) -> Steps[tuple[Settings, Audit]]:
    document = (yield from call.get(counter))[counter]
    if not document.exists:
        raise CounterNotFound(f"there is no counter at {counter}: create() it first")
    return parse(document), (yield from _audit_at(call, document, children))


def _adjust(call: Call, settings: Settings, fresh: Audit, reason: str, by: str) -> Steps[bool]:
    """Add the difference, with a record of it; False if another adjustment came between."""
    if fresh.difference == 0:
        return True

    def record(receipt: wire.Receipt) -> Sequence[Any]:
        path = layout.adjustment_path(fresh.path, receipt.lane, receipt.mark)
        data = {
            layout.ADJUSTMENT_REASON: reason,
            layout.ADJUSTMENT_BY: by,
            layout.ADJUSTMENT_DIFFERENCE: fresh.difference,
            layout.ADJUSTMENT_STORED: fresh.stored,
            layout.ADJUSTMENT_ACTUAL: fresh.actual,
            layout.ADJUSTMENT_AS_OF: wire.timestamp(wire.from_datetime(fresh.as_of)),
        }
        return [wire.replace(call.name(path), data, [layout.ADJUSTMENT_AT])]

    try:
        yield from adjust(call, fresh.path, settings, fresh.difference, record)
    except Refused:
        return False
    return True
