"""What one sees while rows are counted: a picture that moves, or plain lines where nothing can."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from counters.cli.console import counted, is_live, out, say
from counters.cli.reading import Reading, Sample, Shard

if TYPE_CHECKING:
    from typing_extensions import Self

_MOST_SHARDS: Final = 12  # so that a picture fits into 24 lines
_LINE_EVERY: Final = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at: how many of which rows there are, and the counter that is shown.

    ``children`` is what to call the children that are counted beside it.
    """

    rows: int
    unit: str
    counter: str
    children: str = "children"


class View(Protocol):
    """Shows samples as they come, for as long as its ``with`` block runs."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def show(self, sample: Sample) -> None:
        """Show a sample."""

    def say(self, message: str) -> None:
        """Tell something besides."""


def view_of(subject: Subject) -> View:
    """The view that stdout can show."""
    return Picture(subject) if is_live() else Lines(subject)


class Picture:
    """A picture on a terminal, drawn anew in place; the last one stays."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._live = Live(console=out, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, sample: Sample) -> None:
        """Draw a sample in place of the last."""
        self._live.update(picture(self._subject, sample))

    def say(self, message: str) -> None:
        """Print a line above the picture."""
        self._live.console.print(message, markup=False)


class Lines:
    """A line every two seconds, for logs, pipes and dumb terminals."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def show(self, sample: Sample) -> None:
        """Print a sample, unless one was printed just now."""
        if sample.seconds >= self._next:
            self._next = sample.seconds + _LINE_EVERY
            say(line(self._subject, sample))

    def say(self, message: str) -> None:
        """Print a line."""
        say(message)


def line(subject: Subject, sample: Sample) -> str:
    """A sample as a line of text."""
    reading = sample.reading
    values = [shard.value for shard in reading.shards if shard.value is not None]
    spread = "no shards"
    if values:
        spread = f"{counted(len(values), 'shard')} of {min(values):,} to {max(values):,}"
    return (
        f"{sample.seconds:6.1f} s  {sample.done:,} of {subject.rows:,} {subject.unit}  "
        f"value {whole(reading.value)}  total {whole(reading.total.value)} ({age(reading)})  {spread}"
        + ("" if sample.children is None else f"  {sample.children:,} {subject.children}")
    )


def picture(subject: Subject, sample: Sample) -> RenderableType:
    """A sample as a picture for a terminal."""
    reading = sample.reading
    progress = Table.grid(padding=(0, 2))
    progress.add_row(
        ProgressBar(total=max(1, subject.rows), completed=sample.done, width=30),
        f"{sample.done:,} of {subject.rows:,} {subject.unit}",
        f"{sample.seconds:.1f} s",
        f"{sample.done / sample.seconds:,.0f}/s" if sample.seconds else "",
    )
    figures = Table.grid(padding=(0, 2))
    figures.add_column()
    figures.add_column(justify="right", min_width=12)
    figures.add_row("exact value", Text(whole(reading.value), style="bold"), "")
    figures.add_row("total", Text(whole(reading.total.value), style="bold"), age(reading))
    if sample.children is not None:
        figures.add_row(subject.children, Text(whole(sample.children), style="bold"), "as children")
    return Group(progress, Text(), Text(subject.counter, style="bold"), figures, Text(), _bars(reading))


def _bars(reading: Reading) -> Table:
    shown = reading.shards[:_MOST_SHARDS]
    longest = max((abs(shard.value or 0) for shard in shown), default=0)
    bars = Table.grid(padding=(0, 2))
    bars.add_column(justify="right")
    bars.add_column(justify="right", min_width=8)
    for shard in shown:
        bars.add_row(f"shard {shard.id}", whole(shard.value), _bar(shard, longest))
    hidden = len(reading.shards) - len(shown)
    if hidden:
        bars.add_row(f"{hidden:,} more", "", "")
    return bars


def _bar(shard: Shard, longest: int) -> RenderableType:
    if shard.damage:
        return Text("damaged", style="red")
    return ProgressBar(
        total=max(1, longest),
        completed=abs(shard.value or 0),
        width=40,
        complete_style="cyan",
        finished_style="cyan",
    )


def whole(number: int | None) -> str:
    """A whole number for people; a dash for none.

    >>> whole(167881), whole(None)
    ('167,881', '-')
    """
    return "-" if number is None else f"{number:,}"


def age(reading: Reading) -> str:
    """How old the total is, and how far behind."""
    if reading.staleness is None:
        return "no rollup yet"
    text = f"{reading.staleness.total_seconds():.1f} s old"
    if reading.value is not None and reading.total.value is not None:
        text += f", {reading.value - reading.total.value:,} behind"
    return text
