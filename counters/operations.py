"""Work that leaves an operation document: keyed increments, and transactions of the caller's own.

An operation document is created in the same commit as what it vouches for and stays until its
``expire_at``. While it stays, it fences by itself: of several copies of a commit that creates it,
the first wins and the others are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from google.api_core import exceptions

from counters import increments, layout, receipts, shards, wire
from counters.commit import Proof, Refused, Staged, commit_within, text_of
from counters.context import Call, OutOfTime
from counters.errors import (
    InvalidArgument,
    InvalidType,
    InvalidValue,
    KeyConflict,
    NotApplied,
    OutcomeUnknown,
)
from counters.steps import Invoke, Steps

_SHOWN: Final = 80
"""So many characters of a key stand in an error's text."""


def checked_key(key: object) -> str:
    """``key`` if it can be an idempotency key: any text but the empty one."""
    if isinstance(key, bytes):
        raise InvalidType("an idempotency key is a str, not bytes: decode() it")
    if not isinstance(key, str):
        raise InvalidType(f"an idempotency key is a str, not {type(key).__name__}: convert it with str()")
    if not key:
        raise InvalidValue("an idempotency key must not be empty: every event would be the same one")
    return key


def checked_body(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``body`` if it can be the body of a transaction."""
    if not callable(body):
        raise InvalidType(f"the body of a transaction is a function, not {type(body).__name__}")
    return body


def increment_once(call: Call, path: str, key: str, amount: int) -> Steps[bool]:
    """Add ``amount`` unless ``key`` was used on this counter before; whether this call added it."""
    settings = yield from increments.load_settings(call, path)
    lane = call.context.lanes.acquire()
    receipt = wire.Receipt(layout.RECEIPTS, lane.name, lane.next_mark(call.context.server_time()))
    operation = layout.operation_path(path, key)
    data = {
        layout.OPERATION_COUNTER: path,
        layout.OPERATION_AMOUNT: amount,
        layout.EXPIRE_AT: wire.timestamp(call.context.expiry()),
        **receipt.as_field(),
    }
    # Any exception but a known outcome drops the lane: its commit may still be on its way.
    shard: int | None = None
    attempt = 0
    sent = False
    cause: Exception | None = None
    try:
        while True:
            shard = call.context.shard(settings.shards, avoid=shard)
            writes = [
                wire.create(call.name(operation), data),
                shards.add(call, path, shard, amount, None),
            ]
            rpc = wire.commit(call.database, writes, call.patience())
            sent = True
            try:
                answer = yield rpc
            except InvalidArgument:
                raise  # not the server's: the client cannot be used here
            except Exception as error:  # noqa: BLE001 - any answer but OK is doubt
                cause = error
            else:
                call.context.saw_server_time(wire.commit_time(answer))
                call.context.lanes.release(lane)
                return True
            found = yield from _found(call, operation)
            if found is not None:
                call.context.lanes.release(lane)
                return _judge(found, receipt, path, key, amount)
            if not isinstance(cause, (*wire.RETRYABLE, exceptions.AlreadyExists)):
                # Refused for good, but without a fence a copy may still be on its way.
                raise OutcomeUnknown(_again(cause)) from cause
            yield from call.back_off(attempt)
            attempt += 1
    except OutOfTime:
        if sent:
            raise OutcomeUnknown(_again(cause)) from cause
        call.context.lanes.release(lane)
        raise NotApplied(
            f"nothing was applied within {call.context.timeout:g} s: no time was left to try; "
            "calling again is safe"
        ) from None


def _short(key: str) -> str:
    return repr(key if len(key) <= _SHOWN else f"{key[:_SHOWN]}…")


def _again(cause: Exception | None) -> str:
    return (
        f"it cannot be known whether this was applied: {text_of(cause)}; "
        "calling again with the same key is safe"
    )


def _found(call: Call, operation: str) -> Steps[wire.Document | None]:
    document = yield from call.read_for_certain(operation)
    return document if document.exists else None


def _judge(found: wire.Document, receipt: wire.Receipt, path: str, key: str, amount: int) -> bool:
    """Whether the operation found is this call's; it is refused if it is another amount's."""
    fields = found.fields or {}
    if receipts.receipts_in(fields).get(receipt.lane) == receipt.mark:
        return True
    used = fields.get(layout.OPERATION_AMOUNT)
    if used != amount:
        raise KeyConflict(
            f"the key {_short(key)} was used on {path} with {used}, not {amount}: two events share one "
            "key; put what tells them apart into it, the function's name for one"
        )
    return False


Begin = Callable[[bytes], Any]
"""Makes the SDK's transaction object around the id of one that was begun."""


def transact(call: Call, make: Begin, body: Callable[[Any], Any]) -> Steps[Any]:
    """Run ``body`` in transactions until one is applied, exactly once; return what it returned.

    What the body raises ends the call after a rollback; ABORTED from a read of its is contention,
    and the body runs again in a new transaction.
    """
    yield from call.learn_server_time()
    result: Any = None

    def stage(transaction: bytes, next_receipt: Callable[[], wire.Receipt]) -> Steps[Staged]:
        nonlocal result
        handle = make(transaction)
        result = yield Invoke(partial(body, handle))
        writes = wire.writes_of(handle)
        if not writes:
            return Staged([], None)
        receipt = next_receipt()
        proof = layout.transaction_path(receipt.lane, receipt.mark)
        data = {layout.EXPIRE_AT: wire.timestamp(call.context.expiry()), **receipt.as_field()}
        return Staged(
            [*writes, wire.create(call.name(proof), data)], Proof(proof, receipt), conditioned=True
        )

    try:
        yield from commit_within(call, stage)
    except Refused as refusal:
        cause = refusal.__cause__
        raise NotApplied(
            f"a precondition of the transaction's writes does not hold, nothing was applied: {cause}"
        ) from cause
    return result
