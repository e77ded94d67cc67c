"""What exactly-once costs: ``increment()`` beside the two bare calls that it needs.

    python benchmarks/cost_of_exactness.py [--rounds 400]

Three ways to add one to a shard take turns in one run, against one emulator:

- ``bare``: BeginTransaction and Commit, the write built anew as any program must, nothing else;
- ``increment``: ``Counter.increment()``, which settles doubts, chooses shards and leaves receipts;
- ``sdk``: the SDK's ``set({"value": Increment(1)}, merge=True)``: one call, counts lost answers twice.

The turns of a round are neighbours in time, so their ratio says something on a busy machine too: the
figures are medians of ratios. CPU is this process's own. Writes build/cost_of_exactness.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from google.cloud.firestore import Client, Increment

from counters import Counters, Policy, layout, shards, wire
from counters.context import Call
from counters.testing import Emulator, open_client

CALLS_A_TURN = 20
WARM_UP = 30
OUTPUT = Path("build/cost_of_exactness.json")


@dataclass
class Way:
    """One way to add one, and what its turns took: seconds and CPU seconds a call."""

    call: Callable[[], object]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        """Make the calls of one turn."""
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(CALLS_A_TURN):
            self.call()
        self.wall.append((time.perf_counter() - wall) / CALLS_A_TURN)
        self.cpu.append((time.process_time() - cpu) / CALLS_A_TURN)


def bare(client: Client, counters: Counters, path: str) -> Callable[[], object]:
    """Begin and commit: the same two messages, and nothing that decides, settles or chooses."""
    transport = wire.SyncTransport(client)
    database = wire.database_of(client)
    where = Call(counters.context, database)
    receipt = wire.Receipt(layout.RECEIPTS, "bare000000", 1)

    def call() -> object:
        transaction = wire.transaction_of(transport.send(wire.begin(database, 15.0)))
        write = shards.add(where, path, 0, 1, receipt)
        return transport.send(wire.commit(database, [write], 15.0, transaction))

    return call


def measure(client: Client, rounds: int) -> dict[str, Way]:
    """Let the three take turns, in a random order each round."""
    counters = Counters(client, cache_seconds=3600, policy=Policy(seed=1))
    ways = {}
    for name in ("bare", "increment"):
        counter = counters.on(f"benchmarks/{name}", "likes")
        counter.create(shards=1)
        ways[name] = Way(bare(client, counters, counter.path) if name == "bare" else counter.increment)
    document = client.document("benchmarks/sdk")
    ways["sdk"] = Way(lambda: document.set({"value": Increment(1)}, merge=True))
    for way in ways.values():
        for _ in range(WARM_UP):
            way.call()
    order = list(ways.values())
    chance = random.Random(1)
    gc.disable()  # a collection would be charged to whose turn it is
    for _ in range(rounds):
        chance.shuffle(order)
        for way in order:
            way.take_turn()
        gc.collect()
    gc.enable()
    return ways


def compare(way: Way, other: Way) -> dict[str, float]:
    """How much ``way`` takes beside ``other``: medians of the rounds' ratios, and their quartiles."""
    result: dict[str, float] = {}
    for kind in ("wall", "cpu"):
        ratios = [one / two for one, two in zip(getattr(way, kind), getattr(other, kind), strict=True)]
        lower, median, upper = statistics.quantiles(ratios, n=4)
        result |= {kind: median, f"{kind}_lower_quartile": lower, f"{kind}_upper_quartile": upper}
    return {name: round(value, 3) for name, value in result.items()}


def main() -> None:
    """Run it, print the figures, and write them down."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--rounds", type=int, default=150)
    rounds = options.parse_args().rounds
    with Emulator() as emulator, open_client(emulator.host, "benchmark-cost") as client:
        ways = measure(client, rounds)
        server = f"{emulator.kind} {emulator.version or ''}".strip()
    result = {
        "server": server,
        "python": platform.python_version(),
        "google-cloud-firestore": version("google-cloud-firestore"),
        "rounds": rounds,
        "calls_a_turn": CALLS_A_TURN,
        "milliseconds": {
            name: {
                "wall": round(statistics.median(way.wall) * 1000, 3),
                "cpu": round(statistics.median(way.cpu) * 1000, 3),
            }
            for name, way in ways.items()
        },
        "increment_to_bare": compare(ways["increment"], ways["bare"]),
        "increment_to_sdk": compare(ways["increment"], ways["sdk"]),
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")
    out = sys.stdout.write
    out(f"{server}, {rounds} rounds of {CALLS_A_TURN} calls each\n")
    for name, took in result["milliseconds"].items():
        out(f"{name:>10}: {took['wall']:.3f} ms, {took['cpu']:.3f} ms CPU a call\n")
    for other in ("bare", "sdk"):
        ratio = result[f"increment_to_{other}"]
        out(f"increment to {other}: {ratio['wall']:.3f} in time, {ratio['cpu']:.3f} in CPU\n")


if __name__ == "__main__":
    main()
