"""A gRPC proxy between Firestore clients and an emulator: it counts what passes, and breaks it.

::

    with Gateway(emulator.host) as gateway, open_client(gateway.host, "my-project") as client:
        with gateway.measure() as bill:
            client.document("a/b").set({"n": 1})
        assert bill.rpcs == {"Commit": 1}
        assert bill.writes == 1

It hands on bytes, so any client in any language can use it. It adds about half a millisecond to a
call, and starts in a few.
"""

from __future__ import annotations

from concurrent import futures
from functools import partial
from typing import TYPE_CHECKING

import grpc

from counters.testing.billing import Meter
from counters.testing.exchange import METHODS, STREAMS, Exchange, Route
from counters.testing.exchange import cut_connections as _cut_connections
from counters.testing.faults import Plan, WriteRate

if TYPE_CHECKING:
    import collections
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from typing_extensions import Self

    from counters.testing.billing import Bill
    from counters.testing.exchange import Answer, Held
    from counters.testing.faults import Fault

__all__ = ["Gateway"]

# Threads are made as they are needed; each listener and each call that is delayed or gets no answer
# keeps one.
_MAX_THREADS = 256
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
]
# grpc.experimental: the calling thread itself waits for each message. It takes a millisecond and a
# half off every call, most of what the gateway costs.
_CHANNEL_OPTIONS = [*_OPTIONS, ("SingleThreadedUnaryStream", 1)]


class Gateway:
    """A server on a free port of 127.0.0.1 that passes all calls on to ``target``.

    It runs in this process, from ``with`` to the end of the block, and serves clients of any
    process. ``host`` is what they take for ``FIRESTORE_EMULATOR_HOST``.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._meter = Meter()
        self._plan = Plan()
        self._route: Route | None = None

    def __enter__(self) -> Self:
        self._threads = futures.ThreadPoolExecutor(_MAX_THREADS, "counters-gateway")
        self._server = grpc.server(self._threads, [_Handlers(self)], options=_OPTIONS)
        port = self._server.add_insecure_port("127.0.0.1:0")
        channel = grpc.insecure_channel(self._target, options=_CHANNEL_OPTIONS)
        self._route = Route(port, channel, self._meter)
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        route, self._route = self._running(), None
        self._server.stop(None).wait()
        route.channel.close()
        self._threads.shutdown()

    @property
    def host(self) -> str:
        """``host:port`` of this gateway, for clients."""
        return f"127.0.0.1:{self._running().port}"

    def measure(self) -> AbstractContextManager[Bill]:
        """Count the calls that come while the block runs, and what Firestore bills for them.

        Blocks may overlap. Meanwhile an aggregation other than COUNT costs the emulator a COUNT
        more, which is not on the bill: so the entries behind a SUM come to be known.
        """
        return self._meter.measure()

    def script(self, *faults: Fault) -> None:
        """Add faults, each of which strikes as its ``nth`` and ``times`` say, from now on."""
        self._plan.script(*faults)

    def random(self, *, seed: int, rates: Mapping[Fault, float]) -> None:
        """Let faults strike at random, each at its rate (0 to 1) of the calls that it concerns.

        At most one strikes a call, and after the scripted ones. The same ``seed`` and the same
        calls of a method, in their order, meet the same faults. Replaces what was set before.
        """
        self._plan.random(seed, rates)

    def limit_writes(self, *, per_second: float, queue: int = 10) -> None:
        """Let each document take so many writes a second, and so many commits wait for that.

        A commit beyond gets ABORTED, "too much contention".
        """
        self._plan.limit_writes(WriteRate(per_second, queue))

    def calm(self) -> None:
        """End all faults and limits. What is held back stays so."""
        self._plan.calm()

    def cut(self) -> None:
        """Break all clients' connections now; every call on its way fails with UNAVAILABLE."""
        _cut_connections(self._running().port)

    @property
    def struck(self) -> collections.Counter[Fault]:
        """How often each fault has struck."""
        return self._plan.struck

    @property
    def held(self) -> tuple[Held, ...]:
        """The requests that are held back, the oldest first."""
        return tuple(self._running().held)

    def release(self) -> list[Answer]:
        """Deliver what is held back, the oldest first; return the server's answers."""
        return [held.release() for held in self.held]

    def _running(self) -> Route:
        if self._route is None:
            raise RuntimeError("the gateway is not running: use it within `with Gateway(target)`")
        return self._route

    def _serve(
        self, path: str, request: bytes | Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        whole, stream = (request, None) if isinstance(request, bytes) else (None, request)
        exchange = Exchange(path, whole, context, self._running())
        self._meter.arrived(exchange.method)
        answer = self._plan.strike(exchange)
        return exchange.pass_on(stream) if answer is None else exchange.answer(answer)


class _Handlers(grpc.GenericRpcHandler):
    """Takes every method that there is, as bytes.

    Every answer is treated as a stream: on the wire, one message is a stream of one.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        path = handler_call_details.method
        serve = partial(self._gateway._serve, path)  # noqa: SLF001 - the other half of one class
        name = path.rpartition("/")[2]
        if name in METHODS and name not in STREAMS:
            return grpc.unary_stream_rpc_method_handler(serve)
        return grpc.stream_stream_rpc_method_handler(serve)
