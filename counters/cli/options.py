"""Options and arguments that several commands take, and how their text is read."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import typer

from counters import layout

_LONGEST: Final = 86_400.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def document_path(text: str) -> str:
    """Read a document's path.

    >>> document_path("/posts/a91f/counters/likes")
    'posts/a91f/counters/likes'
    """
    path = text.strip("/")
    if not layout.is_document_path(path):
        raise typer.BadParameter(f"{text!r} is no document's path, such as posts/a91f/counters/likes")
    return path


Project: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        show_default=False,
        help="Google Cloud project; without it, the one that the environment names.",
        rich_help_panel="Database",
    ),
]
Database: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        show_default=False,
        help="A named database; without it, (default).",
        rich_help_panel="Database",
    ),
]
CounterPath: TypeAlias = Annotated[
    str,
    typer.Argument(
        parser=document_path,
        metavar="PATH",
        show_default=False,
        help="The counter's document, such as posts/a91f/counters/likes.",
    ),
]
Writers: TypeAlias = Annotated[
    int,
    typer.Option(min=1, max=64, metavar="N", help="Processes that count at once."),
]


def duration(text: str) -> float:
    """Read a duration in seconds; a bare number is in seconds.

    >>> [duration(text) for text in ("5s", "250ms", "1.5m", "2")]
    [5.0, 0.25, 90.0, 2.0]
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text.strip())
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else 0.0
    if not 0 < seconds <= _LONGEST:
        raise typer.BadParameter(f"{text!r} is no duration, such as 5s, 250ms or 2m")
    return seconds


def examples(*lines: str) -> str:
    """Examples for a help text, one a line, as they are typed."""
    # \b keeps the lines apart in every version of Typer; its epilog does so only lately.
    return "\n".join(["\b", "[bold]Examples[/bold]", *(f"  {line}" for line in lines)])
