"""``remove_all``: killed in the middle, with unlikes racing, and right at every moment."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from gateway_probes import Timed
from liking import Process
from mortal import deaths
from reference_twins import children

from counters import Counters, audit, layout, shards, wire
from counters import children as steps_of
from counters.context import Call
from counters.steps import run

POST = "posts/a91f"
LIKES = "posts/a91f/likes"
COUNTER = "posts/a91f/counters/likes"


@pytest.fixture
def others_likes(db):
    """The count as another process has it."""
    return Counters(db).children(POST, "likes")


@pytest.fixture
def commits(counters_gateway):
    """What is committed through the gateway, and when."""
    timed = Timed("Commit")
    counters_gateway.script(timed)
    return timed


def write_likes(db, likes, number):
    for first in range(0, number, 500):
        batch = db.batch()
        for user in range(first, min(number, first + 500)):
            batch.set(db.document(f"{LIKES}/u{user:05}"), {})
        batch.commit()
    assert likes.backfill() == number


@contextmanager
def unlikes(likes, number, threads=2):
    """Random users unlike while the block runs. Yields a list of whom it was granted."""
    granted, over = [], threading.Event()

    def unlike(thread):
        chance = random.Random(thread)
        users = [f"u{user:05}" for user in range(number)]
        chance.shuffle(users)
        while users and not over.is_set():
            user = users.pop()
            if likes.remove(user):
                granted.append(user)

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(unlike, thread) for thread in range(threads)]
        try:
            yield granted
        finally:
            over.set()
        for future in futures:
            future.result()


def look_at_every_moment(db, commits, number):
    """After each commit there was: value and children are equal, and fewer each time."""
    app = Counters(db)
    call = Call(app.context, wire.database_of(db))
    transport = wire.SyncTransport(db)
    seen = [number]
    for moment in sorted({moment for moment, _ in commits.applied}):
        value = run(shards.value(call.renewed(), COUNTER, read_time=moment), transport)
        assert value == run(audit.count(call.renewed(), LIKES, moment), transport)
        seen.append(value)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0, "so it was never below"
    return seen


def deleted(commits):
    names = [name for _, written in commits.applied for name in written if LIKES in name]
    return sorted(name.rpartition("/")[2] for name in names)


def test_removing_all_that_dies_after_every_request_and_unlikes_that_race_leave_nothing(
    counters_gateway_client, others_likes, commits, db
):
    number = 300
    write_likes(db, others_likes, number)
    app = Counters(counters_gateway_client)

    def removing():
        call = Call(app.context, wire.database_of(counters_gateway_client))
        return steps_of.remove_all(call, COUNTER, LIKES, None)

    with unlikes(app.children(POST, "likes"), number) as granted:
        died = len(list(deaths(counters_gateway_client, removing)))
    assert died > 2
    assert granted, "the unlikes raced"
    assert list(db.collection(LIKES).stream()) == []
    assert others_likes.value() == 0
    # Each like was taken back once, by whoever it was.
    assert deleted(commits) == [f"u{user:05}" for user in range(number)]
    assert len(look_at_every_moment(db, commits, number)) > 3


@pytest.mark.proof
def test_removing_5000_killed_twice_with_unlikes_racing_leaves_nothing(
    counters_gateway, counters_gateway_client, counters_project, others_likes, commits, db
):
    """Real processes, ended by SIGKILL."""
    number = 5000
    write_likes(db, others_likes, number)
    job = counters_gateway.host, counters_project, "remove_all", POST, "likes"
    with unlikes(Counters(counters_gateway_client).children(POST, "likes"), number) as granted:
        for pages in (3, 7):
            process = Process(*job)
            for _ in range(pages):
                assert process.hear() < number
            process.kill()
            assert others_likes.value() > 0, "killed in the middle"
        process = Process(*job)
        assert process.wait() < number
    assert len(granted) > 10, "the unlikes raced"
    assert list(db.collection(LIKES).stream()) == []
    assert others_likes.value() == 0
    assert deleted(commits) == [f"u{user:05}" for user in range(number)]
    assert len(look_at_every_moment(db, commits, number)) > 50


async def test_removing_all_says_how_many_and_tells_progress(twin, others_likes, db):
    likes = children(twin.app(), POST, "likes")
    write_likes(db, others_likes, 250)
    told = []
    assert await likes.remove_all(told.append) == 250
    assert told == [100, 200, 250]
    assert await likes.remove_all(told.append) == 0
    assert told == [100, 200, 250]
    assert (await likes.audit()).actual == 0


async def test_likes_that_come_while_all_are_removed_are_counted(metered, others_likes, db, meanwhile):
    likes = children(metered.app(), POST, "likes")
    write_likes(db, others_likes, 3)
    meanwhile(lambda: (others_likes.remove("u00001"), others_likes.add("late")), before="Commit")
    assert await likes.remove_all() == 2
    found = others_likes.audit()
    assert (found.stored, found.actual) == (1, 1)
    assert await likes.remove_all() == 1


async def test_children_without_our_mark_and_with_odd_ids_are_removed_too(twin, db):
    likes = children(twin.app(), POST, "likes")
    for odd in ("ü", "😀", "a b", "`", "a.b"):
        db.collection(LIKES).document(odd).set({"n": 1})
    await likes.backfill()
    assert await likes.remove_all() == 5
    found = await likes.audit()
    assert (found.stored, found.actual) == (0, 0)
    assert db.document(COUNTER).get().get(layout.CHILDREN) == LIKES
