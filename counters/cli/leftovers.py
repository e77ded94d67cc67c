"""What to tell, and to keep, of a replay that was cut short: so that it can be finished later."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from counters.cli.console import complain, counted
from counters.cli.records import Source
from counters.cli.tally import Tally
from counters.cli.work import Row


def tell_what_is_left(tally: Tally, source: Source) -> None:
    """Say what was counted, and write the rows that were not to a file beside the source."""
    for error in sorted(set(tally.errors)):
        complain(error)
    complain(f"cut short: counted {counted(tally.counted, 'row')}")
    if tally.rest:
        where = _keep(tally.rest, source, "rest")
        complain(f"not counted: {counted(len(tally.rest), 'row')}; replay {where}")
    for broken in tally.broken:
        complain(f"counted in part, and in no such file: {broken}")
    if tally.unknown:
        where = _keep(tally.unknown, source, "unknown")
        complain(f"counted or not, nobody knows: {counted(len(tally.unknown), 'row')}; see {where}")


def _keep(rows: Sequence[Row], source: Source, kind: str) -> str:
    """Copy rows to a new file; its name, or their lines where no file can be written."""
    lines = frozenset(row.line for row in rows)
    for number in count(1):
        suffix = f".{kind}{source.file.suffix}" if number == 1 else f".{kind}-{number}{source.file.suffix}"
        target = source.file.with_suffix(suffix)
        try:
            source.copy(lines, target)
        except FileExistsError:
            continue  # what an earlier run left is not ours to overwrite
        except OSError:
            break
        return str(target)
    return "the lines " + ", ".join(map(str, sorted(lines)))
