"""What the sizing model promises: textbook queues where there are any, and sane advice everywhere."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import math
import re
import sys
from decimal import Decimal, localcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counters import layout, prices, queueing, rollup, sizing
from counters.policy import Backoff
from counters.prices import NO_FREE_TIER, PRICES, FreeTier, Prices
from counters.sizing import SOURCES, Limits, capacity, contention, recommend

NEVER_REFUSED = Limits(max_wait_seconds=math.inf)
NAM5 = PRICES["nam5"]
MONTH = 30 * 24 * 60 * 60


@pytest.mark.parametrize("module", [sizing, queueing, prices])
def test_examples_in_docstrings_hold(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize(
    ("module", "ours"),
    [(sizing, {"counters.prices", "counters.queueing"}), (queueing, set()), (prices, set())],
)
def test_imports_the_standard_library_and_each_other_alone(module, ours):
    imported = set()
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert imported - set(sys.stdlib_module_names) - {"collections.abc"} == ours


# The queue.


@pytest.mark.parametrize("utilisation", [0.01, 0.3, 0.5, 0.9, 0.99])
def test_mean_wait_is_that_of_pollaczek_and_khinchine_where_nothing_is_refused(utilisation):
    at = contention(4, 4 * utilisation / 0.05, limits=NEVER_REFUSED)
    assert at.wait_mean_seconds == pytest.approx(0.05 * utilisation / (2 * (1 - utilisation)))
    assert at.retry_probability == 0


@pytest.mark.parametrize("load", [0.05, 0.5, 0.9, 0.999, 1.2, 2.0])
@pytest.mark.parametrize("x", [0.3, 1.0, 5.5, 7.99, 8.0, 8.01, 15.25, 30.0])
def test_distribution_of_the_wait_is_erlangs_sum(load, x):
    assert queueing.Workload(load)(x) == pytest.approx(erlang(load, x), rel=1e-7)


def erlang(load, x):
    # The sum alternates, and loses all the digits of a float long before x = 30.
    with localcontext() as context:
        context.prec = 80
        exact_load, exact_x = Decimal(load), Decimal(x)
        total = Decimal(0)
        for k in range(int(x) + 1):
            left = exact_load * (exact_x - k)
            power = (-left) ** k if k else Decimal(1)
            total += power / math.factorial(k) * left.exp()
        return float(total)


@pytest.mark.parametrize("load", [0.2, 0.9, 1.5])
@pytest.mark.parametrize("end", [0.4, 3.0, 12.6])
def test_integral_of_the_distribution_is_its_area(load, end):
    workload = queueing.Workload(load)
    steps = 20_000
    width = end / steps
    area = math.fsum(workload((i + 0.5) * width) for i in range(steps)) * width
    assert workload.integral(end) == pytest.approx(area, rel=1e-6)


@pytest.mark.parametrize("utilisation", [0.2, 0.7, 0.95])
@pytest.mark.parametrize("longest", [0.5, 3.0, 20.0])
def test_a_shard_is_busy_for_all_that_it_does_not_refuse(utilisation, longest):
    waits = queueing.Waits(utilisation, longest, lambda _: 1.0)
    offered = queueing.offered_load(utilisation, longest)
    assert offered * (1 - waits.refused) == pytest.approx(utilisation)


def test_a_uniform_delay_of_a_fixed_wait_is_uniform():
    # Between its entries the table is a ramp: a wait of half a step, more or less.
    assert queueing._spread([0.0, 1.0], 4.0) == [0.0, 0.125, 0.375, 0.625, 0.875, 1.0]


@pytest.mark.parametrize("share", [0.9, 0.99])
@pytest.mark.parametrize(("utilisation", "longest"), [(0.5, 3.0), (0.9, 5.0), (0.9, 2.0), (0.3, 1e9)])
def test_quantile_and_share_agree(utilisation, longest, share):
    waits = queueing.Waits(utilisation, longest, lambda k: min(2.0, 0.5 * 2**k))
    assert waits.longer_than(waits.quantile(share)) == pytest.approx(1 - share, rel=1e-6)


@pytest.mark.parametrize(
    ("utilisation", "longest", "bound"), [(0.8, 2.0, 3.0), (0.9, 5.0, 0.5), (0.6, 0.5, 7.0)]
)
def test_backoffs_lengthen_the_mean_as_much_as_the_distribution(utilisation, longest, bound):
    waits = queueing.Waits(utilisation, longest, lambda _: bound)
    at_once = queueing.Waits(utilisation, longest, lambda _: 1e-9)
    refusals = waits.refused / (1 - waits.refused)
    assert waits.mean == pytest.approx(at_once.mean + refusals * bound / 2)
    # A mean is the area above the distribution.
    width, end = 0.01, 150
    area = math.fsum(waits.longer_than((i + 0.5) * width) for i in range(int(end / width))) * width
    assert area == pytest.approx(waits.mean, rel=0.01)


def test_the_probability_that_a_write_meets_another_is_the_utilisation():
    at = contention(20, 100)
    assert at.utilisation == pytest.approx(100 * 0.05 / 20)
    assert at.share_waiting_longer_than(0) == pytest.approx(at.utilisation)


def test_shards_that_cannot_keep_up_make_writes_wait_for_ever():
    at = contention(10, 10 / 0.05)
    assert at.utilisation == 1
    assert at.wait_mean_seconds == at.wait_p99_seconds == at.retries_per_write == math.inf
    assert at.retry_probability == at.share_waiting_longer_than(60) == 1


def test_no_writes_wait_for_nothing():
    at = contention(10, 0)
    assert (at.utilisation, at.wait_mean_seconds, at.wait_p99_seconds) == (0, 0, 0)


@settings(deadline=None, max_examples=40)
@given(
    utilisation=st.floats(1e-6, 0.98),
    more=st.floats(1.001, 1.5),
    longest=st.floats(0.5, 400),
)
def test_more_writes_wait_longer_and_are_refused_more(utilisation, more, longest):
    quiet, crowded = (
        queueing.Waits(min(0.99, busy), longest, lambda _: 1.0)
        for busy in (utilisation, utilisation * more)
    )
    slack = 1 + 1e-6
    assert quiet.mean <= crowded.mean * slack
    assert quiet.refused <= crowded.refused * slack
    for share_of_longest in (0, 0.01, 0.3, 0.99):
        x = share_of_longest * longest
        assert quiet.longer_than(x) <= crowded.longer_than(x) * slack + 1e-11


@pytest.mark.parametrize("utilisation", [0.5, 0.8, 0.9])
def test_more_writes_lengthen_the_waits_of_those_refused_too(utilisation):
    quiet, crowded = (
        queueing.Waits(busy, 2.0, lambda _: 1.0) for busy in (utilisation, utilisation + 0.02)
    )
    for x in (2.0, 3.7, 8.0):
        assert 0 < quiet.longer_than(x) < crowded.longer_than(x)


# The recommendation.

RATES = st.floats(1e-3, 1e5)
LIMITS = st.builds(
    Limits,
    sustained_writes_per_second=st.floats(0.1, 100),
    commit_seconds=st.floats(1e-3, 1),
    max_wait_seconds=st.floats(0.5, 60),
)
DEMANDS = st.fixed_dictionaries(
    {
        "writes_per_second": RATES,
        "reads_per_second": st.floats(0, 1e5),
        "burstiness": st.floats(1, 20),
        "target_p99_seconds": st.floats(0, 10),
        "staleness_seconds": st.floats(0, 7200),
        "counters": st.integers(1, 1000),
        "mirrors": st.integers(0, 3),
        "listeners": st.floats(0, 1e4),
        "limits": LIMITS,
    }
)


@settings(deadline=None, max_examples=40)
@given(
    demand=DEMANDS,
    more=st.floats(1.001, 10),
    harder=st.sampled_from(
        ["writes_per_second", "burstiness", "target_p99_seconds", "sustained", "commit"]
    ),
)
def test_a_harder_demand_never_gets_fewer_shards(demand, more, harder):
    changed = dict(demand)
    limits = demand["limits"]
    if harder == "target_p99_seconds":
        changed[harder] /= more
    elif harder == "sustained":
        changed["limits"] = dataclasses.replace(
            limits, sustained_writes_per_second=limits.sustained_writes_per_second / more
        )
    elif harder == "commit":
        changed["limits"] = dataclasses.replace(limits, commit_seconds=limits.commit_seconds * more)
    else:
        changed[harder] *= more
    assert recommend(**changed).shards >= recommend(**demand).shards


@settings(deadline=None, max_examples=40)
@given(
    demand=DEMANDS,
    more=st.floats(1.001, 10),
    dearer=st.sampled_from(["writes_per_second", "reads_per_second", "counters", "prices"]),
)
def test_a_larger_demand_never_costs_less(demand, more, dearer):
    changed = dict(demand)
    if dearer == "prices":
        changed["prices"] = dataclasses.replace(NAM5, reads=NAM5.reads * more, writes=NAM5.writes * more)
    elif dearer == "counters":
        changed["counters"] += 1
    else:
        changed[dearer] *= more
    for larger, smaller in zip(recommend(**changed).ways, recommend(**demand).ways, strict=True):
        assert larger.dollars_a_month >= smaller.dollars_a_month * (1 - 1e-9)


@settings(deadline=None, max_examples=40)
@given(demand=DEMANDS)
def test_the_recommended_shards_are_the_fewest_that_bear_the_demand(demand):
    sizing_ = recommend(**demand)
    same = {name: demand[name] for name in ("burstiness", "target_p99_seconds", "counters", "limits")}
    writes = demand["writes_per_second"]
    if sizing_.bound not in ("index", "shards"):
        assert capacity(sizing_.shards, **same).writes_per_second >= writes * (1 - 1e-8)
    if sizing_.shards > 1:
        assert capacity(sizing_.shards - 1, **same).writes_per_second < writes


@settings(deadline=None, max_examples=40)
@given(demand=DEMANDS)
def test_an_impossible_demand_is_told_what_makes_it_possible(demand):
    impossible = recommend(**demand)
    assert impossible.feasible == (not impossible.changes)
    changed = dict(demand)
    for change in impossible.changes:
        if change.startswith("Collect "):
            changed["writes_per_second"] /= int(change.split()[1])
        else:
            assert change.startswith("Accept a staleness of ")
            changed["staleness_seconds"] = float(change.split()[4])
    assert recommend(**changed).feasible


def test_ten_shards_for_five_writes_a_second():
    # The default number of shards of a counter, and what docs/choosing-shards.md says of it.
    sizing_ = recommend(writes_per_second=5)
    assert (sizing_.shards, sizing_.bound, sizing_.feasible) == (10, "document", True)
    assert capacity(10).writes_per_second == 5


def test_a_slow_commit_asks_for_more_shards_than_the_sustained_rate_does():
    slow = Limits(sustained_writes_per_second=10, commit_seconds=0.1)
    sizing_ = recommend(writes_per_second=50, limits=slow)
    assert sizing_.bound == "wait"
    assert sizing_.shards > 100 / 10
    assert sizing_.contention.wait_p99_seconds <= 0.1
    fewer = contention(sizing_.shards - 1, 100, limits=slow)
    assert fewer.wait_p99_seconds > 0.1


def test_no_target_allows_more_than_one_refusal_in_a_hundred():
    impatient = Limits(sustained_writes_per_second=100, max_wait_seconds=0.2)
    sizing_ = recommend(writes_per_second=100, target_p99_seconds=3600, limits=impatient)
    assert sizing_.bound == "wait"
    assert sizing_.contention.retry_probability <= 0.01
    assert contention(sizing_.shards - 1, 200, limits=impatient).retry_probability > 0.01


def test_the_index_bounds_one_counter_and_all_together():
    sizing_ = recommend(writes_per_second=100)
    assert (sizing_.counter_ceiling, sizing_.ceiling) == (2500, 15_000)
    assert recommend(writes_per_second=1250).feasible
    assert recommend(writes_per_second=1251).bound == "index"
    assert recommend(writes_per_second=100, counters=75).feasible
    assert not recommend(writes_per_second=100, counters=76).feasible


@pytest.mark.parametrize(("shards", "peak"), [(1, 500), (2, 1000), (5, 2500), (6, 2500)])
def test_few_shards_are_in_few_buckets(shards, peak):
    quick = Limits(sustained_writes_per_second=1e6, commit_seconds=1e-6)
    bears = capacity(shards, limits=quick)
    assert (bears.peak_writes_per_second, bears.bound) == (peak, "index")
    assert recommend(peak / 2, limits=quick).shards == min(shards, 5)


def test_limits_are_those_of_the_package():
    # Sizing stands alone, so it repeats these figures; here they are held together.
    limits, backoff, second = Limits(), Backoff(), 1_000_000
    assert limits.buckets == layout.BUCKETS
    assert limits.buckets_per_counter == layout.BUCKETS_PER_GROUP
    assert limits.max_shards == layout.MAX_SHARDS
    assert limits.first_backoff_seconds == backoff.first
    assert limits.longest_backoff_seconds == backoff.longest
    assert backoff.factor == 2
    assert limits.rollup_overlap_seconds * second == rollup.SHORT_OVERLAP
    assert limits.rollup_rescan_seconds * second == rollup.RESCAN_EVERY
    assert limits.rollup_rescan_overlap_seconds * second == rollup.LONG_OVERLAP


# Reading and its price.

CENT_EACH = Prices(location="test", reads=1000, writes=1000, source="made up")


def ways(**demand):
    sizing_ = recommend(prices=CENT_EACH, free=NO_FREE_TIER, burstiness=1, **demand)
    return sizing_, {way.name: way for way in sizing_.ways}


def test_each_way_is_billed_as_documented():
    # 1,500 shards, so that value() and each sum take 2 reads; all change within each interval.
    sizing_, by_name = ways(
        writes_per_second=1500, reads_per_second=10, staleness_seconds=1810, mirrors=2, listeners=40
    )
    assert (sizing_.shards, sizing_.rollup_interval_seconds) == (1500, 1800)
    # Cursor and query, shards, counter document, sum; cursor and total.
    run_reads, run_writes = 2 + 1500 + 1 + 2, 1 + 1
    billed = {
        "value": (10 * 2, 0),
        "stream": (10 * 1500, 0),
        "total": (10 + run_reads / 1800, run_writes / 1800),
        "mirror": (run_reads / 1800, (run_writes + 2) / 1800),
        "listener": ((run_reads + 40) / 1800, run_writes / 1800),
    }
    assert by_name.keys() == billed.keys()
    for name, (reads, writes) in billed.items():
        way = by_name[name]
        assert (way.reads_per_second, way.writes_per_second) == pytest.approx((reads, writes))
        assert way.dollars_a_month == pytest.approx((reads + writes + 1500) * MONTH / 100)


def test_a_rare_write_is_read_again_by_each_rollup_whose_window_overlaps_it():
    # A write an hour and a run a minute: all but never do two fall into one window. Of 5 minutes,
    # 4 runs look back 70 s and the rescan 600 s. Each finds the shard and reads its counter; the
    # one that finds it new sums it too.
    _, by_name = ways(writes_per_second=1e-6, staleness_seconds=120, listeners=40)
    seen = (4 * 70 + 600) / 300
    total = by_name["total"]
    assert total.reads_per_second == pytest.approx(2 / 60 + 1e-6 * (2 * seen + 1), rel=1e-6)
    assert total.writes_per_second == pytest.approx(2e-6, rel=1e-3)
    listening = by_name["listener"].reads_per_second - total.reads_per_second
    assert listening == pytest.approx(40e-6, rel=1e-3)


def test_an_idle_rollup_reads_twice_and_writes_nothing():
    _, by_name = ways(writes_per_second=0, staleness_seconds=120, counters=1000)
    total = by_name["total"]
    assert (total.reads_per_second * 60, total.writes_per_second) == (2, 0)


def test_every_counter_is_billed():
    _, one = ways(writes_per_second=1, reads_per_second=2)
    _, ten = ways(writes_per_second=1, reads_per_second=2, counters=10)
    assert ten["value"].dollars_a_month == pytest.approx(10 * one["value"].dollars_a_month)
    # Shared are the run's own two reads, and the one write of its cursor.
    assert ten["total"].reads_per_second - 2 / 60 == pytest.approx(
        10 * (one["total"].reads_per_second - 2 / 60)
    )
    assert ten["total"].writes_per_second - 1 / 60 == pytest.approx(
        10 * (one["total"].writes_per_second - 1 / 60)
    )


def test_the_free_tier_is_free():
    quiet = recommend(writes_per_second=0.2, reads_per_second=0.5)
    assert quiet.best.dollars_a_month == 0
    paid = recommend(writes_per_second=0.2, reads_per_second=0.5, free=NO_FREE_TIER)
    assert paid.best.dollars_a_month == pytest.approx(
        MONTH * (0.2 * NAM5.writes + 0.5 * NAM5.reads) / 100_000
    )


@pytest.mark.parametrize(
    ("best", "demand"),
    [
        ("value", {"writes_per_second": 10, "reads_per_second": 100}),
        ("value", {"writes_per_second": 1000, "reads_per_second": 100, "staleness_seconds": 0}),
        ("total", {"writes_per_second": 1000, "reads_per_second": 100}),
        ("mirror", {"writes_per_second": 10, "reads_per_second": 100, "mirrors": 1}),
        ("listener", {"writes_per_second": 10, "reads_per_second": 100, "listeners": 5}),
    ],
)
def test_the_best_way_to_read_is_the_cheapest_that_serves(best, demand):
    sizing_ = recommend(**demand)
    assert sizing_.best.name == best
    assert sizing_.best.dollars_a_month == min(way.dollars_a_month for way in sizing_.ways if way.fits)


@pytest.mark.parametrize(
    ("staleness", "interval"), [(0, None), (69.9, None), (70, 60), (129, 60), (130, 120), (3610, 3600)]
)
def test_the_rollup_interval_keeps_the_staleness(staleness, interval):
    sizing_ = recommend(writes_per_second=1, staleness_seconds=staleness)
    assert sizing_.rollup_interval_seconds == interval
    total = next(way for way in sizing_.ways if way.name == "total")
    assert total.fits == (interval is not None)
    assert not total.fits or total.staleness_seconds <= staleness


def test_listeners_that_want_exact_values_are_told_to_accept_a_staleness():
    sizing_ = recommend(writes_per_second=1, staleness_seconds=5, listeners=10)
    assert not sizing_.feasible
    assert sizing_.best.name == "value"
    assert "Accept a staleness of 70 s" in sizing_.changes[0]


# Where the figures come from, and where they go.


def test_the_tables_of_the_documentation_are_what_is_computed():
    page = (Path(sizing.__file__).parents[1] / "docs" / "choosing-shards.md").read_text(encoding="utf-8")
    rows = [
        [float(re.sub(r"[^0-9.]", "", cell) or "nan") for cell in line.split("|")[1:-1]]
        for line in page.splitlines()
        if re.search(r"\| \d+ % \|", line)
    ]
    recommended = [row for row in rows if len(row) == 5]
    waits = [row for row in rows if len(row) == 3]
    assert (len(recommended), len(waits)) == (5, 7)
    for writes, peak, shards, busy, wait in recommended:
        sizing_ = recommend(writes)
        assert (sizing_.contention.writes_per_second, sizing_.shards) == (peak, shards)
        assert sizing_.feasible
        assert round(sizing_.contention.utilisation * 100) == busy
        assert round(sizing_.contention.wait_p99_seconds * 1000) == wait
    for busy, mean, p99 in waits:
        at = contention(1, busy / 100, limits=Limits(commit_seconds=1, max_wait_seconds=400))
        assert at.wait_mean_seconds == pytest.approx(mean, abs=0.0051)
        assert at.wait_p99_seconds == pytest.approx(p99, abs=0.0051 if p99 < 10 else 0.051)


def test_the_examples_of_the_documentation_hold():
    assert recommend(writes_per_second=50, reads_per_second=200).shards == 100
    measured = Limits(sustained_writes_per_second=10, commit_seconds=0.05)
    assert recommend(writes_per_second=50, reads_per_second=200, limits=measured).shards == 16
    assert int(capacity(10, limits=measured).writes_per_second * 10) == 319
    assert (
        recommend(writes_per_second=1, listeners=10, staleness_seconds=10)
        .changes[0]
        .startswith("Accept a staleness of 70 s: mirrors and listeners show what the rollup wrote, ")
    )
    # 99 of 100 wait less than two commits while a shard is busy for less than 32 % of the time.
    assert contention(1, 0.319 / 0.05).wait_p99_seconds < 0.1 < contention(1, 0.321 / 0.05).wait_p99_seconds


def test_every_figure_has_its_source():
    of_limits = {field.name for field in dataclasses.fields(Limits)}
    of_recommend = {"burstiness", "target_p99_seconds", "staleness_seconds"}
    assert SOURCES.keys() == of_limits | of_recommend
    for name, source in SOURCES.items():
        assert source.says, name
        assert (source.page is None) == (source.looked_up is None), name
        assert source.page is None or source.page.startswith("https://"), name
    assert all("https://" in price.source and "2026-11-30" in price.source for price in PRICES.values())


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: recommend(-1), "writes_per_second"),
        (lambda: recommend(math.nan), "writes_per_second"),
        (lambda: recommend(1, reads_per_second=math.inf), "reads_per_second"),
        (lambda: recommend(1, burstiness=0.5), "burstiness"),
        (lambda: recommend(1, counters=0), "counters"),
        (lambda: recommend(1, target_p99_seconds=-0.1), "target_p99_seconds"),
        (lambda: recommend(1, staleness_seconds=-1), "staleness_seconds"),
        (lambda: recommend(1, mirrors=-1), "mirrors"),
        (lambda: recommend(1, listeners=-1), "listeners"),
        (lambda: capacity(0), "shard"),
        (lambda: contention(0, 1), "shard"),
        (lambda: contention(1, -1), "writes_per_second"),
        (lambda: Limits(commit_seconds=0), "commit_seconds"),
        (lambda: Limits(sustained_writes_per_second=math.nan), "sustained_writes_per_second"),
        (lambda: Limits(buckets=math.inf), "buckets"),
        (lambda: Limits(rollup_run_seconds=-1), "rollup_run_seconds"),
        (lambda: FreeTier(reads_per_day=-1), "reads_per_day"),
        (lambda: Prices(location="x", reads=-1, writes=1, source="made up"), "reads"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()
