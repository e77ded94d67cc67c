"""``counters demo --faults``: what it shows is what is stored, and it fails if ours is not exact."""

import re

import pytest
from typer.testing import CliRunner

from counters import Counter
from counters.cli import faults
from counters.cli.app import app


@pytest.fixture
def show(host, project, monkeypatch):
    monkeypatch.setattr(faults.compare, "__defaults__", (60,))

    def run():
        runner = CliRunner(env={"FIRESTORE_EMULATOR_HOST": host})
        return runner.invoke(app, ["demo", "--faults", "--project", project])

    return run


def test_the_sdk_counts_lost_answers_twice_and_we_do_not(show):
    result = show()
    assert result.exit_code == 0, result.output
    sdk = re.search(r"SDK +60 +(\d+) +(\d+) +\+(\d+)", result.output)
    lost, stored, more = map(int, sdk.groups())
    assert lost == more == stored - 60 > 5
    assert re.search(r"firestore-counters +60 +\d+ +60 +exact", result.output)


def test_it_fails_if_ours_is_not_exact(show, monkeypatch):
    increment = Counter.increment
    monkeypatch.setattr(Counter, "increment", lambda self: increment(self, 2))
    result = show()
    assert result.exit_code == 1
    assert "120 of 60" in result.output
