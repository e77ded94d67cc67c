"""What the gateway's faults do to real clients, and to what is stored."""

import asyncio
import contextlib
import itertools
import queue
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.api_core import exceptions
from google.cloud import firestore
from grpc import StatusCode

from counters.testing import (
    ConnectionCut,
    Delayed,
    DeliveredTwice,
    Gateway,
    HeldBack,
    LostAnswer,
    LostRequest,
    Refused,
    open_client,
)

INCREMENT = {"n": firestore.Increment(1)}


@pytest.fixture
def gateway(counters_gateway):
    return counters_gateway


@pytest.fixture
def document(counters_gateway_client):
    return counters_gateway_client.document("a/b")


@pytest.fixture
def stored(counters_client):
    """What is in the document, seen past the gateway."""

    def stored():
        return (counters_client.document("a/b").get().to_dict() or {}).get("n")

    return stored


def increment(document, **options):
    document.set(INCREMENT, merge=True, **options)


def test_the_sdk_s_increment_whose_answer_is_lost_counts_twice(gateway, document, stored):
    gateway.script(LostAnswer("Commit"))
    with gateway.measure() as bill:
        increment(document)
    assert stored() == 2
    assert bill.rpcs == {"Commit": 2}
    assert bill.writes == 2


def test_one_whose_request_is_lost_counts_once(gateway, document, stored):
    gateway.script(LostRequest("Commit"))
    with gateway.measure() as bill:
        increment(document)
    assert stored() == 1
    assert bill.rpcs == {"Commit": 2}
    assert bill.writes == 1


@pytest.mark.parametrize(("fault", "applied"), [(LostAnswer, 1), (LostRequest, None)])
async def test_no_answer_at_all_comes_until_the_client_gives_up(
    gateway, counters_gateway_async_client, stored, fault, applied
):
    document = counters_gateway_async_client.document("a/b")
    gateway.script(fault("Commit", code=None))
    call = asyncio.create_task(document.set(INCREMENT, merge=True, retry=None))
    while not gateway.struck or stored() != applied:  # noqa: ASYNC110 - nothing tells when
        await asyncio.sleep(0.01)
    assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert stored() == applied


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (StatusCode.ABORTED, exceptions.Aborted),
        (StatusCode.UNAVAILABLE, exceptions.ServiceUnavailable),
        (StatusCode.RESOURCE_EXHAUSTED, exceptions.ResourceExhausted),
        (StatusCode.DEADLINE_EXCEEDED, exceptions.DeadlineExceeded),
        (StatusCode.INTERNAL, exceptions.InternalServerError),
        (StatusCode.CANCELLED, exceptions.Cancelled),
    ],
)
def test_a_refusal_reaches_the_client_with_its_code_and_nothing_is_stored(
    gateway, document, stored, code, error
):
    gateway.script(Refused("Commit", code), LostAnswer("Commit", nth=2, code=code))
    with pytest.raises(error):
        increment(document, retry=None)
    assert stored() is None
    with pytest.raises(error):
        increment(document, retry=None)
    assert stored() == 1


def test_a_held_request_is_applied_when_it_is_released_however_late(gateway, document, stored):
    gateway.script(HeldBack("Commit"))
    with pytest.raises(exceptions.ServiceUnavailable):
        increment(document, retry=None)
    increment(document)
    assert stored() == 1
    assert [held.method for held in gateway.held] == ["Commit"]

    with gateway.measure() as bill:
        (answer,) = gateway.release()
    assert answer.code is StatusCode.OK
    assert (bill.round_trips, bill.writes) == (0, 1)
    assert stored() == 2
    assert gateway.release() == []


def test_held_requests_can_be_released_one_by_one_in_any_order(gateway, document, stored):
    gateway.script(HeldBack("Commit", times=2))
    for n in (1, 2):
        with pytest.raises(exceptions.ServiceUnavailable):
            document.set({"n": n}, retry=None)
    first, second = gateway.held
    second.release()
    assert stored() == 2
    first.release()
    assert stored() == 1
    with pytest.raises(RuntimeError, match="released before"):
        first.release()


def test_a_rollback_is_a_fence_before_a_held_commit(gateway, document, stored):
    gateway.script(HeldBack("Commit"))
    transaction = document._client.transaction(max_attempts=1)
    transaction._begin()
    transaction.set(document, INCREMENT, merge=True)
    with pytest.raises(exceptions.ServiceUnavailable):
        document._client._firestore_api.commit(
            request={
                "database": document._client._database_string,
                "writes": transaction._write_pbs,
                "transaction": transaction.id,
            },
            metadata=document._client._rpc_metadata,
            retry=None,
        )
    transaction._rollback()
    (answer,) = gateway.release()
    assert answer.code is not StatusCode.OK
    assert stored() is None


def test_a_request_delivered_twice_is_applied_twice_and_answered_once(gateway, document, stored):
    gateway.script(DeliveredTwice("Commit"))
    with gateway.measure() as bill:
        increment(document)
    assert stored() == 2
    assert bill.rpcs == {"Commit": 1}
    assert bill.writes == 2


def test_of_a_create_delivered_twice_the_client_gets_the_answer_that_is_asked_for(gateway, document):
    gateway.script(DeliveredTwice("Commit"), DeliveredTwice("Commit", nth=2, answer="first"))
    with pytest.raises(exceptions.AlreadyExists):
        document.create({})
    document.parent.document("c").create({})


def test_a_delayed_call_passes(gateway, document, stored):
    fault = Delayed("Commit", seconds=0.02, times=None)
    gateway.script(fault)
    increment(document)
    increment(document)
    assert stored() == 2
    assert gateway.struck == {fault: 2}


def test_a_delayed_call_whose_client_gave_up_is_not_applied(gateway, document, stored):
    gateway.script(Delayed("Commit", seconds=30))
    with pytest.raises(exceptions.DeadlineExceeded):
        increment(document, retry=None, timeout=0.1)
    assert stored() is None


@pytest.mark.parametrize("applied", [False, True])
def test_a_cut_connection_is_unavailable_and_the_next_call_connects_again(
    gateway, document, stored, applied
):
    gateway.script(ConnectionCut("Commit", applied=applied))
    with pytest.raises(exceptions.ServiceUnavailable):
        increment(document, retry=None)
    assert stored() == (1 if applied else None)
    increment(document)  # with the SDK's retry: it may find the old connection broken first
    assert stored() == (2 if applied else 1)


def test_a_listener_outlives_a_cut_and_a_refusal(gateway, document, counters_client):
    seen = queue.SimpleQueue()

    def show(documents, *_):
        seen.put([document.to_dict() for document in documents])

    with contextlib.closing(document.on_snapshot(show)) as watch:
        assert seen.get(timeout=30) == []
        assert watch.is_active
        gateway.script(Refused("Listen", StatusCode.UNAVAILABLE))
        gateway.cut()
        counters_client.document("a/b").set({"n": 1})
        assert seen.get(timeout=30) == [{"n": 1}]
    assert gateway.struck.total() == 1


@pytest.mark.parametrize("fault", [LostAnswer, LostRequest, Refused, HeldBack, ConnectionCut])
@pytest.mark.parametrize(
    ("method", "read"),
    [
        ("BatchGetDocuments", lambda d, **o: d.get(**o)),
        ("RunQuery", lambda d, **o: d.parent.get(**o)),
        ("RunAggregationQuery", lambda d, **o: d.parent.count().get(**o)),
    ],
)
def test_reads_are_hit_too(gateway, document, fault, method, read):
    gateway.script(fault(method))
    with pytest.raises(exceptions.GoogleAPICallError):
        read(document, retry=None)
    read(document)


def test_rollbacks_and_begins_are_hit_too(gateway, document):
    gateway.script(LostRequest("BeginTransaction"), Refused("Rollback", StatusCode.INVALID_ARGUMENT))
    transaction = document._client.transaction()
    with gateway.measure() as bill:
        transaction._begin()  # the SDK tries again
        with pytest.raises(exceptions.InvalidArgument):
            transaction._rollback()
    assert bill.rpcs == {"BeginTransaction": 2, "Rollback": 1}


def test_what_is_stored_is_what_is_billed_whatever_strikes_from_however_many_threads(
    gateway, document, stored
):
    rates = {
        LostAnswer("Commit"): 0.1,
        LostRequest("Commit"): 0.1,
        DeliveredTwice("Commit"): 0.1,
        ConnectionCut("Commit", applied=True): 0.02,
        Delayed("Commit", seconds=0.002): 0.1,
        Refused("Commit", StatusCode.INTERNAL): 0.1,
    }
    gateway.random(seed=3, rates=rates)

    def some(_):
        with contextlib.suppress(exceptions.GoogleAPICallError):
            increment(document, retry=None)

    with gateway.measure() as bill, ThreadPoolExecutor(8) as threads:
        list(threads.map(some, range(200)))
    assert stored() == bill.writes
    assert set(gateway.struck) == set(rates)


def test_the_same_seed_strikes_the_same_calls(counters_emulator, counters_project, stored):
    outcomes = []
    for _ in range(2):
        with (
            Gateway(counters_emulator.host) as gateway,
            open_client(gateway.host, counters_project) as db,
        ):
            gateway.random(seed=11, rates={LostAnswer("Commit"): 0.2})
            before = stored() or 0
            for _ in range(50):
                increment(db.document("a/b"))
            outcomes.append((stored() - before, gateway.struck))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == 50 + outcomes[0][1].total() > 55


async def test_the_asynchronous_client_meets_the_same(gateway, counters_gateway_async_client, stored):
    document = counters_gateway_async_client.document("a/b")
    gateway.script(LostAnswer("Commit"), HeldBack("Commit", nth=3))
    await document.set(INCREMENT, merge=True)
    assert stored() == 2
    with pytest.raises(exceptions.ServiceUnavailable):
        await document.set(INCREMENT, merge=True, retry=None)
    await asyncio.to_thread(gateway.release)
    assert stored() == 3


async def test_a_document_takes_so_many_writes_a_second_and_refuses_what_its_queue_cannot_hold(
    gateway, counters_gateway_async_client, stored
):
    # So slow that none is served while the test runs: three may wait, no more.
    gateway.limit_writes(per_second=0.001, queue=3)
    document = counters_gateway_async_client.document("a/b")
    await document.set(INCREMENT, merge=True)
    calls = [asyncio.create_task(document.set(INCREMENT, merge=True, retry=None)) for _ in range(8)]
    for refused in itertools.islice(asyncio.as_completed(calls), 5):
        with pytest.raises(exceptions.Aborted, match="contention"):
            await refused
    waiting = [call for call in calls if not call.done()]
    assert len(waiting) == 3
    await document.parent.document("c").set({})

    for call in waiting:
        call.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    gateway.calm()
    await document.set(INCREMENT, merge=True)
    assert stored() == 2


def test_writes_that_wait_their_turn_are_applied(gateway, document, stored):
    gateway.limit_writes(per_second=200, queue=100)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: increment(document, retry=None), range(40)))
    assert stored() == 40
