"""``ReferenceCount`` and ``AsyncReferenceCount``: a counter kept equal to the number of children."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from google.cloud.firestore_v1 import (
    AsyncClient,
    AsyncCollectionReference,
    AsyncDocumentReference,
    AsyncTransaction,
    AsyncWriteBatch,
    Client,
    CollectionReference,
    DocumentReference,
    Transaction,
    WriteBatch,
)

from counters import audit, children, evidence, increments, layout, lifecycle, shards, wire
from counters.audit import Audit
from counters.context import Call, Context, checked_progress, checked_shards, context_of
from counters.counter import AsyncCounter, Counter, twin
from counters.errors import InvalidType, InvalidValue
from counters.evidence import Evidence
from counters.settings import Mirror, Total, targets_of, total_in
from counters.staging import checked_batch, stage_into
from counters.steps import Steps, run, run_async

if TYPE_CHECKING:
    from google.cloud.firestore_v1.base_batch import BaseBatch

    from counters.app import AsyncCounters, Counters

_Data = Mapping[str, Any]


class _References:
    """What the twins share: checked paths, and the steps of each call. Makes no request."""

    def __init__(
        self,
        collection: CollectionReference | AsyncCollectionReference,
        counter: DocumentReference | AsyncDocumentReference,
        context: Context,
    ) -> None:
        client = wire.client_of(counter)
        self._collection = collection
        self._counter = counter
        self._context = context
        self._database = wire.database_of(client)
        self._path: str = counter.path
        self._children = wire.collection_path(collection)
        if wire.client_of(collection) is not client:
            raise InvalidValue("the collection and the counter belong to two clients")
        if self._path.rpartition("/")[0] == self._children:
            raise InvalidValue(f"the counter {self._path} would count itself")
        if collection.id in layout.OURS:
            raise InvalidValue(
                f"{self._children} holds documents of this package: count another collection"
            )

    @property
    def path(self) -> str:
        """Path of the counter document, relative to the database."""
        return self._path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._children!r}, {self._path!r})"

    def _call(self) -> Call:
        return Call(self._context, self._database)

    def _create(self, shard_count: int | None, mirrors: Iterable[Mirror] | None) -> Steps[bool]:
        return lifecycle.create(
            self._call(),
            self._path,
            shards_wanted=None if shard_count is None else checked_shards(shard_count),
            initial=None,
            mirrors=None if mirrors is None else targets_of(mirrors, self._path, self._database),
            children=self._children,
        )

    def _child(self, child_id: object) -> DocumentReference | AsyncDocumentReference:
        return self._collection.document(checked_id(child_id))

    def _add(self, child_id: object, data: _Data | None) -> Steps[bool]:
        reference = self._child(child_id)
        batch = wire.client_of(reference).batch()
        _create(batch, reference, checked_data(data))
        (write,) = wire.writes_of(batch)
        return children.add(self._call(), self._path, self._children, write)

    def _add_new(self, data: _Data | None) -> Steps[str]:
        while True:
            child: str = self._collection.document().id
            if (yield from self._add(child, data)):
                return child

    def _remove(self, child_id: object) -> Steps[bool]:
        return children.remove(self._call(), self._path, self._children, checked_id(child_id))

    def _contains(self, child_id: object) -> Steps[bool]:
        return children.contains(self._call(), self._child(child_id).path)

    def _stage_add(self, batch: BaseBatch, child_id: object, data: _Data | None) -> Steps[None]:
        reference, checked = self._child(child_id), checked_data(data)
        settings = yield from increments.load_settings(self._call(), self._path, self._children)
        shard = self._context.shard(settings.shards, avoid=None)
        _create(batch, reference, {**checked, layout.CHILD_SHARD: shard})
        stage_into(batch, self._counter, shard, 1)

    def _stage_remove(self, batch: BaseBatch, child_id: object) -> Steps[None]:
        reference = self._child(child_id)
        settings = yield from increments.load_settings(self._call(), self._path, self._children)
        batch.delete(reference, option=wire.client_of(self._counter).write_option(exists=True))
        stage_into(batch, self._counter, self._context.shard(settings.shards, avoid=None), -1)

    def _value(self) -> Steps[int]:
        return shards.value(self._call(), self._path)

    def _total(self) -> Steps[Total]:
        document = (yield from self._call().get(self._path))[self._path]
        return total_in(document)

    def _remove_all(self, progress: Callable[[int], object] | None) -> Steps[int]:
        return children.remove_all(self._call(), self._path, self._children, checked_progress(progress))

    def _audit(self) -> Steps[Audit]:
        return audit.audit(self._call(), self._path, self._children)

    def _explain(self, found: Audit) -> Steps[Evidence]:
        return evidence.explain(self._context, self._database, self._checked_audit(found, "explain"))

    def _repair(self, found: Audit, by: str) -> Steps[int]:
        found = self._checked_audit(found, "repair")
        return audit.repair(self._call(), self._path, self._children, found, checked_by(by))

    def _backfill(self, by: str) -> Steps[int]:
        return audit.backfill(self._call(), self._path, self._children, checked_by(by))

    def _checked_audit(self, found: object, use: str) -> Audit:
        if not isinstance(found, Audit):
            raise InvalidType(f"{use}() takes an Audit, not {type(found).__name__}")
        if (found.path, found.children) != (self._path, self._children):
            raise InvalidValue(f"that is an audit of {found.path} and {found.children}, not of {self!r}")
        return found


class ReferenceCount(_References):
    """A counter that always equals the number of documents in a collection: likes, members, replies.

    ``Counters.children(post, "likes")`` makes one for the documents in ``<post>/likes``, counted at
    ``<post>/counters/likes``; this is the primitive, for any collection and counter document. A
    child and its count change in one commit or not at all, so nothing drifts, as long as all that
    adds and removes children does it here.

    The handle costs nothing to make and makes no request. Settings are read, cached and created as
    ``Counter`` says. In each child, the field ``counter_shard`` is ours.

    Args:
        collection: the children.
        counter: where the counter lives; a document of its own.
        counters: the ``Counters`` to share settings with; default: one for each client.

    Raises:
        InvalidType, InvalidValue: another client's twin, two clients, another database's ``Counters``, a
            counter among its own children, a collection of this package's own.
    """

    def __init__(
        self,
        collection: CollectionReference,
        counter: DocumentReference,
        counters: Counters | None = None,
    ) -> None:
        if not isinstance(collection, CollectionReference) or not isinstance(counter, DocumentReference):
            raise InvalidType("ReferenceCount takes a collection and a document of a sync client")
        client: Client = wire.client_of(counter)
        super().__init__(collection, counter, context_of(client, counters))
        self._transport = wire.SyncTransport(client)
        self._handle = Counter(counter, counters)

    @property
    def counter(self) -> Counter:
        """The counter behind it, for ``watch``, ``resize``, ``set_mirrors`` and ``delete``."""
        return self._handle

    def create(self, *, shards: int | None = None, mirrors: Iterable[Mirror] | None = None) -> bool:
        """Make the counter, with settings; True if this call made it. See ``Counter.create``.

        Where there are children already, ``backfill()`` next.
        """
        return run(self._create(shards, mirrors), self._transport)

    def add(self, child: str, data: Mapping[str, Any] | None = None) -> bool:
        """Add the child with this id and count it; whether this call did.

        False if it was there already: a double tap counts once. True even when the first answer was
        lost and others toggled the child meanwhile.

        Price: 2 round trips, 2 writes; no read, no read lock. False costs what a doubt does, since a
        refusal may be the answer to a second copy: 4 round trips, 1 read, no write; 1 of each more as
        long as the shard is new.

        Args:
            child: its document id, such as the user's.
            data: its fields, with the SDK's transforms (``SERVER_TIMESTAMP``).

        Raises:
            InvalidType, InvalidValue: a bad id, data that Firestore cannot hold or that has the field
                ``counter_shard``; a counter that counts something else.
            NotApplied, OutcomeUnknown: see ``Counter.increment``; calling again is safe after both,
                but may answer False for what the first call did.
        """
        return run(self._add(child, data), self._transport)

    def add_new(self, data: Mapping[str, Any] | None = None) -> str:
        """Add a child under an id that is made for it, for replies or messages; return the id.

        Calling again adds another one, also after ``OutcomeUnknown``: where that matters, choose the id
        and ``add`` it. Price and errors: as ``add``.
        """
        return run(self._add_new(data), self._transport)

    def remove(self, child: str) -> bool:
        """Remove the child and discount it; whether this call did. False if it was not there.

        So the value never goes below zero; one shard may.

        Price: 2 round trips, 1 write and 1 delete; False as in ``add``. Errors: as ``add``. Collections
        below the child stay.
        """
        return run(self._remove(child), self._transport)

    def contains(self, child: str) -> bool:
        """Whether the child is there. Price: 1 round trip, 1 read."""
        return run(self._contains(child), self._transport)

    def stage_add(
        self, batch: WriteBatch | Transaction, child: str, data: Mapping[str, Any] | None = None
    ) -> None:
        """Add and count a child as part of the caller's own commit, all or nothing.

        Refused at once: what ``Counter.stage`` refuses, and bad ids and data as ``add`` does; nothing is
        staged then. Refused by the commit: a child that is there already, with ``AlreadyExists`` and all
        that was staged with it. A child can be added once in a commit.

        The count stays true whatever becomes of the commit. But the SDK sends a commit again whose
        answer was lost: ``AlreadyExists`` may then be the answer to the second copy of one that was
        applied, and a copy that comes late may add a child that was removed meanwhile.
        ``Counters.transaction`` rules out both.

        Price: no round trip, 2 writes (in the caller's commit).

        Raises:
            InvalidType, InvalidValue, ReadFailed: as ``Counter.stage`` and ``add``.
        """
        checked = checked_batch(batch, WriteBatch, Transaction, self._counter)
        run(self._stage_add(checked, child, data), self._transport)

    def stage_remove(self, batch: WriteBatch | Transaction, child: str) -> None:
        """Remove and discount a child as part of the caller's own commit, all or nothing.

        Refused by the commit, with all that was staged with it: a child that is not there, with
        ``NotFound``. Otherwise, and of copies of the commit, as ``stage_add``.

        Price: no round trip, 1 write and 1 delete (in the caller's commit). Errors: as ``stage_add``.
        """
        checked = checked_batch(batch, WriteBatch, Transaction, self._counter)
        run(self._stage_remove(checked, child), self._transport)

    def value(self) -> int:
        """How many children there are, exactly; price and errors as ``Counter.value``."""
        return run(self._value(), self._transport)

    def total(self) -> Total:
        """What the last rollup wrote; price and errors as ``Counter.total``."""
        return run(self._total(), self._transport)

    def remove_all(self, progress: Callable[[int], object] | None = None) -> int:
        """Remove all children, page by page; return how many this call removed.

        The count is right at every moment, never below zero, and who adds or removes meanwhile does no
        harm: each child is discounted once. One that is added meanwhile may stay. Cut short, a repeat
        finishes the work. ``timeout`` bounds each page of 100.

        Price: for each page 3 round trips, 1 write, and 1 read and 1 delete a child. Where somebody
        removed one of them meanwhile, up to 8 refusals (4 round trips, 1 read each) and 7 commits
        (2 round trips, 1 write each) more, to find out which.

        Args:
            progress: called after each page with the number removed so far.

        Raises:
            NotApplied, OutcomeUnknown: see ``Counter.increment``; calling again is safe after both.
        """
        return run(self._remove_all(progress), self._transport)

    def audit(self) -> Audit:
        """Compare the count with the number of children, both at one moment, without a lock.

        Exact under live traffic: ``difference`` is 0 unless something changed children or shards
        behind our back. The moment is 100 ms ago.

        Price: 3 round trips; 1 read for the counter document, 1 per 1,000 shards and 1 per 1,000
        children, at least 1 each. Where there is a difference, 1 round trip more and 1 read a shard.

        Raises:
            CorruptShard: a shard holds no whole number, and the count is not true.
            InvalidValue: the counter counts something else.
            UnsupportedLayout: the document is no counter, or a newer version's.
            ReadFailed: the server could not be read until ``timeout``.
        """
        return run(self._audit(), self._transport)

    def explain(self, audit: Audit) -> Evidence:
        """Gather what may tell how a difference came to be, as of the audit's moment; change nothing.

        When the newest child changed and a shard last counted; children that nobody counted; orphans,
        and strangers among the shards. And it looks into the past hour for the second in which the
        difference came to be: what was deployed or run then is the bug.

        Price: 1 read a shard, a repair and a child, of children and repairs 1,000 at most; up to 24
        audits (2 reads each, more from 1,000 children on) for the search. ``Evidence.reads`` says how
        many it were.

        Raises:
            InvalidType, InvalidValue: no audit, or one of another count.
            ReadFailed: the server could not be read, as for an audit older than an hour.
        """
        return run(self._explain(audit), self._transport)

    def repair(self, audit: Audit, *, by: str = "") -> int:
        """Add the difference that ``audit`` found, once; return it.

        Audits again just before, and refuses a difference that is no longer there: of two operators
        one repairs. Likes go on meanwhile. A record of who, when and how much is kept below the
        counter document, in ``counter_adjustments``.

        Price: an audit, and 2 round trips and 3 writes; the audit again for each rollup, resize or
        repair that came between. Nothing is written for a difference of 0.

        Args:
            audit: what ``audit()`` returned.
            by: who repairs, for the record.

        Raises:
            StaleAudit: the difference is another one now; nothing was changed.
            CounterNotFound: there is no such counter; ``backfill()`` makes it.
            CorruptShard: a shard holds no whole number: mend that first, and nothing drifts perhaps.
            InvalidType, InvalidValue: no audit, one of another count, or a bad ``by``.
            NotApplied, OutcomeUnknown: see ``Counter.increment``; calling again is safe after both.
        """
        return run(self._repair(audit, by), self._transport)

    def backfill(self, *, by: str = "") -> int:
        """Bring the count to the children that exist, for data older than the counter.

        Makes the counter if need be; returns what was added, 0 for a count that is true. Exact while
        adds and removes go on, if they go on here. Price, record and errors: as ``repair``, and
        4 round trips, 2 reads and 1 write for a counter that is made; but no ``CounterNotFound`` and
        no ``StaleAudit``.
        """
        return run(self._backfill(by), self._transport)


class AsyncReferenceCount(_References):
    """The async twin of ``ReferenceCount``: same effects, prices and errors."""

    def __init__(
        self,
        collection: AsyncCollectionReference,
        counter: AsyncDocumentReference,
        counters: AsyncCounters | None = None,
    ) -> None:
        if not isinstance(collection, AsyncCollectionReference) or not isinstance(
            counter, AsyncDocumentReference
        ):
            raise InvalidType("AsyncReferenceCount takes a collection and a document of an async client")
        client: AsyncClient = wire.client_of(counter)
        super().__init__(collection, counter, context_of(client, counters))
        self._transport = wire.AsyncTransport(client)
        self._handle = AsyncCounter(counter, counters)

    @property
    def counter(self) -> AsyncCounter:
        """The counter behind it, for ``watch``, ``resize``, ``set_mirrors`` and ``delete``."""
        return self._handle

    @twin(of=ReferenceCount.create)
    async def create(self, *, shards: int | None = None, mirrors: Iterable[Mirror] | None = None) -> bool:
        return await run_async(self._create(shards, mirrors), self._transport)

    @twin(of=ReferenceCount.add)
    async def add(self, child: str, data: Mapping[str, Any] | None = None) -> bool:
        return await run_async(self._add(child, data), self._transport)

    @twin(of=ReferenceCount.add_new)
    async def add_new(self, data: Mapping[str, Any] | None = None) -> str:
        return await run_async(self._add_new(data), self._transport)

    @twin(of=ReferenceCount.remove)
    async def remove(self, child: str) -> bool:
        return await run_async(self._remove(child), self._transport)

    @twin(of=ReferenceCount.contains)
    async def contains(self, child: str) -> bool:
        return await run_async(self._contains(child), self._transport)

    @twin(of=ReferenceCount.stage_add)
    async def stage_add(
        self,
        batch: AsyncWriteBatch | AsyncTransaction,
        child: str,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        checked = checked_batch(batch, AsyncWriteBatch, AsyncTransaction, self._counter)
        await run_async(self._stage_add(checked, child, data), self._transport)

    @twin(of=ReferenceCount.stage_remove)
    async def stage_remove(self, batch: AsyncWriteBatch | AsyncTransaction, child: str) -> None:
        checked = checked_batch(batch, AsyncWriteBatch, AsyncTransaction, self._counter)
        await run_async(self._stage_remove(checked, child), self._transport)

    @twin(of=ReferenceCount.value)
    async def value(self) -> int:
        return await run_async(self._value(), self._transport)

    @twin(of=ReferenceCount.total)
    async def total(self) -> Total:
        return await run_async(self._total(), self._transport)

    @twin(of=ReferenceCount.remove_all)
    async def remove_all(self, progress: Callable[[int], object] | None = None) -> int:
        return await run_async(self._remove_all(progress), self._transport)

    @twin(of=ReferenceCount.audit)
    async def audit(self) -> Audit:
        return await run_async(self._audit(), self._transport)

    @twin(of=ReferenceCount.explain)
    async def explain(self, audit: Audit) -> Evidence:
        return await run_async(self._explain(audit), self._transport)

    @twin(of=ReferenceCount.repair)
    async def repair(self, audit: Audit, *, by: str = "") -> int:
        return await run_async(self._repair(audit, by), self._transport)

    @twin(of=ReferenceCount.backfill)
    async def backfill(self, *, by: str = "") -> int:
        return await run_async(self._backfill(by), self._transport)


def checked_id(child: object) -> str:
    """``child`` if it can be a document id."""
    if not isinstance(child, str):
        raise InvalidType(f"a child's id is a str, not {type(child).__name__}")
    if not layout.is_document_id(child):
        raise InvalidValue(f"{child!r} can be no document id")
    return child


def checked_data(data: object) -> _Data:
    """``data`` if it can be a child's fields, with ours left free."""
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise InvalidType(f"a child's data is a dict, not {type(data).__name__}")
    if layout.CHILD_SHARD in data:
        raise InvalidValue(f"the field {layout.CHILD_SHARD!r} of a child is the counter's")
    return data


def checked_by(by: object) -> str:
    """``by`` if it can be recorded as who did it."""
    if not isinstance(by, str):
        raise InvalidType(f"`by` is a str, not {type(by).__name__}")
    try:
        by.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"`by` is {by!r}, with half of a surrogate pair in it") from error
    return by


def _create(
    batch: BaseBatch, reference: DocumentReference | AsyncDocumentReference, data: Mapping[str, Any]
) -> None:
    """Add the write that creates a child to ``batch``, in the SDK's own encoding of its data."""
    try:
        batch.create(reference, dict(data))
    except (TypeError, ValueError) as error:
        raise InvalidType(f"Firestore cannot hold this data: {error}") from error
