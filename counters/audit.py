"""Whether a reference count is true, and the one increment that makes it so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from counters import layout, lifecycle, shards, wire
from counters.commit import Refused
from counters.errors import StaleAudit
from counters.increments import checked_children
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
        children: path of the collection that it counts.
        stored: the counter's value, the sum over its shards.
        actual: how many children there were.
        total: what the last rollup wrote; None before the first. Older than the rest.
        as_of: the moment of ``stored`` and ``actual``.
        exists: whether there is a counter document. Without one, ``backfill()`` makes it, and
            whatever is ``stored`` are orphans of a deleted one.
    """

    path: str
    children: str
    stored: int
    actual: int
    total: int | None
    as_of: datetime
    exists: bool

    @property
    def parent(self) -> str:
        """Path of the document that the children belong to; empty for a root collection."""
        return layout.split_collection(self.children)[0]

    @property
    def difference(self) -> int:
        """True minus stored: what a repair adds. Anything but 0 is a bug to find."""
        return self.actual - self.stored


@dataclass(slots=True)
class Reads:
    """How many billed reads there were."""

    number: int = 0

    def documents(self, found: int) -> None:
        """Documents that were got or that a query returned: one each, at least one."""
        self.number += max(1, found)

    def entries(self, counted: int) -> None:
        """Index entries that an aggregation went through: one per 1,000, at least one."""
        self.number += max(1, math.ceil(counted / shards.SUMMED_FOR_A_READ))


def audit(call: Call, counter: str, children: str) -> Steps[Audit]:
    """Compare a counter with its children at one moment, without a lock; see ``ReferenceCount.audit``.

    The moment is when the counter document was read, and is let settle for 100 ms.
    """
    document = (yield from call.get(counter))[counter]
    return (yield from _settled(call, document, children))


def _settled(call: Call, document: wire.Document, children: str) -> Steps[Audit]:
    yield Sleep(SETTLING / 1_000_000)
    return (yield from compare(call, document, children, Reads(), at_once=True))


def compare(
    call: Call, document: wire.Document, children: str, reads: Reads, *, at_once: bool
) -> Steps[Audit]:
    """Compare a counter, as its document was read, with its children at that moment.

    A difference is not taken for one before every shard was looked at: the server's SUM passes
    over what is no number without a word. ``at_once`` is a round trip less.
    """
    settings = parse(document) if document.exists else None
    if settings is not None:
        checked_children(settings, document.path, children)
    moment = document.read_time
    work: list[Steps[Any]] = [
        shards.summed(call, document.path, read_time=moment),
        count(call, children, moment),
    ]
    if at_once:
        stored, actual = yield Gather(work, limit=2)
    else:
        stored, actual = (yield from work[0]), (yield from work[1])
    reads.entries(settings.shards if settings else 0)
    reads.entries(actual)
    if stored != actual:
        found = yield from shards.everything(call, document.path, (layout.VALUE,), read_time=moment)
        reads.documents(shards.reads_of_everything(len(found)))
        stored = shards.added_up(found, document.path)
    return Audit(
        path=document.path,
        children=children,
        stored=stored,
        actual=actual,
        total=total_in(document).value,
        as_of=wire.to_datetime(moment),
        exists=document.exists,
    )


def count(call: Call, children: str, moment: int) -> Steps[int]:
    """How many children there were at a moment: 1 round trip, 1 read per 1,000, at least 1."""
    parent, collection = layout.split_collection(children)
    answer = yield from call.ask(
        lambda timeout: wire.count_of(call.database, parent, collection, timeout, read_time=moment)
    )
    return wire.sum_in(answer) or 0


def repair(call: Call, counter: str, children: str, found: Audit, by: str) -> Steps[int]:
    """Add the difference that ``found`` found, if it is still there; return it."""
    while True:
        document = (yield from call.get(counter))[counter]
        settings = parse(document)
        fresh = yield from _settled(call, document, children)
        if fresh.difference != found.difference:
            raise StaleAudit(
                f"{counter}: the difference was {found.difference} and is {fresh.difference} now; "
                "nothing was changed: audit again"
            )
        if (yield from _adjust(call, settings, fresh, "repair", by)):
            return fresh.difference


def backfill(call: Call, counter: str, children: str, by: str) -> Steps[int]:
    """Bring the counter, which is made if need be, to the number of children at a moment.

    What is added and removed after that moment changes both alike. Returns what was added.
    """
    while True:
        document = (yield from call.get(counter))[counter]
        if not document.exists:
            yield from lifecycle.create(
                call,
                counter,
                shards_wanted=None,
                initial=None,
                mirrors=None,
                children=children,
                known=document,
            )
            continue
        settings = parse(document)
        fresh = yield from _settled(call, document, children)
        if (yield from _adjust(call, settings, fresh, "backfill", by)):
            return fresh.difference


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
        yield from lifecycle.adjust(call, fresh.path, settings, fresh.difference, record)
    except Refused:
        return False
    return True
