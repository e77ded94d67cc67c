"""``Counters`` and ``AsyncCounters``: where an application starts, one for each client."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

from google.cloud.firestore_v1 import (
    AsyncClient,
    AsyncDocumentReference,
    AsyncTransaction,
    Client,
    DocumentReference,
    Transaction,
)

from counters import audits, layout, operations, rollup, wire
from counters.audits import AuditReport
from counters.context import Call, Context
from counters.counter import AsyncCounter, Counter, twin
from counters.errors import InvalidType, InvalidValue
from counters.policy import Policy
from counters.references import AsyncReferenceCount, ReferenceCount
from counters.rollup import RollupReport
from counters.steps import Steps, run, run_async

_T = TypeVar("_T")
_Client = TypeVar("_Client", Client, AsyncClient)


class _App(Generic[_Client]):
    """What the twins share: the client, and the context of all its counters."""

    def __init__(
        self,
        client: _Client,
        *,
        shards: int = layout.DEFAULT_SHARDS,
        timeout: float = 30.0,
        cache_seconds: float = 60.0,
        poll_seconds: float = 1.0,
        key_days: float = 14.0,
        policy: Policy | None = None,
    ) -> None:
        self.client: _Client = client
        self.context = Context(
            shards=shards,
            timeout=timeout,
            cache_seconds=cache_seconds,
            poll_seconds=poll_seconds,
            key_days=key_days,
            policy=policy,
        )

    def _transact(self, body: Callable[[Any], Any]) -> Steps[Any]:
        return operations.transact(
            Call(self.context, wire.database_of(self.client)),
            lambda identity: wire.adopt(self.client.transaction(), identity),
            operations.checked_body(body),
        )


class Counters(_App[Client]):
    """The counters of one database: holds settings cache, writer lanes, backoff and clock.

    Make one for each client and keep it; handles from ``on`` are for throwing away. Threads may
    share it, and a forked child may go on using it (with a client of its own).

    Args:
        client: a ``google.cloud.firestore.Client``, as from ``firebase_admin.firestore.client()``,
            of any database.
        shards: how many shards a counter gets that is created without saying so.
        timeout: the longest that a call may take, in seconds, at most 120; then it raises
            ``NotApplied`` or ``OutcomeUnknown``.
        cache_seconds: how long a counter's settings are used before they are read again. After
            ``resize()``, other processes follow within this time.
        poll_seconds: how often the async twin of ``watch`` reads the total.
        key_days: how long a key of ``increment_once`` is remembered, in days. Events are
            redelivered for up to 7 days (Pub/Sub's default retention,
            https://cloud.google.com/pubsub/docs/subscription-properties, 2026-11-30).
        policy: clock, backoff and chance, for tests.

    Raises:
        InvalidType, InvalidValue: a bad argument.
    """

    def __init__(
        self,
        client: Client,
        *,
        shards: int = layout.DEFAULT_SHARDS,
        timeout: float = 30.0,
        cache_seconds: float = 60.0,
        poll_seconds: float = 1.0,
        key_days: float = 14.0,
        policy: Policy | None = None,
    ) -> None:
        if not isinstance(client, Client):
            raise InvalidType(
                f"Counters takes a google.cloud.firestore.Client, not {type(client).__name__}; "
                "AsyncCounters takes an AsyncClient"
            )
        super().__init__(
            client,
            shards=shards,
            timeout=timeout,
            cache_seconds=cache_seconds,
            poll_seconds=poll_seconds,
            key_days=key_days,
            policy=policy,
        )

    def on(self, parent: DocumentReference | str, name: str) -> Counter:
        """The counter at ``<parent>/counters/<name>``. Makes no request.

        Args:
            parent: a document, or its path; it need not exist and is never written.
            name: an id for the counter, such as ``"likes"``.

        Raises:
            InvalidType, InvalidValue: no document, another database's, or a bad name.
        """
        return self.at(self.client.document(_path_of(parent, name, self.client)))

    def at(self, document: DocumentReference) -> Counter:
        """The counter at a document of your choice, which is then its own. Makes no request."""
        return Counter(document, self)

    def transaction(self, body: Callable[[Transaction], _T]) -> _T:
        """Run ``body(transaction)`` in a transaction, applied exactly once; return what it returned.

        In place of ``@transactional``: that runs its body again when the answer to a commit that was
        applied is ABORTED or lost, and gives up with a bare ``ValueError``. Here a doubt is settled
        before anything is tried again. The body reads first and then writes, through the
        transaction (``likes.stage(transaction)`` too); under contention it runs again, so it must
        have no other effects. What it raises ends the call, and nothing is applied.

        Price: 2 round trips and 1 write more than the body's own (a document that proves the
        commit, deleted by the TTL policy); a process's first call 1 read more.

        Raises:
            NotApplied: nothing was applied; ``__cause__`` is the server's error, such as a
                precondition of the body's writes that does not hold.
            OutcomeUnknown: no proof was to be had until ``timeout``.
            InvalidType: ``body`` cannot be called, or is async in the sync twin.
        """
        if inspect.iscoroutinefunction(body):
            raise InvalidType("the body of a sync transaction is a plain function, not an async one")
        result: _T = run(self._transact(body), wire.SyncTransport(self.client))
        return result

    def children(self, parent: DocumentReference | str, name: str) -> ReferenceCount:
        """The count of the documents in ``<parent>/<name>``, kept at ``<parent>/counters/<name>``.

        Makes no request. Args and errors: as ``on``.
        """
        counter = self.client.document(_path_of(parent, name, self.client))
        return ReferenceCount(self.client.collection(layout.children_path(counter.path)), counter, self)

    def roll_up(self, *, concurrency: int = 8) -> RollupReport:
        """Write the totals of all counters that changed since the last run; lock nothing.

        To be run on a schedule. Runs may overlap, repeat or be killed: totals are exact sums as of
        their ``as_of``, which never goes back, and the next run makes up for what one left undone.
        A counter that fails is reported, retried by the next runs, and stops no other.

        Price: when nothing changed, 2 round trips and 2 reads, however many counters there are.
        Otherwise 1 read and 1 write for the cursor, 1 read a changed shard, 2 a changed counter
        (its document, one aggregation), 1 write a total and a mirrored document. What changed in
        the last seconds before the last run is seen again: 1 read a shard and 1 a counter.

        Args:
            concurrency: how many counters are summed at once (threads, for the sync twin).

        Raises:
            ReadFailed: cursor or changes could not be read. What one counter raises is in the
                report.
            NotApplied, OutcomeUnknown: notes or cursor could not be saved. Totals are written, and
                the next run does again what is missing.
        """
        return run(
            rollup.roll_up(self.context, wire.database_of(self.client), concurrency),
            wire.SyncTransport(self.client),
        )

    def audit(
        self,
        pattern: str,
        *,
        limit: int | None = None,
        prefix: str = "",
        parents: Iterable[DocumentReference | str] | None = None,
        missing: bool = True,
        concurrency: int = 8,
        progress: Callable[[int], object] | None = None,
    ) -> AuditReport:
        """Compare many reference counts with their children, without a lock; drift comes first.

        Each count is compared at one moment of its own and is exact under live traffic, as
        ``ReferenceCount.audit``. One that cannot be audited, as for a damaged shard, is in ``failed``
        and stops no other. Changes nothing.

        Price: 1 read a parent to find it (none where ``parents`` are named), 1 for its counter
        document, 1 per 1,000 shards and 1 per 1,000 children, at least 1 each; so 4 for most, and
        1 a shard more where there is a difference. ``AuditReport.reads`` says how many it were.

        Args:
            pattern: the collections of children, with ``*`` for any document: ``posts/*/likes``,
                ``posts/*/comments/*/likes``.
            limit: the most counts to audit; 1,000, or all that are named. ``AuditReport.more`` says
                whether there are others.
            prefix: only parents whose id (what the first ``*`` stands for) begins so.
            parents: only these parents: documents, their paths, or what the only ``*`` stands for.
            missing: whether to look at parents whose own document does not exist, too: counts below a
                deleted post. A query cannot find those, so all ids up to the prefix are listed and
                billed; without them, only those with the prefix.
            concurrency: how many counts are compared at once (threads, for the sync twin).
            progress: called now and then with the number of counts audited so far.

        Raises:
            InvalidType, InvalidValue: a bad argument.
            ReadFailed: parents or counters could not be read.
        """
        asked = audits.question(
            pattern,
            limit=limit,
            prefix=prefix,
            named=parents,
            missing=missing,
            concurrency=concurrency,
            progress=progress,
        )
        return run(
            audits.audit_all(self.context, wire.database_of(self.client), asked),
            wire.SyncTransport(self.client),
        )


class AsyncCounters(_App[AsyncClient]):
    """The async twin of ``Counters``: same effects, prices and errors, for an ``AsyncClient``.

    An ``AsyncClient`` belongs to the event loop that it is first used in: make one, and one of
    these, for each loop (each ``asyncio.run``).
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        shards: int = layout.DEFAULT_SHARDS,
        timeout: float = 30.0,
        cache_seconds: float = 60.0,
        poll_seconds: float = 1.0,
        key_days: float = 14.0,
        policy: Policy | None = None,
    ) -> None:
        if not isinstance(client, AsyncClient):
            raise InvalidType(
                f"AsyncCounters takes an AsyncClient, not {type(client).__name__}; "
                "Counters takes a google.cloud.firestore.Client"
            )
        super().__init__(
            client,
            shards=shards,
            timeout=timeout,
            cache_seconds=cache_seconds,
            poll_seconds=poll_seconds,
            key_days=key_days,
            policy=policy,
        )

    @twin(of=Counters.on)
    def on(self, parent: AsyncDocumentReference | str, name: str) -> AsyncCounter:
        return self.at(self.client.document(_path_of(parent, name, self.client)))

    @twin(of=Counters.at)
    def at(self, document: AsyncDocumentReference) -> AsyncCounter:
        return AsyncCounter(document, self)

    @twin(of=Counters.children)
    def children(self, parent: AsyncDocumentReference | str, name: str) -> AsyncReferenceCount:
        counter = self.client.document(_path_of(parent, name, self.client))
        return AsyncReferenceCount(
            self.client.collection(layout.children_path(counter.path)), counter, self
        )

    @twin(of=Counters.transaction)
    async def transaction(self, body: Callable[[AsyncTransaction], Awaitable[_T]]) -> _T:
        result: _T = await run_async(self._transact(body), wire.AsyncTransport(self.client))
        return result

    @twin(of=Counters.roll_up)
    async def roll_up(self, *, concurrency: int = 8) -> RollupReport:
        return await run_async(
            rollup.roll_up(self.context, wire.database_of(self.client), concurrency),
            wire.AsyncTransport(self.client),
        )

    @twin(of=Counters.audit)
    async def audit(
        self,
        pattern: str,
        *,
        limit: int | None = None,
        prefix: str = "",
        parents: Iterable[AsyncDocumentReference | str] | None = None,
        missing: bool = True,
        concurrency: int = 8,
        progress: Callable[[int], object] | None = None,
    ) -> AuditReport:
        asked = audits.question(
            pattern,
            limit=limit,
            prefix=prefix,
            named=parents,
            missing=missing,
            concurrency=concurrency,
            progress=progress,
        )
        return await run_async(
            audits.audit_all(self.context, wire.database_of(self.client), asked),
            wire.AsyncTransport(self.client),
        )


def roll_up(client: Client, *, concurrency: int = 8) -> RollupReport:
    """``Counters(client).roll_up()``, for a scheduled function of two lines."""
    return Counters(client).roll_up(concurrency=concurrency)


async def roll_up_async(client: AsyncClient, *, concurrency: int = 8) -> RollupReport:
    """``AsyncCounters(client).roll_up()``: the async twin of ``roll_up``."""
    return await AsyncCounters(client).roll_up(concurrency=concurrency)


def _path_of(
    parent: DocumentReference | AsyncDocumentReference | str,
    name: str,
    client: Client | AsyncClient,
) -> str:
    if not isinstance(name, str):
        raise InvalidType(f"a counter's name is a str, not {type(name).__name__}")
    if not layout.is_document_id(name):
        raise InvalidValue(f"{name!r} can be no document id, so no counter's name")
    if isinstance(parent, str):
        if not layout.is_document_path(parent):
            raise InvalidValue(f"{parent!r} is no document's path, such as 'posts/a91f'")
        return layout.counter_path(parent, name)
    if not isinstance(parent, DocumentReference | AsyncDocumentReference):
        raise InvalidType(f"a counter is on a document or its path, not on {type(parent).__name__}")
    if wire.database_of(wire.client_of(parent)) != wire.database_of(client):
        raise InvalidValue(f"{parent.path} is in another database than this client's")
    return layout.counter_path(parent.path, name)
