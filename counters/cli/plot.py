"""The picture of a run: value and total over time, and how old the total was. Needs Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from counters.cli.exits import Failure
from counters.cli.reading import Sample


def require_matplotlib() -> None:
    """Raise ``Failure`` where there is none; to be asked before the work, not after it."""
    if find_spec("matplotlib") is None:
        raise Failure("--plot needs Matplotlib: pip install 'firestore-counters[plot]'")


def draw(samples: Sequence[Sample], file: Path, *, title: str, counted: str) -> None:
    """Draw a run's samples into a PNG file; ``counted`` names what was counted."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - optional, and slow
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(10, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))

    seconds = [sample.seconds for sample in samples]
    above.plot(seconds, [sample.reading.value for sample in samples], label="value: exact at any time")
    rolled = [sample for sample in samples if sample.reading.total.value is not None]
    above.step(
        [sample.seconds for sample in rolled],
        [sample.reading.total.value for sample in rolled],
        where="post",
        label="total: what the last rollup wrote",
    )
    above.set_ylabel(counted)
    above.set_ylim(bottom=0)
    above.yaxis.set_major_formatter("{x:,.0f}")
    above.legend(loc="upper left")

    stale = [sample for sample in samples if sample.reading.staleness is not None]
    below.plot(
        [sample.seconds for sample in stale],
        [sample.reading.staleness.total_seconds() for sample in stale if sample.reading.staleness],
        color="tab:red",
        label="age of the total",
    )
    below.set_xlabel("time since the start (s)")
    below.set_ylabel("staleness (s)")
    below.set_xlim(left=0)
    below.set_ylim(bottom=0)
    below.legend(loc="upper left")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
