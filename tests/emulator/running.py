"""A command that runs in a process of its own, and what is left of it afterwards."""

import os
import re
import signal
import subprocess
import sys
import time


class Running:
    """``counters …`` as a leader of its own session, as in a terminal of its own."""

    def __init__(self, *args, env):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "counters.cli", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
        self._process.stdout.close()
        self._process.wait()

    def read_until(self, pattern):
        said = []
        for line in self._process.stdout:
            said.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError(f"it ended without {pattern!r}: {''.join(said)}")

    def interrupt(self):
        """Press Ctrl-C: a terminal sends it to the whole group in front of it."""
        os.killpg(self.pid, signal.SIGINT)

    def rest(self):
        return self._process.stdout.read()

    def wait(self):
        return self._process.wait(timeout=60)


def descendants(pid):
    """The processes that a process has started, and those that they have."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = [tuple(map(int, line.split())) for line in table.stdout.splitlines()]
    found = set()
    young = {pid}
    while young:
        young = {child for child, parent in parents if parent in young}
        found |= young
    return found


def gone(pids):
    """Whether all these processes end; an emulator that was killed needs a moment to be gone."""
    return comes(lambda: not any(map(is_alive, pids)))


def comes(condition):
    """Whether a condition comes to hold, within a time that is long for a busy machine."""
    for _ in range(2000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
