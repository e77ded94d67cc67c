"""What calls share: a cache that ages by the clock, the server's time, chance; and one call's patience."""

import gc
import os
import time
from collections import Counter as Tally

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import Client
from server_model import DATABASE, World, lost_request, made_up, silence

from counters import layout, wire
from counters.context import Call, Context, OutOfTime, _defaults, checked_shards, default_context
from counters.errors import InvalidArgument, InvalidType, InvalidValue, ReadFailed
from counters.policy import Backoff, Policy
from counters.receipts import LONGEST_TIMEOUT
from counters.settings import Settings
from counters.steps import Sleep


class Clock:
    """Local seconds that move when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def context(clock):
    return Context(policy=Policy(clock=clock, seed=1), cache_seconds=60)


def settings(shards):
    return Settings(shards, 0, frozenset(), None, 0, 0)


# The cache of settings.


def test_settings_are_kept_for_cache_seconds(context, clock):
    context.cache("a/b", settings(3))
    clock.now += 59.9
    assert context.cached("a/b") == settings(3)
    clock.now += 0.1
    assert context.cached("a/b") is None


def test_of_many_calls_that_find_them_too_old_one_refreshes_them_and_the_others_go_on(context, clock):
    context.cache("a/b", settings(3))
    clock.now += 60
    found = [context.cached("a/b") for _ in range(5)]
    assert found == [None, *[settings(3)] * 4]
    context.cache("a/b", settings(4))
    assert context.cached("a/b") == settings(4)


def test_when_the_refresh_does_not_come_soon_the_others_no_longer_go_on(context, clock):
    context.cache("a/b", settings(3))
    clock.now += 60
    assert context.cached("a/b") is None
    clock.now += 4.9
    assert context.cached("a/b") == settings(3)
    clock.now += 0.1
    assert context.cached("a/b") is None


def test_forgotten_settings_are_read_anew(context):
    context.cache("a/b", settings(3))
    context.forget("a/b")
    assert context.cached("a/b") is None
    context.forget("never/cached")


def test_the_oldest_of_ten_thousand_counters_make_room(context):
    for number in range(10_000):
        context.cache(f"a/{number}", settings(3))
    context.cache("a/1", settings(4))  # read anew: no longer among the oldest
    assert context.cached("a/0") == settings(3)
    context.cache("a/new", settings(5))
    context.cache("a/newer", settings(5))
    assert len(context._settings) == 10_000
    assert [context.cached(f"a/{number}") for number in range(4)] == [None, settings(4), None, settings(3)]
    assert context.cached("a/newer") == settings(5)


def test_one_call_may_read_a_counters_settings_until_it_ends(context):
    assert context.claim_loading("a/b")
    assert not context.claim_loading("a/b")
    assert context.claim_loading("another/one")
    context.end_loading("a/b")
    assert context.claim_loading("a/b")


def test_a_forked_child_is_not_bound_by_its_parents_claim(context, monkeypatch):
    assert context.claim_loading("a/b")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert context.claim_loading("a/b")
    assert not context.claim_loading("a/b")


# The server's time.


def test_the_servers_time_is_its_last_answers_and_what_has_passed_here_since(context, clock):
    assert not context.knows_server_time
    context.saw_server_time(5_000_000)
    assert context.knows_server_time
    assert context.server_time() == 5_000_000
    clock.now += 1.5
    assert context.server_time() == 6_500_000
    context.saw_server_time(6_400_000)
    assert context.server_time() == 6_400_000


def test_an_answer_that_comes_while_the_time_is_told_is_not_mixed_with_the_last_one(clock):
    answers = []

    def busy_clock():
        if answers:
            context.saw_server_time(answers.pop())
        return clock()

    context = Context(policy=Policy(clock=busy_clock))
    context.saw_server_time(5_000_000)
    clock.now += 10
    answers.append(15_000_000)
    assert context.server_time() == 15_000_000


def test_the_wall_clock_is_never_asked(context, monkeypatch):
    def wall_clock():
        raise AssertionError("asked")

    for name in ("time", "time_ns"):
        monkeypatch.setattr(time, name, wall_clock)
    context.saw_server_time(5_000_000)
    context.server_time()
    context.expiry()
    context.cache("a/b", settings(3))
    context.cached("a/b")


def test_a_key_expires_its_days_after_the_servers_time():
    context = Context(policy=Policy(clock=Clock()), key_days=2)
    context.saw_server_time(5)
    assert context.expiry() == 5 + 2 * 86_400 * 1_000_000


def test_reading_now_tells_the_servers_time_and_reading_the_past_does_not():
    world = World()
    context = world.context()
    world.run(Call(context, DATABASE).get("a/b", "a/c"))
    assert context.server_time() == world.server.now
    world.run(Call(context, DATABASE).get("a/b", read_time=5_000_000))
    assert context.server_time() > 5_000_000


# Chance.


def test_a_seed_makes_the_choice_of_shards_repeatable():
    def chosen(seed):
        context = Context(policy=Policy(seed=seed))
        return [context.shard(10, avoid=None) for _ in range(50)]

    assert chosen(7) == chosen(7)
    assert chosen(7) != chosen(8)
    assert chosen(None) != chosen(None)


def test_a_forked_child_draws_from_a_source_of_its_own(monkeypatch):
    context = Context()
    parents = context._chance
    context.random()
    assert context._chance is parents
    monkeypatch.setattr(os, "getpid", lambda: -1)
    context.random()
    childs = context._chance
    assert childs is not parents
    context.random()
    assert context._chance is childs


@pytest.mark.parametrize("avoid", [None, 0, 4, 9, 10, 99])
def test_every_shard_is_as_likely_as_any_other_but_the_last_one_is_avoided(context, avoid):
    drawn = Tally(context.shard(10, avoid=avoid) for _ in range(20_000))
    possible = set(range(10)) - {avoid}
    assert set(drawn) == possible
    expected = 20_000 / len(possible)
    assert all(0.9 * expected < count < 1.1 * expected for count in drawn.values())


def test_a_counter_with_one_shard_has_no_other(context):
    assert [context.shard(1, avoid=avoid) for avoid in (None, 0, 5)] == [0, 0, 0]


# Arguments.


@pytest.mark.parametrize("shards", [1, 10, 10_000])
def test_a_counter_may_have_from_one_to_ten_thousand_shards(shards):
    assert checked_shards(shards) == shards


@pytest.mark.parametrize(
    ("shards", "error"),
    [
        (0, InvalidValue),
        (-1, InvalidValue),
        (10_001, InvalidValue),
        (True, InvalidType),
        (10.0, InvalidType),
        ("10", InvalidType),
        (None, InvalidType),
    ],
)
def test_other_numbers_of_shards_are_refused(shards, error):
    with pytest.raises(error, match="shards"):
        checked_shards(shards)
    with pytest.raises(error, match="shards"):
        Context(shards=shards)


@pytest.mark.parametrize("name", ["timeout", "cache_seconds", "poll_seconds", "key_days"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, InvalidValue),
        (-1, InvalidValue),
        (float("nan"), InvalidValue),
        (float("inf"), InvalidValue),
        (100_000, InvalidValue),
        (True, InvalidType),
        ("30", InvalidType),
        (None, InvalidType),
    ],
)
def test_times_that_cannot_be_meant_are_refused_by_name(name, value, error):
    with pytest.raises(error, match=name):
        Context(**{name: value})


def test_a_timeout_is_at_most_the_longest_that_receipts_allow():
    assert Context(timeout=LONGEST_TIMEOUT).timeout == 120
    with pytest.raises(InvalidArgument):
        Context(timeout=LONGEST_TIMEOUT + 0.001)


def test_handles_without_an_app_share_a_context_for_each_client_as_long_as_the_client_lives():
    one, other = (Client("p", AnonymousCredentials()) for _ in range(2))
    kept = default_context(one)
    assert default_context(one) is kept
    assert default_context(other) is not kept
    number = len(_defaults)
    del other
    gc.collect()
    assert len(_defaults) == number - 1


# One call.


def test_patience_is_half_of_what_is_left_of_the_timeout_and_never_long_or_nothing(context, clock):
    context.timeout = 100
    call = Call(context, DATABASE)
    patience = []
    for now in (0, 60, 75, 90, 99.9, 99.999):
        clock.now = 1000 + now
        patience.append(round(call.patience(), 6))
    assert patience == [15, 15, 12.5, 5, 0.05, 0.05]
    clock.now = 1100
    with pytest.raises(OutOfTime):
        call.patience()
    assert call.renewed().patience() == 15


def test_backing_off_waits_no_longer_than_what_is_left(clock):
    context = Context(policy=Policy(clock=clock, backoff=Backoff(first=1000, longest=1000)), timeout=5)
    (pause,) = Call(context, DATABASE).back_off(0)
    assert isinstance(pause, Sleep)
    assert 0 < pause.seconds <= 5
    call = Call(context, DATABASE)
    clock.now += 5
    with pytest.raises(OutOfTime):
        next(call.back_off(0))


def read(world, context):
    return world.run(Call(context, DATABASE).get("a/b"))


def test_a_read_that_is_not_answered_is_asked_again():
    world = World()
    world.server.put("a/b", x=1)
    world.faults["batch_get_documents"] = [
        lost_request,
        *(made_up(error("passing")) for error in wire.RETRYABLE[:-1]),
    ]
    assert read(world, world.context())["a/b"].fields == {"x": 1}
    assert world.sent == 1 + len(wire.RETRYABLE)


@pytest.mark.parametrize(
    "error", [exceptions.PermissionDenied, exceptions.InvalidArgument, exceptions.FailedPrecondition]
)
def test_a_read_that_is_refused_fails_at_once(error):
    world = World()
    refusal = error("no index, say")
    world.faults["batch_get_documents"] = [made_up(refusal)]
    with pytest.raises(ReadFailed, match="no index, say") as caught:
        read(world, world.context())
    assert caught.value.__cause__ is refusal
    assert world.sent == 1


def test_a_read_that_is_not_answered_in_time_fails_with_its_cause():
    world = World()
    world.faults["batch_get_documents"] = [silence] * 50
    with pytest.raises(ReadFailed, match="timeout") as caught:
        read(world, world.context(timeout=20))
    assert isinstance(caught.value.__cause__, exceptions.DeadlineExceeded)
    assert 20 <= world.seconds < 21


def test_a_process_that_never_heard_of_the_servers_time_asks_for_it_once():
    world = World()
    context = world.context()
    for _ in range(2):
        world.run(Call(context, DATABASE).learn_server_time())
    assert world.methods == ["batch_get_documents"]
    assert context.knows_server_time
    assert wire.relative_path(world.requests[0].request.documents[0]) == layout.cursor_path()
