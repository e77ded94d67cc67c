"""How an emulator starts and ends, with a stand-in that starts at once and needs no Java."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import grpc
import pytest

from counters.testing import Emulator, EmulatorFailed
from counters.testing.discovery import Found

STAND_IN = f"""#!{sys.executable}
import sys

if "--version" in sys.argv:
    sys.exit(print("hidane 0.6.0"))

import os
from concurrent import futures
import grpc


class NothingThere(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/Crash":
            os._exit(1)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.NOT_FOUND, "nothing there")
        )


options = dict(argument.lstrip("-").split("=") for argument in sys.argv[1:])
server = grpc.server(futures.ThreadPoolExecutor(2), [NothingThere()])
server.add_insecure_port(options["host"] + ":" + options["port"])
server.start()
server.wait_for_termination()
"""


@pytest.fixture(autouse=True)
def environ(tmp_path, monkeypatch):
    """An environment in which the stand-in is the only emulator, for this process too."""
    hidane = tmp_path / "bin" / "hidane"
    hidane.parent.mkdir()
    hidane.write_text(STAND_IN)
    hidane.chmod(0o755)
    monkeypatch.setenv("PATH", str(hidane.parent))
    monkeypatch.setenv("EMULATOR", "hidane")
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return dict(os.environ)


class Process:
    """A Python process that says something and then waits; killed in the end."""

    def __init__(self, environ, code):
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def line(self):
        return self._process.stdout.readline().strip()

    def go_on(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end_by(self, signal_number):
        self._process.send_signal(signal_number)
        self._process.wait(30)


SHARED = """
    import pathlib, sys
    from counters.testing import Emulator
    with Emulator.shared(pathlib.Path({directory!r})) as emulator:
        print(emulator.host, flush=True)
        input()
"""


def accepts(host):
    address, _, port = host.partition(":")
    try:
        socket.create_connection((address, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def has_ended(host):
    for _ in range(600):
        if not accepts(host):
            return True
        time.sleep(0.05)
    return False


def test_it_answers_within_the_block_and_is_gone_after_it_with_all_its_files(tmp_path):
    with Emulator() as emulator:
        host = emulator.host
        assert host.startswith("127.0.0.1:")
        assert accepts(host)
        assert (emulator.kind, emulator.version) == ("hidane", "0.6.0")
    assert not accepts(host)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
    with pytest.raises(RuntimeError, match="with Emulator"):
        _ = emulator.host


def test_it_takes_the_port_that_it_is_given():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Emulator(port=port) as emulator:
        assert emulator.host == f"127.0.0.1:{port}"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_the_process_that_started_it_however_that_dies(environ, tmp_path, end):
    code = """
        import time
        from counters.testing import Emulator
        with Emulator() as emulator:
            print(emulator.host, flush=True)
            while True:  # a signal that comes just before one long wait would be seen after it
                time.sleep(0.01)
    """
    with Process(environ, code) as process:
        host = process.line()
        assert accepts(host)
        process.end_by(end)
        assert has_ended(host)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_a_forked_child_that_leaves_the_block_does_not_end_its_parent_s_emulator(environ):
    code = """
        import os, sys
        from counters.testing import Emulator
        with Emulator() as emulator:
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                print(emulator.host, flush=True)
                input()
        os._exit(0)
    """
    with Process(environ, code) as process:
        assert accepts(process.line())


def test_one_that_does_not_start_shows_the_last_that_it_printed(tmp_path):
    script = tmp_path / "broken"
    script.write_text("#!/bin/sh\necho starting on $2\necho port is taken >&2\nexit 3\n")
    script.chmod(0o755)
    emulator = Emulator(Found("hidane", None, (str(script),)))
    with pytest.raises(EmulatorFailed, match="exited with code 3") as caught, emulator:
        pass
    assert "starting on --port=" in str(caught.value)
    assert str(caught.value).endswith("port is taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "broken"]


def test_one_that_ran_already_is_used_and_left_running(monkeypatch, tmp_path):
    with Emulator() as running:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", running.host)
        with Emulator() as emulator:
            assert (emulator.host, emulator.kind) == (running.host, "external")
        with Emulator.shared(tmp_path) as emulator:
            assert (emulator.host, emulator.kind) == (running.host, "external")
        assert accepts(running.host)


def test_one_that_should_run_already_but_does_not_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    with pytest.raises(EmulatorFailed, match=r"127\.0\.0\.1:1: start it, or unset"), Emulator():
        pass


def test_processes_that_share_one_may_come_go_and_die_and_the_last_ends_it(environ, tmp_path):
    code = SHARED.format(directory=str(tmp_path))
    with (
        Process(environ, code) as first,
        Process(environ, code) as second,
        Process(environ, code) as third,
    ):
        host = first.line()
        assert second.line() == third.line() == host
        first.end_by(signal.SIGKILL)
        second.end_by(signal.SIGTERM)
        with Emulator.shared(tmp_path) as emulator:
            assert emulator.host == host
            third.go_on()
            third.end_by(0)
            assert accepts(host)
        assert has_ended(host)
        with Emulator.shared(tmp_path) as emulator:
            assert accepts(emulator.host)


def test_a_shared_one_that_has_crashed_is_started_anew_for_the_next_who_comes(tmp_path):
    with Emulator.shared(tmp_path) as emulator:
        with grpc.insecure_channel(emulator.host) as channel:
            channel.unary_unary("/Crash").future(b"").exception(timeout=30)
        assert has_ended(emulator.host)
        with Emulator.shared(tmp_path) as another:
            assert another.host != emulator.host
            assert accepts(another.host)


def test_those_who_come_at_the_same_time_start_one(environ, tmp_path):
    code = SHARED.format(directory=str(tmp_path))
    with Process(environ, code) as one, Process(environ, code) as two:
        assert one.line() == two.line() != ""
        assert len(list(tmp_path.glob("counters-emulator-*"))) == 1


def test_workers_of_pytest_xdist_share_one_even_when_one_crashes_and_it_ends_with_the_run(pytester):
    pytester.makepyfile(
        """
        import os, pathlib, time, pytest

        def workers():
            return {line.split()[1] for line in pathlib.Path("seen").read_text().splitlines()}

        @pytest.mark.parametrize("n", range(6))
        def test_each(n, counters_emulator, worker_id):
            with pathlib.Path("seen").open("a") as seen:
                print(counters_emulator.host, worker_id, file=seen)
            while len(workers()) < 2:
                time.sleep(0.01)
            if n == 0:
                os._exit(1)
        """
    )
    result = pytester.runpytest_subprocess("-n", "2", "-p", "no:asyncio", timeout=300)
    result.assert_outcomes(passed=5, failed=1)
    seen = [line.split() for line in pytester.path.joinpath("seen").read_text().splitlines()]
    hosts = {worker: host for host, worker in seen}
    # Those that were there together. The crashed one's successor may come when both are gone.
    assert hosts["gw0"] == hosts["gw1"]
    assert all(has_ended(host) for host in hosts.values())
