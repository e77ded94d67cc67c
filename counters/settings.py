"""What a counter document says: its settings and its total. Pure: no client, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import permutations
from typing import TYPE_CHECKING, Any

from google.cloud.firestore_v1.base_document import BaseDocumentReference
from google.cloud.firestore_v1.field_path import FieldPath
from google.protobuf.timestamp_pb2 import Timestamp

from counters import layout, wire
from counters.errors import CounterNotFound, InvalidType, InvalidValue, UnsupportedLayout

if TYPE_CHECKING:
    from counters.wire import Document


@dataclass(frozen=True, slots=True)
class Mirror:
    """A field of another document that the rollup keeps equal to the counter's total.

    For lists that are ordered or filtered by the count. ``document`` must exist: a rollup updates
    it and never creates it. ``field`` may be a path (``stats.likes``). One billed write for each
    rollup that finds the counter changed.
    """

    document: BaseDocumentReference
    field: str

    def __post_init__(self) -> None:
        if not isinstance(self.document, BaseDocumentReference):
            raise InvalidType(f"a mirror is in a DocumentReference, not in {type(self.document).__name__}")
        if not isinstance(self.field, str):
            raise InvalidType(f"a mirror's field is a str, not {type(self.field).__name__}")
        _parts(self.field)


@dataclass(frozen=True, slots=True)
class Total:
    """What the last rollup wrote: ``value`` was the exact sum at ``as_of`` (an aware datetime).

    Both None before the first rollup. How old ``as_of`` is, is the total's staleness.
    """

    value: int | None
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class MirrorTarget:
    """A mirror as stored: the document's path, and the names that lead to the field."""

    path: str
    field: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """A counter's settings, and when its document was created and changed (microseconds)."""

    shards: int
    initial: int
    mirrors: frozenset[MirrorTarget]
    children: str | None
    created: int
    updated: int


def target_of(mirror: Mirror) -> MirrorTarget:
    """Where a mirror is, as stored."""
    return MirrorTarget(mirror.document.path, _parts(mirror.field))


def targets_of(mirrors: Iterable[Mirror], counter: str, database: str) -> frozenset[MirrorTarget]:
    """Check and convert mirrors of the counter at path ``counter`` of ``database``."""
    if isinstance(mirrors, Mirror) or not isinstance(mirrors, Iterable):
        raise InvalidType(f"mirrors must be a list of Mirror, not {type(mirrors).__name__}")
    targets = set()
    for mirror in mirrors:
        if not isinstance(mirror, Mirror):
            raise InvalidType(f"mirrors must be a list of Mirror, not of {type(mirror).__name__}")
        target = target_of(mirror)
        if layout.is_ours(target.path):
            raise InvalidValue(
                f"{target.path} is among this package's own documents: no place for a mirror"
            )
        if target.path == counter:
            raise InvalidValue("a counter cannot be mirrored into its own document")
        if wire.database_of(wire.client_of(mirror.document)) != database:
            raise InvalidValue(
                f"the mirror {target.path} is in another database than its counter: "
                "total and mirrors are written in one commit"
            )
        targets.add(target)
    for one, other in permutations(targets, 2):
        if one.path == other.path and one.field == other.field[: len(one.field)]:
            raise InvalidValue(
                f"of two mirrors in {one.path} one is within the other: "
                f"{'.'.join(one.field)} and {'.'.join(other.field)}"
            )
    return frozenset(targets)


def fields_of(
    database: str,
    shards: int,
    initial: int,
    mirrors: frozenset[MirrorTarget],
    children: str | None = None,
) -> dict[str, Any]:
    """The data of a new counter document; ``children`` makes it a reference count."""
    data: dict[str, Any] = {layout.LAYOUT_FIELD: layout.LAYOUT, layout.SHARD_COUNT: shards}
    if initial:
        data[layout.INITIAL] = initial
    if children:
        data[layout.CHILDREN] = children
    if mirrors:
        data[layout.MIRRORS] = mirrors_field(database, mirrors)
    return data


def mirrors_field(database: str, mirrors: frozenset[MirrorTarget]) -> list[dict[str, Any]]:
    """Mirrors as they are stored."""
    return [
        {
            layout.MIRROR_DOCUMENT: wire.Reference(wire.document_name(database, target.path)),
            layout.MIRROR_FIELD: ".".join(wire.quote(part) for part in target.field),
        }
        for target in sorted(mirrors, key=lambda target: (target.path, target.field))
    ]


def parse(document: Document) -> Settings:
    """Read a counter document's settings.

    Raises ``CounterNotFound``, or ``UnsupportedLayout`` for what this version cannot work with.
    """
    fields = document.fields
    if fields is None:
        raise CounterNotFound(f"there is no counter at {document.path}: create() it first")
    number = fields.get(layout.LAYOUT_FIELD)
    if type(number) is not int or number < 1:  # True is an int too
        raise UnsupportedLayout(
            f"{document.path} exists and is no counter document: give the counter a document of its own"
        )
    if number > layout.LAYOUT:
        raise UnsupportedLayout(
            f"{document.path} has layout {number}, this version knows {layout.LAYOUT}: "
            "upgrade firestore-counters"
        )
    shards = fields.get(layout.SHARD_COUNT)
    if type(shards) is not int or not 1 <= shards <= layout.MAX_SHARDS:
        raise UnsupportedLayout(
            f"`{layout.SHARD_COUNT}` of {document.path} is {shards!r}: "
            f"set it to a whole number from 1 to {layout.MAX_SHARDS:,}"
        )
    initial = fields.get(layout.INITIAL, 0)
    children = fields.get(layout.CHILDREN)
    return Settings(
        shards=shards,
        initial=initial if isinstance(initial, int) else 0,
        mirrors=frozenset(_targets(fields.get(layout.MIRRORS), document.path)),
        children=children if isinstance(children, str) else None,
        created=document.created,
        updated=document.updated,
    )


def as_of_in(document: Document) -> int | None:
    """The moment of the stored total in microseconds; None before the first rollup."""
    stamp = (document.fields or {}).get(layout.AS_OF)
    return wire.micros(stamp) if isinstance(stamp, Timestamp) else None


def total_in(document: Document) -> Total:
    """The stored total; None and None where there is no total, or no counter."""
    as_of = as_of_in(document)
    value = (document.fields or {}).get(layout.TOTAL)
    if as_of is None or not isinstance(value, int):
        return Total(None, None)
    return Total(value, wire.to_datetime(as_of))


def total_from(data: Mapping[str, Any]) -> Total:
    """The total in a document's data as the SDK's snapshots give it."""
    value, as_of = data.get(layout.TOTAL), data.get(layout.AS_OF)
    if not isinstance(value, int) or not isinstance(as_of, datetime):
        return Total(None, None)
    # Without the nanoseconds of the SDK's own class: both twins give plain datetimes.
    return Total(value, wire.to_datetime(wire.from_datetime(as_of)))


def _targets(stored: Any, counter: str) -> Sequence[MirrorTarget]:
    try:
        return [
            MirrorTarget(
                wire.relative_path(item[layout.MIRROR_DOCUMENT].name),
                _parts(item[layout.MIRROR_FIELD]),
            )
            for item in stored or []
        ]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedLayout(
            f"`{layout.MIRRORS}` of {counter} is damaged: set_mirrors() writes it anew"
        ) from error


def _parts(field: str) -> tuple[str, ...]:
    try:
        parts = FieldPath.from_api_repr(field).parts
    except ValueError as error:
        raise InvalidValue(f"{field!r} is no field path: {error}") from error
    for part in parts:
        if (
            not part
            or len(part.encode(errors="replace")) > layout.LONGEST_ID
            or re.fullmatch("__.*__", part, re.DOTALL)
        ):
            raise InvalidValue(f"{field[:80]!r} is no field path: Firestore takes no field {part[:80]!r}")
    return tuple(parts)
