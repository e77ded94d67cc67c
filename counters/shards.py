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
    answer = yield from call.ask(
        lambda timeout: wire.sum_of(
            call.database, counter, layout.SHARDS, layout.VALUE, timeout, read_time=read_time
        )
    )
    total = wire.sum_in(answer)
    if total is None:
        raise (yield from _corruption(call, counter, read_time))
    return total


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


def everything(
    call: Call, counter: str, fields: tuple[str, ...], *, read_time: int | None = None
) -> Steps[list[wire.Document]]:
    """All shards; one read each, at least 1."""
    documents: list[wire.Document] = []
    after: str | None = None
    while True:
        found = yield from page(call, counter, fields, after=after, read_time=read_time)
        documents += found
        if len(found) < PAGE:
            return documents
        after = found[-1].path


def damage(document: wire.Document) -> CorruptShard | None:
    """What is wrong with a shard, if anything is: its value must be a whole number."""
    held = (document.fields or {}).get(layout.VALUE)
    if isinstance(held, int) and not isinstance(held, bool):
        return None
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


def _corruption(call: Call, counter: str, read_time: int | None) -> Steps[CorruptShard]:
    documents = yield from everything(call, counter, (layout.VALUE,), read_time=read_time)
    for error in damaged(documents):
        return error
    return CorruptShard(
        f"the shards of {counter} add up to more than a signed 64-bit integer holds: "
        "Firestore counts no further"
    )
