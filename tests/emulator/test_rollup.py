"""The rollup: exact as of its moment, whatever happens meanwhile, and in nobody's way."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
from gateway_probes import Overheard, Timed
from google.cloud.firestore import SERVER_TIMESTAMP
from mortal import deaths

from counters import AsyncCounters, Counters, InvalidArgument, Mirror, layout, rollup, wire

POST = "posts/a91f"
LIKES = "posts/a91f/counters/likes"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)


@pytest.fixture
def app(db):
    """Writes and rolls up past the gateway."""
    return Counters(db, shards=3)


@pytest.fixture
def gateway_app(counters_gateway_client):
    """Rolls up through the gateway, where a test can look on and interfere."""
    return Counters(counters_gateway_client, shards=3)


@pytest.fixture
def likes(app):
    return app.on(POST, "likes")


def shard_of(db, counter, shard=0):
    return db.document(layout.shard_path(counter.path, shard))


def cursor(db):
    return db.document(layout.cursor_path()).get().to_dict() or {}


def notes(db):
    """The notes of counters that failed, by counter."""
    documents = (found.to_dict() for found in db.collection(layout.ROLLUPS).stream())
    return {
        document[layout.PENDING_COUNTER]: document
        for document in documents
        if layout.PENDING_COUNTER in document
    }


def totals(*counters):
    return [counter.total().value for counter in counters]


def failures(report):
    return {failure.path: str(failure.error) for failure in report.failed}


# What a total is.


def test_totals_are_exact_as_of_their_moment_and_never_go_back_under_overlapping_runs(
    app, counters_gateway, gateway_app, likes
):
    likes.create()
    commits = Timed("Commit")
    counters_gateway.script(commits)
    writing = threading.Event()
    seen = []

    def write():
        for _ in range(80):
            gateway_app.on(POST, "likes").increment()

    def roll_up_back_to_back():
        runs = 0
        while writing.is_set() or not runs:
            assert app.roll_up().failed == ()
            runs += 1
        return runs

    def look():
        while writing.is_set():
            seen.append(likes.total())
        seen.append(likes.total())

    with ThreadPoolExecutor(6) as pool:
        writing.set()
        writers = [pool.submit(write) for _ in range(3)]
        rolling = [pool.submit(roll_up_back_to_back) for _ in range(2)]
        looking = pool.submit(look)
        for writer in writers:
            writer.result()
        writing.clear()
        assert min(runs.result() for runs in rolling) > 1
        looking.result()

    acknowledged = [
        moment for moment, names in commits.applied if any(layout.SHARDS in name for name in names)
    ]
    assert len(acknowledged) == 240
    written = [total for total in seen if total.as_of is not None]
    for total in written:
        as_of = (total.as_of - EPOCH) // MICROSECOND
        assert total.value == sum(moment <= as_of for moment in acknowledged)
    moments = [total.as_of for total in written]
    assert moments == sorted(moments)
    assert len(set(moments)) > 2, "several totals were looked at, not one"
    app.roll_up()
    assert likes.total().value == 240


def test_all_that_was_acknowledged_before_a_run_is_in_its_totals(app):
    counters = [app.on(f"posts/{number}", "likes") for number in range(4)]
    for value in range(1, 6):
        for counter in counters:
            counter.increment()
        app.roll_up()
        assert totals(*counters) == [value] * 4


@pytest.mark.parametrize("first", [True, False], ids=["the first run", "a later run"])
def test_a_run_that_is_overtaken_takes_neither_total_nor_cursor_back(
    app, gateway_app, likes, db, meanwhile, first
):
    if not first:
        app.on("posts/other", "likes").increment()
        app.roll_up()
    likes.increment()

    def overtake():
        likes.increment()
        app.roll_up()
        return likes.total(), cursor(db)

    outcomes = []
    meanwhile(lambda: outcomes.append(overtake()), before="Commit")
    report = gateway_app.roll_up()
    ((overtaking, its_cursor),) = outcomes
    assert overtaking.value == 2
    assert likes.total() == overtaking, "a later total will do, and is not written again"
    assert cursor(db) == its_cursor, "the older run's cursor would be a step back"
    assert report.failed == ()


def test_a_run_that_is_overtaken_just_before_it_reads_writes_no_older_total(
    app, gateway_app, likes, meanwhile
):
    likes.increment()
    outcomes = []

    def overtake():
        likes.increment()
        app.roll_up()
        outcomes.append(likes.total())

    meanwhile(overtake, before="BatchGetDocuments")
    gateway_app.roll_up()
    assert outcomes[0].value == 2
    assert likes.total() == outcomes[0]


def test_a_resize_between_sum_and_commit_is_kept_and_the_sum_is_taken_again(
    gateway_app, likes, db, meanwhile, counters_gateway
):
    likes.increment(5)

    def resize():
        likes.resize(20)
        likes.increment()

    meanwhile(resize, before="Commit")
    with counters_gateway.measure() as bill:
        report = gateway_app.roll_up()
    assert likes.total().value == 6
    assert db.document(LIKES).get().get(layout.SHARD_COUNT) == 20
    assert bill.rpcs["RunAggregationQuery"] == 2
    assert (report.counters, report.failed) == (1, ())
    assert (report.reads, report.writes) == (bill.reads, bill.writes)


def test_a_counter_that_changes_all_the_time_fails_and_is_rolled_up_by_the_next_run(
    gateway_app, app, likes, meanwhile
):
    likes.increment(5)
    for attempt in range(1, 9):
        meanwhile(lambda size=attempt: likes.resize(size), before="Commit", nth=attempt)
    report = gateway_app.roll_up()
    assert list(failures(report)) == [LIKES]
    assert likes.total().value is None
    assert app.roll_up().failed == ()
    assert likes.total().value == 5


def test_a_counter_that_is_deleted_meanwhile_is_not_brought_back(gateway_app, likes, db, meanwhile):
    likes.increment(5)
    meanwhile(likes.delete, before="Commit")
    report = gateway_app.roll_up()
    assert not db.document(LIKES).get().exists
    assert (report.counters, report.failed) == (0, ())


# Runs that die.


def test_a_run_killed_after_any_of_its_requests_loses_nothing(app, db, monkeypatch):
    # The cursor alone must do: what it has passed is not looked at again.
    monkeypatch.setattr(rollup, "SHORT_OVERLAP", 0)
    post = db.document(POST)
    post.set({})
    plain, mirrored, broken = (app.on(POST, name) for name in ("plain", "mirrored", "broken"))
    mirrored.create(mirrors=[Mirror(post, "count")])
    broken.create(shards=1, initial=5)
    added = 0

    def start():
        nonlocal added
        added += 1
        plain.increment()
        mirrored.increment()
        break_by_string(db, broken)
        return rollup.roll_up(app.context, wire.database_of(db), 1)

    died_after = []
    for requests in deaths(db, start):
        died_after.append(requests)
        assert post.get().to_dict().get("count") == mirrored.total().value, "both or neither"
        report = app.roll_up()
        assert totals(plain, mirrored) == [added] * 2
        assert list(failures(report)) == list(notes(db)) == [broken.path]
        mend(db, broken)
        app.roll_up()
        assert (broken.total().value, notes(db)) == (5, {})
    assert len(died_after) > 6
    assert totals(plain, mirrored) == [added] * 2
    assert list(notes(db)) == [broken.path]


async def test_a_run_cancelled_at_any_of_its_requests_loses_nothing(
    app, counters_gateway_async_client, meanwhile, monkeypatch
):
    monkeypatch.setattr(rollup, "SHORT_OVERLAP", 0)
    gateway_app = AsyncCounters(counters_gateway_async_client)
    counters = [app.on(f"posts/{number}", "likes") for number in range(2)]
    loop = asyncio.get_running_loop()
    state, changes, documents, two_sums, two_totals, cursor_saved = 1, 1, 1, 2, 2, 1
    requests = state + changes + documents + two_sums + two_totals + cursor_saved
    for request in range(1, requests + 1):
        for counter in counters:
            counter.increment()
        run = asyncio.ensure_future(gateway_app.roll_up())
        meanwhile(partial(loop.call_soon_threadsafe, run.cancel), before=None, nth=request)
        with pytest.raises(asyncio.CancelledError):
            await run
        app.roll_up()
        assert totals(*counters) == [request] * 2


# Counters that fail.


def break_by_string(db, counter):
    shard_of(db, counter).update({layout.VALUE: "5", layout.UPDATED_AT: SERVER_TIMESTAMP})


def break_by_fraction(db, counter):
    shard_of(db, counter).update({layout.VALUE: 5.5, layout.UPDATED_AT: SERVER_TIMESTAMP})


def break_by_unseen_fraction(db, counter):
    shard_of(db, counter, 1).set({layout.VALUE: 0.5, layout.BUCKET: 0})


def break_by_overflow(db, counter):
    shard_of(db, counter, 1).set({layout.VALUE: 2**63 - 2, layout.BUCKET: 0})


def break_by_layout(db, counter):
    db.document(counter.path).update({layout.LAYOUT_FIELD: layout.LAYOUT + 1})


def mend(db, counter):
    """Not by an increment: nothing of it shows up in a scan."""
    shard_of(db, counter).update({layout.VALUE: 5})
    shard_of(db, counter, 1).delete()
    db.document(counter.path).update({layout.LAYOUT_FIELD: layout.LAYOUT})


@pytest.mark.parametrize(
    ("broken_by", "complaint"),
    [
        (break_by_string, "counter_shards/0 is '5', no whole number"),
        (break_by_fraction, "counter_shards/0 is 5.5, no whole number"),
        (break_by_unseen_fraction, "counter_shards/1 is 0.5, no whole number"),
        (break_by_overflow, "more than a signed 64-bit integer holds"),
        (break_by_layout, "upgrade firestore-counters"),
    ],
)
def test_a_failing_counter_is_named_noted_and_retried_until_it_is_mended_and_stops_no_other(
    app, db, monkeypatch, broken_by, complaint
):
    monkeypatch.setattr(rollup, "SHORT_OVERLAP", 0)
    broken, others = app.on("posts/m", "likes"), [app.on(f"posts/{name}", "likes") for name in "az"]
    for counter in (broken, *others):
        counter.create(shards=1, initial=5)
    broken_by(db, broken)

    first = app.roll_up()
    assert list(failures(first)) == [broken.path]
    assert complaint in failures(first)[broken.path]
    assert totals(broken, *others) == [None, 5, 5]
    assert cursor(db)[layout.SCANNED_AT] == first.as_of
    note = notes(db)[broken.path]
    assert complaint in note[layout.PENDING_ERROR]

    second = app.roll_up()
    assert second.shards == 0, "nothing changed, and it is retried all the same"
    assert failures(second) == failures(first)
    assert notes(db)[broken.path] == note, "noted since the first run"

    mend(db, broken)
    third = app.roll_up()
    assert (third.shards, third.counters, third.failed) == (0, 1, ())
    assert broken.total().value == 5
    assert notes(db) == {}
    assert app.roll_up().counters == 0


def test_a_failing_counter_that_is_deleted_is_forgotten(app, db):
    broken = app.on(POST, "likes")
    broken.create(shards=1, initial=5)
    break_by_string(db, broken)
    app.roll_up()
    assert list(notes(db)) == [broken.path]
    broken.delete()
    report = app.roll_up()
    assert report.failed == ()
    assert notes(db) == {}


def test_notes_of_more_failures_than_a_page_holds_are_all_retried(app, db, monkeypatch):
    monkeypatch.setattr(rollup, "_PAGE", 3)
    monkeypatch.setattr(rollup, "_CHUNK", 2)
    broken = [app.on(f"posts/{number}", "likes") for number in range(7)]
    for counter in broken:
        counter.create(shards=1, initial=5)
        break_by_string(db, counter)
    assert len(app.roll_up().failed) == 7
    for counter in broken:
        mend(db, counter)
    assert app.roll_up().counters == 7
    assert totals(*broken) == [5] * 7
    assert notes(db) == {}


def test_a_document_of_somebody_else_in_a_collection_of_the_shards_name_stops_no_run(app, likes, db):
    # The rollup's query covers every collection of this name, one at the root too.
    likes.increment(5)
    strangers = {layout.VALUE: 1, layout.BUCKET: 0, layout.UPDATED_AT: SERVER_TIMESTAMP}
    db.document(f"{layout.SHARDS}/stranger").set(strangers)
    db.document(f"{POST}/{layout.SHARDS}/stranger").set(strangers)
    app.roll_up()
    assert likes.total().value == 5
    assert cursor(db)


# Mirrors.


def test_total_and_mirrors_are_written_in_one_commit(gateway_app, likes, db, counters_gateway):
    posts = [db.document(f"posts/{number}") for number in range(2)]
    for post in posts:
        post.set({"title": post.id})
    likes.create(initial=5, mirrors=[Mirror(post, "likeCount") for post in posts])
    overheard = Overheard("Commit")
    counters_gateway.script(overheard)
    gateway_app.roll_up()
    first = overheard.commits[0]
    written = [wire.relative_path(write.update.name) for write in first.writes]
    assert written == [LIKES, "posts/0", "posts/1"]
    assert [post.get().to_dict() for post in posts] == [
        {"title": "0", "likeCount": 5},
        {"title": "1", "likeCount": 5},
    ]


def test_two_mirrors_in_one_document_are_one_write(gateway_app, likes, db, counters_gateway):
    post = db.document(POST)
    post.set({})
    likes.create(initial=5, mirrors=[Mirror(post, "likes"), Mirror(post, "stats.likes")])
    overheard = Overheard("Commit")
    counters_gateway.script(overheard)
    gateway_app.roll_up()
    assert len(overheard.commits[0].writes) == 2
    assert post.get().to_dict() == {"likes": 5, "stats": {"likes": 5}}


def test_counters_may_share_a_mirrored_document(app, db):
    post = db.document(POST)
    post.set({"title": "Counting sheep"})
    for value, name in enumerate(("likes", "views", "shares")):
        app.on(post, name).create(initial=value + 1, mirrors=[Mirror(post, f"counts.{name}")])
    report = app.roll_up()
    assert report.failed == ()
    counts = {"likes": 1, "views": 2, "shares": 3}
    assert post.get().to_dict() == {"title": "Counting sheep", "counts": counts}


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        ("stats.likes.count", {"stats": {"shares": 1, "likes": {"count": 5}}}),
        ("`like count`", {"stats": {"shares": 1}, "like count": 5}),
        ("stats.`a.b`", {"stats": {"shares": 1, "a.b": 5}}),
        ("stats.`日本`", {"stats": {"shares": 1, "日本": 5}}),
        (r"`\`quoted\``", {"stats": {"shares": 1}, "`quoted`": 5}),
    ],
)
def test_a_mirror_may_be_a_field_of_any_name_at_any_depth(app, likes, db, field, stored):
    post = db.document(POST)
    post.set({"stats": {"shares": 1}})
    likes.create(initial=5, mirrors=[Mirror(post, field)])
    assert app.roll_up().failed == ()
    assert post.get().to_dict() == stored


def test_a_mirror_that_is_gone_is_reported_and_not_brought_back_and_the_rest_is_written(
    app, likes, db, monkeypatch
):
    monkeypatch.setattr(rollup, "SHORT_OVERLAP", 0)
    gone, here = db.document("posts/gone"), db.document("posts/here")
    here.set({})
    likes.create(initial=5, mirrors=[Mirror(gone, "likeCount"), Mirror(here, "likeCount")])
    report = app.roll_up()
    assert list(failures(report)) == [LIKES]
    assert "posts/gone" in failures(report)[LIKES]
    assert likes.total().value == 5
    assert here.get().to_dict() == {"likeCount": 5}
    assert not gone.get().exists

    gone.set({})
    report = app.roll_up()
    assert (report.shards, report.failed) == (0, ())
    assert gone.get().to_dict() == {"likeCount": 5}


def test_a_mirror_that_goes_between_sum_and_commit_is_not_brought_back(gateway_app, likes, db, meanwhile):
    post = db.document(POST)
    post.set({})
    likes.create(initial=5, mirrors=[Mirror(post, "likeCount")])
    meanwhile(post.delete, before="Commit")
    report = gateway_app.roll_up()
    assert POST in failures(report)[LIKES]
    assert likes.total().value == 5
    assert not post.get().exists


def test_a_deleted_parent_is_not_brought_back(app, likes, db):
    post = db.document(POST)
    post.set({"title": "Counting sheep"})
    likes.increment(5)
    post.delete()
    assert app.roll_up().failed == ()
    assert likes.total().value == 5
    assert not post.get().exists


# Whom it bothers: nobody.


def test_a_run_begins_no_transaction_and_writes_no_shard(gateway_app, likes, db, counters_gateway):
    likes.create()
    for shard in range(3):
        data = {layout.VALUE: 1, layout.BUCKET: layout.bucket(LIKES, shard)}
        shard_of(db, likes, shard).set(data | {layout.UPDATED_AT: SERVER_TIMESTAMP})
    overheard = Overheard()
    counters_gateway.script(overheard)
    gateway_app.roll_up()
    state, changes, counters, total = "RunQuery", "RunQuery", "BatchGetDocuments", "RunAggregationQuery"
    assert overheard.methods == [state, changes, counters, total, "Commit", "Commit"]
    assert [wire.relative_path(name) for name in overheard.written] == [LIKES, layout.cursor_path()]
    assert not any(commit.transaction for commit in overheard.commits)


def test_all_but_the_first_read_is_as_of_one_moment_that_the_report_tells(
    gateway_app, likes, counters_gateway
):
    likes.increment()
    overheard = Overheard()
    counters_gateway.script(overheard)
    report = gateway_app.roll_up()
    assert [moment for moment in overheard.read_times if moment] == [report.as_of] * 3
    assert likes.total().as_of == report.as_of


def test_increments_neither_wait_for_a_run_nor_spoil_it(gateway_app, likes, meanwhile, counters_gateway):
    likes.increment(5)

    def increment_every_shard():
        for _ in range(20):
            likes.increment()

    meanwhile(increment_every_shard, before="RunAggregationQuery")
    meanwhile(increment_every_shard, before="Commit")
    with counters_gateway.measure() as bill:
        report = gateway_app.roll_up()
    assert likes.total().value == 5
    assert (report.counters, bill.rpcs["RunAggregationQuery"]) == (1, 1)
    gateway_app.roll_up()
    assert likes.total().value == 45


# What changed, and when it shows.


@contextmanager
def read_lock(db, document):
    """What any read in a read-write transaction does to those who write the document."""
    transaction = db.transaction()
    transaction._begin()
    document.get(transaction=transaction)
    try:
        yield
    finally:
        transaction._rollback()


def test_a_commit_that_waited_behind_a_readers_lock_is_in_the_total_after_the_next_run(
    app, gateway_app, db, counters_gateway, emulator_kind
):
    if emulator_kind == "hidane":
        pytest.skip("hidane stamps a write that waited when it applies it, not when it came")
    likes, other = app.on(POST, "likes"), app.on("posts/other", "likes")
    likes.create(shards=1)
    likes.increment()
    app.roll_up()
    with ThreadPoolExecutor(1) as pool, counters_gateway.measure() as bill:
        with read_lock(db, shard_of(db, likes)):
            late = pool.submit(gateway_app.on(POST, "likes").increment)
            while not bill.rpcs["Commit"]:
                time.sleep(0.01)
            locked_until = time.monotonic() + 1.5
            for _ in range(2):
                other.increment()  # so that there is something to move the cursor for
                last = app.roll_up()
            time.sleep(max(0, locked_until - time.monotonic()))
            assert not late.done()
        late.result()
    shard = shard_of(db, likes).get()
    assert shard.get(layout.UPDATED_AT) < last.as_of < shard.update_time
    assert totals(likes, other) == [1, 2]
    app.roll_up()
    assert totals(likes, other) == [2, 2]


def arrive_late(db, counter, moment):
    """What a commit leaves that began at ``moment`` and was applied now."""
    shard_of(db, counter).update({layout.VALUE: 100, layout.UPDATED_AT: moment})


def test_a_change_that_shows_up_seconds_late_is_in_the_next_total(app, likes, db):
    likes.create(shards=1, initial=1)
    began = app.roll_up().as_of
    for _ in range(2):
        app.on("posts/other", "likes").increment()
        app.roll_up()
    assert cursor(db)[layout.SCANNED_AT] > began
    arrive_late(db, likes, began)
    app.roll_up()
    assert likes.total().value == 100


def test_a_change_later_than_the_short_overlap_is_found_by_the_next_rescan(app, likes, db, monkeypatch):
    likes.create(shards=1, initial=1)
    app.roll_up()
    longest = timedelta(seconds=270)
    assert timedelta(microseconds=rollup.SHORT_OVERLAP) < longest
    assert timedelta(microseconds=rollup.LONG_OVERLAP) > longest
    arrive_late(db, likes, cursor(db)[layout.SCANNED_AT] - longest)
    assert app.roll_up().counters == 0
    assert likes.total().value == 1
    monkeypatch.setattr(rollup, "RESCAN_EVERY", 0)
    app.roll_up()
    assert likes.total().value == 100


@pytest.mark.parametrize("page", [1, 4, 25])
def test_changes_of_one_moment_that_fill_several_pages_are_all_seen(app, db, monkeypatch, page):
    monkeypatch.setattr(rollup, "_PAGE", page)
    monkeypatch.setattr(rollup, "_CHUNK", 3)
    counters = [app.on(f"posts/{number}", "likes") for number in range(10)]
    batch = db.batch()
    for counter in counters:
        counter.create()
        for shard in range(3):
            data = {layout.VALUE: 1, layout.BUCKET: layout.bucket(counter.path, shard)}
            batch.set(shard_of(db, counter, shard), data | {layout.UPDATED_AT: SERVER_TIMESTAMP})
    batch.commit()
    report = app.roll_up()
    assert (report.counters, report.shards) == (10, 30)
    assert totals(*counters) == [3] * 10


def test_the_first_run_finds_counters_that_are_years_old(app, likes, db):
    likes.create(shards=1, initial=5)
    shard_of(db, likes).update({layout.UPDATED_AT: datetime(2019, 5, 1, tzinfo=timezone.utc)})
    app.roll_up()
    assert likes.total().value == 5


def test_increments_staged_into_a_callers_batch_are_rolled_up(app, likes, db):
    batch = db.batch()
    likes.stage(batch, 5)
    batch.commit()
    app.roll_up()
    assert likes.total().value == 5


def test_reset_is_rolled_up(app, likes):
    likes.increment(5)
    app.roll_up()
    likes.reset()
    app.roll_up()
    assert likes.total().value == 0


# Arguments.


@pytest.mark.parametrize("concurrency", [1, 16])
async def test_counters_are_rolled_up_with_any_concurrency(twin, concurrency):
    app = twin.app()
    counters = [app.on(f"posts/{number}", "likes") for number in range(12)]
    for amount, counter in enumerate(counters, start=1):
        await counter.increment(amount)
    assert (await app.roll_up(concurrency=concurrency)).counters == 12
    assert [(await counter.total()).value for counter in counters] == list(range(1, 13))


@pytest.mark.parametrize("concurrency", [0, -1, 10_000, True, 2.0, "8"])
def test_a_concurrency_that_cannot_be_is_refused(app, concurrency):
    with pytest.raises(InvalidArgument):
        app.roll_up(concurrency=concurrency)
