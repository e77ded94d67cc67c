"""Every order in which a few actors and a faulty network can act, explored with the real code.

An actor is one generator of the package after the other, driven step by step against the server of
``server_model.py``. Whenever several things can happen next (an actor's request arrives, is late, is
answered by something in between; a late one arrives; the clock jumps), each is tried. Generators
cannot be copied, so a state is reached again by replaying its moves; it is explored once, however
many orders lead to it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from google.api_core import exceptions
from google.protobuf.timestamp_pb2 import Timestamp
from server_model import DATABASE, START, Server, create_counter

from counters import layout, wire
from counters.context import Call, Context
from counters.errors import CounterError, NotApplied, OutcomeUnknown
from counters.lanes import Lane, Lanes
from counters.policy import NO_BACKOFF, Policy
from counters.receipts import HORIZON
from counters.settings import parse
from counters.steps import Rpc, Sleep

COUNTER = "posts/a91f/counters/likes"
SHARD = layout.shard_path(COUNTER, 0)

FATES = {
    "commit": ("late", "twice", "refused"),
    "rollback": ("late",),
    "batch_get_documents": ("lost",),
}
"""What may become of a request, besides being delivered and answered.

Late: the client hears UNAVAILABLE, and the request arrives at any later moment, or never. That
covers the lost request and the lost answer. Twice: it arrives, and arrives again. Refused: something
in between says ABORTED.
"""


class Fault(Exception):
    """What must not happen has happened."""


class Move(NamedTuple):
    """One thing that can happen next: to an actor's request, to a late one, or to all."""

    kind: str
    number: int = 0


class Clockwork(Server):
    """A server whose clock counts the commits it applied: what commutes leads to one state."""

    def __init__(self, **options):
        super().__init__(**options)
        self.caller = 0
        self.begun = Counter()

    def answer(self, rpc):
        return getattr(self, f"_{rpc.method}")(type(rpc.request).pb(rpc.request))

    def _begin_transaction(self, request):
        self._begun = self.begun[self.caller] + 1000 * self.caller  # ids that no interleaving changes
        self.begun[self.caller] += 1
        return super()._begin_transaction(request)

    def _commit(self, request):
        self.now += 1
        try:
            return super()._commit(request)
        except exceptions.GoogleAPICallError:
            self.now -= 1
            raise

    @property
    def state(self):
        documents = tuple(
            (path, doc.created, doc.updated, _frozen(doc.fields))
            for path, doc in sorted(self.documents.items())
        )
        return documents, frozenset(self._open), self.now


class NumberedLanes(Lanes):
    """Lanes with names that a replay gives again, and a note of who got which."""

    def __init__(self, process=0):
        super().__init__()
        self._of = process
        self.made = []
        self.note = lambda _: None

    def acquire(self):
        if self._free:
            lane = super().acquire()
        else:
            lane = Lane()
            lane.name = f"lane{self._of}x{len(self.made)}"
            self.made.append(lane)
        self.note(lane.name)
        return lane

    @property
    def state(self):
        return tuple(lane.name for lane in self._free), tuple(lane._last for lane in self.made)


class Process:
    """A process of ours: lanes, settings and clock that its actors share. Its clock stands still."""

    def __init__(self, server, number=0, *, lanes=NumberedLanes, prune_chance=0.0):
        self.seconds = 0.0
        policy = Policy(backoff=NO_BACKOFF, seed=1, clock=lambda: self.seconds, prune_chance=prune_chance)
        self.context = Context(policy=policy, shards=1)
        self.context.lanes = lanes(number)
        self.context.saw_server_time(server.now)
        document = wire.Document(COUNTER, dict(server.documents[COUNTER].fields), server.now, START, START)
        self.context.cache(COUNTER, parse(document))

    def call(self):
        return Call(self.context, DATABASE)

    @property
    def state(self):
        return self.context.lanes.state, self.context._server_seen, self.seconds


@dataclass
class Actor:
    """Makes calls of one process, one after the other. ``counts``: each is to count exactly once."""

    process: Process
    calls: list[Callable]
    counts: bool = True
    faulty: bool = True
    outcomes: list = field(default_factory=list)
    history: list = field(default_factory=list)
    steps: object = None
    effect: object = None

    @property
    def call(self):
        return len(self.outcomes)


@dataclass(frozen=True)
class Scene:
    """What is explored. ``cast`` makes the actors for a server that holds a counter and a shard.

    At most ``faults`` requests meet a fault; of ``events``, each happens once, at any moment or never.
    ``must_succeed``: none of them excuses a call that did not.
    """

    name: str
    cast: Callable
    faults: int
    events: tuple[str, ...] = ()
    must_succeed: bool = True
    keyed: bool = False
    shard: bool = True
    server: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Explored:
    """How many states there are, and the first fault met with the moves that led to it."""

    states: int
    fault: Fault | None = None
    moves: tuple[Move, ...] = ()


class Run:
    """One course of a scene, at the state that its moves so far have led to."""

    def __init__(self, scene):
        self.scene = scene
        self.server = Clockwork(**scene.server)
        create_counter(self.server, COUNTER)
        if scene.shard:
            old = {f"old{number}": START - 2_000_000_000 for number in range(8)}
            self.server.put(SHARD, **{layout.VALUE: 0, layout.RECEIPTS: old})
        self.server.now += 1000
        self.late = []
        self.faults = scene.faults
        self.events = list(scene.events)
        self.applied = Counter()
        self.actors = scene.cast(self.server)
        for number, actor in enumerate(self.actors):
            self._next_call(number, actor)

    # What can happen.

    def moves(self):
        found = []
        for number, actor in enumerate(self.actors):
            if actor.effect is None:
                continue
            found.append(Move("delivered", number))
            if self.faults and actor.faulty:
                found += [Move(fate, number) for fate in FATES.get(actor.effect.method, ())]
            for event in ("cancelled", "out of time"):
                if event in self.events and actor.faulty:
                    found.append(Move(event, number))
        found += [Move("arrives", number) for number in range(len(self.late))]
        if "horizon" in self.events:
            found.append(Move("horizon"))
        return found

    def do(self, move):
        if move.kind == "arrives":
            number, call, rpc = self.late.pop(move.number)
            self._arrives(number, call, rpc)
        elif move.kind == "horizon":
            self.events.remove("horizon")
            self.server.now += int(HORIZON * 1_000_000)
        else:
            self._to_actor(move.kind, move.number, self.actors[move.number])

    def _to_actor(self, kind, number, actor):
        if kind in self.events:
            self.events.remove(kind)
            if actor.effect.method == "commit":
                self.late.append((number, actor.call, actor.effect))
            if kind == "cancelled":
                self._advance(number, actor, asyncio.CancelledError())
                return
            actor.process.seconds += 31  # its limit is over before the answer is there
            kind = "late"
        elif kind != "delivered":
            self.faults -= 1
        self._advance(number, actor, self._fate(kind, number, actor))

    def _fate(self, kind, number, actor):
        """What the actor gets: an answer or an exception."""
        if kind in {"late", "lost"}:
            if kind == "late" and actor.effect.method in {"commit", "rollback"}:
                self.late.append((number, actor.call, actor.effect))
            return exceptions.ServiceUnavailable("no answer")
        if kind == "refused":
            return exceptions.Aborted("made up in between")
        if kind == "twice":
            self._arrives(number, actor.call, actor.effect)
        return self._arrives(number, actor.call, actor.effect)

    def _arrives(self, number, call, rpc):
        """The server executes a request: its answer or an exception."""
        self.server.caller = number
        try:
            answer = self.server.answer(rpc)
        except exceptions.GoogleAPICallError as error:
            return error
        if rpc.method == "commit" and _adds(rpc) and self.actors[number].counts:
            self._count(number, call)
        return answer

    def _count(self, number, call):
        one = "key" if self.scene.keyed else (number, call)
        self.applied[one] += 1
        outcomes = self.actors[number].outcomes
        if self.applied[one] > 1:
            raise Fault("counted twice")
        if len(outcomes) > call and isinstance(outcomes[call], NotApplied):
            raise Fault("counted after all, though NotApplied was raised")

    # The actors.

    def _advance(self, number, actor, answer):
        """Hand an answer on, and go to the next request that others can notice."""
        while True:
            actor.history.append(_digest(answer))
            actor.process.context.lanes.note = actor.history.append
            try:
                throws = isinstance(answer, BaseException)
                effect = actor.steps.throw(answer) if throws else actor.steps.send(answer)
            except StopIteration as stop:
                self._ended(number, actor, stop.value)
                return
            except (CounterError, asyncio.CancelledError) as error:
                self._ended(number, actor, error)
                return
            if isinstance(effect, Sleep):
                answer = None
                continue
            assert isinstance(effect, Rpc)
            actor.history.append(_digest(effect.request))
            if effect.method != "begin_transaction":
                actor.effect = effect
                return
            self.server.caller = number
            answer = self.server.answer(effect)  # concerns nobody else

    def _next_call(self, number, actor):
        actor.effect = None
        if actor.call < len(actor.calls):
            actor.steps = actor.calls[actor.call]()
            self._advance(number, actor, None)

    def _ended(self, number, actor, outcome):
        actor.outcomes.append(outcome)
        if actor.counts:
            self._check(number, actor, outcome)
        actor.process.seconds = 0.0
        self._next_call(number, actor)

    def _check(self, number, actor, outcome):
        one = "key" if self.scene.keyed else (number, actor.call - 1)
        counted = self.applied[one]
        if isinstance(outcome, NotApplied):
            if counted and not self.scene.keyed:
                raise Fault("counted, though NotApplied was raised")
        elif not isinstance(outcome, OutcomeUnknown | asyncio.CancelledError) and not counted:
            raise Fault("not counted, though the call succeeded")
        if isinstance(outcome, BaseException) and self.scene.must_succeed:
            raise Fault(f"ended in {type(outcome).__name__}")
        if self.scene.keyed:
            self._check_keyed()

    def _check_keyed(self):
        outcomes = [outcome for actor in self.actors for outcome in actor.outcomes]
        if outcomes.count(True) > 1:
            raise Fault("two calls said that they counted the key")
        if len(outcomes) == sum(len(actor.calls) for actor in self.actors) and True not in outcomes:
            raise Fault("no call said that it counted the key")

    @property
    def state(self):
        actors = tuple((tuple(actor.history), actor.process.state, actor.call) for actor in self.actors)
        late = sorted((number, call, _digest(rpc.request)) for number, call, rpc in self.late)
        return self.server.state, actors, tuple(late), self.faults, tuple(self.events)


def explore(scene):
    """Reach every state of a scene, or the first fault."""
    seen = set()
    courses = [()]
    while courses:
        moves = courses.pop()
        try:
            run = Run(scene)
            for move in moves:
                run.do(move)
            while (state := hash(run.state)) not in seen:
                seen.add(state)
                choices = run.moves()
                if not choices:
                    break
                courses += [(*moves, move) for move in choices[1:]]
                moves = (*moves, choices[0])
                run.do(choices[0])
        except Fault as fault:
            return Explored(len(seen), fault, moves)
    return Explored(len(seen))


def _adds(rpc):
    writes = type(rpc.request).pb(rpc.request).writes
    return any(each.field_path == layout.VALUE for write in writes for each in write.update_transforms)


def _digest(message):
    """What tells one message, answer or error from another."""
    if message is None or isinstance(message, BaseException):
        return type(message).__name__
    if isinstance(message, list):
        return tuple(_digest(part) for part in message)
    return type(message).pb(message).SerializeToString(deterministic=True)


def _frozen(value):
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in sorted(value.items()))
    return wire.micros(value) if isinstance(value, Timestamp) else value
