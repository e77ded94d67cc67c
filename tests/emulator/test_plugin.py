"""The plugin's fixtures, before a real emulator."""

import asyncio
import os

import pytest


def test_the_client_reads_what_it_wrote(counters_client):
    document = counters_client.document("a/b")
    document.set({"n": 1})
    assert document.get().to_dict() == {"n": 1}


async def test_the_asynchronous_client_reads_what_it_wrote(counters_async_client):
    document = counters_async_client.document("a/b")
    await document.set({"n": 1})
    assert (await document.get()).to_dict() == {"n": 1}


def test_the_asynchronous_client_needs_no_plugin_for_asyncio(counters_async_client):
    async def main():
        document = counters_async_client.document("a/b")
        await document.set({"n": 1})
        return (await document.get()).to_dict()

    assert asyncio.run(main()) == {"n": 1}


async def test_the_asynchronous_client_deletes_recursively_on_the_emulator(counters_async_client):
    # Its bulk writer is a synchronous client that the SDK makes from the environment of then.
    document = counters_async_client.document("a/b/c/d")
    await document.set({"n": 1})
    deleted = await counters_async_client.recursive_delete(counters_async_client.document("a/b"))
    assert deleted == 2
    assert not (await document.get()).exists


@pytest.mark.parametrize("_", range(3))
def test_each_test_finds_an_empty_database(counters_client, _):
    assert list(counters_client.collections()) == []
    counters_client.document("a/b").set({"n": 1})


async def test_all_clients_of_a_test_see_one_database(
    counters_client,
    counters_async_client,
    counters_gateway_client,
    counters_gateway_async_client,
    counters_project,
):
    counters_client.document("a/b").set({"n": 1})
    assert (await counters_async_client.document("a/b").get()).to_dict() == {"n": 1}
    assert counters_gateway_client.document("a/b").get().to_dict() == {"n": 1}
    assert (await counters_gateway_async_client.document("a/b").get()).to_dict() == {"n": 1}
    assert counters_client.project == counters_project


def test_making_a_client_leaves_the_environment_as_it_was(request, monkeypatch):
    for before in (None, "elsewhere:8080"):
        if before:
            monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", before)
        request.getfixturevalue("counters_client" if before else "counters_async_client")
        assert os.environ.get("FIRESTORE_EMULATOR_HOST") == before


def test_it_says_which_emulator_it_is(counters_emulator):
    assert counters_emulator.kind in ("google", "hidane", "external")
    wanted = os.environ.get("EMULATOR")
    assert counters_emulator.kind in (wanted or counters_emulator.kind, "external")
