"""What every call costs, to the round trip and the billed operation, as its docstring says.

The counting gateway sits between client and server and writes the bill.
"""

import asyncio
from datetime import datetime, timedelta, timezone

import pytest
from gateway_probes import Price
from google.cloud.firestore import SERVER_TIMESTAMP
from waiting import Heard

from counters import AsyncCounters, Counters, Mirror, Policy, layout
from counters.receipts import PRUNE_AT
from counters.shards import PAGE
from counters.testing import Refused

POST = "posts/a91f"
LIKES = "posts/a91f/counters/likes"
NO_LOOKS = Policy(prune_chance=0, seed=1)


@pytest.fixture
def measure(counters_gateway):
    return counters_gateway.measure


@pytest.fixture
def likes(metered):
    return metered.app(shards=1, policy=NO_LOOKS).on(POST, "likes")


@pytest.fixture
def others_likes(db):
    """The same counter as another process has it, past the gateway."""
    return Counters(db, shards=1, policy=NO_LOOKS).on(POST, "likes")


def write_shards(db, count, **fields):
    for first in range(0, count, 500):
        batch = db.batch()
        for shard in range(first, min(count, first + 500)):
            data = {layout.VALUE: 1, layout.WRITES: 1, layout.BUCKET: layout.bucket(LIKES, shard)}
            batch.set(db.document(layout.shard_path(LIKES, shard)), data | fields)
        batch.commit()


# Every call on a counter that exists and has one shard. Cold is a process's first call on it; what
# has no price of its own there costs the same.

COMMIT = {"BeginTransaction": 1, "Commit": 1}
GET = {"BatchGetDocuments": 1}
SUM = {"RunAggregationQuery": 1}
WRITING = Price(2, writes=1)
CALLS = {
    "increment": (lambda likes: likes.increment(5), COMMIT, WRITING),
    "decrement": (lambda likes: likes.decrement(5), COMMIT, WRITING),
    "increment_once": (lambda likes: likes.increment_once("event"), {"Commit": 1}, Price(1, writes=2)),
    "increment by 0": (lambda likes: likes.increment(0), {}, Price()),
    "value": (lambda likes: likes.value(), SUM, Price(1, reads=1)),
    "total": (lambda likes: likes.total(), GET, Price(1, reads=1)),
    "create": (lambda likes: likes.create(), GET, Price(1, reads=1)),
    "resize": (lambda likes: likes.resize(3), COMMIT | GET, Price(3, reads=1, writes=1)),
    "set_mirrors": (lambda likes: likes.set_mirrors([]), COMMIT | GET, Price(3, reads=1, writes=1)),
    "reset": (lambda likes: likes.reset(), COMMIT | GET | SUM, Price(4, reads=2, writes=2)),
    "delete": (
        lambda likes: likes.delete(),
        {"BeginTransaction": 2, "Commit": 2, "BatchGetDocuments": 2, "RunQuery": 1},
        Price(7, reads=3, deletes=2),
    ),
}
CACHED = {"increment", "decrement", "increment_once"}


@pytest.mark.parametrize("name", CALLS)
async def test_the_price_of_a_warm_call(likes, measure, name):
    call, rpcs, price = CALLS[name]
    await likes.increment()
    with measure() as bill:
        await call(likes)
    assert bill.rpcs == rpcs
    assert Price.on(bill) == price


@pytest.mark.parametrize("name", CALLS)
async def test_the_price_of_a_cold_call(likes, others_likes, measure, name):
    call, rpcs, price = CALLS[name]
    others_likes.increment()
    with measure() as bill:
        await call(likes)
    if name in CACHED:
        rpcs, price = rpcs | GET, price._replace(round_trips=price.round_trips + 1, reads=1)
    assert bill.rpcs == rpcs
    assert Price.on(bill) == price


async def test_apps_and_handles_cost_nothing(metered, measure):
    with measure() as bill:
        app = metered.app()
        app.on(POST, "likes")
        app.at(metered.client.document(LIKES))
        metered.counter(LIKES)
    assert Price.on(bill) == Price()


async def test_a_handle_made_for_each_call_costs_nothing_more(metered, measure):
    app = metered.app(shards=1, policy=NO_LOOKS)
    await app.on(POST, "likes").increment()
    with measure() as bill:
        for _ in range(5):
            await app.on(POST, "likes").increment()
    assert Price.on(bill) == Price(10, writes=5)


async def test_the_price_of_a_key_that_was_used_before(likes, others_likes, measure):
    others_likes.increment_once("event")
    await likes.increment(1)
    with measure() as bill:
        assert await likes.increment_once("event") is False
    assert Price.on(bill) == Price(2, reads=1)


# A counter that is not there yet, or not any more.


async def test_the_first_increment_of_all_pays_four_round_trips_two_reads_and_a_write_more(likes, measure):
    with measure() as bill:
        await likes.increment()
    cold = Price(3, reads=1, writes=1)
    assert Price.on(bill) == Price(cold.round_trips + 4, cold.reads + 2, cold.writes + 1)


async def test_creating_costs_four_round_trips_two_reads_and_a_write(likes, measure):
    with measure() as bill:
        await likes.create()
    assert Price.on(bill) == Price(4, reads=2, writes=1)


async def test_an_initial_value_is_one_write_more(likes, measure):
    with measure() as bill:
        await likes.create(initial=5)
    assert Price.on(bill) == Price(4, reads=2, writes=2)


@pytest.mark.parametrize(("shards", "pages"), [(1, 0), (3, 0), (2 * PAGE + 3, 2)])
async def test_creating_over_left_over_shards_is_a_delete_and_a_read_for_each_but_the_first(
    likes, db, measure, shards, pages
):
    write_shards(db, shards)
    with measure() as bill:
        await likes.create()
    price = Price(4 + 5 * pages, reads=2 + shards - 1 + 2 * pages, writes=1, deletes=shards)
    assert Price.on(bill) == price


async def test_reading_a_counter_that_is_not_there_is_billed_like_any_read(likes, measure):
    with measure() as bill:
        await likes.value()
        await likes.total()
    assert Price.on(bill) == Price(2, reads=2)


async def test_deleting_what_is_not_there_costs_two_reads(likes, measure):
    with measure() as bill:
        await likes.delete()
    assert Price.on(bill) == Price(2, reads=2)


# What grows with a counter.


@pytest.mark.parametrize(("shards", "reads"), [(1000, 1), (1001, 2)])
async def test_a_value_is_one_read_for_each_thousand_shards(likes, db, measure, shards, reads):
    write_shards(db, shards)
    with measure() as bill:
        assert await likes.value() == shards
    assert Price.on(bill) == Price(1, reads=reads)


@pytest.mark.parametrize(
    ("shards", "pages", "empty"), [(0, 0, 1), (PAGE - 1, 1, 0), (PAGE, 1, 1), (2 * PAGE + 1, 3, 0)]
)
async def test_deleting_costs_a_read_and_a_delete_a_shard_and_a_little_a_page(
    likes, others_likes, db, measure, shards, pages, empty
):
    others_likes.create()
    write_shards(db, shards)
    with measure() as bill:
        await likes.delete()
    round_trips, reads = 3 + 4 * pages + empty, 1 + pages + shards + empty
    assert Price.on(bill) == Price(round_trips, reads=reads, deletes=1 + shards)


async def test_resetting_a_counter_at_zero_costs_two_reads(likes, others_likes, measure):
    others_likes.create()
    with measure() as bill:
        assert await likes.reset() == 0
    assert Price.on(bill) == Price(2, reads=2)


# What a process pays now and then.


async def test_settings_are_read_again_when_the_cache_is_too_old_and_by_one_call_only(metered, measure):
    seconds = 0.0
    policy = Policy(prune_chance=0, seed=1, clock=lambda: seconds)
    likes = metered.app(shards=1000, cache_seconds=60, policy=policy).on(POST, "likes")
    await likes.increment()
    seconds = 59.9
    with measure() as bill:
        await likes.increment()
    assert Price.on(bill) == WRITING
    seconds = 60.0
    with measure() as bill:
        await asyncio.gather(*(likes.increment() for _ in range(6)))
    assert Price.on(bill) == Price(1 + 12, reads=1, writes=6)


async def test_looking_after_receipts_is_a_read_at_a_lanes_first_write_to_a_shard(metered, measure):
    policy = Policy(prune_chance=1, seed=1)
    likes = metered.app(shards=1, policy=policy).on(POST, "likes")
    await likes.create()
    prices = []
    for _ in range(3):
        with measure() as bill:
            await likes.increment()
        prices.append(Price.on(bill))
    assert prices == [Price(2 + 2, reads=1 + 1, writes=1), WRITING, WRITING]


@pytest.mark.parametrize(("stale", "pruned"), [(PRUNE_AT, True), (PRUNE_AT - 1, False)])
async def test_pruning_is_a_read_and_a_write_where_it_is_worth_it(metered, db, measure, stale, pruned):
    likes = metered.app(shards=1, policy=Policy(prune_chance=1, seed=1)).on(POST, "likes")
    await likes.create(initial=5)
    shard = db.document(layout.shard_path(LIKES, 0))
    long_ago = {f"lane{number}": 1 for number in range(stale)}
    shard.update({layout.RECEIPTS: long_ago})
    with measure() as bill:
        await likes.increment()
    assert Price.on(bill) == Price(1 + 2 + 1 + pruned, reads=2, writes=1 + pruned)
    left = shard.get().to_dict()
    assert len(left[layout.RECEIPTS]) == (1 if pruned else stale + 1), "its own receipt stays"
    assert left[layout.VALUE] == 6


async def test_settling_a_refused_commit_is_a_rollback_and_a_read_more(likes, counters_gateway, measure):
    await likes.increment()
    counters_gateway.script(Refused("Commit"))
    with measure() as bill:
        await likes.increment()
    assert bill.rpcs == {"BeginTransaction": 2, "Commit": 2, "Rollback": 1, "BatchGetDocuments": 1}
    assert (bill.reads, bill.writes) == (1, 1)
    assert await likes.value() == 2


# Commits of the caller's own, and watching.


async def test_a_transaction_is_two_round_trips_and_a_write_more_than_its_body(metered, measure):
    app = metered.app(policy=NO_LOOKS)
    post = metered.client.document(POST)

    def body(transaction):
        transaction.set(post, {"liked": True})

    with measure() as cold:
        await app.transaction(body)
    with measure() as warm:
        await app.transaction(body)
    assert Price.on(cold) == Price(3, reads=1, writes=1 + 1)
    assert Price.on(warm) == Price(2, writes=1 + 1)


async def test_a_staged_increment_is_one_write_in_the_callers_commit(likes, metered, measure):
    await likes.create()
    batch = metered.client.batch()
    with measure() as cold:
        await likes.stage(batch)
    with measure() as warm:
        await likes.stage(batch)
    with measure() as committing:
        await metered.commit(batch)
    assert Price.on(cold) == Price(1, reads=1)
    assert Price.on(warm) == Price()
    assert Price.on(committing) == Price(1, writes=2)


async def test_listening_is_one_read_now_and_one_a_change(
    counters_gateway_client, db, others_likes, measure
):
    others_likes.create(initial=5)
    heard = Heard()
    with measure() as bill, Counters(counters_gateway_client).on(POST, "likes").watch(heard):
        for number in (1, 2, 3):
            await heard.come_to(number)
            assert bill.reads == number
            others_likes.increment()
            Counters(db).roll_up()
    assert bill.rpcs == {"Listen": 1}


async def test_polling_is_one_read_a_poll(counters_gateway_async_client, db, others_likes, measure):
    others_likes.create(initial=5)
    likes = AsyncCounters(counters_gateway_async_client, poll_seconds=0.02).on(POST, "likes")
    heard = Heard()
    with measure() as bill:
        async with likes.watch(heard):
            await heard.come_to(1)
            Counters(db).roll_up()
            await heard.come_to(2)
    assert set(bill.rpcs) == {"BatchGetDocuments"}
    cut_off = bill.round_trips - bill.reads  # by the end of the block
    assert cut_off in (0, 1)
    assert bill.reads >= 2


# Rolling up.


@pytest.fixture
def app(metered):
    return metered.app(policy=NO_LOOKS)


def agree(report, bill):
    return (report.reads, report.writes) == (bill.reads, bill.writes + bill.deletes)


async def test_a_run_that_finds_nothing_is_two_round_trips_and_two_reads(app, measure):
    with measure() as bill:
        report = await app.roll_up()
    assert bill.rpcs == {"RunQuery": 2}
    assert Price.on(bill) == Price(2, reads=2)
    assert agree(report, bill)


async def test_a_run_pays_for_what_changed(app, db, measure):
    for number in range(3):
        Counters(db, shards=1).on(f"posts/{number}", "likes").increment()
    db.document("posts/0/counters/likes/counter_shards/7").set(
        {layout.VALUE: 1, layout.UPDATED_AT: SERVER_TIMESTAMP, layout.BUCKET: 3}
    )
    with measure() as bill:
        report = await app.roll_up()
    cursor, shards, counters = 1, 4, 3
    assert (report.counters, report.shards) == (counters, shards)
    assert bill.rpcs == {
        "RunQuery": 2,
        "BatchGetDocuments": 1,
        "RunAggregationQuery": counters,
        "Commit": counters + 1,
    }
    assert (bill.reads, bill.writes) == (cursor + shards + 2 * counters, counters + 1)
    assert agree(report, bill)


async def test_what_an_overlap_shows_again_is_a_read_a_shard_and_a_counter_and_no_sum(app, db, measure):
    for number in range(3):
        Counters(db, shards=1).on(f"posts/{number}", "likes").increment()
    await app.roll_up()
    with measure() as bill:
        report = await app.roll_up()
    assert (report.counters, report.shards) == (0, 3)
    assert bill.rpcs == {"RunQuery": 2, "BatchGetDocuments": 1, "Commit": 1}
    assert (bill.reads, bill.writes) == (1 + 3 + 3, 1)
    assert agree(report, bill)


async def test_each_mirrored_document_is_one_write_more(app, db, measure):
    posts = [db.document(f"posts/{number}") for number in range(2)]
    for post in posts:
        post.set({})
    mirrors = [Mirror(posts[0], "likes"), Mirror(posts[0], "stats.likes"), Mirror(posts[1], "likes")]
    Counters(db).on(posts[0], "likes").create(initial=5, mirrors=mirrors)
    with measure() as bill:
        report = await app.roll_up()
    total, mirrored, cursor = 1, 2, 1
    assert bill.writes == total + mirrored + cursor
    assert agree(report, bill)


async def test_orphans_cost_a_read_a_shard_and_a_counter_and_no_sum(app, db, measure):
    write_shards(db, 2, updated_at=SERVER_TIMESTAMP)
    with measure() as bill:
        report = await app.roll_up()
    assert report.orphans == (LIKES,)
    assert (bill.reads, bill.writes) == (1 + 2 + 1, 1)
    assert "RunAggregationQuery" not in bill.rpcs
    assert agree(report, bill)


async def test_a_failure_is_a_write_to_note_and_one_to_take_the_note_back(app, db, others_likes, measure):
    others_likes.create(initial=5)
    shard = db.document(layout.shard_path(LIKES, 0))
    shard.update({layout.VALUE: "five"})
    with measure() as failing:
        report = await app.roll_up()
    assert len(report.failed) == 1
    assert (failing.reads, failing.writes) == (1 + 1 + 1, 2)
    assert agree(report, failing)
    shard.update({layout.VALUE: 5})
    with measure() as mending:
        report = await app.roll_up()
    assert (report.counters, report.failed) == (1, ())
    cursor_and_note = 2
    assert (mending.reads, mending.writes, mending.deletes) == (cursor_and_note + 1 + 1 + 1, 2, 1)
    assert agree(report, mending)


async def test_finding_the_damage_behind_a_sum_is_a_read_a_shard(app, db, others_likes, measure):
    others_likes.create(initial=5)
    quietly_damaged = db.document(layout.shard_path(LIKES, 1))
    quietly_damaged.set({layout.VALUE: 0.5})
    with measure() as bill:
        report = await app.roll_up()
    assert len(report.failed) == 1
    cursor, changed, counter, total, looking = 1, 1, 1, 1, 2
    assert (bill.reads, bill.writes) == (cursor + changed + counter + total + looking, 2)
    assert agree(report, bill)


async def test_a_total_over_more_than_a_thousand_shards_is_billed_a_read_for_each_thousand(
    app, db, others_likes, measure
):
    others_likes.create(shards=1001)
    write_shards(db, 1001)
    others_likes.increment()
    with measure() as bill:
        report = await app.roll_up()
    cursor, changed, counter, total = 1, 1, 1, 2
    assert bill.reads == cursor + changed + counter + total
    assert agree(report, bill)


# A run that finds nothing costs the same, however many counters there are.


def write_quiet_counters(db, count):
    """Counters that were rolled up long ago, and a cursor that is younger."""
    long_ago = datetime.now(timezone.utc) - timedelta(days=2)
    for first in range(0, count, 250):
        batch = db.batch()
        for number in range(first, min(count, first + 250)):
            counter = layout.counter_path(f"posts/{number}", "likes")
            batch.set(
                db.document(counter),
                {
                    layout.LAYOUT_FIELD: layout.LAYOUT,
                    layout.SHARD_COUNT: 1,
                    layout.TOTAL: 1,
                    layout.AS_OF: long_ago + timedelta(seconds=1),
                },
            )
            batch.set(
                db.document(layout.shard_path(counter, 0)),
                {
                    layout.VALUE: 1,
                    layout.WRITES: 1,
                    layout.BUCKET: layout.bucket(counter, 0),
                    layout.UPDATED_AT: long_ago,
                },
            )
        batch.commit()
    moment = long_ago + timedelta(days=1)
    db.document(layout.cursor_path()).set({layout.SCANNED_AT: moment, layout.RESCANNED_AT: moment})


def look_idle(counters, measure):
    with measure() as bill:
        report = counters.roll_up()
    assert (report.counters, report.shards) == (0, 0)
    assert agree(report, bill)
    return Price.on(bill)


@pytest.mark.parametrize("count", [10, 1_000, pytest.param(10_000, marks=pytest.mark.proof)])
def test_an_idle_run_is_two_reads_and_no_write_however_many_counters_there_are(
    counters_gateway_client, db, measure, count
):
    write_quiet_counters(db, count)
    counters = Counters(counters_gateway_client)
    assert look_idle(counters, measure) == Price(2, reads=2)
    assert look_idle(counters, measure) == Price(2, reads=2)
    # And the quiet ones were there to be seen.
    Counters(db).on(f"posts/{count - 1}", "likes").increment()
    report = counters.roll_up()
    assert (report.counters, report.shards) == (1, 1)
    assert Counters(db).on(f"posts/{count - 1}", "likes").total().value == 2
