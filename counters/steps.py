"""How one piece of deciding code serves both twins.

Whatever this package does over the network is written once, as a generator that yields what it
wants done (an RPC, a pause, several things at once) and is sent back what came of it. It awaits
nothing and blocks on nothing. ``run`` and ``run_async`` are the only two places that do; a test,
or a model of the network, can drive the same generators with answers of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from google.api_core import exceptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rpc:
    """One request, sent exactly once. Sent back: the response, for a stream the list of them.

    ``timeout`` is in seconds. ``shielded`` requests are finished even when the caller's task is
    cancelled meanwhile.
    """

    method: str
    request: Any
    timeout: float
    shielded: bool = False


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Gather:
    """Several steps, at most ``limit`` at once. Sent back: their results, in order.

    The first error is raised once none of them runs any more.
    """

    steps: Sequence[Steps[Any]]
    limit: int


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call a function of the caller's; the async driver awaits what it returns, if it can."""

    function: Callable[[], Any]


Effect: TypeAlias = Rpc | Sleep | Gather | Invoke
Steps: TypeAlias = Generator[Effect, Any, T]


class Transport(Protocol):
    """Sends an ``Rpc`` and blocks for the answer; a stream's answer is a list."""

    def send(self, rpc: Rpc) -> Any:
        """Send exactly once."""
        ...


class AsyncTransport(Protocol):
    """Sends an ``Rpc`` and awaits the answer; a stream's answer is a list."""

    async def send(self, rpc: Rpc) -> Any:
        """Send exactly once."""
        ...


def run(steps: Steps[T], transport: Transport) -> T:
    """Drive ``steps`` to their end, blocking; return what they return."""
    act: Callable[[Any], Effect] = steps.send
    answer: Any = None
    while True:
        try:
            effect = act(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            answer = _perform(effect, transport)
            act = steps.send
        except BaseException as error:  # noqa: BLE001 - Ctrl-C too: the steps decide what it means
            answer = error
            act = steps.throw


def _perform(effect: Effect, transport: Transport) -> Any:
    if isinstance(effect, Rpc):
        return transport.send(effect)
    if isinstance(effect, Sleep):
        time.sleep(effect.seconds)
        return None
    if isinstance(effect, Invoke):
        return effect.function()
    if len(effect.steps) == 1:
        return [run(effect.steps[0], transport)]
    # The pool lives as long as this call: functions may be frozen between requests.
    pool = ThreadPoolExecutor(effect.limit, thread_name_prefix="counters")
    try:
        futures = [pool.submit(run, steps, transport) for steps in effect.steps]
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


async def run_async(steps: Steps[T], transport: AsyncTransport) -> T:
    """Drive ``steps`` to their end, awaiting; return what they return."""
    act: Callable[[Any], Effect] = steps.send
    answer: Any = None
    while True:
        try:
            effect = act(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            answer = await _perform_async(effect, transport)
            act = steps.send
        except BaseException as error:  # noqa: BLE001 - cancellation too: the steps decide
            answer = error
            act = steps.throw


async def _perform_async(effect: Effect, transport: AsyncTransport) -> Any:
    if isinstance(effect, Rpc):
        return await _send_async(effect, transport)
    if isinstance(effect, Sleep):
        return await asyncio.sleep(effect.seconds)
    if isinstance(effect, Invoke):
        result = effect.function()
        return await result if inspect.isawaitable(result) else result
    slots = asyncio.Semaphore(effect.limit)

    async def in_a_slot(steps: Steps[Any]) -> Any:
        async with slots:
            return await run_async(steps, transport)

    tasks = [asyncio.ensure_future(in_a_slot(steps)) for steps in effect.steps]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_left_alone: set[asyncio.Task[Any]] = set()


def _ended_alone(task: asyncio.Task[Any]) -> None:
    _left_alone.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, or the loop would log that nobody did


async def _send_async(rpc: Rpc, transport: AsyncTransport) -> Any:
    # In a task of its own, because grpc.aio raises CancelledError for a status CANCELLED that the
    # *server* sent. Only if waiting is cut short was it our caller who was cancelled.
    task = asyncio.ensure_future(transport.send(rpc))
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        if not rpc.shielded:
            task.cancel()
        _left_alone.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(_ended_alone)
        raise
    if task.cancelled():
        message = "the server, or what is between, cancelled the request"
        raise exceptions.Cancelled(message)  # type: ignore[no-untyped-call]
    return task.result()
