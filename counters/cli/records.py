"""Reading a user's CSV, TSV or JSON Lines file: records with the line they are on."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TextIO


class Format(str, Enum):
    """How a file is written; the value is what one types after ``--format``."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"

    @classmethod
    def of(cls, file: Path) -> Format | None:
        """The format that a file's name tells, if it tells any."""
        return _SUFFIXES.get(file.suffix.lower())


_SUFFIXES = {
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
}


@dataclass(frozen=True, slots=True)
class Record:
    """One row: the line it ends on, and either its fields or what is wrong with it."""

    line: int
    fields: Mapping[str, object]
    error: str | None = None


class Unreadable(ValueError):
    """The file as a whole cannot be read as what it should be."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file, and how it is written."""

    file: Path
    format: Format

    def records(self) -> Iterator[Record]:
        """Read the file row by row; a row that is malformed comes with its error.

        Raises ``Unreadable`` and ``OSError``.
        """
        with self._open() as lines:
            try:
                yield from _jsonl(lines) if self.format is Format.JSONL else _csv(lines, self.format)
            except UnicodeDecodeError as error:
                raise Unreadable(f"it is not UTF-8 ({error.reason} at byte {error.start:,})") from error

    def copy(self, lines: Collection[int], target: Path) -> None:
        """Write the rows that end on ``lines`` to a new file of the same format.

        Raises ``FileExistsError`` rather than overwrite anything.
        """
        with self._open() as original, target.open("x", encoding="utf-8", newline="") as copy:
            if self.format is Format.JSONL:
                copy.writelines(line for number, line in enumerate(original, start=1) if number in lines)
                return
            reader = csv.reader(original, _dialect(self.format), strict=True)
            writer = csv.writer(copy, _dialect(self.format), lineterminator="\n")
            writer.writerow(_names(reader))
            writer.writerows(values for values in reader if reader.line_num in lines)

    def _open(self) -> TextIO:
        return self.file.open(encoding="utf-8-sig", newline="")


def _csv(lines: Iterable[str], kind: Format) -> Iterator[Record]:
    reader = csv.reader(lines, _dialect(kind), strict=True)
    try:
        names = _names(reader)
        for values in reader:
            if values:  # not an empty line
                yield _record(reader.line_num, names, values)
    except csv.Error as error:  # an open quote may have swallowed any number of lines
        yield Record(reader.line_num, {}, str(error))


def _names(rows: Iterable[list[str]]) -> list[str]:
    names = next((row for row in rows if row), None)
    if names is None:
        raise Unreadable("it is empty: its first line should name the fields")
    if len(set(names)) < len(names):
        raise Unreadable(f"its first line names a field twice: {', '.join(names)}")
    return names


def _record(line: int, names: Sequence[str], values: Sequence[str]) -> Record:
    if len(values) != len(names):
        return Record(line, {}, f"it has {len(values)} fields, not {len(names)}")
    return Record(line, dict(zip(names, values, strict=True)))


def _jsonl(lines: Iterable[str]) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Record(number, {}, f"it is no JSON: {error}")
            continue
        if isinstance(fields, dict):
            yield Record(number, fields)
        else:
            yield Record(number, {}, f"it is no JSON object, but {type(fields).__name__}")


def _dialect(kind: Format) -> type[csv.Dialect]:
    return csv.excel_tab if kind is Format.TSV else csv.excel
