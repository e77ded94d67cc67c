"""What a call bills, from its request and its answer alone."""

import grpc
import pytest
from google.cloud.firestore_v1 import types
from google.rpc import status_pb2

from counters.testing import Bill
from counters.testing.billing import Meter

OK = grpc.StatusCode.OK
DOCUMENT = types.Document(name="projects/p/databases/(default)/documents/a/b")
UPDATE = types.Write(update=DOCUMENT)
DELETE = types.Write(delete=DOCUMENT.name)
TRANSFORM = types.Write(transform=types.DocumentTransform(document=DOCUMENT.name))


def wire(message):
    return type(message).serialize(message)


def bill_of(method, *answers, request=None, code=OK, count=None):
    meter = Meter()
    with meter.measure() as bill:
        meter.arrived(method)
        tab = meter.delivered(method, wire(request) if request else b"", count)
        for answer in answers:
            tab.answered(wire(answer))
        tab.ended(code)
    assert bill.rpcs == {method: 1}
    return bill.reads, bill.writes, bill.deletes


def test_each_write_of_a_commit_is_a_write_or_a_delete():
    request = types.CommitRequest(writes=[UPDATE, DELETE, TRANSFORM, UPDATE])
    assert bill_of("Commit", types.CommitResponse(), request=request) == (0, 3, 1)


def test_a_commit_that_fails_bills_nothing():
    request = types.CommitRequest(writes=[UPDATE])
    assert bill_of("Commit", request=request, code=grpc.StatusCode.ABORTED) == (0, 0, 0)


def test_of_a_batch_write_only_what_succeeded_is_billed():
    request = types.BatchWriteRequest(writes=[UPDATE, UPDATE, DELETE])
    statuses = [status_pb2.Status(code=code) for code in (0, 10, 0)]
    answer = types.BatchWriteResponse(status=statuses)
    assert bill_of("BatchWrite", answer, request=request) == (0, 1, 1)


def test_the_results_of_a_write_stream_are_writes():
    answer = types.WriteResponse(write_results=[types.WriteResult(), types.WriteResult()])
    assert bill_of("Write", types.WriteResponse(), answer) == (0, 2, 0)


@pytest.mark.parametrize(
    ("method", "cost"),
    [
        ("CreateDocument", (0, 1, 0)),
        ("UpdateDocument", (0, 1, 0)),
        ("DeleteDocument", (0, 0, 1)),
        ("GetDocument", (1, 0, 0)),
        ("ListCollectionIds", (1, 0, 0)),
        ("BeginTransaction", (0, 0, 0)),
        ("Rollback", (0, 0, 0)),
    ],
)
def test_calls_for_one_document_and_calls_for_none(method, cost):
    assert bill_of(method, types.Document()) == cost


def test_a_missing_document_is_a_read_like_any_other():
    assert bill_of("GetDocument", code=grpc.StatusCode.NOT_FOUND) == (1, 0, 0)
    assert bill_of("GetDocument", code=grpc.StatusCode.UNAVAILABLE) == (0, 0, 0)
    answers = [
        types.BatchGetDocumentsResponse(transaction=b"t"),
        types.BatchGetDocumentsResponse(found=DOCUMENT),
        types.BatchGetDocumentsResponse(missing="a/c"),
    ]
    assert bill_of("BatchGetDocuments", *answers) == (2, 0, 0)


def test_a_query_bills_what_it_returns_and_what_it_skips_and_one_read_for_nothing():
    found = types.RunQueryResponse(document=DOCUMENT)
    skipped = types.RunQueryResponse(skipped_results=4)
    assert bill_of("RunQuery", found, found) == (2, 0, 0)
    assert bill_of("RunQuery", skipped, found) == (5, 0, 0)
    assert bill_of("RunQuery", types.RunQueryResponse()) == (1, 0, 0)


def test_a_query_that_breaks_off_bills_what_it_had_returned():
    found = types.RunQueryResponse(document=DOCUMENT)
    assert bill_of("RunQuery", found, code=grpc.StatusCode.UNAVAILABLE) == (1, 0, 0)
    assert bill_of("RunQuery", code=grpc.StatusCode.UNAVAILABLE) == (0, 0, 0)


def test_a_list_of_documents_bills_them_and_one_read_for_none():
    answer = types.ListDocumentsResponse(documents=[DOCUMENT, DOCUMENT])
    assert bill_of("ListDocuments", answer) == (2, 0, 0)
    assert bill_of("ListDocuments", types.ListDocumentsResponse()) == (1, 0, 0)


def aggregated(**values):
    fields = {alias: types.Value(integer_value=value) for alias, value in values.items()}
    return types.RunAggregationQueryResponse(
        result=types.AggregationResult(aggregate_fields=fields),
        read_time={"seconds": 1_800_000_000},
    )


def aggregation(*operators):
    return types.RunAggregationQueryRequest(
        parent="projects/p/databases/(default)/documents",
        transaction=b"t",
        structured_aggregation_query=types.StructuredAggregationQuery(
            structured_query=types.StructuredQuery(limit=7_000),
            aggregations=[
                types.StructuredAggregationQuery.Aggregation(alias=f"field_{n}", **operator)
                for n, operator in enumerate(operators)
            ],
        ),
    )


SUM = {"sum": {"field": {"field_path": "value"}}}


@pytest.mark.parametrize(("entries", "reads"), [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (2_500, 3)])
def test_a_sum_bills_a_read_for_each_1000_entries_of_its_query_at_least_one(entries, reads):
    asked = []

    def count(request):
        asked.append(types.RunAggregationQueryRequest.deserialize(request))
        return [wire(aggregated(n=entries))]

    bill = bill_of("RunAggregationQuery", aggregated(field_0=3), request=aggregation(SUM), count=count)

    assert bill == (reads, 0, 0)
    (request,) = asked
    query = request.structured_aggregation_query
    assert [entry.alias for entry in query.aggregations] == ["n"]
    assert "count" in query.aggregations[0]
    assert query.structured_query.limit == 7_000
    # At the moment of the answer, and not in the transaction, which would lock what is counted.
    assert request.read_time.timestamp() == 1_800_000_000
    assert not request.transaction


def test_a_count_says_itself_how_many_entries_it_went_through():
    bill = bill_of(
        "RunAggregationQuery",
        aggregated(field_0=3, field_1=1_001),
        request=aggregation(SUM, {"count": {}}),
    )
    assert bill == (2, 0, 0)


def test_an_aggregation_that_fails_bills_nothing_and_asks_nothing():
    request = aggregation(SUM)
    bill = bill_of("RunAggregationQuery", request=request, code=grpc.StatusCode.UNAVAILABLE)
    assert bill == (0, 0, 0)


def test_a_server_that_does_not_say_how_many_entries_is_an_error_not_a_guess():
    with pytest.raises(RuntimeError, match="how many entries"):
        bill_of(
            "RunAggregationQuery",
            aggregated(field_0=3),
            request=aggregation(SUM),
            count=lambda _: [],
        )


def shown(name, seconds):
    document = types.Document(name=name, update_time={"seconds": seconds})
    return types.ListenResponse(document_change=types.DocumentChange(document=document))


def test_a_listener_bills_its_first_answer_then_each_change_and_one_read_for_nothing():
    moved_out = types.ListenResponse(document_remove=types.DocumentRemove(document="a"))
    deleted = types.ListenResponse(document_delete=types.DocumentDelete(document="a"))
    current = types.ListenResponse(
        target_change=types.TargetChange(target_change_type="CURRENT", target_ids=[1])
    )
    assert bill_of("Listen", shown("a", 1), shown("b", 1), current, shown("b", 2)) == (3, 0, 0)
    assert bill_of("Listen", shown("a", 1), current, moved_out, deleted) == (2, 0, 0)
    assert bill_of("Listen", current) == (1, 0, 0)
    assert bill_of("Listen", current, shown("a", 1)) == (2, 0, 0)


def test_what_a_listener_is_shown_again_unchanged_is_not_billed_again():
    assert bill_of("Listen", shown("a", 1), shown("b", 1), shown("a", 1)) == (2, 0, 0)


def test_what_is_not_measured_is_not_read():
    meter = Meter()
    with meter.measure() as bill:
        pass
    meter.arrived("Commit")
    tab = meter.delivered("Commit", b"no message at all", None)
    tab.ended(OK)
    assert bill == Bill()


def test_bills_overlap_and_each_gets_all_of_it():
    meter = Meter()
    with meter.measure() as outer:
        meter.arrived("BeginTransaction")
        with meter.measure() as inner:
            meter.arrived("Commit")
            meter.arrived("Commit")
    assert inner.rpcs == {"Commit": 2}
    assert inner.round_trips == 2
    assert outer.rpcs == {"BeginTransaction": 1, "Commit": 2}
    assert outer.round_trips == 3
