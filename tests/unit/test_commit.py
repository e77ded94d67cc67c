"""The heart: every doubt is settled, whatever becomes of the messages.

The real generators of commit.py run against the model of server_model.py.
"""

import asyncio
from functools import partial
from itertools import pairwise

import pytest
from google.api_core import exceptions
from server_model import (
    START,
    Server,
    World,
    after,
    create_counter,
    delivered,
    delivered_twice,
    held_back,
    lost_answer,
    lost_request,
    made_up,
    silence,
)

from counters import layout, receipts, shards, wire
from counters.commit import Proof, Refused, Staged, commit, commit_conditioned, commit_within
from counters.errors import NotApplied, OutcomeUnknown
from counters.increments import increment
from counters.policy import Backoff
from counters.steps import Sleep

COUNTER = "posts/a91f/counters/likes"
SHARD = layout.shard_path(COUNTER, 0)
ABORTED = made_up(exceptions.Aborted("too much contention"))
INTERNAL = made_up(exceptions.InternalServerError("internal"))


class Writer:
    """Adds to the one shard of a counter through ``commit``, in a context of its own."""

    def __init__(self, world, **options):
        self.world = world
        self.context = world.context(**options)
        self.created = create_counter(world.server, COUNTER)
        self.marks = []
        self.conditioned = False
        self.context.saw_server_time(world.server.now)

    def stage(self, call):
        def staged(receipt):
            self.marks.append((receipt.lane, receipt.mark))
            write = shards.add(call, COUNTER, 0, 1, receipt)
            proof = Proof(SHARD, receipt, COUNTER, self.created)
            return Staged([write], proof, conditioned=self.conditioned)

        return staged

    def steps(self):
        call = self.world.call(self.context)
        return commit(call, self.stage(call))

    def add(self):
        return self.world.run(self.steps())


@pytest.fixture
def world():
    return World()


@pytest.fixture
def writer(world):
    return Writer(world)


def value(world):
    stored = world.server.documents.get(SHARD)
    return stored.fields[layout.VALUE] if stored else 0


def free_lanes(writer):
    return len(writer.context.lanes._free)


def test_without_faults_it_is_begin_and_commit_and_answers_when_it_was_committed(world, writer):
    assert writer.add() == world.server.documents[SHARD].updated
    assert world.methods == ["begin_transaction", "commit"]
    assert value(world) == 1


def test_a_lost_answer_is_settled_by_a_rollback_and_a_read_and_counts_once(world, writer):
    world.faults["commit"] = [lost_answer]
    writer.add()
    assert world.methods == ["begin_transaction", "commit", "rollback", "batch_get_documents"]
    assert value(world) == 1


def test_a_lost_request_is_tried_again_in_a_new_transaction_with_a_new_mark(world, writer):
    world.faults["commit"] = [lost_request]
    writer.add()
    first, second = (rpc.request for rpc in world.requests if rpc.method == "commit")
    assert first.transaction != second.transaction
    assert writer.marks[0] < writer.marks[1]
    assert value(world) == 1


def test_a_commit_that_arrives_after_the_fence_applies_nothing(world, writer):
    world.faults["commit"] = [held_back(None)]
    writer.add()
    world.deliver_held()
    assert value(world) == 1
    assert len(world.server.applied) == 1


def test_a_commit_that_arrives_between_the_doubt_and_the_fence_is_found(world, writer):
    world.faults["commit"] = [held_back(0)]
    writer.add()
    assert len(world.server.applied) == 1
    assert len(writer.marks) == 1


@pytest.mark.parametrize("error", [exceptions.Aborted, exceptions.InvalidArgument])
def test_the_refusal_of_a_second_copy_is_no_proof_that_nothing_was_applied(error):
    world = World(Server(closed=error))
    writer = Writer(world)
    world.faults["commit"] = [delivered_twice]
    writer.add()
    assert value(world) == 1
    assert len(writer.marks) == 1


@pytest.mark.parametrize(
    "error",
    [
        exceptions.Aborted("contention"),
        exceptions.InvalidArgument("closed"),
        exceptions.PermissionDenied("no"),
        exceptions.FailedPrecondition("no"),
        exceptions.NotFound("no"),
        exceptions.AlreadyExists("there"),
        exceptions.Cancelled("by the server"),
        exceptions.DataLoss("oh"),
        ConnectionResetError("raw"),
    ],
)
def test_any_answer_but_ok_is_doubt_and_an_applied_commit_is_found(world, writer, error):
    def applied_but_answered_so(world, rpc):
        world.deliver(rpc)
        raise error

    world.faults["commit"] = [applied_but_answered_so]
    writer.add()
    assert value(world) == 1


# The fence.


def test_a_lost_rollback_is_no_fence_and_the_same_commit_sent_again_tells(world, writer):
    world.faults["commit"] = [held_back(None), delivered]
    world.faults["rollback"] = [lost_request]
    writer.add()
    world.deliver_held()
    first, again = (rpc.request for rpc in world.requests if rpc.method == "commit")
    assert first == again
    assert value(world) == 1


def test_where_rolling_back_a_finished_transaction_fails_the_same_commit_tells_that_it_is_closed():
    world = World(Server(rollback_of_closed=exceptions.InternalServerError))
    writer = Writer(world)
    world.faults["commit"] = [lost_answer]
    writer.add()
    assert world.methods == ["begin_transaction", "commit", "rollback", "commit", "batch_get_documents"]
    assert value(world) == 1


def test_the_resent_commit_answers_ok_when_it_is_the_one_that_applies(world, writer):
    world.faults["commit"] = [lost_request, delivered]
    world.faults["rollback"] = [INTERNAL]
    assert writer.add() == world.server.documents[SHARD].updated
    assert world.methods == ["begin_transaction", "commit", "rollback", "commit"]


@pytest.mark.parametrize(
    "fault", [ABORTED, INTERNAL, lost_request, made_up(exceptions.PermissionDenied("no"))]
)
def test_only_ok_or_invalid_argument_of_the_resent_commit_closes_the_fence(world, writer, fault):
    """ABORTED may be made up by what is between; the first copy is still on its way."""
    world.faults["commit"] = [held_back(4), fault]
    world.faults["rollback"] = [lost_request]
    writer.add()
    world.deliver_held()
    assert value(world) == 1
    assert world.methods[:5] == ["begin_transaction", "commit", "rollback", "commit", "rollback"]


def test_with_no_fence_until_the_timeout_the_outcome_is_unknown(world, writer):
    world.faults["commit"] = [silence] * 50
    world.faults["rollback"] = [silence] * 50
    with pytest.raises(OutcomeUnknown) as caught:
        writer.add()
    assert isinstance(caught.value.__cause__, exceptions.DeadlineExceeded)
    assert world.seconds <= writer.context.timeout + 1


def test_aborted_for_ever_from_a_closed_transaction_ends_in_outcome_unknown():
    world = World(Server(closed=exceptions.Aborted, rollback_of_closed=exceptions.InternalServerError))
    writer = Writer(world, timeout=0.5)
    world.faults["commit"] = [lost_answer]
    with pytest.raises(OutcomeUnknown):
        writer.add()


# The read after the fence.


@pytest.mark.parametrize("fault", [lost_request, INTERNAL, made_up(exceptions.PermissionDenied("for now"))])
def test_a_failed_read_after_the_fence_is_repeated_and_taken_for_no_answer(world, writer, fault):
    world.faults["commit"] = [lost_answer]
    world.faults["batch_get_documents"] = [fault, fault]
    writer.add()
    assert world.methods[3:] == ["batch_get_documents"] * 3
    assert value(world) == 1


def test_with_no_read_until_the_timeout_the_outcome_is_unknown(world, writer):
    world.faults["commit"] = [lost_answer]
    world.faults["batch_get_documents"] = [silence] * 50
    with pytest.raises(OutcomeUnknown) as caught:
        writer.add()
    assert isinstance(caught.value.__cause__, exceptions.ServiceUnavailable)


def test_an_older_receipt_of_the_same_lane_proves_nothing(world, writer):
    writer.add()
    world.faults["commit"] = [lost_request]
    writer.add()
    assert value(world) == 2


def test_a_younger_receipt_of_another_lane_proves_nothing(world, writer):
    def another_wrote():
        world.server.put(
            SHARD, **{layout.VALUE: 7, layout.RECEIPTS: {"another": world.server.now + 1_000_000}}
        )

    world.faults["commit"] = [after(another_wrote, lost_request)]
    writer.add()
    assert value(world) == 8


def test_a_shard_that_never_was_is_told_from_a_deleted_one_by_its_counter(world, writer):
    world.faults["commit"] = [lost_request]
    writer.add()
    assert world.methods[2:5] == ["rollback", "batch_get_documents", "batch_get_documents"]
    assert value(world) == 1


def test_a_shard_that_is_older_than_the_attempt_needs_no_look_at_the_counter(world, writer):
    writer.add()
    world.requests.clear()
    world.faults["commit"] = [lost_request]
    writer.add()
    assert world.methods.count("batch_get_documents") == 1
    assert value(world) == 2


def test_a_shard_that_is_younger_than_the_attempt_is_told_from_a_recreated_one_by_its_counter(
    world, writer
):
    world.faults["commit"] = [after(lambda: world.server.put(SHARD, **{layout.VALUE: 7}), lost_request)]
    writer.add()
    assert world.methods.count("batch_get_documents") == 2
    assert value(world) == 8


def test_a_counter_that_was_deleted_meanwhile_leaves_the_outcome_unknown(world, writer):
    world.faults["commit"] = [lost_answer]
    world.faults["rollback"] = [after(lambda: world.server.remove(COUNTER))]
    with pytest.raises(OutcomeUnknown):
        writer.add()


@pytest.mark.parametrize("shard_too", [False, True])
def test_a_counter_that_was_created_anew_meanwhile_leaves_the_outcome_unknown(world, writer, shard_too):
    def recreated():
        world.server.remove(COUNTER)
        world.server.now += 1000
        create_counter(world.server, COUNTER)
        if shard_too:
            world.server.put(SHARD, **{layout.VALUE: 7})

    world.faults["commit"] = [lost_answer]
    world.faults["rollback"] = [after(recreated)]
    with pytest.raises(OutcomeUnknown):
        writer.add()


def test_a_doubt_as_old_as_the_horizon_leaves_the_outcome_unknown(world, writer):
    """The process slept, say: its receipt may have been pruned meanwhile."""

    def pruned_in_our_sleep():
        world.server.now += int(receipts.HORIZON * 1_000_000)
        world.server.put(SHARD, **{layout.RECEIPTS: {}})

    writer.add()
    world.faults["commit"] = [lost_answer]
    world.faults["rollback"] = [after(pruned_in_our_sleep)]
    with pytest.raises(OutcomeUnknown):
        writer.add()


# What is tried again, and what is not.


def test_contention_is_tried_again_until_the_timeout_and_then_nothing_was_applied(world, writer):
    error = exceptions.Aborted("too much contention")
    world.faults["commit"] = [made_up(error)] * 100_000
    writer.context.timeout = 0.5
    with pytest.raises(NotApplied) as caught:
        writer.add()
    assert caught.value.__cause__ is error
    assert value(world) == 0
    assert 0.5 <= world.seconds < 0.6
    assert len(writer.marks) > 10


def test_contention_is_tried_on_another_shard(world):
    create_counter(world.server, COUNTER, shards=3)
    world.faults["commit"] = [ABORTED] * 6
    world.run(increment(world.call(), COUNTER, 1))
    tried = [rpc.request.writes[0].update.name for rpc in world.requests if rpc.method == "commit"]
    assert len(tried) == 7
    assert all(one != other for one, other in pairwise(tried))


@pytest.mark.parametrize(
    "error", [exceptions.PermissionDenied, exceptions.Unauthenticated, exceptions.OutOfRange]
)
def test_what_no_repeat_can_mend_ends_at_once(world, writer, error):
    refusal = error("no")
    world.faults["commit"] = [made_up(refusal)]
    with pytest.raises(NotApplied, match="no") as caught:
        writer.add()
    assert caught.value.__cause__ is refusal
    assert world.methods.count("commit") == 1
    assert value(world) == 0


def test_invalid_argument_may_be_a_transaction_that_is_gone_and_is_tried_three_times(world, writer):
    world.faults["commit"] = [made_up(exceptions.InvalidArgument("bad"))] * 2
    writer.add()
    assert value(world) == 1

    world.requests.clear()
    world.faults["commit"] = [made_up(exceptions.InvalidArgument("bad"))] * 9
    with pytest.raises(NotApplied):
        writer.add()
    assert world.methods.count("commit") == 3


@pytest.mark.parametrize(
    "error", [exceptions.AlreadyExists, exceptions.FailedPrecondition, exceptions.NotFound]
)
def test_a_failed_precondition_is_told_apart_once_it_is_sure_that_nothing_was_applied(world, writer, error):
    refusal = error("precondition")
    world.faults["commit"] = [made_up(refusal)]
    writer.conditioned = True
    with pytest.raises(Refused) as caught:
        writer.add()
    assert caught.value.__cause__ is refusal
    assert "rollback" in world.methods
    assert free_lanes(writer) == 1


@pytest.mark.parametrize(
    "error", [exceptions.AlreadyExists, exceptions.FailedPrecondition, exceptions.NotFound]
)
def test_where_no_precondition_was_asked_for_its_failure_is_an_error_like_any_other(world, writer, error):
    refusal = error("a database that is no more, say")
    world.faults["commit"] = [made_up(refusal)]
    with pytest.raises(NotApplied) as caught:
        writer.add()
    assert caught.value.__cause__ is refusal
    assert free_lanes(writer) == 1


def test_writes_without_a_proof_are_sent_again_after_the_fence_without_a_read(world, writer):
    write = wire.update(Server.name(COUNTER), {layout.SHARD_COUNT: 20})
    world.faults["commit"] = [lost_answer]
    world.run(commit(world.call(writer.context), lambda _: Staged([write], None)))
    assert world.methods == ["begin_transaction", "commit", "rollback", "begin_transaction", "commit"]
    assert world.server.field(COUNTER, layout.SHARD_COUNT) == 20


@pytest.mark.parametrize("later", ["begin_transaction", "commit"])
def test_writes_without_a_proof_that_may_have_been_applied_are_not_said_not_to_be(world, writer, later):
    write = wire.update(Server.name(COUNTER), {layout.SHARD_COUNT: 20})
    denied = made_up(exceptions.PermissionDenied("revoked"))
    world.faults["commit"] = [lost_answer]
    world.faults[later] += [delivered, denied] if later == "begin_transaction" else [denied]
    with pytest.raises(OutcomeUnknown):
        world.run(commit(world.call(writer.context), lambda _: Staged([write], None)))
    world.faults["commit"] = [denied]
    with pytest.raises(NotApplied):
        world.run(commit(world.call(writer.context), lambda _: Staged([write], None)))


def test_a_created_document_is_its_own_proof(world):
    context = world.context()
    context.saw_server_time(world.server.now)

    def stage(receipt):
        write = wire.create(Server.name(COUNTER), receipt.as_field())
        return Staged([write], Proof(COUNTER, receipt), conditioned=True)

    world.faults["commit"] = [lost_request, delivered_twice]
    world.run(commit(world.call(context), stage))
    assert len(world.server.applied) == 1
    with pytest.raises(Refused):
        world.run(commit(world.call(context), stage))


def test_begin_is_tried_again_after_what_passes(world, writer):
    world.faults["begin_transaction"] = [lost_request, lost_answer, ABORTED, INTERNAL]
    writer.add()
    assert world.methods == ["begin_transaction"] * 5 + ["commit"]


@pytest.mark.parametrize(
    "error", [exceptions.PermissionDenied("no"), exceptions.NotFound("no database"), OSError("raw")]
)
def test_begin_that_is_refused_ends_the_call_with_nothing_applied(world, writer, error):
    world.faults["begin_transaction"] = [made_up(error)]
    with pytest.raises(NotApplied) as caught:
        writer.add()
    assert caught.value.__cause__ is error
    assert world.methods == ["begin_transaction"]


def test_a_begin_that_goes_unanswered_until_the_timeout_is_not_applied(world, writer):
    world.faults["begin_transaction"] = [silence] * 50
    with pytest.raises(NotApplied) as caught:
        writer.add()
    assert isinstance(caught.value.__cause__, exceptions.DeadlineExceeded)
    assert writer.context.timeout <= world.seconds < writer.context.timeout + 1


def test_waits_grow_with_each_attempt_to_a_bound_and_are_a_random_share_of_it(world):
    writer = Writer(world, backoff=Backoff(first=0.1, factor=2, longest=0.8))
    world.faults["commit"] = [ABORTED] * 40
    writer.add()
    bounds = [0.1, 0.2, 0.4, *[0.8] * 37]
    assert len(world.pauses) == 40
    assert all(0 < pause <= bound for pause, bound in zip(world.pauses, bounds, strict=True))
    late = world.pauses[3:]
    assert min(late) < 0.2
    assert max(late) > 0.6


def test_no_wait_outlasts_the_timeout(world):
    writer = Writer(world, backoff=Backoff(first=50, longest=50), timeout=2)
    world.faults["commit"] = [ABORTED] * 40
    with pytest.raises(NotApplied):
        writer.add()
    assert world.seconds <= 2.1


# Lanes.


def test_a_lane_is_given_back_once_the_outcome_is_known(world, writer):
    world.faults["commit"] = [delivered, lost_answer, made_up(exceptions.PermissionDenied("no"))]
    writer.add()
    writer.add()
    with pytest.raises(NotApplied):
        writer.add()
    assert len({lane for lane, _ in writer.marks}) == 1
    assert free_lanes(writer) == 1


def test_a_lane_whose_outcome_is_unknown_is_never_used_again(world, writer):
    world.faults["commit"] = [silence] * 50
    world.faults["rollback"] = [silence] * 50
    with pytest.raises(OutcomeUnknown):
        writer.add()
    assert free_lanes(writer) == 0
    world.faults.clear()
    writer.add()
    assert writer.marks[0][0] != writer.marks[-1][0]


def test_two_calls_at_once_have_a_lane_each(world, writer):
    one, other = writer.steps(), writer.steps()
    for steps in (one, other):
        begun = next(steps)
        steps.send(world.send(begun))
    assert writer.marks[0][0] != writer.marks[1][0]


# Cancellation and Ctrl-C.


def advance(world, steps, effects):
    """Perform so many effects of ``steps``; the next one, or None if they ended."""
    try:
        effect = next(steps)
        for _ in range(effects):
            effect = world.advance(steps, effect)
    except StopIteration:
        return None
    return effect


def last_words(world, steps, error, fault=delivered):
    """Throw ``error`` in; what is still asked for until it escapes."""
    world.faults.clear()
    world.faults["rollback"] = [fault]
    asked = []
    with pytest.raises(type(error)) as caught:  # noqa: PT012 - each request may be the last
        effect = steps.throw(error)
        while True:
            asked.append(effect)
            effect = world.advance(steps, effect)
    assert caught.value is error
    return asked


COURSES = {
    "no fault": {},
    "lost answer": {"commit": [lost_answer]},
    "another attempt": {"commit": [lost_request]},
    "no fence at first": {"commit": [held_back(None), lost_request], "rollback": [lost_request]},
}


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt])
@pytest.mark.parametrize("fault", [delivered, lost_request, INTERNAL])
@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES)
def test_cut_short_anywhere_a_shielded_rollback_is_the_last_request_and_the_error_escapes(
    course, fault, error
):
    interrupted = []
    while True:
        world = World()
        writer = Writer(world)
        world.faults.update({method: list(faults) for method, faults in course.items()})
        steps = writer.steps()
        effect = advance(world, steps, len(interrupted))
        if effect is None:
            break
        interrupted.append(effect.method)
        asked = last_words(world, steps, error(), fault)
        if effect.method == "begin_transaction":
            assert asked == []  # its id is not known, and it holds nothing
        else:
            (rollback,) = asked
            assert rollback.method == "rollback"
            assert rollback.shielded
            assert rollback.timeout == 2
            assert rollback.request.transaction == effect_transaction(world, effect)
        assert free_lanes(writer) == 0
        world.deliver_held()
        assert value(world) <= 1
    assert interrupted[:2] == ["begin_transaction", "commit"]


def effect_transaction(world, effect):
    """The transaction that was under way at ``effect``: a read after the fence does not name it."""
    last = [rpc for rpc in world.requests if rpc.method == "commit"]
    return (effect if effect.method == "commit" else last[-1]).request.transaction


def test_cut_short_while_backing_off_between_attempts_there_is_nothing_to_roll_back(world):
    writer = Writer(world, backoff=Backoff(first=1))
    world.faults["commit"] = [ABORTED]
    steps = writer.steps()
    assert isinstance(advance(world, steps, 5), Sleep)
    assert last_words(world, steps, asyncio.CancelledError()) == []
    assert free_lanes(writer) == 0


def test_cut_short_while_backing_off_in_doubt_the_rollback_is_sent(world):
    writer = Writer(world, backoff=Backoff(first=1))
    world.faults["commit"] = [held_back(None), lost_request]
    world.faults["rollback"] = [lost_request]
    steps = writer.steps()
    assert isinstance(advance(world, steps, 4), Sleep)
    asked = last_words(world, steps, asyncio.CancelledError())
    assert [rpc.method for rpc in asked] == ["rollback"]
    world.deliver_held()
    assert value(world) == 0


def test_abandoned_steps_ask_for_nothing_more_and_drop_their_lane(world, writer):
    steps = writer.steps()
    advance(world, steps, 1)
    steps.close()
    assert world.methods == ["begin_transaction"]
    assert free_lanes(writer) == 0


# Steps of the caller's own within the transaction.


def reading_first(call, writer):
    """Read the shard first, then add to it, with a receipt of after the read."""

    def stage(_transaction, receipt):
        yield wire.get(call.database, [SHARD], call.patience())
        return writer.stage(call)(receipt())

    return commit_within(call, stage)


def test_contention_met_by_a_read_starts_again_in_a_new_transaction(world, writer):
    world.faults["batch_get_documents"] = [ABORTED]
    world.run(reading_first(world.call(writer.context), writer))
    aborted, committed = world.methods[:3], world.methods[3:]
    assert aborted == ["begin_transaction", "batch_get_documents", "rollback"]
    assert committed == ["begin_transaction", "batch_get_documents", "commit"]
    assert value(world) == 1
    assert world.server.open_transactions == 0


def test_contention_met_by_reads_until_the_timeout_is_not_applied(world, writer):
    writer.context.timeout = 0.5
    world.faults["batch_get_documents"] = [ABORTED] * 10_000
    with pytest.raises(NotApplied) as caught:
        world.run(reading_first(world.call(writer.context), writer))
    assert isinstance(caught.value.__cause__, exceptions.Aborted)
    assert world.server.open_transactions == 0


@pytest.mark.parametrize("error", [LookupError("the caller's"), asyncio.CancelledError()])
def test_an_error_of_the_callers_steps_closes_the_transaction_and_escapes(world, writer, error):
    def stage(_transaction, _receipt):
        raise error
        yield

    with pytest.raises(type(error)) as caught:
        world.run(commit_within(world.call(writer.context), stage))
    assert caught.value is error
    assert world.methods == ["begin_transaction", "rollback"]
    assert world.requests[-1].shielded


def test_steps_that_choose_no_writes_commit_nothing_and_close_the_transaction(world, writer):
    def stage(_transaction, _receipt):
        return Staged([], None)
        yield

    world.run(commit_within(world.call(writer.context), stage))
    assert world.methods == ["begin_transaction", "rollback"]
    assert world.server.open_transactions == 0
    assert free_lanes(writer) == 1


def test_a_transaction_that_only_read_is_closed_even_if_the_first_rollback_is_lost(world, writer):
    """Its read locks keep writers waiting."""

    def stage(_transaction, _receipt):
        return Staged([], None)
        yield

    world.faults["rollback"] = [lost_request] * 3
    world.run(commit_within(world.call(writer.context), stage))
    assert world.server.open_transactions == 0
    world.faults["rollback"] = [INTERNAL] * 99
    world.run(commit_within(world.call(writer.context), stage))  # what was read stays true
    assert world.methods.count("rollback") < 10


# Writes with preconditions, without a transaction.


def conditioned(world, write, context=None):
    world.run(commit_conditioned(world.call(context), [write]))


def test_writes_with_preconditions_are_sent_again_until_answered(world):
    world.faults["commit"] = [lost_request, ABORTED, INTERNAL]
    conditioned(world, wire.create(Server.name(COUNTER), {}))
    assert world.methods == ["commit"] * 4
    assert all(not rpc.request.transaction for rpc in world.requests)


def test_a_second_copy_is_refused_by_its_precondition_and_changes_nothing(world):
    world.faults["commit"] = [lost_answer]
    with pytest.raises(Refused):
        conditioned(world, wire.create(Server.name(COUNTER), {}))
    assert len(world.server.applied) == 1


def test_writes_with_preconditions_that_are_refused_for_good_are_not_applied(world):
    for error in (exceptions.PermissionDenied("no"), exceptions.InvalidArgument("no")):
        world.faults["commit"] = [made_up(error)]
        with pytest.raises(NotApplied) as caught:
            conditioned(world, wire.create(Server.name(COUNTER), {}))
        assert caught.value.__cause__ is error
    assert world.methods == ["commit"] * 2


def test_a_refusal_after_a_lost_answer_does_not_claim_that_nothing_was_applied(world):
    world.faults["commit"] = [lost_answer, made_up(exceptions.PermissionDenied("revoked"))]
    with pytest.raises(OutcomeUnknown):
        conditioned(world, wire.create(Server.name(COUNTER), {}))
    assert len(world.server.applied) == 1


def test_writes_without_preconditions_that_may_be_repeated_are_never_refused_for_one(world):
    refusal = exceptions.FailedPrecondition("an index that is being built, say")
    world.faults["commit"] = [made_up(refusal)]
    write = wire.replace(Server.name(COUNTER), {})
    with pytest.raises(NotApplied) as caught:
        world.run(commit_conditioned(world.call(), [write], conditioned=False))
    assert caught.value.__cause__ is refusal


def test_writes_that_were_never_sent_were_not_applied(world):
    call = world.call()
    world.pass_time(31)
    with pytest.raises(NotApplied):
        world.run(commit_conditioned(call, []))
    assert world.sent == 0


def test_writes_with_preconditions_that_go_unanswered_are_unknown(world):
    world.faults["commit"] = [silence] * 50
    with pytest.raises(OutcomeUnknown) as caught:
        conditioned(world, wire.create(Server.name(COUNTER), {}))
    assert isinstance(caught.value.__cause__, exceptions.DeadlineExceeded)


# Old receipts.

STALE = {f"lane{number}": START - 301_000_000 for number in range(receipts.PRUNE_AT)}


def shard_with(world, marks):
    world.server.put(SHARD, **{layout.VALUE: 0, layout.RECEIPTS: marks})


@pytest.fixture
def pruner(world):
    return Writer(world, prune_chance=1.0)


def test_the_first_write_of_a_lane_to_a_shard_removes_receipts_past_the_horizon(world, pruner):
    shard_with(world, STALE | {"young": START - 299_000_000})
    pruner.add()
    assert world.methods[2:] == ["batch_get_documents", "commit"]
    assert set(world.server.field(SHARD, layout.RECEIPTS)) == {"young", pruner.marks[0][0]}
    assert value(world) == 1


def test_later_writes_of_a_lane_and_those_without_luck_look_after_no_receipts(world, pruner):
    shard_with(world, STALE)
    pruner.add()
    world.requests.clear()
    pruner.add()
    assert world.methods == ["begin_transaction", "commit"]
    unlucky = Writer(world, prune_chance=0.0)
    world.requests.clear()
    unlucky.add()
    assert world.methods == ["begin_transaction", "commit"]


def test_few_old_receipts_are_not_worth_a_write(world, pruner):
    shard_with(world, dict(list(STALE.items())[1:]))
    pruner.add()
    assert world.methods[2:] == ["batch_get_documents"]


def test_pruning_removes_nothing_from_a_shard_that_changed_since_it_was_read(world, pruner):
    shard_with(world, STALE)
    another_writes = after(lambda: world.server.put(SHARD, **{layout.VALUE: 5}))
    world.faults["commit"] = [delivered] + [another_writes] * 9
    pruner.add()
    assert world.methods.count("commit") == 1 + 4, "then it is left to others"
    assert STALE.keys() <= world.server.field(SHARD, layout.RECEIPTS).keys()
    assert value(world) == 5


def test_pruning_is_tried_again_where_somebody_wrote_meanwhile(world, pruner):
    shard_with(world, STALE)
    another_writes = after(lambda: world.server.put(SHARD, **{layout.VALUE: 5}))
    world.faults["commit"] = [delivered, another_writes, ABORTED]
    pruner.add()
    assert set(world.server.field(SHARD, layout.RECEIPTS)) == {pruner.marks[0][0]}
    assert world.server.field(SHARD, layout.PRUNED) == START - 301_000_000


@pytest.mark.parametrize("method", ["batch_get_documents", "commit"])
def test_an_increment_is_done_even_if_pruning_fails(world, pruner, method):
    shard_with(world, STALE)
    world.faults[method] = [delivered, lost_request] if method == "commit" else [lost_request]
    pruner.add()
    assert value(world) == 1
    assert free_lanes(pruner) == 1


# All of it: every choice of faults, up to a bound.

FATES = {
    "begin_transaction": [lost_request],
    "commit": [
        lost_request,
        lost_answer,
        held_back(1),
        held_back(2),
        held_back(None),
        delivered_twice,
        ABORTED,
    ],
    "rollback": [lost_request, lost_answer, held_back(1)],
    "batch_get_documents": [lost_request],
}


class Course(World):
    """A world whose faults are chosen by ``choices``: one for each request; none of them: delivered.

    ``options`` says how many there were for each.
    """

    def __init__(self, server, choices, fates):
        super().__init__(server)
        self.choices = choices
        self.fates = fates(self) if callable(fates) else fates
        self.options = []

    def fate(self, rpc):
        fates = self.fates[rpc.method]
        self.options.append(len(fates))
        choice = self.choices.get(len(self.options) - 1, 0)
        return fates[choice - 1] if choice else delivered


def explore(run, *, most_faults, first_requests):
    """Run every course with at most so many faults among the first requests."""
    courses = [{}]
    count = 0
    while courses:
        choices = courses.pop()
        options = run(choices)
        count += 1
        if len(choices) < most_faults:
            start = max(choices, default=-1) + 1
            courses += [
                choices | {request: choice}
                for request in range(start, min(len(options), first_requests))
                for choice in range(1, options[request] + 1)
            ]
    return count


def applied_exactly_once_or_honest(world, writer, *, must_succeed):
    try:
        writer.add()
    except NotApplied:
        claims = {0}
        assert not must_succeed
    except OutcomeUnknown:
        claims = {0, 1}
        assert not must_succeed
    else:
        claims = {1}
    world.deliver_held()
    assert len(world.server.applied) in claims, world.choices


SERVERS = [
    (exceptions.InvalidArgument, None),
    (exceptions.InvalidArgument, exceptions.InternalServerError),
    (exceptions.InvalidArgument, exceptions.InvalidArgument),
    (exceptions.Aborted, None),
]


@pytest.mark.parametrize(("closed", "rollback_of_closed"), SERVERS)
def test_whatever_is_lost_repeated_or_held_back_it_counts_exactly_once(closed, rollback_of_closed):
    def run(choices):
        world = Course(Server(closed, rollback_of_closed), choices, FATES)
        applied_exactly_once_or_honest(world, Writer(world), must_succeed=True)
        return world.options

    assert explore(run, most_faults=3, first_requests=10) > 600


def deleted(world):
    world.server.remove(COUNTER)


def made_anew(world):
    world.server.remove(COUNTER)
    world.server.now += 1000
    create_counter(world.server, COUNTER)


def made_anew_and_written(world):
    made_anew(world)
    world.server.put(SHARD, **{layout.VALUE: 0})


def out_of_time(world):
    world.pass_time(31)


def slept_and_pruned(world):
    """The local clock stood still with the process; meanwhile others removed old receipts."""
    world.server.now += int(receipts.HORIZON * 1_000_000)
    if SHARD in world.server.documents:
        world.server.put(SHARD, **{layout.RECEIPTS: {}})


def with_happenings(world):
    """Before any request something may happen, and the request may be lost too."""
    happenings = (deleted, made_anew, made_anew_and_written, out_of_time, slept_and_pruned)
    fates = [lost_request, lost_answer, held_back(None)]
    fates += [
        after(partial(happening, world), then)
        for happening in happenings
        for then in (delivered, lost_request, lost_answer)
    ]
    return dict.fromkeys(FATES, fates)


@pytest.mark.parametrize("shard_is_there", [False, True])
def test_whatever_happens_to_counter_and_clock_no_call_lies_about_its_outcome(shard_is_there):
    def run(choices):
        world = Course(Server(), choices, with_happenings)
        writer = Writer(world)
        if shard_is_there:
            world.server.put(SHARD, **{layout.VALUE: 0})
        applied_exactly_once_or_honest(world, writer, must_succeed=False)
        return world.options

    assert explore(run, most_faults=2, first_requests=8) > 900
