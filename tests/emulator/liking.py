"""A process that likes, or removes all likes: to be one of several at work, or to be killed.

It speaks to the server that ``FIRESTORE_EMULATOR_HOST`` names.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from google.cloud.firestore import Client

from counters import Counters

_THREADS = 4


class Process:
    """One that does a job, given as arguments; what it says comes line by line."""

    def __init__(self, host, project, *job):
        self._process = subprocess.Popen(
            [sys.executable, __file__, project, *map(str, job)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"FIRESTORE_EMULATOR_HOST": host},
        )

    def hear(self):
        """The next thing that it says; None once it has ended."""
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def kill(self):
        """End it at once, whatever it is at."""
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def wait(self):
        """Wait for its end; its last word."""
        last = None
        for line in self._process.stdout:
            last = json.loads(line)
        assert self._end() == 0
        return last

    def _end(self):
        self._process.stdout.close()
        return self._process.wait()


def add_customers(likes, file, hand, hands):
    """Add the customer of every row that is dealt to this hand; say how often that was the first."""
    dealt = customers(file)[int(hand) :: int(hands)]
    with ThreadPoolExecutor(_THREADS) as pool:
        say(sum(pool.map(likes.add, dealt)))


def customers(file):
    """Whose purchase each row of CDNOW_master.txt is; the first row is a heading."""
    rows = [row.split() for row in Path(file).read_text(encoding="utf-8").splitlines()]
    return [row[0] for row in rows if row and row[0].isdecimal()]


def remove_all(likes):
    """Remove all, and say after each page how many."""
    say(likes.remove_all(say))


def say(what):
    print(json.dumps(what), flush=True)  # noqa: T201 - that is how it speaks


if __name__ == "__main__":
    project, job, parent, name, *arguments = sys.argv[1:]
    count = Counters(Client(project=project)).children(parent, name)
    {"add_customers": add_customers, "remove_all": remove_all}[job](count, *arguments)
