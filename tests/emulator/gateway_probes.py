"""Ways to look at calls on their way through the gateway, and to step between two of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timezone
from typing import NamedTuple

from google.cloud.firestore_v1.types import (
    BatchGetDocumentsRequest,
    CommitRequest,
    CommitResponse,
    RunAggregationQueryRequest,
    RunQueryRequest,
)

from counters.testing import Answer, Bill, Exchange, Fault

_READS = {
    "BatchGetDocuments": BatchGetDocumentsRequest,
    "RunAggregationQuery": RunAggregationQueryRequest,
    "RunQuery": RunQueryRequest,
}


class Price(NamedTuple):
    """What a bill comes to."""

    round_trips: int = 0
    reads: int = 0
    writes: int = 0
    deletes: int = 0

    @classmethod
    def on(cls, bill: Bill) -> Price:
        return cls(bill.round_trips, bill.reads, bill.writes, bill.deletes)


@dataclass(frozen=True)
class Meanwhile(Fault):
    """Something happens just before the call reaches the server."""

    _: KW_ONLY
    act: Callable[[], object]
    outcomes: list[object] = field(default_factory=list, compare=False)

    def strike(self, exchange: Exchange) -> None:  # noqa: ARG002
        try:
            self.outcomes.append(self.act())
        except Exception as error:
            self.outcomes.append(error)
            raise


@dataclass(frozen=True)
class Overheard(Fault):
    """Nothing happens; what is asked is kept."""

    _: KW_ONLY
    times: int | None = None
    requests: list[tuple[str, bytes]] = field(default_factory=list, compare=False)

    def strike(self, exchange: Exchange) -> None:
        self.requests.append((exchange.method, exchange.request or b""))

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]

    @property
    def commits(self):
        """What was to be committed, as messages."""
        return [CommitRequest.pb().FromString(raw) for method, raw in self.requests if method == "Commit"]

    @property
    def read_times(self) -> list[datetime | None]:
        """The moment that each read asked for, None for reads of now."""
        moments = []
        for method, raw in self.requests:
            if method in _READS:
                request = _READS[method].pb().FromString(raw)
                at = request.HasField("read_time")
                moments.append(request.read_time.ToDatetime(timezone.utc) if at else None)
        return moments

    @property
    def written(self) -> list[str]:
        """The names of the documents written, in order."""
        return [write.update.name or write.delete for commit in self.commits for write in commit.writes]


@dataclass(frozen=True)
class Timed(Fault):
    """Nothing happens; when commits were applied is kept, with what they were.

    ``times_of`` maps microseconds of server time to the names of the documents written then.
    """

    _: KW_ONLY
    times: int | None = None
    applied: list[tuple[int, list[str]]] = field(default_factory=list, compare=False)

    def strike(self, exchange: Exchange) -> Answer:
        answer = exchange.deliver()
        for message in answer.messages:
            stamp = CommitResponse.pb().FromString(message).commit_time
            writes = CommitRequest.pb().FromString(exchange.request).writes
            names = [write.update.name or write.delete for write in writes]
            self.applied.append((stamp.ToMicroseconds(), names))
        return answer
