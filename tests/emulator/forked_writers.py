"""Increment one counter from forked processes; a script, so that it forks from a process of its own.

    python forked_writers.py HOST PROJECT COUNTER PROCESSES INCREMENTS

Its ``Counters`` is in use before the fork. Half of the children go on with it, half make their own;
all make their own client. After a third of its increments, the first child resizes the counter to
40 shards, after another third to 3. Prints, as JSON, the name of a lane of each process and a few
numbers that it drew, the parent's first.
"""

import json
import multiprocessing
import sys

from counters import Counters
from counters.testing import open_client


def identity(app):
    lanes = app.context.lanes
    lane = lanes.acquire()
    lanes.release(lane)
    return lane.name, [app.context.random() for _ in range(3)]


def write(task):
    number, increments = task
    with open_client(host, project) as client:
        app = inherited if number % 2 else Counters(client, cache_seconds=0.2)
        counter = app.at(client.document(path))
        for done in range(increments):
            if number == 0 and done in resizes:
                counter.resize(resizes[done])
            counter.increment()
    return identity(app)


if __name__ == "__main__":
    host, project, path, *numbers = sys.argv[1:]
    processes, increments = map(int, numbers)
    resizes = {increments // 3: 40, increments * 2 // 3: 3}
    with open_client(host, project) as client:
        inherited = Counters(client, cache_seconds=0.2)
        inherited.at(client.document(path)).increment()
        mine = identity(inherited)
        with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
            theirs = pool.map(write, [(number, increments) for number in range(processes)], 1)
    json.dump([mine, *theirs], sys.stdout)
