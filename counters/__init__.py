"""Distributed counters on Cloud Firestore: exact under retries, fast under contention.

A counter is a document with a subcollection of shards. ``increment()`` adds to a random shard,
exactly once. ``value()`` sums the shards, exact now; ``roll_up()``, run on a schedule, writes the
sum into the counter document, and ``total()`` reads it. Start with ``Counters(client)``.
"""

from counters.app import AsyncCounters, Counters, roll_up, roll_up_async
from counters.audit import Audit
from counters.counter import AsyncCounter, Counter
from counters.errors import (
    CorruptShard,
    CounterError,
    CounterNotFound,
    InvalidArgument,
    InvalidType,
    InvalidValue,
    KeyConflict,
    NotApplied,
    OutcomeUnknown,
    ReadFailed,
    SettingsConflict,
    StaleAudit,
    UnsupportedLayout,
)
from counters.policy import NO_BACKOFF, Backoff, Policy
from counters.references import AsyncReferenceCount, ReferenceCount
from counters.rollup import RollupFailure, RollupReport
from counters.settings import Mirror, Total

__all__ = [
    "NO_BACKOFF",
    "AsyncCounter",
    "AsyncCounters",
    "AsyncReferenceCount",
    "Audit",
    "Backoff",
    "CorruptShard",
    "Counter",
    "CounterError",
    "CounterNotFound",
    "Counters",
    "InvalidArgument",
    "InvalidType",
    "InvalidValue",
    "KeyConflict",
    "Mirror",
    "NotApplied",
    "OutcomeUnknown",
    "Policy",
    "ReadFailed",
    "ReferenceCount",
    "RollupFailure",
    "RollupReport",
    "SettingsConflict",
    "StaleAudit",
    "Total",
    "UnsupportedLayout",
    "roll_up",
    "roll_up_async",
]
