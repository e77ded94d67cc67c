"""What counters/wire.py leans on in the SDK is still there, and its messages mean what they should.

The first part is the canary: it fails when a release of google-cloud-firestore changes under us.
"""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import grpc
import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import AsyncClient, Client, types
from google.cloud.firestore_v1.field_path import FieldPath, get_field_path
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient, FirestoreClient
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from counters import wire
from counters.steps import run, run_async

DATABASE = "projects/p/databases/d"
ROOT = f"{DATABASE}/documents"
NAME = f"{ROOT}/posts/a91f"
RECEIPT = wire.Receipt("receipts", "lane", 7)

CLIENTS = [
    pytest.param(cls("p", AnonymousCredentials(), database="d"), id=cls.__name__)
    for cls in (Client, AsyncClient)
]


def pb(rpc):
    """The message of a request, as it goes out."""
    return type(rpc.request).pb(rpc.request)


# The canary.


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_has_its_database_and_the_metadata_of_every_request(client):
    assert wire.database_of(client) == DATABASE
    assert ("google-cloud-resource-prefix", DATABASE) in client._rpc_metadata


@pytest.mark.parametrize("client", CLIENTS)
def test_documents_collections_batches_and_transactions_know_their_client(client):
    for thing in (client.document("a/b"), client.collection("a"), client.batch(), client.transaction()):
        assert wire.client_of(thing) is client
    assert wire.collection_path(client.document("a/b").collection("c")) == "a/b/c"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_transaction_tells_whether_it_is_read_only_and_a_batch_never_is(client):
    assert not wire.is_read_only(client.batch())
    assert not wire.is_read_only(client.transaction())
    assert wire.is_read_only(client.transaction(read_only=True))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_batch_gives_its_writes_as_messages_and_a_transaction_takes_an_id(client):
    batch = client.batch()
    batch.set(client.document("posts/a91f"), {"x": 1})
    (write,) = wire.writes_of(batch)
    assert isinstance(write, types.Write.pb())
    assert write.update.name == NAME
    assert wire.adopt(client.transaction(), b"id").id == b"id"


@pytest.mark.parametrize("api", [FirestoreClient, FirestoreAsyncClient])
@pytest.mark.parametrize(
    "method",
    [
        "begin_transaction",
        "commit",
        "rollback",
        "batch_get_documents",
        "run_query",
        "run_aggregation_query",
    ],
)
def test_the_generated_client_takes_a_request_its_retry_timeout_and_metadata(api, method):
    parameters = inspect.signature(getattr(api, method)).parameters
    assert list(parameters)[1] == "request"
    assert {"retry", "timeout", "metadata"} <= parameters.keys()


class Recorder(grpc.GenericRpcHandler):
    """A server that refuses every request, and keeps what it was sent."""

    def __init__(self):
        self.calls = []

    def service(self, details):
        def refuse(_request, context):
            self.calls.append((details.method, dict(details.invocation_metadata), context.time_remaining()))
            context.abort(grpc.StatusCode.UNAVAILABLE, "try again")

        def refuse_stream(request, context):
            refuse(request, context)
            yield b""

        if details.method.endswith(("BatchGetDocuments", "RunQuery", "RunAggregationQuery")):
            return grpc.unary_stream_rpc_method_handler(refuse_stream)
        return grpc.unary_unary_rpc_method_handler(refuse)


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[recorder])
    port = server.add_insecure_port("localhost:0")
    server.start()
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"localhost:{port}")
    yield recorder
    server.stop(None).wait()


REQUESTS = {
    "BeginTransaction": wire.begin(DATABASE, 3),
    "Commit": wire.commit(DATABASE, [wire.delete(NAME)], 3, b"id"),
    "Rollback": wire.rollback(DATABASE, b"id", 3),
    "BatchGetDocuments": wire.get(DATABASE, ["a/b"], 3),
    "RunQuery": wire.list_documents(DATABASE, "a/b", "c", (), 3, limit=5),
    "RunAggregationQuery": wire.sum_of(DATABASE, "a/b", "c", "value", 3),
}


def ask(rpc):
    return (yield rpc)


def send_blocking(rpc):
    run(ask(rpc), wire.SyncTransport(Client("p", database="d")))


def send_awaited(rpc):
    async def send():
        client = AsyncClient("p", database="d")
        try:
            await run_async(ask(rpc), wire.AsyncTransport(client))
        finally:
            await client._firestore_api.transport.close()

    asyncio.run(send())


@pytest.mark.parametrize("send", [send_blocking, send_awaited])
def test_every_request_is_sent_exactly_once_with_its_timeout_and_the_clients_metadata(recorder, send):
    """UNAVAILABLE is what the SDK itself would send again."""
    for method, rpc in REQUESTS.items():
        recorder.calls.clear()
        with pytest.raises(exceptions.ServiceUnavailable):
            send(rpc)
        ((called, metadata, left),) = recorder.calls
        assert called == f"/google.firestore.v1.Firestore/{method}"
        assert metadata["google-cloud-resource-prefix"] == DATABASE
        assert metadata["authorization"] == "Bearer owner"
        assert 2 < left < 3.5


# Time and names.


@given(st.integers(-(2**55), 2**55))
def test_microseconds_survive_the_way_through_a_timestamp(microseconds):
    assert wire.micros(wire.timestamp(microseconds)) == microseconds


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.timezones()))  # noqa: DTZ001
def test_datetimes_and_microseconds_are_the_same_moments(moment):
    microseconds = wire.from_datetime(moment)
    assert wire.to_datetime(microseconds) == moment.astimezone(timezone.utc)
    assert wire.to_datetime(microseconds).utcoffset() == timedelta(0)
    stamp = Timestamp()
    stamp.FromDatetime(moment.astimezone(timezone.utc).replace(tzinfo=None))
    assert wire.micros(stamp) == microseconds


def test_nanoseconds_are_cut_off():
    assert wire.micros(Timestamp(seconds=1, nanos=999_999_999)) == 1_999_999


@given(st.lists(st.text(min_size=1), min_size=2, max_size=6).map("/".join))
def test_a_path_survives_the_way_through_a_full_name(path):
    assert wire.relative_path(wire.document_name(DATABASE, path)) == path


# Values.

SCALARS = (
    st.integers(wire.INT64_MIN, wire.INT64_MAX)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.builds(wire.Reference, st.just(NAME))
    | st.builds(wire.timestamp, st.integers(0, 2**55))
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_encoded_is_decoded_as_it_was(value):
    assert wire.decode(wire.encode(value)) == value


@given(VALUES)
def test_what_is_encoded_survives_the_wire(value):
    message = types.Value.pb()()
    message.ParseFromString(wire.encode(value).SerializeToString())
    assert wire.decode(message) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [("null_value", None), ("boolean_value", True), ("double_value", 1.5), ("bytes_value", b"x")],
)
def test_what_others_store_is_decoded_as_it_comes(kind, value):
    message = types.Value.pb()(**{kind: 0 if value is None else value})
    assert wire.decode(message) == value
    assert type(wire.decode(message)) is type(value)
    assert wire.decode(types.Value.pb()()) is None


@pytest.mark.parametrize("value", [None, 1.5, object(), {"x": None}, [1.5]])
def test_what_we_never_store_is_not_encoded(value):
    with pytest.raises(TypeError, match="no encoding"):
        wire.encode(value)


# Field paths.


@given(KEYS)
def test_a_name_is_quoted_as_google_quotes_it(name):
    assert wire.quote(name) == get_field_path([name])


# Google's own lexer takes a backslash before a closing backtick for an escape, however many there are.
READABLE = KEYS.filter(lambda name: not name.endswith("\\"))


@given(st.lists(READABLE, min_size=1, max_size=4))
def test_quoted_names_make_a_path_that_leads_to_them(names):
    path = ".".join(wire.quote(name) for name in names)
    assert list(FieldPath.from_api_repr(path).parts) == names


# Writes. A mask decides what an update leaves alone: without one, it replaces the document.


def test_adding_to_a_shard_leaves_all_else_in_it_alone():
    write = wire.add_to_shard(
        NAME, bucket=("bucket", 3), add={"value": 5, "writes": 1}, stamp="updated_at", receipt=RECEIPT
    )
    assert list(write.update_mask.field_paths) == ["bucket", "receipts.lane"]
    fields = {key: wire.decode(value) for key, value in write.update.fields.items()}
    assert fields == {"bucket": 3, "receipts": {"lane": 7}}
    value, writes, stamp = write.update_transforms
    assert (value.field_path, value.increment.integer_value) == ("value", 5)
    assert (writes.field_path, writes.increment.integer_value) == ("writes", 1)
    assert (stamp.field_path, stamp.set_to_server_value) == ("updated_at", 1)
    assert not write.HasField("current_document"), "the shard may not be there yet"


def test_adding_to_a_shard_without_a_receipt_leaves_the_receipts_alone():
    write = wire.add_to_shard(NAME, bucket=("bucket", 3), add={}, stamp="updated_at", receipt=None)
    assert list(write.update_mask.field_paths) == ["bucket"]


def test_an_update_has_a_mask_and_demands_that_the_document_exists():
    write = wire.update(NAME, {"x": 1, "gone": None}, server_time=["stamp"])
    assert list(write.update_mask.field_paths) == ["x", "gone"]
    assert set(write.update.fields) == {"x"}
    assert write.update_transforms[0].field_path == "stamp"
    assert write.current_document.exists is True


@pytest.mark.parametrize(
    "write",
    [
        wire.update(NAME, {}),
        wire.update(NAME, {}, server_time=["stamp"], if_updated=5),
        wire.update(NAME, {"gone": None}),
        wire.update_paths(NAME, {}),
        wire.update_paths(NAME, {("a", "b"): 1}),
        wire.remove_keys(NAME, "receipts", [], {}, if_updated=5),
        wire.remove_keys(NAME, "receipts", ["lane"], {"pruned": 3}, if_updated=5),
        wire.add_to_shard(NAME, bucket=("bucket", 3), add={}, stamp="updated_at", receipt=None),
    ],
)
def test_no_update_ever_replaces_a_document_even_on_the_wire(write):
    sent = types.Write.pb()()
    sent.ParseFromString(write.SerializeToString())
    assert sent.HasField("update_mask")


def test_an_update_may_demand_that_the_document_has_not_changed():
    write = wire.update(NAME, {"x": 1}, if_updated=1_500_000)
    assert wire.micros(write.current_document.update_time) == 1_500_000
    assert write.current_document.WhichOneof("condition_type") == "update_time"


@given(st.dictionaries(st.tuples(READABLE, READABLE, READABLE), st.integers(-9, 9), max_size=4))
def test_nested_fields_are_updated_under_a_mask_of_their_own(data):
    write = wire.update_paths(NAME, data)
    masked = [tuple(FieldPath.from_api_repr(path).parts) for path in write.update_mask.field_paths]
    assert masked == list(data)
    held = {key: wire.decode(value) for key, value in write.update.fields.items()}
    for path, number in data.items():
        inner = held
        for part in path:
            inner = inner[part]
        assert inner == number
    assert write.current_document.exists is True


def test_keys_are_removed_by_being_masked_and_absent_and_only_if_nothing_changed():
    write = wire.remove_keys(NAME, "receipts", ["lane", "odd-name"], {"pruned": 3}, if_updated=5)
    assert list(write.update_mask.field_paths) == ["pruned", "receipts.lane", "receipts.`odd-name`"]
    assert {key: wire.decode(value) for key, value in write.update.fields.items()} == {"pruned": 3}
    assert wire.micros(write.current_document.update_time) == 5


def test_a_document_is_created_only_where_there_is_none():
    write = wire.create(NAME, {"x": 1})
    assert write.current_document.WhichOneof("condition_type") == "exists"
    assert write.current_document.exists is False
    assert wire.decode(write.update.fields["x"]) == 1


def test_a_document_is_replaced_whatever_there_was():
    write = wire.replace(NAME, {"x": 1}, ["stamp"])
    assert not write.HasField("update_mask")
    assert not write.HasField("current_document")
    assert write.update_transforms[0].field_path == "stamp"


def test_a_document_is_deleted_on_the_conditions_that_are_given():
    assert wire.delete(NAME).delete == NAME
    assert not wire.delete(NAME).HasField("current_document")
    assert wire.delete(NAME, must_exist=True).current_document.exists is True
    assert wire.micros(wire.delete(NAME, if_updated=5).current_document.update_time) == 5


# Requests.


def test_a_transaction_is_begun_for_writing():
    rpc = wire.begin(DATABASE, 3)
    assert pb(rpc).database == DATABASE
    assert pb(rpc).options.WhichOneof("mode") == "read_write"
    assert wire.transaction_of(types.BeginTransactionResponse(transaction=b"id")) == b"id"


def test_a_commit_carries_its_writes_in_order_and_its_transaction():
    writes = [wire.delete(NAME), wire.create(NAME, {})]
    assert list(pb(wire.commit(DATABASE, writes, 3, b"id")).writes) == writes
    assert pb(wire.commit(DATABASE, writes, 3, b"id")).transaction == b"id"
    assert pb(wire.commit(DATABASE, writes, 3)).transaction == b""
    assert pb(wire.commit(DATABASE, writes, 3)).database == DATABASE


def test_a_rollback_names_its_transaction_and_may_be_shielded():
    rpc = wire.rollback(DATABASE, b"id", 3, shielded=True)
    assert (pb(rpc).database, pb(rpc).transaction) == (DATABASE, b"id")
    assert (rpc.timeout, rpc.shielded) == (3, True)
    assert not wire.rollback(DATABASE, b"id", 3).shielded


def test_documents_are_read_now_or_at_a_moment():
    now, then = wire.get(DATABASE, ["a/b", "a/ä"], 3), wire.get(DATABASE, ["a/b"], 3, read_time=5_000_001)
    assert list(pb(now).documents) == [f"{ROOT}/a/b", f"{ROOT}/a/ä"]
    assert pb(now).WhichOneof("consistency_selector") is None
    assert wire.micros(pb(then).read_time) == 5_000_001


def test_documents_and_missing_ones_are_told_apart():
    stamps = {"create_time": wire.to_datetime(1), "update_time": wire.to_datetime(2)}
    found = types.Document(name=NAME, fields={"x": {"integer_value": 1}}, **stamps)
    answer = [
        types.BatchGetDocumentsResponse(found=found, read_time=wire.to_datetime(3)),
        types.BatchGetDocumentsResponse(missing=f"{ROOT}/a/b", read_time=wire.to_datetime(3)),
        types.BatchGetDocumentsResponse(read_time=wire.to_datetime(3)),
    ]
    documents = wire.documents_of(answer)
    assert documents["posts/a91f"] == wire.Document("posts/a91f", {"x": 1}, 3, created=1, updated=2)
    assert documents["a/b"] == wire.Document("a/b", None, 3)
    assert (documents["posts/a91f"].exists, documents["a/b"].exists) == (True, False)
    assert len(documents) == 2


def test_a_sum_asks_for_one_aggregation_over_the_shards_of_one_counter():
    request = pb(wire.sum_of(DATABASE, "posts/a91f", "shards", "value", 3, read_time=5_000_001))
    aggregation = request.structured_aggregation_query
    assert request.parent == NAME
    assert aggregation.aggregations[0].sum.field.field_path == "value"
    (source,) = aggregation.structured_query.from_
    assert (source.collection_id, source.all_descendants) == ("shards", False)
    assert wire.micros(request.read_time) == 5_000_001
    now = pb(wire.sum_of(DATABASE, "posts/a91f", "shards", "value", 3))
    assert now.WhichOneof("consistency_selector") is None


def test_a_count_asks_for_the_documents_of_a_collection_root_ones_too():
    request = pb(wire.count_of(DATABASE, "", "posts", 3))
    assert request.parent == ROOT
    assert request.structured_aggregation_query.aggregations[0].WhichOneof("operator") == "count"


@pytest.mark.parametrize(
    ("value", "total"),
    [
        ({"integer_value": -5}, -5),
        ({"integer_value": 0}, 0),
        ({"null_value": 0}, 0),
        ({"double_value": 0.0}, None),
        ({"double_value": 1.5}, None),
        ({"double_value": 9.3e18}, None),
    ],
)
def test_a_sum_that_is_no_whole_number_is_none(value, total):
    (alias,) = pb(wire.sum_of(DATABASE, "a/b", "c", "d", 3)).structured_aggregation_query.aggregations
    result = {"aggregate_fields": {alias.alias: value}}
    assert wire.sum_in([types.RunAggregationQueryResponse(result=result)]) == total


def test_a_sum_of_nothing_is_zero():
    assert wire.sum_in([]) == 0
    assert wire.sum_in([types.RunAggregationQueryResponse()]) == 0


def test_a_page_of_a_collection_is_bounded_and_goes_on_after_the_last_one():
    first = pb(wire.list_documents(DATABASE, "a/b", "c", ("x", "y"), 3, limit=300))
    query = first.structured_query
    assert (first.parent, query.limit.value) == (f"{ROOT}/a/b", 300)
    assert [each.field_path for each in query.select.fields] == ["x", "y"]
    assert [each.field.field_path for each in query.order_by] == ["__name__"]
    assert not query.HasField("start_at")

    options = {"limit": 3, "after": "a/b/c/9", "read_time": 5_000_001}
    later = pb(wire.list_documents(DATABASE, "a/b", "c", (), 3, **options))
    (cursor,) = later.structured_query.start_at.values
    assert cursor.reference_value == f"{ROOT}/a/b/c/9"
    assert not later.structured_query.start_at.before, "after it, not at it"
    assert wire.micros(later.read_time) == 5_000_001


def test_a_collection_at_the_root_has_the_databases_parent():
    assert pb(wire.list_documents(DATABASE, "", "c", (), 3, limit=3)).parent == ROOT


def changed_since(**options):
    return pb(
        wire.changed_since(
            DATABASE,
            "shards",
            ("updated_at",),
            3,
            bucket=("bucket", range(30)),
            changed=("updated_at", 5_000_000),
            limit=1000,
            read_time=9_000_000,
            **options,
        )
    )


def test_a_scan_asks_for_all_buckets_of_all_counters_oldest_first_at_one_moment():
    request = changed_since()
    query = request.structured_query
    (source,) = query.from_
    assert (request.parent, source.collection_id, source.all_descendants) == (ROOT, "shards", True)
    within, since = (each.field_filter for each in query.where.composite_filter.filters)
    operators = types.StructuredQuery.FieldFilter.Operator
    assert (within.field.field_path, within.op) == ("bucket", operators.IN)
    assert wire.decode(within.value) == list(range(30))
    assert (since.field.field_path, since.op) == ("updated_at", operators.GREATER_THAN)
    assert wire.micros(wire.decode(since.value)) == 5_000_000
    assert query.where.composite_filter.op == types.StructuredQuery.CompositeFilter.Operator.AND
    assert [each.field.field_path for each in query.order_by] == ["updated_at", "__name__"]
    assert {each.direction for each in query.order_by} == {types.StructuredQuery.Direction.ASCENDING}
    assert query.limit.value == 1000
    assert wire.micros(request.read_time) == 9_000_000


def test_a_scan_goes_on_after_the_last_page_by_time_and_name():
    cursor = changed_since(after=wire.Position(6_000_000, "a/b/shards/3")).structured_query.start_at
    changed, name = cursor.values
    assert wire.micros(changed.timestamp_value) == 6_000_000
    assert name.reference_value == f"{ROOT}/a/b/shards/3"
    assert not cursor.before


def test_a_page_tells_its_documents_and_its_moment_even_when_it_is_empty():
    stamp = wire.to_datetime(3)
    document = types.Document(name=NAME, create_time=stamp, update_time=stamp)
    page = wire.page_of([types.RunQueryResponse(document=document, read_time=stamp)])
    assert [found.path for found in page.documents] == ["posts/a91f"]
    assert page.read_time == 3
    empty = wire.page_of([types.RunQueryResponse(read_time=stamp)])
    assert (empty.documents, empty.read_time) == ([], 3)
