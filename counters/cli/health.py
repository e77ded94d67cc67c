"""What the database itself says of the rollup: what would the next run find? Locks and writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from counters import Counters, layout, rollup, wire
from counters.context import Call
from counters.settings import as_of_in
from counters.steps import Sleep, Steps, run

_MOST: Final = 1000
"""How many changed shards, and how many notes of failures, are looked at."""

_MIRROR_GONE: Final = re.compile(r"the mirror \S.* of \S.* does not exist: ")
"""How the rollup notes a counter whose total it wrote, but not to every mirror."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A counter whose total lacks changes, the oldest of them made at ``since``."""

    path: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Failing:
    """A counter that the rollup failed on, for the first time at ``since``."""

    path: str
    error: str
    since: datetime | None

    @property
    def total_moves(self) -> bool:
        """Whether its total was written, and only a mirror was not."""
        return _MIRROR_GONE.match(self.error) is not None


@dataclass(frozen=True, slots=True)
class Health:
    """The state at a ``moment`` of the server's clock.

    Attributes:
        last_run: the moment of the last run that found a change; one that finds none leaves no
            trace. None before the first.
        shards: shards looked at: those changed since shortly before that, the oldest 1,000.
        current: counters of these whose totals have all of it.
        oldest: the oldest ``as_of`` of any of their totals.
        waiting: counters whose totals lack some of it, and which no run failed on.
        orphans: counters of these that have no document.
        failing: counters that runs failed on.
        reads: what looking cost, in billed document reads.
    """

    moment: datetime
    last_run: datetime | None
    shards: int
    current: int
    oldest: datetime | None
    waiting: tuple[Waiting, ...]
    orphans: tuple[str, ...]
    failing: tuple[Failing, ...]
    reads: int

    @property
    def longest_waiting(self) -> Waiting | None:
        """The counter that has waited longest."""
        return min(self.waiting, key=lambda waiting: waiting.since, default=None)


def examine(counters: Counters) -> Health:
    """Look, as a run of the rollup would, at no more than 1,000 shards.

    Price: 3 round trips and 0.1 s; 1 read for each cursor and note, changed shard and counter.

    Raises:
        ReadFailed: the server could not be read, or has no index for it.
    """
    call = Call(counters.context, wire.database_of(counters.client))
    return run(_examine(call), wire.SyncTransport(counters.client))


def _examine(call: Call) -> Steps[Health]:
    answer = yield from call.ask(
        lambda timeout: wire.list_documents(call.database, "", layout.ROLLUPS, (), timeout, limit=_MOST)
    )
    state = wire.page_of(answer)
    failing = tuple(_failing(state.documents))
    scans = [scan for scan in (_moment(doc, layout.SCANNED_AT) for doc in state.documents) if scan]
    # Like the rollup: on an emulator, what is read at this very moment may miss a commit before it.
    yield Sleep(rollup.SETTLING / 1_000_000)
    since = max(0, min(scans, default=0) - rollup.SHORT_OVERLAP)
    answer = yield from call.ask(
        lambda timeout: wire.changed_since(
            call.database,
            layout.SHARDS,
            (layout.UPDATED_AT,),
            timeout,
            bucket=(layout.BUCKET, range(layout.BUCKETS)),
            changed=(layout.UPDATED_AT, since),
            limit=_MOST,
            read_time=state.read_time,
        )
    )
    changes: dict[str, list[int]] = {}
    shards = wire.page_of(answer).documents
    for shard in shards:
        counter = layout.counter_of(shard.path)
        if counter is not None:
            changes.setdefault(counter, []).append(shard.updated)
    documents: Mapping[str, wire.Document] = {}
    if changes:
        documents = yield from call.get(*sorted(changes), read_time=state.read_time)
    waiting = {}
    for path, document in documents.items():
        late = [updated for updated in changes[path] if updated > (as_of_in(document) or 0)]
        if document.exists and late:
            waiting[path] = min(late)
    known = {failure.path for failure in failing}
    moments = [as_of for as_of in map(as_of_in, documents.values()) if as_of is not None]
    return Health(
        moment=wire.to_datetime(state.read_time),
        last_run=wire.to_datetime(max(scans)) if scans else None,
        shards=len(shards),
        current=sum(document.exists and path not in waiting for path, document in documents.items()),
        oldest=wire.to_datetime(min(moments)) if moments else None,
        waiting=tuple(
            Waiting(path, wire.to_datetime(oldest)) for path, oldest in waiting.items() if path not in known
        ),
        orphans=tuple(path for path, document in documents.items() if not document.exists),
        failing=failing,
        reads=max(1, len(state.documents)) + max(1, len(shards)) + len(documents),
    )


def _failing(documents: Iterable[wire.Document]) -> Iterable[Failing]:
    for document in documents:
        fields: Mapping[str, Any] = document.fields or {}
        if layout.PENDING_COUNTER in fields:
            since = _moment(document, layout.PENDING_SINCE)
            yield Failing(
                path=str(fields[layout.PENDING_COUNTER]),
                error=str(fields.get(layout.PENDING_ERROR)),
                since=wire.to_datetime(since) if since else None,
            )


def _moment(document: wire.Document, name: str) -> int | None:
    stamp = (document.fields or {}).get(name)
    return wire.micros(stamp) if isinstance(stamp, Timestamp) else None
