"""functions/main.py served as a container serves it, against a real Firestore server."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import pytest

from counters import Counters
from counters.testing import HeldBack

MAIN = Path(__file__).parents[2] / "functions" / "main.py"
POST, GET = "POST", "GET"


class Container:
    """``functions-framework`` serving one target, with the settings of a test."""

    def __init__(self, log, host, project, **settings):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "functions_framework", "--target", "rollup_http"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **{
                        name: value
                        for name, value in os.environ.items()
                        if not name.startswith("COUNTERS_")
                    },
                    "FUNCTION_SOURCE": str(MAIN),
                    "PORT": str(port),
                    "HOST": "127.0.0.1",
                    "FIRESTORE_EMULATOR_HOST": host,
                    "GOOGLE_CLOUD_PROJECT": project,
                    **{f"COUNTERS_{name.upper()}": str(value) for name, value in settings.items()},
                },
            )

    def wait_until_up(self):
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port()), 1):
                return
            time.sleep(0.05)
        raise AssertionError(f"functions-framework did not start:\n{self._log.read_text()}")

    def _port(self):
        return int(self.url.rsplit(":", 1)[1])

    def call(self, method=POST, timeout=60):
        """Status, headers and body of the answer, whatever its status."""
        request = urllib.request.Request(self.url, method=method, data=b"" if method == POST else None)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.headers, refusal.read().decode()

    def runs(self):
        """The log lines of the runs so far."""
        lines = self._log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"severity"')]

    def wait_for_runs(self, number):
        wait_until(lambda: len(self.runs()) >= number or self.process.poll() is not None)
        assert len(self.runs()) >= number, self._log.read_text()

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def serve(tmp_path, counters_project):
    """Start ``functions-framework`` against a Firestore server; all of them end with the test."""
    containers = []

    def start(host, **settings):
        container = Container(tmp_path / f"log-{len(containers)}", host, counters_project, **settings)
        containers.append(container)
        container.wait_until_up()
        return container

    yield start
    for container in containers:
        container.end()


@pytest.fixture
def counters(db):
    return Counters(db)


@contextlib.contextmanager
def writing(counter):
    """Increment in the background until the block ends; in the end the list has how often."""
    over = threading.Event()
    written = []

    def write():
        number = 0
        while not over.is_set():
            counter.increment()
            number += 1
        return number

    with ThreadPoolExecutor(1) as thread:
        writer = thread.submit(write)
        try:
            yield written
        finally:
            over.set()
        written.append(writer.result())


def test_two_callers_at_once_get_exact_totals_and_as_of_never_goes_back(serve, counters, counters_emulator):
    likes = [counters.on(f"posts/{number}", "likes") for number in range(20)]
    for number, counter in enumerate(likes):
        counter.increment(number + 1)
    container = serve(counters_emulator.host)

    # One counter is written to all the while, so that overlapping runs have the same one to write.
    with ThreadPoolExecutor(2) as callers, writing(likes[0]) as written:
        seen = []
        for _ in range(3):
            calls = [callers.submit(container.call) for _ in range(2)]
            while not all(call.done() for call in calls):
                seen.append(likes[0].total())
            assert [call.result()[0] for call in calls] == [200, 200]
    assert container.call()[0] == 200

    assert likes[0].total().value == 1 + written[0] == likes[0].value()
    assert [counter.total().value for counter in likes[1:]] == list(range(2, 21))
    moments = [total.as_of for total in seen if total.as_of]
    assert moments == sorted(moments)
    assert len(set(moments)) > 1
    assert {run["severity"] for run in container.runs()} == {"INFO"}
    assert len(container.runs()) == 7


def test_what_is_no_post_is_refused_and_runs_nothing(serve, counters_emulator):
    container = serve(counters_emulator.host)
    status, headers, body = container.call(GET)
    assert (status, headers["Allow"]) == (405, "POST")
    assert "POST" in body
    assert container.runs() == []


def test_the_caller_gets_the_log_line_and_it_says_what_was_done_and_billed(
    serve, counters, counters_gateway
):
    counters.on("posts/a", "likes").increment()
    container = serve(counters_gateway.host)
    with counters_gateway.measure() as bill:
        status, headers, body = container.call()
    (run,) = container.runs()
    assert (status, headers["Content-Type"]) == (200, "application/json")
    # The same but for the moment of looking at the clock.
    assert {**json.loads(body), "lag_seconds": 0, "message": ""} == {**run, "lag_seconds": 0, "message": ""}
    assert (run["counters"], run["shards"], run["failed"], run["orphans"]) == (1, 1, 0, 0)
    assert (run["reads"], run["writes"]) == (bill.reads, bill.writes)
    assert run["message"].startswith("1 total written from 1 changed shard (")
    assert datetime.fromisoformat(run["as_of"]) == counters.on("posts/a", "likes").total().as_of


def test_a_counter_that_fails_is_an_error_to_the_caller_when_the_others_have_their_totals(
    serve, counters, db, counters_emulator
):
    good, bad = counters.on("posts/good", "likes"), counters.on("posts/bad", "likes")
    good.increment()
    bad.increment()
    (shard,) = db.document(bad.path).collection("counter_shards").list_documents()
    shard.update({"value": "three"})
    container = serve(counters_emulator.host)

    assert container.call()[0] == 500
    assert good.total().value == 1
    (run,) = container.runs()
    assert (run["severity"], run["counters"], run["failed"]) == ("ERROR", 1, 1)
    assert run["failures"][0]["counter"] == bad.path
    assert run["failures"][0]["error"] == "CorruptShard"

    shard.update({"value": 3})
    assert container.call()[0] == 200
    assert bad.total().value == 3


def test_an_invocation_that_lasts_runs_as_often_as_fits_and_then_ends(serve, counters, counters_emulator):
    likes = counters.on("posts/a", "likes")
    container = serve(counters_emulator.host, every=1, lasting=6)
    with writing(likes) as written:
        assert container.call()[0] == 200
    runs = container.runs()
    # At 0, 1, … 5 s, if none takes longer than a second; a seventh would not end in time.
    assert 2 <= len(runs) <= 6
    # Each found changes, and covers a later moment.
    assert all(run["counters"] == 1 for run in runs[1:])
    assert all(one["as_of"] < next_one["as_of"] for one, next_one in pairwise(runs))
    counters.roll_up()
    assert likes.total().value == written[0]


@pytest.mark.proof
def test_with_every_5_totals_are_about_5_seconds_old_at_most_while_writers_write(
    serve, counters, counters_emulator
):
    likes = counters.on("posts/a", "likes")
    likes.increment()
    container = serve(counters_emulator.host, every=5, lasting=20)
    ages = []
    with writing(likes), ThreadPoolExecutor(1) as caller:
        call = caller.submit(container.call)
        container.wait_for_runs(1)
        while not call.done():
            time.sleep(0.1)
            ages.append((datetime.now(timezone.utc) - likes.total().as_of).total_seconds())
        assert call.result()[0] == 200
    assert len(container.runs()) == 4  # at 0, 5, 10 and 15 s; one at 20 would not end in time
    assert 4 < max(ages) < 6


def test_sigterm_ends_an_invocation_early_in_order_and_loses_nothing(serve, counters, counters_emulator):
    likes = counters.on("posts/a", "likes")
    container = serve(counters_emulator.host, every=1, lasting=90)
    with writing(likes) as written, ThreadPoolExecutor(1) as caller:
        call = caller.submit(container.call)
        container.wait_for_runs(2)
        container.process.send_signal(signal.SIGTERM)
        status, _, body = call.result()
        assert container.process.wait(30) == 0
    # Its answer is the last run's, as at any other end.
    assert (status, json.loads(body)["as_of"]) == (200, container.runs()[-1]["as_of"])
    assert len(container.runs()) < 10

    counters.roll_up()
    assert likes.total().value == written[0]


def test_a_container_killed_in_the_middle_of_a_run_loses_nothing(serve, counters, counters_gateway):
    likes = [counters.on(f"posts/{number}", "likes") for number in range(3)]
    for counter in likes:
        counter.increment(5)
    container = serve(counters_gateway.host)
    counters_gateway.script(HeldBack("Commit", nth=2, code=None))
    with ThreadPoolExecutor(1) as caller:
        call = caller.submit(container.call)
        wait_until(lambda: counters_gateway.held)
        container.end()
        assert isinstance(call.exception(), OSError)
    assert container.runs() == []

    assert serve(counters_gateway.host).call()[0] == 200
    totals = [counter.total() for counter in likes]
    assert [total.value for total in totals] == [5, 5, 5]
    # What the dead one had sent arrives after all, and changes nothing.
    counters_gateway.release()
    assert [counter.total() for counter in likes] == totals
