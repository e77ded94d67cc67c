"""Joining the caller's own commit: which batches can carry an increment, and how it gets in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.cloud.firestore_v1 import SERVER_TIMESTAMP, Increment

from counters import layout, wire
from counters.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from google.cloud.firestore_v1 import AsyncDocumentReference, DocumentReference
    from google.cloud.firestore_v1.base_batch import BaseBatch


def checked_batch(
    batch: object,
    batch_type: type[BaseBatch],
    transaction_type: type[BaseBatch],
    counter: DocumentReference | AsyncDocumentReference,
) -> BaseBatch:
    """``batch`` if it commits all or nothing, may write, and is of the counter's client."""
    if not isinstance(batch, batch_type | transaction_type):
        raise InvalidType(
            f"an increment is staged into a {batch_type.__name__} or {transaction_type.__name__} "
            f"of this client, not into {type(batch).__name__}: anything else is not committed "
            "all or nothing"
        )
    if wire.client_of(batch) is not wire.client_of(counter):
        raise InvalidValue("the batch belongs to another client than this counter")
    if wire.is_read_only(batch):
        raise InvalidValue("the transaction is read-only: begin one that may write")
    return batch


def stage_into(
    batch: BaseBatch, counter: DocumentReference | AsyncDocumentReference, shard: int, amount: int
) -> None:
    """Add the write to ``batch`` that adds ``amount`` to a shard; without a receipt."""
    batch.set(
        counter.collection(layout.SHARDS).document(str(shard)),
        {
            layout.VALUE: Increment(amount),
            layout.WRITES: Increment(1),
            layout.UPDATED_AT: SERVER_TIMESTAMP,
            layout.BUCKET: layout.bucket(counter.path, shard),
        },
        merge=True,
    )
