"""The command line as such: what it loads, how it helps, and how it ends."""

import socket
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer
from google.api_core.exceptions import PermissionDenied
from google.auth.exceptions import DefaultCredentialsError
from typer.testing import CliRunner

from counters import InvalidValue, ReadFailed
from counters.cli.app import app
from counters.cli.exits import Commands, Failure
from counters.testing import EmulatorFailed, EmulatorNotFound, InstallFailed
from counters.testing.discovery import Found

COMMANDS = [
    ["demo"],
    ["replay"],
    ["show"],
    ["increment"],
    ["rollup"],
    ["audit"],
    ["init"],
    ["doctor"],
    ["emulator", "find"],
    ["emulator", "start"],
    ["emulator", "install"],
]


def python(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)

    def invoke(*args, program=app, **kwargs):
        return CliRunner().invoke(program, list(args), **kwargs)

    return invoke


def command_that(raises):
    """A command line whose one command raises."""
    program = typer.Typer(cls=Commands)

    @program.callback()
    def nothing():
        pass

    @program.command()
    def go():
        raise raises

    return program


def test_the_core_loads_none_of_what_only_the_command_line_needs():
    loaded = python(
        "import counters, sys; counters.Counters; import counters.cli;"
        "print({'typer', 'rich', 'matplotlib'} & sys.modules.keys())"
    )
    assert loaded.stdout == "set()\n"


def test_neither_does_a_command_that_draws_nothing_load_matplotlib():
    loaded = python("import counters.cli.app, sys; print('matplotlib' in sys.modules)")
    assert loaded.stdout == "False\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_where_typer_or_rich_is_missing_one_line_says_how_to_get_them(missing):
    ended = python(f"import sys; sys.modules[{missing!r}] = None; from counters.cli import main; main()")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1] == (
        f"counters: the command line needs {missing}: pip install 'firestore-counters[cli]'"
    )


def test_python_m_is_the_same_program():
    ended = subprocess.run(
        [sys.executable, "-m", "counters.cli", "--help"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0
    assert "demo" in ended.stdout


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_every_command_helps(invoke, command):
    helped = invoke(*command, "--help")
    assert helped.exit_code == 0
    assert " ".join(["counters", *command]) in helped.output.replace("root", "counters")


@pytest.mark.parametrize("command", [[], *COMMANDS[:-3], ["emulator"]], ids=" ".join)
def test_help_has_examples_one_a_line(invoke, command):
    lines = [line.strip() for line in invoke(*command, "--help").output.splitlines()]
    examples = lines[lines.index("Examples") + 1 :]
    assert any(line.startswith(" ".join(["counters", *command])) for line in examples)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Failure("what to do"), "what to do"),
        (ReadFailed("nothing was changed"), "nothing was changed"),
        (EmulatorNotFound(["here", "there"]), "no Firestore emulator was found"),
        (EmulatorFailed("it ended"), "it ended"),
        (InstallFailed("no cargo"), "no cargo"),
        (PermissionDenied("rules forbid it"), "403 rules forbid it"),
        (DefaultCredentialsError("none found"), "gcloud auth application-default login"),
        (FileNotFoundError(2, "No such file or directory", "sales.csv"), "sales.csv: No such file"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_expected_error_ends_in_a_clear_message_and_code_1(invoke, error, says):
    ended = invoke("go", program=command_that(error))
    assert ended.exit_code == 1
    assert ended.stderr.startswith("counters: ")
    assert says in ended.stderr
    assert "Traceback" not in ended.output


def test_the_server_s_own_words_are_told_with_the_error_they_caused(invoke):
    error = ReadFailed("nothing was changed")
    error.__cause__ = PermissionDenied("rules forbid it")
    ended = invoke("go", program=command_that(error))
    assert ended.stderr == "counters: nothing was changed (403 rules forbid it)\n"


def test_a_message_stays_on_one_line_however_narrow_the_terminal(invoke, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    ended = invoke("go", program=command_that(Failure("a [bold] word, " * 20 + "end")))
    assert ended.stderr == f"counters: {'a [bold] word, ' * 20}end\n"


def test_a_bad_argument_is_misuse_with_code_2(invoke):
    assert invoke("go", program=command_that(InvalidValue("too large"))).exit_code == 2
    assert invoke("show", "posts").exit_code == 2
    assert invoke("rollup", "--every", "soon").exit_code == 2
    assert invoke("increment", "posts/1/counters/likes", "--by", "1.5").exit_code == 2
    assert invoke("no-such-command").exit_code == 2


def test_ctrl_c_is_code_130(invoke):
    ended = invoke("go", program=command_that(KeyboardInterrupt()))
    assert ended.exit_code == 130
    assert ended.stderr == "counters: interrupted\n"


def test_a_bug_is_not_dressed_up(invoke):
    ended = invoke("go", program=command_that(ZeroDivisionError("a bug")))
    assert isinstance(ended.exception, ZeroDivisionError)


def test_an_emulator_that_does_not_listen_is_told_at_once(invoke, monkeypatch):
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    ended = invoke("show", "posts/1/counters/likes")
    assert ended.exit_code == 1
    assert "no emulator listens at FIRESTORE_EMULATOR_HOST=127.0.0.1:1" in ended.stderr
    assert "counters emulator start" in ended.stderr


@pytest.mark.parametrize("command", ["find", "start"])
def test_without_any_emulator_every_place_that_was_tried_is_listed(invoke, monkeypatch, tmp_path, command):
    for name in ("HOME", "PATH", "XDG_CACHE_HOME", "FIREBASE_EMULATORS_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("EMULATOR", raising=False)
    ended = invoke("emulator", command)
    assert ended.exit_code == 1
    assert "gcloud components install" in ended.stderr
    assert "counters emulator install" in ended.stderr


def test_install_if_none_does_nothing_where_there_is_an_emulator(invoke, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))  # no cargo: it could only fail
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    assert invoke("emulator", "install", "--if-none").exit_code == 0


def test_install_if_none_refuses_an_emulator_that_is_unknown(invoke, monkeypatch):
    monkeypatch.setenv("EMULATOR", "foo")
    monkeypatch.setattr("counters.cli.emulator.install_hidane", lambda _: pytest.fail("it was built"))
    ended = invoke("emulator", "install", "--if-none")
    assert ended.exit_code == 1
    assert "EMULATOR must be google, hidane or empty" in ended.stderr


def test_start_on_a_port_that_is_taken_says_so_before_it_starts(invoke, monkeypatch):
    found = Found("hidane", "0.6.0", ("false",))
    monkeypatch.setattr("counters.cli.emulator.find_emulator", lambda _: found)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ended = invoke("emulator", "start", "--port", str(port))
    assert ended.exit_code == 1
    assert ended.stderr == f"counters: port {port} is taken: --port 0 takes any free one\n"


def test_its_version_is_that_of_the_package(invoke):
    ended = invoke("--version")
    assert (ended.exit_code, ended.stdout) == (0, f"firestore-counters {version('firestore-counters')}\n")


def test_install_if_none_does_not_build_what_would_not_be_used(invoke, monkeypatch, tmp_path):
    for name in ("HOME", "PATH", "XDG_CACHE_HOME", "FIREBASE_EMULATORS_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("EMULATOR", "google")
    ended = invoke("emulator", "install", "--if-none")
    assert ended.exit_code == 1
    assert "no Firestore emulator was found" in ended.stderr


def test_demo_without_its_data_says_how_to_get_it(invoke, tmp_path):
    ended = invoke("demo", "--data", str(tmp_path / "none.txt"))
    assert ended.exit_code == 1
    assert "pip download" in ended.stderr


def test_demo_names_the_line_that_is_no_purchase(invoke, tmp_path):
    data = tmp_path / "purchases.txt"
    data.write_text("00001 19970101 1 11.77\n00001 19970230 1 11.77\n")
    ended = invoke("demo", "--data", str(data))
    assert ended.exit_code == 1
    assert f"{data}: line 2 is no purchase: '19970230' is no day" in ended.stderr


def test_plot_without_matplotlib_fails_before_any_work_is_done(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr("counters.cli.plot.find_spec", lambda _: None)
    ended = invoke("demo", "--data", str(tmp_path / "none.txt"), "--plot", "x.png")
    assert ended.exit_code == 1
    assert "pip install 'firestore-counters[plot]'" in ended.stderr
