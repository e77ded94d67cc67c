"""The commands, in the order in which ``counters --help`` lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Final

import typer

from counters.cli import audit, demo, doctor, emulator, increment, init, replay, rollup, show
from counters.cli.console import say
from counters.cli.exits import Commands
from counters.cli.options import examples

EXAMPLES: Final = examples(
    "counters demo                                   see it work, on an emulator",
    "counters increment posts/a91f/counters/likes    one like more",
    "counters show posts/a91f/counters/likes         value, total, every shard",
)

app: Final = typer.Typer(
    name="counters",
    help=f"Distributed counters on Cloud Firestore: try them, fill them, look at them.\n\n{EXAMPLES}",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        say(f"firestore-counters {version('firestore-counters')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which this is.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def _add(command: Callable[..., None], examples: str) -> None:
    """Add a command; its docstring is its help, with lines as long as the terminal is wide."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    flowing = [paragraph.replace("\n", " ") for paragraph in paragraphs]
    app.command(help="\n\n".join([*flowing, examples]))(command)


_add(demo.demo, demo.EXAMPLES)
_add(replay.replay, replay.EXAMPLES)
_add(show.show, show.EXAMPLES)
_add(increment.increment, increment.EXAMPLES)
_add(rollup.rollup, rollup.EXAMPLES)
_add(audit.audit, audit.EXAMPLES)
_add(init.init, init.EXAMPLES)
_add(doctor.doctor, doctor.EXAMPLES)
app.add_typer(emulator.commands, name="emulator")
