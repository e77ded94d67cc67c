"""Adding and removing the children of a reference count: child and count change together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.api_core import exceptions

from counters import increments, layout, shards, wire
from counters.commit import Proof, Refused, Staged, commit
from counters.errors import NotApplied
from counters.settings import Settings
from counters.steps import Invoke, Steps

if TYPE_CHECKING:
    from counters.context import Call

_PAGE: Final = 100
"""Children that ``remove_all`` removes in one commit."""


def add(call: Call, counter: str, children: str, child: Any) -> Steps[bool]:
    """Create a child and count it, or neither; whether this call did. ``child`` is its write."""
    settings = yield from increments.load_settings(call, counter, children)

    def writes(shard: int) -> list[Any]:
        child.update.fields[layout.CHILD_SHARD].integer_value = shard
        return [child]

    path = wire.relative_path(child.update.name)
    return (yield from _change(call, counter, settings, 1, writes, [path], exceptions.AlreadyExists))


def remove(call: Call, counter: str, children: str, child_id: str) -> Steps[bool]:
    """Delete a child and discount it, or neither; whether this call did."""
    settings = yield from increments.load_settings(call, counter, children)
    return (yield from _remove(call, counter, settings, [f"{children}/{child_id}"]))


def _remove(call: Call, counter: str, settings: Settings, paths: Sequence[str]) -> Steps[bool]:
    """Delete children and discount them in one commit; False if one of them is not there."""
    deletes = [wire.delete(call.name(path), must_exist=True) for path in paths]
    return (
        yield from _change(
            call, counter, settings, -len(paths), lambda _: deletes, paths, exceptions.NotFound
        )
    )


def _change(
    call: Call,
    counter: str,
    settings: Settings,
    amount: int,
    writes: Callable[[int], list[Any]],
    paths: Sequence[str],
    refusal: type[Exception],
) -> Steps[bool]:
    """Write children and count them, or neither; False if ``refusal`` says why not.

    A commit may also be refused with FAILED_PRECONDITION, which alone says nothing about a child:
    then the children are looked at.
    """
    shard: int | None = None

    def stage(receipt: wire.Receipt) -> Staged:
        nonlocal shard
        shard = call.context.shard(settings.shards, avoid=shard)
        return Staged(
            [*writes(shard), shards.add(call, counter, shard, amount, receipt)],
            Proof(layout.shard_path(counter, shard), receipt, counter, settings.created),
            conditioned=True,
        )

    try:
        yield from commit(call, stage)
    except Refused as refused:
        cause = refused.__cause__
        if isinstance(cause, refusal):
            return False
        if isinstance(cause, exceptions.FailedPrecondition):
            found = yield from call.get(*paths)
            if any(document.exists == (amount > 0) for document in found.values()):
                return False
        raise NotApplied(f"nothing was applied: {cause}") from cause
    return True


def contains(call: Call, path: str) -> Steps[bool]:
    """Whether a child is there."""
    return (yield from call.get(path))[path].exists


def remove_all(
    call: Call, counter: str, children: str, progress: Callable[[int], object] | None
) -> Steps[int]:
    """Remove the children there are, page by page; return how many. A repeat finishes the work."""
    settings = yield from increments.load_settings(call, counter, children)
    parent, collection = layout.split_collection(children)
    removed = 0
    after: str | None = None
    while True:
        answer = yield from call.renewed().ask(
            lambda timeout, after=after: wire.list_documents(  # type: ignore[misc]
                call.database, parent, collection, ("__name__",), timeout, limit=_PAGE, after=after
            )
        )
        page = [child.path for child in wire.page_of(answer).documents]
        if page:
            removed += yield from _remove_some(call, counter, settings, page)
            if progress is not None:
                yield Invoke(partial(progress, removed))
        if len(page) < _PAGE:
            return removed
        after = page[-1]


def _remove_some(call: Call, counter: str, settings: Settings, paths: Sequence[str]) -> Steps[int]:
    """Remove those children that are still there; return how many this call removed.

    All in one commit. Where that is refused, because one of them is gone or it is too large, half
    of them, and the other half: each child is discounted by whoever removed it.
    """
    try:
        if (yield from _remove(call.renewed(), counter, settings, paths)):
            return len(paths)
    except NotApplied as error:
        if len(paths) == 1 or not isinstance(error.__cause__, exceptions.InvalidArgument):
            raise
    if len(paths) == 1:
        return 0
    half = len(paths) // 2
    first = yield from _remove_some(call, counter, settings, paths[:half])
    return first + (yield from _remove_some(call, counter, settings, paths[half:]))
