"""The rollup misses nothing: not what commits late, not when runs overlap, fail or are killed.

First the arithmetic of its windows on its own, then the real steps against the model of
server_model.py.
"""

from dataclasses import dataclass, field

import hypothesis
import pytest
from google.api_core import exceptions
from hypothesis import given
from hypothesis import strategies as st
from server_model import (
    DATABASE,
    Server,
    World,
    after,
    create_counter,
    delivered,
    lost_answer,
    lost_request,
    made_up,
)

from counters import InvalidArgument, layout, rollup, wire
from counters.rollup import LONG_OVERLAP, RESCAN_EVERY, SHORT_OVERLAP, roll_up, window

SECOND = 1_000_000
LATEST = LONG_OVERLAP
"""How long after its updated_at a change may be committed."""


# The arithmetic of windows.


def test_the_first_scan_starts_at_the_beginning_of_time_and_counts_as_a_rescan():
    for scanned, rescanned in [(None, None), (5, None), (None, 5)]:
        assert window(scanned, rescanned, 10**15) == window(None, None, 0)
        assert window(scanned, rescanned, 10**15).since == 0
        assert window(scanned, rescanned, 10**15).rescan


def test_no_scan_starts_before_time():
    assert window(5, 5, 6).since == 0
    assert window(5, 5, 5 + RESCAN_EVERY).since == 0


@given(st.integers(0, 10**15), st.integers(0, 10**10), st.integers(0, 10**10))
def test_every_scan_overlaps_the_last_and_every_rescan_the_last_rescan(rescanned, later, yet_later):
    scanned = rescanned + later
    moment = scanned + yet_later
    span = window(scanned, rescanned, moment)
    assert span.since <= max(0, scanned - SHORT_OVERLAP)
    assert span.rescan == (moment - rescanned >= RESCAN_EVERY)
    if span.rescan:
        assert span.since <= max(0, rescanned - LONG_OVERLAP)


@dataclass
class Run:
    """One run in time: what it reads at its start, what it writes at its end, unless it is killed."""

    start: int
    end: int
    killed: bool
    cursor: tuple = ()
    seen: list = field(default_factory=list)


@dataclass(frozen=True)
class Change:
    updated: int
    committed: int


def simulate(runs, changes):
    """When each change was first in a total: at the end of a run that saw it and was not killed."""
    cursor = (None, None)
    covered = {}
    events = sorted(
        [(run.start, 0, number) for number, run in enumerate(runs)]
        + [(run.end, 1, number) for number, run in enumerate(runs)]
    )
    for now, is_end, number in events:
        run = runs[number]
        if not is_end:
            run.cursor = cursor
            since = window(*cursor, now).since
            run.seen = [each for each in changes if each.updated > since and each.committed <= now]
        elif not run.killed:
            for change in run.seen:
                covered.setdefault(change, now)
            if run.seen and cursor == run.cursor:  # an idle run saves nothing, an overtaken one neither
                rescan = window(*cursor, run.start).rescan
                cursor = (run.start, run.start if rescan else cursor[1])
    return covered


def seconds(most):
    return st.integers(1, most).map(lambda number: number * SECOND)


@st.composite
def schedules(draw):
    """Runs at any spacing: every minute, now and then, overlapping, some killed."""
    runs, start = [], 0
    for gap in draw(st.lists(st.just(60 * SECOND) | seconds(60) | seconds(900), min_size=3, max_size=20)):
        start += gap
        length = draw(st.just(SECOND) | seconds(700))
        runs.append(Run(start, start + length, killed=draw(st.integers(0, 4)) == 0))
    last = max(run.end for run in runs) + LATEST + RESCAN_EVERY
    return [*runs, Run(last, last + SECOND, killed=False)]


@st.composite
def late_changes(draw):
    """A few changes that waited long for their commit."""
    changes = []
    for _ in range(draw(st.integers(1, 5))):
        updated = draw(seconds(2000))
        waited = draw(st.sampled_from([0, LATEST]) | st.integers(0, LATEST))
        changes.append(Change(updated, min(updated + waited, 2300 * SECOND)))
    return changes


@hypothesis.settings(max_examples=200)
@given(schedules(), late_changes(), st.booleans())
def test_whatever_the_spacing_of_runs_no_late_commit_is_missed_for_long(runs, changes, busy):
    """Not for longer than the first whole run that starts a rescan's time after the commit."""
    others = [Change(at * SECOND, at * SECOND) for at in range(0, 3000, 50)] if busy else []
    runs.append(Run(30_000 * SECOND, 30_001 * SECOND, killed=False))
    covered = simulate(runs, [*changes, *others])
    for change in changes:
        in_time = [run for run in runs if not run.killed and run.start >= change.committed + RESCAN_EVERY]
        assert covered[change] <= min(run.end for run in in_time)


@pytest.mark.parametrize("spacing", [15, 60, 100, 299, 300, 301, 700])
def test_at_any_steady_spacing_the_latest_commits_are_in_within_a_rescans_time(spacing):
    runs = [Run(at * SECOND, at * SECOND + 1, killed=False) for at in range(0, 4000, spacing)]
    changes = [Change(at * SECOND + 1, at * SECOND + 1 + LATEST) for at in range(0, 2500, 3)]
    covered = simulate(runs, changes)
    for change in changes:
        assert covered[change] <= change.committed + RESCAN_EVERY + spacing * SECOND


@given(st.integers(1, 60), st.integers(0, 9))
def test_a_commit_that_waited_no_longer_than_the_short_overlap_is_in_the_next_run(spacing, waited):
    runs = [Run(at * SECOND, at * SECOND + 1, killed=False) for at in range(0, 250, spacing)]
    change = Change(100 * SECOND + 1, (100 + waited) * SECOND)
    following = min(run.end for run in runs if run.start >= change.committed)
    # Other changes keep the cursor moving, so that only the overlap can find this one.
    others = [Change(at * SECOND, at * SECOND) for at in range(250)]
    assert simulate(runs, [change, *others])[change] == following


# The real steps.

LIKES = "posts/a91f/counters/likes"
SHARES = "posts/a91f/counters/shares"


def change(world, counter=LIKES, shard=0, value=1, *, waited=0):
    """A shard takes an increment that waited so many seconds for its commit."""
    world.pass_time(1)
    stamp = wire.timestamp(world.server.now - waited * SECOND)
    fields = {
        layout.VALUE: value,
        layout.UPDATED_AT: stamp,
        layout.BUCKET: layout.bucket(counter, shard),
    }
    world.server.put(layout.shard_path(counter, shard), **fields)


def rolled_up(world, context=None):
    return world.run(roll_up(context or world.context(), DATABASE, 8))


def total(world, counter=LIKES):
    return world.server.documents[counter].fields.get(layout.TOTAL)


def as_of(world, counter=LIKES):
    return wire.micros(world.server.field(counter, layout.AS_OF))


def scanned_at(world):
    return wire.micros(world.server.field(layout.cursor_path(), layout.SCANNED_AT))


def writes(world):
    return [rpc for rpc in world.requests if rpc.method == "commit"]


@pytest.fixture
def world():
    world = World()
    create_counter(world.server, LIKES)
    return world


def test_a_change_is_in_the_total_as_of_the_runs_moment(world):
    change(world, shard=0, value=3)
    change(world, shard=1, value=4)
    report = rolled_up(world)
    assert total(world) == 7
    assert wire.to_datetime(as_of(world)) == report.as_of
    assert (report.counters, report.shards, report.failed, report.orphans) == (1, 2, (), ())


def test_an_idle_run_reads_twice_and_writes_nothing_however_many_counters_there_are(world):
    for number in range(50):
        create_counter(world.server, f"posts/{number}/counters/likes")
        change(world, f"posts/{number}/counters/likes")
    rolled_up(world)
    world.pass_time(LONG_OVERLAP / SECOND)
    rolled_up(world)
    world.pass_time(LONG_OVERLAP / SECOND)
    rolled_up(world)
    world.requests.clear()
    world.pass_time(60)
    report = rolled_up(world)
    assert (report.reads, report.writes, report.counters) == (2, 0, 0)
    assert not writes(world)
    assert world.sent == 2


def test_what_an_overlap_shows_again_is_read_but_not_summed_again(world):
    change(world)
    rolled_up(world)
    world.requests.clear()
    report = rolled_up(world)
    assert (report.shards, report.counters) == (1, 0)
    assert "run_aggregation_query" not in world.methods


def test_what_was_seen_is_not_read_again_once_the_overlap_is_over(world):
    for shard in range(4):
        change(world, shard=shard)
        world.pass_time(30)
        assert rolled_up(world).shards == 1


def test_a_commit_that_waited_seconds_is_in_the_next_run(world):
    change(world, shard=0)
    rolled_up(world)
    change(world, shard=1, value=4, waited=8)
    rolled_up(world)
    assert total(world) == 5


def test_a_commit_that_waited_minutes_is_in_the_next_rescan(world):
    create_counter(world.server, SHARES)
    change(world, LIKES)
    rolled_up(world)
    change(world, LIKES, value=4, waited=LONG_OVERLAP // SECOND)
    for _ in range(9):  # another counter keeps the cursor moving
        change(world, SHARES)
        rolled_up(world)
        world.pass_time(30)
    assert total(world, LIKES) == 1
    world.pass_time(30)
    rolled_up(world)
    assert total(world, LIKES) == 4


def test_every_read_of_a_run_is_at_one_moment_and_only_once_it_has_settled(world):
    change(world)
    change(world, SHARES)
    create_counter(world.server, SHARES)
    rolled_up(world)
    reads = {"batch_get_documents", "run_query", "run_aggregation_query"}
    first, *others = [rpc.request for rpc in world.requests if rpc.method in reads]
    pbs = [type(request).pb(request) for request in others]
    assert not type(first).pb(first).HasField("read_time")
    assert len({wire.micros(message.read_time) for message in pbs}) == 1
    assert sum(world.pauses) >= 0.1


@pytest.mark.parametrize("counters", [1, 2, 3, 4, 5, 9])
def test_pages_and_chunks_are_read_to_their_end(world, monkeypatch, counters):
    monkeypatch.setattr(rollup, "_PAGE", 4)
    monkeypatch.setattr(rollup, "_CHUNK", 3)
    paths = [f"posts/{number}/counters/likes" for number in range(counters)]
    for path in paths:
        create_counter(world.server, path)
    for shard in range(2):
        for path in paths:
            change(world, path, shard)
    report = rolled_up(world)
    assert (report.counters, report.shards) == (counters, 2 * counters)
    assert {total(world, path) for path in paths} == {2}


def test_changes_of_one_moment_are_told_apart_by_name_where_a_page_ends(world, monkeypatch):
    monkeypatch.setattr(rollup, "_PAGE", 2)
    moment = wire.timestamp(world.server.now)
    for shard in range(7):
        change(world, shard=shard)
        world.server.put(layout.shard_path(LIKES, shard), **{layout.UPDATED_AT: moment})
    assert rolled_up(world).shards == 7


# What goes wrong.


class Killed(BaseException):
    """The process is no more."""


class Mortal(World):
    """Dies at the request with this number, before or after it was executed."""

    def __init__(self, dies_at, executed, server):
        super().__init__(server)
        self.dies_at, self.executed = dies_at, executed

    def fate(self, rpc):
        if self.sent != self.dies_at:
            return super().fate(rpc)
        if self.executed:
            self.deliver(rpc)
        raise Killed


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 9))
def test_a_run_that_is_killed_anywhere_changes_nothing_that_the_next_one_would_miss(
    world, dies_at, executed
):
    create_counter(world.server, SHARES)
    change(world, LIKES, value=3)
    change(world, SHARES, value=4)
    mortal = Mortal(dies_at, executed, world.server)
    mortal.faults["run_aggregation_query"] = [made_up(exceptions.PermissionDenied("this once"))]
    with pytest.raises(Killed):
        rolled_up(mortal)
    world.pass_time(60)
    rolled_up(world)
    assert (total(world, LIKES), total(world, SHARES)) == (3, 4)


class Interrupted(World):
    """Something happens just before the request with this number."""

    def __init__(self, stops_at, happening, server):
        super().__init__(server)
        self.stops_at, self.happening = stops_at, happening

    def fate(self, rpc):
        return after(self.happening) if self.sent == self.stops_at else super().fate(rpc)


@pytest.mark.parametrize("stops_at", range(1, 7))
def test_of_overlapping_runs_none_takes_a_total_back_or_loses_a_change(world, stops_at):
    """One run stops at each of its requests in turn, and goes on after a change and another run."""
    context = world.context()
    change(world, value=1)
    rolled_up(world, context)
    change(world, value=2)
    moments = []

    def change_and_another_run():
        change(world, value=5)
        rolled_up(world, context)
        moments.extend([as_of(world), scanned_at(world)])

    slow = Interrupted(stops_at, change_and_another_run, world.server)
    slow.run(roll_up(context, DATABASE, 8))
    assert as_of(world) >= moments[0]
    assert scanned_at(world) >= moments[1]
    assert total(world) == 5
    world.pass_time(60)
    rolled_up(world, context)
    assert total(world) == 5


def test_a_total_whose_answer_was_lost_is_written_once_and_reported_as_written(world):
    change(world)
    world.faults["commit"] = [lost_answer]
    report = rolled_up(world)
    assert (report.counters, report.failed) == (1, ())
    assert total(world) == 1


def test_a_resize_between_read_and_commit_is_kept_and_the_total_written_too(world):
    change(world)
    resized = after(lambda: world.server.put(LIKES, **{layout.SHARD_COUNT: 40}))
    world.faults["commit"] = [resized]
    report = rolled_up(world)
    assert (report.counters, report.failed) == (1, ())
    assert (total(world), world.server.field(LIKES, layout.SHARD_COUNT)) == (1, 40)


def test_a_counter_that_is_deleted_meanwhile_does_not_come_back(world):
    change(world)
    world.faults["commit"] = [after(lambda: world.server.remove(LIKES))]
    report = rolled_up(world)
    assert LIKES not in world.server.documents
    assert (report.counters, report.failed) == (0, ())


def test_shards_without_a_counter_are_reported_and_left_alone(world):
    change(world, SHARES)
    before = dict(world.server.documents)
    report = rolled_up(world)
    assert report.orphans == (SHARES,)
    assert {path: world.server.documents[path] for path in before} == before


def test_a_counter_that_fails_stops_no_other_and_is_retried_even_if_nothing_changes(world):
    create_counter(world.server, SHARES)
    change(world, LIKES, value="no number")
    change(world, SHARES, value=2)
    report = rolled_up(world)
    assert [failure.path for failure in report.failed] == [LIKES]
    assert total(world, SHARES) == 2

    for _ in range(3):  # until no overlap shows the shard any more
        world.pass_time(LONG_OVERLAP / SECOND)
        rolled_up(world)
    world.server.put(layout.shard_path(LIKES, 0), **{layout.VALUE: 7})  # mended by hand: no updated_at
    report = rolled_up(world)
    assert (report.failed, total(world)) == ((), 7)
    assert layout.pending_path(LIKES) not in world.server.documents


def test_a_failure_is_noted_before_the_cursor_moves(world):
    change(world, LIKES, value="no number")
    rolled_up(world)
    written = [wire.relative_path(rpc.request.writes[0].update.name) for rpc in writes(world)]
    assert written == [layout.pending_path(LIKES), layout.cursor_path()]


def mirrored(world, *fields):
    create_counter(
        world.server,
        LIKES,
        **{
            layout.MIRRORS: [
                {
                    layout.MIRROR_DOCUMENT: wire.Reference(Server.name("posts/a91f")),
                    layout.MIRROR_FIELD: field,
                }
                for field in fields
            ]
        },
    )


def test_a_total_and_its_mirrors_are_written_in_one_commit_and_nothing_else_in_the_document(world):
    world.server.put("posts/a91f", title="kept", stats={"views": 9})
    mirrored(world, "likes", "stats.likes")
    change(world, value=3)
    rolled_up(world)
    assert world.server.documents["posts/a91f"].fields == {
        "title": "kept",
        "likes": 3,
        "stats": {"views": 9, "likes": 3},
    }
    (first, _cursor) = writes(world)
    assert len(first.request.writes) == 2


def test_a_mirror_that_is_gone_does_not_come_back_nor_keep_the_total_from_being_written(world):
    mirrored(world, "likes")
    change(world, value=3)
    report = rolled_up(world)
    assert "posts/a91f" not in world.server.documents
    assert total(world) == 3
    assert "posts/a91f" in str(report.failed[0].error)
    world.server.put("posts/a91f", title="back")
    assert rolled_up(world).failed == ()
    assert world.server.field("posts/a91f", "likes") == 3


@pytest.mark.parametrize("fault", [lost_request, lost_answer])
def test_a_cursor_whose_answer_was_lost_is_saved_or_left_to_the_next_run(world, fault):
    change(world)
    world.faults["commit"] = [delivered, fault]
    rolled_up(world)
    assert scanned_at(world) <= as_of(world)


@pytest.mark.parametrize("concurrency", [0, -1, 1001, True, 2.0, None])
def test_a_concurrency_that_cannot_be_meant_is_refused(world, concurrency):
    with pytest.raises(InvalidArgument, match="concurrency"):
        world.run(roll_up(world.context(), DATABASE, concurrency))
    assert world.sent == 0
