"""What the simulation promises: that it is the queue it says it is, event by event."""

from __future__ import annotations

import ast
import doctest
import math
import sys
from collections import deque
from heapq import heappop, heappush
from itertools import count, islice
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from counters import simulation
from counters.simulation import (
    Estimate,
    Shards,
    poisson,
    simulate,
    simulate_until,
    simulate_writers,
    trace,
)

ONE = Shards(shards=1)


def waits_of(report):
    return sorted(wait for batch in report.by_time for wait in batch.waits)


def test_examples_in_docstrings_hold():
    outcome = doctest.testmod(simulation)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_shares_no_code_with_the_model_and_needs_no_extra():
    tree = ast.parse(Path(simulation.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    assert imported <= set(sys.stdlib_module_names) | {"collections.abc"}


# The queue.


@pytest.mark.parametrize("max_wait", [0.4, 1.7, 5.0, math.inf])
def test_one_shard_is_a_queue_in_which_writes_lose_patience(max_wait):
    arrivals = list(islice(poisson(0.9, seed=7), 3000))
    shards = Shards(
        shards=1,
        commit_seconds=1,
        max_wait_seconds=max_wait,
        # Too short to matter, so that no draw of chance decides anything.
        first_backoff_seconds=1e-12,
        longest_backoff_seconds=1e-12,
    )
    report = simulate(arrivals, shards, seed=1)
    waits, refusals = queue_with_patience(arrivals, 1.0, max_wait)
    assert waits_of(report) == pytest.approx(sorted(waits), abs=1e-6)
    assert report.retries_per_write.value == pytest.approx(refusals / len(arrivals))
    assert (refusals == 0) == (max_wait == math.inf)


def queue_with_patience(arrivals, commit, patience):
    """Arrivals, releases and losses of patience, each an event: nothing is foreseen."""
    serial = count()
    events = [(came, next(serial), "arrive", came) for came in arrivals]
    waiting, held = deque(), False
    waits, refusals = [], 0
    while events:
        now, ticket, kind, came = heappop(events)
        if kind == "lose patience":
            if (ticket, came) in waiting:
                waiting.remove((ticket, came))
                refusals += 1
                heappush(events, (now, next(serial), "arrive", came))
            continue
        if kind == "release":
            held = False
        else:
            waiting.append((ticket, came))
            if patience < math.inf:
                heappush(events, (now + patience, ticket, "lose patience", came))
        if waiting and not held:
            held = True
            _, first = waiting.popleft()
            waits.append(now - first)
            heappush(events, (now + commit, next(serial), "release", first))
    return waits, refusals


def test_a_refused_write_tries_another_shard():
    # Two writes at once: where they pick one shard, one of them is refused, and then has the other.
    shards = Shards(shards=2, commit_seconds=100, max_wait_seconds=1e-9)
    reports = [simulate([0.0, 0.0], shards, seed=seed) for seed in range(40)]
    for report in reports:
        met = report.meets_probability.value > 0
        assert report.retries_per_write.value == (0.5 if met else 0)
    assert {report.meets_probability.value for report in reports} == {0, 0.5}


def test_backoff_is_random_up_to_a_bound_that_doubles():
    # Of two writes at once the second tries again and again until the first has all but done.
    shards = Shards(
        shards=1,
        commit_seconds=30,
        max_wait_seconds=1,
        first_backoff_seconds=0.5,
        longest_backoff_seconds=4,
    )
    reports = [simulate([0, 0], shards, seed=seed) for seed in range(300)]
    assert all(30 <= waits_of(report)[1] < 34 for report in reports)
    chance = Random(0)

    def refusals():
        at, number = 0.0, 0
        while 30 - at > 1:
            at += 1 + chance.uniform(0, min(4, 0.5 * 2**number))
            number += 1
        return number

    # Two writes, of which one is refused.
    assert fmean(2 * report.retries_per_write.value for report in reports) == pytest.approx(
        fmean(refusals() for _ in range(3000)), rel=0.02
    )


def test_writers_at_one_shard_take_turns():
    shards = Shards(shards=1, commit_seconds=0.2)
    report = simulate_writers(5, shards, seed=1, writes=1000, warm_up_seconds=1)
    assert report.writes_per_second == pytest.approx(5)
    assert waits_of(report) == pytest.approx([0.8] * 1000)


def test_writers_who_think_leave_shards_idle():
    shards = Shards(shards=1, commit_seconds=0.2)
    report = simulate_writers(2, shards, seed=1, writes=1000, think_seconds=1.8)
    assert report.writes_per_second == pytest.approx(1, rel=0.01)
    # They start at once, so one waits for the other; from then on they never meet.
    assert waits_of(report) == pytest.approx([0] * 999 + [0.2], abs=1e-9)


def test_more_shards_take_more_writes_of_the_same_writers():
    rates = [
        simulate_writers(64, Shards(shards=n, commit_seconds=0.1), seed=1, writes=5000)
        for n in (1, 2, 4, 8)
    ]
    for shards, report in zip((1, 2, 4, 8), rates, strict=True):
        assert 0.8 * shards * 10 < report.writes_per_second <= shards * 10 * 1.001


def test_commits_that_vary_make_writes_wait_longer():
    # Pollaczek and Khinchine: twice as long if the times are exponential.
    varying = Shards(shards=1, commit_seconds=lambda chance: chance.expovariate(1.0))
    report = simulate_until(0.5, varying, seed=1, relative=0.05)
    assert report.wait_mean.value == pytest.approx(1.0, rel=0.1)


def test_the_same_seed_gives_the_same_result():
    def run(seed):
        return simulate(islice(poisson(50, seed=3), 2000), Shards(shards=7), seed=seed)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_writes_of_the_warm_up_are_not_counted():
    arrivals = [float(second) for second in range(100)]
    report = simulate(arrivals, Shards(shards=1), seed=1, warm_up_seconds=90)
    assert report.writes == 10


# Confidence.


def test_19_of_20_intervals_hold_the_true_mean():
    # Of an M/D/1 queue at a utilisation of 0.5, after Pollaczek and Khinchine: half a commit.
    shards = Shards(shards=1, commit_seconds=1)
    reports = [
        simulate(islice(poisson(0.5, seed=1000 + seed), 4000), shards, seed=seed, warm_up_seconds=100)
        for seed in range(100)
    ]
    held = sum(report.wait_mean.low <= 0.5 <= report.wait_mean.high for report in reports)
    assert 88 <= held <= 100


def test_19_of_20_intervals_hold_where_shards_are_many_and_the_time_is_short():
    # Each of 60 shards, at a utilisation of 0.7, stays as crowded as it is for much of the time.
    shards = Shards(shards=60, commit_seconds=1)
    reports = [
        simulate(islice(poisson(42, seed=2000 + seed), 4000), shards, seed=seed, warm_up_seconds=60)
        for seed in range(60)
    ]
    true = 0.7 / (2 * (1 - 0.7))
    held = sum(report.wait_mean.low <= true <= report.wait_mean.high for report in reports)
    assert held >= 52


def test_simulates_long_enough_to_judge_how_close_it_came():
    report = simulate_until(180, Shards(shards=20, commit_seconds=0.1), seed=1, relative=10)
    assert report.seconds >= 0.99 * 15_000 * 0.1


def test_simulates_until_it_is_known_as_closely_as_asked():
    rough, close = (
        simulate_until(5, Shards(shards=1, commit_seconds=0.1), seed=1, relative=relative)
        for relative in (0.2, 0.05)
    )
    for report, relative in ((rough, 0.2), (close, 0.05)):
        for estimate in (report.wait_mean, report.wait_p99):
            assert estimate.half_width <= relative * estimate.value
    assert close.writes > rough.writes


def test_gives_up_at_the_most_writes_and_says_how_close_it_came():
    report = simulate_until(
        9, Shards(shards=1, commit_seconds=0.1), seed=1, relative=1e-6, most_writes=20_000
    )
    assert report.writes == 20_000
    assert report.wait_mean.half_width > 1e-6 * report.wait_mean.value


@pytest.mark.parametrize(
    ("confidence", "degrees", "table"),
    [(0.95, 5, 2.571), (0.95, 29, 2.045), (0.99, 29, 2.756), (0.999, 40, 3.551)],
)
def test_students_t_is_that_of_the_tables(confidence, degrees, table):
    assert simulation._student(confidence, degrees) == pytest.approx(table, rel=0.01)


def test_an_estimate_reads_as_a_value_and_its_spread():
    estimate = Estimate(value=0.25, half_width=0.05)
    assert (estimate.low, estimate.high, str(estimate)) == (0.2, 0.3, "0.25 ± 0.05")


# Rollups.


def test_a_rollup_finds_the_shards_that_changed_since_the_last():
    # Commits at 1.5, 2.5, 11.5 and 35.5 s; runs at 10, 20, 30 s find 1, 1 and 0 shards.
    shards = Shards(shards=1, commit_seconds=0.5, rollup_seconds=10, rollup_run_seconds=2)
    rollups = simulate([1.0, 2.0, 11.0, 35.0], shards, seed=1).rollups
    assert (rollups.runs, rollups.changed_shards) == (3, pytest.approx(2 / 3))
    assert rollups.idle_share == pytest.approx(1 / 3)
    assert rollups.delay_longest_seconds == pytest.approx(10 + 2 - 1.5)
    assert rollups.delay_mean_seconds == pytest.approx((10.5 + 9.5 + 10.5) / 3)


def test_no_whole_interval_no_rollups():
    shards = Shards(shards=1, commit_seconds=0.5, rollup_seconds=100)
    assert simulate([1.0, 2.0], shards, seed=1).rollups is None
    assert simulate([1.0, 2.0], Shards(shards=1), seed=1).rollups is None


# Traces.


def test_a_trace_is_replayed(tmp_path):
    path = tmp_path / "writes.txt"
    path.write_text("# moments\n100.5\n\n101\n101\n", encoding="utf-8")
    assert list(trace(path)) == [0, 0.5, 0.5]
    assert simulate(trace(path), Shards(shards=1), seed=1).writes == 3


def test_a_trace_may_be_in_iso_8601(tmp_path):
    path = tmp_path / "writes.txt"
    path.write_text("2026-11-30T10:00:00Z\n2026-11-30T11:00:01.500+01:00\n", encoding="utf-8")
    assert list(trace(path)) == [0, 1.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\nsoon\n", "line 2: 'soon' is neither"),
        ("2\n1\n", "line 2: earlier"),
        ("1\nnan\n", "line 2: 'nan' is neither"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "writes.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        list(trace(path))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate([2.0, 1.0], ONE, seed=1), "in order, but 1.0 comes after 2.0"),
        (lambda: simulate([0.0, math.nan], ONE, seed=1), "in order, but nan"),
        (lambda: simulate([], ONE, seed=1), "0 writes after the warm-up"),
        (lambda: simulate([1.0], ONE, seed=1), "1 writes after the warm-up"),
        (lambda: simulate_writers(0, ONE, seed=1, writes=10), "at least 1 writer"),
        (lambda: next(poisson(0, seed=1)), "writes_per_second"),
        (lambda: Shards(shards=0), "at least 1 shard"),
        (lambda: Shards(shards=1, commit_seconds=0), "commit_seconds"),
        (lambda: Shards(shards=1, max_wait_seconds=-1), "max_wait_seconds"),
        (lambda: Shards(shards=1, rollup_seconds=0), "rollup_seconds"),
        (lambda: Shards(shards=1, rollup_run_seconds=-1), "rollup_run_seconds"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
