"""Every client, database and path that Firestore has, and the commits that callers bring."""

import firebase_admin
import pytest
from firebase_admin import credentials, firestore, firestore_async
from gateway_probes import Price
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore import async_transactional, transactional
from google.cloud.firestore_v1.bulk_batch import BulkWriteBatch

from counters import (
    AsyncCounter,
    AsyncCounters,
    Counter,
    Counters,
    InvalidType,
    InvalidValue,
    Mirror,
    layout,
    roll_up,
    roll_up_async,
)
from counters.testing import open_async_client, open_client

POST = "posts/a91f"
LIKES = "posts/a91f/counters/likes"


@pytest.fixture
def app(twin):
    return twin.app()


# Clients of firebase_admin.


class Anonymous(credentials.Base):
    """Credentials of nobody: firebase_admin asks for some, an emulator does not."""

    def get_credential(self):
        return AnonymousCredentials()


@pytest.fixture
def firebase_app(counters_emulator, counters_project, monkeypatch):
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", counters_emulator.host)
    options = {"projectId": counters_project}
    app = firebase_admin.initialize_app(Anonymous(), options, name=counters_project)
    yield app
    firebase_admin.delete_app(app)


@pytest.mark.parametrize("database", [None, "archive"])
def test_the_client_of_firebase_admin_will_do(firebase_app, database):
    client = firestore.client(firebase_app, database)
    likes = Counters(client).on(POST, "likes")
    likes.increment(5)
    batch = client.batch()
    likes.stage(batch, 2)
    batch.commit()
    assert likes.value() == 7
    roll_up(client)
    assert likes.total().value == 7
    likes.delete()
    assert likes.value() == 0


@pytest.mark.parametrize("database", [None, "archive"])
async def test_the_async_client_of_firebase_admin_will_do(firebase_app, database):
    client = firestore_async.client(firebase_app, database)
    likes = AsyncCounters(client).on(POST, "likes")
    await likes.increment(5)
    batch = client.batch()
    await likes.stage(batch, 2)
    await batch.commit()
    assert await likes.value() == 7
    await roll_up_async(client)
    assert (await likes.total()).value == 7
    await likes.delete()
    assert await likes.value() == 0


def test_clients_of_firebase_admin_and_of_the_sdk_count_on_one_counter(firebase_app, db):
    Counters(firestore.client(firebase_app)).on(POST, "likes").increment(2)
    Counters(db).on(POST, "likes").increment(3)
    assert Counters(db).on(POST, "likes").value() == 5


def test_a_client_of_the_other_kind_is_refused_and_the_right_twin_named(db, counters_async_client):
    with pytest.raises(InvalidType, match="AsyncCounters takes an AsyncClient"):
        Counters(counters_async_client)
    with pytest.raises(InvalidType, match=r"Counters takes a google\.cloud\.firestore\.Client"):
        AsyncCounters(db)
    with pytest.raises(InvalidType, match="use AsyncCounter"):
        Counter(counters_async_client.document(LIKES))
    with pytest.raises(InvalidType, match="use Counter"):
        AsyncCounter(db.document(LIKES))


# Contexts.


async def test_counters_made_of_documents_share_one_context_a_client(metered, counters_gateway):
    await metered.counter(LIKES).create(shards=1)
    with counters_gateway.measure() as cold:
        await metered.counter(LIKES).increment()
    with counters_gateway.measure() as warm:
        await metered.counter(LIKES).increment()
    assert Price.on(cold).reads >= 1
    assert "BatchGetDocuments" not in warm.rpcs
    assert await metered.counter(LIKES).value() == 2


def test_clients_have_contexts_of_their_own(db, counters_emulator, counters_project):
    with open_client(counters_emulator.host, counters_project) as another:
        here, there = Counter(db.document(LIKES)), Counter(another.document(LIKES))
        here.create(shards=1)
        there.increment()
        here.resize(1000)
        for _ in range(5):
            there.increment()  # its cache knows one shard
        shards = list(db.document(LIKES).collection(layout.SHARDS).stream())
        assert [shard.id for shard in shards] == ["0"]


# Databases.


def test_counters_of_two_databases_do_not_meet(db, counters_emulator, counters_project):
    with open_client(counters_emulator.host, counters_project, "archive") as archive:
        here, there = Counters(db), Counters(archive)
        here.on(POST, "likes").increment(2)
        there.on(POST, "likes").increment(30)
        assert here.on(POST, "likes").value() == 2
        assert there.on(POST, "likes").value() == 30
        assert there.roll_up().counters == 1
        assert here.on(POST, "likes").total().value is None
        assert there.on(POST, "likes").total().value == 30


async def test_the_async_twin_counts_in_named_databases_too(counters_emulator, counters_project):
    with open_async_client(counters_emulator.host, counters_project, "archive") as archive:
        app = AsyncCounters(archive)
        await app.on(POST, "likes").increment(30)
        await app.roll_up()
        assert (await app.on(POST, "likes").total()).value == 30


def test_documents_of_another_database_are_refused(db, counters_emulator, counters_project):
    app = Counters(db)
    with open_client(counters_emulator.host, counters_project, "archive") as archive:
        there = archive.document(POST)
        with pytest.raises(InvalidValue, match="another database"):
            app.on(there, "likes")
        with pytest.raises(InvalidValue, match="another database"):
            app.at(there)
        with pytest.raises(InvalidValue, match="another database"):
            Counter(there, app)
        with pytest.raises(InvalidValue, match="another database"):
            app.on(POST, "likes").create(mirrors=[Mirror(there, "likeCount")])
    assert app.on(POST, "likes").value() == 0


def test_a_document_of_another_client_of_the_same_database_may_be_a_parent(
    db, counters_emulator, counters_project
):
    with open_client(counters_emulator.host, counters_project) as another:
        Counters(db).on(another.document(POST), "likes").increment(5)
    assert Counters(db).on(POST, "likes").value() == 5


# Paths.

IDS = [
    "two words",
    "日本語",
    "Ж" * 100,
    "👍🏽",
    "e\u0301 and \u00e9",
    "a.b~c*d[e]f`g",
    "100% & more?#:@",
    "'single' \"double\" \\back",
    "__half",
    ".hidden",
    "0",
]


async def test_a_counter_may_have_any_id_that_firestore_allows(app, db):
    counters = {
        f"posts of {name}/{name}/counters/{name}": app.on(f"posts of {name}/{name}", name) for name in IDS
    }
    for path, counter in counters.items():
        assert counter.path == path
        await counter.increment(5)
        await counter.increment(2)
    report = await app.roll_up()
    assert (report.counters, report.failed) == (len(IDS), ())
    for path, counter in counters.items():
        assert (await counter.total()).value == 7
        assert await counter.reset() == 7
        assert db.document(path).get().get(layout.TOTAL) == 7
        await counter.delete()
        assert not db.document(path).get().exists


async def test_ids_that_look_alike_are_different_counters(app):
    composed, decomposed = app.on(POST, "\u00e9"), app.on(POST, "e\u0301")
    await composed.increment(1)
    await decomposed.increment(20)
    await app.roll_up()
    assert [(await counter.total()).value for counter in (composed, decomposed)] == [1, 20]


async def test_a_counter_may_lie_at_any_depth(app, twin, db):
    levels = [f"level{level}/document {level}" for level in range(1, 6)]
    paths = ["/".join(levels[:depth]) for depth in range(1, 6)]
    counters = [app.at(twin.client.document(path)) for path in paths]
    for amount, counter in enumerate(counters, start=1):
        assert await counter.create(shards=3)
        await counter.increment(amount)
    report = await app.roll_up()
    assert (report.counters, report.failed) == (5, ())
    assert [await counter.value() for counter in counters] == [1, 2, 3, 4, 5]
    assert [db.document(path).get().get(layout.TOTAL) for path in paths] == [1, 2, 3, 4, 5]
    await counters[0].delete()
    assert [db.document(path).get().exists for path in paths] == [False] + [True] * 4
    assert [await counter.value() for counter in counters] == [0, 2, 3, 4, 5]


async def test_documents_and_their_paths_are_the_same_parent(app, twin):
    await app.on(twin.client.document(POST), "likes").increment(2)
    await app.on(POST, "likes").increment(3)
    assert await app.on(POST, "likes").value() == 5


@pytest.mark.parametrize("parent", ["posts", "posts/a/likes", "", "/posts/a", "posts//a/b", "posts/"])
async def test_a_parent_that_is_no_documents_path_is_refused(app, parent):
    with pytest.raises(InvalidValue, match="no document's path"):
        app.on(parent, "likes")


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "__likes__"])
async def test_a_name_that_can_be_no_id_is_refused(app, name):
    with pytest.raises(InvalidValue, match="can be no document id"):
        app.on(POST, name)


@pytest.mark.parametrize(("parent", "name"), [(None, "likes"), (5, "likes"), (POST, None), (POST, 5)])
async def test_what_is_neither_document_nor_name_is_refused(app, parent, name):
    with pytest.raises(InvalidType):
        app.on(parent, name)


# Commits of the caller's own.


def test_an_increment_staged_into_a_transaction_reads_and_writes_as_one(db):
    likes = Counters(db).on(POST, "likes")
    likes.create()
    post = db.document(POST)
    post.set({"open": True})

    @transactional
    def like_if_open(transaction):
        if post.get(transaction=transaction).get("open"):
            likes.stage(transaction, 5)
            transaction.update(post, {"liked": True})

    like_if_open(db.transaction())
    assert likes.value() == 5
    assert post.get().to_dict() == {"open": True, "liked": True}
    post.set({"open": False})
    like_if_open(db.transaction())
    assert likes.value() == 5


async def test_an_increment_staged_into_an_async_transaction_reads_and_writes_as_one(counters_async_client):
    client = counters_async_client
    likes = AsyncCounters(client).on(POST, "likes")
    await likes.create()
    post = client.document(POST)
    await post.set({"open": True})

    @async_transactional
    async def like_if_open(transaction):
        if (await post.get(transaction=transaction)).get("open"):
            await likes.stage(transaction, 5)
            transaction.update(post, {"liked": True})

    await like_if_open(client.transaction())
    assert await likes.value() == 5
    assert (await post.get()).to_dict() == {"open": True, "liked": True}
    await post.set({"open": False})
    await like_if_open(client.transaction())
    assert await likes.value() == 5


def test_a_transaction_that_fails_counts_nothing(db):
    likes = Counters(db).on(POST, "likes")
    likes.create()

    @transactional
    def like_and_fail(transaction):
        likes.stage(transaction, 5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        like_and_fail(db.transaction())
    assert likes.value() == 0


def test_what_does_not_commit_all_or_nothing_is_refused(db, counters_async_client):
    likes = Counters(db).on(POST, "likes")
    likes.create()
    async_client = counters_async_client
    for batch in (
        db.bulk_writer(),
        BulkWriteBatch(db),
        async_client.batch(),
        async_client.transaction(),
        db,
        None,
    ):
        with pytest.raises(InvalidType, match="all or nothing"):
            likes.stage(batch)


async def test_the_async_twin_refuses_what_does_not_commit_all_or_nothing(db, counters_async_client):
    likes = AsyncCounters(counters_async_client).on(POST, "likes")
    await likes.create()
    for batch in (db.bulk_writer(), BulkWriteBatch(db), db.batch(), db.transaction(), None):
        with pytest.raises(InvalidType, match="all or nothing"):
            await likes.stage(batch)


async def test_a_read_only_transaction_is_refused(app, twin):
    likes = app.on(POST, "likes")
    await likes.create()
    with pytest.raises(InvalidValue, match="read-only"):
        await likes.stage(twin.client.transaction(read_only=True))


def test_the_batch_of_another_client_is_refused(db, counters_emulator, counters_project):
    likes = Counters(db).on(POST, "likes")
    likes.create()
    with open_client(counters_emulator.host, counters_project) as another:
        for batch in (another.batch(), another.transaction()):
            with pytest.raises(InvalidValue, match="another client"):
                likes.stage(batch)
            assert len(batch) == 0


async def test_the_batch_of_another_async_client_is_refused(
    counters_async_client, counters_emulator, counters_project
):
    likes = AsyncCounters(counters_async_client).on(POST, "likes")
    await likes.create()
    with open_async_client(counters_emulator.host, counters_project) as another:
        for batch in (another.batch(), another.transaction()):
            with pytest.raises(InvalidValue, match="another client"):
                await likes.stage(batch)
            assert len(batch) == 0


async def test_a_bad_amount_is_refused_before_it_is_staged(app, twin):
    likes = app.on(POST, "likes")
    await likes.create()
    batch = twin.client.batch()
    for amount in (1.0, True, "1"):
        with pytest.raises(InvalidType):
            await likes.stage(batch, amount)
    with pytest.raises(InvalidValue):
        await likes.stage(batch, 2**63)
    assert len(batch) == 0
