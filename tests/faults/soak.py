"""A long bad day: faults at 10 %, 8 writers, rollups that overlap, kills, forks, resizes, resets.

    python tests/faults/soak.py --minutes 3 [--seed 7]

Each round starts its processes, lets things happen, and ends in a quiet moment, when the stored
value must be what a plain model says: all that was acknowledged, and of what killed processes were
at, any part. The seed decides faults, amounts and what happens when; it is printed, and replays them
(when processes run, the machine decides).
"""

import argparse
import random
import secrets
import time
from collections import Counter as Multiset

import grpc
from workers import Ledger, Worker

from counters import Counters
from counters.policy import Backoff, Policy
from counters.testing import (
    ConnectionCut,
    Delayed,
    DeliveredTwice,
    Emulator,
    Gateway,
    HeldBack,
    LostAnswer,
    LostRequest,
    Refused,
    open_client,
)

SHORT = Policy(backoff=Backoff(first=0.002, longest=0.05))
WRITERS = 8
FORKING = 2
ROLLUPS = 2
TEN_PERCENT = {
    LostAnswer("Commit"): 0.02,
    LostAnswer("Commit", code=grpc.StatusCode.ABORTED): 0.01,
    LostRequest("Commit"): 0.02,
    HeldBack("Commit"): 0.02,
    DeliveredTwice("Commit"): 0.01,
    Refused("Commit"): 0.01,
    Delayed("Commit", 0.05): 0.005,
    ConnectionCut("Commit"): 0.0025,
    ConnectionCut("Commit", applied=True): 0.0025,
    LostRequest("Rollback"): 0.04,
    LostAnswer("Rollback"): 0.04,
    HeldBack("Rollback"): 0.02,
    LostRequest("BeginTransaction"): 0.05,
    LostAnswer("BeginTransaction"): 0.05,
    LostRequest("BatchGetDocuments"): 0.1,
    LostRequest("RunQuery"): 0.1,
    LostRequest("RunAggregationQuery"): 0.1,
}


class Soak:
    """One counter through many rounds."""

    def __init__(self, host, project, seed):
        self.host, self.project = host, project
        self.chance = random.Random(seed)
        self.happened = Multiset()
        self.acknowledged = 0
        self.rounds = 0
        self.base = 0

    def run(self, minutes, report):
        until = time.monotonic() + 60 * minutes
        with (
            Gateway(self.host) as gateway,
            open_client(self.host, self.project) as calm,
            open_client(gateway.host, self.project) as client,
        ):
            self.gateway = gateway
            self.likes = Counters(client, policy=SHORT).on("posts/soak", "likes")
            self.calm = Counters(calm)
            self.calm_likes = self.calm.on("posts/soak", "likes")
            self.calm_likes.create(shards=4)
            while not self.rounds or time.monotonic() < until:
                report(self._round())
            self.happened["faults"] = sum(gateway.struck.values())

    def _round(self):
        self.gateway.random(seed=self.chance.randrange(2**32), rates=TEN_PERCENT)
        writers = [self._writer(fork=number < FORKING) for number in range(WRITERS)]
        rollups = [Worker(self.gateway.host, self.project, "rollups") for _ in range(ROLLUPS)]
        everyone = writers + rollups
        try:
            for worker in everyone:
                assert worker.begun.wait(60), "a worker did not start"
            taken = self._events(writers, rollups)
        finally:
            for worker in everyone:
                worker.stop()
            for worker in everyone:
                worker.join()
        return self._quiet(writers, taken)

    def _writer(self, *, fork):
        path, seed = self.calm_likes.path, self.chance.randrange(2**32)
        return Worker(self.gateway.host, self.project, "increments", path, seed, *["fork"] * fork)

    def _events(self, writers, rollups):
        """Let things happen for some seconds; what resets have taken."""
        taken = 0
        alive = [*writers, *rollups]
        for _ in range(self.chance.randint(4, 8)):
            time.sleep(self.chance.uniform(0.2, 1.0))
            event = self.chance.choice(["kill", "kill", "resize", "reset"])
            if event == "kill":
                alive.pop(self.chance.randrange(len(alive))).kill()
            elif event == "resize":
                self.likes.resize(self.chance.randint(1, 12))
            else:
                taken += self.likes.reset()
            self.happened[event] += 1
        return taken

    def _quiet(self, writers, taken):
        """Compare with the model; a line about the round."""
        self.gateway.calm()
        self.gateway.release()
        ledger = Ledger(writers)
        value = self.calm_likes.value()
        least, most = (self.base + amount - taken for amount in (ledger.least, ledger.most))
        assert least <= value <= most, f"{value} is stored, the model says {least} to {most}"
        assert self.calm.roll_up().failed == ()
        assert self.calm_likes.total().value == value
        self.base = value
        self.rounds += 1
        self.acknowledged += ledger.counts["="]
        self.happened.update({"unknown": ledger.counts["?"], "not applied": ledger.counts["-"]})
        return (
            f"round {self.rounds}: {ledger.counts['=']:,} acknowledged, {len(ledger.open)} open; "
            f"{least:,} <= {value:,} <= {most:,}, and so is the total"
        )

    def __str__(self):
        happened = ", ".join(f"{what} {count:,}" for what, count in sorted(self.happened.items()))
        return f"{self.rounds} rounds, {self.acknowledged:,} increments acknowledged; {happened}"


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--minutes", type=float, default=3)
    options.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    chosen = options.parse_args()
    print(f"seed {chosen.seed}", flush=True)  # noqa: T201 - a script
    with Emulator() as emulator:
        soak = Soak(emulator.host, f"soak-{chosen.seed}", chosen.seed)
        soak.run(chosen.minutes, lambda line: print(line, flush=True))  # noqa: T201
    print(soak)  # noqa: T201


if __name__ == "__main__":
    main()
