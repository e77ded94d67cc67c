"""What the gateway counts, with real clients and a real server behind it."""

import asyncio
import contextlib
import queue

import pytest
from google.api_core.exceptions import AlreadyExists
from google.cloud import firestore
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.bulk_batch import BulkWriteBatch

from counters.testing import Bill, Gateway, open_client


@pytest.fixture
def db(counters_gateway_client):
    return counters_gateway_client


@pytest.fixture
def fill(counters_client):
    """Write so many documents past the gateway."""

    def fill(collection, documents):
        for start in range(0, documents, 500):
            batch = counters_client.batch()
            for n in range(start, min(start + 500, documents)):
                batch.set(counters_client.document(f"{collection}/{n}"), {"n": n})
            batch.commit()

    return fill


def test_reads_of_documents_missing_ones_too(counters_gateway, db, fill):
    fill("a", 2)
    with counters_gateway.measure() as bill:
        assert db.document("a/0").get().exists
        assert not db.document("a/none").get().exists
        assert len(list(db.get_all([db.document("a/0"), db.document("a/none")]))) == 2
    assert bill.rpcs == {"BatchGetDocuments": 3}
    assert (bill.reads, bill.writes, bill.deletes) == (4, 0, 0)


def test_writes_and_deletes(counters_gateway, db):
    with counters_gateway.measure() as bill:
        db.document("a/b").set({"n": 1})
        batch = db.batch()
        batch.update(db.document("a/b"), {"n": firestore.Increment(1), "at": firestore.SERVER_TIMESTAMP})
        batch.create(db.document("a/c"), {})
        batch.delete(db.document("a/b"))
        batch.commit()
    assert bill.rpcs == {"Commit": 2}
    assert (bill.reads, bill.writes, bill.deletes) == (0, 3, 1)


def test_a_transaction_is_three_round_trips_and_a_refused_commit_bills_nothing(counters_gateway, db):
    @firestore.transactional
    def create(transaction):
        reference = db.document("a/b")
        reference.get(transaction=transaction)
        transaction.create(reference, {})

    with counters_gateway.measure() as first:
        create(db.transaction())
    with counters_gateway.measure() as second, pytest.raises(AlreadyExists):
        create(db.transaction())

    assert first.rpcs == {"BeginTransaction": 1, "BatchGetDocuments": 1, "Commit": 1}
    assert (first.reads, first.writes, first.deletes) == (1, 1, 0)
    assert second.rpcs == {**first.rpcs, "Rollback": 1}
    assert (second.reads, second.writes, second.deletes) == (1, 0, 0)


def test_queries_and_their_minimum_of_one_read(counters_gateway, db, fill):
    fill("a", 3)
    with counters_gateway.measure() as bill:
        assert len(db.collection("a").get()) == 3
    assert (bill.rpcs, bill.reads) == ({"RunQuery": 1}, 3)
    with counters_gateway.measure() as bill:
        assert db.collection("none").get() == []
    assert (bill.rpcs, bill.reads) == ({"RunQuery": 1}, 1)


def test_an_aggregation_is_one_read_for_each_1000_entries(counters_gateway, db, fill):
    fill("many", 1_001)
    with counters_gateway.measure() as bill:
        assert db.collection("many").sum("n").get()[0][0].value == 500_500
    assert (bill.rpcs, bill.reads) == ({"RunAggregationQuery": 1}, 2)
    with counters_gateway.measure() as bill:
        small = db.collection("many").where(filter=FieldFilter("n", "<", 1_000))
        assert small.avg("n").get()[0][0].value == 499.5
    assert bill.reads == 1
    with counters_gateway.measure() as bill:
        both = db.collection("many").sum("n", alias="s").count(alias="c")
        assert {result.alias: result.value for result in both.get()[0]} == {"s": 500_500, "c": 1_001}
    assert (bill.rpcs, bill.reads) == ({"RunAggregationQuery": 1}, 2)
    with counters_gateway.measure() as bill:
        assert db.collection("none").sum("n").get()[0][0].value == 0
    assert bill.reads == 1


def test_an_aggregation_in_a_transaction_does_not_stay_locked_by_the_count(counters_gateway, db):
    db.document("a/b").set({"n": 1})
    with counters_gateway.measure() as bill:
        transaction = db.transaction(read_only=True)
        transaction._begin()
        assert db.collection("a").sum("n").get(transaction=transaction)[0][0].value == 1
        transaction._rollback()
        db.document("a/b").set({"n": 2})
    assert bill.rpcs == {"BeginTransaction": 1, "RunAggregationQuery": 1, "Rollback": 1, "Commit": 1}
    assert (bill.reads, bill.writes) == (1, 1)


def test_lists_of_collections_and_of_documents(counters_gateway, db, fill):
    fill("a", 2)
    with counters_gateway.measure() as bill:
        assert [collection.id for collection in db.collections()] == ["a"]
    assert (bill.rpcs, bill.reads) == ({"ListCollectionIds": 1}, 1)
    with counters_gateway.measure() as bill:
        assert len(list(db.collection("a").list_documents())) == 2
    assert (bill.rpcs, bill.reads) == ({"ListDocuments": 1}, 2)


def test_a_listener_is_billed_for_what_it_is_shown(counters_gateway, db, fill):
    fill("a", 2)
    shown = queue.SimpleQueue()
    with counters_gateway.measure() as bill:
        watch = db.collection("a").on_snapshot(lambda rows, *_: shown.put(len(rows)))
        with contextlib.closing(watch):
            assert shown.get(timeout=30) == 2
            assert (bill.rpcs, bill.reads) == ({"Listen": 1}, 2)
            db.document("a/2").set({"n": 2})
            assert shown.get(timeout=30) == 3
    assert bill.rpcs == {"Listen": 1, "Commit": 1}
    assert (bill.reads, bill.writes) == (3, 1)


def test_a_batch_write_is_billed_for_what_succeeded(counters_gateway, db, fill):
    fill("a", 1)
    with counters_gateway.measure() as bill:
        batch = BulkWriteBatch(db)
        batch.create(db.document("a/0"), {})
        batch.create(db.document("a/1"), {})
        batch.delete(db.document("a/2"))
        batch.commit()
    assert bill.rpcs == {"BatchWrite": 1}
    assert (bill.reads, bill.writes, bill.deletes) == (0, 1, 1)


async def test_the_asynchronous_client_pays_the_same(counters_gateway, counters_gateway_async_client, fill):
    db = counters_gateway_async_client
    fill("a", 3)
    with counters_gateway.measure() as bill:
        await asyncio.gather(*(db.document(f"b/{n}").set({"n": n}) for n in range(20)))
        assert not (await db.document("a/none").get()).exists
        assert len(await db.collection("a").get()) == 3
        assert (await db.collection("a").sum("n").get())[0][0].value == 3
    assert bill.rpcs == {
        "Commit": 20,
        "BatchGetDocuments": 1,
        "RunQuery": 1,
        "RunAggregationQuery": 1,
    }
    assert (bill.reads, bill.writes, bill.deletes) == (5, 20, 0)


def test_named_databases_are_billed_like_any_other(counters_gateway, counters_project):
    with (
        counters_gateway.measure() as bill,
        open_client(counters_gateway.host, counters_project, "orders") as db,
    ):
        db.document("a/b").set({"n": 1})
        assert db.collection("a").sum("n").get()[0][0].value == 1
    assert (bill.reads, bill.writes, bill.deletes) == (1, 1, 0)


def test_gateways_may_stand_in_a_row(counters_gateway, counters_project):
    with (
        Gateway(counters_gateway.host) as outer,
        open_client(outer.host, counters_project) as db,
        counters_gateway.measure() as bill,
        outer.measure() as same,
    ):
        db.document("a/b").set({"n": 1})
        assert same == bill != Bill()
