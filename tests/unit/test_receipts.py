"""What a document says of a commit in doubt, and which receipts may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counters import layout, receipts
from counters.receipts import Verdict, judge, judge_by_counter, to_prune
from counters.wire import Document, Receipt

BEGAN = 1_700_000_000_000_000
HORIZON = 300_000_000
OURS = Receipt(layout.RECEIPTS, "ours", BEGAN)
APPLIED, NOT_APPLIED = Verdict.APPLIED, Verdict.NOT_APPLIED
UNKNOWN, ASK_COUNTER = Verdict.UNKNOWN, Verdict.ASK_COUNTER


def shard(marks, *, created=BEGAN - 1, read_time=BEGAN + 1000, **more):
    fields = None if marks is None else {layout.VALUE: 1, layout.RECEIPTS: marks, **more}
    return Document("a/b", fields, read_time, created=created, updated=created)


@pytest.mark.parametrize(
    ("document", "verdict"),
    [
        (shard({"ours": BEGAN}), APPLIED),
        (shard({"ours": BEGAN}, created=BEGAN), APPLIED),
        (shard({"ours": BEGAN - 1}), NOT_APPLIED),
        (shard({"ours": BEGAN + 1}), NOT_APPLIED),
        (shard({"other": BEGAN}), NOT_APPLIED),
        (shard({}), NOT_APPLIED),
        (shard("damaged"), NOT_APPLIED),
        (shard({"ours": "damaged"}), NOT_APPLIED),
        (Document("a/b", {}, BEGAN + 1000, created=BEGAN - 1), NOT_APPLIED),
        (shard(None), ASK_COUNTER),
        (shard({}, created=BEGAN), ASK_COUNTER),
        (shard({}, created=BEGAN + 500), ASK_COUNTER),
        (shard({"ours": BEGAN}, read_time=BEGAN + HORIZON - 1), APPLIED),
        (shard({}, read_time=BEGAN + HORIZON - 1), NOT_APPLIED),
        (shard({"ours": BEGAN}, read_time=BEGAN + HORIZON), APPLIED),
        (shard({}, read_time=BEGAN + HORIZON), UNKNOWN),
        (shard(None, read_time=BEGAN + HORIZON), UNKNOWN),
        (shard({}, pruned=BEGAN - 1), NOT_APPLIED),
        (shard({}, pruned=BEGAN), UNKNOWN),
        (shard({}, pruned="damaged"), NOT_APPLIED),
        (shard({"ours": BEGAN}, pruned=BEGAN + 1), APPLIED),
    ],
)
def test_the_receipt_decides_where_it_can(document, verdict):
    assert judge(document, OURS) is verdict


@pytest.mark.parametrize(
    ("fields", "created", "verdict"),
    [
        ({"layout": 1}, 7, NOT_APPLIED),
        ({"layout": 1}, 8, UNKNOWN),
        ({"layout": 1}, 6, UNKNOWN),
        (None, 7, UNKNOWN),
        (None, 0, UNKNOWN),
    ],
)
def test_only_the_very_counter_of_before_the_attempt_proves_that_nothing_was_applied(
    fields, created, verdict
):
    counter = Document("a/b", fields, BEGAN, created=created if fields else 0)
    assert judge_by_counter(counter, 7 if created else 0) is verdict


def stale(number):
    return {f"lane{index}": BEGAN - HORIZON - 1 for index in range(number)}


def lanes_of(pruning):
    return set() if pruning is None else set(pruning.lanes)


def test_only_receipts_past_the_horizon_are_pruned():
    marks = stale(8) | {"at": BEGAN - HORIZON, "young": BEGAN - 1}
    assert lanes_of(to_prune(shard(marks, read_time=BEGAN))) == set(stale(8))


def test_too_few_to_be_worth_a_write_are_left_alone():
    assert to_prune(shard(stale(7), read_time=BEGAN)) is None
    assert receipts.PRUNE_AT == 8


def test_damaged_receipts_are_pruned_with_the_old_ones():
    assert "damaged" in lanes_of(to_prune(shard(stale(7) | {"damaged": "x"}, read_time=BEGAN)))


def test_where_there_are_no_receipts_nothing_is_pruned():
    assert to_prune(shard(None)) is None
    assert to_prune(shard("damaged")) is None
    assert to_prune(Document("a/b", {}, BEGAN)) is None


def test_of_too_many_young_receipts_the_newest_stay_and_the_document_says_from_when_on():
    young = {f"lane{number}": BEGAN + number for number in range(receipts.MOST_KEPT + 8)}
    pruning = to_prune(shard(young, read_time=BEGAN + 1000))
    assert set(pruning.lanes) == {f"lane{number}" for number in range(8)}
    assert pruning.pruned == BEGAN + 7
    young.popitem()
    assert to_prune(shard(young, read_time=BEGAN + 1000)) is None


def test_the_mark_of_what_was_pruned_never_goes_back():
    pruning = to_prune(shard(stale(8), read_time=BEGAN, pruned=BEGAN - 5))
    assert pruning.pruned == BEGAN - 5
    assert to_prune(shard(stale(8), read_time=BEGAN)).pruned == BEGAN - HORIZON - 1


@given(st.lists(st.integers(BEGAN - 2 * HORIZON, BEGAN), max_size=700, unique=True), st.integers(0, BEGAN))
def test_the_absence_of_a_pruned_receipt_never_counts_as_proof(marks, before):
    by_lane = {f"lane{number}": mark for number, mark in enumerate(marks)}
    document = shard(by_lane, created=1, read_time=BEGAN, pruned=before)
    pruning = to_prune(document)
    gone = lanes_of(pruning)
    left = {lane: mark for lane, mark in by_lane.items() if lane not in gone}
    after = shard(left, created=1, read_time=BEGAN, pruned=pruning.pruned if pruning else before)
    for lane, mark in by_lane.items():
        verdict = judge(after, Receipt(layout.RECEIPTS, lane, mark))
        assert verdict is (UNKNOWN if lane in gone else APPLIED)


def test_no_doubt_outlives_the_horizon():
    assert receipts.LONGEST_TIMEOUT < receipts.HORIZON
    assert receipts.HORIZON > 270
