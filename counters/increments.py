"""Adding to a counter: settings, a random shard, one exactly-once commit."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

from counters import layout, lifecycle, shards, wire
from counters.commit import Proof, Staged, commit
from counters.errors import CounterNotFound, InvalidType, InvalidValue
from counters.settings import Settings, parse
from counters.steps import Steps

if TYPE_CHECKING:
    from counters.context import Call


_LOOK_AGAIN: Final = 0.01
"""How often a call looks whether another one has read the settings that both need, in seconds."""


def checked_amount(amount: object) -> int:
    """``amount`` as an int: any integral type within int64.

    Raises ``InvalidType`` for bool, float, text and the like, ``InvalidValue`` past int64.

    >>> checked_amount(3)
    3
    >>> checked_amount(1.0)
    Traceback (most recent call last):
        ...
    counters.errors.InvalidType: an amount is a whole number, not float: round() it, and mind that \
counters do not hold fractions (count cents, not dollars)
    """
    if type(amount).__name__ in {"bool", "bool_"}:  # numpy's too: older ones pass for an index
        raise InvalidType("an amount is a whole number, not bool: write 1, or int(flag)")
    if isinstance(amount, str | bytes):
        raise InvalidType(
            f"an amount is a whole number, not {type(amount).__name__}: convert it with int()"
        )
    try:
        whole = operator.index(amount)  # type: ignore[arg-type]  # that is what is tested
    except TypeError as error:
        raise InvalidType(
            f"an amount is a whole number, not {type(amount).__name__}: round() it, and mind that "
            "counters do not hold fractions (count cents, not dollars)"
        ) from error
    if not wire.INT64_MIN <= whole <= wire.INT64_MAX:
        raise InvalidValue("an amount must fit into a signed 64-bit integer, as Firestore's do")
    return whole


def load_settings(call: Call, path: str, children: str | None = None) -> Steps[Settings]:
    """A counter's settings: cached, or read (1 read), or by creating the counter with defaults.

    Of many calls that need them at once, one reads and the others wait for it. ``children`` is the
    collection that the caller counts: a counter that counts another, or none, is refused.
    """
    while True:
        cached = call.context.cached(path)
        if cached is not None:
            return checked_children(cached, path, children)
        if call.context.claim_loading(path):
            break
        yield from call.pause(_LOOK_AGAIN)
    try:
        settings = yield from _read_settings(call, path, children)
        return checked_children(settings, path, children)
    finally:
        call.context.end_loading(path)


def checked_children(settings: Settings, path: str, children: str | None) -> Settings:
    """``settings`` if the counter counts ``children``; a counter of another collection is refused."""
    if settings.children == children:
        return settings
    if children is None:
        raise InvalidValue(
            f"{path} counts the documents of {settings.children}: add and remove those instead, "
            "or the count drifts"
        )
    counts = f"counts {settings.children}" if settings.children else "is a counter of its own"
    raise InvalidValue(f"{path} {counts}, not {children}: give the reference count another counter")


def _read_settings(call: Call, path: str, children: str | None) -> Steps[Settings]:
    while True:
        document = (yield from call.get(path))[path]
        try:
            settings = parse(document)
        except CounterNotFound:
            yield from lifecycle.create(
                call,
                path,
                shards_wanted=None,
                initial=None,
                mirrors=None,
                children=children,
                known=document,
            )
            continue
        call.context.cache(path, settings)
        return settings


def increment(call: Call, path: str, amount: int) -> Steps[None]:
    """Add ``amount`` on a random shard, exactly once; nothing at all for 0."""
    if amount == 0:
        return
    settings = yield from load_settings(call, path)
    shard: int | None = None

    def stage(receipt: wire.Receipt) -> Staged:
        nonlocal shard
        shard = call.context.shard(settings.shards, avoid=shard)
        return Staged(
            [shards.add(call, path, shard, amount, receipt)],
            Proof(layout.shard_path(path, shard), receipt, path, settings.created),
        )

    yield from commit(call, stage)
