"""Both twins behind one face, so that one test body holds either to the contract.

Every call is awaited. The sync twin's calls run in threads, so a ``gather`` of eight calls is eight
tasks for the async twin and eight threads for the sync one.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from counters import AsyncCounter, AsyncCounters, Counter, Counters, roll_up, roll_up_async

SIDE_BY_SIDE = 16
"""So many calls of the sync twin run at once."""


class AsyncTwin:
    """The async twin as it is."""

    name = "async"

    def __init__(self, client):
        self.client = client

    def app(self, **options) -> Any:
        return AsyncCounters(self.client, **options)

    def counter(self, path: str) -> Any:
        """A counter that was made without an app."""
        return AsyncCounter(self.client.document(path))

    async def roll_up(self):
        return await roll_up_async(self.client)

    async def commit(self, batch):
        await batch.commit()

    def close(self):
        """There is nothing to close; the client is its fixture's."""


class SyncTwin:
    """The sync twin, its calls made by threads."""

    name = "sync"

    def __init__(self, client):
        self.client = client
        self._threads = ThreadPoolExecutor(SIDE_BY_SIDE, "sync-twin")

    def app(self, **options) -> Any:
        return _App(Counters(self.client, **options), self._threads)

    def counter(self, path: str) -> Any:
        return _Counter(Counter(self.client.document(path)), self._threads)

    async def roll_up(self):
        return await _awaited(self._threads, roll_up, self.client)

    async def commit(self, batch):
        await _awaited(self._threads, batch.commit)

    def close(self):
        self._threads.shutdown()


async def _awaited(threads, function, *arguments, **options):
    call = partial(function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(threads, call)


class _Awaited:
    """A sync object whose methods are awaited; all else of it as it is."""

    def __init__(self, subject, threads):
        self._subject = subject
        self._threads = threads

    def __getattr__(self, name):
        attribute = getattr(self._subject, name)
        return partial(_awaited, self._threads, attribute) if callable(attribute) else attribute


class _Counter(_Awaited):
    @asynccontextmanager
    async def watch(self, callback):
        with self._subject.watch(callback):
            yield


class _App(_Awaited):
    def on(self, parent, name):
        return _Counter(self._subject.on(parent, name), self._threads)

    def at(self, document):
        return _Counter(self._subject.at(document), self._threads)
