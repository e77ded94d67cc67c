"""Uses that an adversarial tester thought of: each is refused in words, or does what it says."""

import asyncio

import pytest
from google.cloud.firestore import AsyncClient

from counters import (
    AsyncCounters,
    CorruptShard,
    Counter,
    Counters,
    InvalidType,
    InvalidValue,
    Mirror,
    UnsupportedLayout,
)

EDGE = 2**63 - 1


@pytest.fixture
def app(counters_client):
    return Counters(counters_client, timeout=10)


@pytest.mark.parametrize(("first", "then"), [(EDGE, 1000), (-EDGE - 1, -1000)])
def test_a_shard_that_counts_no_further_is_not_passed_over(app, first, then):
    counter = app.on("a/b", "edge")
    counter.create(shards=1)
    counter.increment(first)
    counter.increment(then)
    with pytest.raises(CorruptShard, match="counts no further") as caught:
        counter.value()
    assert caught.value.path == f"{counter.path}/counter_shards/0"
    assert [failure.path for failure in app.roll_up().failed] == [counter.path]


def test_damaged_settings_are_mended_as_the_error_says(app):
    counter = app.on("a/b", "damaged")
    counter.create(shards=3)
    document = app.client.document(counter.path)
    document.update({"mirrors": "x"})
    with pytest.raises(UnsupportedLayout, match="set_mirrors"):
        Counters(app.client).on("a/b", "damaged").increment()
    counter.set_mirrors([])
    document.update({"shards": "many"})
    counter.resize(4)
    counter.increment()
    assert counter.value() == 1


@pytest.mark.parametrize("field", ["__likes__", "__name__", "x" * 1501, "a.__b__"])
def test_a_field_that_firestore_refuses_is_no_mirror(app, field):
    with pytest.raises(InvalidValue, match="no field path"):
        Mirror(app.client.document("a/b"), field)


@pytest.mark.parametrize("path", ["a/..", "a/__x__", "a/\ud800", "a/" + "x" * 1501, "a", "a//b/c"])
def test_a_path_that_firestore_refuses_is_refused_before_it(app, path):
    with pytest.raises(InvalidValue):
        app.on(path, "n")


@pytest.mark.parametrize(
    "path", ["counter_rollups/cursor", "a/b/counters/c/counter_shards/7", "counter_operations/k"]
)
def test_no_counter_and_no_mirror_is_made_among_this_packages_own_documents(app, path):
    with pytest.raises(InvalidValue, match="own document"):
        Counter(app.client.document(path))
    with pytest.raises(InvalidValue, match="own document"):
        app.on("a/b", "c").set_mirrors([Mirror(app.client.document(path), "value")])


def test_the_body_of_a_transaction_is_a_function_of_the_clients_kind(app):
    async def body(transaction):
        raise AssertionError(transaction)

    with pytest.raises(InvalidType, match="plain function"):
        app.transaction(body)
    with pytest.raises(InvalidType, match="function, not NoneType"):
        app.transaction(None)


def test_progress_and_policy_are_looked_at_before_anything_is_done(app):
    likes = app.children("a/b", "likes")
    likes.add("u1")
    with pytest.raises(InvalidType, match="progress"):
        likes.remove_all(5)
    with pytest.raises(InvalidType, match="progress"):
        app.audit("a/*/likes", progress=5)
    with pytest.raises(InvalidType, match="policy"):
        Counters(app.client, policy="x")
    assert likes.value() == 1


def test_a_second_event_loop_is_told_to_make_a_client_of_its_own(counters_async_client):
    app = AsyncCounters(counters_async_client)

    async def everything():
        counter = app.on("a/b", "c")
        for call in (counter.value(), counter.increment(), counter.increment_once("k"), app.roll_up()):
            with pytest.raises(InvalidValue, match="another event loop"):
                await call

    asyncio.run(app.on("a/b", "c").increment())
    asyncio.run(everything())


async def test_watching_goes_on_after_a_callback_that_was_cancelled(counters_async_client):
    assert isinstance(counters_async_client, AsyncClient)
    app = AsyncCounters(counters_async_client, poll_seconds=0.05)
    counter = app.on("a/b", "c")
    await counter.increment()
    heard = []
    twice = asyncio.Event()

    def callback(total):
        heard.append(total.value)
        if len(heard) == 1:
            raise asyncio.CancelledError("the callback's own")
        twice.set()

    async with counter.watch(callback):
        await asyncio.sleep(0.2)
        await app.roll_up()
        await asyncio.wait_for(twice.wait(), 10)
    assert heard == [None, 1]
