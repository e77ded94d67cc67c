"""Runs firebase-tools: its Emulator Suite, and its packager. On a machine that has what it needs."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

from counters.testing import EmulatorNotFound, find_emulator

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "firebase-tools" / "node_modules" / "firebase-tools"
JAVA_NEEDED = 21  # of firebase-tools 15, whatever the emulator itself wants
START_TIMEOUT = 120


class Lacking(Exception):
    """What this machine lacks, and how to get it."""


@dataclass(frozen=True)
class Firebase:
    """firebase-tools, and what its Firestore emulator is started with.

    ``external`` is an emulator of the test's own, which the functions are pointed at instead.
    """

    node: str
    environ: dict
    external: str | None = None

    @classmethod
    def find(cls, folder, external=None):
        """Find all of it, or raise ``Lacking``. ``folder`` is for a file that it wants."""
        node = shutil.which("node")
        if node is None:
            raise Lacking("no node on PATH: install Node 20 or newer")
        if not TOOLS.is_dir():
            raise Lacking("no firebase-tools in build/firebase-tools: `make suite` installs it")
        if external is not None:
            return cls(node, {}, external)
        java = _find_java()
        try:
            command = find_emulator({**os.environ, "EMULATOR": "google", "JAVA_HOME": str(java)}).command
        except EmulatorNotFound as error:
            raise Lacking(str(error)) from error
        jar = folder / "firestore-emulator.jar"
        _write_launcher(jar, Path(next(part for part in command if part.endswith(".jar"))))
        path = f"{java / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return cls(node, {"JAVA_HOME": str(java), "PATH": path, "FIRESTORE_EMULATOR_BINARY_PATH": str(jar)})

    def pack(self, project):
        """The zip that `firebase deploy` would upload for the codebase ``counters`` of a project."""
        packed = subprocess.run(
            [self.node, str(Path(__file__).with_name("pack.js")), str(TOOLS), str(project)],
            capture_output=True,
            text=True,
            check=True,
        )
        return Path(packed.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def emulators(self, directory, project):
        """Run the emulators that ``directory``'s firebase.json is for, on ports of our own."""
        config = json.loads((directory / "firebase.json").read_text())
        names = ["hub", "logging", "functions", "eventarc", "tasks"]
        names += [] if self.external else ["firestore", "websocket"]
        ports = dict(zip(names, _free_ports(len(names)), strict=True))
        config["emulators"] = {
            name: {"host": "127.0.0.1", "port": port} for name, port in ports.items() if name != "websocket"
        }
        config["emulators"]["ui"] = {"enabled": False}
        if not self.external:
            config["emulators"]["firestore"]["websocketPort"] = ports["websocket"]
        (directory / "firebase.json").write_text(json.dumps(config, indent=2))
        log = directory / "emulators.log"
        firestore = self.external or f"127.0.0.1:{ports['firestore']}"
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    self.node,
                    str(TOOLS / "lib" / "bin" / "firebase.js"),
                    "emulators:start",
                    "--project",
                    project,
                    "--only",
                    "functions" if self.external else "firestore,functions",
                ],
                cwd=directory,
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("FIRE")},
                    **self.environ,
                    "FIRESTORE_EMULATOR_HOST": firestore,
                    "FUNCTIONS_DISCOVERY_TIMEOUT": str(START_TIMEOUT),  # 30 s are few for a busy machine
                    "NO_COLOR": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        suite = Suite(directory, project, firestore, ports["functions"], log)
        try:
            suite.wait_until_up(process)
            yield suite
        finally:
            _end(process)


@dataclass(frozen=True)
class Suite:
    """An Emulator Suite that is running."""

    directory: Path
    project: str
    firestore: str
    port: int
    log: Path

    def wait_until_up(self, process):
        until = time.monotonic() + START_TIMEOUT
        while "All emulators ready" not in self.log.read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the emulators did not start:\n{self.log.read_text()}")
            time.sleep(0.1)

    def loaded(self):
        """Names of the functions that were loaded, by the folder they are in."""
        text = self.log.read_text()
        found = re.findall(r"Loaded functions definitions from source: (.*)\.", text)
        return sorted(name for names in found for name in names.split(", "))

    def trigger(self, function):
        """What Cloud Scheduler does: POST to a scheduled function. The status of the answer."""
        url = f"http://127.0.0.1:{self.port}/functions/projects/{self.project}/triggers/us-central1-{function}-0"
        call = urllib.request.Request(
            url,
            data=b"{}",
            headers={"X-CloudScheduler-JobName": f"firebase-schedule-{function}-us-central1"},
        )
        try:
            with urllib.request.urlopen(call, timeout=START_TIMEOUT) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def wait_for_runs(self, number):
        """The same once there are so many: the emulator may answer before it passes a line on."""
        until = time.monotonic() + 30
        while len(self.runs()) < number and time.monotonic() < until:
            time.sleep(0.05)
        return self.runs()

    def invocations(self, function):
        """What the emulator says of a function's invocations, in order: begun, finished."""
        pattern = rf'(Beginning execution of|Finished) "us-central1-{function}"'
        found = re.findall(pattern, self.log.read_text())
        return ["finished" if event == "Finished" else "begun" for event in found]

    def runs(self):
        """The log lines of the rollup's runs, as Cloud Logging would take them."""
        found = re.findall(r'^>\s+(\{"severity".*\})$', self.log.read_text(), re.MULTILINE)
        return [json.loads(line) for line in found]


def _find_java():
    """The home of a JDK that is new enough: of JAVA_HOME, on PATH, or where Linux keeps them."""
    candidates = [os.environ.get("JAVA_HOME"), _home_of(shutil.which("java"))]
    candidates += sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)
    for home in candidates:
        java = Path(home, "bin", "java") if home else None
        if java and java.is_file() and _java_version(java) >= JAVA_NEEDED:
            return Path(home)
    raise Lacking(
        f"no Java {JAVA_NEEDED} or newer in JAVA_HOME, on PATH or in /usr/lib/jvm, which firebase-tools "
        "wants: install one (apt-get install temurin-25-jdk, https://adoptium.net), or use EMULATOR=hidane"
    )


def _home_of(java):
    return java and Path(java).resolve().parent.parent


def _java_version(java):
    answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr)
    return int(version[1]) if version else 0


def _write_launcher(launcher, jar):
    """A jar that starts another one: firebase-tools wants a Main-Class, the Cloud SDK's has none."""
    manifest = (
        "Manifest-Version: 1.0\n"
        "Main-Class: com.google.cloud.datastore.emulator.firestore.CloudFirestore\n"
        f"Class-Path: {jar.as_uri()}\n"
    )
    # A line of a manifest holds 72 bytes; the next begins with a space and goes on with it.
    lines = [re.sub(r"(.{70})(?=.)", r"\1\n ", line) for line in manifest.splitlines()]
    with zipfile.ZipFile(launcher, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "\n".join(lines) + "\n\n")


def _free_ports(number):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _end(process):
    """End the suite as Ctrl-C does; what is left after that, at once."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        process.send_signal(signal.SIGINT)
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
