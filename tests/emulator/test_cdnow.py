"""The whole of a real input, counted by several processes, to the last CD."""

import os
import subprocess
import sys
import threading
from collections import Counter as Tally
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from counters import Counters

CDNOW = Path(__file__).parents[2] / "build" / "CDNOW_master.txt"
WRITER = Path(__file__).with_name("purchase_writer.py")
PROCESSES = 4
ROLL_UP_EVERY = 5.0


@pytest.fixture
def purchases():
    if not CDNOW.exists() and os.environ.get("CI") != "true":
        pytest.skip("there is no build/CDNOW_master.txt: `make build/CDNOW_master.txt` fetches it")
    _, *lines = CDNOW.read_text(encoding="ascii").splitlines()
    return [(date, int(sold)) for _, date, sold, _ in map(str.split, lines)]


@pytest.mark.proof
def test_every_cd_that_cdnow_sold_is_counted_once(db, counters_emulator, counters_project, purchases):
    expected = Tally()
    for date, sold in purchases:
        expected[date] += sold
    assert (len(purchases), expected.total()) == (69_659, 167_881)

    app = Counters(db)
    shop = app.on("shops/cdnow", "sold")
    days = {date: app.on(f"shops/cdnow/days/{date}", "sold") for date in expected}
    seen = []
    finished = threading.Event()

    def roll_up_on_a_schedule():
        while not finished.wait(ROLL_UP_EVERY):
            report = app.roll_up()
            assert (report.failed, report.orphans) == ((), ())
            seen.append(shop.total())

    arguments = [os.fspath(WRITER), counters_emulator.host, counters_project, os.fspath(CDNOW)]
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        schedule = pool.submit(roll_up_on_a_schedule)
        stack.callback(finished.set)
        writers = [
            stack.enter_context(subprocess.Popen([sys.executable, *arguments, str(number), str(PROCESSES)]))
            for number in range(PROCESSES)
        ]
        assert [writer.wait() for writer in writers] == [0] * PROCESSES
    schedule.result()

    assert shop.value() == 167_881
    assert {date: day.value() for date, day in days.items()} == expected

    last = app.roll_up()
    assert last.failed == ()
    assert shop.total().value == 167_881
    assert {date: day.total().value for date, day in days.items()} == expected

    assert len(seen) > 1, "rollups ran meanwhile"
    assert seen == sorted(seen, key=lambda total: (total.value, total.as_of))
