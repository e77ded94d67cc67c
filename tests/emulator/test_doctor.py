"""``counters doctor`` against a real Firestore server: what it finds is what the rollup would find."""

import time

import pytest
import typer
from typer.testing import CliRunner

from counters import Counters, Mirror
from counters.cli.doctor import doctor
from counters.cli.exits import Commands
from counters.cli.health import examine


@pytest.fixture
def counters(db):
    return Counters(db)


@pytest.fixture
def run(counters_emulator, counters_project, monkeypatch):
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", counters_emulator.host)
    app = typer.Typer(cls=Commands)
    app.command()(doctor)
    app.command("other")(lambda: None)  # with one command alone, Typer takes its name away
    return lambda *arguments: CliRunner().invoke(app, ["doctor", counters_project, *arguments])


def test_changes_wait_until_a_run_has_been_there(counters, run):
    assert run().exit_code == 0
    likes = counters.on("posts/a", "likes")
    likes.increment()
    health = examine(counters)
    assert (health.last_run, health.current) == (None, 0)
    assert [waiting.path for waiting in health.waiting] == [likes.path]
    time.sleep(0.3)
    result = run("--staleness", "200ms")
    assert result.exit_code == 1
    assert "none has ever ended" in result.output
    assert likes.path in result.output

    report = counters.roll_up()
    health = examine(counters)
    assert (health.last_run, health.waiting, health.current) == (report.as_of, (), 1)
    assert health.oldest == likes.total().as_of
    result = run("--staleness", "200ms")
    assert (result.exit_code, "Nothing found" in result.output) == (0, True)
    assert "an emulator has none: ask the real service" in result.output


def test_a_change_after_the_last_run_waits_since_it_was_made(counters):
    likes, views = counters.on("posts/a", "likes"), counters.on("posts/a", "views")
    likes.increment()
    views.increment()
    counters.roll_up()
    before = examine(counters).moment
    likes.increment()
    health = examine(counters)
    (waiting,) = health.waiting
    assert waiting.path == likes.path
    assert before < waiting.since <= health.moment
    assert health.current == 1


def test_failures_come_with_their_reason_and_do_not_count_as_waiting(counters, db, run):
    likes = counters.on("posts/a", "likes")
    likes.increment()
    (shard,) = db.document(likes.path).collection("counter_shards").list_documents()
    shard.update({"value": "three"})
    counters.roll_up()
    health = examine(counters)
    assert [failing.path for failing in health.failing] == [likes.path]
    assert health.waiting == ()
    result = run()
    assert result.exit_code == 1
    assert "What keeps totals from moving: failures." in result.output
    assert "no whole number" in " ".join(result.output.split())


def test_a_mirror_that_is_gone_does_not_keep_the_total_from_moving(counters, db, run):
    likes = counters.on("posts/a", "likes")
    likes.create(mirrors=[Mirror(db.document("posts/a"), "likes")])
    likes.increment()
    counters.roll_up()
    assert likes.total().value == 1
    (failing,) = examine(counters).failing
    assert failing.total_moves
    result = run()
    assert result.exit_code == 1
    assert "Totals move; a mirror does not." in result.output


def test_orphans_are_found(counters, db, run):
    likes = counters.on("posts/a", "likes")
    likes.increment()
    db.document(likes.path).delete()
    assert examine(counters).orphans == (likes.path,)
    result = run()
    assert (result.exit_code, likes.path in result.output) == (0, True)


def test_looking_bills_what_it_says(counters_gateway, counters_gateway_client):
    counters = Counters(counters_gateway_client)
    for number in range(3):
        counters.on(f"posts/{number}", "likes").increment()
    counters.roll_up()
    with counters_gateway.measure() as bill:
        health = examine(counters)
    assert (health.reads, bill.reads, bill.writes) == (7, 7, 0)  # the cursor, 3 shards, 3 counters


def test_a_server_that_cannot_be_read_is_said_to_be_so(run, monkeypatch):
    monkeypatch.setattr(
        "counters.cli.doctor.connect", lambda *_: (Counters(_refused(), timeout=0.5), _Nowhere())
    )
    result = run()
    assert result.exit_code == 1
    assert "What keeps totals from moving: database." in result.output


class _Nowhere:
    host = "127.0.0.1:1"


def _refused():
    from counters.testing import open_client  # noqa: PLC0415

    with open_client("127.0.0.1:1", "p") as client:
        return client
