"""What ``counters init`` does to a Firebase project, as a plan. Pure, but for reading our own files.

Nothing of the project's is changed but its firebase.json, which gets one more codebase, and its file
of indexes, which gets what it lacks. Rules are the project's own: they get a block to paste.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from counters.cli.exits import Failure

CODEBASE: Final = "counters"
CONFIG: Final = "firebase.json"
DEFAULT_DATABASE: Final = "(default)"

# A wheel carries what is deployed from the repository (pyproject.toml, "force-include").
_PACKAGED: Final = Path(__file__).with_name("project")
_REPOSITORY: Final = Path(__file__).parents[2]
_COPIED: Final = ("main.py", "predeploy.py", ".env", ".gcloudignore")
_IGNORED_BY_GIT: Final = "venv/\n__pycache__/\n*.local\n"
_DATABASE: Final = re.compile(r"""^COUNTERS_DATABASE=(["']?)(.*?)\1[ \t]*(?:#.*)?$""", re.MULTILINE)
_BLOCK: Final = re.compile(
    r"^ *// firestore-counters: begin\..*// firestore-counters: end\.\n", re.DOTALL | re.MULTILINE
)

Reader = Callable[[str], str | None]
"""Reads a file of the project, by its path in it; None where there is none."""


@dataclass(slots=True)
class Plan:
    """The files to write, by their paths in the project, and what is left for its owner to do."""

    files: dict[str, str] = field(default_factory=dict)
    todo: list[str] = field(default_factory=list)
    rules: str | None = None
    indexes: str | None = None  # the file of the database's indexes, where firebase.json names one


def ours(name: str) -> str:
    """The text of a file that this package deploys itself with."""
    packaged = _PACKAGED / name
    return (packaged if packaged.exists() else _REPOSITORY / name).read_text(encoding="utf-8")


def plan(read: Reader, *, folder: str, database: str = DEFAULT_DATABASE, wheel: str | None = None) -> Plan:
    """What to add to a project.

    Args:
        read: reads the project's files.
        folder: where our functions go; a folder of their own.
        database: which of the project's databases the rollup and the indexes are for.
        wheel: name of a wheel of this package in ``folder``; default: the package index's.

    Raises:
        Failure: the project's files are not understood, so that changing them might do harm.
    """
    if Path(folder).is_absolute() or ".." in Path(folder).parts or Path(folder) == Path():
        raise Failure(f"{folder} is no folder within the project, which --source must be")
    if not re.fullmatch(r"\(default\)|[a-z][a-z0-9-]*", database):
        raise Failure(f"{database} is the name of no database")
    made = Plan()
    text = read(CONFIG)
    config = _object(CONFIG, text) if text is not None else {}
    _add_functions(made, read, config, folder, wheel, database)
    _add_indexes(made, read, config, database)
    _offer_rules(made, read, config, database)
    if config != (_object(CONFIG, text) if text is not None else None):
        made.files[CONFIG] = _json(config, like=text)
    return made


def _add_functions(
    made: Plan, read: Reader, config: dict[str, Any], folder: str, wheel: str | None, database: str
) -> None:
    present = config.get("functions", [])
    codebases = present if isinstance(present, list) else [present]
    for codebase in codebases:
        if not isinstance(codebase, dict):
            raise Failure(f"{CONFIG}: `functions` is neither an object nor a list of them")
        name, source = codebase.get("codebase", "default"), str(codebase.get("source", "functions"))
        if name == CODEBASE and Path(source) != Path(folder):
            raise Failure(
                f"{CONFIG} has a codebase `{CODEBASE}` in {source}: pass --source {source} if it is ours"
            )
        if name != CODEBASE and Path(source) == Path(folder):
            raise Failure(f"{folder} is the codebase `{name}`: choose a folder of their own with --source")
    if CODEBASE not in [codebase.get("codebase") for codebase in codebases]:
        entry = dict(json.loads(ours(CONFIG))["functions"][0])
        entry["source"] = folder
        entry["predeploy"] = [command.split(" --wheel-of")[0] for command in entry["predeploy"]]
        config["functions"] = [*codebases, entry]
    wanted = {f"{folder}/{name}": ours(f"functions/{name}") for name in _COPIED}
    settings = f"{folder}/.env"
    wanted[settings] = _DATABASE.sub(f'COUNTERS_DATABASE="{database}"', wanted[settings])
    wanted[f"{folder}/requirements.txt"] = _requirements(wheel)
    wanted[f"{folder}/.gitignore"] = _IGNORED_BY_GIT
    for path, text in wanted.items():
        found = read(path)
        if found is None:
            made.files[path] = text
        elif path == settings and _database_of(found) != database:
            made.todo.append(_another_database(path, _database_of(found), database))
        elif found != text:
            made.todo.append(f"{path} is kept as it is; the version of this package is another")


def _database_of(settings: str) -> str:
    found = _DATABASE.search(settings)
    return found[2] if found else DEFAULT_DATABASE


def _another_database(path: str, present: str, database: str) -> str:
    return (
        f"{path} is for the database {present}, and kept as it is: totals of the database {database} do "
        f'not move. Set COUNTERS_DATABASE="{database}" there to have them instead, or add a function '
        'for a second database beside it (docs/deploy.md, "In a project that has functions")'
    )


def _requirements(wheel: str | None) -> str:
    package = (
        f"./{wheel}[functions]"
        if wheel
        else f"firestore-counters[functions]=={version('firestore-counters')}"
    )
    lines = ours("functions/requirements.txt").splitlines()
    others = [line for line in lines if not line.startswith(("#", "./"))]
    return "\n".join((package, *others)) + "\n"


def _add_indexes(made: Plan, read: Reader, config: Mapping[str, Any], database: str) -> None:
    wanted = json.loads(ours("firestore.indexes.json"))
    path = _database_config(config, database).get("indexes")
    if not isinstance(path, str):
        # A file of ours alone would, once deployed, be all the indexes that the database has.
        made.todo.append(_without_a_file(config, wanted, database))
        return
    made.indexes = path
    text = read(path)
    present = _object(path, text) if text is not None else {}
    merged = dict(present)
    for kind, identity in (("indexes", _index_identity), ("fieldOverrides", _override_identity)):
        theirs = {identity(item): item for item in present.get(kind) or []}
        missing = [item for item in wanted[kind] if identity(item) not in theirs]
        merged[kind] = [*(present.get(kind) or []), *missing]
        made.todo += [
            f"{path} keeps its own setting of {_described(item)}; this package wants {json.dumps(item)}"
            for item in wanted[kind]
            if kind == "fieldOverrides"
            and identity(item) in theirs
            and _override_setting(item) != _override_setting(theirs[identity(item)])
        ]
    if merged != present:
        made.files[path] = _json(merged, like=text)


def _without_a_file(config: Mapping[str, Any], wanted: Mapping[str, Any], database: str) -> str:
    others = [
        f'{{ "database": "{other.get("database", DEFAULT_DATABASE)}", … }}, '
        for other in _database_configs(config)
        if other and other.get("database", DEFAULT_DATABASE) != database
    ]
    if database == DEFAULT_DATABASE and not others:
        of, file = "", "firestore.indexes.json"
        export, entry = "firebase firestore:indexes", f'{{ "indexes": "{file}", … }}'
    else:
        # A file of its own: the default database's may be there.
        named = "" if database == DEFAULT_DATABASE else f"{database}."
        of, file = f" of the database {database}", f"firestore.{named}indexes.json"
        export = shlex.join(["firebase", "firestore:indexes", "--database", database])
        entry = f'[ {"".join(others)}{{ "database": "{database}", "indexes": "{file}", … }} ]'
    commands = "\n".join(f"    {command}" for command in by_gcloud(wanted, database))
    return (
        f"{CONFIG} names no file of indexes{of}, and the rollup needs an index. Let firebase-tools "
        "write down those that the database has, then run this again:\n"
        f"    {export} > {file}\n"
        f'    and in {CONFIG}: "firestore": {entry}\n'
        f"or make index, exemptions and TTL policy without a file:\n{commands}"
    )


def by_gcloud(wanted: Mapping[str, Any], database: str = DEFAULT_DATABASE) -> list[str]:
    """The commands that make what a file of indexes asks for, such as docs/deploy.md has them."""
    where = [] if database == DEFAULT_DATABASE else [f"--database={database}"]
    commands = []
    for index in wanted["indexes"]:
        fields = [
            f"--field-config=field-path={part['fieldPath']},order={part['order'].lower()}"
            for part in index["fields"]
        ]
        scope = index["queryScope"].lower().replace("_", "-")
        group = [f"--collection-group={index['collectionGroup']}", f"--query-scope={scope}"]
        commands.append(["indexes", "composite", "create", *group, *fields])
    for item in wanted["fieldOverrides"]:
        name = [item["fieldPath"], f"--collection-group={item['collectionGroup']}"]
        if not item["indexes"]:
            commands.append(["indexes", "fields", "update", *name, "--disable-indexes"])
        if item.get("ttl"):
            commands.append(["fields", "ttls", "update", *name, "--enable-ttl", "--async"])
    return [shlex.join(["gcloud", "firestore", *command, *where]) for command in commands]


def _offer_rules(made: Plan, read: Reader, config: Mapping[str, Any], database: str) -> None:
    path = _database_config(config, database).get("rules")
    text = read(path) if isinstance(path, str) else None
    if text is None or "// firestore-counters: begin." not in text:
        block = _BLOCK.search(ours("firestore.rules"))
        made.rules = block[0] if block else None


def _database_config(config: Mapping[str, Any], database: str) -> Mapping[str, Any]:
    """The part of firebase.json that is about a database; empty where there is none."""
    for entry in _database_configs(config):
        if entry.get("database", DEFAULT_DATABASE) == database:
            return entry
    return {}


def _database_configs(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    present = config.get("firestore", {})
    entries: list[Any] = present if isinstance(present, list) else [present]
    if not all(isinstance(entry, dict) for entry in entries):
        raise Failure(f"{CONFIG}: `firestore` is neither an object nor a list of them")
    return entries


def _index_identity(item: Mapping[str, Any]) -> Any:
    # Exported files end each index with __name__, which is implied.
    fields = [_sorted(part) for part in item.get("fields", []) if part.get("fieldPath") != "__name__"]
    return item.get("collectionGroup"), item.get("queryScope"), tuple(fields)


def _override_identity(item: Mapping[str, Any]) -> Any:
    return item.get("collectionGroup"), item.get("fieldPath")


def _override_setting(item: Mapping[str, Any]) -> Any:
    return bool(item.get("ttl")), sorted(_sorted(index) for index in item.get("indexes", []))


def _described(item: Mapping[str, Any]) -> str:
    return f"{item['collectionGroup']}.{item['fieldPath']}"


def _sorted(item: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(key), str(value)) for key, value in item.items()))


def _object(path: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        # firebase-tools takes comments, but written anew the file would lose them.
        raise Failure(
            f"{path} is no plain JSON ({error}): take its comments out; they can go back in afterwards"
        ) from error
    if not isinstance(found, dict):
        raise Failure(f"{path} holds no JSON object")
    return found


def _json(value: Mapping[str, Any], like: str | None) -> str:
    """JSON with the indentation of the text that it replaces."""
    indent = re.search(r"^([ \t]+)\S", like or "", re.MULTILINE)
    return json.dumps(value, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"
