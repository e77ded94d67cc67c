"""What happens to a counter as a whole: create, resize, mirror, reset, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from google.api_core import exceptions

from counters import layout, shards, wire
from counters.commit import Proof, Refused, Staged, commit
from counters.errors import (
    CounterNotFound,
    InvalidValue,
    NotApplied,
    OutcomeUnknown,
    SettingsConflict,
)
from counters.settings import MirrorTarget, Settings, fields_of, mirrors_field, parse
from counters.steps import Steps

if TYPE_CHECKING:
    from counters.context import Call


def create(
    call: Call,
    path: str,
    *,
    shards_wanted: int | None,
    initial: int | None,
    mirrors: frozenset[MirrorTarget] | None,
    children: str | None = None,
    known: wire.Document | None = None,
) -> Steps[bool]:
    """Make the counter document, starting at ``initial``; False if there is an equal one.

    None leaves a setting to whatever is there, or to the default. ``known`` is the counter document
    if it was just read. Shards that lie there without a counter document are orphans of a deleted
    one: they are cleared in the same commit, each only if nobody wrote to it meanwhile.
    """
    call.context.forget(path)
    data = fields_of(
        call.database, shards_wanted or call.context.shards, initial or 0, mirrors or frozenset(), children
    )
    attempt = 0
    while True:
        document = known or (yield from call.get(path))[path]
        known = None
        if document.exists:
            refuse_other_settings(
                parse(document),
                path,
                shards_wanted=shards_wanted,
                initial=initial,
                mirrors=mirrors,
                children=children,
            )
            return False
        orphans = yield from shards.page(call, path, (layout.WRITES,))
        if len(orphans) == shards.PAGE:
            yield from delete_orphans(call, path, orphans)
            continue
        try:
            yield from commit(call, partial(_create, call, path, orphans, data, initial or 0))
        except Refused:  # somebody else created it, or wrote to an orphan
            yield from call.start_over(attempt)
            attempt += 1
            continue
        return True


def _create(
    call: Call,
    path: str,
    orphans: list[wire.Document],
    data: dict[str, Any],
    initial: int,
    receipt: wire.Receipt,
) -> Staged:
    first = layout.shard_path(path, 0)
    writes = _deletions(call, [doc for doc in orphans if not (initial and doc.path == first)])
    if initial:
        # Over whatever orphan lies there: the counter document's precondition guards this too.
        start = {
            layout.VALUE: initial,
            layout.WRITES: 0,
            layout.BUCKET: layout.bucket(path, 0),
            **receipt.as_field(),
        }
        writes.append(wire.replace(call.name(first), start, [layout.UPDATED_AT]))
    writes.append(wire.create(call.name(path), data | receipt.as_field()))
    return Staged(writes, Proof(path, receipt), conditioned=True)


def _deletions(call: Call, documents: list[wire.Document]) -> list[Any]:
    return [wire.delete(call.name(doc.path), if_updated=doc.updated) for doc in documents]


def delete_orphans(call: Call, path: str, page: list[wire.Document]) -> Steps[bool]:
    """Delete shards that were read while there was no counter document; False if there is one.

    Each only if it is still as it was read: if the counter is created anew meanwhile, ``create()``
    has cleared or replaced it, and what is there now counts.
    """
    if (yield from call.get(path))[path].exists:
        return False
    try:
        yield from commit(call, lambda _: Staged(_deletions(call, page), None, conditioned=True))
    except Refused:
        for document in page:
            with suppress(Refused):  # written to meanwhile: left to whoever wrote
                yield from commit(call.renewed(), partial(_delete_one, call, document))
    return True


def _delete_one(call: Call, document: wire.Document, _: wire.Receipt) -> Staged:
    return Staged(_deletions(call, [document]), None, conditioned=True)


def refuse_other_settings(
    found: Settings,
    path: str,
    *,
    shards_wanted: int | None,
    initial: int | None,
    mirrors: frozenset[MirrorTarget] | None,
    children: str | None,
) -> None:
    """Raise ``SettingsConflict`` if a counter has other settings than are wanted."""
    differences = []
    if shards_wanted is not None and shards_wanted != found.shards:
        differences.append(
            f"it has {found.shards} shards, not {shards_wanted}: resize({shards_wanted}) changes that"
        )
    if initial is not None and initial != found.initial:
        differences.append(
            f"it started at {found.initial}, not {initial}: increment() or decrement() by what is missing"
        )
    if mirrors is not None and mirrors != found.mirrors:
        differences.append("it has other mirrors: set_mirrors([…]) changes them")
    if children != found.children:
        differences.append(
            f"it counts {found.children or 'what increment() is told'}, not {children or 'that'}: "
            "give one of them another document"
        )
    if differences:
        raise SettingsConflict(f"{path} exists with other settings: " + "; ".join(differences))


def change(call: Call, path: str, data: dict[str, Any]) -> Steps[None]:
    """Set fields of a counter document that exists."""
    call.context.forget(path)
    document = (yield from call.get(path))[path]
    if document.exists:  # what is damaged may be mended: only what is not replaced is looked at
        document = replace(document, fields={**(document.fields or {}), **data})
    parse(document)
    try:
        write = wire.update(call.name(path), data)
        yield from commit(call, lambda _: Staged([write], None, conditioned=True))
    except Refused as refusal:
        cause = refusal.__cause__
        if isinstance(cause, exceptions.NotFound):
            raise CounterNotFound(f"{path} was deleted meanwhile: create() it first") from cause
        raise NotApplied(f"nothing was applied: {cause}") from cause
    call.context.forget(path)


def resize(call: Call, path: str, count: int) -> Steps[None]:
    """Set the number of shards that writers choose from. Moves no count."""
    yield from change(call, path, {layout.SHARD_COUNT: count})


def set_mirrors(call: Call, path: str, mirrors: frozenset[MirrorTarget]) -> Steps[None]:
    """Set where the total is mirrored to. What is no longer mirrored keeps its last value."""
    stored = mirrors_field(call.database, mirrors) if mirrors else None
    yield from change(call, path, {layout.MIRRORS: stored})


def reset(call: Call, path: str) -> Steps[int]:
    """Take the present value off in one increment; return what was taken.

    Increments that land meanwhile stay. Of two resets at once, one starts again.
    """
    attempt = 0
    while True:
        settings = parse((yield from call.get(path))[path])
        if settings.children:
            raise InvalidValue(
                f"{path} counts the documents of {settings.children} and cannot be reset: "
                "remove_all() removes those"
            )
        taken = yield from shards.value(call, path)
        if taken == 0:
            return 0
        try:
            yield from adjust(call, path, settings, -taken)
        except Refused:
            yield from call.start_over(attempt)
            attempt += 1
            continue
        return taken


def adjust(
    call: Call,
    path: str,
    settings: Settings,
    amount: int,
    record: Callable[[wire.Receipt], Sequence[Any]] = lambda _: (),
) -> Steps[None]:
    """Add an amount that was computed from a sum, unless another adjustment came between.

    ``settings`` are of before the sum: the counter document changes in the same commit, under its
    update time of then, or ``Refused`` is raised. ``record`` gives more writes for the commit.
    """
    if not wire.INT64_MIN <= amount <= wire.INT64_MAX:
        raise InvalidValue(f"{path} cannot be changed by {amount} at once: that is no 64-bit integer")

    def stage(receipt: wire.Receipt) -> Staged:
        shard = call.context.shard(settings.shards, avoid=None)
        return Staged(
            [
                shards.add(call, path, shard, amount, receipt),
                wire.update(
                    call.name(path), {}, server_time=[layout.ADJUSTED_AT], if_updated=settings.updated
                ),
                *record(receipt),
            ],
            Proof(layout.shard_path(path, shard), receipt, path, settings.created),
            conditioned=True,
        )

    yield from commit(call, stage)


def delete(call: Call, path: str) -> Steps[None]:
    """Delete the counter document, then its shards; a repeat finishes what was cut short.

    The document goes first: without it, a rollup or a settlement knows that the shards are going.
    """
    document = (yield from call.get(path))[path]
    created = document.created
    begun = document.exists
    attempt = 0
    # Under its update time: a second attempt must not hit what somebody created after the first.
    while document.exists and document.created == created:
        parse(document)  # of a document that is no counter we delete nothing
        try:
            yield from commit(call, partial(_delete_one, call, document))
        except Refused:  # a rollup or a reset wrote to it, or it is gone
            yield from call.start_over(attempt)
            attempt += 1
            document = (yield from call.get(path))[path]
        else:
            break
    call.context.forget(path)
    yield from clear_orphans(call, path, begun=begun)


def clear_orphans(call: Call, path: str, *, begun: bool = False) -> Steps[int]:
    """Delete the shards of a counter that does not exist, page by page; return how many were there.

    Where there is a counter, it leaves all as it is. ``begun``: part of a deletion that has begun.
    """
    seen = 0
    try:
        while True:
            call = call.renewed()
            page = yield from shards.page(call, path, (layout.WRITES,))
            if not page or not (yield from delete_orphans(call, path, page)):
                return seen
            seen += len(page)
            if len(page) < shards.PAGE:
                return seen
            begun = True
    except NotApplied as error:
        if not begun:
            raise
        raise OutcomeUnknown(f"{path} is deleted in part: again, which is safe ({error})") from error
