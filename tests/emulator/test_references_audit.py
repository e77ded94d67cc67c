"""The audit proves that counts are true, under live traffic; the repair is surgical."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import pytest
from gateway_probes import Overheard
from google.cloud.firestore import SERVER_TIMESTAMP
from google.cloud.firestore_v1.types import BatchGetDocumentsRequest, RunAggregationQueryRequest
from reference_twins import children

from counters import (
    AsyncCounters,
    CorruptShard,
    CounterNotFound,
    Counters,
    InvalidType,
    InvalidValue,
    Policy,
    StaleAudit,
    layout,
)
from counters.testing import DeliveredTwice, LostAnswer

POST = "posts/a91f"
LIKES = "posts/a91f/likes"
COUNTER = "posts/a91f/counters/likes"


@pytest.fixture
def app(twin):
    return twin.app(shards=3)


@pytest.fixture
def likes(app):
    return children(app, POST, "likes")


@pytest.fixture
def others_likes(db):
    """The same count as another process has it."""
    return Counters(db, shards=3).children(POST, "likes")


def behind_our_back(db, *users, collection=LIKES):
    for user in users:
        db.collection(collection).document(user).set({})


def adjustments(db, counter=COUNTER):
    records = db.document(counter).collection(layout.ADJUSTMENTS).stream()
    return sorted((record.to_dict() for record in records), key=lambda record: record[layout.ADJUSTMENT_AT])


def shard_sum(db, counter=COUNTER):
    return sum(shard.get(layout.VALUE) for shard in db.document(counter).collection(layout.SHARDS).stream())


# One count.


async def test_an_audit_says_what_is_stored_what_is_there_and_when(app, likes, db):
    before = datetime.now(timezone.utc)
    for user in "abc":
        await likes.add(user)
    await app.roll_up()
    behind_our_back(db, "x", "y")
    found = await likes.audit()
    assert (found.path, found.children, found.parent) == (COUNTER, LIKES, POST)
    assert (found.stored, found.actual, found.difference, found.total) == (3, 5, 2, 3)
    assert found.exists is True
    assert found.as_of.utcoffset() == timedelta(0)
    assert abs(found.as_of - before) < timedelta(hours=1)


async def test_an_audit_of_what_is_not_there_finds_nothing(likes, db):
    found = await likes.audit()
    assert (found.stored, found.actual, found.total, found.exists) == (0, 0, None, False)
    behind_our_back(db, "x")
    assert (await likes.audit()).difference == 1


async def test_an_audit_is_of_its_moment_whatever_comes_after(likes):
    await likes.add("a")
    found = await likes.audit()
    await likes.add("b")
    later = await likes.audit()
    assert (found.actual, later.actual) == (1, 2)
    assert found.as_of < later.as_of


@pytest.mark.parametrize("damage", ["three", 0.5])
async def test_a_damaged_shard_is_an_error_and_no_difference_to_be_repaired(likes, db, damage):
    for user in "abcdef":
        await likes.add(user)
    sound = await likes.audit()
    behind_our_back(db, "x")
    drifting = await likes.audit()
    (shard, *_) = db.document(COUNTER).collection(layout.SHARDS).stream()
    shard.reference.update({layout.VALUE: damage})
    for refusing in (likes.audit(), likes.repair(sound), likes.repair(drifting), likes.backfill()):
        with pytest.raises(CorruptShard) as corruption:
            await refusing
        assert corruption.value.path == shard.reference.path
    assert adjustments(db) == []


# Repair.


@pytest.mark.parametrize("drift", [3, -2])
async def test_a_repair_adds_the_difference_and_records_who_when_and_how_much(likes, db, drift):
    for user in "abcde":
        await likes.add(user)
    if drift > 0:
        behind_our_back(db, *(f"x{number}" for number in range(drift)))
    else:
        for user in "abcde"[:-drift]:
            db.document(f"{LIKES}/{user}").delete()
    found = await likes.audit()
    assert found.difference == drift
    assert await likes.repair(found, by="op@example.org") == drift
    assert (await likes.audit()).difference == 0
    assert await likes.value() == 5 + drift
    (record,) = adjustments(db)
    at, as_of = record.pop(layout.ADJUSTMENT_AT), record.pop(layout.ADJUSTMENT_AS_OF)
    assert found.as_of < as_of < at
    assert record == {
        layout.ADJUSTMENT_REASON: "repair",
        layout.ADJUSTMENT_BY: "op@example.org",
        layout.ADJUSTMENT_DIFFERENCE: drift,
        layout.ADJUSTMENT_STORED: 5,
        layout.ADJUSTMENT_ACTUAL: 5 + drift,
    }


async def test_nothing_is_repaired_where_nothing_is_wrong(likes, db):
    await likes.add("a")
    before = db.document(COUNTER).get().update_time
    assert await likes.repair(await likes.audit()) == 0
    assert adjustments(db) == []
    assert db.document(COUNTER).get().update_time == before


async def test_a_difference_that_is_another_one_by_now_is_not_repaired(likes, db):
    await likes.add("a")
    behind_our_back(db, "x")
    found = await likes.audit()
    behind_our_back(db, "y")
    with pytest.raises(StaleAudit, match="was 1 and is 2"):
        await likes.repair(found)
    assert await likes.value() == 1
    assert await likes.repair(await likes.audit()) == 2
    with pytest.raises(StaleAudit, match="was 1 and is 0"):
        await likes.repair(found)
    assert await likes.value() == 3


async def test_of_operators_who_repair_at_once_one_repairs(likes, db):
    await likes.add("a")
    behind_our_back(db, "x", "y")
    found = await likes.audit()
    outcomes = await asyncio.gather(
        *(likes.repair(found, by=f"op{number}") for number in range(6)), return_exceptions=True
    )
    assert outcomes.count(2) == 1
    assert sum(isinstance(outcome, StaleAudit) for outcome in outcomes) == 5
    assert (await likes.audit()).difference == 0
    assert len(adjustments(db)) == 1


async def test_a_repair_that_another_came_before_by_a_hair_repairs_nothing(
    metered, others_likes, db, meanwhile
):
    likes = children(metered.app(), POST, "likes")
    others_likes.add("a")
    behind_our_back(db, "x", "y")
    found = await likes.audit()
    meanwhile(lambda: others_likes.repair(found, by="first"), before="Commit")
    with pytest.raises(StaleAudit):
        await likes.repair(found, by="second")
    assert [record[layout.ADJUSTMENT_BY] for record in adjustments(db)] == ["first"]
    assert others_likes.audit().difference == 0


@pytest.mark.parametrize("fault", [LostAnswer("Commit"), DeliveredTwice("Commit")])
async def test_a_repair_is_made_once_whatever_becomes_of_its_messages(
    metered, others_likes, db, counters_gateway, fault
):
    likes = children(metered.app(), POST, "likes")
    others_likes.add("a")
    behind_our_back(db, "x", "y")
    found = await likes.audit()
    counters_gateway.script(fault)
    assert await likes.repair(found) == 2
    assert counters_gateway.struck[fault] == 1
    assert others_likes.audit().difference == 0
    assert len(adjustments(db)) == 1


async def test_likes_and_rollups_that_come_between_do_not_spoil_a_repair(
    metered, others_likes, db, meanwhile
):
    likes = children(metered.app(), POST, "likes")
    others_likes.add("a")
    behind_our_back(db, "x", "y")
    found = await likes.audit()
    meanwhile(lambda: (others_likes.add("b"), others_likes.remove("a")), before="Commit")
    assert await likes.repair(found) == 2
    assert others_likes.audit().difference == 0
    behind_our_back(db, "z")
    found = await likes.audit()
    meanwhile(Counters(db).roll_up, before="Commit")
    assert await likes.repair(found) == 1
    found = others_likes.audit()
    assert (found.difference, found.actual) == (0, 4)


async def test_what_is_no_audit_of_this_count_is_refused(app, likes):
    await likes.add("a")
    others = await children(app, "posts/b", "likes").audit()
    for wrong, error in ((others, InvalidValue), (0, InvalidType), (None, InvalidType)):
        for refusing in (likes.repair(wrong), likes.explain(wrong)):
            with pytest.raises(error):
                await refusing
    found = await likes.audit()
    for by, error in ((7, InvalidType), ("\ud800", InvalidValue)):
        for refusing in (likes.repair(found, by=by), likes.backfill(by=by)):
            with pytest.raises(error):
                await refusing


async def test_without_a_counter_a_repair_is_refused_and_a_backfill_makes_it(likes, db):
    behind_our_back(db, "x", "y")
    with pytest.raises(CounterNotFound, match=r"create\(\)"):
        await likes.repair(await likes.audit())
    assert await likes.backfill(by="op") == 2
    assert (await likes.audit()).difference == 0


# Adopting what is there.


async def test_a_backfill_brings_a_new_counter_to_the_children_there_are_and_again_adds_nothing(likes, db):
    behind_our_back(db, *(f"x{number}" for number in range(7)))
    await likes.add("a")
    assert await likes.value() == 1
    assert await likes.backfill(by="migration") == 7
    assert await likes.value() == 8
    assert await likes.backfill() == 0
    (record,) = adjustments(db)
    assert (record[layout.ADJUSTMENT_REASON], record[layout.ADJUSTMENT_BY]) == ("backfill", "migration")


async def test_a_backfill_of_a_counter_that_another_process_deleted_makes_it_anew(likes, others_likes):
    await likes.add("a")
    others_likes.counter.delete()
    assert await likes.backfill() == 1
    assert (await likes.audit()).difference == 0


async def test_a_backfill_is_exact_while_adds_and_removes_go_on(likes, others_likes, db):
    behind_our_back(db, *(f"x{number}" for number in range(50)))
    with going_on(others_likes, threads=2) as calls:
        for _ in range(3):
            await likes.backfill()
    assert calls.made > 10
    assert (await likes.audit()).difference == 0
    assert await likes.backfill() == 0
    assert sum(record[layout.ADJUSTMENT_DIFFERENCE] for record in adjustments(db)) == 50


async def test_backfills_at_once_add_up_to_one(likes, db):
    behind_our_back(db, *(f"x{number}" for number in range(9)))
    added = await asyncio.gather(*(likes.backfill() for _ in range(4)))
    assert sorted(added) == [0, 0, 0, 9]
    assert (await likes.audit()).difference == 0


async def test_a_backfill_counts_what_its_commit_was_overtaken_by(metered, others_likes, db, meanwhile):
    likes = children(metered.app(), POST, "likes")
    others_likes.create()
    behind_our_back(db, "x", "y")
    meanwhile(lambda: (others_likes.add("a"), others_likes.remove("x")), before="Commit")
    assert await likes.backfill() == 2
    found = others_likes.audit()
    assert (found.difference, found.actual) == (0, 2)


# Under live traffic.


class Calls:
    """How many likes and unlikes were made while a block ran."""

    def __init__(self):
        self.made = 0
        self._lock = threading.Lock()

    def add(self, number):
        with self._lock:
            self.made += number


@contextmanager
def going_on(*counts, threads):
    """Likes and unlikes, all of them granted, while the block runs."""
    calls = Calls()
    over = threading.Event()

    def like(thread):
        turn = 0
        while not over.is_set() or turn < 2:
            likes = counts[turn % len(counts)]
            user = f"live{thread}-{turn % 5}"
            assert likes.add(user) is True
            if turn % 3:
                assert likes.remove(user) is True
                calls.add(2)
            else:
                calls.add(1)
                user += f"-{turn}"
                assert likes.add(user) is True
                assert likes.remove(user[: user.rindex("-")]) is True
                calls.add(2)
            turn += 1

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(like, thread) for thread in range(threads)]
        try:
            yield calls
        finally:
            over.set()
        for future in futures:
            future.result()


@pytest.mark.parametrize("audits", [20, pytest.param(200, marks=pytest.mark.proof)])
def test_audits_under_live_load_find_no_false_drift_and_hold_up_no_writer(
    counters_gateway, counters_gateway_client, db, audits
):
    """Writers go through the gateway: each of their calls is a begin and a commit, never more."""
    app = Counters(counters_gateway_client, shards=3, policy=Policy(prune_chance=0))
    likes, auditor = app.children(POST, "likes"), Counters(db).children(POST, "likes")
    likes.add("first")
    commits = Overheard("Commit")
    counters_gateway.script(commits)
    with counters_gateway.measure() as bill, going_on(likes, threads=4) as calls:
        found = [auditor.audit() for _ in range(audits)]
    assert [audit.difference for audit in found] == [0] * audits
    assert calls.made > audits
    assert len({audit.actual for audit in found}) > 1, "the likes went on"
    # No call was refused, aborted or tried again, as it would be after waiting for a lock in vain.
    assert bill.rpcs == {"BeginTransaction": calls.made, "Commit": calls.made}


def test_an_audit_reads_at_its_moment_and_in_no_transaction(
    counters_gateway, counters_gateway_client, others_likes
):
    others_likes.add("a")
    heard = Overheard()
    counters_gateway.script(heard)
    app = Counters(counters_gateway_client)
    found = app.children(POST, "likes").audit()
    app.audit("posts/*/likes")
    assert "BeginTransaction" not in heard.methods
    gets = [BatchGetDocumentsRequest.pb().FromString(raw) for name, raw in heard.requests if "Get" in name]
    sums = [
        RunAggregationQueryRequest.pb().FromString(raw) for name, raw in heard.requests if "Aggreg" in name
    ]
    assert (len(gets), len(sums)) == (2, 4)
    for request in (*gets, *sums):
        assert request.WhichOneof("consistency_selector") in (None, "read_time")
    assert all(request.HasField("read_time") for request in sums)
    assert sums[0].read_time == sums[1].read_time
    assert found.as_of.timestamp() == pytest.approx(sums[0].read_time.ToMicroseconds() / 1e6, abs=1e-5)


# Many counts.


def write_posts(db, count, likers=3):
    """Posts with likes, as our own calls leave them."""
    for first in range(0, count, 50):
        batch = db.batch()
        for number in range(first, min(count, first + 50)):
            post = f"posts/p{number:05}"
            counter = layout.counter_path(post, "likes")
            batch.set(
                db.document(counter),
                {
                    layout.LAYOUT_FIELD: layout.LAYOUT,
                    layout.SHARD_COUNT: 2,
                    layout.CHILDREN: layout.children_path(counter),
                },
            )
            for shard, value in enumerate((likers + 1, -1)):
                batch.set(
                    db.document(layout.shard_path(counter, shard)),
                    {
                        layout.VALUE: value,
                        layout.WRITES: 1,
                        layout.BUCKET: layout.bucket(counter, shard),
                        layout.UPDATED_AT: SERVER_TIMESTAMP,
                    },
                )
            for user in range(likers):
                batch.set(db.document(f"{post}/likes/u{user}"), {layout.CHILD_SHARD: 0})
        batch.commit()


def everything_of(db, posts):
    """All that is stored of posts, and when it changed."""
    found = {}
    for post in posts:
        counter = layout.counter_path(post, "likes")
        documents = [db.document(counter).get()]
        for collection in (
            f"{post}/likes",
            f"{counter}/{layout.SHARDS}",
            f"{counter}/{layout.ADJUSTMENTS}",
        ):
            documents += db.collection(collection).stream()
        found[post] = {doc.reference.path: (doc.update_time, doc.to_dict()) for doc in documents}
    return found


@pytest.mark.parametrize("posts", [100, pytest.param(1000, marks=pytest.mark.proof)])
def test_drift_put_in_by_hand_is_found_among_many_and_repaired_while_likes_go_on(
    counters_gateway, counters_gateway_client, db, posts
):
    write_posts(db, posts)
    app = Counters(counters_gateway_client)
    name = "posts/p{:05}".format
    deleted, edited, added = name(7), name(posts // 2), name(posts - 1)
    live = [Counters(db, shards=2).children(name(number), "likes") for number in (7, 8, 9)]
    quiet = [name(number) for number in (0, 1, posts // 3, posts - 2)]
    db.document(f"{deleted}/likes/u1").delete()
    db.document(layout.shard_path(layout.counter_path(edited, "likes"), 1)).update({layout.VALUE: 9})
    behind_our_back(db, "x", "y", collection=f"{added}/likes")
    before = everything_of(db, quiet)

    with going_on(*live, threads=2) as calls:
        with counters_gateway.measure() as bill:
            report = app.audit("posts/*/likes")
        assert [(found.parent, found.difference) for found in report.drifted] == [
            (edited, -10),
            (added, 2),
            (deleted, -1),
        ]
        assert (len(report.audits), report.failed, report.more) == (posts, (), False)
        for found in report.drifted:
            likes = app.children(found.parent, "likes")
            assert likes.repair(found, by="op") == found.difference
        assert app.audit("posts/*/likes").drifted == ()
    assert calls.made > 0
    listed = posts + bill.rpcs["ListDocuments"] - posts // 100  # a page that finds no more is a read
    documents = sums = counts = posts
    shards = 3 * 2
    assert bill.reads == listed + documents + sums + counts + shards
    assert bill.reads == report.reads
    assert everything_of(db, quiet) == before, "what was true was not touched"
    assert app.audit("posts/*/likes").drifted == ()


async def test_parents_that_do_not_exist_are_audited_too_unless_told_otherwise(app, db):
    db.document("posts/b").set({"title": "Counting sheep"})
    for post in "abc":
        await children(app, f"posts/{post}", "likes").add("u")
    report = await app.audit("posts/*/likes")
    assert [found.parent for found in report.audits] == ["posts/a", "posts/b", "posts/c"]
    report = await app.audit("posts/*/likes", missing=False)
    assert [found.parent for found in report.audits] == ["posts/b"]


async def test_a_star_is_any_document_at_every_level(app, db):
    for path in ("posts/a/comments/1", "posts/a/comments/2", "posts/b/comments/1", "posts/b", "pages/a"):
        await children(app, path, "likes").add("u")
    behind_our_back(db, "x", collection="posts/b/comments/1/likes")
    report = await app.audit("posts/*/comments/*/likes")
    assert [(found.parent, found.difference) for found in report.audits] == [
        ("posts/b/comments/1", 1),
        ("posts/a/comments/1", 0),
        ("posts/a/comments/2", 0),
    ]
    assert [found.parent for found in (await app.audit("posts/a/comments/*/likes")).audits] == [
        "posts/a/comments/1",
        "posts/a/comments/2",
    ]
    assert [found.parent for found in (await app.audit("posts/b/likes")).audits] == ["posts/b"]
    report = await app.audit("posts/*/comments/*/likes", prefix="a", limit=1)
    assert ([found.parent for found in report.audits], report.more) == (["posts/a/comments/1"], True)


@pytest.mark.parametrize(("limit", "more"), [(1, True), (4, True), (5, False), (6, False)])
async def test_a_limit_bounds_the_audit_and_says_whether_there_is_more(app, db, limit, more):
    write_posts(db, 5)
    for number in range(5):
        db.document(f"posts/p{number:05}").set({})
    for options in ({}, {"missing": False}, {"parents": [f"p{number:05}" for number in range(5)]}):
        report = await app.audit("posts/*/likes", limit=limit, **options)
        assert (len(report.audits), report.more) == (min(limit, 5), more)


@pytest.mark.parametrize("missing", [True, False])
async def test_a_prefix_chooses_by_id_in_any_script(app, db, missing):
    for post in ("a", "b", "bü", "b日", "b😀", "c", "é"):
        db.document(f"posts/{post}").set({})
        await children(app, f"posts/{post}", "likes").add("u")

    async def parents(prefix):
        report = await app.audit("posts/*/likes", prefix=prefix, missing=missing)
        return [found.parent.partition("/")[2] for found in report.audits]

    assert await parents("b") == ["b", "bü", "b日", "b😀"]
    assert await parents("bü") == ["bü"]
    assert await parents("é") == ["é"]
    assert await parents("z") == []


async def test_parents_are_named_by_document_path_or_id_and_audited_once(app, twin, db):
    write_posts(db, 4)
    named = [twin.client.document("posts/p00002"), "posts/p00001", "p00001", "p00002", "nobody"]
    report = await app.audit("posts/*/likes", parents=named)
    assert [(found.parent, found.exists) for found in report.audits] == [
        ("posts/nobody", False),
        ("posts/p00001", True),
        ("posts/p00002", True),
    ]
    assert (await app.audit("posts/*/likes", parents=[])).audits == ()


async def test_a_count_that_cannot_be_audited_is_reported_and_stops_no_other(app, db):
    write_posts(db, 5)
    counters = [layout.counter_path(f"posts/p{number:05}", "likes") for number in range(5)]
    db.document(layout.shard_path(counters[0], 0)).update({layout.VALUE: "four"})
    db.document(layout.shard_path(counters[1], 0)).update({layout.VALUE: 0.5})
    db.document(counters[2]).update({layout.LAYOUT_FIELD: layout.LAYOUT + 1})
    db.document(counters[3]).update({layout.CHILDREN: "posts/p00003/shares"})
    report = await app.audit("posts/*/likes")
    assert [(found.parent, found.difference) for found in report.audits] == [("posts/p00004", 0)]
    errors = {failure.parent: str(failure.error) for failure in report.failed}
    assert list(errors) == [f"posts/p{number:05}" for number in range(4)]
    assert layout.shard_path(counters[0], 0) in errors["posts/p00000"]
    assert "'four'" in errors["posts/p00000"]
    assert layout.shard_path(counters[1], 0) in errors["posts/p00001"]
    assert "upgrade" in errors["posts/p00002"]
    assert "counts posts/p00003/shares" in errors["posts/p00003"]


async def test_progress_is_told_page_by_page(app):
    told = []
    nobody = [f"nobody{number}" for number in range(205)]
    report = await app.audit("posts/*/likes", parents=nobody, progress=told.append, concurrency=4)
    assert told == [100, 200, 205]
    assert len(report.audits) == 205
    assert report.seconds > 0


async def test_the_async_twin_awaits_a_progress_that_can_be_awaited(counters_async_client):
    told = []

    async def progress(number):
        await asyncio.sleep(0)
        told.append(number)

    await AsyncCounters(counters_async_client).audit("posts/*/likes", parents=["a", "b"], progress=progress)
    assert told == [2]


async def test_a_wrong_question_is_refused_before_anything_is_sent(metered, counters_gateway):
    app = metered.app()
    wrong = [
        ({"pattern": "posts"}, InvalidValue),
        ({"pattern": "posts/*"}, InvalidValue),
        ({"pattern": 7}, InvalidType),
        ({"limit": 0}, InvalidValue),
        ({"limit": True}, InvalidType),
        ({"prefix": "a/b"}, InvalidValue),
        ({"prefix": 5}, InvalidType),
        ({"prefix": "a", "parents": ["b"]}, InvalidValue),
        ({"parents": "posts/a"}, InvalidType),
        ({"parents": ["pages/a"]}, InvalidValue),
        ({"parents": [5]}, InvalidType),
        ({"concurrency": 0}, InvalidValue),
    ]
    with counters_gateway.measure() as bill:
        for options, error in wrong:
            with pytest.raises(error):
                await app.audit(**({"pattern": "posts/*/likes"} | options))
    assert bill.round_trips == 0


# What may explain a drift.


async def test_an_explanation_names_who_was_never_counted_and_when_things_last_changed(likes, db):
    await likes.add("a")
    await likes.add("b")
    behind_our_back(db, "older")
    await likes.backfill()
    counted = await likes.audit()
    behind_our_back(db, "x", "y")
    found = await likes.audit()
    evidence = await likes.explain(found)
    assert evidence.uncounted == ("x", "y")
    assert evidence.newest_child == "y"
    assert evidence.children_seen == 5
    assert evidence.child_changed_at == db.document(f"{LIKES}/y").get().update_time
    (record,) = adjustments(db)
    assert evidence.adjusted_at >= record[layout.ADJUSTMENT_AT]
    assert evidence.counted_at <= evidence.shard_changed_at < counted.as_of < evidence.child_changed_at
    assert (evidence.orphans, evidence.strangers) == (0, ())


def test_an_explanation_finds_the_second_in_which_the_difference_came(others_likes, db):
    for user in "abcd":
        others_likes.add(user)
    time.sleep(1.1)
    before = others_likes.audit()
    db.document(f"{LIKES}/a").delete()
    after = others_likes.audit()
    time.sleep(1.1)
    evidence = others_likes.explain(others_likes.audit())
    assert evidence.came_after < after.as_of
    assert before.as_of < evidence.came_by
    assert evidence.came_by - evidence.came_after <= timedelta(seconds=1)


async def test_an_explanation_tells_orphans_and_strangers_among_the_shards(likes, others_likes, db):
    await likes.add("a")
    db.document(f"{COUNTER}/{layout.SHARDS}/notes").set({layout.VALUE: 5})
    found = await likes.audit()
    assert found.difference == -5
    evidence = await likes.explain(found)
    assert (evidence.strangers, evidence.orphans) == (("notes",), 0)
    others_likes.counter.delete()
    await likes.add("b")  # of what its cache still knows
    evidence = await likes.explain(await likes.audit())
    assert (evidence.strangers, evidence.orphans) == ((), 1)


async def test_an_explanation_of_nothing_is_empty(likes):
    evidence = await likes.explain(await likes.audit())
    assert (evidence.newest_child, evidence.child_changed_at, evidence.counted_at) == (None, None, None)
    assert (evidence.uncounted, evidence.children_seen, evidence.adjusted_at) == ((), 0, None)
    assert evidence.came_after is None
