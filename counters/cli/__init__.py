"""The command line ``counters``: the only code of this package that prints.

Needs the extra ``cli`` (Typer and Rich). The core never imports anything from here.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Run the command that ``sys.argv`` names, and exit with its code."""
    try:
        from counters.cli.app import app  # noqa: PLC0415 - only here can their lack be told

        app()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"typer", "rich"}:
            raise
        sys.exit(f"counters: the command line needs {missing}: pip install 'firestore-counters[cli]'")
    except KeyboardInterrupt:  # so early that nothing had begun
        sys.exit(_INTERRUPTED)
