"""``counters replay``: a user's own rows, counted exactly; cut short, it can be finished."""

import os
import re

import pytest
from running import Running, comes, descendants, gone
from typer.testing import CliRunner

from counters import Counters
from counters.cli import replay as command
from counters.cli.app import app

SHOPS = ("--counter", "shops/{shop}/counters/cds", "--amount", "cds")


@pytest.fixture
def replay(counters_emulator, counters_project):
    """Run a replay on the test's own project."""

    def replay(file, *args):
        arguments = ["replay", str(file), "--project", counters_project, "--writers", "1", *args]
        return CliRunner(env={"FIRESTORE_EMULATOR_HOST": counters_emulator.host}).invoke(app, arguments)

    return replay


@pytest.fixture
def sales(tmp_path):
    file = tmp_path / "sales.csv"
    file.write_text("shop,day,cds\nnorth,1,3\nsouth,1,2\nnorth,2,-1\nsüd & ost,2,0\n")
    return file


def count_of(client, path):
    counter = Counters(client).at(client.document(path))
    return counter.value(), counter.total().value


def test_every_row_counts_on_every_counter_that_is_asked_for(replay, sales, counters_client):
    ended = replay(sales, *SHOPS, "--counter", "days/{day}/counters/cds")
    assert ended.exit_code == 0, ended.output
    assert count_of(counters_client, "shops/north/counters/cds") == (2, 2)
    assert count_of(counters_client, "shops/south/counters/cds") == (2, 2)
    assert count_of(counters_client, "days/1/counters/cds") == (5, 5)
    assert count_of(counters_client, "days/2/counters/cds") == (-1, -1)
    assert ended.stdout.endswith("every row was counted exactly once\n")


def test_json_lines_count_one_a_row_without_an_amount(replay, tmp_path, counters_client):
    file = tmp_path / "events.jsonl"
    file.write_text('{"uid": "zoë", "n": 5}\n{"uid": "zoë"}\n{"uid": 7}\n')
    ended = replay(file, "--counter", "users/{uid}/counters/events")
    assert ended.exit_code == 0, ended.output
    assert count_of(counters_client, "users/zoë/counters/events") == (2, 2)
    assert count_of(counters_client, "users/7/counters/events") == (1, 1)


def test_what_was_there_before_is_not_counted_as_ours(replay, sales, counters_client):
    Counters(counters_client).on("shops/north", "cds").create(initial=1000)
    ended = replay(sales, *SHOPS)
    assert ended.exit_code == 0, ended.output
    assert count_of(counters_client, "shops/north/counters/cds") == (1002, 1002)


def test_new_counters_get_as_many_shards_as_are_asked_for(replay, sales, db):
    db.document("shops/north/counters/cds").set({"layout": 1, "shards": 7})
    assert replay(sales, *SHOPS, "--shards", "2").exit_code == 0
    assert db.document("shops/north/counters/cds").get().get("shards") == 7
    assert db.document("shops/south/counters/cds").get().get("shards") == 2


def test_without_rollup_values_are_proved_and_totals_left_alone(replay, sales, counters_client):
    ended = replay(sales, *SHOPS, "--no-rollup")
    assert ended.exit_code == 0, ended.output
    assert count_of(counters_client, "shops/north/counters/cds") == (2, None)


def test_a_count_that_somebody_else_changed_meanwhile_shows_and_fails(replay, sales, monkeypatch):
    def somebody_else(counters, ours):
        counters.on("shops/north", "cds").increment()
        last_rollup(counters, ours)

    last_rollup = command._last_rollup
    monkeypatch.setattr(command, "_last_rollup", somebody_else)
    ended = replay(sales, *SHOPS)
    assert ended.exit_code == 1
    assert re.search(r"shops/north/counters/cds +2 +3 +3 +DIFFERENT", ended.stdout)
    assert "1 of 2 counters are not as expected" in ended.stderr


def test_a_row_that_fails_stops_it_and_what_is_left_can_be_replayed(replay, sales, db):
    foreign = db.document("shops/north/counters/cds")
    foreign.set({"layout": 99})
    ended = replay(sales, *SHOPS)
    assert ended.exit_code == 1
    assert "layout 99" in ended.stderr
    assert "cut short: counted 0 rows" in ended.stderr
    rest = sales.with_name("sales.rest.csv")
    assert rest.read_text() == "shop,day,cds\nnorth,1,3\nsouth,1,2\nnorth,2,-1\nsüd & ost,2,0\n"

    foreign.delete()
    assert replay(rest, *SHOPS).exit_code == 0
    assert count_of(db, "shops/north/counters/cds") == (2, 2)


def test_ctrl_c_says_what_was_counted_and_the_rest_can_be_replayed(
    replay, counters_emulator, counters_project, counters_client, tmp_path
):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n": 1}\n' * 20_000)
    arguments = ["replay", str(file), "--counter", "some/counter", "--project", counters_project]
    environ = {**os.environ, "FIRESTORE_EMULATOR_HOST": counters_emulator.host}
    with Running(*arguments, "--writers", "2", env=environ) as running:
        running.read_until(" of 20,000 rows")
        assert comes(lambda: count_of(counters_client, "some/counter")[0] >= 10)
        children = descendants(running.pid)
        running.interrupt()
        said = running.rest()
        assert running.wait() == 130
    assert gone(children)
    counted = int(re.search(r"cut short: counted ([\d,]+) rows?", said)[1].replace(",", ""))
    assert count_of(counters_client, "some/counter")[0] == counted
    rest = file.with_name("rows.rest.jsonl")
    left = rest.read_text().splitlines(keepends=True)
    assert len(left) == 20_000 - counted

    rest.write_text("".join(left[:50]))
    finished = replay(rest, "--counter", "some/counter")
    assert finished.exit_code == 0, finished.output
    assert count_of(counters_client, "some/counter") == (counted + 50, counted + 50)
