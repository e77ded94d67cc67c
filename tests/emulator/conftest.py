"""Fixtures of the tests that need a Firestore server."""

import os

import pytest
from gateway_probes import Meanwhile
from twins import AsyncTwin, SyncTwin


@pytest.fixture
def db(counters_client):
    """The sync client, to arrange what is stored and to look at it without code of ours."""
    return counters_client


@pytest.fixture
def emulator_kind(counters_emulator):
    """Whose emulator it is: ``google``, ``hidane``, or ``external`` if nobody said."""
    return os.environ.get("EMULATOR") or counters_emulator.kind


@pytest.fixture(params=["sync", "async"])
def twin(request):
    """Each twin in turn, straight at the emulator."""
    yield from _twin(request, "counters_client", "counters_async_client")


@pytest.fixture(params=["sync", "async"])
def metered(request):
    """Each twin in turn, through the test's gateway, ``counters_gateway``."""
    yield from _twin(request, "counters_gateway_client", "counters_gateway_async_client")


def _twin(request, sync_client, async_client):
    # Only the client that is wanted is made: neither is cheap.
    if request.param == "sync":
        twin = SyncTwin(request.getfixturevalue(sync_client))
    else:
        twin = AsyncTwin(request.getfixturevalue(async_client))
    yield twin
    twin.close()


@pytest.fixture
def meanwhile(counters_gateway):
    """Let something happen just before the ``nth`` call of a method, from now on, is delivered.

    The test fails if it did not happen, or went wrong: what it shows would be something else.
    """
    scripted = []

    def let(act, *, before, nth=1):
        scripted.append(Meanwhile(before, act=act, nth=nth))
        counters_gateway.script(scripted[-1])

    yield let
    for fault in scripted:
        assert len(fault.outcomes) == 1, f"{fault} should have struck once"
        assert not isinstance(fault.outcomes[0], Exception), fault.outcomes
