"""Many writers while faults strike at random; and receipts, however many writers come."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from callers import SHORT
from google.cloud import firestore

from counters import Counters, OutcomeUnknown, Policy, layout, receipts
from counters.lanes import Lanes
from counters.testing import DeliveredTwice, HeldBack, LostAnswer, LostRequest, Refused

A_FIFTH_LOST = {LostAnswer("Commit"): 0.2}
A_BAD_DAY = {
    LostAnswer("Commit"): 0.04,
    LostAnswer("Commit", code=grpc.StatusCode.ABORTED): 0.02,
    HeldBack("Commit"): 0.02,
    DeliveredTwice("Commit"): 0.02,
    LostAnswer("Rollback"): 0.05,
    LostRequest("Rollback"): 0.05,
    Refused("Rollback", grpc.StatusCode.INTERNAL): 0.05,
    LostRequest("BatchGetDocuments"): 0.1,
    LostRequest("RunAggregationQuery"): 0.1,
    LostRequest("BeginTransaction"): 0.05,
    Refused("BeginTransaction", grpc.StatusCode.UNAVAILABLE): 0.05,
}


@pytest.mark.parametrize(
    "rates", [A_FIFTH_LOST, A_BAD_DAY], ids=["a fifth of the answers lost", "a bad day"]
)
def test_eight_writers_count_400_of_400(caller, gateway, post, rates, record_property):
    likes = caller.app(SHORT).on(post, "likes")
    caller.wait(likes.create(shards=4))
    before = sum(gateway.struck.values())
    gateway.random(seed=5, rates=rates)
    for _ in range(10):
        errors = caller.side_by_side(40, lambda _: likes.increment())
        assert errors == [None] * 40
    gateway.calm()
    gateway.release()
    assert caller.wait(likes.value()) == 400
    struck = sum(gateway.struck.values()) - before
    assert struck > 40
    record_property("faults", f"{caller.name}: 400 of 400 with {struck} faults")


def test_control_the_sdks_increment_counts_more_than_there_were(callers, gateway, post, record_property):
    document = callers["sync"].client.document(post)
    gateway.random(seed=5, rates=A_FIFTH_LOST)
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda _: document.set({"likes": firestore.Increment(1)}, merge=True), range(400)))
    gateway.calm()
    counted = document.get().get("likes")
    assert counted > 440
    record_property("faults", f"control, the SDK's set(Increment): {counted} of 400 with the same faults")


def size_of(fields):
    """What Firestore counts for a map's fields: names of n bytes are n + 1, integers 8.

    (https://firebase.google.com/docs/firestore/storage-size, 2026-11-30)
    """
    return sum(
        len(name) + 1 + (size_of(value) if isinstance(value, dict) else 8) for name, value in fields.items()
    )


def test_a_shard_stays_below_32_kib_however_many_short_lived_writers_come(db, post, record_property):
    """Each increment is another process's first, and none of their receipts is old enough to go."""
    app = Counters(db, policy=Policy(seed=2))
    likes = app.on(post, "likes")
    likes.create(shards=1)
    likes.increment()
    shard = db.document(layout.shard_path(likes.path, 0))
    sizes = []
    mutex = threading.Lock()

    def short_lived(number):
        with mutex:
            app.context.lanes = Lanes()
        likes.increment()
        if number % 20 == 0:
            sizes.append(size_of(shard.get().to_dict()))

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(short_lived, range(3000)))
    assert likes.value() == 3001
    assert max(sizes) < 32 * 1024
    assert max(sizes) > receipts.MOST_KEPT * 19, "so many came that receipts had to go early"
    kept = shard.get().to_dict()
    assert kept[layout.PRUNED] < min(kept[layout.RECEIPTS].values())
    record_property("faults", f"3,000 short-lived writers, one shard: {max(sizes):,} bytes at most")


@pytest.mark.parametrize(("fault", "known"), [(LostAnswer("Commit"), True), (LostRequest("Commit"), False)])
def test_a_doubt_older_than_the_receipts_that_were_kept_is_settled_by_a_receipt_only(
    db, callers, gateway, post, fault, known
):
    """Its own receipt proves that it was applied; that there is none proves nothing."""
    likes = callers["sync"].app().on(post, "likes")
    likes.create(shards=1)
    likes.increment()
    db.document(layout.shard_path(likes.path, 0)).update({layout.PRUNED: 2**62})
    gateway.script(fault)
    if known:
        likes.increment()
    else:
        with pytest.raises(OutcomeUnknown, match="removed early"):
            likes.increment()
    assert likes.value() == 1 + known
