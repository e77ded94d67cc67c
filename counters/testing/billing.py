"""What a call costs on Firestore's bill, read off its request and its answer. No I/O of its own.

The rules of the Standard edition (https://firebase.google.com/docs/firestore/pricing), in our words:

- a document that a get or a query returns is a read, one that a get finds missing too, and one that
  a query skips for its offset; a query that returns nothing is one read;
- an aggregation is one read per 1,000 index entries, at least one;
- each write of a commit is a write or a delete, whatever it changes;
- a listener is billed like a query, then a read for each document that changes in, or moves out of,
  its result; a list of collection ids is one read.

A call that failed bills nothing, but for the reads that a stream had delivered by then. Not known
here, and so never billed: PartitionQuery, ExecutePipeline, reads made by Security Rules.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from google.cloud.firestore_v1.types import (
    BatchGetDocumentsResponse,
    BatchWriteRequest,
    BatchWriteResponse,
    CommitRequest,
    ListDocumentsResponse,
    ListenResponse,
    RunAggregationQueryRequest,
    RunAggregationQueryResponse,
    RunQueryResponse,
    StructuredAggregationQuery,
    TargetChange,
    WriteResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Bill", "Meter", "Tab"]

_ENTRIES_PER_READ = 1_000
_CURRENT = TargetChange.TargetChangeType.CURRENT


@dataclass
class Bill:
    """What passed while ``measure()`` ran: calls by method, and the operations that are billed.

    ``rpcs`` counts what clients sent, by short names: ``{"BeginTransaction": 1, "Commit": 1}``. The
    rest counts what the server carried out for them, so a call whose answer was lost is on it.
    """

    rpcs: collections.Counter[str] = field(default_factory=collections.Counter)
    reads: int = 0
    writes: int = 0
    deletes: int = 0

    @property
    def round_trips(self) -> int:
        """All calls, the failed ones and the SDK's own retries included."""
        return sum(self.rpcs.values())


class Meter:
    """The bills that are open. Any number may be; each gets all of it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bills: tuple[Bill, ...] = ()

    @contextlib.contextmanager
    def measure(self) -> Iterator[Bill]:
        """Open a bill for as long as the block runs."""
        bill = Bill()
        with self._lock:
            self._bills = (*self._bills, bill)
        try:
            yield bill
        finally:
            with self._lock:
                self._bills = tuple(other for other in self._bills if other is not bill)

    def arrived(self, method: str) -> None:
        """Note a call that came from a client."""
        if self._bills:
            with self._lock:
                for bill in self._bills:
                    bill.rpcs[method] += 1

    def delivered(self, method: str, request: bytes, count: Callable[[bytes], list[bytes]]) -> Tab:
        """Open the tab of a call that is sent on.

        ``count`` runs an aggregation at the server, uncounted; it is called only while a bill is
        open, since that is how the entries behind a SUM come to be known.
        """
        bills = self._bills
        rule = _RULES.get(method, _Rule)(request, count) if bills else None
        return Tab(self._lock, bills, rule)


class Tab:
    """The operations of one delivered call, put on the bills as they come to be known."""

    def __init__(self, lock: threading.Lock, bills: Iterable[Bill], rule: _Rule | None) -> None:
        self._lock = lock
        self._bills = bills
        self._rule = rule

    def answered(self, message: bytes) -> None:
        """Take note of a message of the answer, before the client gets it."""
        if self._rule is not None:
            self._book(self._rule.answered(message))

    def ended(self, code: grpc.StatusCode) -> None:
        """Take note of how the call ended, before the client learns it."""
        if self._rule is not None:
            self._book(self._rule.ended(code))

    def _book(self, charge: _Charge) -> None:
        with self._lock:
            for bill in self._bills:
                bill.reads += charge.reads
                bill.writes += charge.writes
                bill.deletes += charge.deletes


@dataclass(frozen=True)
class _Charge:
    reads: int = 0
    writes: int = 0
    deletes: int = 0


_NOTHING = _Charge()
_A_READ = _Charge(reads=1)


class _Rule:
    """How one kind of call is billed; an instance sees one call."""

    def __init__(self, request: bytes, count: Callable[[bytes], list[bytes]]) -> None:
        self._request = request
        self._count = count

    def answered(self, message: bytes) -> _Charge:  # noqa: ARG002 - for those that bill by message
        return _NOTHING

    def ended(self, code: grpc.StatusCode) -> _Charge:
        return self.succeeded() if code is grpc.StatusCode.OK else _NOTHING

    def succeeded(self) -> _Charge:
        return _NOTHING


class _Commit(_Rule):
    def succeeded(self) -> _Charge:
        return _charge_of(CommitRequest.pb().FromString(self._request).writes)


class _BatchWrite(_Rule):
    def answered(self, message: bytes) -> _Charge:
        writes = BatchWriteRequest.pb().FromString(self._request).writes
        statuses = BatchWriteResponse.pb().FromString(message).status
        pairs = zip(writes, statuses, strict=True)
        return _charge_of([write for write, status in pairs if status.code == 0])


class _Write(_Rule):
    """The stream of writes of web and mobile clients; its deletes are billed as writes."""

    def answered(self, message: bytes) -> _Charge:
        return _Charge(writes=len(WriteResponse.pb().FromString(message).write_results))


class _OneWrite(_Rule):
    def succeeded(self) -> _Charge:
        return _Charge(writes=1)


class _OneDelete(_Rule):
    def succeeded(self) -> _Charge:
        return _Charge(deletes=1)


class _OneRead(_Rule):
    def succeeded(self) -> _Charge:
        return _A_READ


class _GetDocument(_Rule):
    def ended(self, code: grpc.StatusCode) -> _Charge:
        # A missing document fails this call, and is billed.
        looked = code in (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND)
        return _A_READ if looked else _NOTHING


class _BatchGetDocuments(_Rule):
    def answered(self, message: bytes) -> _Charge:
        answer = BatchGetDocumentsResponse.pb().FromString(message)
        return _A_READ if answer.WhichOneof("result") else _NOTHING


class _ListDocuments(_Rule):
    def answered(self, message: bytes) -> _Charge:
        return _Charge(reads=max(1, len(ListDocumentsResponse.pb().FromString(message).documents)))


class _RunQuery(_Rule):
    _reads = 0

    def answered(self, message: bytes) -> _Charge:
        answer = RunQueryResponse.pb().FromString(message)
        reads = answer.HasField("document") + answer.skipped_results
        self._reads += reads
        return _Charge(reads=reads)

    def succeeded(self) -> _Charge:
        return _NOTHING if self._reads else _A_READ


class _RunAggregationQuery(_Rule):
    _answer: Any = None

    def answered(self, message: bytes) -> _Charge:
        answer = RunAggregationQueryResponse.pb().FromString(message)
        if answer.HasField("result"):
            self._answer = answer
        return _NOTHING

    def succeeded(self) -> _Charge:
        if self._answer is None:  # it was only explained
            return _NOTHING
        return _Charge(reads=max(1, -(-self._entries() // _ENTRIES_PER_READ)))

    def _entries(self) -> int:
        """How many entries the query went through: the COUNT of the same query."""
        request = RunAggregationQueryRequest.pb().FromString(self._request)
        for aggregation in request.structured_aggregation_query.aggregations:
            if aggregation.HasField("count"):
                fields = self._answer.result.aggregate_fields
                return int(fields[aggregation.alias].integer_value)
        count = StructuredAggregationQuery.Aggregation.pb()(alias="n")
        count.count.SetInParent()
        del request.structured_aggregation_query.aggregations[:]
        request.structured_aggregation_query.aggregations.append(count)
        # Not in the caller's transaction, where it would lock what it reads.
        request.read_time.CopyFrom(self._answer.read_time)
        for message in self._count(request.SerializeToString()):
            answer = RunAggregationQueryResponse.pb().FromString(message)
            if answer.HasField("result"):
                return int(answer.result.aggregate_fields["n"].integer_value)
        raise RuntimeError("the server did not say how many entries an aggregation went through")


class _Listen(_Rule):
    def __init__(self, request: bytes, count: Callable[[bytes], list[bytes]]) -> None:
        super().__init__(request, count)
        self._shown: dict[str, Any] = {}
        self._reads = 0

    def answered(self, message: bytes) -> _Charge:
        answer = ListenResponse.pb().FromString(message)
        kind = answer.WhichOneof("response_type")
        reads = 0
        if kind == "document_change":
            # Google's emulator shows the whole result again with each change; production does not.
            document = answer.document_change.document
            reads = int(self._shown.get(document.name) != document.update_time)
            self._shown[document.name] = document.update_time
        elif kind == "document_remove":
            reads = 1
        elif kind == "target_change":
            change = answer.target_change.target_change_type
            reads = int(change == _CURRENT and not self._reads)
        self._reads += reads
        return _Charge(reads=reads)


_RULES: dict[str, type[_Rule]] = {
    "BatchGetDocuments": _BatchGetDocuments,
    "BatchWrite": _BatchWrite,
    "Commit": _Commit,
    "CreateDocument": _OneWrite,
    "DeleteDocument": _OneDelete,
    "GetDocument": _GetDocument,
    "ListCollectionIds": _OneRead,
    "ListDocuments": _ListDocuments,
    "Listen": _Listen,
    "RunAggregationQuery": _RunAggregationQuery,
    "RunQuery": _RunQuery,
    "UpdateDocument": _OneWrite,
    "Write": _Write,
}


def _charge_of(writes: Iterable[Any]) -> _Charge:
    kinds = collections.Counter(write.WhichOneof("operation") == "delete" for write in writes)
    return _Charge(writes=kinds[False], deletes=kinds[True])
