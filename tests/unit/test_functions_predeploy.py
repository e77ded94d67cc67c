"""functions/predeploy.py: what it makes, and what it says when it cannot. Installs nothing."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "functions" / "predeploy.py"
OURS = f"python3{sys.version_info.minor}"
VERSION = f"3.{sys.version_info.minor}"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "requirements.txt").write_text("./a-1-py3-none-any.whl[functions]\nflask\n")
    shutil.copy(SCRIPT, tmp_path)
    return tmp_path


@pytest.fixture
def predeploy(folder, monkeypatch):
    """The script, in a folder of its own, with its commands recorded and not run; call it to run it."""
    spec = importlib.util.spec_from_file_location("predeploy", folder / "predeploy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.commands = []

    def run(*command):
        words = [Path(word).name if isinstance(word, Path) else word for word in command]
        module.commands.append(words)
        if "venv" in words:
            (folder / "venv" / "bin").mkdir(parents=True)
            (folder / "venv" / "bin" / f"python{VERSION}").touch()
        if "wheel" in words:
            Path(words[words.index("--wheel-dir") + 1], "a-1-py3-none-any.whl").write_bytes(b"built")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["predeploy.py", *arguments])
        module.commands.clear()
        module.main()
        return [command[2] + " " + command[3] for command in module.commands]

    monkeypatch.setattr(module, "run", run)
    module.call = call
    return module


def test_it_makes_the_environment_builds_the_wheel_and_installs_what_is_asked_for(predeploy, folder):
    assert predeploy.call("--runtime", OURS, "--wheel-of", "..") == [
        "venv --clear",
        "pip wheel",
        "pip install",
        "pip install",
    ]
    assert (folder / "a-1-py3-none-any.whl").read_bytes() == b"built"


def test_the_second_time_it_installs_nothing_until_wheel_or_requirements_change(predeploy, folder):
    predeploy.call("--runtime", OURS, "--wheel-of", "..")
    assert predeploy.call("--runtime", OURS, "--wheel-of", "..") == ["pip wheel"]
    assert predeploy.call("--runtime", OURS) == []
    (folder / "a-1-py3-none-any.whl").write_bytes(b"another")
    assert predeploy.call("--runtime", OURS) == ["pip install"] * 2
    (folder / "requirements.txt").write_text("flask\n")
    assert predeploy.call("--runtime", OURS) == ["pip install"]


def test_wheels_of_former_versions_are_removed_since_all_wheels_are_uploaded(predeploy, folder, capsys):
    (folder / "a-0-py3-none-any.whl").touch()
    (folder / "a-1-py3-none-any.whl").touch()
    predeploy.call("--runtime", OURS)
    assert [wheel.name for wheel in folder.glob("*.whl")] == ["a-1-py3-none-any.whl"]
    assert "removing a-0-py3-none-any.whl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--runtime", "nodejs20"], "nodejs20 is no Python runtime"),
        (
            ["--runtime", "python399"],
            "firebase-tools loads python399 with Python 3.99, which was not found",
        ),
        (["--runtime", OURS], "requirements.txt names a-1-py3-none-any.whl, which is not there"),
    ],
)
def test_what_is_missing_is_said_with_a_way_out(predeploy, arguments, why):
    with pytest.raises(SystemExit, match=why):
        predeploy.call(*arguments)


def test_a_python_that_only_names_versions_it_could_have_is_passed_over(predeploy, tmp_path, monkeypatch):
    shim = tmp_path / "bin" / "python3.13"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    kept = tmp_path / "pyenv" / "versions" / "3.13.0" / "bin" / "python3.13"
    kept.parent.mkdir(parents=True)
    kept.write_text("#!/bin/sh\necho 3.13\n")
    kept.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.delenv("UV_PYTHON_INSTALL_DIR", raising=False)
    assert predeploy.find_python("3.13") == str(kept)
    assert predeploy.find_python("3.12") is None
