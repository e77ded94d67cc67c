"""A thousand increments from many at once, exact, whatever happens to the counter meanwhile."""

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import until

from counters import Counters, layout

POST = "posts/a91f"
LIKES = "posts/a91f/counters/likes"
FORKED_WRITERS = Path(__file__).with_name("forked_writers.py")


def increments_stored(db):
    """How many increments the shards took, and how many shards there are."""
    shards = list(db.document(LIKES).collection(layout.SHARDS).stream())
    return sum(shard.get(layout.WRITES) for shard in shards), len(shards)


async def test_a_thousand_increments_are_exact_while_shards_change_and_rollups_overlap(twin, db):
    app = twin.app()
    others = twin.app(cache_seconds=0.1)  # another process, which follows a resize soon
    likes, others_likes = app.on(POST, "likes"), others.on(POST, "likes")
    await likes.create(shards=10)
    begun = done = 0

    async def increment(counter):
        nonlocal begun, done
        for _ in range(125):
            begun += 1
            await counter.increment()
            done += 1

    async def read():
        while done < 1000:
            assert await others_likes.value() <= begun

    async def resize():
        for enough, shards in ((300, 40), (600, 3)):
            await until(lambda enough=enough: done >= enough)
            await likes.resize(shards)

    async def roll_up():
        runs = 0
        while done < 1000:
            report = await others.roll_up()
            assert report.failed == ()
            runs += 1
        return runs

    writers = [increment(counter) for counter in (likes, others_likes) * 4]
    *_, first_runs, second_runs = await asyncio.gather(*writers, read(), resize(), roll_up(), roll_up())
    assert min(first_runs, second_runs) > 1, "rollups ran meanwhile"
    assert await likes.value() == 1000
    writes, shards = increments_stored(db)
    assert writes == 1000
    assert shards > 10, "the 40 shards were used"
    await app.roll_up()
    assert (await likes.total()).value == 1000


async def test_amounts_of_both_signs_add_up_under_contention(twin):
    likes = twin.app(shards=1).on(POST, "likes")

    async def move(number):
        for step in range(1, 21):
            await likes.increment(number * step)
            await likes.decrement(step)

    await asyncio.gather(*(move(number) for number in range(8)))
    assert await likes.value() == sum(number * step - step for number in range(8) for step in range(1, 21))


def test_a_thousand_increments_of_forked_processes_are_exact_with_a_context_from_before_the_fork(
    db, counters_emulator, counters_project
):
    app = Counters(db)
    likes = app.on(POST, "likes")
    likes.create(shards=10)
    command = [sys.executable, os.fspath(FORKED_WRITERS)]
    command += [counters_emulator.host, counters_project, LIKES, "4", "250"]
    with (
        ThreadPoolExecutor(2) as pool,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "1"},
        ) as writers,
    ):

        def roll_up():
            runs = 0
            while writers.poll() is None:
                assert app.roll_up().failed == ()
                runs += 1
            return runs

        runs = [pool.submit(roll_up) for _ in range(2)]
        output, _ = writers.communicate()
    assert writers.returncode == 0
    assert min(run.result() for run in runs) > 1
    assert likes.value() == 1 + 1000
    writes, shards = increments_stored(db)
    assert writes == 1 + 1000
    assert shards > 10, "the 40 shards were used"
    assert db.document(LIKES).get().get(layout.SHARD_COUNT) == 3
    app.roll_up()
    assert likes.total().value == 1 + 1000

    processes = json.loads(output)
    assert len(processes) == 1 + 4
    assert len({lane for lane, _ in processes}) == 5, "no child used its parent's lane, or another's"
    assert len({tuple(draws) for _, draws in processes}) == 5, "no two drew the same shards"


def test_a_counter_is_exact_for_a_reader_who_waits_for_each_writer(db):
    """What was acknowledged is in the next value, whoever wrote it and whoever asks."""
    apps = [Counters(db) for _ in range(3)]
    for number in range(1, 31):
        apps[number % 3].on(POST, "likes").increment()
        assert apps[(number + 1) % 3].on(POST, "likes").value() == number


@pytest.mark.parametrize("shards", [1, 4])
async def test_a_hundred_increments_at_once_on_few_shards_all_count(twin, shards):
    likes = twin.app(shards=shards).on(POST, "likes")
    await asyncio.gather(*(likes.increment() for _ in range(100)))
    assert await likes.value() == 100
