"""The public names, all of them; ``counters`` gives them out."""

from counters.app import AsyncCounters, Counters, roll_up, roll_up_async
from counters.audit import Audit
from counters.audits import AuditFailure, AuditReport
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
from counters.evidence import Evidence
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
    "AuditFailure",
    "AuditReport",
    "Backoff",
    "CorruptShard",
    "Counter",
    "CounterError",
    "CounterNotFound",
    "Counters",
    "Evidence",
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
