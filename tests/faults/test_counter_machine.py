"""Whatever is called in whatever order, faults or not: a counter is a plain int."""

import os

import grpc
import pytest
from callers import AT_ONCE
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from counters import Counters
from counters.testing import DeliveredTwice, HeldBack, LostAnswer, LostRequest, Refused

AMOUNTS = st.integers(-(10**6), 10**6)
FAULTS = st.sampled_from(
    [
        LostAnswer("Commit"),
        LostAnswer("Commit", code=grpc.StatusCode.ABORTED),
        LostRequest("Commit"),
        Refused("Commit"),
        HeldBack("Commit"),
        DeliveredTwice("Commit"),
        LostRequest("BeginTransaction"),
        LostRequest("BatchGetDocuments"),
        LostRequest("RunAggregationQuery"),
        LostRequest("Rollback"),
        LostAnswer("Rollback"),
        Refused("Rollback", grpc.StatusCode.INTERNAL),
    ]
)


class CounterMachine(RuleBasedStateMachine):
    """Knows of shards, receipts and faults nothing but their names; the model is ``number``."""

    def __init__(self, caller, gateway, db, posts):
        super().__init__()
        self.caller, self.gateway = caller, gateway
        self.app = caller.app(AT_ONCE, shards=3)
        self.path = f"{next(posts)}/counters/likes"
        self.likes = self.app.at(caller.client.document(self.path))
        self.others_likes = Counters(db, policy=AT_ONCE, cache_seconds=0.001).at(db.document(self.path))
        self.exists = False
        self.number = 0
        self.keys = {}
        self.total = None

    def wait(self, result):
        return self.caller.wait(result)

    @initialize(amount=st.sampled_from([0, 0, 5, -5]), shards=st.integers(1, 4))
    def create(self, amount, shards):
        assert self.wait(self.likes.create(initial=amount, shards=shards)) is True
        self.number, self.exists = amount, True

    @rule(faults=st.lists(FAULTS, max_size=2))
    def strike(self, faults):
        self.gateway.script(*faults)

    @rule()
    def release(self):
        self.gateway.release()

    @rule(amount=AMOUNTS)
    def increment(self, amount):
        self.wait(self.likes.increment(amount))
        self._counted(amount)

    @rule(amount=AMOUNTS)
    def decrement(self, amount):
        self.wait(self.likes.decrement(amount))
        self._counted(-amount)

    @rule(amount=AMOUNTS)
    def increment_in_another_process(self, amount):
        self.others_likes.increment(amount)
        self._counted(amount)

    @rule(key=st.text("abc\ud800/", min_size=1, max_size=2), amount=st.integers(1, 9))
    def increment_once(self, key, amount):
        amount = self.keys.get(key, amount)
        assert self.wait(self.likes.increment_once(key, amount)) is (key not in self.keys)
        self._counted(amount if key not in self.keys else 0, touched=True)
        self.keys[key] = amount

    @rule(amounts=st.lists(AMOUNTS, min_size=1, max_size=3))
    def transaction(self, amounts):
        writes = [
            lambda transaction, amount=amount: self.likes.stage(transaction, amount) for amount in amounts
        ]
        assert self.caller.transaction(self.app, *writes) == "returned"
        self._counted(sum(amounts), touched=True)

    @precondition(lambda self: self.exists)
    @rule(shards=st.integers(1, 6))
    def resize(self, shards):
        self.wait(self.likes.resize(shards))

    @precondition(lambda self: self.exists)
    @rule()
    def reset(self):
        assert self.wait(self.likes.reset()) == self.number
        self.number = 0

    @rule()
    def roll_up(self):
        assert self.wait(self.app.roll_up()).failed == ()

    @rule(again=st.booleans())
    def delete(self, again):
        self.wait(self.likes.delete())
        self.number, self.exists = 0, False
        if again:
            assert self.wait(self.likes.create(initial=7)) is True
            self.number, self.exists = 7, True
        # another process's settings are those of the counter that is gone
        self.others_likes = type(self.others_likes)(
            self.others_likes._document, Counters(self.others_likes._client, policy=AT_ONCE)
        )

    def _counted(self, amount, touched=False):
        self.number += amount
        self.exists = self.exists or bool(amount) or touched

    @invariant()
    def the_value_is_the_number(self):
        assert self.others_likes.value() == self.number
        assert self.wait(self.likes.value()) == self.number

    def teardown(self):
        self.gateway.calm()
        self.gateway.release()
        assert self.others_likes.value() == self.number


@pytest.mark.parametrize(
    ("examples", "steps"), [(15, 15), pytest.param(300, 40, marks=pytest.mark.proof)], ids=["few", "many"]
)
def test_a_counter_is_a_plain_int(caller, gateway, db, post, examples, steps, record_property):
    posts = (f"{post}-{number}" for number in range(10**9))
    made = []

    def machine():
        made.append(CounterMachine(caller, gateway, db, posts))
        return made[-1]

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=os.environ.get("CI") == "true",
        ),
    )
    assert len(made) >= examples
    record_property("faults", f"{caller.name}: {len(made)} random courses of calls agreed with a plain int")
