"""A process that counts, says so, and may be killed at any moment. A script.

    python worker.py HOST PROJECT increments PATH SEED [fork]
    python worker.py HOST PROJECT keys PATH SEED < deliveries.json
    python worker.py HOST PROJECT rollups

``increments`` and ``rollups`` go on until stdin ends. Each line that it prints is a process id, a
sign, and what it is about: ``+`` begun, ``=`` done, ``-`` not applied, ``?`` unknown, ``!`` ready.
"""

import asyncio
import json
import os
import random
import sys
import threading

from counters import AsyncCounters, CounterError, Counters, NotApplied
from counters.policy import Backoff, Policy
from counters.testing import open_async_client, open_client

SHORT = Policy(backoff=Backoff(first=0.002, longest=0.05))
AT_ONCE = 16


def say(sign, what):
    os.write(1, f"{os.getpid()} {sign} {what}\n".encode())


def told_to_stop():
    """A flag that is set when stdin ends."""
    stop = threading.Event()
    threading.Thread(target=lambda: (os.read(0, 1), stop.set()), daemon=True).start()
    return stop


def settled(sign_of, what):
    """Say what came of a call."""
    say("+", what)
    try:
        sign = sign_of()
    except NotApplied:
        sign = "-"
    except CounterError:
        sign = "?"
    say(sign, what)


def increment(client, app, path, chance, stop):
    counter = app.at(client.document(path))
    while not stop.is_set():
        amount = chance.choice([-3, -1, 1, 1, 2, 5])
        settled(lambda amount=amount: counter.increment(amount) or "=", amount)


def increments(path, seed, fork=None):
    app = None
    with open_client(host, project) as client:
        app = Counters(client, policy=SHORT, cache_seconds=0.2)
        if fork:
            for _ in range(3):
                settled(lambda: app.at(client.document(path)).increment() or "=", 1)
        child = os.fork() if fork else None
        if child != 0:
            increment(client, app, path, random.Random(seed), told_to_stop())
            if child:
                os.waitpid(child, 0)
            return
    with open_client(host, project) as client:  # the child has a client of its own, and this app
        app.client = client
        increment(client, app, path, random.Random(f"{seed} child"), told_to_stop())
        os._exit(0)


def keys(path, seed):
    say("!", "ready")
    deliveries = json.load(sys.stdin)
    random.Random(seed).shuffle(deliveries)

    async def deliver():
        with open_async_client(host, project) as client:
            counter = AsyncCounters(client, policy=SHORT).at(client.document(path))

            async def take():
                while deliveries:
                    key, amount = deliveries.pop()
                    say("+", key)
                    say("=" if await counter.increment_once(key, amount) else "-", key)

            await asyncio.gather(*(take() for _ in range(AT_ONCE)))

    asyncio.run(deliver())


def rollups():
    stop = told_to_stop()
    with open_client(host, project) as client:
        app = Counters(client, policy=SHORT)
        while not stop.is_set():
            settled(lambda: app.roll_up() and "=", 0)


if __name__ == "__main__":
    host, project, task, *arguments = sys.argv[1:]
    {"increments": increments, "keys": keys, "rollups": rollups}[task](*arguments)
