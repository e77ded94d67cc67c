"""In every order of events within these bounds the promise holds; without any one rule it does not.

The scenes run the real generators of ``commit.py``, ``increments.py``, ``operations.py`` and
``lifecycle.py`` through ``orders.py``. Each rule is taken out by putting something weaker in its
place, and the explorer must then find the fault that the rule prevents.
"""

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from google.api_core import exceptions
from orders import COUNTER, SHARD, Actor, NumberedLanes, Process, Scene, explore

from counters import commit, increments, lifecycle, operations, receipts, wire
from counters.context import OutOfTime
from counters.lanes import Lanes
from counters.receipts import Verdict

INTERNAL = {"rollback_of_closed": exceptions.InternalServerError}


def adds(process, times=1):
    return [lambda: increments.increment(process.call(), COUNTER, 1)] * times


def one_writer(server):
    process = Process(server)
    return [Actor(process, adds(process, 2))]


def two_writers_of_one_process(server):
    process = Process(server)
    return [Actor(process, adds(process)), Actor(process, adds(process))]


def a_writer_and_a_pruner(server):
    process, other = Process(server), Process(server, 1)
    prune = [lambda: commit._prune(other.call(), SHARD)]
    return [Actor(process, adds(process, 2)), Actor(other, prune, counts=False, faulty=False)]


def writers_that_prune(server):
    processes = [Process(server, number, prune_chance=1.0) for number in range(2)]
    return [Actor(process, adds(process)) for process in processes]


def a_writer_and_one_who_deletes_and_creates(server):
    process, other = Process(server), Process(server, 1)
    calls = [
        lambda: lifecycle.delete(other.call(), COUNTER),
        lambda: lifecycle.create(other.call(), COUNTER, shards_wanted=None, initial=None, mirrors=None),
    ]
    return [Actor(process, adds(process)), Actor(other, calls, counts=False, faulty=False)]


def one_key_in_two_processes(server):
    processes = [Process(server, number) for number in range(2)]
    return [
        Actor(process, [partial(_once, process)] * times)
        for process, times in zip(processes, (2, 1), strict=True)
    ]


def _once(process):
    return operations.increment_once(process.call(), COUNTER, "key", 1)


ALONE = Scene("a writer, two increments", one_writer, faults=3)
STUBBORN = Scene("the same, finished transactions refuse a rollback", one_writer, faults=2, server=INTERNAL)
TOGETHER = Scene("two writers of one process", two_writers_of_one_process, faults=2)
CANCELLED = Scene(
    "a writer that is cancelled once", one_writer, faults=2, events=("cancelled",), must_succeed=False
)
LATE = Scene(
    "a writer that runs out of time once", one_writer, faults=1, events=("out of time",), must_succeed=False
)
PRUNED = Scene(
    "a writer, a pruner, and the horizon passes",
    a_writer_and_a_pruner,
    faults=1,
    events=("horizon",),
    must_succeed=False,
)
CROWDED = Scene(
    "two processes that prune, more lanes than are kept", writers_that_prune, faults=1, must_succeed=False
)
DELETED = Scene(
    "a writer, and one who deletes and creates the counter",
    a_writer_and_one_who_deletes_and_creates,
    faults=1,
    must_succeed=False,
    shard=False,
)
KEYED = Scene("one key in two processes, three calls", one_key_in_two_processes, faults=2, keyed=True)
SCENES = [ALONE, STUBBORN, TOGETHER, CANCELLED, LATE, PRUNED, CROWDED, DELETED, KEYED]


def explored(scene, record_property, rule=None):
    began = time.perf_counter()
    found = explore(scene)
    seconds = time.perf_counter() - began
    what = f"without: {rule}" if rule else scene.name
    outcome = f"{found.fault}, after {len(found.moves)} moves" if found.fault else "no fault"
    record_property("every order", f"{what}: {found.states:,} states, {seconds:.1f} s, {outcome}")
    return found


@pytest.fixture(autouse=True)
def few_receipts(request, monkeypatch):
    """In the crowded scene a shard keeps one receipt only, so that two lanes are too many."""
    scenes = [value for value in request.node.callspec.params.values() if isinstance(value, Scene)]
    if CROWDED in scenes:
        monkeypatch.setattr(receipts, "MOST_KEPT", 1)
        monkeypatch.setattr(receipts, "PRUNE_AT", 1)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_in_every_order_each_call_counts_exactly_once_or_says_what_it_cannot_know(scene, record_property):
    found = explored(scene, record_property)
    assert found.fault is None, found.moves
    assert found.states > 100


# Without one rule. Each function puts something weaker in its place.


def no_fence(patch):
    def fence(*_):
        return None
        yield

    patch(commit, "_fence", fence)


def a_failed_rollback_is_swallowed(patch):
    def fence(call, transaction, _rpc):
        with suppress(exceptions.GoogleAPICallError):
            yield wire.rollback(call.database, transaction, call.patience())

    patch(commit, "_fence", fence)


def aborted_of_a_resend_is_taken_for_closed(patch):
    real = commit._fence

    def fence(call, transaction, rpc):
        steps = real(call, transaction, rpc)
        effect = next(steps)
        while True:
            try:
                answer = yield effect
            except exceptions.Aborted:
                return None
            except exceptions.GoogleAPICallError as error:
                act = partial(steps.throw, error)
            else:
                act = partial(steps.send, answer)
            try:
                effect = act()
            except StopIteration as stop:
                return stop.value

    patch(commit, "_fence", fence)


def tried_again_before_it_is_read(patch):
    def verdict(_call, _proof):
        return Verdict.NOT_APPLIED, 0
        yield

    patch(commit, "_verdict", verdict)


def read_before_the_fence(patch):
    fence, verdict = commit._fence, commit._verdict
    later = []

    def no_fence_yet(*arguments):
        later[:] = arguments
        return None
        yield

    def verdict_then_fence(call, proof):
        found = yield from verdict(call, proof)
        committed = yield from fence(*later)
        return (Verdict.APPLIED, committed) if committed is not None else found

    patch(commit, "_fence", no_fence_yet)
    patch(commit, "_verdict", verdict_then_fence)


def a_failed_read_is_taken_for_no_receipt(patch):
    real = commit._verdict

    def verdict(call, proof):
        steps = real(call, proof)
        try:
            answer = yield next(steps)
        except exceptions.GoogleAPICallError:
            return Verdict.NOT_APPLIED, 0
        try:
            effect = steps.send(answer)
        except StopIteration as stop:
            return stop.value
        while True:
            try:
                effect = steps.send((yield effect))
            except StopIteration as stop:  # noqa: PERF203 - how steps end
                return stop.value

    patch(commit, "_verdict", verdict)


class OneLane(NumberedLanes):
    """Gives all calls of a process the same lane."""

    def acquire(self):
        lane = super().acquire()
        self._free.append(lane)
        return lane

    def release(self, lane):
        pass


def calls_at_once_share_a_lane(patch):
    patch(Process.__init__, "__kwdefaults__", {**Process.__init__.__kwdefaults__, "lanes": OneLane})


def calls_at_once_share_a_lane_and_a_newer_mark_will_do(patch):
    calls_at_once_share_a_lane(patch)
    real = receipts.judge

    def judge(document, receipt):
        newest = receipts.receipts_in(document.fields or {}).get(receipt.lane, 0)
        return Verdict.APPLIED if newest >= receipt.mark else real(document, receipt)

    patch(receipts, "judge", judge)


def a_cancelled_call_gives_its_lane_back(patch):
    def within(call, stage):
        lane = call.context.lanes.acquire()
        try:
            committed, _ = yield from commit._attempts(call, lane, stage)
        finally:
            Lanes.release(call.context.lanes, lane)
        return committed

    patch(commit, "commit_within", within)


def pruned_receipts_leave_no_mark(patch):
    real = receipts.to_prune

    def to_prune(document):
        pruning = real(document)
        return pruning and replace(pruning, pruned=0)

    patch(receipts, "to_prune", to_prune)


def younger_receipts_are_pruned_without_a_mark(patch):
    def to_prune(document):
        return receipts.Pruning(list(receipts.receipts_in(document.fields or {})), 0)

    patch(receipts, "to_prune", to_prune)


def pruning_ignores_what_came_between(patch):
    real = wire.remove_keys

    def remove_keys(*arguments, if_updated):
        write = real(*arguments, if_updated=if_updated)
        write.ClearField("current_document")
        return write

    patch(wire, "remove_keys", remove_keys)


def a_missing_shard_never_took_anything(patch):
    real = receipts.judge

    def judge(document, receipt):
        verdict = real(document, receipt)
        return Verdict.NOT_APPLIED if verdict is Verdict.ASK_COUNTER else verdict

    patch(receipts, "judge", judge)


def any_counter_will_do(patch):
    def judge_by_counter(counter, _created):
        return Verdict.NOT_APPLIED if counter.exists else Verdict.UNKNOWN

    patch(receipts, "judge_by_counter", judge_by_counter)


def no_time_left_means_not_applied(patch):
    real = commit._commit_once

    def commit_once(call, transaction, rpc, proof):
        try:
            return (yield from real(call, transaction, rpc, proof))
        except commit.OutcomeUnknown:
            raise OutOfTime from None  # which becomes NotApplied

    patch(commit, "_commit_once", commit_once)


def a_used_key_is_anothers(patch):
    patch(operations, "_judge", lambda *_: False)


def a_key_is_written_whatever_there_is(patch):
    real = wire.create

    def create(name, data):
        write = real(name, data)
        write.ClearField("current_document")
        return write

    patch(wire, "create", create)


RULES = [
    (no_fence, ALONE, "counted"),
    (a_failed_rollback_is_swallowed, ALONE, "counted"),
    (a_failed_rollback_is_swallowed, STUBBORN, "counted twice"),
    (aborted_of_a_resend_is_taken_for_closed, ALONE, "counted"),
    (tried_again_before_it_is_read, ALONE, "counted"),
    (read_before_the_fence, ALONE, "counted"),
    (a_failed_read_is_taken_for_no_receipt, ALONE, "counted"),
    (calls_at_once_share_a_lane, TOGETHER, "counted twice"),
    (calls_at_once_share_a_lane_and_a_newer_mark_will_do, TOGETHER, "counted"),
    (a_cancelled_call_gives_its_lane_back, CANCELLED, "counted twice"),
    (pruned_receipts_leave_no_mark, CROWDED, "counted twice"),
    (younger_receipts_are_pruned_without_a_mark, PRUNED, "counted twice"),
    (pruning_ignores_what_came_between, PRUNED, "counted twice"),
    (a_missing_shard_never_took_anything, DELETED, "counted twice"),
    (any_counter_will_do, DELETED, "counted twice"),
    (no_time_left_means_not_applied, LATE, "counted"),
    (a_used_key_is_anothers, KEYED, "no call said"),
    (a_key_is_written_whatever_there_is, KEYED, "counted twice"),
]


@pytest.mark.parametrize(
    ("rule", "scene", "fault"),
    [pytest.param(*each, id=f"{each[0].__name__}, {each[1].name}") for each in RULES],
)
def test_without_a_rule_the_fault_is_found_that_it_prevents(
    rule, scene, fault, record_property, monkeypatch
):
    rule(monkeypatch.setattr)
    found = explored(scene, record_property, rule.__name__.replace("_", " "))
    assert found.fault is not None, "no course shows what this rule is for"
    assert str(found.fault).startswith(fault)
