"""Distributed counters on Cloud Firestore: exact under retries, fast under contention.

A counter is a document with a subcollection of shards. ``increment()`` adds to a random shard,
exactly once. ``value()`` sums the shards, exact now; ``roll_up()``, run on a schedule, writes the
sum into the counter document, and ``total()`` reads it. Start with ``Counters(client)``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counters.public import *

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


def __getattr__(name: str) -> Any:
    # Loaded at first use: pytest loads ``counters.testing.plugin`` in every project that has this
    # package installed, and must not load the Firestore SDK with it.
    if name in __all__:
        return getattr(import_module("counters.public"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
