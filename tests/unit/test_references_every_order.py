"""Likes and unlikes in every order of events: each call that is told True was applied, once, no other.

The real generators of ``children.py`` run through ``orders.py``. Without one of the rules that they
lean on, it finds the order in which a like is lost, doubled, or told to the wrong caller.
"""

import orders
import pytest
from google.api_core import exceptions
from orders import COUNTER, SHARD, Actor, Fault, Process, Run, Scene, explore
from reference_model import LIKES, adding, removing

from counters import commit, layout, wire
from counters.errors import NotApplied
from counters.receipts import Verdict

USER = f"{LIKES}/u"


class Likes(Run):
    """Checks what calls were told against what the server applied for each."""

    def _count(self, number, call):
        self.applied[number, call] += 1
        outcomes = self.actors[number].outcomes
        if self.applied[number, call] > 1:
            raise Fault("one call was applied twice")
        if len(outcomes) > call and not (
            outcomes[call] is True or isinstance(outcomes[call], BaseException)
        ):
            raise Fault("applied after all, though the call was told False")
        if len(outcomes) > call and isinstance(outcomes[call], NotApplied):
            raise Fault("applied after all, though NotApplied was raised")
        shard = self.server.documents[SHARD].fields[layout.VALUE]
        if shard != (USER in self.server.documents):
            raise Fault("the count is not true")

    def _check(self, number, actor, outcome):
        applied = self.applied[number, actor.call - 1]
        if outcome is True and not applied:
            raise Fault("told True, and not applied")
        if outcome is False and applied:
            raise Fault("told False, and applied")
        if isinstance(outcome, BaseException) and self.scene.must_succeed:
            raise Fault(f"ended in {type(outcome).__name__}")


@pytest.fixture(autouse=True)
def likes_run(monkeypatch):
    monkeypatch.setattr(orders, "Run", Likes)


def process(server, number=0):
    server.documents[COUNTER].fields[layout.CHILDREN] = LIKES
    return Process(server, number)


def likes(one, *calls):
    return [lambda call=call: call(one.call(), "u") for call in calls]


def one_who_likes_and_unlikes(server):
    one = process(server)
    return [Actor(one, likes(one, adding, removing))]


def one_whose_double_tap_is_an_unlike_too_many(server):
    one = process(server)
    return [Actor(one, likes(one, adding, adding, removing, removing))]


def two_tabs_of_one_user(server):
    one, other = process(server), process(server, 1)
    return [Actor(one, likes(one, adding, removing)), Actor(other, likes(other, adding), faulty=False)]


def two_calls_of_one_process(server):
    one = process(server)
    return [Actor(one, likes(one, adding)), Actor(one, likes(one, removing))]


INTERNAL = {"rollback_of_closed": exceptions.InternalServerError}
ALONE = Scene("a like and an unlike", one_who_likes_and_unlikes, faults=3)
STUBBORN = Scene(
    "the same, finished transactions refuse a rollback",
    one_who_likes_and_unlikes,
    faults=2,
    server=INTERNAL,
)
TAPS = Scene("double taps", one_whose_double_tap_is_an_unlike_too_many, faults=2)
TABS = Scene("two processes", two_tabs_of_one_user, faults=2)
TOGETHER = Scene("a like and an unlike at once", two_calls_of_one_process, faults=2)


@pytest.mark.parametrize("scene", [ALONE, STUBBORN, TAPS, TABS, TOGETHER], ids=lambda scene: scene.name)
def test_in_every_order_true_is_told_to_the_call_that_was_applied_and_to_no_other(scene):
    found = explore(scene)
    assert found.fault is None, found.moves
    assert found.states > 100


def test_without_the_fence_an_order_is_found_that_likes_again(monkeypatch):
    def fence(*_):
        return None
        yield

    monkeypatch.setattr(commit, "_fence", fence)
    assert explore(ALONE).fault is not None


def test_with_the_child_for_a_proof_an_order_is_found_that_tells_the_wrong_caller(monkeypatch):
    """After a remove and an add, a child that is there may be another's. So the receipt is in the shard."""

    def verdict(call, _proof):
        child = yield from call.read_for_certain(USER)
        return (Verdict.APPLIED if child.exists else Verdict.NOT_APPLIED), child.read_time

    monkeypatch.setattr(commit, "_verdict", verdict)
    assert explore(TABS).fault is not None


def test_with_a_delete_that_does_not_ask_an_order_is_found_that_makes_the_count_untrue(monkeypatch):
    delete = wire.delete
    monkeypatch.setattr(wire, "delete", lambda name, **_: delete(name))
    assert explore(TAPS).fault is not None
