"""What a document says of a commit whose answer did not come. Pure: no client, no I/O, no clock.

A receipt ``{lane: mark}`` is written in the same commit as what it vouches for; the mark is the
server's time, in microseconds, when the attempt began. After the fence (``commit.py``) nothing of
the attempt can apply any more, so reading the receipt's document decides.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from counters import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counters.wire import Document, Receipt

LONGEST_TIMEOUT: Final = 120.0
"""The longest ``timeout`` of a call, in seconds: no doubt lives longer than this."""

HORIZON: Final = 300.0
"""How long a receipt is kept at least, in seconds. Whatever prunes receipts leaves younger ones.

Longer than the longest timeout, and longer than the 270 s that a transaction can last
(https://firebase.google.com/docs/firestore/quotas, 2026-11-30).
"""

_HORIZON_MICROS: Final = int(HORIZON * 1_000_000)

PRUNE_AT: Final = 8
"""So many receipts past the horizon make a pruning worth its write."""

PRUNE_CHANCE: Final = 1 / 16
"""How often the first write of a lane to a shard looks whether receipts want pruning.

Receipts grow by first writes only. That none of 400 in a row looks has the chance
(15/16) ** 400 = 6e-12; 400 receipts take about 10 KiB.
"""


class Verdict(enum.Enum):
    """What a document says of an attempt."""

    APPLIED = enum.auto()
    NOT_APPLIED = enum.auto()
    UNKNOWN = enum.auto()
    ASK_COUNTER = enum.auto()
    """The document is younger than the attempt: only the counter document tells whether it was
    deleted meanwhile, and the receipt with it."""


def judge(document: Document, receipt: Receipt) -> Verdict:
    """Read the outcome of the attempt that left ``receipt``, if it was applied, in ``document``.

    To be asked only of a document that was read after the fence.
    """
    if document.read_time - receipt.mark >= _HORIZON_MICROS:
        return Verdict.UNKNOWN  # its receipt may have been pruned
    if document.fields is None:
        return Verdict.ASK_COUNTER
    if receipts_in(document.fields).get(receipt.lane) == receipt.mark:
        return Verdict.APPLIED
    if document.created >= receipt.mark:
        return Verdict.ASK_COUNTER
    return Verdict.NOT_APPLIED


def judge_by_counter(counter: Document, created: int) -> Verdict:
    """Decide an ``ASK_COUNTER``: ``created`` is the counter's creation as known before the attempt.

    Shards are deleted only after their counter document; while that stays, so do they, and a shard
    without our receipt never took our commit.
    """
    if counter.exists and counter.created == created:
        return Verdict.NOT_APPLIED
    return Verdict.UNKNOWN


def receipts_in(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The receipts of a document, none where the field is missing or damaged."""
    receipts = fields.get(layout.RECEIPTS)
    return receipts if isinstance(receipts, dict) else {}


def to_prune(document: Document) -> list[str]:
    """The lanes whose receipts no doubt can need any more; empty if too few to be worth a write."""
    if document.fields is None:
        return []
    oldest = document.read_time - _HORIZON_MICROS
    stale = [
        lane
        for lane, mark in receipts_in(document.fields).items()
        if not isinstance(mark, int) or mark < oldest
    ]
    return stale if len(stale) >= PRUNE_AT else []
