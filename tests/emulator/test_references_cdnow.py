"""The customers of the CDNOW purchases as children, while all purchases are replayed by four processes."""

from pathlib import Path

import pytest
from liking import Process, customers

from counters import Counters

PURCHASES = Path(__file__).parents[2] / "build" / "CDNOW_master.txt"
WRITERS = 4


@pytest.mark.proof
def test_each_of_the_customers_is_counted_once_by_four_processes(counters_emulator, counters_project, db):
    """A customer's purchases follow each other in the file, so that all four meet at most of them."""
    assert PURCHASES.exists(), "make build/CDNOW_master.txt"
    rows = customers(PURCHASES)
    assert (len(rows), len(set(rows))) == (69_659, 23_570)
    likes = Counters(db).children("shops/cdnow", "customers")
    likes.create(shards=20)
    job = counters_emulator.host, counters_project, "add_customers", "shops/cdnow", "customers", PURCHASES
    processes = [Process(*job, hand, WRITERS) for hand in range(WRITERS)]
    firsts = [process.wait() for process in processes]
    assert sum(firsts) == 23_570
    assert min(firsts) > 0
    found = likes.audit()
    assert (found.stored, found.actual) == (23_570, 23_570)
    assert {child.id for child in db.collection("shops/cdnow/customers").select([]).stream()} == set(rows)
