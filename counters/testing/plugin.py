"""The pytest plugin: a Firestore emulator, clients and a gateway as fixtures, named ``counters_…``.

pytest loads this module in every run of every project that has the package installed, so it must
cost nothing: no grpc, no google.cloud, until a fixture is asked for.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.cloud.firestore import AsyncClient, Client

    from counters.testing.emulator import Emulator
    from counters.testing.gateway import Gateway

__all__ = [
    "counters_async_client",
    "counters_client",
    "counters_emulator",
    "counters_gateway",
    "counters_gateway_async_client",
    "counters_gateway_client",
    "counters_project",
]


@pytest.fixture(scope="session")
def counters_emulator(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Emulator]:
    """Run one Firestore emulator for the whole session, shared by all workers of pytest-xdist.

    Up within about 2 seconds, once, when the first test wants it. On a machine that has none, tests
    that want it are skipped, or fail when ``CI`` is ``true``: the reason lists what was tried.
    """
    from counters.testing.emulator import Emulator, EmulatorNotFound  # noqa: PLC0415

    directory = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # a worker of pytest-xdist has one of its own
        directory = directory.parent
    with contextlib.ExitStack() as stack:
        try:
            emulator = stack.enter_context(Emulator.shared(directory))
        except EmulatorNotFound as error:
            if os.environ.get("CI", "").lower() == "true":
                pytest.fail(str(error), pytrace=False)
            pytest.skip(str(error))
        yield emulator


@pytest.fixture
def counters_project() -> str:
    """Give each test a project id of its own, so that tests share an emulator but no document."""
    return f"test-{uuid.uuid4().hex[:16]}"


@pytest.fixture
def counters_client(counters_emulator: Emulator, counters_project: str) -> Iterator[Client]:
    """Open a client of the emulator, in the test's project."""
    from counters.testing.clients import open_client  # noqa: PLC0415

    with open_client(counters_emulator.host, counters_project) as client:
        yield client


@pytest.fixture
def counters_async_client(counters_emulator: Emulator, counters_project: str) -> Iterator[AsyncClient]:
    """Open an asynchronous client of the emulator, in the test's project, for one event loop."""
    from counters.testing.clients import open_async_client  # noqa: PLC0415

    with open_async_client(counters_emulator.host, counters_project) as client:
        yield client


@pytest.fixture
def counters_gateway(counters_emulator: Emulator) -> Iterator[Gateway]:
    """Put a gateway of the test's own before the emulator: it counts calls and makes faults."""
    from counters.testing.gateway import Gateway  # noqa: PLC0415

    with Gateway(counters_emulator.host) as gateway:
        yield gateway


@pytest.fixture
def counters_gateway_client(counters_gateway: Gateway, counters_project: str) -> Iterator[Client]:
    """Open a client that goes through the test's gateway, in the test's project."""
    from counters.testing.clients import open_client  # noqa: PLC0415

    with open_client(counters_gateway.host, counters_project) as client:
        yield client


@pytest.fixture
def counters_gateway_async_client(
    counters_gateway: Gateway, counters_project: str
) -> Iterator[AsyncClient]:
    """Open an asynchronous client that goes through the test's gateway, in its project."""
    from counters.testing.clients import open_async_client  # noqa: PLC0415

    with open_async_client(counters_gateway.host, counters_project) as client:
        yield client
