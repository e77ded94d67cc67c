"""``counters init`` in a Firebase project that has functions, rules and indexes already."""

import json
import subprocess
import sys
import urllib.request

import pytest
from emulator_suite import ROOT

from counters import Counters
from counters.testing import open_client

THEIRS = {
    "functions/main.py": (
        "from firebase_functions import https_fn\n\n"
        "@https_fn.on_request()\n"
        "def hello(request):\n"
        '    return "hello"\n'
    ),
    "functions/requirements.txt": "firebase-functions~=0.6.0\n",
    "firestore.rules": (
        "rules_version = '2';\n"
        "service cloud.firestore {\n"
        "  match /databases/{database}/documents {\n"
        "    match /posts/{post} { allow read: if true; }\n"
        "  }\n"
        "}\n"
    ),
    "firestore.indexes.json": json.dumps(
        {
            "indexes": [
                {
                    "collectionGroup": "posts",
                    "queryScope": "COLLECTION",
                    "fields": [
                        {"fieldPath": "author", "order": "ASCENDING"},
                        {"fieldPath": "at", "order": "DESCENDING"},
                    ],
                }
            ],
            "fieldOverrides": [],
        },
        indent=2,
    ),
}


@pytest.fixture
def project(tmp_path, runtime):
    """Theirs: one Python function, rules, an index, and what else they had in firebase.json."""
    for name, text in THEIRS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    config = {
        "hosting": {"public": "dist"},
        "firestore": {"rules": "firestore.rules", "indexes": "firestore.indexes.json"},
        "functions": {"source": "functions", "runtime": runtime},
    }
    (tmp_path / "firebase.json").write_text(json.dumps(config, indent=2))
    # Their own virtual environment; what ours has will do.
    (tmp_path / "functions" / "venv").symlink_to(ROOT / "functions" / "venv")
    return tmp_path


def test_everything_of_theirs_is_still_there_the_suite_starts_and_the_rollup_works(
    firebase, project, runtime
):
    before = json.loads((project / "firebase.json").read_text())
    (wheel,) = (ROOT / "functions").glob("*.whl")
    subprocess.run(
        [sys.executable, "-m", "counters.cli", "init", str(project), "--yes", "--wheel", str(wheel)],
        check=True,
    )
    config = project / "firebase.json"
    config.write_text(config.read_text().replace("python313", runtime))
    # As the next steps say that it printed.
    subprocess.run(
        [sys.executable, "functions-counters/predeploy.py", "--runtime", runtime], cwd=project, check=True
    )

    after = json.loads(config.read_text())
    assert after["hosting"] == before["hosting"]
    assert after["functions"][0] == before["functions"]
    assert (project / "firestore.rules").read_text() == THEIRS["firestore.rules"]
    assert (project / "functions" / "main.py").read_text() == THEIRS["functions/main.py"]
    indexes = json.loads((project / "firestore.indexes.json").read_text())["indexes"]
    assert [index["collectionGroup"] for index in indexes] == ["posts", "counter_shards"]

    with (
        firebase.emulators(project, "demo-theirs") as suite,
        open_client(suite.firestore, suite.project) as client,
    ):
        assert suite.loaded() == ["hello", "rollup"]
        likes = Counters(client).on("posts/a", "likes")
        likes.increment(7)
        assert suite.trigger("rollup") == 200
        assert likes.total().value == 7
        url = f"http://127.0.0.1:{suite.port}/{suite.project}/us-central1/hello"
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == b"hello"
