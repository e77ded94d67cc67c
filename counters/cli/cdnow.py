"""The CDNOW purchases: what 23,570 customers of a CD shop bought, from January 1997 to June 1998.

A public data set, in the package lifetimes as ``datasets/CDNOW_master.txt``: a customer, a day as
YYYYMMDD, a number of CDs and an amount in dollars on each line, separated by blanks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

_COLUMNS: Final = 4


@dataclass(frozen=True, slots=True)
class Purchase:
    """So many CDs, bought by a customer on a day; ``line`` is where the file says so."""

    line: int
    customer: str
    day: date
    cds: int


class NotCdnow(ValueError):
    """A line that is no purchase. The text names it."""


def purchases(lines: Iterable[str]) -> Iterator[Purchase]:
    """Read purchases, in the order of the file; empty lines, and a header, are passed over.

    >>> list(purchases(["customer_id date number_of_cds dollar_value", "00001 19970101 1 11.77"]))
    [Purchase(line=2, customer='00001', day=datetime.date(1997, 1, 1), cds=1)]

    Raises ``NotCdnow``.
    """
    for number, line in enumerate(lines, start=1):
        columns = line.split()
        if columns and not (number == 1 and not columns[0].isdecimal()):
            yield _purchase(number, columns)


def _purchase(line: int, columns: list[str]) -> Purchase:
    if len(columns) != _COLUMNS:
        raise NotCdnow(f"line {line} is no purchase: it has {len(columns)} columns, not {_COLUMNS}")
    customer, day, cds, _ = columns
    if not cds.isdecimal():
        raise NotCdnow(f"line {line} is no purchase: {cds!r} is no number of CDs")
    if not customer.isdecimal():
        raise NotCdnow(f"line {line} is no purchase: {customer!r} is no customer's number")
    return Purchase(line, customer, _day(line, day), int(cds))


def _day(line: int, text: str) -> date:
    try:
        if len(text) == len("YYYYMMDD") and text.isdecimal():
            return date(int(text[:4]), int(text[4:6]), int(text[6:]))
    except ValueError:
        pass
    raise NotCdnow(f"line {line} is no purchase: {text!r} is no day as YYYYMMDD")
