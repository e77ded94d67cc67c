"""One emulator, one gateway and one client of each kind for all these tests; a counter for each.

``make proof`` runs the matrix on both emulators, ``make test`` on the first that is found.
"""

import asyncio
import contextlib
import itertools
import os
import uuid

import pytest
from callers import AsyncCaller, SyncCaller
from hypothesis import settings

from counters.testing import Emulator, Gateway, find_emulator, open_async_client, open_client

settings.register_profile("faults", deadline=None, print_blob=True)
settings.load_profile("faults")

_numbers = itertools.count()


def pytest_collection_modifyitems(config, items):
    """Leave out what is for ``make proof`` on the first emulator found: it runs on both by name."""
    twice = [
        item
        for item in items
        if item.get_closest_marker("proof")
        and getattr(item, "callspec", None)
        and item.callspec.params.get("host") == "first found"
    ]
    config.hook.pytest_deselected(items=twice)
    items[:] = [item for item in items if item not in set(twice)]


@pytest.fixture(
    scope="session",
    params=[
        "first found",
        pytest.param("google", marks=pytest.mark.proof),
        pytest.param("hidane", marks=pytest.mark.proof),
    ],
)
def host(request):
    """Where the emulator is."""
    if request.param == "first found":
        yield request.getfixturevalue("counters_emulator").host
        return
    environ = {key: value for key, value in os.environ.items() if key != "FIRESTORE_EMULATOR_HOST"}
    with Emulator(find_emulator(environ | {"EMULATOR": request.param})) as emulator:
        yield emulator.host


@pytest.fixture(scope="session")
def project():
    return f"faults-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def open_gateway(host):
    with Gateway(host) as gateway:
        yield gateway


@pytest.fixture
def gateway(open_gateway):
    """The gateway, without faults before and after the test."""
    open_gateway.calm()
    yield open_gateway
    open_gateway.calm()
    open_gateway.release()


@pytest.fixture(scope="session")
def db(host, project):
    """A client that no fault meets."""
    with open_client(host, project) as client:
        yield client


@pytest.fixture(scope="session")
def callers(open_gateway, project):
    with contextlib.ExitStack() as stack:
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        yield {
            "sync": SyncCaller(stack.enter_context(open_client(open_gateway.host, project))),
            "async": AsyncCaller(stack.enter_context(open_async_client(open_gateway.host, project)), loop),
        }


@pytest.fixture(params=["sync", "async"])
def caller(request, callers):
    """Each twin in turn, through the gateway."""
    return callers[request.param]


@pytest.fixture
def post():
    """A document of the test's own."""
    return f"posts/p{os.getpid()}-{next(_numbers)}"
