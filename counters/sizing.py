"""How many shards a counter needs, what its writes then wait, and what each way to read it costs.

Pure: no I/O, no clock, no randomness, and nothing of Firestore. All times are in seconds, all rates
per second.

The model
---------
Writes come at random moments (a Poisson stream) and each picks a shard at random, so every shard
sees a Poisson stream of its own. A commit holds its shard for a fixed time; others queue behind it
in order. A write that would have to wait longer than ``max_wait`` is refused once it has waited that
long, backs off for a random time and tries another shard. In the language of queues: an M/D/1
queue with deterministic patience for each shard, fed by new writes and by those refused elsewhere.

With ``load`` commits offered to a shard in the time of one commit, and times in such units, let

    G(x) = sum over k = 0, 1, ... up to x of (-load (x - k))^k / k! * exp(load (x - k)).

(1 - load) G(x) is Erlang's distribution (1909) of the wait where nothing is refused. Where nobody
waits longer than T, the wait of those not refused has the distribution G(x) / G(T); the share not
refused is G(T) / (1 + load G(T)); and the shard is busy, as it must be, for (new writes) x (time of
a commit). That last share is the utilisation. It is also the probability that a write meets another
at its shard, because Poisson arrivals see time averages. ``counters.queueing`` computes all this.

What the model leaves out: refused writes come back while their shards are still crowded. Where a
fair share is refused by few shards it is optimistic; ``counters.simulation`` is not, and
docs/choosing-shards.md says by how much. No shard count that ``recommend`` gives is near there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal

from counters.prices import FREE_TIER, PRICES, FreeTier, Prices
from counters.queueing import Waits, least

__all__ = [
    "SOURCES",
    "Capacity",
    "Contention",
    "Limits",
    "Sizing",
    "Source",
    "Way",
    "capacity",
    "contention",
    "recommend",
]

_LOOKED_UP: Final = "2026-11-30"

WayName = Literal["value", "total", "mirror", "listener", "stream"]
Bound = Literal["document", "wait", "index", "shards"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a database bears. ``SOURCES`` tells where each default comes from; measure your own.

    ``sustained_writes_per_second``
        The most that one document should take for long; peaks of minutes count.
    ``commit_seconds``
        How long one commit holds its document; its inverse is what a document takes at most.
    ``max_wait_seconds``
        A write that has waited this long for its document is refused; ``math.inf`` if never.
    ``first_backoff_seconds``, ``longest_backoff_seconds``
        The wait before the k-th retry is random, up to first x 2^(k-1), at most the longest.
    ``increments_per_bucket``, ``buckets``, ``buckets_per_counter``
        The index on `updated_at` takes so many increments a second in each of its ranges; how many
        ranges there are for all counters, and over how many one counter spreads.
    ``max_shards``
        The most shards a counter may have.
    ``shortest_rollup_seconds``, ``rollup_run_seconds``
        The shortest interval at which a rollup can be scheduled; allowance for one run to finish.
    ``rollup_overlap_seconds``
        Each run reads the shards that changed since so long before the last one.
    ``rollup_rescan_seconds``, ``rollup_rescan_overlap_seconds``
        A run so long after the last rescan is a rescan: it reads the shards that changed since
        the overlap before the last rescan.

    Raises ValueError for a number that is not above 0 (the rollup's may be 0).
    """

    sustained_writes_per_second: float = 1.0
    commit_seconds: float = 0.05
    max_wait_seconds: float = 20.0
    first_backoff_seconds: float = 0.03
    longest_backoff_seconds: float = 2.0
    increments_per_bucket: float = 500.0
    buckets: int = 30
    buckets_per_counter: int = 5
    max_shards: int = 10_000
    shortest_rollup_seconds: float = 60.0
    rollup_run_seconds: float = 10.0
    rollup_overlap_seconds: float = 10.0
    rollup_rescan_seconds: float = 300.0
    rollup_rescan_overlap_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            may_be_zero = name.startswith("rollup_")
            if not (value > 0 or (may_be_zero and value == 0)):
                raise ValueError(f"{name} must be above 0, not {value!r}")
            if value == math.inf and name != "max_wait_seconds":
                raise ValueError(f"{name} must be finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a default comes from: a page and the day it was looked up, or None if it is our choice."""

    page: str | None
    looked_up: str | None
    says: str


def _page(page: str, says: str) -> Source:
    return Source(page=page, looked_up=_LOOKED_UP, says=says)


def _choice(says: str) -> Source:
    return Source(page=None, looked_up=None, says=says)


SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "sustained_writes_per_second": _page(
            "https://firebase.google.com/docs/firestore/quotas (copy of 2019-04-11)",
            "1 write a second. Today's page has no such number; "
            "https://firebase.google.com/docs/firestore/best-practices says that the rate depends "
            "highly on the workload and is to be found by load testing.",
        ),
        "commit_seconds": _choice(
            "No published figure. A cautious assumption: measure it, as the inverse of the writes a "
            "second that one document takes from many writers."
        ),
        "max_wait_seconds": _page(
            "https://firebase.google.com/docs/firestore/manage-data/transactions",
            "A lock that is not had within 20 seconds fails the transaction (as quoted by others). "
            "Google's emulator gives up after 2 s.",
        ),
        "first_backoff_seconds": _choice("This package's backoff."),
        "longest_backoff_seconds": _choice("This package's backoff."),
        "increments_per_bucket": _page(
            "https://firebase.google.com/docs/firestore/quotas",
            "500 writes a second to documents with sequential values in an indexed field.",
        ),
        "buckets": _page(
            "https://firebase.google.com/docs/firestore/query-data/queries",
            "An `in` filter takes up to 30 values; layout 1 uses them all.",
        ),
        "buckets_per_counter": _choice("Layout 1 spreads the shards of a counter over 5 buckets."),
        "max_shards": _choice("Layout 1 refuses more; value() costs one read for each 1,000."),
        "shortest_rollup_seconds": _choice("Cloud Scheduler's cron syntax has whole minutes."),
        "rollup_run_seconds": _choice("An allowance: a cold start, the scan and the writes."),
        "rollup_overlap_seconds": _choice("This package's rollup."),
        "rollup_rescan_seconds": _choice("This package's rollup."),
        "rollup_rescan_overlap_seconds": _choice(
            "This package's rollup: longer than the 270 s that a transaction can last."
        ),
        "burstiness": _choice("An assumption: the busiest hour of a day at twice its mean."),
        "target_p99_seconds": _choice("A wait that nobody notices beside a round trip."),
        "staleness_seconds": _choice("What a schedule of one minute keeps; yours to decide."),
    }
)
"""For each field of ``Limits`` and each default of ``recommend`` that is a figure: its source."""


# What callers see.


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """What writes meet at a number of shards while they come at a rate.

    ``utilisation``
        The share of the time for which a shard is held by a commit, and so the probability that a
        write meets another. At 1 and above the shards cannot keep up: waits are infinite.
    ``wait_mean_seconds``, ``wait_p99_seconds``
        From a write's first attempt to the start of its commit; refusals and backoffs included. The
        commit and the round trips, which no number of shards changes, come on top.
    ``retry_probability``, ``retries_per_write``
        The probability that an attempt is refused, and the mean number of refusals of a write.
    """

    shards: int
    writes_per_second: float
    utilisation: float
    wait_mean_seconds: float
    wait_p99_seconds: float
    retry_probability: float
    limits: Limits

    @property
    def retries_per_write(self) -> float:
        """Mean number of times that a write is refused; infinite where shards cannot keep up."""
        if self.retry_probability >= 1:
            return math.inf
        return self.retry_probability / (1 - self.retry_probability)

    @property
    def writes_per_shard(self) -> float:
        """Commits a second at each shard."""
        return self.writes_per_second / self.shards

    def share_waiting_longer_than(self, seconds: float) -> float:
        """The share of writes that wait longer than ``seconds`` for their commit to start.

        >>> round(contention(20, 20).share_waiting_longer_than(0.025), 3)
        0.026
        """
        if self.utilisation >= 1:
            return 1.0
        return _waits(self.utilisation, self.limits).longer_than(seconds / self.limits.commit_seconds)


def contention(shards: int, writes_per_second: float, *, limits: Limits = Limits()) -> Contention:
    """What writes meet at ``shards`` shards while ``writes_per_second`` come to the counter.

    Raises ValueError for fewer than 1 shard or a negative rate.

    >>> at = contention(shards=10, writes_per_second=100)
    >>> at.utilisation
    0.5
    >>> round(at.wait_mean_seconds, 3), round(at.wait_p99_seconds, 3)
    (0.025, 0.167)
    >>> contention(shards=10, writes_per_second=300).wait_p99_seconds
    inf
    """
    _check_shards(shards)
    _check_rates(writes_per_second=writes_per_second)
    utilisation = writes_per_second * limits.commit_seconds / shards
    mean = p99 = math.inf
    refused = 1.0
    if utilisation < 1:
        waits = _waits(utilisation, limits)
        mean = waits.mean * limits.commit_seconds
        p99 = waits.quantile(_P99) * limits.commit_seconds
        refused = waits.refused
    return Contention(
        shards=shards,
        writes_per_second=writes_per_second,
        utilisation=utilisation,
        wait_mean_seconds=mean,
        wait_p99_seconds=p99,
        retry_probability=refused,
        limits=limits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a number of shards bears.

    ``writes_per_second`` is the mean over time, for each counter; its peaks reach
    ``peak_writes_per_second``. ``bound`` names what allows no more: "document" (the sustained rate
    of one document), "wait" (the target for the wait) or "index" (the buckets of the index).
    """

    shards: int
    writes_per_second: float
    peak_writes_per_second: float
    bound: Bound
    contention: Contention


def capacity(
    shards: int,
    *,
    burstiness: float = 2.0,
    target_p99_seconds: float = 0.1,
    counters: int = 1,
    limits: Limits = Limits(),
) -> Capacity:
    """What ``shards`` shards bear: the inverse of ``recommend``, with the same parameters.

    Raises ValueError for numbers that make no sense.

    >>> ten = capacity(10)
    >>> ten.writes_per_second, ten.bound
    (5.0, 'document')
    >>> measured = Limits(sustained_writes_per_second=15)
    >>> round(capacity(10, limits=measured).writes_per_second), capacity(10, limits=measured).bound
    (32, 'wait')
    """
    _check_shards(shards)
    _check_demand(burstiness, target_p99_seconds, counters)
    utilisation = _bearable_utilisation(target_p99_seconds, limits)
    candidates: list[tuple[float, Bound]] = [
        (shards * limits.sustained_writes_per_second, "document"),
        (shards * utilisation / limits.commit_seconds, "wait"),
        (min(shards, limits.buckets_per_counter) * limits.increments_per_bucket, "index"),
        (limits.buckets * limits.increments_per_bucket / counters, "index"),
    ]
    peak, bound = min(candidates, key=lambda candidate: candidate[0])
    return Capacity(
        shards=shards,
        writes_per_second=peak / burstiness,
        peak_writes_per_second=peak,
        bound=bound,
        contention=contention(shards, peak, limits=limits),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to read the counters, and what a month of it costs.

    ``reads_per_second`` and ``writes_per_second`` are what is billed for reading, rollups included
    and increments not; ``dollars_a_month`` is the whole bill, increments included. ``fits`` tells
    whether it serves this demand; if not, ``note`` says why.
    """

    name: WayName
    fits: bool
    note: str
    staleness_seconds: float
    reads_per_second: float
    writes_per_second: float
    dollars_a_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What ``recommend`` recommends, and why.

    ``shards`` and ``bound``
        The number of shards, and what asks for so many: "document" (the sustained rate of one
        document), "wait" (the target for the wait), "index" or "shards" (a limit is exceeded).
    ``feasible`` and ``changes``
        Whether the demand can be met, and what to change if not.
    ``contention``
        What writes meet at that many shards at the peak.
    ``best``, ``ways``
        The cheapest way to read that serves the demand, and all of them.
    ``rollup_interval_seconds``
        The longest interval that keeps the staleness asked for; None if none is short enough.
    ``counter_ceiling``, ``ceiling``
        The most increments a second that the index takes: of one counter, and of all together.
    """

    shards: int
    bound: Bound
    feasible: bool
    changes: tuple[str, ...]
    contention: Contention
    best: Way
    ways: tuple[Way, ...]
    rollup_interval_seconds: float | None
    counter_ceiling: float
    ceiling: float


def recommend(
    writes_per_second: float,
    reads_per_second: float = 0.0,
    *,
    burstiness: float = 2.0,
    target_p99_seconds: float = 0.1,
    staleness_seconds: float = 120.0,
    counters: int = 1,
    mirrors: int = 0,
    listeners: float = 0.0,
    limits: Limits = Limits(),
    prices: Prices = PRICES["nam5"],
    free: FreeTier = FREE_TIER,
) -> Sizing:
    """How many shards a counter needs, and how best to read it.

    Writes and reads are means over time for each of ``counters`` counters of this kind; at the peak
    writes are ``burstiness`` times as many. 99 of 100 writes then wait at most
    ``target_p99_seconds`` for their commit to start. Readers accept a value that is
    ``staleness_seconds`` old; 0 asks for exact values. ``mirrors`` is the number of fields in other
    documents that show the total to readers who load those anyway, ``listeners`` the number of
    clients that listen to each counter at any time.

    A demand that cannot be met gets ``feasible=False`` and what to change. Raises ValueError for
    numbers that make no sense, such as a negative rate.

    >>> sizing = recommend(writes_per_second=10, reads_per_second=50)
    >>> sizing.shards, sizing.bound, sizing.best.name
    (20, 'document', 'value')
    >>> round(sizing.contention.utilisation, 3), round(sizing.contention.wait_p99_seconds, 3)
    (0.05, 0.041)
    >>> print(recommend(writes_per_second=4000).changes[0])
    Collect 4 events into one increment(n): a counter bears 1250 increments a second on average.
    """
    _check_demand(burstiness, target_p99_seconds, counters)
    _check_rates(
        writes_per_second=writes_per_second,
        reads_per_second=reads_per_second,
        staleness_seconds=staleness_seconds,
        mirrors=mirrors,
        listeners=listeners,
    )
    changes: list[str] = []
    peak = writes_per_second * burstiness
    shards, bound = _shards_for(peak, target_p99_seconds, limits)
    most = capacity(
        limits.max_shards,
        burstiness=burstiness,
        target_p99_seconds=target_p99_seconds,
        counters=counters,
        limits=limits,
    )
    if writes_per_second > most.writes_per_second * (1 + _ROUNDING):
        bound = "index" if most.bound == "index" else "shards"
        together = math.ceil(writes_per_second / most.writes_per_second)
        changes.append(
            f"Collect {together} events into one increment(n): a counter bears "
            f"{most.writes_per_second:g} increments a second on average."
        )
    interval = _rollup_interval(staleness_seconds, limits)
    if interval is None and (mirrors or listeners):
        shortest = limits.shortest_rollup_seconds + limits.rollup_run_seconds
        changes.append(
            f"Accept a staleness of {shortest:g} s: mirrors and listeners show what the rollup "
            f"wrote, and it runs every {limits.shortest_rollup_seconds:g} s at most. Or read "
            "value(), which is exact."
        )
    ways = _ways(
        _Demand(
            shards=shards,
            counters=counters,
            writes=writes_per_second,
            reads=reads_per_second,
            mirrors=mirrors,
            listeners=listeners,
            interval=interval,
        ),
        limits,
        prices,
        free,
    )
    return Sizing(
        shards=shards,
        bound=bound,
        feasible=not changes,
        changes=tuple(changes),
        contention=contention(shards, peak, limits=limits),
        best=min((way for way in ways if way.fits), key=lambda way: way.dollars_a_month),
        ways=ways,
        rollup_interval_seconds=interval,
        counter_ceiling=limits.buckets_per_counter * limits.increments_per_bucket,
        ceiling=limits.buckets * limits.increments_per_bucket,
    )


_P99: Final = 0.99
_SUMMED_FOR_A_READ: Final = 1000
"""Index entries of an aggregation that are billed as one read
(https://firebase.google.com/docs/firestore/pricing#aggregation_queries, 2026-11-30)."""
_ROUNDING: Final = 1e-9
"""A demand that exceeds a limit by less than this exceeds it by rounding only."""


def _shards_for(peak: float, target: float, limits: Limits) -> tuple[int, Bound]:
    """The fewest shards that bear the peak, up to the most that are allowed."""
    by_wait = _bearable_utilisation(target, limits) / limits.commit_seconds
    rates: list[tuple[float, Bound]] = [
        (limits.sustained_writes_per_second, "document"),
        (by_wait, "wait"),
        (limits.increments_per_bucket, "index"),
    ]
    rate, bound = min(rates, key=lambda candidate: candidate[0])
    shards = max(1, math.ceil(peak / rate * (1 - _ROUNDING)))
    return (shards, bound) if shards <= limits.max_shards else (limits.max_shards, "shards")


@lru_cache(maxsize=128)
def _bearable_utilisation(target: float, limits: Limits) -> float:
    """The highest utilisation at which 99 of 100 writes wait no longer than the target."""

    def too_high(utilisation: float) -> bool:
        waits = _waits(utilisation, limits)
        x = target / limits.commit_seconds
        # A target beyond the longest wait still allows no more than 1 refusal in 100.
        missed = waits.longer_than(x) if x < waits.longest else waits.refused
        return missed > 1 - _P99

    return least(too_high, 0.0, 1.0) * (1 - _ROUNDING)


def _waits(utilisation: float, limits: Limits) -> Waits:
    first = limits.first_backoff_seconds / limits.commit_seconds
    longest = limits.longest_backoff_seconds / limits.commit_seconds
    return Waits(
        utilisation,
        limits.max_wait_seconds / limits.commit_seconds,
        backoff=lambda refusals: min(longest, first * 2.0 ** min(refusals, 64)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    shards: int
    counters: int
    writes: float
    reads: float
    mirrors: int
    listeners: float
    interval: float | None

    # At a steady rate. Where writes come in bursts fewer change, and the rollup costs less.

    def changed_counters(self, seconds: float) -> float:
        """How many counters change in a stretch of time, on average."""
        return -math.expm1(-self.writes * seconds) * self.counters

    def changed_shards(self, seconds: float) -> float:
        """How many shards change in a stretch of time, on average."""
        return -math.expm1(-self.writes * seconds / self.shards) * self.shards * self.counters


def _rollup_interval(staleness: float, limits: Limits) -> float | None:
    """The longest schedule that keeps the staleness: a total is oldest when the next run ends."""
    steps = math.floor((staleness - limits.rollup_run_seconds) / limits.shortest_rollup_seconds)
    return steps * limits.shortest_rollup_seconds if steps >= 1 else None


def _rollup_reads(demand: _Demand, interval: float, limits: Limits) -> float:
    """Reads a second that are billed for runs at this interval.

    A run reads its cursor and at least one for its query; each shard that changed in its window and
    the document of that shard's counter; and the sums of the counters that changed since the last.
    """
    rescan = max(interval, limits.rollup_rescan_seconds)
    windows = (
        (1 / interval - 1 / rescan, interval + limits.rollup_overlap_seconds),
        (1 / rescan, rescan + limits.rollup_rescan_overlap_seconds),
    )
    scanned = math.fsum(
        runs * (demand.changed_shards(window) + demand.changed_counters(window)) for runs, window in windows
    )
    sums = demand.changed_counters(interval) * math.ceil(demand.shards / _SUMMED_FOR_A_READ)
    return (2 + sums) / interval + scanned


def _ways(demand: _Demand, limits: Limits, prices: Prices, free: FreeTier) -> tuple[Way, ...]:
    """Every way to read, the simplest first: of equals the first is the best."""
    reads = demand.reads * demand.counters
    interval = demand.interval or limits.shortest_rollup_seconds
    stale = interval + limits.rollup_run_seconds
    rollup_reads = _rollup_reads(demand, interval, limits)
    changed = demand.changed_counters(interval)
    any_changed = -math.expm1(-demand.writes * demand.counters * interval)
    rollup_writes = (any_changed + changed) / interval  # the cursor, and each total
    mirror_writes = rollup_writes + changed * max(1, demand.mirrors) / interval
    too_slow = demand.interval is None
    late = "no rollup is scheduled often enough for this staleness"

    def way(
        name: WayName, reads: float, writes: float = 0.0, staleness: float = 0.0, unfit: str = ""
    ) -> Way:
        return Way(
            name=name,
            fits=not unfit,
            note=unfit,
            staleness_seconds=staleness,
            reads_per_second=reads,
            writes_per_second=writes,
            dollars_a_month=prices.dollars_a_month(
                reads_per_second=reads,
                writes_per_second=writes + demand.writes * demand.counters,
                free=free,
            ),
        )

    return (
        way("value", reads * math.ceil(demand.shards / _SUMMED_FOR_A_READ)),
        way("total", reads + rollup_reads, rollup_writes, stale, late if too_slow else ""),
        way(
            "mirror",
            rollup_reads,
            mirror_writes,
            stale,
            late if too_slow else "" if demand.mirrors else "no mirror is asked for",
        ),
        way(
            "listener",
            rollup_reads + demand.listeners * changed / interval,
            rollup_writes,
            stale,
            late if too_slow else "" if demand.listeners else "no listeners are asked for",
        ),
        way(
            "stream",
            reads * demand.shards,
            unfit="reads every shard each time; value() gives the same number for less",
        ),
    )


def _check_shards(shards: int) -> None:
    if shards < 1:
        raise ValueError(f"a counter has at least 1 shard, not {shards!r}")


def _check_demand(burstiness: float, target_p99_seconds: float, counters: int) -> None:
    if not 1 <= burstiness < math.inf:
        raise ValueError(f"burstiness is peak to mean, so at least 1, not {burstiness!r}")
    if counters < 1:
        raise ValueError(f"counters must be at least 1, not {counters!r}")
    _check_rates(target_p99_seconds=target_p99_seconds)


def _check_rates(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number from 0 up, not {value!r}")
