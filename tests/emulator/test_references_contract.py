"""What a reference count promises, held against both twins by the same tests."""

import asyncio
from datetime import datetime

import numpy as np
import pytest
from google.api_core.exceptions import AlreadyExists, NotFound
from google.cloud.firestore import DELETE_FIELD, SERVER_TIMESTAMP, ArrayUnion, Increment
from reference_twins import children, reference_count

from counters import (
    AsyncCounters,
    AsyncReferenceCount,
    Counters,
    InvalidType,
    InvalidValue,
    Mirror,
    NotApplied,
    ReferenceCount,
    SettingsConflict,
    Total,
    UnsupportedLayout,
    layout,
)
from counters.testing import open_async_client, open_client

POST = "posts/a91f"
LIKES = "posts/a91f/likes"
COUNTER = "posts/a91f/counters/likes"


@pytest.fixture
def app(twin):
    return twin.app(shards=3)


@pytest.fixture
def likes(app):
    return children(app, POST, "likes")


def ids(db, collection=LIKES):
    return {child.id for child in db.collection(collection).stream()}


def stored(db, path):
    return db.document(path).get().to_dict()


def shards(db):
    return {shard.id: shard.to_dict() for shard in db.document(COUNTER).collection(layout.SHARDS).stream()}


def agree(db, count):
    """Whether there are so many children and the shards add up to as many, as they are stored."""
    return len(ids(db)) == sum(shard[layout.VALUE] for shard in shards(db).values()) == count


# Liking and unliking.


async def test_a_like_and_its_count_come_and_go_together_and_twice_is_once(likes, db):
    assert await likes.add("u7c20") is True
    assert await likes.add("u7c20") is False
    assert agree(db, 1)
    assert await likes.add("u9f00") is True
    assert ids(db) == {"u7c20", "u9f00"}
    assert agree(db, 2)
    assert await likes.remove("u7c20") is True
    assert await likes.remove("u7c20") is False
    assert ids(db) == {"u9f00"}
    assert agree(db, 1)


async def test_an_unlike_of_what_was_never_liked_counts_nothing(likes, db):
    assert await likes.remove("u7c20") is False
    assert agree(db, 0)


async def test_one_shard_may_be_negative_and_the_value_never_is(twin, db):
    likes = children(twin.app(shards=50), POST, "likes")
    for user in "abcdefgh":
        assert await likes.add(user)
    for user in "abcdefgh":
        assert await likes.remove(user)
    assert agree(db, 0)
    # That each unlike met the shard of a like has the chance 8! / 50 ** 8 = 1e-9.
    assert min(shard[layout.VALUE] for shard in shards(db).values()) < 0


async def test_contains_says_whether_a_child_is_there(likes):
    assert await likes.contains("u7c20") is False
    await likes.add("u7c20")
    assert await likes.contains("u7c20") is True
    await likes.remove("u7c20")
    assert await likes.contains("u7c20") is False


async def test_children_without_an_id_get_one_of_their_own(likes, db):
    first, second = await likes.add_new({"text": "so true"}), await likes.add_new()
    assert ids(db) == {first, second}
    assert stored(db, f"{LIKES}/{first}")["text"] == "so true"
    assert agree(db, 2)


async def test_the_total_is_what_the_rollup_wrote(app, likes):
    assert await likes.total() == Total(None, None)
    await likes.add("u7c20")
    await app.roll_up()
    assert (await likes.total()).value == 1
    assert (await likes.audit()).total == 1


async def test_the_users_document_is_never_written(likes, db):
    await likes.add("u7c20")
    await likes.remove_all()
    await likes.backfill()
    assert not db.document(POST).get().exists


async def test_likes_of_two_posts_and_two_kinds_do_not_mix(app):
    counts = [
        children(app, *place)
        for place in (("posts/a", "likes"), ("posts/a", "shares"), ("posts/b", "likes"), (POST, "likes"))
    ]
    for number, count in enumerate(counts, start=1):
        for user in range(number):
            assert await count.add(f"u{user}")
    assert [await count.value() for count in counts] == [1, 2, 3, 4]


async def test_any_collection_can_be_counted_at_any_document(twin, db):
    kinds = ReferenceCount, AsyncReferenceCount
    members = reference_count(twin, kinds, "members", "statistics/members")
    assert await members.add("u7c20") is True
    assert await members.value() == 1
    found = await members.audit()
    assert (found.path, found.children, found.parent) == ("statistics/members", "members", "")
    assert ids(db, "members") == {"u7c20"}


# Ids.

ODD = ["ü", "日本語", "😀", "a b", "a.b", "`", "*", "%2F", "...", "a\nb", "__a", "x" * 1500, "é" * 750]


async def test_whatever_firestore_takes_for_an_id_can_be_a_child(likes, db):
    assert await asyncio.gather(*(likes.add(odd) for odd in ODD)) == [True] * len(ODD)
    assert ids(db) == set(ODD)
    assert await asyncio.gather(*(likes.add(odd) for odd in ODD)) == [False] * len(ODD)
    assert agree(db, len(ODD))
    assert await asyncio.gather(*(likes.contains(odd) for odd in ODD)) == [True] * len(ODD)
    assert await asyncio.gather(*(likes.remove(odd) for odd in ODD)) == [True] * len(ODD)
    assert agree(db, 0)


async def test_what_can_be_no_id_is_refused_and_nothing_is_stored(likes, twin, db):
    batch = twin.client.batch()
    for bad in ("", ".", "..", "a/b", "__a__", "x" * 1501, "é" * 751, "\ud800"):
        calls = (likes.add(bad), likes.remove(bad), likes.contains(bad))
        for refusing in (*calls, likes.stage_add(batch, bad), likes.stage_remove(batch, bad)):
            with pytest.raises(InvalidValue):
                await refusing
    assert len(batch) == 0
    assert stored(db, COUNTER) is None


async def test_an_id_that_is_no_text_is_refused(likes):
    for bad in (None, 7, b"u7c20", 1.5, ["u"]):
        for refusing in (likes.add(bad), likes.remove(bad), likes.contains(bad)):
            with pytest.raises(InvalidType):
                await refusing


# Data.


async def test_a_child_holds_its_data_with_transforms_and_the_shard_that_counted_it(likes, db):
    data = {
        "at": SERVER_TIMESTAMP,
        "clicks": Increment(3),
        "tags": ArrayUnion(["a"]),
        "from": {"city.of": "Köln", "😀": None},
    }
    assert await likes.add("u7c20", data) is True
    child = stored(db, f"{LIKES}/u7c20")
    assert isinstance(child.pop("at"), datetime)
    counted_by = child.pop(layout.CHILD_SHARD)
    assert child == {"clicks": 3, "tags": ["a"], "from": {"city.of": "Köln", "😀": None}}
    assert shards(db)[str(counted_by)][layout.VALUE] == 1


async def test_a_child_may_have_nothing_but_transforms_or_nothing_at_all(likes, db):
    await likes.add("a", {"at": SERVER_TIMESTAMP})
    await likes.add("b", {})
    assert set(stored(db, f"{LIKES}/a")) == {"at", layout.CHILD_SHARD}
    assert set(stored(db, f"{LIKES}/b")) == {layout.CHILD_SHARD}
    assert agree(db, 2)


async def test_a_double_tap_leaves_the_child_as_it_is(likes, db):
    await likes.add("u7c20", {"n": 1})
    before = db.document(f"{LIKES}/u7c20").get()
    assert await likes.add("u7c20", {"n": 2}) is False
    after = db.document(f"{LIKES}/u7c20").get()
    assert (after.to_dict(), after.update_time) == (before.to_dict(), before.update_time)


BAD_DATA = [
    {1: 2},
    {"a": object()},
    {"a": np.int64(3)},
    {"a": 2**63},
    {"a": "\ud800"},
    {"": 1},
    {"a": DELETE_FIELD},
]


async def test_data_that_firestore_cannot_hold_is_refused_and_nothing_is_stored_or_staged(likes, twin, db):
    batch = twin.client.batch()
    for data in (*BAD_DATA, "text", [1], 7):
        for refusing in (likes.add("u", data), likes.add_new(data), likes.stage_add(batch, "u", data)):
            with pytest.raises(InvalidType):
                await refusing
    assert len(batch) == 0
    assert ids(db) == set()


async def test_the_field_that_is_the_counters_is_refused(likes, twin):
    data = {layout.CHILD_SHARD: 1}
    for refusing in (likes.add("u", data), likes.stage_add(twin.client.batch(), "u", data)):
        with pytest.raises(InvalidValue, match=layout.CHILD_SHARD):
            await refusing


async def test_data_that_only_the_server_can_refuse_is_not_applied(likes, db):
    with pytest.raises(NotApplied, match="reserved"):
        await likes.add("u7c20", {"__x__": 1})
    assert ids(db) == set()
    assert agree(db, 0)


# Settings, and what is no reference count.


async def test_create_says_whether_it_made_the_counter_and_asks_about_nothing_else(likes, twin, db):
    post = twin.client.document(POST)
    db.document(POST).set({})
    assert await likes.create(shards=4, mirrors=[Mirror(post, "likeCount")]) is True
    assert await likes.create() is False
    document = stored(db, COUNTER)
    assert (document[layout.SHARD_COUNT], document[layout.CHILDREN]) == (4, LIKES)
    with pytest.raises(SettingsConflict, match=r"resize\(5\)"):
        await likes.create(shards=5)


async def test_increments_and_resets_of_a_reference_count_are_refused(app, likes, twin, db):
    await likes.add("u7c20")
    counter = app.at(twin.client.document(COUNTER))
    batch = twin.client.batch()
    for refusing in (
        counter.increment(),
        counter.decrement(),
        counter.increment_once("key"),
        counter.stage(batch),
    ):
        with pytest.raises(InvalidValue, match="add and remove those instead"):
            await refusing
    with pytest.raises(InvalidValue, match=r"remove_all\(\)"):
        await counter.reset()
    assert len(batch) == 0
    assert agree(db, 1)


async def test_resizing_and_mirrors_are_the_counters(app, likes, twin, db):
    db.document(POST).set({})
    await likes.add("u7c20")
    counter = app.at(twin.client.document(COUNTER))
    await counter.resize(40)
    await counter.set_mirrors([Mirror(twin.client.document(POST), "likeCount")])
    await likes.add("u9f00")
    await app.roll_up()
    assert stored(db, POST) == {"likeCount": 2}
    assert agree(db, 2)


async def test_a_counter_of_something_else_is_refused_and_left_alone(app, twin, db):
    likes = children(app, POST, "likes")
    await app.on(POST, "likes").increment(5)
    batch = twin.client.batch()
    for refusing in (
        likes.add("u"),
        likes.remove("u"),
        likes.stage_add(batch, "u"),
        likes.stage_remove(batch, "u"),
        likes.remove_all(),
        likes.audit(),
        likes.backfill(),
    ):
        with pytest.raises(InvalidValue, match="a counter of its own"):
            await refusing
    assert await app.on(POST, "likes").value() == 5
    assert ids(db) == set()
    assert len(batch) == 0


async def test_a_document_that_is_no_counter_is_refused_and_left_alone(likes, db):
    db.document(COUNTER).set({"title": "Counting sheep"})
    for refusing in (likes.add("u"), likes.create(), likes.audit(), likes.backfill(), likes.remove_all()):
        with pytest.raises(UnsupportedLayout, match="document of its own"):
            await refusing
    assert stored(db, COUNTER) == {"title": "Counting sheep"}
    assert ids(db) == set()


def test_what_can_be_no_reference_count_is_refused(counters_client, counters_async_client):
    app, other = Counters(counters_client), Counters(counters_client)
    for name in ("counters", "counter_shards", "counter_adjustments"):
        with pytest.raises(InvalidValue):
            app.children(POST, name)
    collection, document = counters_client.collection("members"), counters_client.document("members/total")
    with pytest.raises(InvalidValue, match="count itself"):
        ReferenceCount(collection, document)
    sync, other_sync = counters_client.document("a/b"), counters_async_client.document("a/b")
    for wrong in ((collection, other_sync), (counters_async_client.collection("c"), sync), (sync, sync)):
        with pytest.raises(InvalidType):
            ReferenceCount(*wrong)
    with pytest.raises(InvalidType):
        AsyncReferenceCount(collection, other_sync)
    assert ReferenceCount(collection, sync, other).path == "a/b"
    with pytest.raises(InvalidValue):
        app.children("posts", "likes")
    with pytest.raises(InvalidType):
        app.children(POST, 7)


# Staging.


async def test_staged_likes_are_part_of_their_batch(likes, twin, db):
    await likes.add("old")
    batch = twin.client.batch()
    batch.set(twin.client.document(POST), {"title": "Counting sheep"})
    await likes.stage_add(batch, "new", {"at": SERVER_TIMESTAMP})
    await likes.stage_remove(batch, "old")
    assert agree(db, 1)
    await twin.commit(batch)
    assert ids(db) == {"new"}
    assert set(stored(db, f"{LIKES}/new")) == {"at", layout.CHILD_SHARD}
    assert stored(db, POST) == {"title": "Counting sheep"}
    assert agree(db, 1)


async def test_a_batch_that_likes_twice_is_refused_as_a_whole(likes, twin, db):
    await likes.add("u7c20")
    batch = twin.client.batch()
    batch.set(twin.client.document(POST), {"title": "Counting sheep"})
    await likes.stage_add(batch, "u9f00")
    await likes.stage_add(batch, "u7c20")
    with pytest.raises(AlreadyExists):
        await twin.commit(batch)
    assert ids(db) == {"u7c20"}
    assert stored(db, POST) is None
    assert agree(db, 1)


async def test_a_batch_that_unlikes_what_is_not_there_is_refused_as_a_whole(likes, twin, db):
    await likes.add("u7c20")
    batch = twin.client.batch()
    await likes.stage_remove(batch, "u7c20")
    await likes.stage_remove(batch, "u9f00")
    with pytest.raises(NotFound):
        await twin.commit(batch)
    assert ids(db) == {"u7c20"}
    assert agree(db, 1)


async def test_a_transaction_of_the_callers_own_likes_exactly_once(app, likes, twin, db):
    """In either twin's idiom: a body that may be run again, and whose writes are all or nothing."""
    post = twin.client.document(POST)

    if twin.name == "async":

        async def body(transaction):
            found = await post.get(transaction=transaction)
            transaction.set(post, {"seen": found.exists})
            await likes.stage_add(transaction, "u7c20")
    else:

        def body(transaction):
            found = post.get(transaction=transaction)
            transaction.set(post, {"seen": found.exists})
            likes._subject.stage_add(transaction, "u7c20")

    await app.transaction(body)
    assert agree(db, 1)
    with pytest.raises(NotApplied) as refusal:
        await app.transaction(body)
    assert isinstance(refusal.value.__cause__, AlreadyExists)
    assert agree(db, 1)


async def test_what_is_no_batch_of_this_client_is_refused(likes, twin, counters_project, counters_emulator):
    opening = open_async_client if twin.name == "async" else open_client
    with opening(counters_emulator.host, counters_project) as other:
        for batch in (other.batch(), twin.client.transaction(read_only=True)):
            with pytest.raises(InvalidValue):
                await likes.stage_add(batch, "u")
            with pytest.raises(InvalidValue):
                await likes.stage_remove(batch, "u")
    for batch in (twin.client.bulk_writer(), None, []):
        with pytest.raises(InvalidType):
            await likes.stage_add(batch, "u")


# Databases.


async def test_a_named_database_has_likes_of_its_own(counters_emulator, counters_project, db):
    here = Counters(db).children(POST, "likes")
    here.add("u7c20")
    with open_client(counters_emulator.host, counters_project, "archive") as client:
        there = Counters(client).children(POST, "likes")
        assert there.add("u7c20") is True
        assert there.add("u9f00", {"at": SERVER_TIMESTAMP}) is True
        assert there.audit().difference == 0
        assert Counters(client).audit("posts/*/likes").audits[0].actual == 2
        client.document(f"{LIKES}/u9f00").delete()
        assert there.repair(there.audit()) == -1
        assert there.remove_all() == 1
        assert client.collection(LIKES).count().get()[0][0].value == 0
    with open_async_client(counters_emulator.host, counters_project, "archive") as client:
        there = AsyncCounters(client).children(POST, "likes")
        assert await there.add("u7c20") is True
        assert await there.value() == 1
    assert here.audit().actual == 1
    assert ids(db) == {"u7c20"}
