"""The rollup: sums the shards of the counters that changed and writes their totals.

It reads everything at one explicit moment, takes no lock and writes no shard, so writers do not
notice it. What makes it safe to overlap, repeat or kill:

- A total is an absolute sum as of a moment, written only over a counter document that has not
  changed since it was read. If it has, that counter is read and summed again, unless the change is
  a total of this moment or later: that will do.
- Shards are found by ``updated_at``, which is when the server *began* to process their increment.
  A commit that waited for a lock shows up late, under an old time. So each scan overlaps the last
  by seconds, and now and then by more than a commit can last. Entries seen again cost a read and
  no sum: their document's update time tells that the total has them.
- The cursor moves last, after the totals and after a note of every counter that failed. A run that
  dies changes nothing that the next one would miss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from counters import layout, shards, wire
from counters.commit import Refused, commit_conditioned
from counters.context import Call, Context
from counters.errors import CounterError, InvalidType, InvalidValue, NotApplied
from counters.settings import MirrorTarget, as_of_in, parse
from counters.steps import Gather, Sleep, Steps

_SECOND: Final = 1_000_000

SETTLING: Final = 100_000
"""How far a read time lies behind the server's clock, in microseconds.

On Google's emulator a sum under load missed commits of the last 1.6 ms before its read time (17 of
588), and none at 20 ms or more (0 of 4,241); production promises what it answers at a read time.
"""

SHORT_OVERLAP: Final = 10 * _SECOND
"""Each scan starts this much before the last one's moment: most late commits show up at once."""

LONG_OVERLAP: Final = 300 * _SECOND
"""How much a rescan overlaps the last rescan: longer than the 270 s that a transaction can last
(https://firebase.google.com/docs/firestore/quotas, 2026-11-30)."""

RESCAN_EVERY: Final = 300 * _SECOND
"""How often there is a rescan. Together: every change is in a total within about ten minutes,
even one whose commit took as long as a commit can."""

_PAGE: Final = 1000
_CHUNK: Final = 200
_TRIES: Final = 8
_MOST_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class RollupFailure:
    """A counter whose total, or mirror, could not be written; the next runs try again."""

    path: str
    error: Exception


@dataclass(frozen=True, slots=True)
class RollupReport:
    """What one run did and what it cost.

    Attributes:
        counters: totals written.
        shards: changed shards seen, those included that an overlap showed again.
        orphans: paths of counters that have shards and no document (increments that raced a
            delete); ``create()`` or ``delete()`` clears them.
        failed: counters that failed; they are retried by the next runs.
        reads: billed document reads.
        writes: billed document writes.
        seconds: how long it took.
        as_of: the moment the run read at; all totals it wrote are exact as of then or later.
    """

    counters: int
    shards: int
    orphans: tuple[str, ...]
    failed: tuple[RollupFailure, ...]
    reads: int
    writes: int
    seconds: float
    as_of: datetime


@dataclass(slots=True)
class _Bill:
    reads: int = 0
    writes: int = 0

    def query(self, documents: int) -> None:
        """A query bills its documents, at least one read."""
        self.reads += max(1, documents)

    def add(self, other: _Bill) -> None:
        self.reads += other.reads
        self.writes += other.writes


@dataclass(frozen=True, slots=True)
class _State:
    """What earlier runs left: the cursor's document, notes of failed counters, and the moment."""

    cursor: wire.Document | None
    pending: Mapping[str, wire.Document]
    moment: int


@dataclass(frozen=True, slots=True)
class Window:
    """What a scan covers: changes after ``since`` (microseconds); a rescan overlaps by much."""

    since: int
    rescan: bool


@dataclass(slots=True)
class _Changed:
    """What a scan saw of one counter."""

    updated: int = 0
    shards: int = 0
    damage: CounterError | None = None


@dataclass(slots=True)
class _Outcome:
    path: str
    written: bool = False
    orphan: bool = False
    error: Exception | None = None
    bill: _Bill = field(default_factory=_Bill)


def window(scanned: int | None, rescanned: int | None, moment: int) -> Window:
    """Where a scan at ``moment`` starts, given the moments of the last scan and rescan.

    >>> minute = 60_000_000
    >>> window(None, None, 100 * minute)
    Window(since=0, rescan=True)
    >>> window(99 * minute, 98 * minute, 100 * minute) == Window(99 * minute - SHORT_OVERLAP, False)
    True
    >>> window(99 * minute, 95 * minute, 100 * minute) == Window(95 * minute - LONG_OVERLAP, True)
    True
    """
    if scanned is None or rescanned is None:
        return Window(0, rescan=True)
    if moment - rescanned >= RESCAN_EVERY:
        return Window(max(0, min(rescanned - LONG_OVERLAP, scanned - SHORT_OVERLAP)), rescan=True)
    return Window(max(0, scanned - SHORT_OVERLAP), rescan=False)


def roll_up(context: Context, database: str, concurrency: int) -> Steps[RollupReport]:
    """One run; see ``Counters.roll_up``."""
    concurrency = checked_concurrency(concurrency)
    started = context.policy.clock()
    call = Call(context, database)
    bill = _Bill()
    state = yield from _read_state(call, bill)
    # All that was acknowledged before this run is before this moment. It is let settle first.
    yield Sleep(SETTLING / _SECOND)
    cursor = _Cursor.of(state.cursor)
    span = window(cursor.scanned, cursor.rescanned, state.moment)
    changed = yield from _scan(call, span.since, state.moment, bill)
    paths = sorted({*changed, *state.pending})
    outcomes: list[_Outcome] = []
    for chunk in _chunks(paths, _CHUNK):
        outcomes += yield from _roll_up_chunk(call, chunk, changed, state, concurrency, bill)
    for outcome in outcomes:
        bill.add(outcome.bill)
    yield from _note(call, outcomes, state, bill)
    if changed:  # an idle run writes nothing; its scan is as short next time
        yield from _save_cursor(call, state, span, bill)
    return RollupReport(
        counters=sum(outcome.written for outcome in outcomes),
        shards=sum(seen.shards for seen in changed.values()),
        orphans=tuple(outcome.path for outcome in outcomes if outcome.orphan),
        failed=tuple(RollupFailure(outcome.path, outcome.error) for outcome in outcomes if outcome.error),
        reads=bill.reads,
        writes=bill.writes,
        seconds=context.policy.clock() - started,
        as_of=wire.to_datetime(state.moment),
    )


@dataclass(frozen=True, slots=True)
class _Cursor:
    scanned: int | None
    rescanned: int | None

    @classmethod
    def of(cls, document: wire.Document | None) -> _Cursor:
        fields = (document.fields if document else None) or {}
        return cls(_moment(fields, layout.SCANNED_AT), _moment(fields, layout.RESCANNED_AT))


def _moment(fields: Mapping[str, Any], name: str) -> int | None:
    stamp = fields.get(name)
    return wire.micros(stamp) if isinstance(stamp, Timestamp) else None


def _read_state(call: Call, bill: _Bill) -> Steps[_State]:
    """Read the cursor and the notes in one query; its read time is the run's moment."""
    documents: list[wire.Document] = []
    moment: int | None = None
    after: str | None = None
    while True:
        read_time = moment
        answer = yield from call.ask(
            lambda timeout, after=after, read_time=read_time: wire.list_documents(  # type: ignore[misc]
                call.database,
                "",
                layout.ROLLUPS,
                (),
                timeout,
                limit=_PAGE,
                after=after,
                read_time=read_time,
            )
        )
        page = wire.page_of(answer)
        moment = moment or page.read_time
        documents += page.documents
        bill.query(len(page.documents))
        if len(page.documents) < _PAGE:
            break
        after = page.documents[-1].path
    call.context.saw_server_time(moment)
    cursor = None
    pending = {}
    for document in documents:
        counter = (document.fields or {}).get(layout.PENDING_COUNTER)
        if document.path == layout.cursor_path():
            cursor = document
        elif isinstance(counter, str):
            pending[counter] = document
    return _State(cursor, pending, moment)


def _scan(call: Call, since: int, moment: int, bill: _Bill) -> Steps[dict[str, _Changed]]:
    """Find the shards changed since a moment, by counter, with the damage seen on the way."""
    changed: dict[str, _Changed] = {}
    after: wire.Position | None = None
    while True:
        page = wire.page_of(
            (
                yield from call.renewed().ask(
                    lambda timeout, after=after: wire.changed_since(  # type: ignore[misc]
                        call.database,
                        layout.SHARDS,
                        (layout.UPDATED_AT, layout.VALUE),
                        timeout,
                        bucket=(layout.BUCKET, range(layout.BUCKETS)),
                        changed=(layout.UPDATED_AT, since),
                        limit=_PAGE,
                        read_time=moment,
                        after=after,
                    )
                )
            )
        )
        bill.query(len(page.documents))
        for document in page.documents:
            counter = layout.counter_of(document.path)
            if counter is None:
                continue
            seen = changed.setdefault(counter, _Changed())
            seen.updated = max(seen.updated, document.updated)
            seen.shards += 1
            seen.damage = seen.damage or shards.damage(document)
        if len(page.documents) < _PAGE:
            return changed
        last = page.documents[-1]
        stamp = _moment(last.fields or {}, layout.UPDATED_AT)
        after = wire.Position(stamp or 0, last.path)


def _roll_up_chunk(
    call: Call,
    paths: Sequence[str],
    changed: Mapping[str, _Changed],
    state: _State,
    concurrency: int,
    bill: _Bill,
) -> Steps[list[_Outcome]]:
    documents = yield from call.renewed().get(*paths, read_time=state.moment)
    bill.reads += len(paths)
    work = []
    for path in paths:
        seen = changed.get(path, _Changed())
        document = documents[path]
        as_of = as_of_in(document)
        if not document.exists or path in state.pending or as_of is None or as_of < seen.updated:
            work.append(_roll_up_one(call.renewed(), document, seen, state.moment, path in state.pending))
    if not work:
        return []
    outcomes: list[_Outcome] = yield Gather(work, concurrency)
    return outcomes


def _roll_up_one(
    call: Call, document: wire.Document, seen: _Changed, moment: int, suspect: bool
) -> Steps[_Outcome]:
    """Write one counter's total; what goes wrong is this counter's outcome and nobody else's."""
    outcome = _Outcome(document.path)
    if not document.exists:
        outcome.orphan = bool(seen.shards)
        return outcome
    if seen.damage:
        outcome.error = seen.damage
        return outcome
    try:
        yield from _write_total(call, document, moment, suspect, outcome)
    except Exception as error:  # noqa: BLE001 - it stops neither the others nor the cursor
        outcome.error = error
    return outcome


def _write_total(
    call: Call, document: wire.Document, moment: int, suspect: bool, outcome: _Outcome
) -> Steps[None]:
    path = document.path
    wanted = moment
    gone: frozenset[str] = frozenset()
    tried: int | None = None
    for _ in range(_TRIES):
        as_of = as_of_in(document)
        settings = parse(document)
        if as_of is not None and as_of == tried:
            outcome.written = True  # ours after all: its first answer was lost
            break
        if as_of is not None and as_of >= (moment if suspect else wanted):
            # Another run was here, and later: it saw all that this one did. Of a counter that failed
            # before, it may not have looked at every shard.
            break
        total = yield from _sum(call, path, settings.shards, moment, suspect, outcome.bill)
        present = [mirror for mirror in settings.mirrors if mirror.path not in gone]
        writes = _total_writes(call, document, total, moment, present)
        try:
            yield from commit_conditioned(call, writes)
        except Refused:
            # The counter changed (a resize, another run), or a mirror's document is gone.
            mirrored = sorted({mirror.path for mirror in settings.mirrors})
            found = yield from call.get(path, *mirrored)
            outcome.bill.reads += 1 + len(mirrored)
            document, moment, tried = found[path], found[path].read_time, moment
            gone = frozenset(name for name in mirrored if not found[name].exists)
            if not document.exists:
                return  # deleted meanwhile
            yield Sleep(SETTLING / _SECOND)
            continue
        outcome.written = True
        outcome.bill.writes += len(writes)
        break
    else:
        raise NotApplied(f"{path} changed {_TRIES} times while it was summed: the next run tries")
    if gone:
        raise NotApplied(
            f"the mirror {', '.join(sorted(gone))} of {path} does not exist: "
            "create the document, or take it out with set_mirrors()"
        )


def _sum(call: Call, path: str, shard_count: int, moment: int, suspect: bool, bill: _Bill) -> Steps[int]:
    """The sum at a moment; of a counter that failed before, by looking at every shard.

    The server's SUM skips what is no number without a word.
    """
    if not suspect:
        bill.reads += math.ceil(shard_count / shards.SUMMED_FOR_A_READ)
        total = yield from shards.summed(call, path, read_time=moment)
        if total is not None:
            return total
    documents = yield from shards.everything(call, path, (layout.VALUE,), read_time=moment)
    bill.reads += shards.reads_of_everything(len(documents))
    return shards.added_up(documents, path)


def _total_writes(
    call: Call,
    document: wire.Document,
    total: int,
    moment: int,
    mirrors: Iterable[MirrorTarget],
) -> list[Any]:
    fields = {layout.TOTAL: total, layout.AS_OF: wire.timestamp(moment)}
    by_document: dict[str, dict[tuple[str, ...], int]] = {}
    for mirror in mirrors:
        by_document.setdefault(mirror.path, {})[mirror.field] = total
    return [
        wire.update(call.name(document.path), fields, if_updated=document.updated),
        *(wire.update_paths(call.name(path), data) for path, data in sorted(by_document.items())),
    ]


def _note(call: Call, outcomes: Sequence[_Outcome], state: _State, bill: _Bill) -> Steps[None]:
    """Note the counters that failed, before the cursor passes them; take back notes of mended ones."""
    failed = [outcome for outcome in outcomes if outcome.error]
    for chunk in _chunks(failed, _CHUNK):
        notes = [
            wire.replace(
                call.name(layout.pending_path(outcome.path)),
                {
                    layout.PENDING_COUNTER: outcome.path,
                    layout.PENDING_ERROR: str(outcome.error)[:500],
                    layout.PENDING_SINCE: _since(state, outcome.path),
                },
            )
            for outcome in chunk
        ]
        # Without a precondition: a copy that comes late costs a run one more look, and no more.
        yield from commit_conditioned(call.renewed(), notes, conditioned=False)
        bill.writes += len(notes)
    for outcome in outcomes:
        note = state.pending.get(outcome.path)
        if note is not None and not outcome.error:
            # Only as it was read: an overlapping run may have noted it anew.
            taken_back = yield from _try_commit(
                call, wire.delete(call.name(note.path), if_updated=note.updated)
            )
            bill.writes += taken_back


def _since(state: _State, path: str) -> Timestamp:
    note = state.pending.get(path)
    since = _moment(note.fields or {}, layout.PENDING_SINCE) if note else None
    return wire.timestamp(since or state.moment)


def _save_cursor(call: Call, state: _State, span: Window, bill: _Bill) -> Steps[None]:
    """Move the cursor to this run's moment, unless another run moved it meanwhile.

    That one saw all that its own moment covers, and this run's work is in the totals.
    """
    name = call.name(layout.cursor_path())
    data = {layout.SCANNED_AT: wire.timestamp(state.moment)}
    if span.rescan:
        data[layout.RESCANNED_AT] = wire.timestamp(state.moment)
    if state.cursor is None:
        saved = yield from _try_commit(call, wire.create(name, data))
    else:
        saved = yield from _try_commit(call, wire.update(name, data, if_updated=state.cursor.updated))
    bill.writes += saved


def _try_commit(call: Call, write: Any) -> Steps[bool]:
    try:
        yield from commit_conditioned(call.renewed(), [write])
    except Refused:
        return False
    return True


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def checked_concurrency(concurrency: object) -> int:
    """``concurrency`` if so many things can be done at once."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise InvalidType(f"concurrency is an int, not {type(concurrency).__name__}")
    if not 1 <= concurrency <= _MOST_AT_ONCE:
        raise InvalidValue(f"concurrency must be from 1 to {_MOST_AT_ONCE:,}, not {concurrency}")
    return concurrency
