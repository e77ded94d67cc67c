"""One call on its way through the gateway: what came, what can be done with it, what goes back.

The gateway passes a call on as it is; a fault (``faults.py``) does something else with it. Both use
what is here, and nothing here decides.
"""

from __future__ import annotations

import collections
import contextlib
import os
import socket
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from counters.testing.billing import Meter

__all__ = [
    "METHODS",
    "STREAMS",
    "UNARY",
    "Answer",
    "Exchange",
    "Held",
    "Metadata",
    "Route",
    "cut_connections",
]

STREAMS = frozenset({"Listen", "Write"})
"""The methods whose request is a stream."""

UNARY = frozenset(
    {
        "BatchWrite",
        "BeginTransaction",
        "Commit",
        "CreateDocument",
        "DeleteDocument",
        "GetDocument",
        "ListCollectionIds",
        "ListDocuments",
        "PartitionQuery",
        "Rollback",
        "UpdateDocument",
    }
)
"""The methods of one request and one answer."""

METHODS = STREAMS | UNARY | {"BatchGetDocuments", "ExecutePipeline", "RunAggregationQuery", "RunQuery"}
"""All methods of Firestore's API, by their short names; those named last answer with a stream."""

Metadata = tuple[tuple[str, str | bytes], ...]

_AGGREGATION = "/google.firestore.v1.Firestore/RunAggregationQuery"
_DELIVERY_TIMEOUT = 60.0  # seconds that a delivery of our own may take
_FOREVER = 1e8  # seconds: gRPC shows a call without a deadline as one of centuries
_OWNER: Metadata = (("authorization", "Bearer owner"),)


@dataclass(frozen=True)
class Answer:
    """All of an answer: its messages, then its status."""

    messages: tuple[bytes, ...] = ()
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    initial_metadata: Metadata = ()
    trailing_metadata: Metadata = ()


@dataclass(frozen=True)
class Route:
    """What all exchanges of a gateway share: where they come in, and the way to the server."""

    port: int
    channel: grpc.Channel
    meter: Meter
    held: collections.deque[Held] = field(default_factory=collections.deque)


class Held:
    """A request that is held back. It reaches the server when it is released, once."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @property
    def method(self) -> str:
        """The short name of the method, such as ``Commit``."""
        return self._exchange.method

    def release(self) -> Answer:
        """Deliver it now; return what the server says, which no client gets."""
        try:
            self._exchange.route.held.remove(self)
        except ValueError:
            raise RuntimeError(f"this {self.method} was released before") from None
        return self._exchange.deliver()


class Exchange:
    """One call of a client, with what it asked and the way to the server.

    ``method`` is the short name (``Commit``), ``request`` the message, or None for the calls that
    are a stream of requests (``Listen``, ``Write``).
    """

    def __init__(
        self,
        path: str,
        request: bytes | None,
        context: grpc.ServicerContext,
        route: Route,
    ) -> None:
        self.path = path
        self.method = path.rpartition("/")[2]
        self.request = request
        self._context = context
        self.route = route
        self._metadata = _passed_on(context.invocation_metadata())

    def deliver(self) -> Answer:
        """Send the request to the server and wait for all of its answer, whatever the client does.

        Each call of this is a delivery of its own, billed if it succeeds.
        """
        request = self._one_request()
        tab = self.route.meter.delivered(self.method, request, self._count)
        call = self._send(self.path, request, self._metadata, _DELIVERY_TIMEOUT)
        messages: list[bytes] = []
        # The status is asked for below: it is there in any case.
        with contextlib.suppress(grpc.RpcError):
            for message in call:
                tab.answered(message)
                messages.append(message)
        tab.ended(call.code())
        return Answer(
            tuple(messages),
            call.code(),
            call.details(),
            _passed_on(call.initial_metadata()),
            _passed_on(call.trailing_metadata()),
        )

    def pass_on(self, requests: Iterator[bytes] | None = None) -> Iterator[bytes]:
        """Yield the server's messages as they come, then end as the server did.

        The client's deadline and its giving up reach the server, but only where the answer is a
        stream: a single one is waited for, so that it is known, and billed, what came of it.
        ``requests`` are the messages of a call whose request is a stream.
        """
        if self.method in UNARY:
            yield from self.answer(self.deliver())
            return
        tab = self.route.meter.delivered(self.method, self.request or b"", self._count)
        remaining = self._context.time_remaining()
        timeout = remaining if remaining is not None and remaining < _FOREVER else None
        call: Any
        if requests is None:
            call = self._send(self.path, self._one_request(), self._metadata, timeout)
        else:
            send: grpc.StreamStreamMultiCallable[bytes, bytes] = self.route.channel.stream_stream(self.path)
            call = send(_until_closed(requests), metadata=self._metadata, timeout=timeout)
        if not self._context.add_callback(call.cancel):
            call.cancel()
        headed = False
        with contextlib.suppress(grpc.RpcError):
            for message in call:
                if not headed:
                    self._context.send_initial_metadata(_passed_on(call.initial_metadata()))
                    headed = True
                tab.answered(message)
                yield message
        if not self._context.is_active():
            return  # the client is gone, and the call cancelled: there may be no status
        tab.ended(call.code())
        self._finish(call.code(), call.details(), _passed_on(call.trailing_metadata()))

    def answer(self, answer: Answer) -> Iterator[bytes]:
        """Yield the messages of an answer that is there already, then end as it says."""
        if answer.initial_metadata:
            self._context.send_initial_metadata(answer.initial_metadata)
        yield from answer.messages
        self._finish(answer.code, answer.details, answer.trailing_metadata)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait, for ``seconds`` or until the client gives up; return whether it did."""
        given_up = threading.Event()
        if not self._context.add_callback(given_up.set):
            return True
        return given_up.wait(seconds)

    def cut(self) -> None:
        """Break the client's connection, and with it all other calls on it."""
        peer = self._context.peer()  # ipv4:127.0.0.1:43210
        cut_connections(self.route.port, only=int(peer.rpartition(":")[2]))

    def hold(self) -> None:
        """Keep the request for a later ``release()``."""
        self.route.held.append(Held(self))

    def _finish(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata) -> None:
        if trailing_metadata:
            self._context.set_trailing_metadata(trailing_metadata)
        if code is not grpc.StatusCode.OK:
            self._context.abort(code, details)

    def _one_request(self) -> bytes:
        if self.request is None:
            raise TypeError(f"{self.method} has a stream of requests, not one to deliver")
        return self.request

    def _count(self, request: bytes) -> list[bytes]:
        return list(self._send(_AGGREGATION, request, _OWNER, _DELIVERY_TIMEOUT))

    def _send(self, path: str, request: bytes, metadata: Metadata, timeout: float | None) -> Any:
        # Any answer can be taken as a stream: on the wire, one message is a stream of one.
        send: grpc.UnaryStreamMultiCallable[bytes, bytes] = self.route.channel.unary_stream(path)
        return send(request, metadata=metadata, timeout=timeout)


def cut_connections(port: int, *, only: int | None = None) -> None:
    """Break the connections that this process accepted on ``port`` of 127.0.0.1.

    All of them, or the one that comes from port ``only``. gRPC has no call for this, so it is done
    behind its back, to the sockets themselves: to gRPC on either end it is the network's doing.
    """
    for path in Path("/dev/fd").iterdir():
        # Descriptors come and go meanwhile; what is gone, or is no connection, is none of these.
        with contextlib.suppress(OSError):
            descriptor = int(path.name)
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                # A unix socket's names are no tuples.
                ours, theirs = connection.getsockname(), connection.getpeername()
                if ours[1:2] == (port,) and only in (None, theirs[1]):
                    connection.shutdown(socket.SHUT_RDWR)


def _passed_on(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
    """Leave out what each hop of gRPC says for itself."""
    return tuple(
        (key, value)
        for key, value in metadata or ()
        if key != "user-agent" and (key == "grpc-status-details-bin" or not key.startswith("grpc-"))
    )


def _until_closed(requests: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a client's messages until there are no more, or it is gone."""
    # gRPC raises a bare Exception when the client is gone, and would log it on the way out.
    with contextlib.suppress(Exception):
        yield from requests
