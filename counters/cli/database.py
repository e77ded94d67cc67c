"""Which database a command works on: an emulator's or a real one, and how to reach it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.cloud.firestore import Client

from counters import Counter, Counters
from counters.cli.exits import Failure

_HOST: Final = "FIRESTORE_EMULATOR_HOST"


@dataclass(frozen=True, slots=True)
class Place:
    """A database: ``host`` is an emulator's, None for Cloud Firestore itself."""

    host: str | None
    project: str
    database: str | None

    def __str__(self) -> str:
        """Where it is, for people."""
        server = f"the emulator at {self.host}" if self.host else "Cloud Firestore"
        return f"{server}, project {self.project}, database {self.database or '(default)'}"

    def environ(self) -> Mapping[str, str]:
        """The environment in which another process reaches it, too."""
        return {**os.environ, _HOST: self.host} if self.host else os.environ


def emulator_host() -> str | None:
    """The emulator that the environment names, if it names one."""
    return os.environ.get(_HOST) or None


def connect(project: str | None, database: str | None) -> tuple[Counters, Place]:
    """Reach the database that the options and the environment name.

    Makes no request, but looks whether an emulator listens: without, a call waits for it in vain.
    """
    for name in (project, database):
        if name is not None and not name.isprintable():
            raise Failure(f"{name!r} is the name of no project and no database")
    host = emulator_host()
    if host and not listens(host):
        raise Failure(
            f"no emulator listens at FIRESTORE_EMULATOR_HOST={host}: start one with "
            "`counters emulator start`, or unset the variable to use Cloud Firestore"
        )
    client = Client(project=project, database=database)
    return Counters(client), Place(host, client.project, database)


def listens(host: str) -> bool:
    """Whether somebody listens at ``host:port``."""
    address, _, port = host.rpartition(":")
    try:
        socket.create_connection((address.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError):
        return False
    return True


def counter_at(counters: Counters, path: str) -> Counter:
    """The counter at a path. Makes no request."""
    return counters.at(counters.client.document(path))
