"""The places where an emulator may be, on machines made of temporary directories."""

from pathlib import Path

import pytest

from counters.testing import EmulatorNotFound, InstallFailed, find_emulator, install_hidane
from counters.testing.discovery import HIDANE_VERSION


class Machine:
    """A home, a PATH with just what a test puts there, and the environment to see them."""

    def __init__(self, root):
        self.root = root
        self.home = root / "home"
        self.bin = root / "bin"
        self.bin.mkdir(parents=True)
        # The programs below are shell scripts, and find nothing on a PATH that has only them.
        self.environ = {"HOME": str(self.home), "PATH": str(self.bin)}

    def program(self, path, script):
        path = Path(self.bin, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def java(self, says='openjdk version "17.0.15" 2025-04-15', path="java"):
        return self.program(path, f"echo '{says}' >&2")

    def cloud_sdk(self):
        root = self.root / "google-cloud-sdk"
        (root / "lib" / "googlecloudsdk").mkdir(parents=True)
        self.program(root / "bin" / "gcloud", "exit 1")
        self.bin.joinpath("gcloud").symlink_to(root / "bin" / "gcloud")
        return self.jar_in(root)

    def jar_in(self, root):
        jar = root / "platform" / "cloud-firestore-emulator" / "cloud-firestore-emulator.jar"
        jar.parent.mkdir(parents=True)
        jar.touch()
        return jar

    def firebase_jar(self, version, directory=None):
        directory = directory or self.home / ".cache" / "firebase" / "emulators"
        directory.mkdir(parents=True, exist_ok=True)
        jar = directory / f"cloud-firestore-emulator-v{version}.jar"
        jar.touch()
        return jar

    def hidane(self, cache=None):
        cache = cache or self.home / ".cache"
        path = cache / "firestore-counters" / f"hidane-{HIDANE_VERSION}" / "bin" / "hidane"
        return self.program(path, "echo hidane 0.6.0")

    def find(self, **environ):
        return find_emulator({**self.environ, **environ})


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_running_emulator_comes_first_then_the_cloud_sdk_then_firebase_then_hidane(machine):
    machine.java()
    sdk, firebase, hidane = machine.cloud_sdk(), machine.firebase_jar("1.19.8"), machine.hidane()

    assert machine.find(FIRESTORE_EMULATOR_HOST="localhost:8080").host == "localhost:8080"
    assert str(sdk) in machine.find().command
    sdk.unlink()
    assert str(firebase) in machine.find().command
    firebase.unlink()
    assert machine.find().command == (str(hidane),)


def test_each_find_says_whose_emulator_it_is_and_its_version(machine):
    machine.java()
    machine.hidane()
    assert (machine.find().kind, machine.find().version) == ("hidane", "0.6.0")
    machine.firebase_jar("1.19.8")
    assert (machine.find().kind, machine.find().version) == ("google", "1.19.8")
    root = machine.cloud_sdk().parents[2]
    assert (machine.find().kind, machine.find().version) == ("google", None)
    (root / ".install").mkdir()
    (root / ".install" / "cloud-firestore-emulator.snapshot.json").write_text(
        '{"components": [{"version": {"version_string": "1.19.9"}}]}'
    )
    assert (machine.find().kind, machine.find().version) == ("google", "1.19.9")
    external = machine.find(FIRESTORE_EMULATOR_HOST="localhost:8080")
    assert (external.kind, external.version) == ("external", None)


def test_the_variable_emulator_leaves_out_the_others(machine):
    machine.java()
    machine.cloud_sdk()
    machine.hidane()

    assert machine.find(EMULATOR="").kind == "google"
    assert machine.find(EMULATOR="google").kind == "google"
    assert machine.find(EMULATOR="hidane").kind == "hidane"
    with pytest.raises(EmulatorNotFound, match="google, hidane or empty"):
        machine.find(EMULATOR="goggle")


def test_when_none_is_found_the_error_lists_every_place_and_how_to_get_each(machine):
    with pytest.raises(EmulatorNotFound) as caught:
        machine.find()

    host, cloud_sdk, firebase, hidane = caught.value.tried
    assert "FIRESTORE_EMULATOR_HOST" in host
    assert "gcloud components install cloud-firestore-emulator" in cloud_sdk
    assert "setup:emulators:firestore" in firebase
    assert "counters emulator install" in hidane
    for place in caught.value.tried:
        assert place in str(caught.value)


def test_when_only_one_is_wanted_the_error_says_so_and_lists_its_places(machine):
    machine.hidane()
    with pytest.raises(EmulatorNotFound, match="EMULATOR=google leaves out the others") as caught:
        machine.find(EMULATOR="google")
    assert not any("hidane" in place for place in caught.value.tried)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ('java version "1.8.0_292"', "is Java 8; install Java 11 or newer"),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", "its version"),
        (None, "no java on PATH; install Java 11 or newer"),
    ],
)
def test_without_java_11_google_s_emulator_is_passed_over_and_the_error_says_why(machine, says, why):
    machine.cloud_sdk()
    machine.firebase_jar("1.19.8")
    if says:
        machine.java(says.replace("'", ""))
    with pytest.raises(EmulatorNotFound) as caught:
        machine.find()
    assert why in caught.value.tried[1]
    assert why in caught.value.tried[2]

    machine.hidane()
    assert machine.find().kind == "hidane"


@pytest.mark.parametrize("says", ['openjdk version "11.0.2"', 'openjdk version "25" 2025-09-16'])
def test_java_11_and_later_will_do(machine, says):
    machine.java(says)
    machine.cloud_sdk()
    assert machine.find().kind == "google"


def test_java_home_comes_before_path(machine):
    machine.java('java version "1.8.0_292"')
    java = machine.java(path=machine.root / "jdk" / "bin" / "java")
    machine.cloud_sdk()
    assert machine.find(JAVA_HOME=str(machine.root / "jdk")).command[0] == str(java)


def test_a_gcloud_that_is_a_wrapper_is_asked_for_its_root(machine):
    machine.java()
    root = machine.root / "elsewhere"
    jar = machine.jar_in(root)
    machine.program("gcloud", f"echo {root}")
    assert str(jar) in machine.find().command


def test_the_newest_jar_of_the_firebase_cli_is_taken_by_number_not_by_letter(machine):
    machine.java()
    for version in ("1.9.9", "1.19.8", "1.2.30"):
        machine.firebase_jar(version)
    assert machine.find().version == "1.19.8"


def test_the_firebase_cli_s_own_directory_variable_is_respected(machine):
    machine.java()
    jar = machine.firebase_jar("1.19.8", machine.root / "jars")
    found = machine.find(FIREBASE_EMULATORS_PATH=str(machine.root / "jars"))
    assert str(jar) in found.command


def test_hidane_on_path_comes_before_the_cache_and_the_cache_may_be_elsewhere(machine):
    cached = machine.hidane(machine.root / "cache")
    assert machine.find(XDG_CACHE_HOME=str(machine.root / "cache")).command == (str(cached),)
    on_path = machine.program("hidane", "echo hidane 0.6.1")
    assert machine.find(XDG_CACHE_HOME=str(machine.root / "cache")).command == (str(on_path),)


def test_hidane_is_built_into_the_cache_and_what_cargo_says_is_passed_on(machine):
    machine.program(
        "cargo",
        'echo "args $*"; echo "Compiling hidane" >&2\n'
        '/bin/mkdir -p "$7/bin"; echo "#!/bin/sh" > "$7/bin/hidane"; /bin/chmod +x "$7/bin/hidane"',
    )
    lines = []
    binary = install_hidane(lines.append, machine.environ)

    root = machine.home / ".cache" / "firestore-counters" / "hidane-0.6.0"
    assert binary == root / "bin" / "hidane"
    assert lines == [
        f"args install --locked hidane --version 0.6.0 --root {root}",
        "Compiling hidane",
    ]
    assert machine.find().command == (str(binary),)

    lines.clear()
    assert install_hidane(lines.append, machine.environ) == binary
    assert lines == [f"hidane 0.6.0 is installed: {binary}"]


def test_a_build_that_fails_says_so_and_leaves_nothing_to_find(machine):
    machine.program("cargo", 'echo "error: linker not found"; exit 101')
    lines = []
    with pytest.raises(InstallFailed, match="exit code 101"):
        install_hidane(lines.append, machine.environ)
    assert lines == ["error: linker not found"]
    with pytest.raises(EmulatorNotFound):
        machine.find()


def test_without_cargo_the_error_says_where_to_get_it(machine):
    with pytest.raises(InstallFailed, match="rustup"):
        install_hidane(print, machine.environ)
