"""Start a Firestore emulator, and make sure that it ends. For Linux and macOS.

::

    with Emulator() as emulator:
        ...  # FIRESTORE_EMULATOR_HOST=emulator.host

It ends with the ``with`` block, and also when this process dies, even by ``kill -9``: a small
keeper process (``_keeper.py``) watches over it. What has been stored in it is gone then.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import grpc

from counters.testing.discovery import EmulatorNotFound, Found, find_emulator, install_hidane

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

    from counters.testing.discovery import Kind

__all__ = [
    "Emulator",
    "EmulatorFailed",
    "EmulatorNotFound",
    "Found",
    "find_emulator",
    "install_hidane",
]

_START_TIMEOUT = 60.0  # seconds; 2 are usual, a loaded CI machine needs more
_TAIL = 30  # lines of output shown when it does not start


class EmulatorFailed(RuntimeError):
    """An emulator was found but does not answer. The message ends with the last it printed."""


class Emulator:
    """A Firestore emulator on a free port of 127.0.0.1, for as long as the ``with`` block runs.

    Without arguments it is the first that :func:`find_emulator` finds; where that is one that runs
    already, it is used and left running. Being up takes Google's about 2 seconds, hidane 0.1.

    ``host``, ``kind`` and ``version`` say what it is. Raises :class:`EmulatorNotFound` and
    :class:`EmulatorFailed`.
    """

    def __init__(self, found: Found | None = None, *, port: int = 0) -> None:
        self._found = found or find_emulator()
        self._port = port
        self._host = self._found.host
        self._keeper: _Keeper | None = None

    @property
    def host(self) -> str:
        """``host:port``, as ``FIRESTORE_EMULATOR_HOST`` wants it."""
        if self._host is None:
            raise RuntimeError("the emulator is not running: use it within `with Emulator()`")
        return self._host

    @property
    def kind(self) -> Kind:
        """Whose it is: ``google``, ``hidane``, or ``external`` for one that ran already."""
        return self._found.kind

    @property
    def version(self) -> str | None:
        """Its version; None where that would have to be asked of a server."""
        return self._found.version

    def __enter__(self) -> Self:
        if self._host is None:
            self._keeper = _Keeper.start(self._found, self._port, Path(tempfile.gettempdir()))
            self._host = self._keeper.host
        elif not _answers(self._host):
            raise EmulatorFailed(
                f"no Firestore emulator answers at {self._host}: start it, or unset "
                "FIRESTORE_EMULATOR_HOST to have one started"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._keeper is not None:
            self._keeper.stop()
            self._keeper = None
            self._host = None

    @classmethod
    @contextlib.contextmanager
    def shared(cls, directory: Path) -> Iterator[Emulator]:
        """One emulator for all processes that name the same ``directory`` at a time.

        The first that comes starts it; the kernel notices when the last of them has left or died,
        and it is stopped. None of them owns it, so any may crash.
        """
        found = find_emulator()
        if found.host is not None:
            with cls(found) as emulator:
                yield emulator
            return
        with _exclusive(directory / "counters-emulator.lock"):
            keeper = _Keeper.join(directory / "counters-emulator.json")
            if keeper is None:
                keeper = _Keeper.start(found, 0, directory)
                keeper.announce(directory / "counters-emulator.json")
        emulator = cls(replace(found, host=keeper.host))
        try:
            yield emulator
        finally:
            keeper.leave()


class _Keeper:
    """One hand on the lifeline of an emulator that ``_keeper.py`` runs."""

    def __init__(self, host: str, home: Path, lifeline: IO[bytes], pid: int) -> None:
        self.host = host
        self._home = home
        self._lifeline = lifeline
        self._pid = pid
        self._owner = os.getpid()

    @classmethod
    def start(cls, found: Found, port: int, directory: Path) -> _Keeper:
        """Start the emulator and wait until it answers."""
        home = Path(tempfile.mkdtemp(prefix="counters-emulator-", dir=directory))
        lifeline = (home / "lifeline").open("w+b")
        fcntl.flock(lifeline, fcntl.LOCK_SH)
        port = port or _free_port()
        command = (*found.command, "--host=127.0.0.1", f"--port={port}")
        script = str(Path(__file__).with_name("_keeper.py"))
        log = os.fspath(home / "log")
        # Not subprocess.Popen: it wants a wait from us, and a shared emulator may outlive us.
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", script, os.fspath(home), *command],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,  # a group of its own, which Ctrl-C in the terminal does not reach
        )
        keeper = cls(f"127.0.0.1:{port}", home, lifeline, pid)
        try:
            keeper.wait_until_up(found)
        except BaseException:
            keeper.stop()
            raise
        return keeper

    def wait_until_up(self, found: Found) -> None:
        """Return when it answers a call; raise :class:`EmulatorFailed` if it exits or is late."""
        deadline = time.monotonic() + _START_TIMEOUT
        while not _answers(self.host):
            exited, status = os.waitpid(self._pid, os.WNOHANG)
            if exited:
                self._pid = 0
                outcome = f"exited with code {os.waitstatus_to_exitcode(status)}"
            elif time.monotonic() > deadline:
                outcome = f"did not answer within {_START_TIMEOUT:.0f} s"
            else:
                time.sleep(0.05)
                continue
            output = (self._home / "log").read_text(encoding="utf-8", errors="replace")
            tail = "\n".join(output.splitlines()[-_TAIL:]) or "(nothing)"
            raise EmulatorFailed(
                f"the {found.kind} emulator {outcome}.\n"
                f"  command: {' '.join(found.command)}\n  its last output:\n{tail}"
            )

    def announce(self, file: Path) -> None:
        """Let others :meth:`join`."""
        file.write_text(json.dumps({"host": self.host, "home": os.fspath(self._home)}), encoding="utf-8")

    @classmethod
    def join(cls, file: Path) -> _Keeper | None:
        """Take hold of the emulator announced in ``file``; None if it has ended or is about to."""
        try:
            announced = json.loads(file.read_text(encoding="utf-8"))
            home = Path(announced["home"])
            lifeline = (home / "lifeline").open("rb")
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lifeline, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            lifeline.close()
            return None
        if not _answers(announced["host"]):
            lifeline.close()
            return None
        return cls(announced["host"], home, lifeline, 0)

    def leave(self) -> None:
        """Let go; the emulator ends if this was the last hand."""
        self._lifeline.close()

    def stop(self) -> None:
        """End the emulator now, whoever uses it. A forked child only lets go."""
        if os.getpid() != self._owner:
            self.leave()
            return
        if self._pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGTERM)
                os.waitpid(self._pid, 0)
            with contextlib.suppress(ProcessLookupError):  # where the keeper died without it
                os.killpg(self._pid, signal.SIGKILL)
            self._pid = 0
        self._lifeline.close()
        shutil.rmtree(self._home, ignore_errors=True)


@contextlib.contextmanager
def _exclusive(file: Path) -> Iterator[None]:
    """Hold ``file``'s lock, alone among all processes; waits for it."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(host: str) -> bool:
    """Whether a Firestore server answers at ``host``: a read of a document that is not there."""
    try:
        address, _, port = host.rpartition(":")
        socket.create_connection((address.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError):
        return False  # asked first, since gRPC would wait a second before it tried again
    name = b"projects/probe/databases/(default)/documents/probe/probe"
    request = b"\x0a" + bytes([len(name)]) + name  # GetDocumentRequest(name=…)
    with grpc.insecure_channel(host, options=[("grpc.enable_http_proxy", 0)]) as channel:
        get: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/google.firestore.v1.Firestore/GetDocument"
        )
        try:
            get(request, timeout=10, metadata=(("authorization", "Bearer owner"),))
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.NOT_FOUND
    return True
