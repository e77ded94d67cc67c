"""Work: what rows add up to, how they are dealt out, told to writers, and accounted for."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counters import CounterNotFound, NotApplied, OutcomeUnknown
from counters.cli.protocol import Job, Report
from counters.cli.tally import Broken, tally
from counters.cli.work import Increment, Row, busiest, children, deal, expected
from counters.cli.writer import count

PATHS = st.text(min_size=1, max_size=6)
AMOUNTS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.builds(
        Row,
        st.integers(1, 10**9),
        st.lists(st.builds(Increment, PATHS, AMOUNTS), max_size=3).map(tuple),
        st.none() | PATHS,
    ),
    max_size=20,
)


def row(line, *increments, child=None):
    return Row(line, tuple(Increment(*increment) for increment in increments), child)


@given(ROWS, st.integers(1, 9))
def test_dealing_gives_each_row_to_one_hand_evenly_and_nobody_an_empty_one(rows, number):
    hands = deal(rows, number)
    assert sorted(map(repr, (row for hand in hands for row in hand))) == sorted(map(repr, rows))
    assert len(hands) == min(number, len(rows))
    sizes = {len(hand) for hand in hands}
    assert not sizes or (min(sizes) > 0 and max(sizes) - min(sizes) <= 1)


def test_a_counter_that_only_gets_zeros_is_not_expected_to_exist():
    assert expected([row(1, ("a/b", 0)), row(2, ("c/d", 5), ("e/f", 1)), row(3, ("c/d", -5))]) == {
        "c/d": 0,
        "e/f": 1,
    }


def test_the_busiest_counter_is_the_one_with_most_increments_not_the_one_with_the_largest_sum():
    assert busiest([row(1, ("a/b", 900)), row(2, ("c/d", 1)), row(3, ("c/d", 1))]) == "c/d"


def test_a_child_of_several_rows_is_expected_once_whoever_they_are_dealt_to():
    rows = [row(line, child=child) for line, child in enumerate(["a", "a", "b", None, "a"])]
    assert children(rows) == {"a", "b"}
    assert [children(hand) for hand in deal(rows, 2)] == [{"a", "b"}, {"a"}]


@given(ROWS)
def test_a_job_comes_out_as_it_went_in_and_is_one_line(rows):
    line = Job("project", None, 10, rows).to_line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert Job.from_line(line) == Job("project", None, 10, rows)


def test_a_report_comes_out_as_it_went_in():
    report = Report(3, ended=True, error="gone\nfor good", applied=1, unknown=True, added=2, found=4)
    assert Report.from_line(report.to_line()) == report


# A writer.


def counted_until(rows, *, stop_after=None, fail_at=None, error=None):
    """Run a writer; the increments that were applied, and its last report."""
    applied = []

    def increment(path, amount):
        if len(applied) == fail_at:
            raise error
        applied.append((path, amount))

    def stopped():
        return stop_after is not None and len(applied) >= stop_after

    return applied, count(rows, increment, adding([]), stopped, lambda _: None)


def adding(there):
    """What adds a child to those that are there, as a reference count does."""

    def add(child):
        if child in there:
            return False
        there.append(child)
        return True

    return add


TWO_EACH = [row(line, ("a/b", line), ("c/d", line)) for line in (1, 2, 3)]


def test_a_writer_counts_all_its_rows_in_order():
    applied, report = counted_until(TWO_EACH)
    assert applied == [("a/b", 1), ("c/d", 1), ("a/b", 2), ("c/d", 2), ("a/b", 3), ("c/d", 3)]
    assert report == Report(3, ended=True)


def test_a_writer_that_is_told_to_stop_in_the_middle_of_a_row_finishes_the_row():
    applied, report = counted_until(TWO_EACH, stop_after=3)
    assert len(applied) == 4
    assert report == Report(2, ended=True)


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (NotApplied("refused"), False),
        (CounterNotFound("deleted"), False),
        (OutcomeUnknown("no answer"), True),
        (ZeroDivisionError("a bug"), True),
    ],
)
def test_a_writer_that_fails_says_how_far_it_came_within_the_row(error, unknown):
    _, report = counted_until(TWO_EACH, fail_at=3, error=error)
    assert report == Report(1, ended=True, error=str(error), applied=1, unknown=unknown)


WITH_CHILDREN = [row(line, ("a/b", 1), child=child) for line, child in enumerate("xyxzy", start=1)]


def test_a_writer_asks_once_for_each_child_and_tells_which_it_added():
    asked, add = [], adding(["y"])  # another writer was there

    def add_and_note(child):
        asked.append(child)
        return add(child)

    report = count(WITH_CHILDREN, lambda *_: None, add_and_note, lambda: False, lambda _: None)
    assert asked == ["x", "y", "z"]
    assert report == Report(5, ended=True, added=2, found=1)


def test_a_writer_that_fails_at_a_child_says_that_all_increments_of_the_row_are_applied():
    def add(child):
        if child == "z":
            raise OutcomeUnknown("no answer")
        return True

    report = count(WITH_CHILDREN, lambda *_: None, add, lambda: False, lambda _: None)
    assert report == Report(3, ended=True, error="no answer", applied=1, unknown=True, added=2)
    (broken,) = tally([(WITH_CHILDREN, report)]).broken
    assert str(broken) == "line 4: +1 on a/b: counted; z: cannot be known"


def test_a_writer_that_is_stopped_before_it_has_its_job_says_that_it_did_nothing():
    program = "from counters.cli.writer import main; main()"
    ended = subprocess.run([sys.executable, "-c", program], input=b"", capture_output=True, check=True)
    assert Report.from_line(ended.stdout) == Report(0, ended=True)


# The tally.


def test_a_tally_of_writers_that_finished_is_complete():
    result = tally([(TWO_EACH[:2], Report(2, ended=True)), (TWO_EACH[2:], Report(1, ended=True))])
    assert result.complete
    assert result.counted == 3


def test_a_tally_adds_up_what_the_writers_added_and_what_they_found_there():
    told = [Report(ended=True, added=3, found=1), Report(ended=True, added=2, found=4)]
    result = tally([([], report) for report in told])
    assert (result.added, result.found) == (5, 5)


def test_rows_of_writers_that_were_stopped_are_left_in_the_order_of_the_file():
    hands = deal(TWO_EACH, 2)  # lines 1 and 3, and line 2
    result = tally([(hands[0], Report(0, ended=True)), (hands[1], Report(0, ended=True))])
    assert [row.line for row in result.rest] == [1, 2, 3]
    assert not result.complete
    assert result.errors == []


def test_a_row_of_which_nothing_was_applied_is_left_whole():
    result = tally([(TWO_EACH, Report(1, ended=True, error="refused"))])
    assert (result.counted, result.rest, result.broken) == (1, TWO_EACH[1:], [])
    assert result.errors == ["refused"]


@pytest.mark.parametrize(
    ("applied", "unknown", "says"),
    [
        (1, False, "line 2: +2 on a/b: counted; +2 on c/d: not counted"),
        (0, True, "line 2: +2 on a/b: cannot be known; +2 on c/d: not counted"),
        (1, True, "line 2: +2 on a/b: counted; +2 on c/d: cannot be known"),
    ],
)
def test_a_row_that_is_counted_in_part_is_neither_counted_nor_left(applied, unknown, says):
    report = Report(1, ended=True, error="gone", applied=applied, unknown=unknown)
    result = tally([(TWO_EACH, report)])
    assert (result.counted, result.rest) == (1, TWO_EACH[2:])
    assert result.broken == [Broken(TWO_EACH[1], applied, unknown)]
    assert str(result.broken[0]) == says


def test_what_a_killed_writer_did_since_its_last_report_is_unknown():
    result = tally([(TWO_EACH, Report(1))])
    assert (result.counted, result.rest, result.unknown) == (1, [], TWO_EACH[1:])
    assert result.errors == ["a writer was killed"]
