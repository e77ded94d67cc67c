"""What every call on a reference count costs, to the round trip and the billed operation.

As the docstrings and docs/reference-counts.md promise; the counting gateway writes the bill.
"""

import pytest
from gateway_probes import Price
from reference_twins import children

from counters import AuditReport, CorruptShard, Counters, Policy, StaleAudit, layout
from counters.testing import LostAnswer

POST = "posts/a91f"
LIKES = "posts/a91f/likes"
COUNTER = "posts/a91f/counters/likes"
NO_LOOKS = Policy(prune_chance=0, seed=1)

COMMIT = {"BeginTransaction": 1, "Commit": 1}
SETTLED = COMMIT | {"Rollback": 1, "BatchGetDocuments": 1}
GET = {"BatchGetDocuments": 1}
SUM = {"RunAggregationQuery": 1}
AUDIT = GET | {"RunAggregationQuery": 2}
LOOK = {"RunQuery": 1}


@pytest.fixture
def measure(counters_gateway):
    return counters_gateway.measure


@pytest.fixture
def likes(metered):
    return children(metered.app(shards=1, policy=NO_LOOKS), POST, "likes")


@pytest.fixture
def others_likes(db):
    """The same count as another process has it, past the gateway."""
    return Counters(db, shards=1, policy=NO_LOOKS).children(POST, "likes")


# Every call on a count of one like, u1, with one shard. Cold is a process's first call on it.

CALLS = {
    "add": (lambda likes: likes.add("u2"), True, COMMIT, Price(2, writes=2)),
    "add with data": (lambda likes: likes.add("u2", {"n": 1}), True, COMMIT, Price(2, writes=2)),
    "add twice": (lambda likes: likes.add("u1"), False, SETTLED, Price(4, reads=1)),
    "remove": (lambda likes: likes.remove("u1"), True, COMMIT, Price(2, writes=1, deletes=1)),
    "remove twice": (lambda likes: likes.remove("u2"), False, SETTLED, Price(4, reads=1)),
    "contains": (lambda likes: likes.contains("u1"), True, GET, Price(1, reads=1)),
    "value": (lambda likes: likes.value(), 1, SUM, Price(1, reads=1)),
    "create": (lambda likes: likes.create(), False, GET, Price(1, reads=1)),
    "remove_all": (lambda likes: likes.remove_all(), 1, COMMIT | LOOK, Price(3, 1, 1, 1)),
    "backfill": (lambda likes: likes.backfill(), 0, AUDIT, Price(3, reads=3)),
}
CACHED = {"add", "add with data", "add twice", "remove", "remove twice", "remove_all"}


@pytest.mark.parametrize("name", CALLS)
async def test_the_price_of_a_warm_call(likes, measure, name):
    call, answer, rpcs, price = CALLS[name]
    await likes.add("u1")
    with measure() as bill:
        assert await call(likes) == answer
    assert bill.rpcs == rpcs
    assert Price.on(bill) == price


@pytest.mark.parametrize("name", CALLS)
async def test_the_price_of_a_cold_call(likes, others_likes, measure, name):
    call, answer, rpcs, price = CALLS[name]
    others_likes.add("u1")
    with measure() as bill:
        assert await call(likes) == answer
    if name in CACHED:  # the settings are read first
        price = price._replace(round_trips=price.round_trips + 1, reads=price.reads + 1)
        rpcs = rpcs | {"BatchGetDocuments": rpcs.get("BatchGetDocuments", 0) + 1}
    assert bill.rpcs == rpcs
    assert Price.on(bill) == price


async def test_the_total_is_a_read(likes, others_likes, measure):
    others_likes.add("u1")
    with measure() as bill:
        await likes.total()
    assert Price.on(bill) == Price(1, reads=1)


async def test_a_child_with_an_id_of_its_own_costs_what_any_other_does(likes, measure):
    await likes.add("u1")
    with measure() as bill:
        await likes.add_new({"n": 1})
    assert bill.rpcs == COMMIT
    assert Price.on(bill) == Price(2, writes=2)


async def test_handles_and_checks_cost_nothing(metered, measure):
    with measure() as bill:
        app = metered.app()
        for _ in range(3):
            children(app, POST, "likes")
    assert Price.on(bill) == Price()


async def test_the_first_like_of_all_pays_four_round_trips_two_reads_and_a_write_more(likes, measure):
    with measure() as bill:
        await likes.add("u1")
    cold = Price(3, reads=1, writes=2)
    assert Price.on(bill) == Price(cold.round_trips + 4, cold.reads + 2, cold.writes + 1)


async def test_a_refusal_on_a_new_shard_is_a_round_trip_and_a_read_more(likes, others_likes, measure):
    others_likes.create()
    await likes.value()
    with measure() as bill:
        assert await likes.remove("u1") is False
    settings = 1
    assert Price.on(bill) == Price(settings + 5, reads=settings + 2)


async def test_settling_a_lost_answer_is_a_rollback_and_a_read(likes, counters_gateway, measure):
    await likes.add("u1")
    counters_gateway.script(LostAnswer("Commit"))
    with measure() as bill:
        assert await likes.add("u2") is True
    assert bill.rpcs == SETTLED
    assert Price.on(bill) == Price(4, reads=1, writes=2)


async def test_a_staged_like_is_two_writes_in_the_callers_commit(likes, metered, measure):
    await likes.add("u1")
    batch = metered.client.batch()
    with measure() as staging:
        await likes.stage_add(batch, "u2", {"n": 1})
        await likes.stage_remove(batch, "u1")
    with measure() as committing:
        await metered.commit(batch)
    assert Price.on(staging) == Price()
    assert Price.on(committing) == Price(1, writes=2 + 1, deletes=1)


# Audit and repair.


@pytest.mark.parametrize(("likers", "reads"), [(1000, 1), (1001, 2)])
async def test_an_audit_is_three_round_trips_and_a_read_a_thousand_children(
    likes, others_likes, db, measure, likers, reads
):
    write_children(db, likers)
    others_likes.backfill()
    with measure() as bill:
        assert (await likes.audit()).difference == 0
    assert bill.rpcs == AUDIT
    assert Price.on(bill) == Price(3, reads=1 + 1 + reads)


async def test_a_difference_is_looked_into_at_a_read_a_shard(likes, others_likes, db, measure):
    others_likes.add("u1")
    write_shards(db, 4)
    with measure() as bill:
        assert (await likes.audit()).difference == -4
    assert bill.rpcs == AUDIT | LOOK
    assert Price.on(bill) == Price(4, reads=3 + 5)


async def test_a_repair_is_an_audit_and_two_round_trips_and_three_writes(likes, others_likes, db, measure):
    others_likes.add("u1")
    db.document(f"{LIKES}/u1").delete()
    found = await likes.audit()
    with measure() as bill:
        assert await likes.repair(found, by="op") == -1
    assert bill.rpcs == AUDIT | LOOK | COMMIT
    assert Price.on(bill) == Price(6, reads=3 + 1, writes=3)
    with measure() as bill, pytest.raises(StaleAudit):
        await likes.repair(found)
    assert Price.on(bill) == Price(3, reads=3)
    found = await likes.audit()
    with measure() as bill:
        assert await likes.repair(found) == 0
    assert Price.on(bill) == Price(3, reads=3)


async def test_a_repair_that_a_rollup_came_between_pays_for_another_audit(
    likes, others_likes, db, measure, meanwhile
):
    others_likes.add("u1")
    db.document(f"{LIKES}/u1").delete()
    found = await likes.audit()
    meanwhile(Counters(db).roll_up, before="Commit")
    with measure() as bill:
        assert await likes.repair(found) == -1
    audit, refusal = 3 + 1, 1
    assert (bill.reads, bill.writes) == (2 * audit + refusal, 3)


async def test_a_backfill_that_makes_the_counter_pays_for_that_too(likes, db, measure):
    write_children(db, 3)
    with measure() as bill:
        assert await likes.backfill(by="op") == 3
    creating, looking = Price(4, reads=2, writes=1), Price(1, reads=1)
    adjusting = Price(6, reads=3 + 1 - 1, writes=3)
    assert Price.on(bill)[1:3] == (
        creating.reads + adjusting.reads + looking.reads,
        creating.writes + adjusting.writes,
    )


@pytest.mark.parametrize(("likers", "pages"), [(99, 1), (100, 2), (250, 3)])
async def test_removing_all_is_a_read_and_a_delete_a_child_and_a_write_a_page(
    likes, others_likes, db, measure, likers, pages
):
    write_children(db, likers)
    others_likes.backfill()
    await likes.contains("u1")
    with measure() as bill:
        assert await likes.remove_all() == likers
    empty = likers % 100 == 0  # the last page finds nothing, for a read
    settings = 1
    assert Price.on(bill) == Price(
        settings + 3 * pages - 2 * empty,
        reads=settings + likers + empty,
        writes=pages - empty,
        deletes=likers,
    )


async def test_a_child_removed_meanwhile_costs_a_few_refusals_and_no_page_of_single_deletes(
    likes, others_likes, db, measure, meanwhile
):
    write_children(db, 100)
    others_likes.backfill()
    meanwhile(lambda: others_likes.remove("c00042"), before="Commit")
    with measure() as bill:
        assert await likes.remove_all() == 99
    refusals, commits = 8, 7
    assert bill.rpcs["Rollback"] <= refusals
    assert (bill.writes, bill.deletes) == (commits, 99)
    assert (await likes.audit()).difference == 0


# The audit of many.


def agree(report: AuditReport, bill):
    return report.reads == bill.reads


async def test_auditing_many_costs_four_reads_a_parent_and_one_more(metered, db, measure):
    for number in range(5):
        Counters(db, shards=2).children(f"posts/{number}", "likes").add("u1")
    with measure() as bill:
        report = await metered.app().audit("posts/*/likes")
    assert len(report.audits) == 5
    listing, documents, sums, counts = 5, 5, 5, 5
    assert bill.reads == listing + documents + sums + counts
    assert bill.rpcs == {"ListDocuments": 1, "BatchGetDocuments": 1, "RunAggregationQuery": 10}
    assert agree(report, bill)


async def test_auditing_named_parents_costs_three_reads_each(metered, db, measure):
    for number in range(5):
        Counters(db, shards=2).children(f"posts/{number}", "likes").add("u1")
    with measure() as bill:
        report = await metered.app().audit("posts/*/likes", parents=["1", "posts/3"])
    assert [found.parent for found in report.audits] == ["posts/1", "posts/3"]
    assert bill.reads == 2 * 3
    assert agree(report, bill)


@pytest.mark.parametrize(("missing", "listed"), [(True, 4), (False, 2)])
async def test_a_prefix_reads_all_ids_before_it_or_only_its_own_parents(
    metered, db, measure, missing, listed
):
    for post in ("a1", "a2", "b1", "b2", "c1", "c2"):
        db.document(f"posts/{post}").set({})
        Counters(db, shards=1).children(f"posts/{post}", "likes").add("u1")
    with measure() as bill:
        report = await metered.app().audit("posts/*/likes", prefix="b", missing=missing, limit=3)
    assert [found.parent for found in report.audits] == ["posts/b1", "posts/b2"]
    beyond = 2 if missing else 0  # the rest of a page that goes past the prefix
    assert bill.reads == listed + beyond + 2 * 3
    assert agree(report, bill)


async def test_what_is_wrong_is_looked_into_and_on_the_bill(metered, db, measure):
    app = Counters(db, shards=1)
    for post in "abcd":
        app.children(f"posts/{post}", "likes").add("u1")
    db.document("posts/a/likes/u1").delete()
    db.document("posts/b/counters/likes/counter_shards/0").update({layout.VALUE: "one"})
    db.document("posts/c/counters/likes/counter_shards/0").update({layout.VALUE: 1.5})
    with measure() as bill:
        report = await metered.app().audit("posts/*/likes")
    assert [found.parent for found in report.drifted] == ["posts/a"]
    assert [(failure.parent, type(failure.error)) for failure in report.failed] == [
        ("posts/b", CorruptShard),
        ("posts/c", CorruptShard),
    ]
    shards = 3
    assert bill.reads == 4 * 4 + shards
    assert agree(report, bill)


async def test_an_audit_of_nothing_is_a_read(metered, measure):
    with measure() as bill:
        report = await metered.app().audit("posts/*/likes")
    assert report.audits == report.failed == ()
    assert Price.on(bill) == Price(1, reads=1)
    assert agree(report, bill)


async def test_explaining_says_what_it_cost(likes, others_likes, db, measure):
    others_likes.add("u1")
    others_likes.add("u2")
    db.document(f"{LIKES}/u1").delete()
    found = await likes.audit()
    with measure() as bill:
        evidence = await likes.explain(found)
    assert evidence.reads == bill.reads


def write_children(db, count):
    for first in range(0, count, 500):
        batch = db.batch()
        for number in range(first, min(count, first + 500)):
            batch.set(db.document(f"{LIKES}/c{number:05}"), {})
        batch.commit()


def write_shards(db, count):
    batch = db.batch()
    for shard in range(1, count + 1):
        batch.set(db.document(layout.shard_path(COUNTER, shard)), {layout.VALUE: 1})
    batch.commit()
