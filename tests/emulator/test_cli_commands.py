"""The commands that look at counters and tend them, against a real server."""

import json
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from counters import Counters
from counters.cli.app import app
from counters.cli.reading import read

LIKES = "posts/a91f/counters/likes"


@pytest.fixture
def invoke(counters_emulator, counters_project, monkeypatch):
    """Run a command on the test's own project."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", counters_emulator.host)

    def invoke(*args):
        return CliRunner().invoke(app, [*args, "--project", counters_project])

    return invoke


def shown(invoke, path=LIKES, *args):
    ended = invoke("show", path, "--json", *args)
    return json.loads(ended.stdout)


def test_what_is_incremented_is_shown_and_rolled_up(invoke):
    assert invoke("increment", LIKES).exit_code == 0
    assert invoke("increment", LIKES, "--by", "-4").exit_code == 0
    before = shown(invoke)
    assert (before["value"], before["total"], before["staleness_seconds"]) == (-3, None, None)
    assert sum(shard["writes"] for shard in before["shards"]) == 2

    rolled_up = invoke("rollup")
    assert rolled_up.exit_code == 0
    assert "  1 total from " in rolled_up.stdout
    after = shown(invoke)
    assert (after["value"], after["total"]) == (-3, -3)
    assert after["staleness_seconds"] > 0


def test_show_tells_everything_for_people_too(invoke, db):
    likes = Counters(db).on("posts/a91f", "likes")
    likes.create(shards=3, initial=1000)
    likes.increment(234)
    ended = invoke("show", LIKES)
    assert ended.exit_code == 0
    assert "1,234" in ended.stdout
    assert "no rollup yet" in ended.stdout
    assert "1,000" in ended.stdout


def test_show_names_a_damaged_shard_and_shows_the_others(invoke, db):
    db.document(LIKES).set({"layout": 1, "shards": 2})
    db.document(f"{LIKES}/counter_shards/0").set({"value": "seven"})
    db.document(f"{LIKES}/counter_shards/1").set({"value": 5})
    ended = invoke("show", LIKES)
    assert ended.exit_code == 1
    assert f"{LIKES}/counter_shards/0 is 'seven'" in ended.stderr
    assert "cannot be known" in ended.stdout
    told = shown(invoke)
    assert told["value"] is None
    assert [shard["value"] for shard in told["shards"]] == [None, 5]


def test_show_finds_the_orphans_of_a_deleted_counter(invoke, db):
    db.document(f"{LIKES}/counter_shards/3").set({"value": 5})
    ended = invoke("show", LIKES)
    assert ended.exit_code == 0
    assert "orphans" in ended.stdout
    assert shown(invoke)["settings"] is None


def test_show_orders_shards_by_number(invoke, db):
    for shard in ("10", "9", "x", "0"):
        db.document(f"{LIKES}/counter_shards/{shard}").set({"value": 1})
    assert [shard["id"] for shard in shown(invoke)["shards"]] == ["0", "9", "10", "x"]


def test_show_of_nothing_fails(invoke):
    ended = invoke("show", LIKES)
    assert ended.exit_code == 1
    assert f"there is no counter at {LIKES}" in ended.stderr


@pytest.mark.parametrize("shards", [0, 3, 300, 301])
def test_show_tells_what_looking_cost(counters_gateway, counters_gateway_client, shards):
    counters = Counters(counters_gateway_client)
    likes = counters.on("posts/a91f", "likes")
    batch = counters_gateway_client.batch()
    for shard in range(shards):
        batch.set(counters_gateway_client.document(f"{LIKES}/counter_shards/{shard}"), {"value": 1})
    batch.commit()
    with counters_gateway.measure() as bill:
        reading = read(counters, likes)
    assert (reading.value, reading.reads) == (shards, bill.reads)
    assert bill.writes == 0


def test_a_named_database_is_another_database(invoke):
    assert invoke("increment", LIKES, "--database", "second").exit_code == 0
    assert invoke("show", LIKES).exit_code == 1
    assert shown(invoke, LIKES, "--database", "second")["value"] == 1


def test_a_rollup_that_could_not_write_a_total_fails_and_names_the_counter(invoke, db):
    assert invoke("increment", LIKES).exit_code == 0
    (shard,) = db.collection(f"{LIKES}/counter_shards").list_documents()
    shard.update({"value": "seven"})
    ended = invoke("rollup")
    assert ended.exit_code == 1
    assert f"{LIKES}: " in ended.stderr


def test_rollup_every_so_often_goes_on_until_ctrl_c(invoke, monkeypatch):
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("counters.cli.rollup._pause", pause)
    assert invoke("increment", LIKES).exit_code == 0
    ended = invoke("rollup", "--every", "250ms")
    assert ended.exit_code == 130
    assert pauses == [0.25, 0.25, 0.25]
    assert [
        "  1 total from " in line or "  0 totals from " in line for line in ended.stdout.splitlines()
    ] == [False, True, True, True]


def test_emulator_start_runs_one_until_ctrl_c_and_ends_it(counters_emulator, monkeypatch):
    # The running one is no reason not to start another.
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", counters_emulator.host)
    command = [sys.executable, "-m", "counters.cli", "emulator", "start", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        _, export = process.stdout.readline(), process.stdout.readline()
        variable, host = export.removeprefix("export ").strip().split("=")
        assert variable == "FIRESTORE_EMULATOR_HOST"
        assert host != counters_emulator.host
        monkeypatch.setenv(variable, host)
        assert CliRunner().invoke(app, ["increment", LIKES, "--project", "p"]).exit_code == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    ended = CliRunner().invoke(app, ["increment", LIKES, "--project", "p"])
    assert "no emulator listens" in ended.stderr
