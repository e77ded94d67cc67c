"""Templates such as ``shops/{shop}/counters/cds``: which counter a row counts on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Final

_LONGEST_ID: Final = 1500  # bytes; https://firebase.google.com/docs/firestore/quotas, 2026-11-30


class BadTemplate(ValueError):
    """A template that no row could fill."""


class BadField(ValueError):
    """A row whose field can be no document's id."""


class PathTemplate:
    """A document's path with ``{field}`` for what differs by row; ``{{`` is a brace.

    >>> PathTemplate("shops/{shop}/counters/cds").fill({"shop": "north"})
    'shops/north/counters/cds'

    Raises ``BadTemplate``.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._pieces = list(_pieces(text))
        segments = text.split("/")
        if len(segments) % 2 or not all(segments):
            raise BadTemplate(f"{text!r} is no document's path: collection/document, as often as you like")

    @property
    def fields(self) -> frozenset[str]:
        """The fields that a row must have."""
        return frozenset(field for _, field in self._pieces if field is not None)

    def fill(self, row: Mapping[str, object]) -> str:
        """The path for a row. Raises ``BadField``."""
        path = "".join(
            literal + ("" if field is None else _text(row, field)) for literal, field in self._pieces
        )
        for segment in path.split("/"):
            _check(segment)
        return path


def _pieces(text: str) -> list[tuple[str, str | None]]:
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise BadTemplate(f"{text!r}: {error}") from error
    for _, field, spec, conversion in parsed:
        if field == "" or spec or conversion:
            raise BadTemplate(f"{text!r}: braces hold the name of a field and nothing else")
    return [(literal, field) for literal, field, _, _ in parsed]


def _text(row: Mapping[str, object], field: str) -> str:
    if field not in row:
        raise BadField(no_field(row, field))
    value = row[field]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadField(f"{field!r} is {value!r}: an id is a text or a whole number")
    text = str(value)
    if not text or "/" in text:
        raise BadField(f"{field!r} is {text!r}: an id is not empty and has no slash")
    return text


def no_field(row: Mapping[str, object], field: str) -> str:
    """What to say of a row that lacks a field."""
    return f"there is no field {field!r}, only {', '.join(map(repr, row)) or 'an empty row'}"


def _check(segment: str) -> None:
    if segment in {".", ".."} or (segment.startswith("__") and segment.endswith("__")):
        raise BadField(f"{segment!r} can be no id: Firestore keeps such names to itself")
    try:
        size = len(segment.encode())
    except UnicodeEncodeError as error:
        raise BadField(f"{segment!r} can be no id: half of a surrogate pair") from error
    if size > _LONGEST_ID:
        raise BadField(f"an id of {size:,} bytes is too long: Firestore takes {_LONGEST_ID:,}")
