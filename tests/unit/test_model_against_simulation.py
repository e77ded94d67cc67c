"""The formulas of counters.sizing against counters.simulation, which knows none of them.

The long cells are marked ``proof``; each writes a line of what it found, shown by ``-rP``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from itertools import islice
from random import Random

import pytest

from counters.simulation import Shards, poisson, simulate, simulate_until
from counters.sizing import Limits, contention, recommend

RELATIVE, ABSOLUTE = 0.1, 0.005
"""How far the model may be off: the larger counts. Waits are in commit times for ABSOLUTE."""

UTILISATIONS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)
RATES = itertools.cycle((0.1, 1, 10, 100, 500, 2000, 5000))


@dataclasses.dataclass(frozen=True)
class Cell:
    """A rate of writes, shards to take them, and how many commits a write waits for at most."""

    shards: int
    utilisation: float
    patience: float
    writes_per_second: float

    def __str__(self):
        return (
            f"{self.writes_per_second:g}/s-{self.shards}-shards-"
            f"{self.utilisation:g}-busy-patience-{self.patience:g}"
        )

    @property
    def commit_seconds(self):
        return self.utilisation * self.shards / self.writes_per_second

    @property
    def limits(self):
        return Limits(
            commit_seconds=self.commit_seconds,
            max_wait_seconds=self.patience * self.commit_seconds,
            first_backoff_seconds=0.6 * self.commit_seconds,
            longest_backoff_seconds=40 * self.commit_seconds,
        )

    @property
    def simulated(self):
        return shards_of(self.limits, self.shards)


def shards_of(limits, shards):
    return Shards(
        shards=shards,
        commit_seconds=limits.commit_seconds,
        max_wait_seconds=limits.max_wait_seconds,
        first_backoff_seconds=limits.first_backoff_seconds,
        longest_backoff_seconds=limits.longest_backoff_seconds,
    )


CELLS = [
    # As patient as the defaults: a wait of 400 commits. Refusals hardly occur.
    *(
        Cell(shards, utilisation, 400, next(RATES))
        for shards in (1, 2, 5, 20, 100, 300, 1000)
        for utilisation in UTILISATIONS
    ),
    # Impatient: up to a quarter of the attempts is refused.
    *(
        Cell(shards, utilisation, patience, next(RATES))
        for shards, patience in ((20, 20), (50, 5), (100, 2), (300, 5), (1000, 2))
        for utilisation in UTILISATIONS[1:]
    ),
]

QUICK = [Cell(1, 0.5, 400, 0.1), Cell(100, 0.7, 400, 5000), Cell(50, 0.8, 5, 100)]


def compare(cell, *, relative):
    """The model's and the simulation's waits, in commit times, and retry probability."""
    model = contention(cell.shards, cell.writes_per_second, limits=cell.limits)
    report = simulate_until(cell.writes_per_second, cell.simulated, seed=20261130, relative=relative)
    unit = cell.commit_seconds
    return report, {
        "mean wait": (model.wait_mean_seconds / unit, report.wait_mean, unit),
        "p99": (model.wait_p99_seconds / unit, report.wait_p99, unit),
        "retry probability": (model.retry_probability, report.retry_probability, 1),
        "meets another": (model.utilisation, report.meets_probability, 1),
    }


def off(expected, observed, unit):
    """By how much of what is allowed the model is off."""
    value = observed.value / unit
    return abs(expected - value) / max(RELATIVE * value, ABSOLUTE)


def test_there_are_enough_cells_of_every_kind():
    assert len(CELLS) == len(set(CELLS)) >= 60
    assert {cell.writes_per_second for cell in CELLS} >= {0.1, 5000}
    assert {cell.shards for cell in CELLS} >= {1, 1000}
    assert max(cell.utilisation for cell in CELLS) == 0.9


@pytest.mark.parametrize("cell", QUICK, ids=str)
def test_model_agrees_with_simulation(cell):
    _, values = compare(cell, relative=0.06)
    for name, value in values.items():
        assert off(*value) <= 1, name


@pytest.mark.proof
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_model_agrees_with_simulation_everywhere(cell):
    report, values = compare(cell, relative=0.03)
    found = ", ".join(
        f"{name} {expected:.4g} against {observed.value / unit:.4g} ({off(expected, observed, unit):.2f})"
        for name, (expected, observed, unit) in values.items()
    )
    sys.stdout.write(f"{cell}: {report.writes:,} writes; {found}\n")
    for name, (expected, observed, unit) in values.items():
        if name != "meets another":
            spread = observed.half_width / unit
            assert spread <= max(0.03 * observed.value / unit, 0.0015), name
        assert off(expected, observed, unit) <= 1, name


@pytest.mark.proof
@pytest.mark.parametrize(
    "cell",
    [
        Cell(shards, utilisation, patience, 100)
        for shards in (1, 2, 5, 10)
        for utilisation, patience in ((0.6, 2), (0.8, 5), (0.9, 5))
    ],
    ids=str,
)
def test_where_few_shards_refuse_many_the_model_is_optimistic(cell):
    # What the model leaves out, by how much: the table in docs/choosing-shards.md.
    report, values = compare(cell, relative=0.03)
    model, observed, _ = values["retry probability"]
    mean, observed_mean, unit = values["mean wait"]
    sys.stdout.write(
        f"{cell}: retry probability {model:.4f} against {observed.value:.4f}, "
        f"mean wait {mean:.3f} against {observed_mean.value / unit:.3f}\n"
    )
    assert observed.high >= model
    assert observed_mean.high / unit >= mean
    assert report.meets_probability.value == pytest.approx(cell.utilisation, rel=0.02)


# The recommendation.

CONFIDENCE = 0.999
"""Of each of some hundred verdicts."""


def demands(number, seed):
    """Random demands of at least 5 shards and up to a few hundred."""
    chance = Random(seed)
    while number:
        commit = math.exp(chance.uniform(math.log(0.005), math.log(0.2)))
        limits = Limits(
            commit_seconds=commit,
            sustained_writes_per_second=chance.uniform(0.1, 1) / commit,
        )
        demand = {
            "writes_per_second": math.exp(chance.uniform(math.log(1), math.log(1250))),
            "burstiness": chance.uniform(1, 4),
            "target_p99_seconds": commit * chance.uniform(0.2, 8),
            "limits": limits,
        }
        sizing = recommend(**demand)
        if sizing.feasible and 5 <= sizing.shards <= 400:
            yield demand, sizing
            number -= 1


def meets(demand, shards, writes):
    """Whether the simulated shards meet the target and none is written too often, and how surely."""
    limits = demand["limits"]
    peak = demand["writes_per_second"] * demand["burstiness"]
    report = simulate(
        islice(poisson(peak, seed=shards), writes),
        shards_of(limits, shards),
        seed=shards + 1,
        warm_up_seconds=100 * limits.commit_seconds,
    )
    late = report.share_waiting_longer_than(demand["target_p99_seconds"], confidence=CONFIDENCE)
    too_often = report.writes_per_second / shards / limits.sustained_writes_per_second
    # The rate of n random writes is known to about 3.3 / sqrt(n) at this confidence.
    return late.low <= 0.01 and too_often <= 1 + 3.3 / math.sqrt(report.writes)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(20))
def test_recommended_shards_meet_the_target_and_four_fifths_of_them_miss_it(seed):
    bounds = []
    for demand, sizing in demands(10, seed):
        bounds.append(sizing.bound)
        assert meets(demand, sizing.shards, 100_000), demand
        assert not meets(demand, math.ceil(0.8 * sizing.shards) - 1, 100_000), demand
    sys.stdout.write(f"10 demands, bound by {', '.join(sorted(bounds))}\n")


def test_a_recommendation_meets_its_target_and_fewer_shards_miss_it():
    limits = Limits(sustained_writes_per_second=15)
    demand = {
        "writes_per_second": 60,
        "burstiness": 2,
        "target_p99_seconds": 0.1,
        "limits": limits,
    }
    sizing = recommend(**demand)
    assert sizing.bound == "wait"
    assert meets(demand, sizing.shards, 30_000)
    assert not meets(demand, math.ceil(0.8 * sizing.shards) - 1, 60_000)


# Rollups.


@pytest.mark.parametrize(("shards", "writes_per_second"), [(5, 0.02), (40, 0.3), (10, 2)])
def test_a_rollup_reads_as_many_documents_as_it_is_billed_for(shards, writes_per_second):
    sizing = recommend(
        writes_per_second,
        burstiness=1,
        limits=Limits(
            sustained_writes_per_second=writes_per_second / shards,
            # Simulated rollups look back to the last run and no further.
            rollup_overlap_seconds=0,
            rollup_rescan_seconds=0,
            rollup_rescan_overlap_seconds=0,
        ),
    )
    assert sizing.shards == shards
    interval = sizing.rollup_interval_seconds
    total = next(way for way in sizing.ways if way.name == "total")
    observed = simulate(
        islice(poisson(writes_per_second, seed=1), 20_000),
        Shards(shards=shards, rollup_seconds=interval, rollup_run_seconds=10),
        seed=2,
    ).rollups
    changed = 1 - observed.idle_share
    reads = 2 + observed.changed_shards + 2 * changed
    assert total.reads_per_second * interval == pytest.approx(reads, rel=0.02)
    assert total.writes_per_second * interval == pytest.approx(2 * changed, rel=0.02)
    assert observed.delay_longest_seconds <= total.staleness_seconds <= 120
