"""Starting, hearing and killing the processes of ``worker.py``."""

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

_WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """One process and what it has said. Leads a group of its own, so that its forks die with it."""

    def __init__(self, host, project, task, *arguments):
        self.lines = []
        self._process = subprocess.Popen(
            [sys.executable, os.fspath(_WORKER), host, project, task, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "1"},
        )
        self.begun = threading.Event()
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def _hear(self):
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                self.lines.append(line.decode().rstrip("\n").split(" ", 2))
                self.begun.set()

    def give(self, job):
        """Hand it what it reads from stdin, all of it."""
        self._process.stdin.write(json.dumps(job).encode())
        self._process.stdin.close()

    def stop(self):
        """Have it end after what it is at."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self):
        os.killpg(self._process.pid, signal.SIGKILL)

    def join(self, seconds=60):
        """Wait for its end; its exit code."""
        code = self._process.wait(seconds)
        self._thread.join(seconds)
        self._process.stdout.close()
        if not self._process.stdin.closed:
            self._process.stdin.close()
        return code


class Ledger:
    """What workers said of their increments, added up."""

    def __init__(self, workers):
        self.acknowledged = 0
        self.open = []
        self.counts = collections.Counter()
        for worker in workers:
            self._add(worker.lines)

    def _add(self, lines):
        begun = {}
        for process, sign, what in lines:
            self.counts[sign] += 1
            if sign == "+":
                begun[process] = int(what)
                continue
            amount = begun.pop(process)
            if sign == "=":
                self.acknowledged += amount
            elif sign == "?":
                self.open.append(amount)
        self.open += begun.values()

    @property
    def least(self):
        return self.acknowledged + sum(amount for amount in self.open if amount < 0)

    @property
    def most(self):
        return self.acknowledged + sum(amount for amount in self.open if amount > 0)
