"""Amounts are whole numbers that Firestore can hold; all else is refused at the call."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import Client
from hypothesis import given
from hypothesis import strategies as st

from counters import Counter, CounterError, InvalidType, InvalidValue
from counters.increments import checked_amount


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_whole_number_within_int64_is_itself(amount):
    assert checked_amount(amount) == amount


@pytest.mark.parametrize(
    "kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
)
def test_numpys_whole_numbers_become_plain_ints(kind):
    amount = checked_amount(kind(100))
    assert amount == 100
    assert type(amount) is int


def test_any_type_that_is_an_index_will_do():
    class Cents:
        def __index__(self):
            return 7

    assert checked_amount(Cents()) == 7


@pytest.mark.parametrize(
    ("amount", "advice"),
    [
        (True, r"write 1, or int\(flag\)"),
        (np.bool_(True), r"write 1, or int\(flag\)"),
        (1.0, r"round\(\) it"),
        (0.5, "cents, not dollars"),
        (math.nan, "float"),
        (math.inf, "float"),
        (np.float64(1), "float64"),
        (Decimal(1), "Decimal"),
        (Fraction(1), "Fraction"),
        (1j, "complex"),
        ("1", r"convert it with int\(\)"),
        (b"1", r"convert it with int\(\)"),
        (None, "NoneType"),
        ([1], "list"),
    ],
)
def test_what_is_no_whole_number_is_refused_with_what_to_do(amount, advice):
    with pytest.raises(InvalidType, match=advice) as caught:
        checked_amount(amount)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, CounterError)


@pytest.mark.parametrize("amount", [2**63, -(2**63) - 1, np.uint64(2**63), 10**100])
def test_what_does_not_fit_into_int64_is_refused(amount):
    with pytest.raises(InvalidValue, match="64-bit") as caught:
        checked_amount(amount)
    assert isinstance(caught.value, ValueError)


class Unreachable:
    """Fails the test if anything is sent."""

    def send(self, rpc):
        raise AssertionError(f"sent {rpc.method}")


@pytest.fixture
def counter():
    handle = Counter(Client("p", AnonymousCredentials()).document("posts/a91f/counters/likes"))
    handle._transport = Unreachable()
    return handle


@pytest.mark.parametrize("method", ["increment", "decrement"])
@pytest.mark.parametrize("amount", [True, 1.5, "1", None, 2**63])
def test_a_bad_amount_is_refused_before_anything_is_sent(counter, method, amount):
    with pytest.raises((InvalidType, InvalidValue)):
        getattr(counter, method)(amount)
    with pytest.raises((InvalidType, InvalidValue)):
        counter.create(initial=amount)


def test_the_smallest_number_cannot_be_taken_off_because_its_negative_does_not_fit(counter):
    with pytest.raises(InvalidValue, match="64-bit"):
        counter.decrement(-(2**63))


@pytest.mark.parametrize("amount", [0, np.int64(0)])
def test_zero_costs_nothing(counter, amount):
    assert counter.increment(amount) is None
    assert counter.decrement(amount) is None
