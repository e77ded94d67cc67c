"""Make this folder ready to deploy: the wheels that requirements.txt names, and the folder venv.

firebase-tools loads functions from a virtual environment in venv before it uploads them. Run by
`firebase deploy` (firebase.json, "predeploy"), and by hand before the emulators' first start. It
does only what is to be done, takes half a minute the first time, and needs no package.

    python3 predeploy.py --runtime python313 [--wheel-of PROJECT]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / "venv"
REQUIREMENTS = HERE / "requirements.txt"
STAMP = VENV / "made-of"


def main() -> None:
    """Do it, or exit with what is missing and how to get it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runtime", default="python313", help="as in firebase.json (default: %(default)s)")
    parser.add_argument("--wheel-of", type=Path, metavar="PROJECT", help="build this project's wheel first")
    options = parser.parse_args()
    version = re.fullmatch(r"python3(\d\d)", options.runtime)
    if version is None:
        sys.exit(f"{options.runtime} is no Python runtime, such as python313")
    number = f"3.{version[1]}"
    python = find_python(number)
    if python is None:
        sys.exit(
            f"firebase-tools loads {options.runtime} with Python {number}, which was not found: install it "
            f"(`uv python install {number}`, https://www.python.org/downloads), or name the runtime of a "
            "Python that you have in firebase.json"
        )
    if not VENV.joinpath("bin", f"python{number}").exists():
        say(f"making {VENV} with {python}")
        run(python, "-m", "venv", "--clear", VENV)
    if options.wheel_of:
        build_wheel(options.wheel_of)
    wheels = named_wheels()
    for wheel in HERE.glob("*.whl"):
        if wheel not in wheels:
            say(f"removing {wheel.name}, which requirements.txt does not name")
            wheel.unlink()
    install(wheels)


def find_python(version: str) -> str | None:
    """A Python of this version that starts; on PATH, or where uv and pyenv keep theirs."""
    home = Path.home()
    kept = [
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python"),
        Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions",
    ]
    candidates: Iterator[str | Path | None] = (
        candidate
        for group in (
            (shutil.which(f"python{version}"),),
            *(sorted(root.glob(f"*{version}.*/bin/python{version}"), reverse=True) for root in kept),
        )
        for candidate in group
    )
    return next((str(python) for python in candidates if python and starts(python, version)), None)


def starts(python: str | Path, version: str) -> bool:
    """Whether it is more than a shim that names versions it could have."""
    asked = [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603 - a Python
    return answer.stdout.strip() == version


def build_wheel(project: Path) -> None:
    """Build a project's wheel beside requirements.txt, replacing one only if it is another."""
    with tempfile.TemporaryDirectory() as folder:
        run(pip(), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, project.resolve())
        for built in Path(folder).glob("*.whl"):
            wheel = HERE / built.name
            if not wheel.exists() or wheel.read_bytes() != built.read_bytes():
                say(f"built {wheel.name}")
                shutil.copyfile(built, wheel)


def named_wheels() -> list[Path]:
    """The wheels in requirements.txt. Exits if one is not there."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    names = [match[1] for line in lines if (match := re.match(r"\./([^/\[\s]+\.whl)", line))]
    for name in names:
        if not HERE.joinpath(name).exists():
            sys.exit(f"requirements.txt names {name}, which is not there: put it there, or name another")
    return [HERE / name for name in names]


def install(wheels: list[Path]) -> None:
    """Bring venv to what requirements.txt asks for, if it is not there yet."""
    sources = hashlib.sha256()
    for file in (REQUIREMENTS, *wheels):
        sources.update(file.read_bytes())
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == sources.hexdigest():
        return
    say("installing what requirements.txt asks for")
    quietly = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    # From this folder, as in the cloud: paths in requirements.txt are relative to it.
    run(pip(), *quietly, "--requirement", REQUIREMENTS.name)
    if wheels:  # again by name, since a new wheel may have the version of the last one
        run(pip(), *quietly, "--no-deps", "--force-reinstall", *wheels)
    STAMP.write_text(sources.hexdigest(), encoding="utf-8")


def pip() -> Path:
    """The Python whose pip is used: that of venv."""
    return VENV / "bin" / "python"


def run(*command: str | Path) -> None:
    """Run a command here; exit if it fails."""
    finished = subprocess.run([str(part) for part in command], cwd=HERE, check=False)  # noqa: S603 - pip
    if finished.returncode:
        sys.exit(f"`{' '.join(map(str, command))}` failed with exit code {finished.returncode}")


def say(line: str) -> None:
    """Tell what takes the time."""
    sys.stdout.write(f"predeploy: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
