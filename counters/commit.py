"""How every write of ours is committed so that it applies exactly once.

A lost answer leaves a commit in doubt: it may have been applied, may still be on its way, or may
never arrive. Sending it again may apply it twice; not sending it again may lose it. So:

- **The fence.** The writes are committed within a transaction. When in doubt, the transaction is
  closed first; from then on nothing of that attempt can apply, however late it arrives.
- **The receipt.** The same commit leaves a mark in one of its documents. Read after the fence,
  it proves that the attempt was applied, or that it never will be.
- Only then is there another attempt: new transaction, new mark, perhaps another shard.

Any answer but OK is doubt, ABORTED and INVALID_ARGUMENT too: that is how a second copy of an
applied commit is answered. The SDK's own retry is off. Nothing else in this package commits without
a precondition that makes a repeat harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from google.api_core import exceptions

from counters import layout, receipts, wire
from counters.context import Call, OutOfTime
from counters.errors import InvalidArgument, NotApplied, OutcomeUnknown
from counters.lanes import Lane
from counters.receipts import Verdict
from counters.steps import Rpc, Steps

_LAST_WORD: Final = 2.0
"""How long a cancelled call may take to close its transaction, in seconds."""

_LET_GO_TRIES: Final = 4
_PRUNE_TRIES: Final = 4
"""On a busy shard somebody often writes between a pruner's read and its write."""

_PRUNE_PATIENCE: Final = 2.0
"""How long to wait for an answer while pruning, in seconds, within what the call has left."""

_INVALID_TRIES: Final = 3
"""INVALID_ARGUMENT means a transaction that is gone, or a request that will never do."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A receipt, and the document it is in.

    A shard may be deleted, with its counter: then ``counter`` and its creation (microseconds), as
    known before the attempt, tell a shard that is gone from one that never was.
    """

    path: str
    receipt: wire.Receipt
    counter: str | None = None
    counter_created: int = 0


@dataclass(frozen=True, slots=True)
class Staged:
    """What to commit, and where the proof will be.

    ``proof`` None: the writes may safely be applied again once the earlier attempt is fenced off.
    Of such an attempt it is never known whether it was applied. ``conditioned``: there are
    preconditions among the writes, so an answer that one does not hold is one to expect.
    """

    writes: Sequence[Any]
    proof: Proof | None
    conditioned: bool = False


Stage = Callable[[wire.Receipt], Staged]
"""Chooses the writes of one attempt; called again for each, with a new receipt."""

StageWithin = Callable[[bytes, Callable[[], wire.Receipt]], Steps[Staged]]
"""The same in steps of its own, within the transaction: it asks for its receipt when it is ready."""


class Refused(Exception):
    """A precondition of the writes does not hold; nothing was applied. ``__cause__`` says which."""


def commit(call: Call, stage: Stage) -> Steps[int]:
    """Apply what ``stage`` chooses exactly once; return when, in microseconds of server time.

    Two round trips (begin, commit). A doubt costs a rollback and a read more. One in 16 first
    writes of a lane to a document looks after its receipts: 1 read, at times 1 write.

    Raises:
        NotApplied: nothing was applied, and trying again was useless or out of time.
        OutcomeUnknown: no fence or no proof was to be had in time.
        Refused: a precondition of the writes does not hold.
    """

    def at_once(_: bytes, receipt: Callable[[], wire.Receipt]) -> Steps[Staged]:
        return stage(receipt())
        yield  # a generator that yields nothing

    return (yield from commit_within(call, at_once))


def commit_within(call: Call, stage: StageWithin) -> Steps[int]:
    """Apply what ``stage`` chooses within a transaction exactly once; see ``commit``.

    ABORTED from ``stage`` is contention and starts again; any other error of its ends the call.
    If it chooses no writes, the transaction is rolled back and nothing is committed.
    """
    lane = call.context.lanes.acquire()
    # Whatever leaves this function otherwise, cancellation for one, drops the lane.
    try:
        committed, proof = yield from _attempts(call, lane, stage)
    except (NotApplied, Refused):
        call.context.lanes.release(lane)
        raise
    # Only shards gather receipts; any other document that bears one is made for it.
    shard = proof.path if proof and proof.counter and lane.touches_anew(proof.path) else None
    call.context.lanes.release(lane)
    if shard and call.context.random() < call.context.policy.prune_chance:
        yield from _prune(call, shard)
    return committed


def commit_conditioned(call: Call, writes: Sequence[Any], *, conditioned: bool = True) -> Steps[None]:
    """Commit writes whose preconditions fail a second copy; sent again until answered.

    One round trip; a repeat changes nothing, so it needs neither fence nor receipt. Without
    preconditions, not ``conditioned``, a repeat must do no harm either.

    Raises:
        Refused: a precondition does not hold, maybe because a first copy was applied.
        NotApplied: the server refused it for good at once.
        OutcomeUnknown: no answer until the time limit, or a refusal after an attempt without answer.
    """
    attempt = 0
    cause: Exception | None = None
    try:
        while True:
            rpc = wire.commit(call.database, writes, call.patience())
            try:
                yield rpc
            except exceptions.GoogleAPICallError as error:
                cause = error
            else:
                return
            try:
                _raise_if_hopeless(cause, _INVALID_TRIES, conditioned=conditioned)
            except NotApplied:
                if not attempt:
                    raise
                raise OutcomeUnknown(
                    f"refused ({text_of(cause)}), after an attempt that may have been applied"
                ) from cause
            yield from call.back_off(attempt)
            attempt += 1
    except OutOfTime:
        if cause is None:
            raise NotApplied(f"nothing was sent within {call.context.timeout:g} s") from None
        raise OutcomeUnknown(
            f"no answer within {call.context.timeout:g} s ({text_of(cause)}); a repeat does no harm"
        ) from cause


def _attempts(call: Call, lane: Lane, stage: StageWithin) -> Steps[tuple[int, Proof | None]]:
    def next_receipt() -> wire.Receipt:
        return wire.Receipt(layout.RECEIPTS, lane.name, lane.next_mark(call.context.server_time()))

    attempt = invalid = 0
    unproved = False
    cause: Exception | None = None
    try:
        while True:
            transaction = yield from _begin(call)
            committed, staged, cause = yield from _attempt(call, transaction, stage, next_receipt)
            if committed is not None:
                return committed, staged.proof if staged else None
            invalid = invalid + 1 if isinstance(cause, exceptions.InvalidArgument) else 0
            # What was refused for good was not applied: without a proof, that has to do.
            unproved = unproved or bool(staged and not staged.proof and isinstance(cause, wire.RETRYABLE))
            _raise_if_hopeless(cause, invalid, conditioned=bool(staged and staged.conditioned))
            yield from call.back_off(attempt)
            attempt += 1
    except (OutOfTime, NotApplied) as error:
        if unproved:
            raise OutcomeUnknown(
                f"it cannot be known whether this was applied: {text_of(cause)}; calling again is safe"
            ) from cause
        if isinstance(error, NotApplied):
            raise
        raise NotApplied(
            f"nothing was applied within {call.context.timeout:g} s: {text_of(cause)}; "
            "calling again is safe; if this goes on, the counter may want more shards"
        ) from cause


def _attempt(
    call: Call, transaction: bytes, stage: StageWithin, next_receipt: Callable[[], wire.Receipt]
) -> Steps[tuple[int | None, Staged | None, Exception | None]]:
    """All that happens within one transaction: when it was committed, or None and why it was not.

    With what was to be committed, if it came to that.
    """
    try:
        staged = yield from stage(transaction, next_receipt)
        rpc = wire.commit(call.database, staged.writes, call.patience(), transaction)
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from _close(call, transaction)
        if isinstance(error, exceptions.Aborted):  # contention, met by a read
            return None, None, error
        raise
    if not staged.writes:
        yield from _let_go(call, transaction)
        return call.context.server_time(), None, None
    try:
        committed, cause = yield from _commit_once(call, transaction, rpc, staged.proof)
    except (GeneratorExit, OutcomeUnknown):
        raise
    except BaseException:
        # Cancelled, or Ctrl-C: says nothing of the outcome. Leave no transaction open.
        yield from _close(call, transaction)
        raise
    return committed, staged, cause


def _begin(call: Call) -> Steps[bytes]:
    # A transaction that was begun for nothing holds no lock and expires by itself.
    attempt = 0
    cause: Exception | None = None
    try:
        while True:
            rpc = wire.begin(call.database, call.patience())
            try:
                return wire.transaction_of((yield rpc))
            except wire.RETRYABLE as error:
                cause = error
            except InvalidArgument:
                raise  # not the server's: the client cannot be used here
            except Exception as error:
                raise NotApplied(f"nothing was applied: {text_of(error)}") from error
            yield from call.back_off(attempt)
            attempt += 1
    except OutOfTime:
        raise NotApplied(
            f"nothing was applied within {call.context.timeout:g} s: {text_of(cause)}; "
            "calling again is safe"
        ) from cause


def _commit_once(
    call: Call, transaction: bytes, rpc: Rpc, proof: Proof | None
) -> Steps[tuple[int | None, Exception | None]]:
    """Commit, and settle any doubt: when it was applied, or None and why it was not."""
    try:
        committed = wire.commit_time((yield rpc))
    except Exception as error:  # noqa: BLE001 - any answer but OK is doubt
        cause = error
    else:
        call.context.saw_server_time(committed)
        return committed, None
    try:
        committed_after_all = yield from _fence(call, transaction, rpc)
        if committed_after_all is not None:
            return committed_after_all, cause
        if proof is None:
            return None, cause
        verdict, read_time = yield from _verdict(call, proof)
    except OutOfTime:
        raise OutcomeUnknown(
            f"it cannot be known whether this was applied: {text_of(cause)}, and no proof was to be "
            f"had within {call.context.timeout:g} s; look at value() before calling again"
        ) from cause
    if verdict is Verdict.UNKNOWN:
        raise OutcomeUnknown(
            f"it cannot be known whether this was applied: {text_of(cause)}, and the proof may be "
            f"gone: the counter was deleted meanwhile, or this process slept for {receipts.HORIZON:g} s, "
            "or so many new writers came that receipts were removed early"
        ) from cause
    return (read_time if verdict is Verdict.APPLIED else None), cause


def _fence(call: Call, transaction: bytes, rpc: Rpc) -> Steps[int | None]:
    """Make sure that nothing of ``rpc`` applies from now on; its commit time if it turns out OK.

    A finished transaction may refuse to be rolled back. The very same commit, sent again, then
    tells: OK, or INVALID_ARGUMENT for a transaction that is closed. Any other answer, ABORTED too,
    tells nothing: something between here and the server may have made it up.
    """
    attempt = 0
    while True:
        try:
            yield wire.rollback(call.database, transaction, call.patience())
        except OutOfTime:
            raise
        except Exception:  # noqa: BLE001, S110 - whatever the reason: it is not closed yet
            pass
        else:
            return None
        try:
            committed = wire.commit_time((yield replace(rpc, timeout=call.patience())))
        except OutOfTime:
            raise
        except exceptions.InvalidArgument:
            return None
        except Exception:  # noqa: BLE001, S110 - as above
            pass
        else:
            call.context.saw_server_time(committed)
            return committed
        yield from call.back_off(attempt)
        attempt += 1


def _verdict(call: Call, proof: Proof) -> Steps[tuple[Verdict, int]]:
    document = yield from call.read_for_certain(proof.path)
    verdict = receipts.judge(document, proof.receipt)
    if verdict is Verdict.ASK_COUNTER and proof.counter is None:
        verdict = Verdict.NOT_APPLIED
    elif verdict is Verdict.ASK_COUNTER and proof.counter is not None:
        counter = yield from call.read_for_certain(proof.counter)
        verdict = receipts.judge_by_counter(counter, proof.counter_created)
    return verdict, document.read_time


def _close(call: Call, transaction: bytes) -> Steps[None]:
    with suppress(Exception):  # it was the last word, not the proof
        yield wire.rollback(call.database, transaction, _LAST_WORD, shielded=True)


def _let_go(call: Call, transaction: bytes) -> Steps[None]:
    """Close a transaction that only read: until that is done, its read locks keep writers waiting."""
    for attempt in range(_LET_GO_TRIES):
        answered = False
        with suppress(Exception):  # what was read stays true, and the server lets go in the end
            yield wire.rollback(call.database, transaction, _LAST_WORD)
            answered = True
        if answered:
            return
        with suppress(OutOfTime):
            yield from call.back_off(attempt)


def _prune(call: Call, path: str) -> Steps[None]:
    """Remove receipts that no doubt can need any more: 1 read, and 1 write if there are enough.

    Takes no lock and touches nothing that others write. If somebody writes between its read and its
    write, it tries again, a few times; at any other hindrance it gives up: another writer will come.
    """
    for _ in range(_PRUNE_TRIES):
        try:
            answer = yield wire.get(call.database, [path], _prune_patience(call))
            document = wire.documents_of(answer)[path]
            pruning = receipts.to_prune(document)
            if not pruning:
                return
            write = wire.remove_keys(
                call.name(path),
                layout.RECEIPTS,
                pruning.lanes,
                {layout.PRUNED: pruning.pruned},
                if_updated=document.updated,
            )
            yield wire.commit(call.database, [write], _prune_patience(call))
        except (exceptions.Aborted, exceptions.FailedPrecondition):
            continue
        except Exception:  # noqa: BLE001 - the increment itself is done
            return
        return


def _prune_patience(call: Call) -> float:
    return min(_PRUNE_PATIENCE, call.patience())


def _raise_if_hopeless(cause: Exception | None, invalid: int, *, conditioned: bool) -> None:
    """Raise what no further attempt can mend; contention and passing faults return.

    ``invalid`` is how many answers in a row, this one included, were INVALID_ARGUMENT.
    """
    if cause is None or isinstance(cause, wire.RETRYABLE):
        return
    if conditioned and isinstance(cause, wire.PRECONDITION):
        raise Refused from cause
    if isinstance(cause, exceptions.InvalidArgument) and invalid < _INVALID_TRIES:
        return
    raise NotApplied(f"nothing was applied: {text_of(cause)}") from cause


def text_of(error: Exception | None) -> str:
    """What an error says, in a few words."""
    if error is None:
        return "no time was left to try"
    return getattr(error, "message", None) or str(error) or type(error).__name__
