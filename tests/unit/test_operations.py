"""Keys and transactions of the caller's own: what their operation documents decide."""

import pytest
from google.api_core import exceptions
from google.cloud.firestore_v1 import Client
from google.cloud.firestore_v1.types import Write
from server_model import (
    World,
    after,
    create_counter,
    delivered,
    held_back,
    lost_answer,
    lost_request,
    made_up,
    silence,
)

from counters import KeyConflict, NotApplied, OutcomeUnknown, layout, lifecycle, receipts, wire
from counters.operations import increment_once, transact

COUNTER = "posts/a91f/counters/likes"
SHARD = layout.shard_path(COUNTER, 0)
KEY = layout.operation_path(COUNTER, "event")


@pytest.fixture
def world():
    world = World()
    create_counter(world.server, COUNTER)
    return world


def once(world, context=None, key="event", amount=1):
    return world.run(increment_once(world.call(context), COUNTER, key, amount))


def value(world):
    stored = world.server.documents.get(SHARD)
    return stored.fields[layout.VALUE] if stored else 0


def test_a_key_counts_once_whatever_process_comes(world):
    assert [once(world), once(world), once(world, key="another")] == [True, False, True]
    assert value(world) == 2


@pytest.mark.parametrize("fault", [lost_answer, lost_request, held_back(None), held_back(1), held_back(2)])
def test_who_counted_a_key_is_told_so_though_the_answer_was_lost(world, fault):
    world.faults["commit"] = [fault]
    assert once(world) is True
    world.deliver_held()
    assert once(world) is False
    assert value(world) == 1


def test_another_process_that_was_first_with_the_key_is_told_from_ourselves(world):
    world.faults["commit"] = [after(lambda: once(world), lost_request)]
    assert once(world) is False
    assert value(world) == 1


@pytest.mark.parametrize("fault", [lost_answer, lost_request])
def test_a_refusal_for_another_documents_sake_decides_nothing(world, fault):
    """ALREADY_EXISTS is no proof that the key was used: only the operation document is."""
    world.faults["commit"] = [made_up(exceptions.AlreadyExists("some document")), fault]
    assert once(world) is True
    assert value(world) == 1


def test_a_key_with_another_amount_is_refused_and_counts_nothing(world):
    once(world)
    with pytest.raises(KeyConflict, match="function's name"):
        once(world, amount=2)
    assert value(world) == 1


def test_before_anything_was_sent_running_out_of_time_is_not_applied(world):
    context = world.context(timeout=1.0)
    world.faults["batch_get_documents"] = [after(lambda: world.pass_time(2))]
    with pytest.raises(NotApplied):
        once(world, context)
    assert world.methods == ["batch_get_documents"]
    assert len(context.lanes._free) == 1


def test_with_no_answer_until_the_timeout_the_outcome_is_unknown_and_the_key_tells_later(world):
    context = world.context()
    once(world, context, key="another")
    world.faults["commit"] = [lost_answer]
    world.faults["batch_get_documents"] = [silence] * 50
    with pytest.raises(OutcomeUnknown, match="same key is safe"):
        once(world, context)
    assert not context.lanes._free
    world.faults.clear()
    assert once(world) is False
    assert value(world) == 2


@pytest.mark.parametrize("error", [exceptions.PermissionDenied, exceptions.InvalidArgument])
def test_what_is_refused_for_good_may_still_be_on_its_way(world, error):
    """There is no fence but the operation's document, and that is not there yet."""
    world.faults["commit"] = [held_back(None, error)]
    with pytest.raises(OutcomeUnknown, match="same key is safe"):
        once(world)
    world.deliver_held()
    assert value(world) == 1
    assert once(world) is False


@pytest.mark.parametrize("key", ["x", " ", "a/b", "__x__", "..", "\n", "\ud800", "é" * 5000])
def test_any_text_can_be_a_key(world, key):
    assert [once(world, key=key), once(world, key=key)] == [True, False]


def test_keys_of_two_counters_never_meet():
    """Not even where a document id holds what could be taken for a separator."""
    assert layout.operation_path("p/a", "b\nk") != layout.operation_path("p/a\nb", "k")


def test_delete_does_not_forget_keys(world):
    once(world)
    world.run(lifecycle.delete(world.call(), COUNTER))
    assert once(world) is False
    assert value(world) == 0


def test_a_key_outlives_every_doubt_however_soon_it_may_be_forgotten(world):
    once(world, world.context(key_days=0.00001))
    expires = wire.micros(world.server.field(KEY, layout.EXPIRE_AT))
    assert expires - world.server.now > (receipts.HORIZON - 1) * 1_000_000


# Transactions of the caller's own.


def body(handle):
    write = Write()
    write.update.name = wire.document_name("projects/p/databases/d", "a/b")
    handle._write_pbs.append(write)
    return "done"


def transacted(world, context):
    client = Client.__new__(Client)
    steps = transact(world.call(context), lambda identity: wire.adopt(client.transaction(), identity), body)
    return world.run(steps)


@pytest.mark.parametrize("fault", [lost_answer, lost_request, held_back(None)])
def test_a_transaction_is_applied_once_and_its_proof_is_looked_after_by_nobody(world, fault):
    world.faults["commit"] = [fault]
    assert transacted(world, world.context(prune_chance=1.0)) == "done"
    world.deliver_held()
    assert len(world.server.applied) == 1
    assert world.methods[-1] in {"commit", "batch_get_documents"}
    commits = world.methods.count("commit")
    assert world.methods.count("batch_get_documents") == 2  # the clock's, and the doubt's
    assert commits == (1 if fault is lost_answer else 2)


# Deleting.


def test_a_deletion_that_is_tried_again_spares_a_counter_that_was_made_meanwhile(world):
    def made_anew():
        world.server.remove(COUNTER)
        create_counter(world.server, COUNTER)

    world.faults["commit"] = [after(made_anew, lost_request)]
    world.run(lifecycle.delete(world.call(), COUNTER))
    assert COUNTER in world.server.documents


def test_a_deletion_that_was_cut_short_does_not_claim_that_nothing_was_applied(world):
    once(world)
    denied = made_up(exceptions.PermissionDenied("no"))
    world.faults["commit"] = [delivered, denied]
    with pytest.raises(OutcomeUnknown, match="in part"):
        world.run(lifecycle.delete(world.call(), COUNTER))
    assert COUNTER not in world.server.documents
    world.run(lifecycle.delete(world.call(), COUNTER))
    assert SHARD not in world.server.documents


def test_a_deletion_is_tried_again_where_a_rollup_wrote_meanwhile(world):
    rolled_up = after(lambda: world.server.put(COUNTER, **{layout.TOTAL: 1}))
    world.faults["commit"] = [rolled_up, rolled_up]
    world.run(lifecycle.delete(world.call(), COUNTER))
    assert COUNTER not in world.server.documents
