"""Backoff and chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counters.policy import NO_BACKOFF, Backoff, Policy


def test_the_bound_grows_by_the_factor_and_no_further_than_the_longest():
    backoff = Backoff(first=0.5, factor=3, longest=10)
    assert [backoff.bound(attempt) for attempt in range(5)] == [0.5, 1.5, 4.5, 10, 10]


@given(st.integers(0, 10**9))
def test_no_number_of_attempts_makes_a_bound_too_large_to_compute(attempt):
    assert 0 < Backoff().bound(attempt) <= Backoff().longest


def test_without_backoff_there_is_no_wait():
    assert [NO_BACKOFF.bound(attempt) for attempt in range(100)] == [0.0] * 100


def test_a_seed_makes_chance_repeatable_and_no_seed_does_not():
    assert Policy(seed=7).chance().random() == Policy(seed=7).chance().random()
    assert Policy(seed=7).chance().random() != Policy(seed=8).chance().random()
    assert Policy().chance().random() != Policy().chance().random()


def test_a_policy_cannot_be_changed_under_those_who_share_it():
    with pytest.raises(AttributeError):
        Policy().seed = 1
