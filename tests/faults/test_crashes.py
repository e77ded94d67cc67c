"""Processes that are killed, forked, or cancelled in the middle of things."""

import asyncio
import random
import time
from collections import Counter as Multiset

import pytest
from workers import Ledger, Worker

from counters import Counters, layout
from counters.testing import HeldBack, LostRequest


def deliver(host, project, path, deliveries, processes=4, seed=1):
    """Deal deliveries out to so many processes; each takes its share in random order."""
    workers = [Worker(host, project, "keys", path, seed + number) for number in range(processes)]
    for number, worker in enumerate(workers):
        worker.give(deliveries[number::processes])
    assert [worker.join(3600) for worker in workers] == [0] * processes
    return workers


def one_to_four_times(keys, seed):
    """Each key 1 to 4 times, in random order."""
    chance = random.Random(seed)
    deliveries = [(key, 1) for key in keys for _ in range(chance.randint(1, 4))]
    chance.shuffle(deliveries)
    return deliveries


@pytest.mark.parametrize("number", [5_000, pytest.param(100_000, marks=pytest.mark.proof)])
def test_each_key_counts_once_however_often_and_wherever_it_is_delivered(
    db, host, project, post, number, record_property
):
    likes = Counters(db).on(post, "likes")
    likes.create(shards=10)
    keys = [f"event {key}" for key in range(number)]
    deliveries = one_to_four_times(keys, seed=number)
    began = time.monotonic()
    workers = deliver(host, project, likes.path, deliveries)
    seconds = time.monotonic() - began
    trues = Multiset(key for worker in workers for _, sign, key in worker.lines if sign == "=")
    assert trues == Multiset(keys), "one True a key"
    assert likes.value() == number
    record_property(
        "keys", f"{number:,} keys, {len(deliveries):,} deliveries, 4 processes, {seconds:.0f} s: exact"
    )


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.proof)])
def test_writers_that_are_killed_leave_what_they_said_and_at_most_what_they_were_at(
    db, host, project, post, seed, record_property
):
    likes = Counters(db).on(post, "likes")
    likes.create(shards=4)
    chance = random.Random(seed)
    workers = []
    for number in range(6):
        fork = ["fork"] * (number % 3 == 0)
        workers.append(Worker(host, project, "increments", likes.path, number, *fork))
    for worker in workers:
        assert worker.begun.wait(30)
    for worker in workers:
        time.sleep(chance.random() / 2)
        worker.kill()
    assert all(worker.join() < 0 for worker in workers)
    ledger = Ledger(workers)
    value = likes.value()
    assert ledger.least <= value <= ledger.most
    assert ledger.counts["="] > 50
    assert 1 <= len(ledger.open) <= 8, "each process was at one increment at most"
    record_property("faults", f"6 writers killed: {ledger.least} <= {value} <= {ledger.most}")


def test_keys_whose_processes_are_killed_are_exact_once_all_are_delivered_again(
    db, host, project, post, record_property
):
    likes = Counters(db).on(post, "likes")
    likes.create(shards=4)
    keys = [f"event {key}" for key in range(400)]
    deliveries = one_to_four_times(keys, seed=3)
    workers = [Worker(host, project, "keys", likes.path, number) for number in range(3)]
    for worker in workers:
        assert worker.begun.wait(30)
    for worker in workers:
        worker.give(deliveries)
    while sum(len(worker.lines) for worker in workers) < 200:
        time.sleep(0.005)
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join()
    before = likes.value()
    assert before < 400, "they were killed before they were done"
    deliver(host, project, likes.path, [(key, 1) for key in keys], processes=2)
    assert likes.value() == 400
    record_property("faults", f"3 keyed writers killed at {before} of 400, then all again: 400")


def test_rollups_that_are_killed_leave_a_total_that_the_next_run_makes_right(db, host, project, post):
    app = Counters(db)
    likes = app.on(post, "likes")
    likes.create(shards=4)
    for _ in range(3):
        rollup = Worker(host, project, "rollups")
        assert rollup.begun.wait(30)
        for _ in range(20):
            likes.increment()
        rollup.kill()
        rollup.join()
        total = likes.total()
        assert total.value is None or total.value <= likes.value()
    assert app.roll_up().failed == ()
    assert likes.total().value == likes.value() == 60


async def held_back(gateway):
    while not gateway.held:  # noqa: ASYNC110 - it is a thread of the gateway that holds it
        await asyncio.sleep(0.005)


def test_a_cancelled_task_counts_once_or_not_at_all_and_never_later(callers, gateway, post):
    """Cancelled with its commit stuck on the way: the last rollback closes the transaction."""
    caller = callers["async"]
    likes = caller.app().on(post, "likes")

    async def cancelled():
        await likes.create(shards=1)
        gateway.script(HeldBack("Commit", code=None))
        task = asyncio.ensure_future(likes.increment())
        await held_back(gateway)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gateway.release()
        return await likes.value()

    assert caller.wait(cancelled()) == 0


def test_the_lane_of_a_cancelled_task_is_not_used_again(callers, gateway, db, post):
    """Its stuck commit, delivered after the next call's, would wipe out that call's receipt."""
    caller = callers["async"]
    app = caller.app()
    likes = app.on(post, "likes")

    async def cancelled_then_another():
        await likes.create(shards=1)
        gateway.script(HeldBack("Commit", code=None), LostRequest("Rollback"))
        task = asyncio.ensure_future(likes.increment())
        await held_back(gateway)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await likes.increment()
        gateway.release()

    caller.wait(cancelled_then_another())
    shard = db.document(layout.shard_path(likes.path, 0)).get()
    receipts = shard.get(layout.RECEIPTS)
    assert shard.get(layout.VALUE) == len(receipts) == 2, "two lanes, each with its own receipt"
