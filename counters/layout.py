"""How counters lie in Firestore: layout version 1.

Every collection id, document id, field name and path of ours is spelled here and nowhere else.
Pure: no client, no I/O, no clock. Paths are relative to the database (``posts/a91f/counters/likes``).
"""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import Final

LAYOUT: Final = 1
"""Written into every counter document; a newer number than this is refused."""

# Collections.
COUNTERS: Final = "counters"
SHARDS: Final = "counter_shards"
ROLLUPS: Final = "counter_rollups"
OPERATIONS: Final = "counter_operations"
ADJUSTMENTS: Final = "counter_adjustments"
OURS: Final = frozenset({COUNTERS, SHARDS, ROLLUPS, OPERATIONS, ADJUSTMENTS})
"""Collections of these names hold nothing of an application's own."""

# Fields of a counter document.
LAYOUT_FIELD: Final = "layout"
SHARD_COUNT: Final = "shards"
INITIAL: Final = "initial"
MIRRORS: Final = "mirrors"
MIRROR_DOCUMENT: Final = "document"
MIRROR_FIELD: Final = "field"
TOTAL: Final = "total"
AS_OF: Final = "as_of"
CHILDREN: Final = "children"
"""Of a reference count: the path of the collection whose documents it counts."""
ADJUSTED_AT: Final = "adjusted_at"
"""Server time of the last reset or repair: what changes the value in one large step."""

# Fields of a shard.
VALUE: Final = "value"
WRITES: Final = "writes"
UPDATED_AT: Final = "updated_at"
BUCKET: Final = "bucket"

# A field of both: which of their writers' commits were applied.
RECEIPTS: Final = "receipts"
PRUNED: Final = "pruned"
"""Of a shard: receipts up to this mark may have been removed, so that their absence proves nothing."""

# Fields of an operation: an idempotency key that was used, or the proof of a transaction.
OPERATION_COUNTER: Final = "counter"
OPERATION_AMOUNT: Final = "amount"
EXPIRE_AT: Final = "expire_at"
"""When a TTL policy on this field may delete the document."""

CHILD_SHARD: Final = "counter_shard"
"""In a child of a reference count: the shard that counted it, for security rules."""

# Fields of an adjustment: the record of a repair or backfill, below the counter document.
ADJUSTMENT_REASON: Final = "reason"
ADJUSTMENT_BY: Final = "by"
ADJUSTMENT_DIFFERENCE: Final = "difference"
ADJUSTMENT_STORED: Final = "stored"
ADJUSTMENT_ACTUAL: Final = "actual"
ADJUSTMENT_AS_OF: Final = "as_of"
ADJUSTMENT_AT: Final = "at"

# Documents of the rollup, all in ROLLUPS so that one query reads them, and their fields.
CURSOR: Final = "cursor"
SCANNED_AT: Final = "scanned_at"
RESCANNED_AT: Final = "rescanned_at"
PENDING_COUNTER: Final = "counter"
PENDING_ERROR: Final = "error"
PENDING_SINCE: Final = "since"

DEFAULT_SHARDS: Final = 10
LONGEST_ID: Final = 1500
"""Bytes of UTF-8 that a document id can have."""
MAX_SHARDS: Final = 10_000
"""More than any sizing asks for; it catches a swapped argument before it costs reads for ever."""

GROUPS: Final = 6
BUCKETS_PER_GROUP: Final = 5
BUCKETS: Final = GROUPS * BUCKETS_PER_GROUP
"""How many index ranges all shards of a database spread over; fixed in layout 1.

30 is the most values that one ``in`` filter takes, so one query scans them all
(https://firebase.google.com/docs/firestore/query-data/queries, 2026-11-30).
"""


def counter_path(parent: str, name: str) -> str:
    """Where the counter ``name`` of the document ``parent`` lives.

    >>> counter_path("posts/a91f", "likes")
    'posts/a91f/counters/likes'
    """
    return f"{parent}/{COUNTERS}/{name}"


def is_document_path(text: str) -> bool:
    """Whether ``text`` is the path of a document.

    >>> is_document_path("posts/a91f"), is_document_path("posts"), is_document_path("posts/..")
    (True, False, False)
    """
    segments = text.split("/")
    return len(segments) % 2 == 0 and all(is_document_id(segment) for segment in segments)


def is_ours(path: str) -> bool:
    """Whether a document is among those that this package keeps, counter documents aside.

    >>> is_ours("posts/a91f/counters/likes"), is_ours("posts/a91f/counters/likes/counter_shards/3")
    (False, True)
    """
    return not (OURS - {COUNTERS}).isdisjoint(path.split("/")[::2])


def children_path(counter: str) -> str:
    """The collection that the counter at ``counter`` counts by convention.

    >>> children_path("posts/a91f/counters/likes")
    'posts/a91f/likes'
    """
    parent, _, name = counter.rsplit("/", 2)
    return f"{parent}/{name}"


def shard_path(counter: str, shard: int) -> str:
    """Path of one shard of the counter document at ``counter``.

    >>> shard_path("posts/a91f/counters/likes", 3)
    'posts/a91f/counters/likes/counter_shards/3'
    """
    return f"{counter}/{SHARDS}/{shard}"


def is_shard_id(text: str) -> bool:
    """Whether a document among the shards is one of ours, by its id.

    >>> is_shard_id("3"), is_shard_id("03"), is_shard_id("total")
    (True, False, False)
    """
    return text.isdecimal() and text.isascii() and str(int(text)) == text


def adjustment_path(counter: str, lane: str, mark: int) -> str:
    """Path of the record of one adjustment."""
    return f"{counter}/{ADJUSTMENTS}/{mark}-{lane}"


def is_document_id(text: str) -> bool:
    """Whether Firestore takes ``text`` for a document id.

    (https://firebase.google.com/docs/firestore/quotas#collections_documents_and_fields, 2026-11-30)

    >>> is_document_id("u7c20"), is_document_id("a/b"), is_document_id("__x__"), is_document_id("..")
    (True, False, False, False)
    """
    try:
        length = len(text.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return (
        0 < length <= LONGEST_ID
        and "/" not in text
        and text not in {".", ".."}
        and not re.fullmatch("__.*__", text, re.DOTALL)
    )


def split_collection(path: str) -> tuple[str, str]:
    """A collection's parent document (empty for a root collection) and its id.

    >>> split_collection("posts/a91f/likes"), split_collection("posts")
    (('posts/a91f', 'likes'), ('', 'posts'))
    """
    parent, _, collection = path.rpartition("/")
    return parent, collection


def counter_of(shard: str) -> str | None:
    """Path of the counter document that the shard at ``shard`` belongs to.

    None for a document of a root collection of the shards' name, which is somebody else's.

    >>> counter_of("posts/a91f/counters/likes/counter_shards/3")
    'posts/a91f/counters/likes'
    """
    counter, *rest = shard.rsplit("/", 2)
    return counter if len(rest) > 1 else None


def group_of(counter: str) -> int:
    """Which of the ``GROUPS`` groups of buckets a counter's shards all fall into.

    One rollup task takes whole groups, so no counter is summed by two tasks.
    """
    return zlib.crc32(counter.encode()) % GROUPS


def bucket(counter: str, shard: int) -> int:
    """The bucket of one shard: one of five, so that a hot counter spreads over index ranges.

    >>> sorted({bucket("posts/a91f/counters/likes", shard) for shard in range(10)})
    [5, 6, 7, 8, 9]
    """
    spread = zlib.crc32(counter.encode()) // GROUPS + shard
    return group_of(counter) * BUCKETS_PER_GROUP + spread % BUCKETS_PER_GROUP


def operation_path(counter: str, key: str) -> str:
    """Path of the operation that ``key`` stands for on the counter at ``counter``.

    Hashed, so that any text can be a key, lone surrogates too, and ids spread evenly. No path holds
    ``//``, so keys of two counters never meet.
    """
    digest = hashlib.sha256(f"{counter}//{key}".encode(errors="surrogatepass")).hexdigest()
    return f"{OPERATIONS}/{digest[:40]}"


def transaction_path(lane: str, mark: int) -> str:
    """Path of the proof that a caller's own transaction was applied."""
    return f"{OPERATIONS}/{lane}-{mark}"


def cursor_path() -> str:
    """Path of the rollup's cursor."""
    return f"{ROLLUPS}/{CURSOR}"


def pending_path(counter: str) -> str:
    """Path of the note that the rollup of the counter at ``counter`` failed and is to be retried."""
    return f"{ROLLUPS}/pending-{hashlib.sha256(counter.encode()).hexdigest()[:32]}"
