"""What an invocation decides, without a server: when it runs again, what it logs, what it raises."""

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import flask
import pytest
import yaml
from firebase_functions import params
from firebase_functions.private import serving

from counters import InvalidValue, ReadFailed, RollupFailure, RollupReport, functions
from counters.functions import Pace, RollupIncomplete, Settings, entry_of, http_rollup, scheduled_rollup

FUNCTIONS = Path(__file__).parents[2] / "functions"
AS_OF = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
DATABASE = "projects/p/databases/(default)"
FAILURE = RollupFailure("posts/a/counters/likes", ReadFailed("no answer"))


def report(**fields):
    plain = {"counters": 20, "shards": 173, "orphans": (), "failed": (), "reads": 214, "writes": 21}
    return RollupReport(**{**plain, "seconds": 0.4123, "as_of": AS_OF, **fields})


class Rollups:
    """In place of ``Counters``: answers with the given reports and errors, one a run."""

    def __init__(self, *outcomes):
        self.client = SimpleNamespace(_database_string=DATABASE)
        self._outcomes = list(outcomes)
        self.runs = 0

    def roll_up(self):
        self.runs += 1
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def rollups(monkeypatch):
    """Let all invocations of the test meet these outcomes; pauses take no time."""

    def prepare(*outcomes):
        rollups = Rollups(*outcomes)
        monkeypatch.setattr(functions, "_counters_of", lambda _database: rollups)
        monkeypatch.setattr(functions, "_sleep", lambda _seconds: rollups.runs < len(outcomes))
        return rollups

    return prepare


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def request(method):
    return flask.Flask("test").test_request_context(method=method)


@pytest.mark.parametrize(
    ("last", "now", "pause"),
    [
        (0, 1, 4),  # a run of 1 s: the next 5 s after its start
        (0, 7, 0),  # a run of 7 s: the next at once
        (50, 51, 4),
        (54, 55, 4),  # starts at 59 and ends at 60
        (55, 56, None),  # would end at 61
        (50, 55.5, None),  # as long as the last, it would end at 61
        (0, 61, None),
    ],
)
def test_the_next_run_starts_every_5_s_as_long_as_it_ends_in_time(last, now, pause):
    assert Pace(every=5, lasting=60).pause(1000, 1000 + last, 1000 + now) == pause


def test_without_every_there_is_one_run(rollups):
    assert Pace(every=0, lasting=60).pause(0, 0, 0.1) is None
    runs = rollups(report(), report())
    http_rollup()(SimpleNamespace(method="POST"))
    assert runs.runs == 1


def test_a_run_is_logged_in_one_line_with_what_it_did_how_far_behind_it_is_and_what_it_cost(
    rollups, capsys
):
    rollups(report())
    http_rollup()(SimpleNamespace(method="POST"))
    (line,) = lines(capsys)
    lag = line.pop("lag_seconds")
    assert lag > 0
    assert line == {
        "severity": "INFO",
        "message": f"20 totals written from 173 changed shards ({lag:.1f} s behind, 214 reads, 21 writes)",
        "job": "rollup",
        "database": DATABASE,
        "counters": 20,
        "shards": 173,
        "orphans": 0,
        "orphan_paths": [],
        "failed": 0,
        "failures": [],
        "reads": 214,
        "writes": 21,
        "seconds": 0.412,
        "as_of": "2026-11-30T12:00:00+00:00",
    }


def test_the_lag_is_from_the_moment_of_the_totals_to_now():
    entry = entry_of(report(), DATABASE, AS_OF + timedelta(seconds=7.25))
    assert entry["lag_seconds"] == 7.25
    assert "(7.2 s behind" in entry["message"]


def test_orphans_are_a_warning_and_failures_an_error_which_the_message_names():
    orphaned = report(orphans=("posts/gone/counters/likes",))
    assert entry_of(orphaned, DATABASE, AS_OF)["severity"] == "WARNING"
    assert "1 orphan " in entry_of(orphaned, DATABASE, AS_OF)["message"]
    failed = entry_of(report(orphans=orphaned.orphans, failed=(FAILURE,)), DATABASE, AS_OF)
    assert failed["severity"] == "ERROR"
    assert "1 counter failed, first posts/a/counters/likes: no answer" in failed["message"]
    assert failed["failures"] == [
        {"counter": "posts/a/counters/likes", "error": "ReadFailed", "message": "no answer"}
    ]


def test_a_log_line_counts_all_and_names_10_so_that_it_stays_below_cloud_loggings_256_kb():
    worst = RollupFailure("p/" * 3000, ReadFailed("e" * 1000))
    entry = entry_of(report(failed=(worst,) * 9000, orphans=("p/" * 3000,) * 8000), DATABASE, AS_OF)
    assert (entry["failed"], entry["orphans"]) == (9000, 8000)
    assert (len(entry["failures"]), len(entry["orphan_paths"])) == (10, 10)
    assert len(json.dumps(entry)) < 256_000


def test_an_error_of_a_whole_run_is_logged_and_escapes_at_once(rollups, capsys):
    runs = rollups(report(), ReadFailed("no answer within 30 s"), report())
    with pytest.raises(ReadFailed):
        http_rollup(Settings(every=5))(SimpleNamespace(method="POST"))
    assert runs.runs == 2
    failed = lines(capsys)[1]
    assert failed.pop("seconds") >= 0
    assert failed == {
        "severity": "ERROR",
        "message": "the rollup failed: ReadFailed: no answer within 30 s",
        "job": "rollup",
        "database": DATABASE,
        "error": "ReadFailed",
    }


def test_counters_that_failed_are_raised_at_the_end_of_the_invocation(rollups):
    runs = rollups(report(), report(), report(failed=(FAILURE,)))
    with pytest.raises(RollupIncomplete, match="posts/a/counters/likes: no answer"):
        http_rollup(Settings(every=5))(SimpleNamespace(method="POST"))
    assert runs.runs == 3


def test_a_failure_that_a_later_run_of_the_invocation_mended_is_logged_but_not_raised(rollups, capsys):
    rollups(report(failed=(FAILURE,)), report())
    assert http_rollup(Settings(every=5))(SimpleNamespace(method="POST")).status_code == 200
    assert [line["severity"] for line in lines(capsys)] == ["ERROR", "INFO"]


def test_only_post_runs_a_scheduled_function_so_that_a_health_probe_does_not(rollups):
    runs = rollups(report(), report())
    rollup = scheduled_rollup()
    with request("GET") as probe:
        assert rollup(probe.request).status_code == 200
    assert runs.runs == 0
    with request("POST") as call:
        assert rollup(call.request).status_code == 200
    assert runs.runs == 1


def test_the_scheduler_sees_what_fails(rollups):
    rollups(report(failed=(FAILURE,)))
    with request("POST") as call:
        answer = scheduled_rollup()(call.request)
    assert answer.status_code == 500
    assert "posts/a/counters/likes" in answer.get_data(as_text=True)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_the_http_function_refuses_all_but_post(method, rollups):
    runs = rollups(report())
    answer = http_rollup()(SimpleNamespace(method=method))
    assert (answer.status_code, answer.headers["Allow"], runs.runs) == (405, "POST", 0)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"every": -1}, "`every` is -1"),
        ({"every": 5, "timeout": 60}, "set `timeout` to 90 or more"),
        ({"every": 5, "lasting": 540, "timeout": 540}, "set `timeout` to 570 or more"),
    ],
)
def test_settings_that_no_invocation_could_keep_to_are_refused_when_functions_are_loaded(settings, why):
    with pytest.raises(InvalidValue, match=why):
        Settings(**settings)


def test_without_every_the_timeout_may_be_short():
    assert Settings(timeout=30).every == 0


def test_a_shutdown_is_seen_through_the_handler_of_the_server_and_ends_a_pause_at_once(monkeypatch):
    server = SimpleNamespace(alive=True)
    server.handle_exit = type("Worker", (), {"alive": True, "handle": lambda *_: None})()
    monkeypatch.setattr(signal, "getsignal", lambda _signal: server.handle_exit.handle)
    assert functions._sleep(0) is True
    server.handle_exit.alive = False
    assert functions._sleep(3600) is False


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN, None, print])
def test_under_any_other_server_there_is_no_shutdown_to_be_seen(monkeypatch, handler):
    monkeypatch.setattr(signal, "getsignal", lambda _signal: handler)
    assert functions._sleep(0) is True


def test_two_lines_declare_no_parameter_and_can_be_deployed_without_env_files(monkeypatch):
    monkeypatch.setattr(params, "_params", {})
    manifest = yaml.safe_load(serving.functions_as_yaml({"rollup": scheduled_rollup()}))
    assert manifest["params"] == []
    assert manifest["endpoints"]["rollup"] == {
        "entryPoint": "rollup",
        "platform": "gcfv2",
        "scheduleTrigger": {"schedule": "* * * * *", "timeZone": "UTC", "retryConfig": {"retryCount": 0}},
        "region": ["us-central1"],
        "availableMemoryMb": 512,
        "cpu": "gcf_gen1",
        "timeoutSeconds": 120,
        "maxInstances": 1,
        "concurrency": 1,
        "minInstances": None,
        "ingressSettings": None,
        "serviceAccountEmail": None,
        "secretEnvironmentVariables": [],
        "labels": {},
    }


def test_a_second_database_gets_a_function_with_another_name():
    archive = scheduled_rollup(Settings(database="archive"), name="rollup_archive")
    assert archive.__firebase_endpoint__.entryPoint == archive.__name__ == "rollup_archive"


LOAD = """
import google.auth
import google.cloud.firestore
from firebase_functions.private import serving

def refuse(*_, **__):
    raise AssertionError("a client was made while functions were loaded")

google.cloud.firestore.Client.__init__ = google.auth.default = refuse
print(serving.functions_as_yaml(serving.get_functions()))
"""


def manifest_of_main(**environ):
    """What firebase-tools gets to see when it loads functions/, in a process without credentials."""
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            LOAD,
        ],
        cwd=FUNCTIONS,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(FUNCTIONS.parent), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr
    return yaml.safe_load(loaded.stdout)


@pytest.fixture(scope="module")
def manifest():
    return manifest_of_main()


def settings_file():
    lines = (FUNCTIONS / ".env").read_text().splitlines()
    return {
        name: value.strip('"')
        for name, value in (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    }


def test_loading_main_makes_no_client_and_offers_firebase_the_scheduled_function_alone(manifest):
    assert list(manifest["endpoints"]) == ["rollup"]
    rollup = manifest["endpoints"]["rollup"]
    assert rollup["maxInstances"] == "{{ params.COUNTERS_MAX_INSTANCES }}"
    assert rollup["region"] == ["{{ params.COUNTERS_REGION }}"]
    assert rollup["scheduleTrigger"]["schedule"] == "{{ params.COUNTERS_SCHEDULE }}"
    assert rollup["serviceAccountEmail"] is None
    assert [api["api"] for api in manifest["requiredAPIs"]] == ["cloudscheduler.googleapis.com"]


def test_every_parameter_has_a_value_in_the_env_file_that_is_its_default_so_deploy_asks_nothing(manifest):
    declared = {parameter["name"]: str(parameter.get("default", "")) for parameter in manifest["params"]}
    assert declared == settings_file()
    assert all(name.startswith("COUNTERS_") for name in declared)


def test_a_service_account_in_an_env_file_is_the_functions():
    account = "rollup@p.iam.gserviceaccount.com"
    manifest = manifest_of_main(COUNTERS_SERVICE_ACCOUNT=account)
    assert manifest["endpoints"]["rollup"]["serviceAccountEmail"] == account


def test_an_env_file_that_no_invocation_could_keep_to_stops_the_deploy():
    with pytest.raises(AssertionError, match="set `timeout` to 90 or more"):
        manifest_of_main(COUNTERS_EVERY="5", COUNTERS_TIMEOUT="60")
