"""A simulation of writers at the shards of one counter: what ``counters.sizing`` computes, observed.

It shares no code and no formula with ``counters.sizing``, so each checks the other. It knows nothing
of Firestore, and the same seed gives the same result. All times are in seconds.

What is simulated: writes come at given moments, at random ones, or from writers who write again as
soon as they are done. Each picks a shard at random. A shard takes one commit at a time, in the order
in which writes came, and each holds it for a while. A write that has waited for ``max_wait`` is
refused; after a random backoff it tries another shard, until it is applied. Rollups run at fixed
intervals and read the shards that changed.

The event loop is our own rather than SimPy's: since a shard serves in order, the moment at which it
will be free says all about its queue, so a write is one event and not four. That leaves a heap of
retries, needs no extra, and simulates about a million writes a second.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from itertools import chain, count, pairwise
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

__all__ = [
    "Estimate",
    "Report",
    "Rollups",
    "Shards",
    "poisson",
    "simulate",
    "simulate_until",
    "simulate_writers",
    "trace",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The shards to simulate, and how refused writes behave.

    ``commit_seconds`` is how long a commit holds its shard, or a function that draws such a time.
    Before the k-th retry a write waits a random time, up to ``first_backoff_seconds`` x 2^(k-1) and
    at most ``longest_backoff_seconds``. With ``rollup_seconds`` a rollup starts at each multiple of
    it and takes ``rollup_run_seconds``.

    Raises ValueError for a number that makes no sense.
    """

    shards: int
    commit_seconds: float | Callable[[Random], float] = 0.05
    max_wait_seconds: float = math.inf
    first_backoff_seconds: float = 0.03
    longest_backoff_seconds: float = 2.0
    rollup_seconds: float | None = None
    rollup_run_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ValueError(f"there is at least 1 shard, not {self.shards!r}")
        times = {
            "commit_seconds": 1.0 if callable(self.commit_seconds) else self.commit_seconds,
            "max_wait_seconds": self.max_wait_seconds,
            "first_backoff_seconds": self.first_backoff_seconds,
            "longest_backoff_seconds": self.longest_backoff_seconds,
            "rollup_seconds": 1.0 if self.rollup_seconds is None else self.rollup_seconds,
        }
        for name, seconds in times.items():
            if not seconds > 0:
                raise ValueError(f"{name} must be above 0, not {seconds!r}")
        if self.rollup_run_seconds < 0:
            raise ValueError(f"rollup_run_seconds is from 0 up, not {self.rollup_run_seconds!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A simulated mean, share or quantile, and half the width of its confidence interval."""

    value: float
    half_width: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value + self.half_width

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.half_width:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollups:
    """What the rollups of a simulation did; only intervals that it covers wholly are counted.

    ``changed_shards`` is the mean number a run found changed, ``idle_share`` the share of runs that
    found none. ``delay_mean_seconds`` and ``delay_longest_seconds`` are the time from a commit to the
    end of the run that put it into the total: how stale a total gets.
    """

    runs: int
    changed_shards: float
    idle_share: float
    delay_mean_seconds: float
    delay_longest_seconds: float


# Where writes come from.


def poisson(writes_per_second: float, *, seed: int) -> Iterator[float]:
    """Moments of writes that come at random, without end.

    >>> moments = poisson(100, seed=1)
    >>> round(next(moments), 4), round(next(moments), 4)
    (0.0014, 0.0202)
    """
    if not 0 < writes_per_second < math.inf:
        raise ValueError(f"writes_per_second must be above 0, not {writes_per_second!r}")
    chance = Random(seed).random
    now = 0.0
    while True:
        now -= math.log(1.0 - chance()) / writes_per_second
        yield now


def trace(path: str | Path) -> Iterator[float]:
    """Moments of writes from a file, as seconds since its first.

    One moment a line, in order: seconds since any epoch, or ISO 8601. Blank lines and lines that
    start with # are skipped. The file is read as it is iterated over. Raises OSError where it cannot
    be read, ValueError with the number of the line where it makes no sense.
    """
    first = before = -math.inf
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            try:
                now = _moment(text)
            except ValueError:
                raise ValueError(
                    f"{path}, line {number}: {text!r} is neither seconds nor ISO 8601"
                ) from None
            if now < before:
                raise ValueError(f"{path}, line {number}: earlier than the line before it")
            if first == -math.inf:
                first = now
            before = now
            yield now - first


def _moment(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        # Python 3.10 does not know Z for UTC.
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    if not math.isfinite(seconds):
        raise ValueError(text)
    return seconds


# The simulation.


class _Attempt(NamedTuple):
    """An attempt that lies ahead: a retry, or a writer's next write."""

    at: float
    serial: int
    """Makes of two attempts at one moment the older the first."""
    came: float
    refusals: int
    refused_by: int
    met: bool


_Write = tuple[float, float, int, bool, float, int]
"""When it came, its wait, its refusals, whether its first attempt found its shard held, when it is
committed, and its shard. A plain tuple, for there are millions."""


def _writes(
    arrivals: Iterator[float], shards: Shards, chance: Random, think_seconds: float | None = None
) -> Iterator[_Write]:
    """Every write, as it gets its place in the queue of a shard; its commit may lie ahead.

    With ``think_seconds`` each comes from a writer, who writes again so long after the commit.
    """
    free_at = [-math.inf] * shards.shards
    ahead: list[_Attempt] = []
    serials = count()
    commit = shards.commit_seconds
    arrival = next(arrivals, math.inf)
    while ahead or arrival < math.inf:
        if ahead and ahead[0].at <= arrival:
            now, _, came, refusals, refused_by, met = heappop(ahead)
        else:
            now = came = arrival
            refusals = 0
            arrival = next(arrivals, math.inf)
            if not now <= arrival:
                raise ValueError(f"arrivals must be in order, but {arrival!r} comes after {now!r}")
        if not refusals:
            shard = int(chance.random() * shards.shards)
            met = free_at[shard] > now
        elif shards.shards > 1:
            others = int(chance.random() * (shards.shards - 1))
            shard = (refused_by + 1 + others) % shards.shards
        start = max(now, free_at[shard])
        if start - now > shards.max_wait_seconds:
            bound = shards.first_backoff_seconds * 2.0 ** min(refusals, 64)
            backoff = chance.random() * min(bound, shards.longest_backoff_seconds)
            again = now + shards.max_wait_seconds + backoff
            heappush(ahead, _Attempt(again, next(serials), came, refusals + 1, shard, met))
            continue
        committed = start + (commit(chance) if callable(commit) else commit)
        free_at[shard] = committed
        if think_seconds is not None:
            at = committed + think_seconds
            heappush(ahead, _Attempt(at, next(serials), at, 0, shard, met=False))
        yield came, start - came, refusals, met, committed, shard


def simulate(
    arrivals: Iterable[float], shards: Shards, *, seed: int, warm_up_seconds: float = 0.0
) -> Report:
    """What the writes of ``arrivals`` meet, all of them.

    ``arrivals`` are moments in order, such as those of ``trace``. Writes that come before
    ``warm_up_seconds`` are simulated but not counted: at first the shards are idle. Raises
    ValueError if arrivals are out of order or fewer than 2 are left to count.

    >>> every_second = (float(second) for second in range(1000))
    >>> report = simulate(every_second, Shards(shards=4, commit_seconds=2), seed=1)
    >>> report.writes, round(report.meets_probability.value, 3)
    (1000, 0.351)
    """
    record = _Record(shards, warm_up_seconds)
    record.take(_writes(iter(arrivals), shards, Random(seed)))
    return record.report()


def simulate_writers(
    writers: int,
    shards: Shards,
    *,
    seed: int,
    writes: int,
    think_seconds: float = 0.0,
    warm_up_seconds: float = 0.0,
) -> Report:
    """What ``writers`` meet who each write again ``think_seconds`` after a commit, ``writes`` times.

    This is how a benchmark loads shards: the more they wait, the less they write. Raises ValueError
    for fewer than 1 writer or 2 writes.

    >>> one = simulate_writers(3, Shards(shards=1, commit_seconds=0.1), seed=1, writes=1000)
    >>> round(one.writes_per_second, 3), round(one.wait_p99.value, 3)
    (10.0, 0.2)
    """
    if writers < 1:
        raise ValueError(f"there is at least 1 writer, not {writers!r}")
    record = _Record(shards, warm_up_seconds)
    starts = iter([0.0] * writers)
    record.take(_writes(starts, shards, Random(seed), think_seconds), most=writes)
    return record.report()


_FEWEST_WRITES: Final = 30_000


def simulate_until(
    writes_per_second: float,
    shards: Shards,
    *,
    seed: int,
    relative: float = 0.03,
    negligible: float = 0.0015,
    warm_up_seconds: float | None = None,
    most_writes: int = 20_000_000,
) -> Report:
    """What random writes meet, simulated until it is known closely enough.

    That is when the 95 % intervals of mean wait, p99 and retry probability are at most ``relative``
    of the value to each side, or ``negligible`` (of the mean commit time, for waits). It stops at
    ``most_writes`` in any case: the report says how close it came. Without ``warm_up_seconds`` the
    time of 1,000 commits is not counted, enough up to a utilisation of 0.9.

    >>> report = simulate_until(10, Shards(shards=1), seed=1)
    >>> report.meets_probability.low < 0.5 < report.meets_probability.high
    True
    """
    chance, commit = Random(seed), shards.commit_seconds
    mean_commit = fmean(commit(chance) for _ in range(1000)) if callable(commit) else commit
    record = _Record(shards, 1000 * mean_commit if warm_up_seconds is None else warm_up_seconds)
    writes = _writes(poisson(writes_per_second, seed=seed + 1), shards, Random(seed))
    # Long enough for batches of shards to be told from all shards together, or, if shards are too
    # few for that, for batches of time to be independent.
    commits = 1_000 if shards.shards >= _BATCHES else 15_000
    size = min(max(_FEWEST_WRITES, math.ceil(writes_per_second * commits * mean_commit)), most_writes)
    while True:
        record.take(writes, most=size)
        report = record.report()
        if record.size >= most_writes or all(
            estimate.half_width <= max(relative * estimate.value, negligible * unit)
            for estimate, unit in (
                (report.wait_mean, mean_commit),
                (report.wait_p99, mean_commit),
                (report.retry_probability, 1.0),
            )
        ):
            return report
        size = min(record.size // 2, most_writes - record.size)


# What is reported.

_BATCHES: Final = 30


class _Record:
    """What is kept of each write, in the order in which they got their places."""

    def __init__(self, shards: Shards, warm_up_seconds: float) -> None:
        self._shards = shards.shards
        self._warm_up = warm_up_seconds
        self._first_commit = self._last_commit = 0.0
        self._waits = array("d")
        self._refusals = array("L")
        self._met = bytearray()
        self._shard = array("L")
        self._rollups = _RollupRecord(shards) if shards.rollup_seconds else None

    @property
    def size(self) -> int:
        return len(self._waits)

    def take(self, writes: Iterator[_Write], most: float = math.inf) -> None:
        """Keep those that come after the warm-up, up to ``most`` of them."""
        end = self.size + most
        for came, wait, refusals, met, committed, shard in writes:
            if self._rollups:
                self._rollups.note(committed, shard)
            if came < self._warm_up:
                continue
            if not self._waits:
                self._first_commit = committed
            self._last_commit = committed
            self._waits.append(wait)
            self._refusals.append(refusals)
            self._met.append(met)
            self._shard.append(shard)
            if len(self._waits) >= end:
                return

    def report(self) -> Report:
        if self.size < 2:  # noqa: PLR2004 - one value has no spread
            raise ValueError(f"{self.size} writes after the warm-up are too few to report on")
        return Report(
            writes=self.size,
            seconds=self._last_commit - self._first_commit,
            rollups=(self._rollups.summary(self._warm_up, self._last_commit) if self._rollups else None),
            by_time=self._by_time(),
            by_shard=self._by_shard() if self._shards >= _BATCHES else (),
        )

    def _by_time(self) -> tuple[_Batch, ...]:
        number = min(_BATCHES, self.size)
        ends = [self.size * i // number for i in range(number + 1)]
        return tuple(
            _Batch.of(self._waits[start:end], self._refusals[start:end], self._met[start:end])
            for start, end in pairwise(ends)
        )

    def _by_shard(self) -> tuple[_Batch, ...]:
        waits = [array("d") for _ in range(_BATCHES)]
        refusals = [array("L") for _ in range(_BATCHES)]
        met = [bytearray() for _ in range(_BATCHES)]
        for i, shard in enumerate(self._shard):
            group = shard % _BATCHES
            waits[group].append(self._waits[i])
            refusals[group].append(self._refusals[i])
            met[group].append(self._met[i])
        return tuple(_Batch.of(*parts) for parts in zip(waits, refusals, met, strict=True) if parts[0])


class _RollupRecord:
    """Which commits each rollup found: the k-th run finds those since the run before it."""

    def __init__(self, shards: Shards) -> None:
        self._interval = shards.rollup_seconds or math.inf
        self._run = shards.rollup_run_seconds
        self._found_by = [-1] * shards.shards
        self._changed: Counter[int] = Counter()
        self._delays: defaultdict[int, list[float]] = defaultdict(list)

    def note(self, committed: float, shard: int) -> None:
        run = math.floor(committed / self._interval) + 1
        self._delays[run].append(run * self._interval + self._run - committed)
        # A shard commits in order, so it changed for this run if the last commit was for another.
        if self._found_by[shard] != run:
            self._found_by[shard] = run
            self._changed[run] += 1

    def summary(self, start: float, end: float) -> Rollups | None:
        """The runs whose whole interval lies between ``start`` and ``end``, if there are any."""
        runs = range(math.ceil(start / self._interval) + 1, math.floor(end / self._interval) + 1)
        delays = [delay for run in runs for delay in self._delays[run]]
        if not delays:
            return None
        return Rollups(
            runs=len(runs),
            changed_shards=fmean(self._changed[run] for run in runs),
            idle_share=fmean(not self._changed[run] for run in runs),
            delay_mean_seconds=fmean(delays),
            delay_longest_seconds=max(delays),
        )


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some of the writes, their waits sorted."""

    waits: array[float]
    refusals: int
    met: int

    @classmethod
    def of(cls, waits: Iterable[float], refusals: Iterable[int], met: Iterable[int]) -> _Batch:
        return cls(array("d", sorted(waits)), sum(refusals), sum(met))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a simulation observed, with 95 % confidence intervals.

    The intervals are those of batch means over 30 stretches of time, which must be long against the
    time for which a crowded shard stays crowded; or, where there are shards enough, over 30 groups
    of shards, if that is the wider. ``rollups`` is None if none was simulated, or no interval wholly.
    """

    writes: int
    seconds: float
    rollups: Rollups | None
    by_time: tuple[_Batch, ...] = field(repr=False)
    by_shard: tuple[_Batch, ...] = field(repr=False)

    @property
    def writes_per_second(self) -> float:
        """Commits a second, all shards together."""
        return (self.writes - 1) / self.seconds

    @property
    def meets_probability(self) -> Estimate:
        """The probability that a write meets another at the shard it picks first."""
        return self._estimate(lambda batch: batch.met / len(batch.waits))

    @property
    def retry_probability(self) -> Estimate:
        """The probability that an attempt is refused."""
        return self._estimate(lambda batch: batch.refusals / (batch.refusals + len(batch.waits)))

    @property
    def retries_per_write(self) -> Estimate:
        """Mean number of times that a write is refused."""
        return self._estimate(lambda batch: batch.refusals / len(batch.waits))

    @property
    def wait_mean(self) -> Estimate:
        """Mean time from a write's first attempt to the start of its commit."""
        return self._estimate(lambda batch: fmean(batch.waits))

    @property
    def wait_p99(self) -> Estimate:
        """The wait that 99 of 100 writes do not exceed."""
        return self.wait_quantile(0.99)

    def wait_quantile(self, share: float, *, confidence: float = 0.95) -> Estimate:
        """The wait that ``share`` of the writes do not exceed."""
        spread = self._estimate(lambda batch: _quantile(batch.waits, share), confidence)
        # Of all writes together: the mean of the batches' quantiles is off by more.
        together = sorted(chain.from_iterable(batch.waits for batch in self.by_time))
        return Estimate(value=_quantile(together, share), half_width=spread.half_width)

    def share_waiting_longer_than(self, seconds: float, *, confidence: float = 0.95) -> Estimate:
        """The share of writes that wait longer than ``seconds``."""
        return self._estimate(
            lambda batch: 1 - bisect_right(batch.waits, seconds) / len(batch.waits), confidence
        )

    def _estimate(self, value: Callable[[_Batch], float], confidence: float = 0.95) -> Estimate:
        estimates = [
            self._batch_means(batches, value, confidence)
            for batches in (self.by_time, self.by_shard)
            if batches
        ]
        return Estimate(
            value=estimates[0].value, half_width=max(estimate.half_width for estimate in estimates)
        )

    def _batch_means(
        self, batches: tuple[_Batch, ...], value: Callable[[_Batch], float], confidence: float
    ) -> Estimate:
        weighted = [(len(batch.waits) / self.writes, value(batch)) for batch in batches]
        mean = math.fsum(weight * v for weight, v in weighted)
        squares = math.fsum((weight * (v - mean)) ** 2 for weight, v in weighted)
        degrees = len(batches) - 1
        deviation = math.sqrt(squares * len(batches) / degrees)
        return Estimate(value=mean, half_width=_student(confidence, degrees) * deviation)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _student(confidence: float, degrees: int) -> float:
    """Student's t for a two-sided interval, by the expansion of Cornish and Fisher.

    Within 1 % of the tables from 4 degrees of freedom on, at 95 %.

    >>> round(_student(0.95, 29), 3)
    2.045
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3
