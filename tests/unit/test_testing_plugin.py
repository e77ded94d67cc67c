"""The pytest plugin on machines without an emulator, and what loading it costs."""

import subprocess
import sys

import pytest

import counters.testing
from counters.testing import plugin

WANTS_ONE = """
    def test_wants_an_emulator(counters_client):
        pass

    def test_wants_none():
        pass
"""


@pytest.fixture
def bare_machine(pytester, monkeypatch):
    """A machine without any emulator; pytester has set HOME to an empty directory."""
    for name in ("CI", "EMULATOR", "FIRESTORE_EMULATOR_HOST", "JAVA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("FIREBASE_EMULATORS_PATH", raising=False)
    monkeypatch.setenv("PATH", str(pytester.mkdir("empty")))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio")  # it wants to be configured
    pytester.makepyfile(WANTS_ONE)
    return pytester


def test_without_an_emulator_tests_that_want_one_are_skipped_and_the_reason_lists_what_was_tried(
    bare_machine,
):
    result = bare_machine.runpytest("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*no Firestore emulator was found*"])
    for place in ("FIRESTORE_EMULATOR_HOST", "gcloud", "firebase-tools", "hidane"):
        assert place in result.stdout.str()


def test_without_an_emulator_in_ci_they_fail_instead(bare_machine, monkeypatch):
    monkeypatch.setenv("CI", "true")
    result = bare_machine.runpytest()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*no Firestore emulator was found*"])


def test_an_emulator_that_does_not_answer_is_a_failure_everywhere(bare_machine, monkeypatch):
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    result = bare_machine.runpytest()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*no Firestore emulator answers at 127.0.0.1:1*"])


@pytest.mark.parametrize("module", ["counters.testing", "counters.testing.plugin"])
def test_loading_the_plugin_loads_neither_grpc_nor_google_cloud(module):
    code = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert module in loaded
    heavy = ("grpc", "google.cloud.firestore", "google.cloud.firestore_v1", "google.api_core")
    assert [name for name in heavy if name in loaded] == []


def test_every_public_name_is_there_and_no_other():
    for name in counters.testing.__all__:
        assert getattr(counters.testing, name).__name__ == name
    assert dir(counters.testing) == sorted(counters.testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Emulators'"):
        _ = counters.testing.Emulators


def test_every_fixture_is_listed_and_says_what_it_is_for(bare_machine):
    listed = bare_machine.runpytest("--fixtures").stdout
    for name in plugin.__all__:
        effect = getattr(plugin, name).__doc__.splitlines()[0]
        listed.fnmatch_lines([f"{name} *", f"    {effect}"])
