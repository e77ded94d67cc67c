"""A lane has one owner, in one process, and its marks rise."""

import os
import subprocess
import sys
import threading
from itertools import pairwise
from textwrap import dedent

from google.cloud.firestore_v1.field_path import get_field_path
from hypothesis import given
from hypothesis import strategies as st

from counters import lanes
from counters.lanes import Lane, Lanes


def test_a_lane_that_was_given_back_is_taken_again():
    pool = Lanes()
    lane = pool.acquire()
    pool.release(lane)
    assert pool.acquire() is lane


def test_two_owners_at_once_have_two_lanes():
    pool = Lanes()
    assert pool.acquire() is not pool.acquire()


def test_under_threads_a_lane_never_has_two_owners():
    pool = Lanes()
    owned, twice = set(), []

    def work():
        for _ in range(2000):
            lane = pool.acquire()
            if lane.name in owned:
                twice.append(lane)
            owned.add(lane.name)
            owned.discard(lane.name)
            pool.release(lane)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not twice
    names = [lane.name for lane in pool._free]
    assert len(names) == len(set(names)) <= 8


def test_after_a_fork_the_parents_lanes_are_left_to_the_parent(monkeypatch):
    pool = Lanes()
    lane = pool.acquire()
    pool.release(lane)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert pool.acquire() is not lane


def test_a_forked_process_really_has_lanes_of_its_own():
    script = """
        import os
        from counters.lanes import Lanes

        pool = Lanes()
        parents = pool.acquire()
        pool.release(parents)
        if os.fork() == 0:
            os._exit(pool.acquire().name == parents.name)
        _, status = os.wait()
        assert status == 0, "the child took its parent's lane"
        assert pool.acquire() is parents
    """
    subprocess.run([sys.executable, "-c", dedent(script)], check=True)


@given(st.lists(st.integers(0, 2**50), min_size=2))
def test_marks_strictly_rise_whatever_the_clock_does(clock):
    lane = Lane()
    marks = [lane.next_mark(now) for now in clock]
    assert all(earlier < later for earlier, later in pairwise(marks))
    assert all(mark >= now for mark, now in zip(marks, clock, strict=True))


def test_a_mark_is_the_servers_time_where_that_rises():
    lane = Lane()
    assert [lane.next_mark(now) for now in (1000, 2000, 2000, 1500)] == [1000, 2000, 2001, 2002]


def test_names_are_unlike_each_other_and_simple_field_names_that_need_no_quotes():
    names = {Lane().name for _ in range(1000)}
    assert len(names) == 1000
    for name in names:
        assert len(name) == 10
        assert get_field_path(["receipts", name]) == f"receipts.{name}"


def test_names_do_not_come_from_a_seed(monkeypatch):
    asked = []
    monkeypatch.setattr(lanes.secrets, "choice", lambda letters: asked.append(letters) or letters[0])
    assert Lane().name == "aaaaaaaaaa"
    assert len(asked) == 10


def test_a_lane_touches_each_document_anew_once():
    lane = Lane()
    touched = [lane.touches_anew(path) for path in ("a/1", "a/2", "a/1", "a/2")]
    assert touched == [True, True, False, False]


def test_a_lane_remembers_a_bounded_number_of_documents_and_forgets_the_oldest():
    lane = Lane()
    for number in range(lanes._TOUCHED + 1):
        lane.touches_anew(f"a/{number}")
    assert len(lane._touched) == lanes._TOUCHED
    assert lane.touches_anew("a/0")
    assert not lane.touches_anew(f"a/{lanes._TOUCHED}")
