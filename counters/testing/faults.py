"""What can go wrong between a client and Firestore, as things done to a call on its way.

::

    gateway.script(LostAnswer("Commit"))        # the next commit is applied, its answer lost
    gateway.script(Refused("Rollback", nth=2))  # the second rollback from now is refused
    gateway.random(seed=7, rates={LostAnswer("Commit"): 0.2, LostRequest(): 0.1})

Each kind of fault is a frozen dataclass; one of your own extends :class:`Fault`.
"""

from __future__ import annotations

import collections
import math
import random
import threading
import time
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

import grpc
from google.cloud.firestore_v1.types import BatchWriteRequest, CommitRequest

from counters.testing.exchange import METHODS, STREAMS, Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from counters.testing.exchange import Exchange

__all__ = [
    "ConnectionCut",
    "Delayed",
    "DeliveredTwice",
    "Fault",
    "HeldBack",
    "LostAnswer",
    "LostRequest",
    "Plan",
    "Refused",
    "WriteRate",
]


@dataclass(frozen=True)
class Fault:
    """Something done to calls of a method, or of any method when none is given.

    In a script it strikes the ``nth`` such call from then on, and so many ``times`` in a row (None:
    for ever). At random, its rate says which.
    """

    method: str | None = None
    _: KW_ONLY
    nth: int = 1
    times: int | None = 1

    def __post_init__(self) -> None:
        if self.method not in {None, *METHODS}:
            raise ValueError(f"Firestore has no method {self.method!r}, but {sorted(METHODS)}")
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError("nth and times count from 1")

    def concerns(self, method: str) -> bool:
        """Whether this fault may strike calls of ``method``."""
        return self.method in (None, method)

    def strike(self, exchange: Exchange) -> Answer | None:
        """Do it. Return what the client gets; None lets the call pass on."""
        raise NotImplementedError

    def _answer(self, code: grpc.StatusCode) -> Answer:
        return Answer(code=code, details=f"{type(self).__name__}, by the gateway of a test")


@dataclass(frozen=True)
class _Unanswered(Fault):
    """A fault that keeps the server's answer, if there is one, from the client."""

    _: KW_ONLY
    code: grpc.StatusCode | None = grpc.StatusCode.UNAVAILABLE

    def _silence(self, exchange: Exchange) -> Answer:
        if self.code is None:
            exchange.wait()
        return self._answer(self.code or grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True)
class _OfOneRequest(Fault):
    """A fault that delivers the request itself, so it strikes no stream of requests."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method in STREAMS:
            raise ValueError(
                f"{self.method} is a stream, which {type(self).__name__} cannot strike: take "
                "LostRequest, Refused or Delayed, or gateway.cut()"
            )

    def concerns(self, method: str) -> bool:
        return super().concerns(method) and method not in STREAMS


@dataclass(frozen=True)
class LostRequest(_Unanswered):
    """The request never reaches the server.

    The client gets ``code``, or with None no answer at all, until its deadline.
    """

    def strike(self, exchange: Exchange) -> Answer:
        """Deliver nothing."""
        return self._silence(exchange)


@dataclass(frozen=True)
class Refused(Fault):
    """The server refuses the call with ``code``; nothing is applied."""

    code: grpc.StatusCode = grpc.StatusCode.ABORTED

    def strike(self, exchange: Exchange) -> Answer:  # noqa: ARG002 - it has no use for it
        """Deliver nothing, answer at once."""
        return self._answer(self.code)


@dataclass(frozen=True)
class Delayed(Fault):
    """The call reaches the server ``seconds`` later; not at all if the client gives up by then."""

    seconds: float = 0.1

    def strike(self, exchange: Exchange) -> Answer | None:
        """Wait, then let it pass on."""
        gave_up = exchange.wait(self.seconds)
        return self._answer(grpc.StatusCode.CANCELLED) if gave_up else None


@dataclass(frozen=True)
class LostAnswer(_OfOneRequest, _Unanswered):
    """The server does what it is asked, but its answer is lost.

    The client gets ``code``, or with None no answer at all, until its deadline.
    """

    def strike(self, exchange: Exchange) -> Answer:
        """Deliver, and keep the answer to itself."""
        exchange.deliver()
        return self._silence(exchange)


@dataclass(frozen=True)
class HeldBack(_OfOneRequest, _Unanswered):
    """The request is stuck on its way, until ``gateway.release()`` delivers it, however late.

    The client gets ``code``, or with None no answer at all, until its deadline.
    """

    def strike(self, exchange: Exchange) -> Answer:
        """Put the request aside."""
        exchange.hold()
        return self._silence(exchange)


@dataclass(frozen=True)
class ConnectionCut(_OfOneRequest):
    """The client's connection breaks, before the call is ``applied`` or after.

    All other calls on that connection fail with it.
    """

    _: KW_ONLY
    applied: bool = False

    def strike(self, exchange: Exchange) -> Answer:
        """Deliver or not, then break the connection."""
        if self.applied:
            exchange.deliver()
        exchange.cut()
        return self._answer(grpc.StatusCode.UNAVAILABLE)


@dataclass(frozen=True)
class DeliveredTwice(_OfOneRequest):
    """The request reaches the server twice, one after the other; the client gets one ``answer``."""

    _: KW_ONLY
    answer: Literal["first", "second"] = "second"

    def strike(self, exchange: Exchange) -> Answer:
        """Deliver, and deliver again."""
        first = exchange.deliver()
        second = exchange.deliver()
        return first if self.answer == "first" else second


class Plan:
    """Which faults strike which call. Thread-safe.

    What strikes depends on nothing but the script, the seed, and how many calls of each method came
    before: calls of different methods may interleave as they like.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.struck: collections.Counter[Fault] = collections.Counter()
        self.calm()

    def calm(self) -> None:
        """Forget all faults and limits; what struck stays counted."""
        with self._lock:
            self._scripted: list[_Scripted] = []
            self._rates: dict[Fault, float] = {}
            self._seed = 0
            self._seen: collections.Counter[str] = collections.Counter()
            self._limit: WriteRate | None = None

    def script(self, *faults: Fault) -> None:
        """Add faults, each of which counts calls from now on."""
        with self._lock:
            self._scripted += [_Scripted(fault) for fault in faults]

    def random(self, seed: int, rates: Mapping[Fault, float]) -> None:
        """Set what strikes at random, at most one fault a call."""
        for fault, rate in rates.items():
            if fault.nth != 1 or fault.times != 1:
                raise ValueError(f"{fault}: nth and times are for scripts; here the rate says when")
            if not 0 <= rate <= 1:
                raise ValueError(f"{fault}: a rate is 0 to 1, not {rate}")
        for method in sorted(METHODS):
            total = math.fsum(rate for fault, rate in rates.items() if fault.concerns(method))
            if total > 1:
                raise ValueError(f"the rates for {method} add up to {total}, more than all calls")
        with self._lock:
            self._seed, self._rates = seed, dict(rates)
            self._seen = collections.Counter()

    def limit_writes(self, limit: WriteRate | None) -> None:
        """Set how many writes a second each document takes; None for as many as there come."""
        with self._lock:
            self._limit = limit

    def strike(self, exchange: Exchange) -> Answer | None:
        """Do to this call what is due. Return what the client gets; None: pass it on."""
        for fault in self._due(exchange.method):
            with self._lock:
                self.struck[fault] += 1
            answer = fault.strike(exchange)
            if answer is not None:
                return answer
        limit = self._limit
        return limit.strike(exchange) if limit else None

    def _due(self, method: str) -> list[Fault]:
        with self._lock:
            # A list, since every scripted fault has to count the call.
            due = [one.fault for one in self._scripted if one.is_due(method)]
            chosen = self._drawn(method) if self._rates else None
            if chosen is not None:
                due.append(chosen)
            return due

    def _drawn(self, method: str) -> Fault | None:
        self._seen[method] += 1
        draw = random.Random(f"{self._seed}/{method}/{self._seen[method]}").random()
        for fault, rate in self._rates.items():
            if fault.concerns(method):
                draw -= rate
                if draw < 0:
                    return fault
        return None


class _Scripted:
    """A fault, and the calls it has counted."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._calls = 0

    def is_due(self, method: str) -> bool:
        if not self.fault.concerns(method):
            return False
        self._calls += 1
        late = self._calls - self.fault.nth
        return late >= 0 and (self.fault.times is None or late < self.fault.times)


class WriteRate:
    """A bound on how fast each document can be written, which production has and emulators lack.

    A document serves ``per_second`` writes a second, one after the other, and at most ``queue``
    commits wait for it. One that comes when the queue is full gets ABORTED, as a whole.
    """

    def __init__(self, per_second: float, queue: int, clock: Callable[[], float] = time.monotonic) -> None:
        if per_second <= 0 or queue < 0:
            raise ValueError("a document serves more than 0 writes a second, and queues 0 or more")
        self._interval = 1 / per_second
        self._queue = queue
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at: dict[str, float] = {}

    def strike(self, exchange: Exchange) -> Answer | None:
        """Let a commit wait its turn, or refuse it."""
        wait = self.admit(_documents_written(exchange.method, exchange.request or b""))
        if wait is None:
            return Answer(
                code=grpc.StatusCode.ABORTED,
                details="Too much contention on these documents. Please try again.",
            )
        if wait and exchange.wait(wait):
            return Answer(code=grpc.StatusCode.CANCELLED)
        return None

    def admit(self, documents: Iterable[str]) -> float | None:
        """Take a place in the queue of each document.

        Returns the seconds until all are free, or None, and takes no place, where one is full.
        """
        names = set(documents)
        with self._lock:
            now = self._clock()
            wait = max((self._free_at.get(name, now) - now for name in names), default=0.0)
            # Commits ahead that are being served or wait; rounding must not add one.
            ahead = math.ceil(wait / self._interval - 1e-6)
            if ahead > self._queue:
                return None
            wait = max(wait, 0.0)
            self._free_at.update(dict.fromkeys(names, now + wait + self._interval))
            return wait


def _documents_written(method: str, request: bytes) -> list[str]:
    if method == "Commit":
        writes = CommitRequest.pb().FromString(request).writes
    elif method == "BatchWrite":
        writes = BatchWriteRequest.pb().FromString(request).writes
    else:
        return []
    return [write.update.name or write.delete or write.transform.document for write in writes]
