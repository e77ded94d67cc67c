"""Where output goes: results to stdout, complaints to stderr, nothing anywhere else."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from rich.console import Console

out: Final = Console(highlight=False)
err: Final = Console(stderr=True, highlight=False)


def complain(message: str) -> None:
    """Tell what went wrong, on stderr. A terminal's width breaks no line: scripts read them too."""
    err.print(f"counters: {message}", style="red", markup=False, soft_wrap=True)


def say(message: str) -> None:
    """Tell something, on stdout, as it is and on one line."""
    out.print(message, markup=False, soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """So many of something, in words.

    >>> counted(1, "count"), counted(1000, "count")
    ('1 count', '1,000 counts')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def busy(what: str) -> AbstractContextManager[object]:
    """Show that something is going on, for as long as the block runs, where it can be taken back."""
    return out.status(what) if is_live() else nullcontext()


def is_live() -> bool:
    """Whether stdout can show a picture that changes in place: a real terminal, and no CI log."""
    return out.is_terminal and not out.is_dumb_terminal and not os.environ.get("CI")
