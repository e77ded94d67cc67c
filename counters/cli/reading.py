"""Everything about one counter at one moment: its document and every shard. Locks nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from counters import Counter, Counters, Total, layout, rollup, shards, wire
from counters.context import Call
from counters.settings import Settings, parse, total_in
from counters.steps import Sleep, Steps, run

_FIELDS: Final = (layout.VALUE, layout.WRITES, layout.UPDATED_AT, layout.RECEIPTS)


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard. ``value`` is None, and ``damage`` says why, where it holds no whole number."""

    id: str
    value: int | None
    writes: int | None
    updated_at: datetime | None
    receipts: int
    damage: str | None


@dataclass(frozen=True, slots=True)
class Reading:
    """A counter at a ``moment`` of the server's clock.

    ``settings`` is None where there is no counter document; shards are then orphans. ``reads`` is
    what looking cost, in billed document reads.
    """

    path: str
    settings: Settings | None
    total: Total
    moment: datetime
    shards: tuple[Shard, ...]
    reads: int

    @property
    def value(self) -> int | None:
        """The exact value at the moment; None where a damaged shard makes that unknowable."""
        values = [shard.value for shard in self.shards if shard.value is not None]
        return sum(values) if len(values) == len(self.shards) else None

    @property
    def staleness(self) -> timedelta | None:
        """How old the total is; None before the first rollup."""
        return None if self.total.as_of is None else self.moment - self.total.as_of


@dataclass(frozen=True, slots=True)
class Sample:
    """A reading in the course of a run: so many seconds after its start, with so many rows done.

    ``children`` is the value of the reference count beside it, where there is one.
    """

    seconds: float
    done: int
    reading: Reading
    children: int | None = None


def read(counters: Counters, counter: Counter) -> Reading:
    """Read a counter and all its shards, exact at one moment a tenth of a second ago.

    Price: 2 round trips and 0.1 s; 1 read, and 1 a shard.

    Raises:
        ReadFailed: the server could not be read.
        UnsupportedLayout: the document is no counter that this version knows.
    """
    call = Call(counters.context, wire.database_of(counters.client))
    return run(_read(call, counter.path), wire.SyncTransport(counters.client))


def _read(call: Call, path: str) -> Steps[Reading]:
    document = (yield from call.get(path))[path]
    settings = parse(document) if document.exists else None
    # Like the rollup: on an emulator, what is read at this very moment may miss a commit before it.
    yield Sleep(rollup.SETTLING / 1_000_000)
    found = yield from shards.everything(call, path, _FIELDS, read_time=document.read_time)
    return Reading(
        path=path,
        settings=settings,
        total=total_in(document),
        moment=wire.to_datetime(document.read_time),
        shards=tuple(sorted((_shard(shard) for shard in found), key=_order)),
        reads=1 + shards.reads_of_everything(len(found)),
    )


def _shard(document: wire.Document) -> Shard:
    fields: Mapping[str, Any] = document.fields or {}
    damage = shards.damage(document)
    updated = fields.get(layout.UPDATED_AT)
    writes = fields.get(layout.WRITES)
    receipts = fields.get(layout.RECEIPTS)
    return Shard(
        id=document.path.rsplit("/", 1)[1],
        value=None if damage else fields[layout.VALUE],
        writes=writes if isinstance(writes, int) else None,
        updated_at=wire.to_datetime(wire.micros(updated)) if isinstance(updated, Timestamp) else None,
        receipts=len(receipts) if isinstance(receipts, Mapping) else 0,
        damage=None if damage is None else str(damage),
    )


def _order(shard: Shard) -> tuple[int, str]:
    """By number, where ids are numbers as they should be."""
    return (int(shard.id), "") if shard.id.isdecimal() else (layout.MAX_SHARDS, shard.id)
