"""What a counter promises, held against both twins by the same tests."""

import asyncio
from datetime import datetime, timezone
from decimal import Decimal

import numpy as np
import pytest
from google.api_core.exceptions import AlreadyExists
from google.auth.credentials import AnonymousCredentials
from waiting import Heard

from counters import (
    AsyncCounters,
    CorruptShard,
    CounterNotFound,
    InvalidArgument,
    InvalidType,
    InvalidValue,
    Mirror,
    Policy,
    SettingsConflict,
    Total,
    UnsupportedLayout,
    layout,
)

POST = "posts/a91f"
LIKES = "posts/a91f/counters/likes"
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@pytest.fixture
def app(twin):
    return twin.app()


@pytest.fixture
def likes(app):
    return app.on(POST, "likes")


def stored(db, path=LIKES):
    return db.document(path).get().to_dict()


def stored_shards(db, path=LIKES):
    return {shard.id: shard.to_dict() for shard in db.document(path).collection(layout.SHARDS).stream()}


# Counting.


async def test_increments_and_decrements_add_up(likes):
    await likes.increment()
    await likes.increment(5)
    await likes.decrement(2)
    await likes.decrement()
    assert await likes.value() == 3


async def test_a_counter_that_nobody_made_has_the_value_zero_and_no_total(likes, db):
    assert await likes.value() == 0
    assert await likes.total() == Total(None, None)
    assert stored(db) is None


async def test_the_first_increment_makes_the_counter_with_the_shards_of_its_app(twin, db):
    await twin.app(shards=3).on(POST, "likes").increment()
    document = stored(db)
    del document[layout.RECEIPTS]
    assert document == {layout.LAYOUT_FIELD: layout.LAYOUT, layout.SHARD_COUNT: 3}


async def test_the_users_document_is_never_written(likes, db):
    await likes.create()
    await likes.increment()
    await likes.reset()
    await likes.delete()
    assert not db.document(POST).get().exists


async def test_a_value_may_go_below_zero_and_come_back(likes):
    await likes.decrement(7)
    assert await likes.value() == -7
    await likes.increment(9)
    assert await likes.value() == 2


async def test_zero_changes_nothing_and_makes_no_counter(likes, db):
    await likes.increment(0)
    await likes.decrement(0)
    assert stored(db) is None
    assert stored_shards(db) == {}


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint16, np.uint64])
async def test_integral_types_of_numpy_count(likes, kind):
    await likes.increment(kind(100))
    await likes.decrement(kind(1))
    assert await likes.value() == 99


async def test_amounts_next_to_the_ends_of_int64_are_exact(twin):
    """At the very ends, Firestore counts no further: test_odd_uses.py."""
    likes = twin.app(shards=1).on(POST, "likes")
    await likes.increment(INT64_MAX - 1)
    assert await likes.value() == INT64_MAX - 1
    await likes.increment(INT64_MIN)
    assert await likes.value() == -2
    await likes.decrement(INT64_MAX - 2)
    assert await likes.value() == INT64_MIN + 1


NO_WHOLE_NUMBERS = [True, np.True_, 1.0, np.float64(1), float("nan"), Decimal(1), "1", b"1", None, [1]]


@pytest.mark.parametrize("amount", NO_WHOLE_NUMBERS, ids=repr)
async def test_what_is_no_whole_number_is_refused_and_nothing_is_stored(likes, db, amount):
    for refusing in (likes.increment, likes.decrement):
        with pytest.raises(InvalidType) as refusal:
            await refusing(amount)
        assert isinstance(refusal.value, TypeError)
    with pytest.raises(InvalidType):
        await likes.create(initial=amount)
    assert stored(db) is None


@pytest.mark.parametrize("amount", [2**63, -(2**63) - 1, 10**30])
async def test_what_int64_cannot_hold_is_refused_and_nothing_is_stored(likes, db, amount):
    for refusing in (likes.increment, likes.decrement):
        with pytest.raises(InvalidValue) as refusal:
            await refusing(amount)
        assert isinstance(refusal.value, ValueError)
    assert stored(db) is None


async def test_the_least_int64_cannot_be_taken_off_since_its_opposite_is_out_of_range(likes):
    with pytest.raises(InvalidValue):
        await likes.decrement(INT64_MIN)


async def test_a_shard_says_what_the_layout_says(twin, db):
    likes = twin.app(shards=1).on(POST, "likes")
    await likes.increment(4)
    await likes.decrement(1)
    (shard,) = stored_shards(db).values()
    updated_at, receipts = shard.pop(layout.UPDATED_AT), shard.pop(layout.RECEIPTS)
    assert shard == {layout.VALUE: 3, layout.WRITES: 2, layout.BUCKET: layout.bucket(LIKES, 0)}
    assert isinstance(updated_at, datetime)
    assert len(receipts) == 1, "one writer, one lane"


async def test_increments_spread_over_the_shards_and_no_further(twin, db):
    likes = twin.app(shards=4).on(POST, "likes")
    for _ in range(60):
        await likes.increment()
    shards = stored_shards(db)
    # That a shard of four is missed 60 times has the chance 4 * 0.75 ** 60 = 1e-7.
    assert set(shards) == {"0", "1", "2", "3"}
    assert sum(shard[layout.WRITES] for shard in shards.values()) == 60


async def test_handles_of_one_counter_are_one_counter(app, likes):
    await app.on(POST, "likes").increment(2)
    await app.on(POST, "likes").increment(3)
    await likes.increment(4)
    assert await app.on(POST, "likes").value() == 9


async def test_counters_do_not_mix(app):
    paths = [
        ("posts/a", "likes"),
        ("posts/a", "views"),
        ("posts/b", "likes"),
        ("posts/a/counters/likes", "x"),
    ]
    for amount, (parent, name) in enumerate(paths, start=1):
        await app.on(parent, name).increment(amount)
    assert [await app.on(*path).value() for path in paths] == [1, 2, 3, 4]


# Settings.


async def test_create_says_whether_it_made_the_counter(likes, db):
    assert await likes.create(shards=3, initial=7) is True
    assert await likes.create(shards=3, initial=7) is False
    assert await likes.value() == 7
    assert stored(db)[layout.SHARD_COUNT] == 3


async def test_an_initial_value_counts_like_an_increment(app, likes):
    await likes.create(initial=-40)
    await likes.increment(2)
    assert await likes.value() == -38
    await app.roll_up()
    assert (await likes.total()).value == -38


async def test_create_asks_no_questions_about_settings_that_it_does_not_name(twin):
    await twin.app().on(POST, "likes").create(shards=17)
    assert await twin.app(shards=5).on(POST, "likes").create() is False


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        ({"shards": 4}, r"resize\(4\)"),
        ({"shards": 3, "initial": 8}, r"increment\(\) or decrement\(\)"),
        ({"mirrors": []}, r"set_mirrors\(\["),
    ],
)
async def test_create_with_other_settings_is_refused_and_says_how_to_change_them(
    likes, twin, db, wanted, remedy
):
    settings = {"shards": 3, "initial": 7, "mirrors": [Mirror(twin.client.document(POST), "likeCount")]}
    await likes.create(**settings)
    before = stored(db)
    with pytest.raises(SettingsConflict, match=remedy):
        await likes.create(**(settings | wanted))
    assert stored(db) == before
    assert await likes.value() == 7


async def test_resizing_moves_no_count_and_sends_increments_to_the_shards_there_are(likes, db):
    await likes.create(shards=1)
    await likes.increment(5)
    await likes.resize(30)
    for _ in range(20):
        await likes.increment()
    assert len(stored_shards(db)) > 1
    await likes.resize(1)
    writes = stored_shards(db)["0"][layout.WRITES]
    for _ in range(5):
        await likes.increment()
    assert stored_shards(db)["0"][layout.WRITES] == writes + 5
    assert await likes.value() == 30


async def test_another_process_follows_a_resize_once_its_cache_is_too_old(twin, db):
    seconds = 0.0
    here = twin.app(shards=1).on(POST, "likes")
    there = twin.app(cache_seconds=60, policy=Policy(clock=lambda: seconds)).on(POST, "likes")
    await here.increment()
    await there.increment()
    await here.resize(1000)
    await there.increment()
    assert set(stored_shards(db)) == {"0"}
    seconds = 61.0
    for _ in range(5):
        await there.increment()
    assert len(stored_shards(db)) > 1


@pytest.mark.parametrize("shards", [0, -1, 10_001])
async def test_a_number_of_shards_that_none_can_have_is_refused(likes, shards):
    for refusing in (likes.resize(shards), likes.create(shards=shards)):
        with pytest.raises(InvalidValue):
            await refusing


@pytest.mark.parametrize("shards", ["5", 2.0, True])
async def test_a_number_of_shards_that_is_no_int_is_refused(likes, shards):
    for refusing in (likes.resize(shards), likes.create(shards=shards)):
        with pytest.raises(InvalidType):
            await refusing


async def test_what_changes_a_counter_wants_one_to_be_there(likes, db):
    for changing in (likes.resize(5), likes.set_mirrors([]), likes.reset()):
        with pytest.raises(CounterNotFound, match=r"create\(\)") as missing:
            await changing
        assert isinstance(missing.value, LookupError)
    assert stored(db) is None


# Reset and delete.


async def test_reset_takes_the_value_and_says_what_it_took(likes):
    await likes.increment(12)
    assert await likes.reset() == 12
    assert await likes.value() == 0
    await likes.decrement(3)
    assert await likes.reset() == -3
    assert await likes.reset() == 0


async def test_delete_leaves_neither_document_nor_shards(likes, db):
    for _ in range(10):
        await likes.increment()
    await likes.delete()
    assert stored(db) is None
    assert stored_shards(db) == {}
    assert await likes.value() == 0


async def test_deleting_what_is_not_there_does_nothing(likes):
    await likes.delete()
    await likes.increment()
    await likes.delete()
    await likes.delete()
    assert await likes.value() == 0


async def test_a_deleted_counter_is_made_anew_by_its_next_increment(likes):
    await likes.increment(5)
    await likes.delete()
    await likes.increment(2)
    assert await likes.value() == 2


# Documents that are no counters, or no longer.


async def test_a_document_that_is_no_counter_is_refused_and_left_alone(app, twin, db):
    db.document(POST).set({"title": "Counting sheep"})
    post = app.at(twin.client.document(POST))
    for refusing in (post.increment(), post.create(), post.resize(3), post.reset(), post.delete()):
        with pytest.raises(UnsupportedLayout, match="document of its own"):
            await refusing
    assert stored(db, POST) == {"title": "Counting sheep"}
    assert stored_shards(db, POST) == {}


async def test_a_newer_layout_is_refused_and_left_alone(likes, db):
    newer = {layout.LAYOUT_FIELD: layout.LAYOUT + 1, layout.SHARD_COUNT: 5}
    db.document(LIKES).set(newer)
    for refusing in (likes.increment(), likes.create(), likes.resize(3), likes.reset(), likes.delete()):
        with pytest.raises(UnsupportedLayout, match="upgrade firestore-counters"):
            await refusing
    assert stored(db) == newer
    assert stored_shards(db) == {}


async def test_a_shard_with_a_fraction_is_named_by_value(likes, db):
    await likes.create(shards=5, initial=3)
    broken = f"{LIKES}/{layout.SHARDS}/2"
    db.document(broken).set({layout.VALUE: 0.5})
    with pytest.raises(CorruptShard) as corruption:
        await likes.value()
    assert corruption.value.path == broken
    assert broken in str(corruption.value)


async def test_a_sum_that_fits_is_exact_though_its_parts_go_past_int64(likes, db):
    await likes.create(shards=3)
    for shard, value in enumerate((INT64_MAX, INT64_MAX, INT64_MIN)):
        db.document(f"{LIKES}/{layout.SHARDS}/{shard}").set({layout.VALUE: value})
    assert await likes.value() == INT64_MAX - 1


async def test_a_sum_past_int64_is_an_error_and_no_wrong_number(likes, db):
    await likes.create(shards=2)
    for shard in ("0", "1"):
        db.document(f"{LIKES}/{layout.SHARDS}/{shard}").set({layout.VALUE: INT64_MAX})
    with pytest.raises(CorruptShard, match="64-bit"):
        await likes.value()


# Totals and mirrors.


async def test_a_total_is_what_the_last_rollup_wrote(app, likes):
    await likes.increment(5)
    before = datetime.now(timezone.utc)
    await app.roll_up()
    total = await likes.total()
    assert total.value == 5
    assert type(total.as_of) is datetime
    assert total.as_of.utcoffset().total_seconds() == 0
    await likes.increment()
    assert await likes.total() == total
    assert await likes.value() == 6
    await app.roll_up()
    after = await likes.total()
    assert after.value == 6
    assert after.as_of > total.as_of
    assert abs((total.as_of - before).total_seconds()) < 3600, "the server's time, not 1970's"


async def test_the_functions_of_two_lines_roll_up_too(twin, likes):
    await likes.increment(5)
    report = await twin.roll_up()
    assert (report.counters, report.shards, report.failed, report.orphans) == (1, 1, (), ())
    assert (await likes.total()).value == 5


async def test_mirrors_are_set_at_creation_or_later_and_taken_away(app, likes, twin, db):
    db.document(POST).set({"title": "Counting sheep"})
    post = twin.client.document(POST)
    await likes.create(initial=1, mirrors=[Mirror(post, "likeCount")])
    await app.roll_up()
    assert stored(db, POST) == {"title": "Counting sheep", "likeCount": 1}
    await likes.set_mirrors([Mirror(post, "stats.likes")])
    await likes.increment()
    await app.roll_up()
    assert stored(db, POST) == {"title": "Counting sheep", "likeCount": 1, "stats": {"likes": 2}}
    await likes.set_mirrors([])
    await likes.increment()
    await app.roll_up()
    assert stored(db, POST) == {"title": "Counting sheep", "likeCount": 1, "stats": {"likes": 2}}
    assert (await likes.total()).value == 3


async def test_mirrors_that_can_be_none_are_refused(likes, twin, db):
    post, counter = twin.client.document(POST), twin.client.document(LIKES)
    credentials = AnonymousCredentials()
    another = type(twin.client)(project="another", database="another", credentials=credentials)
    not_mirrors = {
        "a list of Mirror, not of": [post],
        "a list of Mirror, not Mirror": Mirror(post, "n"),
        "a list of Mirror, not int": 5,
        "its own document": [Mirror(counter, "n")],
        "another database": [Mirror(another.document(POST), "n")],
        "within the other": [Mirror(post, "stats"), Mirror(post, "stats.likes")],
    }
    for complaint, mirrors in not_mirrors.items():
        for refusing in (likes.create, likes.set_mirrors):
            with pytest.raises(InvalidArgument, match=complaint):
                await refusing(mirrors=mirrors)
    assert stored(db) is None


# Staging.


async def test_a_staged_increment_is_part_of_its_batch(likes, twin, db):
    await likes.create(shards=2)
    batch = twin.client.batch()
    batch.set(twin.client.document(POST), {"title": "Counting sheep"})
    await likes.stage(batch, 5)
    assert await likes.value() == 0
    await twin.commit(batch)
    assert await likes.value() == 5
    assert stored(db, POST) == {"title": "Counting sheep"}


async def test_a_batch_that_is_refused_counts_nothing(likes, twin, db):
    await likes.create()
    db.document(POST).set({"title": "Counting sheep"})
    batch = twin.client.batch()
    batch.create(twin.client.document(POST), {"title": "again"})
    await likes.stage(batch, 5)
    with pytest.raises(AlreadyExists):
        await twin.commit(batch)
    assert await likes.value() == 0


async def test_one_batch_takes_increments_of_many_counters_and_twice_of_one(app, twin):
    counters = [app.on(f"posts/{number}", "likes") for number in range(5)]
    batch = twin.client.batch()
    for number, counter in enumerate(counters):
        await counter.stage(batch, number)
        await counter.stage(batch, 10)
    await twin.commit(batch)
    assert [await counter.value() for counter in counters] == [10, 11, 12, 13, 14]


async def test_a_staged_increment_does_to_a_shard_what_any_other_does_but_for_the_receipt(twin, db):
    likes = twin.app(shards=1).on(POST, "likes")
    shards = []
    for staged in (True, False, True):
        if staged:
            batch = twin.client.batch()
            await likes.stage(batch, 5)
            await twin.commit(batch)
        else:
            await likes.increment(5)
        shards.append(stored_shards(db)["0"])
        await asyncio.sleep(0.002)  # updated_at counts milliseconds
    first, incremented, last = shards
    assert [shard[layout.VALUE] for shard in shards] == [5, 10, 15]
    assert [shard[layout.WRITES] for shard in shards] == [1, 2, 3]
    assert {shard[layout.BUCKET] for shard in shards} == {layout.bucket(LIKES, 0)}
    assert first[layout.UPDATED_AT] < incremented[layout.UPDATED_AT] < last[layout.UPDATED_AT]
    assert layout.RECEIPTS not in first
    assert last[layout.RECEIPTS] == incremented[layout.RECEIPTS]


async def test_staging_into_a_counter_that_nobody_made_makes_it_whatever_becomes_of_the_batch(
    likes, twin, db
):
    await likes.stage(twin.client.batch(), 5)
    assert stored(db)[layout.LAYOUT_FIELD] == layout.LAYOUT
    assert await likes.value() == 0


async def test_staging_zero_adds_no_write(likes, twin):
    await likes.create()
    batch = twin.client.batch()
    await likes.stage(batch, 0)
    assert len(batch) == 0


# Watching.


async def test_a_watcher_hears_the_present_total_and_each_change_once(twin):
    app = twin.app(poll_seconds=0.02)
    likes = app.on(POST, "likes")
    await likes.increment(5)
    await app.roll_up()
    heard = Heard()
    async with likes.watch(heard):
        await heard.come_to(1)
        for number in (2, 3):
            await likes.increment()
            await app.roll_up()
            await heard.come_to(number)
    assert heard.values == [5, 6, 7]
    assert heard[-1] == await likes.total()
    assert [total.as_of for total in heard] == sorted(total.as_of for total in heard)
    assert {type(total.as_of) for total in heard} == {datetime}


async def test_a_watcher_of_what_has_no_total_hears_of_the_first(twin):
    app = twin.app(poll_seconds=0.02)
    likes = app.on(POST, "likes")
    heard = Heard()
    async with likes.watch(heard):
        await heard.come_to(1)
        await likes.increment(3)
        await app.roll_up()
        await heard.come_to(2)
        await likes.delete()
        await heard.come_to(3)
    assert heard.values == [None, 3, None]


async def test_a_watcher_hears_nothing_of_settings(twin):
    app = twin.app(poll_seconds=0.02)
    likes = app.on(POST, "likes")
    await likes.create(initial=5)
    await app.roll_up()
    heard = Heard()
    async with likes.watch(heard):
        await heard.come_to(1)
        await likes.resize(20)
        await likes.set_mirrors([])
        await likes.increment()
        await app.roll_up()
        await heard.come_to(2)
    assert heard.values == [5, 6]


async def test_a_watcher_goes_on_when_its_callback_raises(twin, caplog):
    app = twin.app(poll_seconds=0.02)
    likes = app.on(POST, "likes")
    await likes.create(initial=5)
    await app.roll_up()
    heard = Heard()

    def hears_and_raises(total):
        heard(total)
        raise RuntimeError(f"cannot bear {total.value}")

    async with likes.watch(hears_and_raises):
        await heard.come_to(1)
        await likes.increment()
        await app.roll_up()
        await heard.come_to(2)
    assert heard.values == [5, 6]
    errors = [str(record.exc_info[1]) for record in caplog.records if record.name == "counters"]
    assert errors == ["cannot bear 5", "cannot bear 6"]


async def test_a_watcher_hears_nothing_after_its_block(twin):
    app = twin.app(poll_seconds=0.02)
    likes = app.on(POST, "likes")
    await likes.create(initial=5)
    await app.roll_up()
    heard, heard_after = Heard(), Heard()
    async with likes.watch(heard):
        await heard.come_to(1)
    await likes.increment()
    await app.roll_up()
    async with likes.watch(heard_after):  # by when this one has heard, so would the other have
        await heard_after.come_to(1)
    assert heard.values == [5]
    assert heard_after.values == [6]


async def test_the_error_of_a_watchers_block_comes_through(likes):
    with pytest.raises(ZeroDivisionError):
        async with likes.watch(print):
            _ = 1 / 0


async def test_what_cannot_be_called_cannot_watch(likes):
    with pytest.raises(InvalidType):
        async with likes.watch("print"):
            pass


async def test_the_async_twin_awaits_a_callback_that_can_be_awaited(counters_async_client):
    app = AsyncCounters(counters_async_client, poll_seconds=0.02)
    likes = app.on(POST, "likes")
    await likes.create(initial=5)
    await app.roll_up()
    heard = Heard()

    async def hears_later(total):
        await asyncio.sleep(0)
        heard(total)

    async with likes.watch(hears_later):
        await heard.come_to(1)
    assert heard.values == [5]
