"""``counters init``: add the scheduled rollup to a Firebase project that exists, without harm."""

from __future__ import annotations

import difflib
import json
import shutil
from importlib.metadata import distribution
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from counters.cli.console import counted, out, say
from counters.cli.exits import Failure
from counters.cli.firebase_project import CONFIG, DEFAULT_DATABASE, Plan, plan
from counters.cli.options import Database, examples

EXAMPLES: Final = examples(
    "counters init                  in the folder of firebase.json; shows the changes, and asks",
    "counters init ../app --yes",
    "counters init --database archive",
)
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The Firebase project, where firebase.json is.")
    ] = Path(),
    source: Annotated[
        str, typer.Option(metavar="FOLDER", help="Where in it our functions go: a folder of their own.")
    ] = "functions-counters",
    wheel: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            exists=True,
            dir_okay=False,
            help="Deploy this wheel of firestore-counters; without it, the package index's.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    database: Database = None,
) -> None:
    """Add the scheduled rollup to a Firebase project: functions, indexes, and rules to paste.

    The functions become a codebase of their own, the index is added to yours, and rules are shown
    for you to paste. Nothing of yours is dropped or overwritten, and the changes are shown before
    anything is written. Run again, it does nothing.
    """
    if not directory.is_dir():
        raise Failure(f"{directory} is no folder")

    def read(path: str) -> str | None:
        file = directory / path
        return file.read_text(encoding="utf-8") if file.exists() else None

    database = database or DEFAULT_DATABASE
    made = plan(read, folder=source, database=database, wheel=wheel.name if wheel else None)
    for path, text in made.files.items():
        _show_change(path, read(path), text)
    if wheel:
        say(f"copy {wheel} to {source}/{wheel.name}\n")
    if read(CONFIG) is None:
        say(f"no {CONFIG} here: is this the folder?")
    if made.files and not yes:
        typer.confirm(
            f"Write this, {counted(len(made.files), 'file')}, below {directory.resolve()}?", abort=True
        )
    for path, text in made.files.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    if wheel:
        shutil.copyfile(wheel, directory / source / wheel.name)
    if not wheel and not _is_from_an_index():
        made.todo.append(
            f"this firestore-counters was not installed from a package index, which may not have the "
            f"version that {source}/requirements.txt asks for: --wheel FILE deploys a wheel of yours"
        )
    _tell(made, source, database)


def _show_change(path: str, before: str | None, after: str) -> None:
    changes = difflib.unified_diff(
        (before or "").splitlines(),
        after.splitlines(),
        fromfile=f"a/{path}" if before is not None else "/dev/null",
        tofile=f"b/{path}",
        lineterm="",
    )
    for line in changes:
        out.print(Text(line, style=_COLOURS.get(line[:1], "")), soft_wrap=True)
    out.print()


def _tell(made: Plan, source: str, database: str) -> None:
    """Say what was done, and what is left to do; last what is not as it should be."""
    if made.files:
        say(f"wrote {counted(len(made.files), 'file')}")
    else:
        say("nothing to write, but see below" if made.todo else "nothing to write: all of it is there")
    named = database != DEFAULT_DATABASE
    if made.rules:
        whose = f"the rules of the database {database}" if named else "your rules"
        say(f"\nPaste into {whose}, within `match /databases/{{database}}/documents`:\n")
        say(made.rules)
    say(
        f"Then: look at the settings in {source}/.env, and\n"
        f"    python3 {source}/predeploy.py                  once, before the emulators\n"
        "    firebase emulators:start --only firestore,functions\n"
        f"    firebase deploy --only functions:counters{',firestore:indexes' if made.indexes else ''}\n"
        f"    counters doctor PROJECT{f' --database {database}' if named else ''}\n"
        "Roles, cost, rolling back: docs/deploy.md of firestore-counters."
    )
    for note in made.todo:
        say(f"\n! {note}")


def _is_from_an_index() -> bool:
    """Whether pip got this package from an index (https://packaging.python.org/specifications/direct-url)."""
    direct = distribution("firestore-counters").read_text("direct_url.json")
    return direct is None or not json.loads(direct)
