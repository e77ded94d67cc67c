"""Which fault strikes which call, and the write rate: decided without a server or a clock."""

import collections

import pytest
from google.cloud.firestore_v1.types import BatchWriteRequest, CommitRequest
from grpc import StatusCode

from counters.testing import (
    ConnectionCut,
    Delayed,
    DeliveredTwice,
    Fault,
    HeldBack,
    LostAnswer,
    LostRequest,
    Refused,
)
from counters.testing.exchange import Answer
from counters.testing.faults import Plan, WriteRate


class Call:
    """What a fault sees of a call, and what it did with it."""

    def __init__(self, method="Commit", request=b"", *, gives_up=False):
        self.method = method
        self.request = request
        self.done = []
        self._gives_up = gives_up

    def deliver(self):
        self.done.append("deliver")
        return Answer(messages=(str(self.done.count("deliver")).encode(),))

    def wait(self, seconds=None):
        self.done.append(("wait", seconds))
        return self._gives_up

    def hold(self):
        self.done.append("hold")

    def cut(self):
        self.done.append("cut")


def codes(plan, methods):
    answers = [plan.strike(Call(method)) for method in methods]
    return [answer and answer.code for answer in answers]


@pytest.mark.parametrize(
    ("fault", "done", "code"),
    [
        (LostAnswer(), ["deliver"], StatusCode.UNAVAILABLE),
        (LostAnswer(code=StatusCode.INTERNAL), ["deliver"], StatusCode.INTERNAL),
        (LostAnswer(code=None), ["deliver", ("wait", None)], StatusCode.DEADLINE_EXCEEDED),
        (LostRequest(), [], StatusCode.UNAVAILABLE),
        (LostRequest(code=None), [("wait", None)], StatusCode.DEADLINE_EXCEEDED),
        (Refused(), [], StatusCode.ABORTED),
        (Refused("Commit", StatusCode.RESOURCE_EXHAUSTED), [], StatusCode.RESOURCE_EXHAUSTED),
        (HeldBack(), ["hold"], StatusCode.UNAVAILABLE),
        (HeldBack(code=None), ["hold", ("wait", None)], StatusCode.DEADLINE_EXCEEDED),
        (ConnectionCut(), ["cut"], StatusCode.UNAVAILABLE),
        (ConnectionCut(applied=True), ["deliver", "cut"], StatusCode.UNAVAILABLE),
    ],
)
def test_what_each_fault_does_to_a_call_and_what_the_client_gets(fault, done, code):
    call = Call()
    assert fault.strike(call).code is code
    assert call.done == done


def test_a_request_delivered_twice_is_answered_once_with_either_answer():
    assert DeliveredTwice().strike(Call()).messages == (b"2",)
    assert DeliveredTwice(answer="first").strike(Call()).messages == (b"1",)


def test_a_delayed_call_passes_on_unless_the_client_gave_up():
    call = Call()
    assert Delayed(seconds=0.5).strike(call) is None
    assert call.done == [("wait", 0.5)]
    assert Delayed().strike(Call(gives_up=True)).code is StatusCode.CANCELLED


def test_a_script_strikes_the_nth_call_of_its_method_and_so_many_times():
    plan = Plan()
    plan.script(Refused("Commit", nth=2, times=2))
    methods = ["Commit", "Rollback", "Commit", "Rollback", "Commit", "Commit"]
    aborted = StatusCode.ABORTED
    assert codes(plan, methods) == [None, None, aborted, None, aborted, None]


def test_a_script_without_a_method_counts_all_calls_and_without_an_end_strikes_for_ever():
    plan = Plan()
    plan.script(Refused(nth=3, times=None))
    assert codes(plan, ["Commit", "Rollback", "Listen", "Commit"])[2:] == [StatusCode.ABORTED] * 2


def test_scripts_add_up_and_each_counts_from_when_it_was_set():
    plan = Plan()
    plan.script(Refused("Commit", nth=2))
    assert codes(plan, ["Commit"]) == [None]
    plan.script(Refused("Commit", StatusCode.INTERNAL, nth=2))
    assert codes(plan, ["Commit", "Commit"]) == [StatusCode.ABORTED, StatusCode.INTERNAL]


def test_a_delay_and_another_fault_can_strike_the_same_call():
    plan = Plan()
    plan.script(Delayed("Commit", seconds=1), LostAnswer("Commit"))
    call = Call()
    assert plan.strike(call).code is StatusCode.UNAVAILABLE
    assert call.done == [("wait", 1), "deliver"]


def test_the_same_seed_and_calls_meet_the_same_faults_however_methods_interleave():
    rates = {LostAnswer("Commit"): 0.2, Refused(): 0.3}

    def struck(seed, methods):
        plan = Plan()
        plan.random(seed, rates)
        outcome = collections.defaultdict(list)
        for method, code in zip(methods, codes(plan, methods), strict=True):
            outcome[method].append(code)
        return dict(outcome)

    in_turn = struck(7, ["Commit", "Rollback"] * 200)
    one_after_the_other = struck(7, ["Rollback"] * 200 + ["Commit"] * 200)
    assert in_turn == one_after_the_other
    assert in_turn != struck(8, ["Commit", "Rollback"] * 200)


def test_random_faults_strike_at_their_rates():
    plan = Plan()
    often, seldom = LostAnswer("Commit"), Refused("Commit")
    plan.random(1, {often: 0.2, seldom: 0.05})
    codes(plan, ["Commit"] * 10_000 + ["Rollback"] * 100)
    assert 1_900 < plan.struck[often] < 2_100
    assert 430 < plan.struck[seldom] < 570
    assert plan.struck.total() == plan.struck[often] + plan.struck[seldom]


def test_calm_ends_all_faults_and_limits_and_keeps_the_count():
    plan = Plan()
    plan.script(Refused(times=None))
    plan.random(1, {LostRequest(): 1.0})
    plan.limit_writes(WriteRate(1, queue=0, clock=lambda: 0.0))
    codes(plan, ["Commit"])
    plan.calm()
    assert codes(plan, ["Commit"] * 10) == [None] * 10
    assert plan.struck.total() == 1


def test_faults_that_deliver_leave_streams_alone():
    plan = Plan()
    plan.script(LostAnswer(times=None))
    assert codes(plan, ["Listen", "Commit", "Write"]) == [None, StatusCode.UNAVAILABLE, None]
    for fault in (LostAnswer, HeldBack, ConnectionCut, DeliveredTwice):
        with pytest.raises(ValueError, match="is a stream"):
            fault("Listen")


@pytest.mark.parametrize(
    ("mistake", "why"),
    [
        (lambda: LostAnswer("commit"), "no method 'commit'"),
        (lambda: LostAnswer("Commit", nth=0), "count from 1"),
        (lambda: LostAnswer("Commit", times=0), "count from 1"),
        (lambda: Plan().random(1, {LostAnswer("Commit", nth=2): 0.5}), "are for scripts"),
        (lambda: Plan().random(1, {LostAnswer("Commit"): 0.6, LostRequest(): 0.5}), "for Commit add up"),
        (lambda: Plan().random(1, {LostAnswer("Commit"): -0.1}), "0 to 1, not"),
        (lambda: WriteRate(0, queue=1), "more than 0"),
        (lambda: WriteRate(1, queue=-1), "0 or more"),
    ],
)
def test_a_fault_that_would_never_strike_as_meant_is_refused(mistake, why):
    with pytest.raises(ValueError, match=why):
        mistake()


def test_a_fault_of_one_s_own_needs_no_more_than_strike():
    class Garbled(Fault):
        def strike(self, exchange):
            return Answer(messages=(exchange.request[::-1],))

    plan = Plan()
    plan.script(Garbled("Commit"))
    assert plan.strike(Call(request=b"abc")).messages == (b"cba",)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_document_serves_one_write_after_the_other_and_refuses_beyond_its_queue():
    clock = Clock()
    rate = WriteRate(2, queue=2, clock=clock)
    assert [rate.admit(["a"]) for _ in range(4)] == [0, 0.5, 1.0, None]
    clock.now += 0.5
    assert [rate.admit(["a"]) for _ in range(2)] == [1.0, None]
    clock.now += 10
    assert rate.admit(["a"]) == 0


def test_without_a_queue_a_document_refuses_while_it_serves():
    clock = Clock()
    rate = WriteRate(10, queue=0, clock=clock)
    assert [rate.admit(["a"]) for _ in range(2)] == [0, None]
    clock.now += 0.1
    assert rate.admit(["a"]) == pytest.approx(0, abs=1e-6)


def test_documents_do_not_wait_for_each_other_but_a_commit_waits_for_all_of_its_own():
    rate = WriteRate(1, queue=1, clock=Clock())
    assert rate.admit(["a"]) == 0
    assert rate.admit(["b"]) == 0
    assert rate.admit(["c"]) == 0
    assert rate.admit(["a", "d"]) == 1
    assert rate.admit(["d"]) is None


def test_a_commit_that_is_refused_takes_no_place_in_any_queue():
    rate = WriteRate(1, queue=0, clock=Clock())
    assert rate.admit(["a"]) == 0
    assert rate.admit(["a", "b"]) is None
    assert rate.admit(["b"]) == 0


def test_the_rate_sees_every_document_that_a_commit_or_a_batch_write_names():
    writes = [
        {"update": {"name": "updated"}},
        {"delete": "deleted"},
        {"transform": {"document": "transformed"}},
    ]
    for method, request in (("Commit", CommitRequest), ("BatchWrite", BatchWriteRequest)):
        plan = Plan()
        rate = WriteRate(1, queue=0, clock=Clock())
        plan.limit_writes(rate)
        call = Call(method, request.serialize(request(writes=writes)))
        assert plan.strike(call) is None
        for name in ("updated", "deleted", "transformed"):
            assert rate.admit([name]) is None
        assert plan.strike(call).code is StatusCode.ABORTED
        assert "contention" in plan.strike(call).details


def test_a_write_waits_its_turn_and_goes_nowhere_if_the_client_gives_up():
    plan = Plan()
    plan.limit_writes(WriteRate(1, queue=5, clock=Clock()))
    request = CommitRequest.serialize(CommitRequest(writes=[{"delete": "a"}]))
    calls = [Call(request=request), Call(request=request), Call(request=request, gives_up=True)]
    answers = [plan.strike(call) for call in calls]
    assert [call.done for call in calls] == [[], [("wait", 1)], [("wait", 2)]]
    assert answers[:2] == [None, None]
    assert answers[2].code is StatusCode.CANCELLED


def test_calls_that_write_nothing_are_not_limited():
    plan = Plan()
    plan.limit_writes(WriteRate(1, queue=0, clock=Clock()))
    assert codes(plan, ["RunQuery", "Rollback", "Listen"] * 3) == [None] * 9
