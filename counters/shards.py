"""Writing, summing and listing a counter's shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counters import layout, wire
from counters.errors import CorruptShard
from counters.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from counters.context import Call

PAGE: Final = 300
"""Shards read or deleted in one request; a page stays far below Firestore's 10 MiB a request."""

SUMMED_FOR_A_READ: Final = 1000
"""Index entries that an aggregation sums for one billed read
(https://firebase.google.com/docs/firestore/pricing#aggregation_queries, 2026-11-30)."""


_LIMITS: Final = frozenset({wire.INT64_MIN, wire.INT64_MAX})


def add(call: Call, counter: str, shard: int, amount: int, receipt: wire.Receipt | None) -> Any:
    """The write that adds ``amount`` to a shard: one billed write, no read, no read lock."""
    return wire.add_to_shard(
        call.name(layout.shard_path(counter, shard)),
        bucket=(layout.BUCKET, layout.bucket(counter, shard)),
        add={layout.VALUE: amount, layout.WRITES: 1},
        stamp=layout.UPDATED_AT,
        receipt=receipt,
    )


def value(call: Call, counter: str, *, read_time: int | None = None) -> Steps[int]:
    """The exact sum at one snapshot: 1 round trip, 1 read per 1,000 shards, at least 1.

    Raises ``CorruptShard`` if the sum is no whole number; finding the shard then reads all shards.
    """
    total = yield from summed(call, counter, read_time=read_time)
    if total is not None:
        return total
    documents = yield from everything(call, counter, (layout.VALUE,), read_time=read_time)
    return added_up(documents, counter)


def summed(call: Call, counter: str, *, read_time: int | None = None) -> Steps[int | None]:
    """The server's sum at one snapshot; None if it is no whole number, or past int64 on the way."""
    answer = yield from call.ask(
        lambda timeout: wire.sum_of(
            call.database, counter, layout.SHARDS, layout.VALUE, timeout, read_time=read_time
        )
    )
    total = wire.sum_in(answer)
    return None if total in _LIMITS else total


def page(
    call: Call,
    counter: str,
    fields: tuple[str, ...],
    *,
    after: str | None = None,
    read_time: int | None = None,
) -> Steps[list[wire.Document]]:
    """Up to ``PAGE`` shards in the order of their ids; one read each, at least 1."""
    answer = yield from call.ask(
        lambda timeout: wire.list_documents(
            call.database,
            counter,
            layout.SHARDS,
            fields,
            timeout,
            limit=PAGE,
            after=after,
            read_time=read_time,
        )
    )
    found = wire.page_of(answer)
    if read_time is None and found.read_time:
        call.context.saw_server_time(found.read_time)
    return found.documents


def reads_of_everything(count: int) -> int:
    """What ``everything`` bills for so many shards: the page that ends it may be empty."""
    return count + (count % PAGE == 0)


def everything(
    call: Call, counter: str, fields: tuple[str, ...], *, read_time: int | None = None
) -> Steps[list[wire.Document]]:
    """All shards, at one moment; one read each, at least 1."""
    documents: list[wire.Document] = []
    after: str | None = None
    while True:
        found = yield from page(call, counter, fields, after=after, read_time=read_time)
        documents += found
        if len(found) < PAGE:
            return documents
        after, read_time = found[-1].path, found[-1].read_time


def damage(document: wire.Document) -> CorruptShard | None:
    """What is wrong with a shard, if anything is: its value must be a whole number."""
    held = (document.fields or {}).get(layout.VALUE)
    if isinstance(held, int) and not isinstance(held, bool):
        if held not in _LIMITS:
            return None
        return CorruptShard(
            f"`{layout.VALUE}` of {document.path} has come to the end of a 64-bit integer, where "
            "Firestore counts no further and says nothing: increments may be missing",
            document.path,
        )
    return CorruptShard(
        f"`{layout.VALUE}` of {document.path} is {held!r}, no whole number: "
        "set it to what it should be, or delete the document if it is no shard",
        document.path,
    )


def damaged(documents: Iterable[wire.Document]) -> Iterator[CorruptShard]:
    """What is wrong with each damaged shard among ``documents``."""
    for document in documents:
        error = damage(document)
        if error is not None:
            yield error


def added_up(documents: Iterable[wire.Document], counter: str) -> int:
    """The sum over shards that were read. Raises ``CorruptShard`` for what cannot be summed."""
    documents = list(documents)
    for error in damaged(documents):
        raise error
    total = sum(int((document.fields or {})[layout.VALUE]) for document in documents)
    if not wire.INT64_MIN <= total <= wire.INT64_MAX:
        raise CorruptShard(
            f"the shards of {counter} add up to more than a signed 64-bit integer holds: "
            "Firestore counts no further"
        )
    return total
