"""Which Firestore emulator this machine has, and how to get one. Starts none.

Looks in a fixed order, and answers with the first that would run:

1. ``FIRESTORE_EMULATOR_HOST``: a server that runs already;
2. the Cloud SDK's emulator (``gcloud components install cloud-firestore-emulator``), on Java 11+;
3. the jar that the Firebase CLI downloaded (``firebase setup:emulators:firestore``), on Java 11+;
4. ``hidane``, an emulator without Java, on ``PATH`` or where :func:`install_hidane` puts it.

``EMULATOR=google`` or ``EMULATOR=hidane`` leaves out the other's places; a server that runs already
was chosen by its address, and is taken all the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "HIDANE_VERSION",
    "EmulatorNotFound",
    "Found",
    "InstallFailed",
    "Kind",
    "find_emulator",
    "install_hidane",
]

Kind = Literal["google", "hidane", "external"]
"""Whose emulator it is; ``external`` is one that somebody else started."""

HIDANE_VERSION = "0.6.0"

_JAVA_NEEDED = 11
_MAIN_CLASS = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
# Google's own launcher says that the emulator supports English error messages only. A test run is
# short: without the optimising compiler, the demo took a quarter less CPU (46 to 36 s).
_JVM_FLAGS = ("-Duser.language=en", "-XX:TieredStopAtLevel=1")


class EmulatorNotFound(RuntimeError):
    """No Firestore emulator on this machine. The message lists every place and how to get each."""

    def __init__(self, tried: list[str], *, wanted: str | None = None) -> None:
        only = f" (EMULATOR={wanted} leaves out the others)" if wanted else ""
        places = "\n".join(f"  - {place}" for place in tried)
        super().__init__(f"no Firestore emulator was found{only}. Tried:\n{places}")
        self.tried = tuple(tried)


class InstallFailed(RuntimeError):
    """hidane could not be built. What cargo said went to ``report``."""


@dataclass(frozen=True)
class Found:
    """An emulator that can be used.

    Either ``host`` is set, and it runs already, or ``command`` starts it, to which ``--host=`` and
    ``--port=`` are to be added.
    """

    kind: Kind
    version: str | None
    command: tuple[str, ...] = ()
    host: str | None = None


def find_emulator(environ: Mapping[str, str] | None = None) -> Found:
    """Find the first emulator that would run, in the order given above; starts nothing.

    Raises :class:`EmulatorNotFound`, also when ``EMULATOR`` names none that is known.
    """
    environ = os.environ if environ is None else environ
    wanted = environ.get("EMULATOR") or None
    if wanted not in (None, "google", "hidane"):
        raise EmulatorNotFound(["EMULATOR must be google, hidane or empty"], wanted=wanted)
    places: list[Callable[[Mapping[str, str]], Found | str]] = [_running_already]
    if wanted != "hidane":
        places += [_cloud_sdk, _firebase_cli]
    if wanted != "google":
        places += [_hidane]
    tried: list[str] = []
    for place in places:
        outcome = place(environ)
        if isinstance(outcome, Found):
            return outcome
        tried.append(outcome)
    raise EmulatorNotFound(tried, wanted=wanted)


def install_hidane(report: Callable[[str], None], environ: Mapping[str, str] | None = None) -> Path:
    """Build hidane into the user's cache, where :func:`find_emulator` looks; return its path.

    Takes about 3 minutes, once; does nothing when it is there. ``report`` is called with each line
    that cargo prints. Raises :class:`InstallFailed` when there is no cargo or the build fails.
    """
    environ = os.environ if environ is None else environ
    binary = _hidane_in_cache(environ)
    if binary.is_file():
        report(f"hidane {HIDANE_VERSION} is installed: {binary}")
        return binary
    cargo = shutil.which("cargo", path=environ.get("PATH"))
    if cargo is None:
        raise InstallFailed("building hidane needs cargo: install Rust from https://rustup.rs")
    root = binary.parent.parent
    command = [cargo, "install", "--locked", "hidane", "--version", HIDANE_VERSION]
    with subprocess.Popen(  # noqa: S603 - cargo, from the user's own PATH
        [*command, "--root", str(root)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(environ),
    ) as cargo_run:
        for line in cargo_run.stdout or ():
            report(line.rstrip())
    if cargo_run.returncode or not binary.is_file():
        raise InstallFailed(f"`{' '.join(command)}` failed with exit code {cargo_run.returncode}")
    return binary


# The places. Each answers with what it found, or with a line: what is missing, and how to get it.


def _running_already(environ: Mapping[str, str]) -> Found | str:
    host = environ.get("FIRESTORE_EMULATOR_HOST")
    if host:
        return Found("external", None, host=host)
    return "FIRESTORE_EMULATOR_HOST is not set; set it to the host:port of a running emulator"


def _cloud_sdk(environ: Mapping[str, str]) -> Found | str:
    remedy = "install it with `gcloud components install cloud-firestore-emulator`"
    gcloud = shutil.which("gcloud", path=environ.get("PATH"))
    if gcloud is None:
        return f"the Cloud SDK's emulator: no gcloud on PATH; get the Cloud SDK and {remedy}"
    root = Path(gcloud).resolve().parent.parent
    if not (root / "lib" / "googlecloudsdk").is_dir():
        # A wrapper script somewhere else: ask gcloud itself, which takes a second.
        root = Path(_output_of([gcloud, "info", "--format=value(installation.sdk_root)"]).strip())
    jar = root / "platform" / "cloud-firestore-emulator" / "cloud-firestore-emulator.jar"
    if not jar.is_file():
        return f"the Cloud SDK's emulator: no {jar}; {remedy}"
    java = _java(environ)
    if java.refusal:
        return f"the Cloud SDK's emulator: {java.refusal}"
    command = (java.path, *_JVM_FLAGS, "-cp", str(jar), _MAIN_CLASS)
    return Found("google", _cloud_sdk_version(root), command)


def _firebase_cli(environ: Mapping[str, str]) -> Found | str:
    directory = Path(environ.get("FIREBASE_EMULATORS_PATH") or _home(environ) / ".cache/firebase/emulators")
    jars = sorted(directory.glob("cloud-firestore-emulator-v*.jar"), key=_numbers)
    if not jars:
        return (
            f"the Firebase CLI's emulator: no cloud-firestore-emulator-v*.jar in {directory}; "
            "get it with `npx firebase-tools setup:emulators:firestore`"
        )
    java = _java(environ)
    if java.refusal:
        return f"the Firebase CLI's emulator: {java.refusal}"
    version = jars[-1].stem.removeprefix("cloud-firestore-emulator-v")
    return Found("google", version, (java.path, *_JVM_FLAGS, "-jar", str(jars[-1])))


def _hidane(environ: Mapping[str, str]) -> Found | str:
    cached = _hidane_in_cache(environ)
    binary = shutil.which("hidane", path=environ.get("PATH")) or (str(cached) if cached.is_file() else None)
    if binary is None:
        return (
            f"hidane: neither on PATH nor at {cached}; build it with `counters emulator install` "
            "(needs cargo, takes 3 minutes, once)"
        )
    version = re.search(r"\d+(\.\d+)+", _output_of([binary, "--version"]))
    return Found("hidane", version and version.group(), (binary,))


# What the places need to know of the machine.


@dataclass(frozen=True)
class _Java:
    path: str
    refusal: str | None


def _java(environ: Mapping[str, str]) -> _Java:
    remedy = f"install Java {_JAVA_NEEDED} or newer, or point JAVA_HOME to it"
    home = environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home, "bin")) if home else environ.get("PATH"))
    if path is None:
        return _Java("", f"no java {'in JAVA_HOME' if home else 'on PATH'}; {remedy}")
    # 'openjdk version "17.0.15" …'; up to 8 it was 'java version "1.8.0_292"'.
    version = re.search(r'version "(?:1\.)?(\d+)', _output_of([path, "-version"]))
    if version is None:
        return _Java(path, f"{path} does not say its version; {remedy}")
    if int(version.group(1)) < _JAVA_NEEDED:
        return _Java(path, f"{path} is Java {version.group(1)}; {remedy}")
    return _Java(path, None)


def _cloud_sdk_version(root: Path) -> str | None:
    try:
        snapshot = root / ".install" / "cloud-firestore-emulator.snapshot.json"
        components = json.loads(snapshot.read_text(encoding="utf-8"))["components"]
        return str(components[0]["version"]["version_string"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # a package manager's Cloud SDK may keep no such record


def _hidane_in_cache(environ: Mapping[str, str]) -> Path:
    cache = Path(environ.get("XDG_CACHE_HOME") or _home(environ) / ".cache")
    return cache / "firestore-counters" / f"hidane-{HIDANE_VERSION}" / "bin" / "hidane"


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _numbers(jar: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", jar.stem)]


def _output_of(command: list[str]) -> str:
    try:
        answer = subprocess.run(  # noqa: S603 - programs of the user's own PATH
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout
