"""Fixtures of the tests with the whole Emulator Suite."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from emulator_suite import ROOT, Firebase, Lacking

RUNTIMES = ["python313", f"python3{sys.version_info.minor}"]


@pytest.fixture(scope="session")
def firebase(request, tmp_path_factory):
    """firebase-tools; without it or what it needs these tests are skipped, in CI they fail."""
    external = None
    if os.environ.get("EMULATOR") == "hidane":
        external = request.getfixturevalue("counters_emulator").host
    try:
        return Firebase.find(tmp_path_factory.mktemp("firebase"), external)
    except Lacking as reason:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def runtime():
    """The Python runtime whose venv functions/ has now: that of firebase.json, or else our own."""
    for runtime in RUNTIMES:
        command = [sys.executable, "functions/predeploy.py", "--runtime", runtime, "--wheel-of", "."]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if made.returncode == 0:
            return runtime
    pytest.fail(f"functions/predeploy.py failed:\n{made.stdout}{made.stderr}", pytrace=False)


@pytest.fixture(scope="session")
def uploaded(firebase, runtime, tmp_path_factory):
    """A project whose functions/ is what `firebase deploy` would upload from this repository."""
    project = tmp_path_factory.mktemp("uploaded")
    zipped = firebase.pack(ROOT)
    with zipfile.ZipFile(zipped) as upload:
        upload.extractall(project / "functions")
    zipped.unlink()
    # Not uploaded, but read by firebase-tools on the deploying machine, as in a deploy.
    shutil.copy(ROOT / "functions" / ".env", project / "functions")
    (project / "functions" / "venv").symlink_to(ROOT / "functions" / "venv")
    for name in ("firestore.rules", "firestore.indexes.json"):
        shutil.copy(ROOT / name, project)
    config = (ROOT / "firebase.json").read_text()
    (project / "firebase.json").write_text(config.replace("python313", runtime))
    return project


@pytest.fixture(scope="session")
def suite(firebase, uploaded):
    """The Emulator Suite with this repository's functions, rules and indexes."""
    with firebase.emulators(uploaded, "demo-counters") as suite:
        yield suite
