"""What is deployed from this repository, in the whole Emulator Suite."""

import json
import shutil
import urllib.error
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from emulator_suite import ROOT

from counters import Counters
from counters.testing import open_client

CONFIGS = ["firebase.json", "firestore.indexes.json", "firestore.rules"]


@pytest.fixture
def counters(suite):
    with open_client(suite.firestore, suite.project) as client:
        yield Counters(client)


@pytest.mark.usefixtures("runtime")
def test_what_is_uploaded_is_main_requirements_and_the_wheel_and_nothing_else(firebase, tmp_path):
    shutil.copy(ROOT / "firebase.json", tmp_path)
    shutil.copytree(ROOT / "functions", tmp_path / "functions", ignore=shutil.ignore_patterns("venv"))
    for litter in (
        ".env.local",
        ".env.my-project",
        "venv/bin/python",
        "__pycache__/main.pyc",
        "main.py~",
        "firebase-debug.log",
        ".idea/workspace.xml",
        "key.json",
        "node_modules/x/main.py",
    ):
        (tmp_path / "functions" / litter).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "functions" / litter).touch()
    zipped = firebase.pack(tmp_path)
    with zipfile.ZipFile(zipped) as upload:
        names = sorted(upload.namelist())
    zipped.unlink()
    assert names == ["firestore_counters-0.1.0-py3-none-any.whl", "main.py", "requirements.txt"]


@pytest.mark.usefixtures("runtime")
def test_the_wheel_carries_what_counters_init_adds_to_a_project():
    (wheel,) = (ROOT / "functions").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        carried = {
            name.removeprefix("counters/cli/project/"): archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith("counters/cli/project/")
        }
    files = ["main.py", "predeploy.py", "requirements.txt", ".env", ".gcloudignore"]
    names = [*CONFIGS, *(f"functions/{name}" for name in files)]
    assert carried == {name: (ROOT / name).read_text() for name in names}


def test_the_scheduled_function_triggered_twice_and_overlapping_brings_20_counters_to_their_sums(
    suite, counters
):
    assert suite.loaded() == ["rollup"]
    earlier = len(suite.runs())
    likes = [counters.on(f"posts/{number}", "likes") for number in range(20)]
    with ThreadPoolExecutor(4) as writers:
        list(writers.map(lambda number: likes[number % 20].increment(number), range(120)))
    exact = [sum(range(number, 120, 20)) for number in range(20)]

    with ThreadPoolExecutor(2) as scheduler:
        first = list(scheduler.map(suite.trigger, ["rollup"] * 2))
        assert [counter.total().value for counter in likes] == exact
        likes[0].increment(1000)
        second = list(scheduler.map(suite.trigger, ["rollup"] * 2))

    assert first + second == [200] * 4
    assert [counter.total().value for counter in likes] == [exact[0] + 1000, *exact[1:]]
    assert ("begun", "begun") in pairwise(suite.invocations("rollup"))
    runs = suite.wait_for_runs(earlier + 4)[earlier:]
    assert [run["severity"] for run in runs] == ["INFO"] * 4  # and none by the health probes
    assert {run["database"] for run in runs} == {"projects/demo-counters/databases/(default)"}
    written = sum(run["counters"] for run in runs)
    assert written >= 21
    assert sum(run["writes"] for run in runs) >= written
    assert all(run["reads"] > 0 and run["lag_seconds"] > 0 for run in runs)


class Stranger:
    """Somebody with the project's id and no account, over REST."""

    def __init__(self, suite):
        self._root = f"http://{suite.firestore}/v1/projects/{suite.project}/databases/(default)/documents"

    def status(self, path, method="GET", data=None, headers=()):
        request = urllib.request.Request(
            f"{self._root}/{path}",
            method=method,
            data=json.dumps(data).encode() if data is not None else None,
            headers={"Content-Type": "application/json", **dict(headers)},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.mark.parametrize("parent", ["posts/ruled", "groups/g/posts/ruled"])
def test_a_total_is_read_by_anybody_and_nothing_of_ours_is_written_by_any_client(
    suite, counters, parent, firebase
):
    if firebase.external:
        pytest.skip("the rules are loaded by firebase-tools' own Firestore emulator: unset EMULATOR")
    counter = counters.on(parent, "likes")
    counter.increment()
    counters.roll_up()
    (shard,) = counter._document.collection("counter_shards").list_documents()
    stranger = Stranger(suite)
    forged = {"fields": {"total": {"integerValue": "1000000"}}}

    assert stranger.status(counter.path) == 200
    for path in (shard.path, "counter_rollups/cursor"):
        assert stranger.status(path) == 403
    for path in (counter.path, shard.path, "counter_rollups/cursor", "counter_operations/key"):
        assert stranger.status(path, "PATCH", forged) == 403
        assert stranger.status(path, "DELETE") == 403
    assert counter.total().value == 1
