"""Every kind of fault against every call, of both twins: nothing is lost, nothing counts double.

Each cell makes a call three times; the fault strikes the second. The controls make the same of what
the SDK offers, and do count double: so the matrix can fail.
"""

import grpc
import pytest
from google.cloud import firestore

from counters import Counters, layout
from counters.testing import (
    ConnectionCut,
    Delayed,
    DeliveredTwice,
    HeldBack,
    LostAnswer,
    LostRequest,
    Refused,
)

CODES = [
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
]

# Kinds of fault, each as what the gateway is told. The first commit after it is told is hit.
FAULTS = {
    **{f"refused, {code.name}": [Refused("Commit", code)] for code in CODES},
    **{f"applied, then {code.name}": [LostAnswer("Commit", code=code)] for code in CODES},
    "applied, then INVALID_ARGUMENT": [LostAnswer("Commit", code=grpc.StatusCode.INVALID_ARGUMENT)],
    "applied, then PERMISSION_DENIED": [LostAnswer("Commit", code=grpc.StatusCode.PERMISSION_DENIED)],
    "request lost": [LostRequest("Commit")],
    "request lost, thrice": [LostRequest("Commit", times=3)],
    "request late": [Delayed("Commit", 0.02)],
    "request held back": [HeldBack("Commit")],
    "request held back, ABORTED": [HeldBack("Commit", code=grpc.StatusCode.ABORTED)],
    "connection cut before": [ConnectionCut("Commit")],
    "connection cut after": [ConnectionCut("Commit", applied=True)],
    "delivered twice, first answer": [DeliveredTwice("Commit", answer="first")],
    "delivered twice, second answer": [DeliveredTwice("Commit")],
    "answer lost, rollback refused": [
        LostAnswer("Commit"),
        Refused("Rollback", grpc.StatusCode.INTERNAL),
    ],
    "answer lost, rollback lost": [LostAnswer("Commit"), LostRequest("Rollback")],
    "answer lost, rollback's answer lost": [LostAnswer("Commit"), LostAnswer("Rollback")],
    "held back, rollback and resend lost": [
        HeldBack("Commit"),
        LostRequest("Commit", nth=2),
        LostRequest("Rollback"),
    ],
    "held back, rollback lost, resend ABORTED": [
        HeldBack("Commit"),
        Refused("Commit", nth=2),
        LostRequest("Rollback"),
    ],
    "held back, rollback lost, resend applied": [HeldBack("Commit"), LostRequest("Rollback")],
    "held back with its rollback": [HeldBack("Commit"), HeldBack("Rollback")],
    "answer lost, reads fail": [LostAnswer("Commit"), LostRequest("BatchGetDocuments", times=2)],
    "request lost, reads refused": [
        LostRequest("Commit"),
        Refused("BatchGetDocuments", grpc.StatusCode.INTERNAL),
    ],
    "begin lost": [LostRequest("BeginTransaction")],
    "begin's answer lost": [LostAnswer("BeginTransaction")],
    "all answers lost, twice": [LostAnswer(times=2)],
    "everything lost, twice": [LostRequest(times=2)],
}


class Increments:
    """``increment`` of different amounts."""

    def __init__(self, caller, post):
        self.caller, self.likes = caller, caller.app().on(post, "likes")

    def prepare(self):
        self.caller.wait(self.likes.create(shards=2))

    def call(self, number):
        self.caller.wait(self.likes.increment(10**number))

    value = 111


class Decrements(Increments):
    """``decrement``, on one shard."""

    def prepare(self):
        self.caller.wait(self.likes.create(shards=1, initial=1000))

    def call(self, number):
        self.caller.wait(self.likes.decrement(10**number))

    value = 889


class Keys(Increments):
    """``increment_once``: says True once for each key."""

    def call(self, number):
        assert self.caller.wait(self.likes.increment_once(f"key {number}", 10**number)) is True


class KeysAgain(Increments):
    """``increment_once`` of a key that was used before: False, and nothing."""

    def prepare(self):
        super().prepare()
        assert self.caller.wait(self.likes.increment_once("key", 7)) is True

    def call(self, _):
        assert self.caller.wait(self.likes.increment_once("key", 7)) is False

    value = 7


class Transactions(Increments):
    """``Counters.transaction`` with a staged increment and a document of the caller's own."""

    def __init__(self, caller, post):
        super().__init__(caller, post)
        self.app, self.post = caller.app(), post
        self.likes = self.app.on(post, "likes")

    def call(self, number):
        mine = self.caller.client.document(f"{self.post}/orders/{number}")
        returned = self.caller.transaction(
            self.app,
            lambda transaction: self.likes.stage(transaction, 10**number),
            lambda transaction: transaction.create(mine, {"n": number}),
        )
        assert returned == "returned"


class Children(Increments):
    """``add`` says True when it added, though the answer was lost."""

    def __init__(self, caller, post):
        super().__init__(caller, post)
        self.likes = caller.app().children(post, "likes")

    def call(self, number):
        assert self.caller.wait(self.likes.add(f"user {number}")) is True

    value = 3


class ChildrenAgain(Children):
    """``add`` of a child that is there says False, and nothing changes."""

    def prepare(self):
        super().prepare()
        assert self.caller.wait(self.likes.add("user")) is True

    def call(self, _):
        assert self.caller.wait(self.likes.add("user")) is False

    value = 1


class ChildrenRemoved(Children):
    """``remove`` says True when it removed."""

    def prepare(self):
        super().prepare()
        for number in range(5):
            self.caller.wait(self.likes.add(f"user {number}"))

    def call(self, number):
        assert self.caller.wait(self.likes.remove(f"user {number}")) is True

    value = 2


class ChildrenSwept(Children):
    """``remove_all`` says how many it removed."""

    def prepare(self):
        super().prepare()
        assert self.caller.wait(self.likes.add("user")) is True

    def call(self, number):
        assert self.caller.wait(self.likes.remove_all()) == 1
        assert self.caller.wait(self.likes.add(f"user {number}")) is True

    value = 1


class Creations(Increments):
    """``create`` with an initial value starts there once; the counter is new each time."""

    def prepare(self):
        """Nothing is there."""

    def call(self, number):
        if number:
            self.caller.wait(self.likes.delete())
        assert self.caller.wait(self.likes.create(shards=2, initial=111)) is True


class Resets(Increments):
    """``reset`` takes what there is, once."""

    def prepare(self):
        super().prepare()
        self.caller.wait(self.likes.increment(5))

    def call(self, number):
        assert self.caller.wait(self.likes.reset()) == (5, 7, 7)[number]
        self.caller.wait(self.likes.increment(7))

    value = 7


class Resizes(Increments):
    """``resize`` between increments."""

    def call(self, number):
        self.caller.wait(self.likes.resize(number + 1))
        self.caller.wait(self.likes.increment(10**number))


CALLS = [
    Increments,
    Decrements,
    Keys,
    KeysAgain,
    Transactions,
    Children,
    ChildrenAgain,
    ChildrenRemoved,
    ChildrenSwept,
    Creations,
    Resets,
    Resizes,
]


VARIANTS = {
    "request lost, thrice",
    "request held back, ABORTED",
    "answer lost, rollback's answer lost",
    "request lost, reads refused",
    "begin's answer lost",
}
CORE = [
    name for name in FAULTS if name not in VARIANTS and not any(code.name in name for code in CODES[2:])
]
"""What `make test` holds all calls against; increments, and `make proof`, meet all there are."""

# Calls that leave no receipt, or change nothing, believe a refusal that no repeat can mend.
BELIEVING = {ChildrenAgain, Creations, Resizes}
CELLS = [
    pytest.param(
        call,
        faults,
        id=f"{call.__name__}, {name}",
        marks=[] if call is Increments or name in CORE else pytest.mark.proof,
    )
    for call in CALLS
    for name, faults in FAULTS.items()
    if not (call in BELIEVING and "PERMISSION_DENIED" in name)
]


@pytest.mark.parametrize(("call", "faults"), CELLS)
def test_nothing_is_lost_and_nothing_counts_double(call, faults, caller, gateway, post):
    calls = call(caller, post)
    calls.prepare()
    for number in range(3):
        if number == 1:
            gateway.script(*faults)
        calls.call(number)
    gateway.calm()
    gateway.release()
    assert caller.wait(calls.likes.value()) == calls.value


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_each_fault_of_the_matrix_strikes(faults, callers, gateway, post):
    """Else a cell would show nothing: a fault must meet at least the increments."""
    calls = Increments(callers["sync"], post)
    calls.prepare()
    before = sum(gateway.struck.values())
    gateway.script(*faults)
    for number in range(3):
        calls.call(number)
    assert sum(gateway.struck.values()) > before


# Controls: what the SDK and Google's documentation offer, through the same gateway.


@pytest.fixture
def naive(callers):
    return callers["sync"].client


def test_control_the_sdks_increment_counts_a_lost_answer_twice(naive, gateway, post):
    document = naive.document(post)
    gateway.script(LostAnswer("Commit"))
    document.set({"likes": firestore.Increment(1)}, merge=True)
    assert document.get().get("likes") == 2


def test_control_a_staged_increment_in_a_batch_counts_a_lost_answer_twice(naive, db, gateway, post):
    likes = Counters(naive).on(post, "likes")
    likes.create(shards=1)
    batch = naive.batch()
    likes.stage(batch)
    gateway.script(LostAnswer("Commit"))
    batch.commit()
    assert db.document(layout.shard_path(likes.path, 0)).get().get(layout.VALUE) == 2


def test_control_transactional_runs_its_body_again_after_an_applied_commit(naive, gateway, post):
    document = naive.document(post)
    runs = []

    @firestore.transactional
    def like(transaction):
        runs.append(1)
        transaction.set(document, {"likes": firestore.Increment(1)}, merge=True)

    gateway.script(LostAnswer("Commit", code=grpc.StatusCode.ABORTED))
    like(naive.transaction())
    assert document.get().get("likes") == len(runs) == 2
