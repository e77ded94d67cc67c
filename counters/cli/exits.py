"""How commands end: expected errors in one clear line, and what the exit codes mean.

0 done, 1 failed, 2 asked for wrongly, 130 interrupted (Ctrl-C). A traceback is a bug.
"""

from __future__ import annotations

import errno
from typing import Any, Final

import typer
from google.api_core.exceptions import GoogleAPIError
from google.auth.exceptions import GoogleAuthError
from typer.core import TyperGroup

from counters.cli.console import complain
from counters.errors import CounterError, InvalidArgument
from counters.testing import EmulatorFailed, EmulatorNotFound, InstallFailed

FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130


class Failure(Exception):
    """A command cannot go on. The text is what its user is told, and says what to do next."""


_EXPECTED: Final = (
    Failure,
    CounterError,
    EmulatorNotFound,
    EmulatorFailed,
    InstallFailed,
    GoogleAPIError,
    GoogleAuthError,
    OSError,
)


class Commands(TyperGroup):
    """Ends a command that raised an expected error, or was interrupted, in a line and a code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except _EXPECTED as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of a pipe has left; Typer ends that without a word
            complain(in_words(error))
            raise typer.Exit(MISUSED if isinstance(error, InvalidArgument) else FAILED) from error


def in_words(error: Exception) -> str:
    """What to tell of an expected error.

    >>> in_words(FileNotFoundError(2, "No such file or directory", "sales.csv"))
    'sales.csv: No such file or directory'
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, GoogleAuthError):
        return (
            f"no access to Google Cloud ({error}): log in with `gcloud auth application-default "
            "login`, or set FIRESTORE_EMULATOR_HOST to use an emulator"
        )
    text = str(error) or type(error).__name__
    cause = error.__cause__
    if isinstance(error, CounterError) and cause is not None and str(cause) not in text:
        text += f" ({cause})"
    return text
