"""Firestore clients of a given host, closed when their block ends."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.cloud.firestore import AsyncClient, Client

__all__ = ["open_async_client", "open_client"]

_HOST = "FIRESTORE_EMULATOR_HOST"
_environment = threading.Lock()


@contextlib.contextmanager
def open_client(host: str, project: str, database: str | None = None) -> Iterator[Client]:
    """Make a client of the emulator or gateway at ``host``, and close it in the end.

    Needs no credentials, and sends nothing. ``database`` is the id of a named database.
    """
    from google.cloud.firestore import Client  # noqa: PLC0415 - takes most of a second

    with _emulator_host(host):
        client = Client(project=project, database=database)
    try:
        yield client
    finally:
        _close(client)


@contextlib.contextmanager
def open_async_client(host: str, project: str, database: str | None = None) -> Iterator[AsyncClient]:
    """Make an asynchronous client, as :func:`open_client` makes a synchronous one.

    No event loop is needed to enter or leave; the client belongs to that of its first call.
    """
    from google.cloud.firestore import AsyncClient  # noqa: PLC0415 - takes most of a second

    with _emulator_host(host):
        client = AsyncClient(project=project, database=database)
        # The synchronous client that its BulkWriter and recursive_delete use, and make on demand:
        # later it would find no emulator in the environment, and go to production.
        copy = client._to_sync_copy()  # type: ignore[no-untyped-call] # noqa: SLF001
    try:
        yield client
    finally:
        _close(copy)
        if client._firestore_api_internal is not None:  # noqa: SLF001 - clients have no close()
            closing = client._firestore_api_internal.transport.close()  # noqa: SLF001
            # Without a grace period it waits for nothing, so that one step is all of it, in no
            # loop: the client's own may be closed.
            with contextlib.suppress(StopIteration):
                closing.send(None)
            closing.close()


def _close(client: Client) -> None:
    if client._firestore_api_internal is not None:  # noqa: SLF001 - clients have no close()
        client._firestore_api_internal.transport.close()  # noqa: SLF001


@contextlib.contextmanager
def _emulator_host(host: str) -> Iterator[None]:
    """Set ``FIRESTORE_EMULATOR_HOST``, which a client reads once, when it is made."""
    with _environment:
        before = os.environ.get(_HOST)
        os.environ[_HOST] = host
        try:
            yield
        finally:
            if before is None:
                del os.environ[_HOST]
            else:
                os.environ[_HOST] = before
