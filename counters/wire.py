"""Requests and answers in Firestore's own messages: the only module that knows the generated client.

Here live the message types, the three private attributes of the SDK's clients that raw requests
need (API, metadata, database), and nothing that decides. Building a request through the SDK's
document helpers costs about 45 % on top of a bare commit; this does not. The SDK is capped below 3
for it, and ``tests/unit/test_wire.py`` notices when a release changes what this leans on.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.api_core import exceptions
from google.cloud.firestore_v1 import types
from google.protobuf.timestamp_pb2 import Timestamp

from counters.errors import InvalidValue
from counters.steps import Rpc

if TYPE_CHECKING:
    from google.cloud.firestore_v1 import AsyncClient, Client
    from google.cloud.firestore_v1.base_batch import BaseBatch
    from google.cloud.firestore_v1.base_client import BaseClient
    from google.cloud.firestore_v1.base_collection import BaseCollectionReference
    from google.cloud.firestore_v1.base_document import BaseDocumentReference

# The protobuf classes behind the SDK's wrappers: a request is built in these and wrapped once.
_Write: Final = types.Write.pb()
_Value: Final = types.Value.pb()
_CommitRequest: Final = types.CommitRequest.pb()
_BeginRequest: Final = types.BeginTransactionRequest.pb()
_RollbackRequest: Final = types.RollbackRequest.pb()
_GetRequest: Final = types.BatchGetDocumentsRequest.pb()
_QueryRequest: Final = types.RunQueryRequest.pb()
_ListRequest: Final = types.ListDocumentsRequest.pb()
_SumRequest: Final = types.RunAggregationQueryRequest.pb()
_Query: Final = types.StructuredQuery.pb()
_SERVER_TIME: Final = int(types.DocumentTransform.FieldTransform.ServerValue.REQUEST_TIME)
_IN: Final = int(types.StructuredQuery.FieldFilter.Operator.IN)
_GREATER: Final = int(types.StructuredQuery.FieldFilter.Operator.GREATER_THAN)
_AND: Final = int(types.StructuredQuery.CompositeFilter.Operator.AND)
_ASCENDING: Final = int(types.StructuredQuery.Direction.ASCENDING)
_Transaction = TypeVar("_Transaction", bound="BaseBatch")
_STREAMS: Final = frozenset({"batch_get_documents", "run_query", "run_aggregation_query"})
_ALIAS: Final = "result"

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

RETRYABLE: Final = (
    exceptions.Aborted,
    exceptions.Cancelled,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.ResourceExhausted,
    exceptions.ServiceUnavailable,
    exceptions.Unknown,
    exceptions.RetryError,
)
"""What is worth another try, once it is known that nothing was applied."""

PRECONDITION: Final = (
    exceptions.AlreadyExists,
    exceptions.FailedPrecondition,
    exceptions.NotFound,
)
"""How a commit is answered whose precondition does not hold."""


_loops: weakref.WeakKeyDictionary[AsyncClient, asyncio.AbstractEventLoop] = weakref.WeakKeyDictionary()


class SyncTransport:
    """Sends requests through a ``google.cloud.firestore.Client``, each exactly once."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def send(self, rpc: Rpc) -> Any:
        """Send and wait; a stream's answer is read to its end. The SDK's own retry is off."""
        method = getattr(self._client._firestore_api, rpc.method)
        answer = method(rpc.request, retry=None, timeout=rpc.timeout, metadata=self._client._rpc_metadata)
        return list(answer) if rpc.method in _STREAMS else answer


class AsyncTransport:
    """Sends requests through a ``google.cloud.firestore.AsyncClient``, each exactly once."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def send(self, rpc: Rpc) -> Any:
        """Send and await; a stream's answer is read to its end. The SDK's own retry is off.

        Raises ``InvalidValue`` in another event loop than the client's first: its channel is of that.
        """
        loop = asyncio.get_running_loop()
        if _loops.setdefault(self._client, loop) is not loop:
            raise InvalidValue(
                "this AsyncClient belongs to another event loop: make a client, and an AsyncCounters, "
                "for each loop"
            )
        method = getattr(self._client._firestore_api, rpc.method)
        answer = await method(
            rpc.request, retry=None, timeout=rpc.timeout, metadata=self._client._rpc_metadata
        )
        return [part async for part in answer] if rpc.method in _STREAMS else answer


def database_of(client: BaseClient) -> str:
    """``projects/{project}/databases/{database}`` of a client."""
    name: str = client._database_string
    return name


def client_of(thing: BaseBatch | BaseCollectionReference[Any] | BaseDocumentReference) -> Any:
    """The client behind a document, collection, batch or transaction."""
    return thing._client


def collection_path(collection: BaseCollectionReference[Any]) -> str:
    """The path of a collection within its database."""
    return "/".join(collection._path)


def writes_of(batch: BaseBatch) -> list[Any]:
    """The writes that a batch or transaction has gathered, as messages."""
    return [types.Write.pb(write) for write in batch._write_pbs]


def adopt(transaction: _Transaction, identity: bytes) -> _Transaction:
    """Make an SDK transaction object speak for the transaction of this id."""
    transaction._id = identity  # type: ignore[attr-defined]
    return transaction


def is_read_only(batch: BaseBatch) -> bool:
    """Whether ``batch`` is a transaction that refuses writes."""
    return bool(getattr(batch, "_read_only", False))


def document_name(database: str, path: str) -> str:
    """The full resource name of the document at ``path``."""
    return f"{database}/documents/{path}"


def relative_path(name: str) -> str:
    """The path within its database of a full resource name."""
    return name.split("/", 5)[5]


# Time. Firestore's timestamps count microseconds; so do we, as plain integers.


def micros(stamp: Timestamp) -> int:
    """Microseconds since the epoch."""
    return stamp.seconds * 1_000_000 + stamp.nanos // 1000


def timestamp(microseconds: int) -> Timestamp:
    """The ``Timestamp`` of so many microseconds since the epoch."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def to_datetime(microseconds: int) -> datetime:
    """An aware datetime, in UTC."""
    return datetime.fromtimestamp(microseconds // 1_000_000, timezone.utc).replace(
        microsecond=microseconds % 1_000_000
    )


def from_datetime(moment: datetime) -> int:
    """Microseconds since the epoch of an aware datetime."""
    since = moment - datetime.fromtimestamp(0, timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


# Values.


@dataclass(frozen=True, slots=True)
class Reference:
    """A document reference as a field's value, by full resource name."""

    name: str


def encode(value: Any) -> Any:
    """The ``Value`` message of what this package stores: int, str, timestamp, reference, map, list."""
    message = _Value()
    if isinstance(value, int):
        message.integer_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, Timestamp):
        message.timestamp_value.CopyFrom(value)
    elif isinstance(value, Reference):
        message.reference_value = value.name
    elif isinstance(value, Mapping):
        message.map_value.SetInParent()
        for key, item in value.items():
            message.map_value.fields[key].CopyFrom(encode(item))
    elif isinstance(value, Sequence):
        message.array_value.SetInParent()
        message.array_value.values.extend(encode(item) for item in value)
    else:
        raise TypeError(f"no encoding for {type(value).__name__}")
    return message


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "null_value": lambda _: None,
    "timestamp_value": lambda value: value.timestamp_value,
    "reference_value": lambda value: Reference(value.reference_value),
    "map_value": lambda value: {k: decode(v) for k, v in value.map_value.fields.items()},
    "array_value": lambda value: [decode(item) for item in value.array_value.values],
}


def decode(value: Any) -> Any:
    """What a ``Value`` message holds; the inverse of ``encode``, and everything else as it comes."""
    kind = value.WhichOneof("value_type")
    if kind is None:
        return None
    special = _DECODERS.get(kind)
    return special(value) if special else getattr(value, kind)


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was at ``read_time``; ``fields`` is None where there was none.

    ``read_time``, ``created`` and ``updated`` are in microseconds.
    """

    path: str
    fields: Mapping[str, Any] | None
    read_time: int
    created: int = 0
    updated: int = 0

    @property
    def exists(self) -> bool:
        """Whether there was such a document."""
        return self.fields is not None


def _document(message: Any, read_time: int) -> Document:
    return Document(
        path=relative_path(message.name),
        fields={key: decode(value) for key, value in message.fields.items()},
        read_time=read_time,
        created=micros(message.create_time),
        updated=micros(message.update_time),
    )


# Writes. Each returns one ``Write`` message, which is one billed write.


def add_to_shard(
    name: str, *, bucket: tuple[str, int], add: Mapping[str, int], stamp: str, receipt: Receipt | None
) -> Any:
    """Add to a shard without reading it, making it if need be.

    ``add`` are fields and amounts, ``stamp`` the field that takes the server's time.
    """
    write = _Write()
    write.update.name = name
    fields = write.update.fields
    fields[bucket[0]].integer_value = bucket[1]
    write.update_mask.field_paths.append(bucket[0])
    if receipt is not None:
        fields[receipt.field].map_value.fields[receipt.lane].integer_value = receipt.mark
        write.update_mask.field_paths.append(f"{receipt.field}.{receipt.lane}")
    for field, amount in add.items():
        write.update_transforms.add(field_path=field).increment.integer_value = amount
    write.update_transforms.add(field_path=stamp, set_to_server_value=_SERVER_TIME)
    return write


@dataclass(frozen=True, slots=True)
class Receipt:
    """The mark that a commit leaves in a document: ``{field: {lane: mark}}``."""

    field: str
    lane: str
    mark: int

    def as_field(self) -> dict[str, dict[str, int]]:
        """The receipt as document data."""
        return {self.field: {self.lane: self.mark}}


def create(name: str, data: Mapping[str, Any]) -> Any:
    """Create a document; refused with ALREADY_EXISTS if there is one."""
    write = _Write()
    write.update.name = name
    _put(write, data)
    write.current_document.exists = False
    return write


def replace(name: str, data: Mapping[str, Any], server_time: Iterable[str] = ()) -> Any:
    """Write a whole document, whatever there was."""
    write = _Write()
    write.update.name = name
    _put(write, data)
    _stamp(write, server_time)
    return write


def update(
    name: str,
    data: Mapping[str, Any],
    *,
    server_time: Iterable[str] = (),
    if_updated: int | None = None,
) -> Any:
    """Update fields of a document that exists (NOT_FOUND otherwise).

    Keys of ``data`` are field paths of one simple name each; a value of None removes the field.
    ``if_updated``: only if the document's update time is still this (FAILED_PRECONDITION otherwise).
    """
    write = _Write()
    write.update.name = name
    _put(write, {key: value for key, value in data.items() if value is not None})
    write.update_mask.SetInParent()  # without a mask, an update replaces the document
    write.update_mask.field_paths.extend(data)
    _stamp(write, server_time)
    if if_updated is None:
        write.current_document.exists = True
    else:
        write.current_document.update_time.CopyFrom(timestamp(if_updated))
    return write


def update_paths(name: str, data: Mapping[tuple[str, ...], int]) -> Any:
    """Update nested integer fields of a document that exists, leaving all else in it alone."""
    write = _Write()
    write.update.name = name
    write.update_mask.SetInParent()
    for path, value in data.items():
        fields = write.update.fields
        for part in path[:-1]:
            fields = fields[part].map_value.fields
        fields[path[-1]].integer_value = value
        write.update_mask.field_paths.append(".".join(quote(part) for part in path))
    write.current_document.exists = True
    return write


def remove_keys(
    name: str, field: str, keys: Iterable[str], data: Mapping[str, Any], *, if_updated: int
) -> Any:
    """Remove keys of a map field and set ``data``, only if the update time is still ``if_updated``."""
    write = _Write()
    write.update.name = name
    _put(write, data)
    write.update_mask.field_paths.extend(data)
    write.update_mask.field_paths.extend(f"{field}.{quote(key)}" for key in keys)
    write.current_document.update_time.CopyFrom(timestamp(if_updated))
    return write


def delete(name: str, *, if_updated: int | None = None, must_exist: bool = False) -> Any:
    """Delete a document.

    ``if_updated``: only if its update time is still this; ``must_exist``: only if there is one.
    """
    write = _Write()
    write.delete = name
    if must_exist:
        write.current_document.exists = True
    if if_updated is not None:
        write.current_document.update_time.CopyFrom(timestamp(if_updated))
    return write


def quote(part: str) -> str:
    """One name of a field path, in backticks where Firestore's grammar asks for them."""
    if part.isascii() and part.isidentifier():
        return part
    escaped = part.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _put(write: Any, data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        write.update.fields[key].CopyFrom(encode(value))


def _stamp(write: Any, fields: Iterable[str]) -> None:
    for field in fields:
        write.update_transforms.add(field_path=field, set_to_server_value=_SERVER_TIME)


# Requests.


def begin(database: str, timeout: float) -> Rpc:
    """Begin a read-write transaction. Read the answer with ``transaction_of``."""
    return Rpc("begin_transaction", _begin_request(database), timeout)


@lru_cache(maxsize=16)
def _begin_request(database: str) -> types.BeginTransactionRequest:
    request = _BeginRequest(database=database)
    request.options.read_write.SetInParent()
    wrapped: types.BeginTransactionRequest = types.BeginTransactionRequest.wrap(request)
    return wrapped


def transaction_of(answer: Any) -> bytes:
    """The id of the transaction that was begun."""
    transaction: bytes = types.BeginTransactionResponse.pb(answer).transaction
    return transaction


def commit(database: str, writes: Iterable[Any], timeout: float, transaction: bytes = b"") -> Rpc:
    """Commit ``writes``, all or nothing, within ``transaction`` if one is given."""
    request = _CommitRequest(database=database, writes=writes, transaction=transaction)
    return Rpc("commit", types.CommitRequest.wrap(request), timeout)


def commit_time(answer: Any) -> int:
    """When the server committed, in microseconds."""
    return micros(types.CommitResponse.pb(answer).commit_time)


def rollback(database: str, transaction: bytes, timeout: float, *, shielded: bool = False) -> Rpc:
    """Close ``transaction``; nothing of it can apply after an OK."""
    request = _RollbackRequest(database=database, transaction=transaction)
    return Rpc("rollback", types.RollbackRequest.wrap(request), timeout, shielded)


def get(database: str, paths: Iterable[str], timeout: float, *, read_time: int | None = None) -> Rpc:
    """Read documents by path, outside any transaction: one billed read each, missing ones too."""
    request = _GetRequest(database=database, documents=[document_name(database, path) for path in paths])
    if read_time is not None:
        request.read_time.CopyFrom(timestamp(read_time))
    return Rpc("batch_get_documents", types.BatchGetDocumentsRequest.wrap(request), timeout)


def documents_of(answer: Iterable[Any]) -> dict[str, Document]:
    """The documents that ``get`` read, by path."""
    documents = {}
    for part in answer:
        message = types.BatchGetDocumentsResponse.pb(part)
        read_time = micros(message.read_time)
        kind = message.WhichOneof("result")
        if kind == "found":
            document = _document(message.found, read_time)
            documents[document.path] = document
        elif kind == "missing":
            path = relative_path(message.missing)
            documents[path] = Document(path, None, read_time)
    return documents


def sum_of(
    database: str,
    parent: str,
    collection: str,
    field: str,
    timeout: float,
    *,
    read_time: int | None = None,
) -> Rpc:
    """Sum an integer field over a collection, at one snapshot: one read per 1,000 documents.

    Read the answer with ``sum_in``
    (https://firebase.google.com/docs/firestore/pricing#aggregation_queries, 2026-11-30).
    """
    request = _aggregation(database, parent, collection, read_time)
    aggregation = request.structured_aggregation_query.aggregations.add(alias=_ALIAS)
    aggregation.sum.field.field_path = field
    return Rpc("run_aggregation_query", types.RunAggregationQueryRequest.wrap(request), timeout)


def count_of(
    database: str, parent: str, collection: str, timeout: float, *, read_time: int | None = None
) -> Rpc:
    """Count the documents of a collection, at one snapshot: one read per 1,000.

    Read the answer with ``sum_in``.
    """
    request = _aggregation(database, parent, collection, read_time)
    request.structured_aggregation_query.aggregations.add(alias=_ALIAS).count.SetInParent()
    return Rpc("run_aggregation_query", types.RunAggregationQueryRequest.wrap(request), timeout)


def _aggregation(database: str, parent: str, collection: str, read_time: int | None) -> Any:
    request = _SumRequest(parent=_parent_name(database, parent))
    request.structured_aggregation_query.structured_query.from_.add(collection_id=collection)
    if read_time is not None:
        request.read_time.CopyFrom(timestamp(read_time))
    return request


def _parent_name(database: str, parent: str) -> str:
    return document_name(database, parent) if parent else f"{database}/documents"


def sum_in(answer: Iterable[Any]) -> int | None:
    """The sum or count, or None if the server's sum is no integer (a fraction, or past int64)."""
    for part in answer:
        fields = types.RunAggregationQueryResponse.pb(part).result.aggregate_fields
        if _ALIAS in fields:
            kind = fields[_ALIAS].WhichOneof("value_type")
            if kind == "integer_value":
                return int(fields[_ALIAS].integer_value)
            return 0 if kind == "null_value" else None
    return 0


def list_documents(
    database: str,
    parent: str,
    collection: str,
    fields: Iterable[str],
    timeout: float,
    *,
    limit: int,
    after: str | None = None,
    read_time: int | None = None,
    between: tuple[str, str] | None = None,
) -> Rpc:
    """One page of a collection, in the order of ids; ``after`` is the last page's last path.

    ``between`` are the path to begin with and the one to end before.
    """
    request = _QueryRequest(parent=_parent_name(database, parent))
    query = request.structured_query
    _source(query, collection, fields, limit)
    query.order_by.add(direction=_ASCENDING).field.field_path = "__name__"
    if after is not None:
        query.start_at.values.add(reference_value=document_name(database, after))
    elif between is not None:
        query.start_at.values.add(reference_value=document_name(database, between[0]))
        query.start_at.before = True
    if between is not None:
        query.end_at.values.add(reference_value=document_name(database, between[1]))
        query.end_at.before = True
    if read_time is not None:
        request.read_time.CopyFrom(timestamp(read_time))
    return Rpc("run_query", types.RunQueryRequest.wrap(request), timeout)


def list_names(
    database: str, parent: str, collection: str, timeout: float, *, limit: int, start: str = ""
) -> Rpc:
    """One page of a collection's ids, in their order: one billed read each.

    Those of documents, too, that do not exist and have collections below them; a query passes over
    these. ``start`` is where the last page ended. Read the answer with ``names_of``.
    """
    request = _ListRequest(
        parent=_parent_name(database, parent),
        collection_id=collection,
        page_size=limit,
        page_token=start,
        show_missing=True,
    )
    request.mask.field_paths.append("__name__")
    return Rpc("list_documents", types.ListDocumentsRequest.wrap(request), timeout)


def names_of(answer: Any) -> tuple[list[str], str]:
    """The paths that ``list_names`` found, and where the next page starts; empty after the last."""
    start: str = answer.next_page_token
    return [relative_path(document.name) for document in answer.documents], start


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page of ``changed_since`` ended."""

    changed: int
    path: str


def changed_since(
    database: str,
    collection: str,
    fields: Iterable[str],
    timeout: float,
    *,
    bucket: tuple[str, Sequence[int]],
    changed: tuple[str, int],
    limit: int,
    read_time: int,
    after: Position | None = None,
) -> Rpc:
    """One page, over all collections of this id, of documents changed since a moment, oldest first.

    ``bucket`` and ``changed`` are a field and the values wanted of it. Served by the composite
    index (bucket, changed) of collection-group scope in firestore.indexes.json.
    """
    request = _QueryRequest(parent=f"{database}/documents")
    query = request.structured_query
    _source(query, collection, fields, limit)
    query.from_[0].all_descendants = True
    both = query.where.composite_filter
    both.op = _AND
    within = both.filters.add().field_filter
    within.field.field_path, within.op = bucket[0], _IN
    within.value.array_value.values.extend(encode(item) for item in bucket[1])
    since = both.filters.add().field_filter
    since.field.field_path, since.op = changed[0], _GREATER
    since.value.timestamp_value.CopyFrom(timestamp(changed[1]))
    query.order_by.add(direction=_ASCENDING).field.field_path = changed[0]
    query.order_by.add(direction=_ASCENDING).field.field_path = "__name__"
    if after is not None:
        query.start_at.values.add().timestamp_value.CopyFrom(timestamp(after.changed))
        query.start_at.values.add(reference_value=document_name(database, after.path))
    request.read_time.CopyFrom(timestamp(read_time))
    return Rpc("run_query", types.RunQueryRequest.wrap(request), timeout)


def _source(query: Any, collection: str, fields: Iterable[str], limit: int) -> None:
    query.from_.add(collection_id=collection)
    for field in fields:
        query.select.fields.add(field_path=field)
    query.limit.value = limit


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a query: its documents, and the moment (microseconds) they were read at."""

    documents: list[Document]
    read_time: int


def page_of(answer: Iterable[Any]) -> Page:
    """The page that a query answered."""
    documents = []
    read_time = 0
    for part in answer:
        message = types.RunQueryResponse.pb(part)
        read_time = max(read_time, micros(message.read_time))
        if message.HasField("document"):
            documents.append(_document(message.document, micros(message.read_time)))
    return Page(documents, read_time)
