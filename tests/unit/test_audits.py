"""Which parents an audit looks at, what it makes of them, and how it looks into the past."""

import doctest
from datetime import timedelta

import pytest
from google.api_core import exceptions
from reference_model import COUNTER, LIKES, ReferenceServer, adding, likes_world, value
from server_model import DATABASE, World, create_counter, made_up

from counters import (
    Audit,
    CorruptShard,
    InvalidType,
    InvalidValue,
    StaleAudit,
    audit,
    audits,
    evidence,
    layout,
    parents,
    wire,
)
from counters.audit import Reads
from counters.evidence import LONGEST_PAST
from counters.rollup import SETTLING

SECOND = 1_000_000


@pytest.mark.parametrize("module", [parents, layout])
def test_the_examples_in_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0


# Patterns.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "posts",
        "posts/*",
        "posts/*/likes/",
        "/posts/*/likes",
        "posts//likes",
        "*/a/likes",
        "posts/*/*",
        "posts/*/comments/*",
        "posts/__x__/likes",
        "posts/*/counters",
        "posts/*/counters/*/counter_shards",
        "counter_rollups/*/likes",
    ],
)
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(InvalidValue):
        parents.pattern(text)


@pytest.mark.parametrize("text", [None, 5, ["posts", "*", "likes"]])
def test_a_pattern_is_a_text(text):
    with pytest.raises(InvalidType):
        parents.pattern(text)


@pytest.mark.parametrize("text", ["posts/*/likes", "posts/a91f/likes", "a/*/b/c/d/*/ü"])
def test_a_pattern_is_written_as_it_was_read(text):
    assert str(parents.pattern(text)) == text


def test_parents_are_named_by_path_or_by_what_the_only_star_stands_for():
    one, two = parents.pattern("posts/*/likes"), parents.pattern("posts/*/comments/*/likes")
    assert one.parents_of(["posts/a", "b", "a"]) == ("posts/a", "posts/b")
    assert two.parents_of(["posts/a/comments/b"]) == ("posts/a/comments/b",)
    assert parents.pattern("posts/a/likes").parents_of(["posts/a"]) == ("posts/a",)
    for wanted, wrong in ((one, "pages/a"), (one, "posts/a/b"), (one, ""), (one, "posts/"), (two, "a")):
        with pytest.raises(InvalidValue, match="no parent of"):
            wanted.parents_of([wrong])


# Walking.


def server_with(*paths):
    server = ReferenceServer()
    for path in paths:
        server.put(path)
    return server


def walk(world, text, *, most=2, prefix=""):
    """The parents that are found, page by page, and what finding them cost."""
    reads = Reads()
    where = parents.walk(parents.pattern(text), prefix, missing=True, reads=reads)
    found = []
    while where.open:
        page = world.run(where.next_page(world.call(), most))
        assert len(page) <= most
        found += page
    return found, reads.number


def test_parents_come_in_order_page_by_page_and_missing_ones_too():
    world = World(server_with("posts/b", "posts/a/likes/u", "posts/c/x/y/z/w", "posts/ü", "pages/d"))
    found, reads = walk(world, "posts/*/likes")
    assert found == ["posts/a", "posts/b", "posts/c", "posts/ü"]
    assert reads == 4


def test_below_a_star_everything_comes_before_the_next_document():
    world = World(
        server_with(
            "posts/a/comments/1", "posts/a/comments/2/likes/u", "posts/a/comments/3", "posts/b/likes/u",
            "posts/c/comments/1", "posts/d/comments/1",
        )
    )  # fmt: skip
    found, reads = walk(world, "posts/*/comments/*/likes")
    assert found == [
        "posts/a/comments/1",
        "posts/a/comments/2",
        "posts/a/comments/3",
        "posts/c/comments/1",
        "posts/d/comments/1",
    ]
    posts, comments, of_b_there_is_none = 4, 5, 1
    assert reads == posts + comments + of_b_there_is_none


def test_a_prefix_is_for_the_first_star_and_ends_the_walk_behind_it():
    posts = ("a", "b1", "b2", "c", "d", "e")
    paths = [f"posts/{post}/comments/{comment}" for post in posts for comment in "bc"]
    found, reads = walk(World(server_with(*paths)), "posts/*/comments/*/likes", prefix="b", most=10)
    assert found == paths[2:6]
    assert reads == 6 + 2 + 2
    found, reads = walk(World(server_with(*paths)), "posts/*/likes", prefix="b", most=2)
    assert found == ["posts/b1", "posts/b2"]
    assert reads == 4, "the page with c is behind it, and the one with e was not asked for"


def test_without_a_star_there_is_one_parent_and_nothing_to_find():
    world = World(server_with())
    assert walk(world, "posts/a/likes") == (["posts/a"], 0)
    assert world.requests == []


# Many.


def count_on(server, post, *, stored, actual, **fields):
    counter = layout.counter_path(post, "likes")
    create_counter(server, counter, **{layout.CHILDREN: layout.children_path(counter)} | fields)
    server.put(layout.shard_path(counter, 0), **{layout.VALUE: stored})
    for user in range(actual):
        server.put(f"{post}/likes/u{user}")


def audit_many(world, **options):
    asked = audits.question(
        options.pop("pattern", "posts/*/likes"),
        **{"limit": None, "prefix": "", "named": None, "missing": True, "concurrency": 8, "progress": None}
        | options,
    )
    return world.run(audits.audit_all(world.context(), DATABASE, asked))


def test_drift_comes_first_and_the_largest_before_all():
    server = ReferenceServer()
    for post, stored, actual in (("a", 2, 2), ("b", 1, 3), ("c", 9, 1), ("d", 4, 2), ("e", 0, 0)):
        count_on(server, f"posts/{post}", stored=stored, actual=actual)
    report = audit_many(World(server))
    assert [(found.parent[-1], found.difference) for found in report.audits] == [
        ("c", -8), ("b", 2), ("d", -2), ("a", 0), ("e", 0),
    ]  # fmt: skip
    assert [found.parent[-1] for found in report.drifted] == ["c", "b", "d"]
    assert (report.failed, report.more) == ((), False)


def test_counts_are_read_in_pages_and_let_settle_once_a_page():
    server = ReferenceServer()
    for number in range(230):
        count_on(server, f"posts/{number:03}", stored=1, actual=1)
    world = World(server)
    told = []
    report = audit_many(world, progress=told.append)
    assert told == [100, 200, 230]
    assert world.methods.count("batch_get_documents") == world.methods.count("list_documents") == 3
    assert world.pauses == [SETTLING / SECOND] * 3
    assert report.reads == 4 * 230


@pytest.mark.parametrize(("limit", "listed", "more"), [(3, 4, True), (5, 5, False), (9, 5, False)])
def test_one_parent_more_than_the_limit_is_listed_to_know_whether_there_is_one(limit, listed, more):
    server = ReferenceServer()
    for number in range(5):
        count_on(server, f"posts/{number}", stored=1, actual=1)
    report = audit_many(World(server), limit=limit)
    assert (len(report.audits), report.more) == (min(limit, 5), more)
    assert report.reads == listed + 3 * min(limit, 5)


def test_a_count_that_cannot_be_audited_is_in_failed_with_its_reads_on_the_bill():
    server = ReferenceServer()
    count_on(server, "posts/a", stored=1, actual=1)
    count_on(server, "posts/b", stored=1, actual=1, **{layout.CHILDREN: "posts/b/shares"})
    count_on(server, "posts/c", stored=1, actual=2)
    server.put(layout.shard_path("posts/c/counters/likes", 1), **{layout.VALUE: "one"})
    report = audit_many(World(server))
    assert [found.parent for found in report.audits] == ["posts/a"]
    assert [(failure.parent, type(failure.error)) for failure in report.failed] == [
        ("posts/b", InvalidValue),
        ("posts/c", CorruptShard),
    ]
    listing, documents, aggregations, looking = 3, 3, 4, 2
    assert report.reads == listing + documents + aggregations + looking


def test_a_list_without_a_limit_is_audited_whole_and_a_pattern_to_a_thousand():
    asked = {"prefix": "", "missing": True, "concurrency": 1, "progress": None}
    many = [f"p{number}" for number in range(2000)]
    assert audits.question("posts/*/likes", limit=None, named=many, **asked).limit == 2000
    assert audits.question("posts/*/likes", limit=7, named=many, **asked).limit == 7
    assert audits.question("posts/*/likes", limit=None, named=None, **asked).limit == 1000
    assert audits.question("posts/*/likes", limit=None, named=[], **asked).parents == ()


@pytest.mark.parametrize(("entries", "reads"), [(0, 1), (1, 1), (1000, 1), (1001, 2), (5000, 5)])
def test_a_thousand_entries_are_a_read(entries, reads):
    bill = Reads()
    bill.entries(entries)
    assert bill.number == reads


# One.


def test_an_audit_reads_both_numbers_at_the_moment_of_its_first_read():
    world = likes_world()
    world.run(adding(world.call(), "u1"))

    def another_like(world, rpc):
        world.faults["run_aggregation_query"] = []
        world.run(adding(world.call(), "u2"))
        return world.deliver(rpc)

    world.faults["run_aggregation_query"] = [another_like]
    found = world.run(audit.audit(world.call(), COUNTER, LIKES))
    assert (found.stored, found.actual) == (1, 1)
    assert value(world) == 2


def test_a_difference_in_the_servers_sum_alone_is_none():
    """SUM passes over what is no number; the shards themselves decide."""
    world = likes_world()
    world.run(adding(world.call(), "u1"))
    sums = iter([0, 1])

    def miscounts(_world, _rpc):
        answer = wire.types.RunAggregationQueryResponse.pb()()
        answer.result.aggregate_fields["result"].integer_value = next(sums)
        return [wire.types.RunAggregationQueryResponse.wrap(answer)]

    world.faults["run_aggregation_query"] = [miscounts, miscounts]
    found = world.run(audit.audit(world.call(), COUNTER, LIKES))
    assert (found.stored, found.actual) == (1, 1)


def test_of_two_repairs_the_later_commit_is_refused_and_finds_nothing_to_repair():
    world = likes_world()
    world.server.put(f"{LIKES}/x")
    found = world.run(audit.audit(world.call(), COUNTER, LIKES))

    def another_repair(world, rpc):
        assert world.run(audit.repair(world.call(), COUNTER, LIKES, found, "first")) == 1
        return world.deliver(rpc)

    world.faults["commit"] = [another_repair]
    with pytest.raises(StaleAudit):
        world.run(audit.repair(world.call(), COUNTER, LIKES, found, "second"))
    assert value(world) == 1


# The past.


def audit_after(world, seconds):
    world.pass_time(seconds)
    return world.run(audit.audit(world.call(), COUNTER, LIKES))


def explain(world, found):
    return world.run(evidence.explain(world.context(), DATABASE, found))


@pytest.mark.parametrize("ago", [0.2, 1, 1.7, 5, 61, 1000, 3000, 3500])
def test_the_second_in_which_a_difference_came_is_found_within_the_past_hour(ago):
    world = likes_world()
    for user in "abc":
        world.run(adding(world.call(), user))
    world.pass_time(4000)
    came = world.server.now
    world.server.put(f"{LIKES}/x")
    found = audit_after(world, ago)
    before = world.sent
    explained = explain(world, found)
    assert wire.from_datetime(explained.came_after) <= came <= wire.from_datetime(explained.came_by)
    assert explained.came_by - explained.came_after <= timedelta(seconds=1)
    assert (world.sent - before - 3) / 2 <= 24, "audits, of two requests each"


def test_the_latest_change_of_the_difference_is_found_and_likes_are_no_change():
    world = likes_world()
    world.server.put(f"{LIKES}/x")
    world.pass_time(1000)
    came = world.server.now
    world.server.put(f"{LIKES}/y")
    for user in "abcdef":
        world.pass_time(20)
        world.run(adding(world.call(), user))
    explained = explain(world, audit_after(world, 10))
    assert wire.from_datetime(explained.came_after) <= came <= wire.from_datetime(explained.came_by)


def test_of_a_difference_that_is_older_than_an_hour_it_is_said_how_far_it_was_followed():
    world = likes_world()
    world.server.put(f"{LIKES}/x")
    found = audit_after(world, 7200)
    explained = explain(world, found)
    assert explained.came_after is None
    assert found.as_of - explained.came_by == timedelta(microseconds=LONGEST_PAST)


def test_what_the_server_has_forgotten_ends_the_search():
    world = likes_world()
    world.server.put(f"{LIKES}/x")
    found = audit_after(world, 7200)
    for _ in range(10):  # of two requests each, back to 16 seconds ago
        world.faults["run_aggregation_query"].append(lambda world, rpc: world.deliver(rpc))
    too_old = made_up(exceptions.FailedPrecondition("the requested read_time is too old"))
    world.faults["run_aggregation_query"].append(too_old)
    explained = explain(world, found)
    assert explained.came_after is None
    assert found.as_of - explained.came_by == timedelta(seconds=16)


def test_children_older_than_the_last_adjustment_were_counted_by_it():
    world = likes_world()
    world.server.put(f"{LIKES}/old")
    world.run(audit.backfill(world.call(), COUNTER, LIKES, "op"))
    world.run(adding(world.call(), "ours"))
    world.server.put(f"{LIKES}/theirs")
    explained = explain(world, audit_after(world, 1))
    assert explained.uncounted == ("theirs",)
    assert (explained.newest_child, explained.children_seen) == ("theirs", 3)
    assert explained.adjusted_at is not None


def test_an_explanation_looks_at_a_page_of_children_and_no_further():
    world = likes_world()
    for number in range(1005):
        world.server.documents[f"{LIKES}/u{number:04}"] = None
        world.server.put(f"{LIKES}/u{number:04}")
    explained = explain(world, audit_after(world, 1))
    assert explained.children_seen == 1000
    assert len(explained.uncounted) == 1000


def test_an_audit_knows_its_parent():
    found = Audit("c/d", "members", stored=1, actual=3, total=None, as_of=None, exists=True)
    assert (found.parent, found.difference) == ("", 2)
