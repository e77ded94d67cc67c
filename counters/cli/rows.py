"""From a file's records to rows to count: all of them are checked before any is used."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from counters import InvalidArgument
from counters.cli.console import counted
from counters.cli.records import Record
from counters.cli.template import BadField, PathTemplate, no_field
from counters.cli.work import Increment, Row
from counters.increments import checked_amount

_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]+\s*")


class BadRows(ValueError):
    """Rows that cannot be counted. ``problems`` names each, with its line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"{counted(len(problems), 'row')} cannot be counted")
        self.problems = problems


def rows_of(records: Iterable[Record], templates: Sequence[PathTemplate], amount: str | None) -> list[Row]:
    """The rows to count: each adds its field ``amount``, or 1, to a counter for each template.

    Raises ``BadRows`` with all that is wrong.
    """
    rows: list[Row] = []
    problems: list[str] = []
    for record in records:
        if record.error is not None:
            problems.append(f"line {record.line}: {record.error}")
            continue
        try:
            rows.append(_row(record, templates, amount))
        except BadField as error:
            problems.append(f"line {record.line}: {error}")
    if problems:
        raise BadRows(problems)
    return rows


def _row(record: Record, templates: Sequence[PathTemplate], amount: str | None) -> Row:
    how_much = 1 if amount is None else _amount(record.fields, amount)
    # Interned, because most rows of a large file share their paths with many others.
    paths = [sys.intern(template.fill(record.fields)) for template in templates]
    return Row(record.line, tuple(Increment(path, how_much) for path in paths))


def _amount(fields: Mapping[str, object], name: str) -> int:
    if name not in fields:
        raise BadField(no_field(fields, name))
    value = fields[name]
    # Stricter than int(), which also takes 1_000 and digits of any script.
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise BadField(f"{name!r} is {value!r}, no whole number")
    try:
        return checked_amount(int(value) if isinstance(value, str) else value)
    except (InvalidArgument, ValueError) as error:
        raise BadField(f"{name!r} is {value!r}: {error}") from error
