"""Adding and removing the children of a reference count: child and count change together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from counters import increments, layout, shards, wire
from counters.commit import Proof, Refused, Staged, commit
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

    return (yield from _change(call, counter, settings, 1, writes))


def remove(call: Call, counter: str, children: str, child_id: str) -> Steps[bool]:
    """Delete a child and discount it, or neither; whether this call did."""
    settings = yield from increments.load_settings(call, counter, children)
    delete = wire.delete(call.name(f"{children}/{child_id}"), must_exist=True)
    return (yield from _change(call, counter, settings, -1, lambda _: [delete]))


def _change(
    call: Call, counter: str, settings: Settings, amount: int, writes: Callable[[int], list[Any]]
) -> Steps[bool]:
    shard: int | None = None

    def stage(receipt: wire.Receipt) -> Staged:
        nonlocal shard
        shard = call.context.shard(settings.shards, avoid=shard)
        return Staged(
            [*writes(shard), shards.add(call, counter, shard, amount, receipt)],
            Proof(layout.shard_path(counter, shard), receipt, counter, settings.created),
        )

    try:
        yield from commit(call, stage)
    except Refused:
        return False  # the child was there already, or not there
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
        call = call.renewed()
        answer = yield from call.ask(
            lambda timeout, call=call, after=after: wire.list_documents(  # type: ignore[misc]
                call.database, parent, collection, ("__name__",), timeout, limit=_PAGE, after=after
            )
        )
        page = wire.page_of(answer).documents
        if page:
            removed += yield from _remove_page(call, counter, children, settings, page)
            if progress is not None:
                yield Invoke(partial(progress, removed))
        if len(page) < _PAGE:
            return removed
        after = page[-1].path


def _remove_page(
    call: Call, counter: str, children: str, settings: Settings, page: list[wire.Document]
) -> Steps[int]:
    deletes = [wire.delete(call.name(child.path), must_exist=True) for child in page]
    if (yield from _change(call, counter, settings, -len(page), lambda _: deletes)):
        return len(page)
    # Somebody removed one of them meanwhile: one by one, so that each is discounted once.
    removed = 0
    for child in page:
        child_id = child.path.rpartition("/")[2]
        removed += yield from remove(call.renewed(), counter, children, child_id)
    return removed
