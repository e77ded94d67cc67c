"""What Firestore charges for reads and writes: a table by location that you are meant to replace.

Pure. Prices are those of the Standard edition in dollars for 100,000 operations. They change, and
contracts differ: pass ``Prices`` of your own to ``counters.sizing.recommend`` where the bill matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["DAYS_A_MONTH", "FREE_TIER", "NO_FREE_TIER", "PRICES", "FreeTier", "Prices"]

DAYS_A_MONTH: Final = 30
"""As the example on Google's pricing page counts: 50,000 free reads a day are 1,500,000 a month."""


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a number from 0 up, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeTier:
    """How many operations a day one database of a project has free.

    The default is Google's: 50,000 reads and 20,000 writes a day, for one database of a project
    (https://firebase.google.com/docs/firestore/quotas, looked up 2026-11-30). Give what the rest of
    your project leaves of it. Raises ValueError for a negative number.
    """

    reads_per_day: float = 50_000
    writes_per_day: float = 20_000

    def __post_init__(self) -> None:
        _not_negative(reads_per_day=self.reads_per_day, writes_per_day=self.writes_per_day)


FREE_TIER: Final = FreeTier()
NO_FREE_TIER: Final = FreeTier(reads_per_day=0, writes_per_day=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars for 100,000 reads and for 100,000 writes at one location, and where they stand.

    Raises ValueError for a negative price.
    """

    location: str
    reads: float
    writes: float
    source: str

    def __post_init__(self) -> None:
        _not_negative(reads=self.reads, writes=self.writes)

    def dollars_a_month(
        self, *, reads_per_second: float, writes_per_second: float, free: FreeTier = FREE_TIER
    ) -> float:
        """Dollars for a month of 30 equal days, beyond what is free each day.

        >>> nam5 = PRICES["nam5"]
        >>> round(nam5.dollars_a_month(reads_per_second=10, writes_per_second=1), 2)
        18.24
        >>> nam5.dollars_a_month(reads_per_second=0.5, writes_per_second=0.2)
        0.0
        """
        day = 24 * 60 * 60
        reads = max(0.0, reads_per_second * day - free.reads_per_day)
        writes = max(0.0, writes_per_second * day - free.writes_per_day)
        return DAYS_A_MONTH * (reads * self.reads + writes * self.writes) / 100_000


_LISTED: Final = (
    "https://firebase.google.com/docs/firestore/pricing, stored copy with the table by location, "
    "looked up 2026-11-30; today's page refers to https://cloud.google.com/firestore/pricing"
)
_QUOTED: Final = (
    "https://cloud.google.com/firestore/pricing as quoted on 2026-09-20 by a third party, "
    "looked up 2026-11-30"
)

PRICES: Final[Mapping[str, Prices]] = MappingProxyType(
    {
        prices.location: prices
        for prices in (
            Prices(location="nam5", reads=0.06, writes=0.18, source=_LISTED),
            Prices(location="us-central1", reads=0.03, writes=0.09, source=_QUOTED),
            Prices(location="us-west1", reads=0.03, writes=0.09, source=_LISTED),
            Prices(location="us-west2", reads=0.036, writes=0.108, source=_LISTED),
        )
    }
)
"""An example to be replaced: the locations whose prices could be read on 2026-11-30, in dollars.

Google's live table could not be read that day, only copies of it; no price is guessed here. ``nam5``,
the multi-region of the United States, is the dearest of these and so the default of ``recommend``.
"""
