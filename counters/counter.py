"""``Counter`` and ``AsyncCounter``: the twins that applications hold.

The base checks arguments and says which steps a call takes; the twins run or await them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, TypeVar

from google.cloud.firestore_v1 import (
    AsyncClient,
    AsyncDocumentReference,
    AsyncTransaction,
    AsyncWriteBatch,
    Client,
    DocumentReference,
    Transaction,
    WriteBatch,
)

from counters import increments, layout, lifecycle, operations, shards, wire
from counters.context import Call, Context, checked_shards, context_of
from counters.errors import InvalidType, InvalidValue
from counters.increments import checked_amount
from counters.operations import checked_key
from counters.settings import Mirror, Total, targets_of, total_from, total_in
from counters.staging import checked_batch, stage_into
from counters.steps import Steps, run, run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from google.cloud.firestore_v1.base_batch import BaseBatch
    from google.cloud.firestore_v1.base_document import DocumentSnapshot

    from counters.app import AsyncCounters, Counters

_log = logging.getLogger("counters")
_Method = TypeVar("_Method")
_Callback = Callable[[Total], object]


def twin(of: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Give an async method the docstring of its sync twin: effect, price and errors are the same."""

    def document(method: _Method) -> _Method:
        method.__doc__ = of.__doc__
        return method

    return document


def checked_path(path: str) -> str:
    """``path`` if a counter can be there. Raises ``InvalidValue``."""
    if not layout.is_document_path(path):
        raise InvalidValue(f"{path!r} is no path of a document that Firestore takes")
    if layout.is_ours(path):
        raise InvalidValue(f"{path} is among this package's own documents: no counter can be there")
    return path


class _Handle:
    """What the twins share: the checked path, and the steps of each call. Makes no request."""

    def __init__(
        self, document: DocumentReference | AsyncDocumentReference, context: Context, database: str
    ) -> None:
        self._document = document
        self._context = context
        self._database = database
        self._path: str = checked_path(document.path)

    @property
    def path(self) -> str:
        """Path of the counter document, relative to the database."""
        return self._path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r})"

    def _call(self) -> Call:
        return Call(self._context, self._database)

    def _create(
        self, shard_count: int | None, initial: int, mirrors: Iterable[Mirror] | None
    ) -> Steps[bool]:
        return lifecycle.create(
            self._call(),
            self._path,
            shards_wanted=None if shard_count is None else checked_shards(shard_count),
            initial=checked_amount(initial),
            mirrors=None if mirrors is None else targets_of(mirrors, self._path, self._database),
        )

    def _add(self, amount: int) -> Steps[None]:
        return increments.increment(self._call(), self._path, amount)

    def _add_once(self, key: str, amount: int) -> Steps[bool]:
        return operations.increment_once(self._call(), self._path, key, amount)

    def _subtract(self, amount: object) -> Steps[None]:
        return self._add(checked_amount(-checked_amount(amount)))

    def _stage(self, batch: BaseBatch, amount: int) -> Steps[None]:
        settings = yield from increments.load_settings(self._call(), self._path)
        if amount:
            stage_into(batch, self._document, self._context.shard(settings.shards, avoid=None), amount)

    def _checked_batch(
        self, batch: object, batch_type: type[BaseBatch], transaction_type: type[BaseBatch]
    ) -> BaseBatch:
        return checked_batch(batch, batch_type, transaction_type, self._document)

    def _total(self) -> Steps[Total]:
        document = (yield from self._call().get(self._path))[self._path]
        return total_in(document)


class Counter(_Handle):
    """A number that many writers change at once, at a document of your choice.

    The handle costs nothing to make and makes no request. ``Counters.on`` makes one at
    ``<parent>/counters/<name>``; this is the primitive, for any document that is the counter's own.
    Handles of one client share settings cache and writer lanes.

    Prices are in round trips, billed reads and writes. A process's first call on a counter that
    writes also reads its settings (1 round trip, 1 read), again after ``cache_seconds``; if there
    is no such counter, it is created with the default settings first (4 round trips, 2 reads and
    1 write more).

    Args:
        document: where the counter lives; it becomes the total document.
        counters: the ``Counters`` to share settings with; default: one for each client.

    Raises:
        InvalidType: ``document`` is no ``DocumentReference`` of a sync client.
        InvalidValue: ``counters`` are of another database.
    """

    def __init__(self, document: DocumentReference, counters: Counters | None = None) -> None:
        if not isinstance(document, DocumentReference):
            raise InvalidType(_wrong_document(document, "Counter", AsyncDocumentReference, "Async"))
        client: Client = wire.client_of(document)
        super().__init__(document, context_of(client, counters), wire.database_of(client))
        self._client = client
        self._transport = wire.SyncTransport(client)

    def create(
        self,
        *,
        shards: int | None = None,
        initial: int = 0,
        mirrors: Iterable[Mirror] | None = None,
    ) -> bool:
        """Make the counter, with settings; True if this call made it.

        Again with the same settings it does nothing and returns False. Shards left over by
        increments that raced a ``delete()`` are cleared.

        Price: 4 round trips, 2 reads, 1 write; 1 write more with ``initial``; 1 round trip and
        1 read if it exists. Left-over shards: 1 delete each, and 1 read each but the first; for
        each full page of 300 another 5 round trips and 2 reads.

        Args:
            shards: how many shards writers choose from, 1 to 10,000. Default: the ``Counters``'s,
                or whatever an existing counter has.
            initial: the value to start at, for a count that already exists elsewhere.
            mirrors: fields of other documents that the rollup writes the total to as well.

        Raises:
            SettingsConflict: the counter exists with other settings.
            UnsupportedLayout: the document exists and is no counter, or a newer version's.
            InvalidType, InvalidValue: a bad argument.
            NotApplied, OutcomeUnknown: see ``increment``.
        """
        return run(self._create(shards, initial, mirrors), self._transport)

    def increment(self, n: int = 1) -> None:
        """Add ``n``, exactly once, on one random shard. 0 does nothing and costs nothing.

        Price: 2 round trips, 1 write; no read and no read lock. A lost or refused answer is
        settled before trying again: a rollback and a read more. One in 16 of a writer's first
        increments of a shard also looks after old receipts (1 read, at times 1 write).

        Args:
            n: any integral type, numpy's too, within int64.

        Raises:
            NotApplied: nothing was added; calling again is safe.
            OutcomeUnknown: no proof was to be had until ``timeout``.
            InvalidType: ``n`` is no whole number (bool, float, str).
            InvalidValue: ``n`` does not fit into int64.
        """
        run(self._add(checked_amount(n)), self._transport)

    def increment_once(self, key: str, n: int = 1) -> bool:
        """Add ``n`` once for ``key``, across processes and days; whether this call added it.

        For events that are delivered again: Pub/Sub, Cloud Tasks, webhooks, Firestore triggers. The
        key is remembered for ``key_days`` of the ``Counters`` in a document of its own, written in
        the same commit, and belongs to this counter; ``delete()`` does not forget it. After any
        error, calling again with the same key is safe.

        Two functions that get the same event need different keys: put the function's name into it.

        Price: 1 round trip, 2 writes (and 1 delete by the TTL policy); a repeat costs 2 round trips
        and 1 read.

        Args:
            key: any text but the empty one, such as the event's id; stored hashed.
            n: as in ``increment``; but 0 uses the key up, at the same price.

        Raises:
            KeyConflict: the key was used with another amount.
            InvalidType, InvalidValue: a bad key or amount.
            NotApplied, OutcomeUnknown: see ``increment``; calling again is safe after both.
        """
        return run(self._add_once(checked_key(key), checked_amount(n)), self._transport)

    def decrement(self, n: int = 1) -> None:
        """Take ``n`` off: ``increment(-n)``, with the same promise, price and errors.

        The value may go below zero; one shard often does, and it is the sum that counts.
        """
        run(self._subtract(n), self._transport)

    def stage(self, batch: WriteBatch | Transaction, n: int = 1) -> None:
        """Add ``n`` as part of the caller's own commit, all or nothing with its other writes.

        How often it is applied is then up to that commit: the SDK sends a commit again whose answer
        was lost, and ``@transactional`` runs its body again after ABORTED, so it may count twice.

        Price: no round trip, 1 write (in the caller's commit).

        Args:
            batch: a ``WriteBatch``, or a ``Transaction`` that is not read-only, of this client.
                A ``BulkWriter`` is refused: it is not atomic.
            n: as in ``increment``.

        Raises:
            InvalidType, InvalidValue: another kind of batch, another client's, or a bad ``n``.
            ReadFailed: the settings were not cached and could not be read.
        """
        checked = self._checked_batch(batch, WriteBatch, Transaction)
        run(self._stage(checked, checked_amount(n)), self._transport)

    def value(self) -> int:
        """The exact value at one snapshot, one SUM aggregation over the shards; 0 where there are none.

        Price: 1 round trip, 1 read per 1,000 shards, at least 1
        (https://firebase.google.com/docs/firestore/pricing#aggregation_queries, 2026-11-30).

        Raises:
            CorruptShard: a shard holds a fraction, or the sum is past int64. A shard that holds no
                number at all is skipped by the server without a word; rollup and ``show`` see it.
            ReadFailed: the server could not be read until ``timeout``.
        """
        return run(shards.value(self._call(), self._path), self._transport)

    def total(self) -> Total:
        """What the last rollup wrote: the exact sum as of ``as_of``; None and None before the first.

        Price: 1 round trip, 1 read.

        Raises:
            ReadFailed: the server could not be read until ``timeout``.
        """
        return run(self._total(), self._transport)

    def resize(self, shards: int) -> None:
        """Set how many shards writers choose from, up or down, under load; no count moves.

        Other processes follow within their ``cache_seconds``.

        Price: 3 round trips, 1 read, 1 write.

        Raises:
            CounterNotFound: there is no such counter.
            InvalidType, InvalidValue: ``shards`` is no int from 1 to 10,000.
            NotApplied, OutcomeUnknown: see ``increment``; calling again is safe after both.
        """
        run(lifecycle.resize(self._call(), self._path, checked_shards(shards)), self._transport)

    def set_mirrors(self, mirrors: Iterable[Mirror]) -> None:
        """Set which fields of other documents the rollup writes the total to.

        What is no longer mirrored keeps its last value. A new mirror is written by the first rollup
        that finds the counter changed.

        Price: 3 round trips, 1 read, 1 write.

        Raises:
            CounterNotFound: there is no such counter.
            InvalidType, InvalidValue: a bad mirror.
            NotApplied, OutcomeUnknown: see ``increment``; calling again is safe after both.
        """
        targets = targets_of(mirrors, self._path, self._database)
        run(lifecycle.set_mirrors(self._call(), self._path, targets), self._transport)

    def reset(self) -> int:
        """Take the present value off and return it; increments that land meanwhile stay.

        Price: 4 round trips, 2 reads, 2 writes; 2 round trips and 2 reads where the value is 0;
        again for each other reset, resize or rollup that came between.

        Raises:
            CounterNotFound: there is no such counter.
            CorruptShard: see ``value``.
            NotApplied, OutcomeUnknown: see ``increment``.
        """
        return run(lifecycle.reset(self._call(), self._path), self._transport)

    def delete(self) -> None:
        """Delete the counter document and its shards, however many. Mirrors stay as they are.

        Increments of processes that still have the settings cached leave orphan shards behind,
        which the rollup reports and ``create()`` clears. ``timeout`` bounds each page of 300
        shards; cut short, a repeat finishes the work.

        Price: 3 round trips, 1 read, 1 delete; for each page 4 round trips, and 1 read more;
        1 read and 1 delete a shard; 1 round trip and 1 read where the last page is empty.

        Raises:
            NotApplied, OutcomeUnknown: see ``increment``; calling again is safe after both.
        """
        run(lifecycle.delete(self._call(), self._path), self._transport)

    def clear_orphans(self) -> int:
        """Delete shards that are left of a deleted counter; return how many there were.

        Increments that raced a ``delete()`` leave them; the rollup reports them. Where there is a
        counter, nothing is touched: its ``create()`` has cleared them.

        Price: for each page of 300 shards 4 round trips, 1 read more, and 1 read and 1 delete a
        shard; 1 round trip and 1 read where there are none.

        Raises:
            NotApplied, OutcomeUnknown: see ``increment``; calling again is safe after both.
        """
        return run(lifecycle.clear_orphans(self._call(), self._path), self._transport)

    def watch(self, callback: _Callback) -> AbstractContextManager[None]:
        """Call ``callback(total)`` with the present total and then whenever it changes.

        ``with likes.watch(print): …`` listens until the block ends. The sync twin uses Firestore's
        listener, which calls from a thread of its own; the async client has none, so the async twin
        (``async with``) reads the total every ``poll_seconds`` of its ``AsyncCounters``. What the
        callback raises is logged, and watching goes on.

        Price: listener: 1 read now and 1 a change. Polling: 1 read a poll.
        """
        return self._watch(_Changes(callback))

    @contextmanager
    def _watch(self, changes: _Changes) -> Iterator[None]:
        def heard(documents: list[DocumentSnapshot[Any]], *_: Any) -> None:
            data = (documents[0].to_dict() if documents else None) or {}
            try:
                changes.report(total_from(data))
            except Exception:  # noqa: BLE001 - the callback's
                _log.exception("watching %s goes on after an error", self._path)

        listener = self._client.document(self._path).on_snapshot(heard)
        try:
            yield
        finally:
            listener.unsubscribe()  # type: ignore[no-untyped-call]


class AsyncCounter(_Handle):
    """The async twin of ``Counter``: same effects, prices and errors, for an ``AsyncClient``."""

    def __init__(self, document: AsyncDocumentReference, counters: AsyncCounters | None = None) -> None:
        if not isinstance(document, AsyncDocumentReference):
            raise InvalidType(_wrong_document(document, "AsyncCounter", DocumentReference, ""))
        client: AsyncClient = wire.client_of(document)
        super().__init__(document, context_of(client, counters), wire.database_of(client))
        self._transport = wire.AsyncTransport(client)

    @twin(of=Counter.create)
    async def create(
        self,
        *,
        shards: int | None = None,
        initial: int = 0,
        mirrors: Iterable[Mirror] | None = None,
    ) -> bool:
        return await run_async(self._create(shards, initial, mirrors), self._transport)

    @twin(of=Counter.increment)
    async def increment(self, n: int = 1) -> None:
        await run_async(self._add(checked_amount(n)), self._transport)

    @twin(of=Counter.increment_once)
    async def increment_once(self, key: str, n: int = 1) -> bool:
        return await run_async(self._add_once(checked_key(key), checked_amount(n)), self._transport)

    @twin(of=Counter.decrement)
    async def decrement(self, n: int = 1) -> None:
        await run_async(self._subtract(n), self._transport)

    @twin(of=Counter.stage)
    async def stage(self, batch: AsyncWriteBatch | AsyncTransaction, n: int = 1) -> None:
        checked = self._checked_batch(batch, AsyncWriteBatch, AsyncTransaction)
        await run_async(self._stage(checked, checked_amount(n)), self._transport)

    @twin(of=Counter.value)
    async def value(self) -> int:
        return await run_async(shards.value(self._call(), self._path), self._transport)

    @twin(of=Counter.total)
    async def total(self) -> Total:
        return await run_async(self._total(), self._transport)

    @twin(of=Counter.resize)
    async def resize(self, shards: int) -> None:
        count = checked_shards(shards)
        await run_async(lifecycle.resize(self._call(), self._path, count), self._transport)

    @twin(of=Counter.set_mirrors)
    async def set_mirrors(self, mirrors: Iterable[Mirror]) -> None:
        targets = targets_of(mirrors, self._path, self._database)
        await run_async(lifecycle.set_mirrors(self._call(), self._path, targets), self._transport)

    @twin(of=Counter.reset)
    async def reset(self) -> int:
        return await run_async(lifecycle.reset(self._call(), self._path), self._transport)

    @twin(of=Counter.delete)
    async def delete(self) -> None:
        await run_async(lifecycle.delete(self._call(), self._path), self._transport)

    @twin(of=Counter.clear_orphans)
    async def clear_orphans(self) -> int:
        return await run_async(lifecycle.clear_orphans(self._call(), self._path), self._transport)

    @twin(of=Counter.watch)
    def watch(self, callback: _Callback) -> AbstractAsyncContextManager[None]:
        return self._watch(_Changes(callback))

    @asynccontextmanager
    async def _watch(self, changes: _Changes) -> AsyncIterator[None]:
        ending = False

        async def poll() -> None:
            while True:
                try:
                    result = changes.report(await self.total())
                    if inspect.isawaitable(result):
                        await result
                except asyncio.CancelledError:
                    if ending:
                        raise
                    _log.exception("watching %s goes on after a cancelled callback", self._path)
                except Exception:  # noqa: BLE001 - the callback's, or a passing fault
                    _log.exception("watching %s goes on after an error", self._path)
                await asyncio.sleep(self._context.poll_seconds)

        polling = asyncio.ensure_future(poll())
        try:
            yield
        finally:
            ending = True
            polling.cancel()
            await asyncio.wait({polling})


class _Changes:
    """Passes totals on that differ from the last one: settings share the total's document."""

    def __init__(self, callback: _Callback) -> None:
        if not callable(callback):
            raise InvalidType(f"watch() calls a function, not {type(callback).__name__}")
        self._callback = callback
        self._last: Total | None = None

    def report(self, total: Total) -> object:
        if total == self._last:
            return None
        self._last = total
        return self._callback(total)


def _wrong_document(document: object, handle: str, other: type, prefix: str) -> str:
    if isinstance(document, other):
        wanted = "AsyncCounter" if prefix else "Counter"
        return f"{handle} takes a {'sync' if prefix else 'async'} client's document: use {wanted}"
    return f"{handle} takes a DocumentReference, not {type(document).__name__}"
