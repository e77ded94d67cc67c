"""``counters emulator``: find a Firestore emulator, start one, or get one."""

from __future__ import annotations

import os
import shlex
import time
from typing import Annotated, Final

import typer

from counters.cli.console import say
from counters.cli.database import listens
from counters.cli.exits import Failure
from counters.cli.options import examples
from counters.testing import Emulator, EmulatorNotFound, find_emulator, install_hidane
from counters.testing.discovery import Found

EXAMPLES: Final = examples(
    "counters emulator find",
    "counters emulator start --port 8080",
    "counters emulator install    hidane, which needs no Java; 3 minutes, once",
)

commands: Final = typer.Typer(
    no_args_is_help=True,
    help=f"Find, start or get a Firestore emulator.\n\n{EXAMPLES}",
)
_LOOK_EVERY: Final = 1.0  # seconds


def name_of(found: Found) -> str:
    """What to call an emulator.

    >>> name_of(Found("google", "1.19.9"))
    "Google's Firestore emulator 1.19.9"
    """
    if found.host:
        return f"the Firestore emulator at {found.host}"
    owner = (
        "Google's Firestore emulator" if found.kind == "google" else f"the Firestore emulator {found.kind}"
    )
    return f"{owner} {found.version or ''}".rstrip()


@commands.command()
def find() -> None:
    """Say which emulator would be used.

    EMULATOR=google or EMULATOR=hidane in the environment leaves out the other.
    """
    found = find_emulator()
    say(name_of(found))
    if not found.host:
        say(shlex.join(found.command))


@commands.command()
def start(
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="0: any free one.")] = 8080,
) -> None:
    """Start an emulator, and end it at Ctrl-C.

    What was stored in it is gone then.
    """
    # One that runs already is no reason not to start another.
    found = find_emulator({k: v for k, v in os.environ.items() if k != "FIRESTORE_EMULATOR_HOST"})
    if port and listens(f"127.0.0.1:{port}"):
        raise Failure(f"port {port} is taken: --port 0 takes any free one")
    with Emulator(found, port=port) as emulator:
        say(f"{name_of(found)} is up; Ctrl-C ends it. In other terminals:")
        say(f"export FIRESTORE_EMULATOR_HOST={emulator.host}")
        while listens(emulator.host):
            time.sleep(_LOOK_EVERY)
    raise Failure("the emulator has ended by itself")


@commands.command()
def install(
    if_none: Annotated[bool, typer.Option("--if-none", help="Only where no emulator is found.")] = False,
) -> None:
    """Get hidane, an emulator that needs no Java.

    Builds it with cargo, into your cache, where it is found from then on. Takes
    3 minutes, once.
    """
    if if_none:
        try:
            find_emulator()
        except EmulatorNotFound:
            if os.environ.get("EMULATOR") not in {None, "", "hidane"}:
                raise  # hidane would not be used: it is left out, or the name is unknown
        else:
            return
    install_hidane(say)
