"""What may tell how a reference count came to drift: its shards, its children, and its past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from counters import audit, layout, shards, wire
from counters.audit import Audit, Reads
from counters.context import Call, Context
from counters.errors import ReadFailed
from counters.steps import Gather, Steps

_SECOND: Final = 1_000_000

_LOOKED_AT: Final = 1000
"""The most children, and the most adjustments, that are looked at."""

LONGEST_PAST: Final = 3540 * _SECOND
"""How far back the past is searched: Firestore reads any moment of the past hour
(https://firebase.google.com/docs/firestore/pitr, 2026-11-30), less a minute to do it in."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What may tell how a count came to drift, as it was at the audit's moment.

    Attributes:
        newest_child: id of the child that changed last; of the first 1,000 by id.
        child_changed_at: when that was.
        uncounted: ids of children that bear no ``counter_shard`` and are younger than the last repair
            or backfill: somebody else put them there. Of the first 1,000 by id.
        children_seen: how many children were looked at.
        counted_at: when a shard last counted something.
        shard_changed_at: when a shard last changed. Much later than ``counted_at`` only if old receipts
            were cleared, or somebody else wrote to it.
        strangers: ids of documents among the shards that are no shards, and yet are summed.
        orphans: shards without a counter document, of one that was deleted.
        adjusted_at: when the last repair or backfill was.
        came_after: the last moment found, within the past hour, at which the difference was another
            one; None where it is older than that.
        came_by: the first moment found from which on the difference was what it is now. At most a
            second after ``came_after``.
        reads: what looking cost, in billed reads.
    """

    newest_child: str | None
    child_changed_at: datetime | None
    uncounted: tuple[str, ...]
    children_seen: int
    counted_at: datetime | None
    shard_changed_at: datetime | None
    strangers: tuple[str, ...]
    orphans: int
    adjusted_at: datetime | None
    came_after: datetime | None
    came_by: datetime
    reads: int


def explain(context: Context, database: str, found: Audit) -> Steps[Evidence]:
    """Gather what may tell how ``found`` came to be; see ``ReferenceCount.explain``."""
    call = Call(context, database)
    moment = wire.from_datetime(found.as_of)
    parent, collection = layout.split_collection(found.children)
    summed, seen, adjusted = yield Gather(
        [
            shards.everything(call, found.path, (layout.VALUE, layout.UPDATED_AT), read_time=moment),
            _page(call, parent, collection, (layout.CHILD_SHARD,), moment),
            _page(call, found.path, layout.ADJUSTMENTS, (layout.ADJUSTMENT_AS_OF,), moment),
        ],
        limit=3,
    )
    reads = Reads()
    reads.documents(shards.reads_of_everything(len(summed)))
    reads.documents(len(seen))
    reads.documents(len(adjusted))
    newest = max(seen, key=lambda child: child.updated, default=None)
    adjusted_as_of = _latest(adjusted, layout.ADJUSTMENT_AS_OF)
    came_after, came_by = yield from _search(call, found, moment, reads)
    return Evidence(
        newest_child=_id(newest) if newest else None,
        child_changed_at=_when(newest.updated) if newest else None,
        uncounted=tuple(_id(child) for child in seen if _is_uncounted(child, adjusted_as_of)),
        children_seen=len(seen),
        counted_at=_when(_latest(summed, layout.UPDATED_AT)),
        shard_changed_at=_when(max((shard.updated for shard in summed), default=0)),
        strangers=tuple(_id(shard) for shard in summed if not layout.is_shard_id(_id(shard))),
        orphans=0 if found.exists else len(summed),
        adjusted_at=_when(max((record.created for record in adjusted), default=0)),
        came_after=_when(came_after),
        came_by=wire.to_datetime(came_by),
        reads=reads.number,
    )


def _page(
    call: Call, parent: str, collection: str, fields: tuple[str, ...], moment: int
) -> Steps[list[wire.Document]]:
    answer = yield from call.ask(
        lambda timeout: wire.list_documents(
            call.database, parent, collection, fields, timeout, limit=_LOOKED_AT, read_time=moment
        )
    )
    return wire.page_of(answer).documents


def _search(call: Call, found: Audit, moment: int, reads: Reads) -> Steps[tuple[int, int]]:
    """Between which two moments the difference came to be what it is; 0 for longer ago than that.

    In steps that double, back to a moment when it was another; then halving what lies between.
    """
    before, after = 0, moment
    step = _SECOND
    while not before and step:
        difference = yield from _difference(call, found, moment - step, reads)
        if difference == found.difference:
            after = moment - step
            step = 0 if step >= LONGEST_PAST else min(2 * step, LONGEST_PAST)
        elif difference is None:
            break  # older than the server remembers
        else:
            before = moment - step
    while before and after - before > _SECOND:
        middle = (before + after) // 2
        if (yield from _difference(call, found, middle, reads)) == found.difference:
            after = middle
        else:
            before = middle
    return before, after


def _difference(call: Call, found: Audit, moment: int, reads: Reads) -> Steps[int | None]:
    """The difference as it was at a moment; None where that cannot be read any more."""
    call = call.renewed()
    try:
        stored, actual = yield Gather(
            [shards.summed(call, found.path, read_time=moment), audit.count(call, found.children, moment)],
            limit=2,
        )
    except ReadFailed:
        return None
    reads.entries(0)
    reads.entries(actual)
    difference: int = actual - (stored or 0)
    return difference


def _is_uncounted(child: wire.Document, adjusted: int) -> bool:
    return layout.CHILD_SHARD not in (child.fields or {}) and child.created > adjusted


def _latest(documents: Sequence[wire.Document], field: str) -> int:
    stamps: list[Any] = [(document.fields or {}).get(field) for document in documents]
    return max((wire.micros(stamp) for stamp in stamps if isinstance(stamp, Timestamp)), default=0)


def _when(moment: int) -> datetime | None:
    return wire.to_datetime(moment) if moment else None


def _id(document: wire.Document) -> str:
    return document.path.rpartition("/")[2]
