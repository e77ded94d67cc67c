"""Counters that are made, resized, reset and deleted while others are at work on them."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.cloud.firestore import SERVER_TIMESTAMP
from mortal import deaths

from counters import Counters, Mirror, OutcomeUnknown, Total, layout, lifecycle
from counters.shards import PAGE

POST = "posts/a91f"
LIKES = "posts/a91f/counters/likes"


@pytest.fixture
def likes(db):
    return Counters(db, shards=1).on(POST, "likes")


@pytest.fixture
def others_likes(db):
    """The same counter as another process has it, with a cache of its own."""
    return Counters(db, shards=1).on(POST, "likes")


@pytest.fixture
def gateway_likes(counters_gateway_client):
    """The same counter as a third process has it, whose calls a test can interrupt."""
    return Counters(counters_gateway_client, shards=1).on(POST, "likes")


def exists(db, path=LIKES):
    return db.document(path).get().exists


def shards(db):
    return [shard.id for shard in db.document(LIKES).collection(layout.SHARDS).stream()]


def write_shards(db, count):
    for first in range(0, count, 500):
        batch = db.batch()
        for shard in range(first, min(count, first + 500)):
            batch.set(
                db.document(layout.shard_path(LIKES, shard)),
                {
                    layout.VALUE: 1,
                    layout.WRITES: 1,
                    layout.BUCKET: layout.bucket(LIKES, shard),
                    layout.UPDATED_AT: SERVER_TIMESTAMP,
                },
            )
        batch.commit()


# Deleting and making anew.


async def test_increments_that_raced_a_delete_are_reported_and_not_in_the_counter_made_anew(twin, db):
    db.document(POST).set({"title": "Counting sheep"})
    here, there = twin.app(), twin.app()
    likes, others_likes = here.on(POST, "likes"), there.on(POST, "likes")
    await likes.create(mirrors=[Mirror(twin.client.document(POST), "likeCount")])
    await others_likes.increment(3)
    await here.roll_up()
    await likes.delete()
    db.document(POST).delete()

    await others_likes.increment(7)  # of what its cache still knows
    assert (await here.roll_up()).orphans == (LIKES,)
    assert not exists(db)
    assert not exists(db, POST)

    assert await likes.create(initial=0) is True
    assert await likes.value() == 0
    assert await likes.total() == Total(None, None)
    assert (await here.roll_up()).orphans == ()
    assert not exists(db, POST)

    await others_likes.increment(2)
    await here.roll_up()
    assert await likes.value() == 2
    assert (await likes.total()).value == 2
    assert not exists(db, POST)


@pytest.mark.parametrize("initial", [0, 5, -5])
@pytest.mark.parametrize("orphans", [1, 3, PAGE, 2 * PAGE + 1])
def test_a_counter_made_over_orphans_starts_at_its_initial_value(likes, db, initial, orphans):
    write_shards(db, orphans)
    assert likes.create(initial=initial) is True
    assert likes.value() == initial
    assert shards(db) == (["0"] if initial else [])
    Counters(db).roll_up()
    assert likes.total().value == (initial or None)


def test_an_orphan_written_just_before_the_counter_is_made_is_cleared_too(
    likes, others_likes, gateway_likes, db, meanwhile
):
    others_likes.increment(3)
    likes.delete()
    others_likes.increment(7)
    meanwhile(lambda: others_likes.increment(7), before="Commit")
    assert gateway_likes.create() is True
    assert gateway_likes.value() == 0
    assert shards(db) == []


def test_delete_leaves_nothing_of_a_thousand_shards(likes, db):
    likes.create()
    write_shards(db, 1000)
    assert likes.value() == 1000
    likes.delete()
    assert shards(db) == []
    assert not exists(db)


def test_a_delete_copes_with_a_rollup_between(likes, gateway_likes, db, meanwhile):
    likes.increment(5)
    meanwhile(Counters(db).roll_up, before="Commit")
    gateway_likes.delete()
    assert not exists(db)
    assert shards(db) == []


def test_a_delete_killed_after_any_of_its_requests_is_finished_by_the_next(likes, db, monkeypatch):
    monkeypatch.setattr("counters.shards.PAGE", 2)
    died_after = []

    def make():
        likes.create()
        write_shards(db, 5)
        return lifecycle.delete(likes._call(), LIKES)

    for requests in deaths(db, make):
        died_after.append(requests)
        likes.delete()
        assert shards(db) == []
        assert not exists(db)
    assert len(died_after) > 10
    assert shards(db) == []


def test_a_counter_made_anew_over_a_killed_delete_starts_at_its_initial_value(likes, db, monkeypatch):
    monkeypatch.setattr("counters.shards.PAGE", 2)
    made = 0

    def make():
        likes.delete()
        likes.create()
        write_shards(db, 5)
        return lifecycle.delete(likes._call(), LIKES)

    for _ in deaths(db, make):
        if not exists(db):
            assert likes.create(initial=3)
            assert likes.value() == 3
            made += 1
    assert made > 5


def test_increments_racing_a_delete_leave_orphans_at_most(db, likes):
    likes.create()
    deleting = threading.Event()
    writers = [Counters(db).on(POST, "likes") for _ in range(4)]

    def increment(writer):
        writer.increment()
        deleting.wait()
        for _ in range(25):
            try:
                writer.increment()
            except OutcomeUnknown as error:  # noqa: PERF203 - each increment by itself may
                assert "deleted meanwhile" in str(error)  # noqa: PT017 - and need not raise

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(increment, writer) for writer in writers]
        deleting.set()
        for _ in range(3):
            likes.delete()
        for writer in running:
            writer.result()
    report = Counters(db).roll_up()
    assert not exists(db)
    assert report.orphans == ((LIKES,) if shards(db) else ())
    assert likes.create() is True
    assert likes.value() == 0
    writers[0].increment(2)
    assert likes.value() == 2


def test_a_delete_loses_nothing_of_a_counter_that_is_made_anew_meanwhile(
    likes, others_likes, db, counters_gateway, gateway_likes, meanwhile, monkeypatch
):
    monkeypatch.setattr("counters.shards.PAGE", 2)

    def make_anew():
        others_likes.delete()
        assert others_likes.create(initial=3)
        others_likes.increment(4)

    def old_counter():
        likes.delete()
        likes.create()
        write_shards(db, 3)

    old_counter()
    with counters_gateway.measure() as bill:
        gateway_likes.delete()
    survived = 0
    for request in range(1, bill.round_trips + 1):
        old_counter()
        meanwhile(make_anew, before=None, nth=request)
        gateway_likes.delete()
        if exists(db):
            assert likes.value() == 7
            survived += 1
        else:
            assert shards(db) == [], "it was deleted as a whole, after it was made"
    assert survived > 3


# Creating at once.


async def test_of_many_that_create_a_counter_at_once_exactly_one_made_it(twin):
    for number in range(5):
        counters = [twin.app(shards=3).on(f"posts/{number}", "likes") for _ in range(6)]
        made = await asyncio.gather(*(counter.create(initial=7) for counter in counters))
        assert sorted(made) == [False] * 5 + [True]
        assert await counters[0].value() == 7


async def test_first_increments_at_once_make_one_counter_and_all_count(twin):
    for number in range(3):
        counters = [twin.app().on(f"posts/{number}", "likes") for _ in range(6)]
        await asyncio.gather(*(counter.increment() for counter in counters))
        assert await counters[0].value() == 6


# Resetting.


def test_a_reset_that_another_overtakes_takes_only_what_is_left(likes, gateway_likes, meanwhile):
    likes.increment(5)

    def overtake():
        assert likes.reset() == 5
        likes.increment(2)

    meanwhile(overtake, before="Commit")
    assert gateway_likes.reset() == 2
    assert likes.value() == 0


def test_increments_between_a_resets_sum_and_its_commit_stay(likes, gateway_likes, meanwhile):
    likes.increment(5)
    meanwhile(lambda: likes.increment(3), before="Commit")
    assert gateway_likes.reset() == 5
    assert likes.value() == 3


@pytest.mark.parametrize("between", ["resize", "roll_up"])
def test_a_reset_copes_with_a_change_of_the_counters_document(likes, gateway_likes, db, meanwhile, between):
    likes.increment(5)
    change = {"resize": lambda: likes.resize(4), "roll_up": lambda: Counters(db).roll_up()}[between]
    meanwhile(change, before="Commit")
    assert gateway_likes.reset() == 5
    assert likes.value() == 0


def test_a_reset_of_a_counter_that_is_deleted_meanwhile_cannot_know_and_brings_nothing_back(
    likes, gateway_likes, db, meanwhile
):
    likes.increment(5)
    meanwhile(likes.delete, before="Commit")
    with pytest.raises(OutcomeUnknown, match="deleted meanwhile"):
        gateway_likes.reset()
    assert not exists(db)
    assert shards(db) == []


async def test_resets_at_once_never_take_the_same_value_twice(twin):
    counters = [twin.app(shards=3).on(POST, "likes") for _ in range(4)]
    await counters[0].increment(0)
    for _ in range(3):
        await counters[0].increment(10)
        taken = await asyncio.gather(*(counter.reset() for counter in counters))
        assert sorted(taken) == [0, 0, 0, 10]
    assert await counters[0].value() == 0


async def test_resets_and_resizes_under_load_lose_nothing(twin):
    likes = twin.app(shards=5).on(POST, "likes")
    others_likes = twin.app().on(POST, "likes")
    await likes.create()
    taken = []

    async def increment():
        for _ in range(30):
            await likes.increment()

    async def change():
        for shards_wanted in (20, 2, 7):
            await others_likes.resize(shards_wanted)
            taken.append(await others_likes.reset())

    await asyncio.gather(*(increment() for _ in range(6)), change(), change())
    assert sum(taken) + await likes.value() == 180
    assert max(taken) > 0


def test_a_resize_of_a_counter_that_is_deleted_meanwhile_finds_none(likes, gateway_likes, db, meanwhile):
    likes.increment()
    meanwhile(likes.delete, before="Commit")
    with pytest.raises(LookupError):
        gateway_likes.resize(5)
    assert not exists(db)
