"""Likes that never drift, whatever the network does and however many like at once."""

import asyncio
import random
import threading
from collections import Counter as Tally
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field

import grpc
import pytest
from google.api_core.exceptions import AlreadyExists
from google.cloud.firestore_v1.types import CommitRequest, CommitResponse
from reference_twins import children
from twins import AsyncTwin, SyncTwin

from counters import Counters, NotApplied, layout
from counters.testing import (
    Answer,
    DeliveredTwice,
    Exchange,
    Fault,
    Gateway,
    HeldBack,
    LostAnswer,
    LostRequest,
    Refused,
    open_async_client,
    open_client,
)

POST = "posts/a91f"
LIKES = "posts/a91f/likes"
ADDED, REMOVED = "added", "removed"


@dataclass(frozen=True)
class Recorded(Fault):
    """Nothing happens; what was applied is kept: when, to which document, and what it was."""

    _: KW_ONLY
    times: int | None = None
    changes: list[tuple[int, str, str]] = field(default_factory=list, compare=False)

    def strike(self, exchange: Exchange) -> Answer:
        answer = exchange.deliver()
        for message in answer.messages:  # none, if it was refused
            moment = CommitResponse.pb().FromString(message).commit_time.ToMicroseconds()
            for write in CommitRequest.pb().FromString(exchange.request).writes:
                name = write.update.name or write.delete
                self.changes.append((moment, name, REMOVED if write.delete else ADDED))
        return answer

    def of(self, path):
        """What became of a document, in the order of commits."""
        return [kind for _, name, kind in sorted(self.changes) if name.endswith(f"/documents/{path}")]


FAULTS = {
    LostAnswer("Commit"): 0.12,
    LostRequest("Commit"): 0.05,
    HeldBack("Commit"): 0.08,
    DeliveredTwice("Commit"): 0.06,
    DeliveredTwice("Commit", answer="first"): 0.03,
    Refused("Commit"): 0.05,
    LostAnswer("Rollback"): 0.06,
    LostRequest("Rollback"): 0.04,
    DeliveredTwice("Rollback"): 0.04,
    LostRequest("BeginTransaction"): 0.03,
    LostAnswer("BeginTransaction"): 0.03,
    LostAnswer("BatchGetDocuments"): 0.05,
}


@contextmanager
def stuck_requests_arrive_late(gateway, seed):
    """While the block runs, what was held back reaches the server sooner or later."""
    chance = random.Random(seed)
    over = threading.Event()

    def deliver():
        while not over.wait(0.02):
            for held in gateway.held:
                if chance.random() < 0.3:
                    held.release()

    thread = threading.Thread(target=deliver)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def sixteen_twins(kind, host, project):
    """Sixteen clients, each with a connection, a cache and lanes of its own."""
    with ExitStack() as stack:
        opening, twin = (open_client, SyncTwin) if kind == "sync" else (open_async_client, AsyncTwin)
        twins = [twin(stack.enter_context(opening(host, project))) for _ in range(16)]
        for each in twins:
            stack.callback(each.close)
        yield twins


@dataclass
class Liker:
    """One client that likes and unlikes at random, and notes what it was told."""

    app: object
    chance: random.Random
    told: list = field(default_factory=list)
    not_applied: int = 0

    async def like(self, calls):
        for _ in range(calls):
            # Half of the time one of few, so that many are at the same like at once.
            user = f"u{self.chance.randrange(4 if self.chance.random() < 0.5 else 200)}"
            post = f"posts/p{self.chance.randrange(5)}"
            likes = children(self.app, post, "likes")
            kind, call = self.chance.choice([(ADDED, likes.add), (REMOVED, likes.remove)])
            again = True
            while again:
                self.told.append((f"{post}/likes/{user}", kind, await self._answer(call, user)))
                again = self.chance.random() < 0.3

    async def _answer(self, call, user):
        while True:
            with suppress(NotApplied):  # as after three refusals of a second copy in a row
                return await call(user)
            self.not_applied += 1


@pytest.mark.parametrize("calls", [8, pytest.param(250, marks=pytest.mark.proof)])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_sixteen_clients_like_and_unlike_at_random_and_nothing_drifts(
    counters_emulator, counters_project, db, kind, calls
):
    """What was applied is recorded behind the gateway that makes the faults."""
    record = Recorded("Commit")
    with Gateway(counters_emulator.host) as recording, Gateway(recording.host) as faulty:
        recording.script(record)
        faulty.random(seed=calls, rates=FAULTS)
        with sixteen_twins(kind, faulty.host, counters_project) as twins:
            likers = [Liker(twin.app(shards=3), random.Random(number)) for number, twin in enumerate(twins)]
            with stuck_requests_arrive_late(faulty, seed=calls):
                await asyncio.gather(*(liker.like(calls) for liker in likers))
            faulty.release()
        assert all(faulty.struck[fault] for fault in FAULTS), faulty.struck

    told = [entry for liker in likers for entry in liker.told]
    trues = defaultdict(Tally)
    for path, change, was_this_call in told:
        trues[path][change] += was_this_call
    assert len(told) >= 16 * calls
    assert sum(liker.not_applied for liker in likers) <= len(told) / 100
    for path, counted in trues.items():
        applied = record.of(path)
        # Exactly the calls that were told True were applied, each once, ...
        assert Tally(applied) == +counted
        # ... and they took turns, in the order of their commits.
        assert all(change == (ADDED, REMOVED)[turn % 2] for turn, change in enumerate(applied))
        assert counted[ADDED] - counted[REMOVED] == db.document(path).get().exists
    assert any(sum(counted.values()) > 2 for counted in trues.values()), "nobody was liked twice"
    for number in range(5):
        found = Counters(db).children(f"posts/p{number}", "likes").audit()
        assert found.difference == 0
        assert found.actual == len(list(db.collection(found.children).stream()))


# Many at once.


@pytest.mark.parametrize("clients", [1, 20])
def test_a_like_from_twenty_threads_at_once_is_one_like(counters_emulator, counters_project, db, clients):
    with ExitStack() as stack:
        apps = [
            Counters(stack.enter_context(open_client(counters_emulator.host, counters_project)))
            for _ in range(clients)
        ]
        counts = [apps[number % clients].children(POST, "likes") for number in range(20)]
        counts[0].create()
        likes = at_once([each.add for each in counts])
        unlikes = at_once([each.remove for each in counts])
    assert Tally(likes) == Tally(unlikes) == {True: 1, False: 19}
    assert Counters(db).children(POST, "likes").audit().difference == 0
    assert Counters(db).children(POST, "likes").value() == 0


async def test_a_like_from_twenty_tasks_at_once_is_one_like(counters_async_client):
    likes = AsyncTwin(counters_async_client).app().children(POST, "likes")
    assert Tally(await asyncio.gather(*(likes.add("u7c20") for _ in range(20)))) == {True: 1, False: 19}
    assert await likes.value() == 1
    assert Tally(await asyncio.gather(*(likes.remove("u7c20") for _ in range(20)))) == {True: 1, False: 19}
    assert await likes.value() == 0


def at_once(calls):
    """What came of calls for one user that begin together."""
    start = threading.Barrier(len(calls))

    def one(call):
        start.wait()
        return call("u7c20")

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


# One fault after the other.


@pytest.fixture
def likes(metered):
    """Through the gateway."""
    return children(metered.app(shards=2), POST, "likes")


@pytest.fixture
def others_likes(db):
    """The same as another process has it, past the gateway."""
    return Counters(db, shards=2).children(POST, "likes")


def agree(others_likes, count):
    found = others_likes.audit()
    assert (found.stored, found.actual) == (count, count)


async def test_a_like_that_arrives_after_the_unlike_likes_nothing(likes, others_likes, counters_gateway):
    await likes.create()
    counters_gateway.script(HeldBack("Commit"))
    assert await likes.add("u7c20") is True
    assert await likes.remove("u7c20") is True
    (late,) = counters_gateway.release()
    assert late.code is not grpc.StatusCode.OK
    assert others_likes.contains("u7c20") is False
    agree(others_likes, 0)


async def test_an_unlike_that_arrives_after_the_next_like_removes_nothing(
    likes, others_likes, counters_gateway
):
    await likes.add("u7c20")
    counters_gateway.script(HeldBack("Commit"))
    assert await likes.remove("u7c20") is True
    assert await likes.add("u7c20") is True
    (late,) = counters_gateway.release()
    assert late.code is not grpc.StatusCode.OK
    assert others_likes.contains("u7c20") is True
    agree(others_likes, 1)


async def test_a_like_whose_answer_was_lost_is_told_true_although_others_toggled_it_since(
    likes, others_likes, counters_gateway, meanwhile
):
    await likes.create()
    others = []

    def toggle():
        calls = (others_likes.remove, others_likes.add, others_likes.remove)
        others.extend(call("u7c20") for call in calls)

    counters_gateway.script(LostAnswer("Commit"))
    meanwhile(toggle, before="Rollback")
    assert await likes.add("u7c20") is True
    assert others == [True, True, True]
    agree(others_likes, 0)


async def test_a_like_whose_request_was_lost_is_told_false_where_others_liked_meanwhile(
    likes, others_likes, counters_gateway, meanwhile
):
    await likes.create()
    counters_gateway.script(LostRequest("Commit"))
    meanwhile(lambda: others_likes.add("u7c20"), before="Rollback")
    assert await likes.add("u7c20") is False
    agree(others_likes, 1)


@pytest.mark.parametrize("answer", ["first", "second"])
async def test_a_like_that_is_delivered_twice_is_one_like_of_this_call(
    likes, others_likes, counters_gateway, answer
):
    await likes.create()
    counters_gateway.script(DeliveredTwice("Commit", answer=answer))
    assert await likes.add("u7c20") is True
    agree(others_likes, 1)
    counters_gateway.script(DeliveredTwice("Commit", answer=answer))
    assert await likes.remove("u7c20") is True
    agree(others_likes, 0)


async def test_a_staged_like_whose_commit_the_sdk_sends_twice_is_refused_and_yet_counted_once(
    likes, others_likes, metered, counters_gateway
):
    """What the docstring of ``stage_add`` says of commits that the SDK repeats."""
    batch = metered.client.batch()
    await likes.stage_add(batch, "u7c20")
    counters_gateway.script(LostAnswer("Commit"))
    with pytest.raises(AlreadyExists):
        await metered.commit(batch)
    assert others_likes.contains("u7c20") is True
    agree(others_likes, 1)


async def test_a_like_within_the_callers_transaction_is_told_from_a_second_copy(
    likes, others_likes, metered, counters_gateway
):
    app = metered.app(shards=2)
    await likes.create()
    stage = likes.stage_add if metered.name == "async" else likes._subject.stage_add
    counters_gateway.script(LostAnswer("Commit"))
    await app.transaction(lambda transaction: stage(transaction, "u7c20"))
    agree(others_likes, 1)


async def test_who_likes_on_a_counter_that_is_deleted_leaves_orphans_that_the_audit_sees(
    likes, others_likes, db
):
    await likes.remove("u7c20")  # from now on its settings are in the cache
    others_likes.counter.delete()
    assert await likes.add("u7c20") is True
    found = others_likes.audit()
    assert (found.exists, found.stored, found.actual) == (False, 1, 1)
    assert others_likes.create() is True
    assert others_likes.audit().difference == 1
    assert others_likes.backfill() == 1
    agree(others_likes, 1)
    assert db.document(f"{LIKES}/u7c20").get().get(layout.CHILD_SHARD) in (0, 1)
