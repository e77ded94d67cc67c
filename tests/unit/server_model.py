"""A pure model of Firestore, and of a network that loses, repeats and holds back what it carries.

``Server`` knows transactions, preconditions, masks, transforms and snapshots; it answers the requests
of ``counters.wire`` with the messages of the real one. ``World`` drives steps against it, on a clock
that only moves when something takes time. Neither knows how the package decides.
"""

import bisect
import copy
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

from google.api_core import exceptions
from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.field_path import FieldPath
from google.protobuf.timestamp_pb2 import Timestamp

from counters import layout, wire
from counters.context import Call, Context
from counters.policy import NO_BACKOFF, Policy
from counters.steps import Gather, Invoke, Rpc, Sleep

DATABASE = "projects/p/databases/d"
START = 1_700_000_000_000_000
"""The server's clock at the start, in microseconds."""


@dataclass
class Stored:
    fields: dict
    created: int
    updated: int


class Server:
    """``closed`` is how it answers a commit of a closed transaction, ``rollback_of_closed`` a rollback."""

    def __init__(self, closed=exceptions.InvalidArgument, rollback_of_closed=None):
        self.now = START
        self.documents = {}
        self.applied = []
        self._closed = closed
        self._rollback_of_closed = rollback_of_closed
        self._open = set()
        self._begun = 0
        self._history = [(0, {})]

    @property
    def open_transactions(self):
        return len(self._open)

    def answer(self, rpc):
        self.now += 1000
        return getattr(self, f"_{rpc.method}")(type(rpc.request).pb(rpc.request))

    def put(self, path, **fields):
        """What another writer does: make a document, or merge into it."""
        self.now += 1000
        stored = self.documents.get(path)
        created = stored.created if stored else self.now
        merged = {**(stored.fields if stored else {}), **fields}
        self._become({**self.documents, path: Stored(merged, created, self.now)})

    def remove(self, prefix):
        """What another process does: delete a document and all below it."""
        self.now += 1000
        self._become({path: doc for path, doc in self.documents.items() if not path.startswith(prefix)})

    def field(self, path, name):
        return self.documents[path].fields[name]

    def _become(self, documents):
        self.documents = documents
        self._history.append((self.now, documents))

    def _at(self, request):
        """The documents that a read sees, and its read time."""
        moment = wire.micros(request.read_time) if request.HasField("read_time") else self.now
        index = bisect.bisect_right([time for time, _ in self._history], moment)
        return self._history[index - 1][1], moment

    def _begin_transaction(self, _):
        self._begun += 1
        transaction = b"transaction %d" % self._begun
        self._open.add(transaction)
        return _wrapped(types.BeginTransactionResponse, transaction=transaction)

    def _rollback(self, request):
        if request.transaction not in self._open and self._rollback_of_closed:
            raise self._rollback_of_closed("the transaction is closed")
        self._open.discard(request.transaction)

    def _commit(self, request):
        if request.transaction:
            if request.transaction not in self._open:
                raise self._closed("the transaction is closed")
            self._open.discard(request.transaction)
        documents = dict(self.documents)
        for write in request.writes:
            self._write(documents, write)
        self._become(documents)
        self.applied.append(request)
        return _wrapped(types.CommitResponse, commit_time=wire.timestamp(self.now))

    def _write(self, documents, write):
        path = wire.relative_path(write.delete or write.update.name)
        stored = documents.get(path)
        self._check(write.current_document, stored)
        if write.delete:
            documents.pop(path, None)
            return
        fields = {}
        if stored and write.HasField("update_mask"):
            fields = copy.deepcopy(stored.fields)
        if write.HasField("update_mask"):
            for name in write.update_mask.field_paths:
                _copy_field(fields, write.update.fields, FieldPath.from_api_repr(name).parts)
        else:
            fields.update({key: wire.decode(value) for key, value in write.update.fields.items()})
        for transform in write.update_transforms:
            if transform.HasField("increment"):
                before = fields.get(transform.field_path, 0)
                fields[transform.field_path] = before + transform.increment.integer_value
            else:
                fields[transform.field_path] = wire.timestamp(self.now)
        documents[path] = Stored(fields, stored.created if stored else self.now, self.now)

    @staticmethod
    def _check(precondition, stored):
        kind = precondition.WhichOneof("condition_type")
        if kind == "exists" and precondition.exists and stored is None:
            raise exceptions.NotFound("no such document")
        if kind == "exists" and not precondition.exists and stored is not None:
            raise exceptions.AlreadyExists("there is such a document")
        if kind == "update_time" and (
            stored is None or stored.updated != wire.micros(precondition.update_time)
        ):
            raise exceptions.FailedPrecondition("it has changed")

    def _batch_get_documents(self, request):
        documents, moment = self._at(request)
        answer = []
        for name in request.documents:
            stored = documents.get(wire.relative_path(name))
            result = {"found": _message(name, stored)} if stored else {"missing": name}
            stamp = wire.timestamp(moment)
            answer.append(_wrapped(types.BatchGetDocumentsResponse, read_time=stamp, **result))
        return answer

    def _run_aggregation_query(self, request):
        documents, moment = self._at(request)
        aggregation = request.structured_aggregation_query
        (summed,) = aggregation.aggregations
        total = sum(
            stored.fields[summed.sum.field.field_path]
            for _, stored in _matching(documents, request.parent, aggregation.structured_query)
        )
        answer = types.RunAggregationQueryResponse.pb()(read_time=wire.timestamp(moment))
        answer.result.aggregate_fields[summed.alias].CopyFrom(wire.encode(total))
        return [types.RunAggregationQueryResponse.wrap(answer)]

    def _run_query(self, request):
        documents, moment = self._at(request)
        found = _matching(documents, request.parent, request.structured_query)
        stamp = wire.timestamp(moment)
        page = [
            _wrapped(types.RunQueryResponse, document=_message(self.name(path), stored), read_time=stamp)
            for path, stored in found[: request.structured_query.limit.value]
        ]
        return page or [_wrapped(types.RunQueryResponse, read_time=stamp)]

    @staticmethod
    def name(path):
        return wire.document_name(DATABASE, path)


def _copy_field(fields, source, parts):
    """Set or remove one masked field, as ``source`` has it or not."""
    *outer, last = parts
    for part in outer:
        fields = fields.setdefault(part, {})
        source = source[part].map_value.fields
    if last in source:
        fields[last] = wire.decode(source[last])
    else:
        fields.pop(last, None)


def _matching(documents, parent, query):
    """The documents of a query, in its order, after its cursor."""
    (source,) = query.from_
    within = f"{parent}/"[len(f"{DATABASE}/documents/") :]
    filters = [each.field_filter for each in query.where.composite_filter.filters]
    order = [each.field.field_path for each in query.order_by]

    def key(item):
        path, stored = item
        return tuple(path if name == "__name__" else wire.micros(stored.fields[name]) for name in order)

    found = []
    for path, stored in documents.items():
        collection, _, _ = path.rpartition("/")
        inside = (
            path.startswith(within)
            if source.all_descendants
            else collection == within + source.collection_id
        )
        if inside and collection.rpartition("/")[2] == source.collection_id and _passes(stored, filters):
            found.append((path, stored))
    found.sort(key=key)
    cursor = tuple(
        wire.relative_path(value.reference_value)
        if value.reference_value
        else wire.micros(value.timestamp_value)
        for value in query.start_at.values
    )
    return [item for item in found if key(item) > cursor] if cursor else found


def _passes(stored, filters):
    for each in filters:
        value, wanted = stored.fields.get(each.field.field_path), wire.decode(each.value)
        if isinstance(wanted, Timestamp):
            if not isinstance(value, Timestamp) or wire.micros(value) <= wire.micros(wanted):
                return False
        elif value not in wanted:
            return False
    return True


def _message(name, stored):
    """A ``Document``, built below proto-plus's wrappers, which are slow."""
    message = types.Document.pb()(
        name=name, create_time=wire.timestamp(stored.created), update_time=wire.timestamp(stored.updated)
    )
    for key, value in stored.fields.items():
        message.fields[key].CopyFrom(wire.encode(value))
    return message


def _wrapped(kind, **fields):
    return kind.wrap(kind.pb()(**fields))


# What may happen to one request. Each is given the world and the request, and answers or raises.


def delivered(world, rpc):
    return world.deliver(rpc)


def lost_request(_world, _rpc):
    raise exceptions.ServiceUnavailable("the connection was cut")


def lost_answer(world, rpc):
    with suppress(exceptions.GoogleAPICallError):
        world.deliver(rpc)
    raise exceptions.ServiceUnavailable("the connection was cut")


def silence(world, rpc):
    """Nothing comes until the caller's patience ends."""
    world.pass_time(rpc.timeout)
    raise exceptions.DeadlineExceeded("no answer")


def delivered_twice(world, rpc):
    """Both copies are executed; the second one's answer arrives."""
    with suppress(exceptions.GoogleAPICallError):
        world.deliver(rpc)
    return world.deliver(rpc)


def made_up(error):
    """Something between here and the server answers in its place."""

    def answer(_world, _rpc):
        raise error

    return answer


def held_back(requests, answer=exceptions.ServiceUnavailable):
    """Executed only after so many later requests, its answer lost; None: after the call's end.

    ``answer`` is what somebody between here and the server says meanwhile.
    """

    def hold(world, rpc):
        world.held.append((None if requests is None else world.sent + requests, rpc))
        raise answer("the connection was cut")

    return hold


def after(happening, then=delivered):
    """Something happens on the server just before this request."""

    def answer(world, rpc):
        happening()
        return then(world, rpc)

    return answer


@dataclass
class World:
    """Runs steps against a server. ``faults`` are queues by method: what becomes of the next ones."""

    server: Server = field(default_factory=Server)
    seconds: float = 0.0
    requests: list = field(default_factory=list)
    pauses: list = field(default_factory=list)
    held: list = field(default_factory=list)
    faults: dict = field(default_factory=lambda: defaultdict(list))

    def context(self, *, backoff=NO_BACKOFF, seed=1, prune_chance=0.0, **options):
        policy = Policy(backoff=backoff, seed=seed, clock=lambda: self.seconds, prune_chance=prune_chance)
        return Context(policy=policy, **options)

    def call(self, context=None):
        return Call(context or self.context(), DATABASE)

    @property
    def sent(self):
        return len(self.requests)

    @property
    def methods(self):
        return [rpc.method for rpc in self.requests]

    def pass_time(self, seconds):
        self.seconds += seconds
        self.server.now += int(seconds * 1_000_000)

    def deliver(self, rpc):
        self.pass_time(0.001)
        return self.server.answer(rpc)

    def fate(self, rpc):
        queue = self.faults[rpc.method]
        return queue.pop(0) if queue else delivered

    def send(self, rpc):
        self.requests.append(rpc)
        try:
            return self.fate(rpc)(self, rpc)
        finally:
            self.deliver_held(lambda due: due is not None and due <= self.sent)

    def deliver_held(self, is_due=lambda _: True):
        """What was held back reaches the server after all."""
        due = [rpc for when, rpc in self.held if is_due(when)]
        self.held = [(when, rpc) for when, rpc in self.held if not is_due(when)]
        for rpc in due:
            with suppress(exceptions.GoogleAPICallError):
                self.deliver(rpc)

    def perform(self, effect):
        if isinstance(effect, Rpc):
            return self.send(effect)
        if isinstance(effect, Sleep):
            self.pauses.append(effect.seconds)
            self.pass_time(effect.seconds)
            return None
        if isinstance(effect, Invoke):
            return effect.function()
        assert isinstance(effect, Gather)
        return [self.run(steps) for steps in effect.steps]

    def run(self, steps):
        """Like ``steps.run``, on this world's server, network and clock."""
        try:
            effect = next(steps)
            while True:
                effect = self.advance(steps, effect)
        except StopIteration as stop:
            return stop.value

    def advance(self, steps, effect):
        """Perform ``effect`` and hand back what came of it; the next effect."""
        try:
            answer = self.perform(effect)
        except Exception as error:  # noqa: BLE001 - the steps decide what it means
            return steps.throw(error)
        return steps.send(answer)


def create_counter(server, path, shards=1, **fields):
    """A counter as ``create()`` makes it; its creation, in microseconds."""
    server.put(path, **{layout.LAYOUT_FIELD: layout.LAYOUT, layout.SHARD_COUNT: shards} | fields)
    return server.documents[path].created
