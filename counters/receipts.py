"""What a document says of a commit whose answer did not come. Pure: no client, no I/O, no clock.

A receipt ``{lane: mark}`` is written in the same commit as what it vouches for; the mark is the
server's time, in microseconds, when the attempt began. After the fence (``commit.py``) nothing of
the attempt can apply any more, so reading the receipt's document decides.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from counters import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counters.wire import Document, Receipt

LONGEST_TIMEOUT: Final = 120.0
"""The longest ``timeout`` of a call, in seconds: no doubt lives longer than this."""

HORIZON: Final = 300.0
"""How long a receipt is kept, in seconds, unless there are more than ``MOST_KEPT`` younger ones.

Longer than the longest timeout, and longer than the 270 s that a transaction can last
(https://firebase.google.com/docs/firestore/quotas, 2026-11-30).
"""

_HORIZON_MICROS: Final = int(HORIZON * 1_000_000)

PRUNE_AT: Final = 8
"""So many receipts past the horizon make a pruning worth its write."""

MOST_KEPT: Final = 400
"""So many of the newest receipts a pruning leaves, however young the others are.

Four new lanes in three seconds on one shard come to that within the horizon. Where more come, a doubt
that is older than the oldest receipt left is settled only if its own is there: ``layout.PRUNED``.
"""

PRUNE_CHANCE: Final = 1 / 16
"""How often the first write of a lane to a shard looks whether receipts want pruning.

Receipts grow by first writes only. That none of 400 in a row looks has the chance
(15/16) ** 400 = 6e-12; where two of three prunings fail for others' writes, of 1,230 in a row. A receipt
takes 19 bytes (https://firebase.google.com/docs/firestore/storage-size, 2026-11-30): 400 and 1,230 of
them stay below 32 KiB.
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
    fields = document.fields or {}
    if receipts_in(fields).get(receipt.lane) == receipt.mark:
        return Verdict.APPLIED
    if receipt.mark <= _pruned(fields) or document.read_time - receipt.mark >= _HORIZON_MICROS:
        return Verdict.UNKNOWN  # its receipt may have been pruned
    if document.fields is None:
        return Verdict.ASK_COUNTER
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


@dataclass(frozen=True, slots=True)
class Pruning:
    """Receipts to remove: of these lanes; all of them have marks up to ``pruned``."""

    lanes: list[str]
    pruned: int


def to_prune(document: Document) -> Pruning | None:
    """What to remove of a document's receipts; None if too little to be worth a write.

    All that no doubt can need any more, damaged ones too, and all but the newest ``MOST_KEPT``.
    """
    fields = document.fields or {}
    marks = receipts_in(fields)
    by_age = sorted((mark, lane) for lane, mark in marks.items() if isinstance(mark, int))
    oldest = document.read_time - _HORIZON_MICROS
    too_many = len(by_age) - MOST_KEPT
    stale = [one for number, one in enumerate(by_age) if number < too_many or one[0] < oldest]
    lanes = [lane for _, lane in stale]
    lanes += [lane for lane, mark in marks.items() if not isinstance(mark, int)]
    if len(lanes) < PRUNE_AT:
        return None
    return Pruning(lanes, max([_pruned(fields), *(mark for mark, _ in stale)]))


def _pruned(fields: Mapping[str, Any]) -> int:
    pruned = fields.get(layout.PRUNED)
    return pruned if isinstance(pruned, int) else 0
