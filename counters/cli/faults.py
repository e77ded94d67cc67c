"""``counters demo --faults``: the SDK's increment beside ours, while a fifth of the answers is lost."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Final

from google.cloud.firestore import Client, Increment
from rich.live import Live
from rich.table import Table
from rich.text import Text

from counters import Counters
from counters.cli.console import is_live, out, say
from counters.cli.exits import Failure
from counters.cli.view import whole
from counters.testing import Gateway, LostAnswer, open_client

TIMES: Final = 400
_LOST: Final = LostAnswer("Commit")
_RATE: Final = 0.2
_SEED: Final = 5
_LOOK_EVERY: Final = 0.25  # seconds
_LINE_EVERY: Final = 8  # looks


class Side:
    """One way to add one, behind a gateway of its own that loses answers; both lose by the same seed."""

    def __init__(
        self, name: str, increment: Callable[[], object], read: Callable[[], int], gateway: Gateway
    ) -> None:
        self.name = name
        self.done = 0
        self._increment = increment
        self._read = read
        self._gateway = gateway

    def work(self, times: int, stopped: Callable[[], bool]) -> None:
        """Add one so many times, one after the other."""
        self._gateway.random(seed=_SEED, rates={_LOST: _RATE})
        while self.done < times and not stopped():
            self._increment()
            self.done += 1
        self._gateway.calm()

    @property
    def lost(self) -> int:
        """How many answers were lost."""
        return self._gateway.struck[_LOST]

    @property
    def stored(self) -> int:
        """What is stored now."""
        return self._read()


def compare(host: str, project: str, database: str | None, times: int = TIMES) -> None:
    """Let both sides add one so many times at once, show it, and say what is stored.

    Raises ``Failure`` if ours is not exact.
    """
    post = f"posts/{secrets.token_hex(3)}"
    with ExitStack() as stack:
        look = stack.enter_context(open_client(host, project, database))
        gateways = [stack.enter_context(Gateway(host)) for _ in range(2)]
        naive, client = (
            stack.enter_context(open_client(gateway.host, project, database)) for gateway in gateways
        )
        sides = [_sdk(naive, look, post, gateways[0]), _ours(client, look, post, gateways[1])]
        say(f"each adds 1 {times:,} times; of every five answers to a commit, one is lost\n")
        _run(sides, times)
        out.print(_table(sides, times, ended=True))
        _, ours = sides
        if ours.stored != times:
            raise Failure(f"{ours.name} counted {ours.stored:,} of {times:,}")
        say("\nthe SDK sends a commit again whose answer did not come; firestore-counters looks first")


def _sdk(client: Client, look: Client, post: str, gateway: Gateway) -> Side:
    document, seen = client.document(post), look.document(post)
    return Side(
        "Increment(1) of the SDK",
        lambda: document.set({"likes": Increment(1)}, merge=True),
        lambda: (seen.get().to_dict() or {}).get("likes", 0),
        gateway,
    )


def _ours(client: Client, look: Client, post: str, gateway: Gateway) -> Side:
    counter, seen = Counters(client).on(post, "likes"), Counters(look).on(post, "likes")
    return Side("firestore-counters", counter.increment, seen.value, gateway)


def _run(sides: Sequence[Side], times: int) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(len(sides)) as pool:
        work = [pool.submit(side.work, times, stop.is_set) for side in sides]
        try:
            _show_until_done(work, sides, times)
        finally:
            stop.set()
    for each in work:
        each.result()


def _show_until_done(work: Sequence[Future[None]], sides: Sequence[Side], times: int) -> None:
    if is_live():
        with Live(console=out, transient=True) as live:
            while wait(work, _LOOK_EVERY).not_done:
                live.update(_table(sides, times, ended=False))
        return
    looks = 0
    while wait(work, _LOOK_EVERY).not_done:
        if looks % _LINE_EVERY == 0:
            say("; ".join(f"{side.name}: {side.done:,} done, {side.stored:,} stored" for side in sides))
        looks += 1


def _table(sides: Sequence[Side], times: int, *, ended: bool) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("")
    for heading in ("increments", "answers lost", "stored"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for side in sides:
        stored = side.stored
        exact = Text("exact", style="green")
        wrong = Text(f"{stored - times:+,}", style="bold red")
        verdict = (exact if stored == times else wrong) if ended else Text()
        table.add_row(side.name, whole(side.done), whole(side.lost), Text(whole(stored)), verdict)
    return table
