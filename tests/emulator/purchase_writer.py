"""Count CDs sold, for the shop and for each day: one of several writer processes.

    python purchase_writer.py HOST PROJECT FILE NUMBER OF

Of every OF purchases in FILE it takes one, the NUMBERth, counted from 0. A line is a purchase, all
but the first: customer, date (YYYYMMDD), CDs, dollars.
"""

import sys
from itertools import islice
from pathlib import Path

from counters import Counters
from counters.testing import open_client


def write(client, lines):
    app = Counters(client)
    for line in lines:
        _, date, sold, _ = line.split()
        app.on("shops/cdnow", "sold").increment(int(sold))
        app.on(f"shops/cdnow/days/{date}", "sold").increment(int(sold))


if __name__ == "__main__":
    host, project, file, number, of = sys.argv[1:]
    with open_client(host, project) as client, Path(file).open(encoding="ascii") as purchases:
        write(client, islice(purchases, 1 + int(number), None, int(of)))
