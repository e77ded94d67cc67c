"""Likes and their count, against a pure model of the server: every fate of every message."""

import random
from contextlib import suppress

import pytest
from google.api_core import exceptions
from reference_model import COUNTER, LIKES, adding, likers, likes_world, removing, value
from server_model import delivered, delivered_twice, held_back, lost_answer, lost_request, made_up, silence

from counters import InvalidType, InvalidValue, NotApplied, children, layout
from counters.references import checked_by, checked_data, checked_id

INVALID = made_up(exceptions.InvalidArgument("transaction closed, or a bad request"))
FATES = [
    *[delivered] * 6,
    lost_request,
    lost_answer,
    silence,
    delivered_twice,
    held_back(0),
    held_back(3),
    held_back(12),
    held_back(None),
    made_up(exceptions.Aborted("contention")),
]


@pytest.fixture
def world():
    return likes_world()


def test_a_like_is_a_begin_and_a_commit_of_two_writes(world):
    call = world.call()
    assert world.run(adding(call, "u1")) is True
    assert world.methods == ["batch_get_documents", "begin_transaction", "commit"]
    (commit,) = world.server.applied
    assert len(commit.writes) == 2
    assert world.server.field(f"{LIKES}/u1", layout.CHILD_SHARD) == 0


@pytest.mark.parametrize("seed", range(150))
def test_whatever_becomes_of_the_messages_likes_and_count_agree_and_answers_are_true(seed):
    """Against a plain set, which knows nothing of shards, transactions or receipts."""
    chance = random.Random(seed)
    world = likes_world(shards=chance.choice([1, 2, 5]))
    context = world.context(seed=seed, timeout=120)
    liked = set()
    for method in ("begin_transaction", "commit", "rollback", "batch_get_documents"):
        world.faults[method] = [chance.choice(FATES) for _ in range(60)]

    def answer(steps_of, user):
        while True:
            with suppress(NotApplied):  # as after three second copies in a row: calling again is safe
                return world.run(steps_of(world.call(context), user))

    for _ in range(25):
        user = f"u{chance.randrange(3)}"
        if chance.random() < 0.5:
            assert answer(adding, user) is (user not in liked)
            liked.add(user)
        else:
            assert answer(removing, user) is (user in liked)
            liked.discard(user)
        assert likers(world) == liked
        assert value(world) == len(liked)
    world.deliver_held()
    assert likers(world) == liked
    assert value(world) == len(liked)


def test_a_refusal_of_a_second_copy_is_not_taken_for_a_bad_request_because_other_faults_came_first(world):
    """Three INVALID_ARGUMENT in a row are a request that will never do; one after other faults is none."""
    world.faults["commit"] = [lost_request, lost_request, INVALID, delivered]
    assert world.run(adding(world.call(), "u1")) is True
    world.faults["commit"] = [INVALID] * 3
    with pytest.raises(NotApplied):
        world.run(adding(world.call(), "u2"))
    assert likers(world) == {"u1"}


@pytest.mark.parametrize(
    ("calling", "refusal"), [(adding, exceptions.NotFound), (removing, exceptions.AlreadyExists)]
)
def test_a_refusal_that_says_nothing_of_the_child_is_an_error_and_no_false(world, calling, refusal):
    """A database that is gone, for one, is NOT_FOUND too."""
    world.faults["commit"] = [made_up(refusal("the database does not exist"))]
    with pytest.raises(NotApplied, match="does not exist") as error:
        world.run(calling(world.call(), "u1"))
    assert isinstance(error.value.__cause__, refusal)
    assert value(world) == 0


def test_each_attempt_marks_the_child_with_the_shard_that_it_tries():
    world = likes_world(shards=2)
    world.faults["commit"] = [lost_request] * 3
    world.run(adding(world.call(), "u1"))
    commits = [type(rpc.request).pb(rpc.request) for rpc in world.requests if rpc.method == "commit"]
    tried = [
        (child.update.fields[layout.CHILD_SHARD].integer_value, shard.update.name[-1])
        for child, shard in (commit.writes for commit in commits)
    ]
    assert len(tried) == 4
    assert all(str(mark) == shard for mark, shard in tried)
    assert len(set(tried)) == 2, "after a doubt it is the other shard"


# Removing all.


def liked_by(world, number):
    for user in range(number):
        world.server.put(f"{LIKES}/u{user:03}")
    world.server.put(layout.shard_path(COUNTER, 0), **{layout.VALUE: number})


def removing_all(world, progress=None):
    return world.run(children.remove_all(world.call(), COUNTER, LIKES, progress))


def commits(world):
    return world.methods.count("commit")


def test_removing_all_is_a_commit_a_page(world):
    liked_by(world, 250)
    told = []
    assert removing_all(world, told.append) == 250
    assert told == [100, 200, 250]
    assert commits(world) == 3
    assert (likers(world), value(world)) == (set(), 0)


def test_a_child_that_is_gone_is_found_by_halving(world):
    liked_by(world, 100)

    def unlike(world, rpc):
        world.faults["commit"].insert(0, delivered)  # of the unlike
        assert world.run(removing(world.call(), "u042")) is True
        return world.deliver(rpc)

    world.faults["commit"] = [unlike]
    assert removing_all(world) == 99
    unlikes = 1
    assert commits(world) - unlikes <= 8 + 7
    assert (likers(world), value(world)) == (set(), 0)


def test_a_page_that_is_too_large_for_a_commit_is_removed_in_halves(world):
    liked_by(world, 100)
    too_large = made_up(exceptions.InvalidArgument("Transaction too big. Decrease transaction size."))
    world.faults["commit"] = [too_large] * 3
    assert removing_all(world) == 100
    assert (likers(world), value(world)) == (set(), 0)


def test_a_child_that_cannot_be_removed_ends_it_and_what_was_removed_is_discounted(world):
    liked_by(world, 150)
    world.faults["commit"] = [delivered, made_up(exceptions.PermissionDenied("no"))]
    with pytest.raises(NotApplied):
        removing_all(world)
    assert value(world) == len(likers(world)) == 50
    assert removing_all(world) == 50


# What is checked before anything is sent.


@pytest.mark.parametrize("ident", ["u", "ü", "a.b", "__", "___x", "x" * 1500])
def test_what_firestore_takes_for_an_id_is_taken(ident):
    assert checked_id(ident) == ident


@pytest.mark.parametrize("ident", ["", ".", "..", "a/b", "__x__", "x" * 1501, "\udfff", "a\ud800b"])
def test_what_firestore_does_not_take_for_an_id_is_refused(ident):
    with pytest.raises(InvalidValue):
        checked_id(ident)


@pytest.mark.parametrize("ident", [None, 1, b"u", ("u",)])
def test_an_id_is_a_text(ident):
    with pytest.raises(InvalidType):
        checked_id(ident)


def test_data_is_a_mapping_without_our_field():
    assert checked_data(None) == {}
    assert checked_data({"a": 1}) == {"a": 1}
    with pytest.raises(InvalidType):
        checked_data([("a", 1)])
    with pytest.raises(InvalidValue):
        checked_data({layout.CHILD_SHARD: 0})


def test_who_did_it_is_a_text_that_can_be_stored():
    assert checked_by("Zoë") == "Zoë"
    with pytest.raises(InvalidType):
        checked_by(None)
    with pytest.raises(InvalidValue):
        checked_by("\ud800")
