"""Reading the CDNOW purchases."""

from datetime import date

import pytest

from counters.cli.cdnow import NotCdnow, Purchase, purchases


def test_purchases_are_read_as_the_package_lifetimes_has_them_with_header_and_carriage_returns():
    lines = [
        " customer_id  date number_of_cds  dollar_value\r\n",
        " 00001 19970101  1   11.77\r\n",
        " 00002 19970112  5   77.00\r\n",
    ]
    assert list(purchases(lines)) == [
        Purchase(2, "00001", date(1997, 1, 1), 1),
        Purchase(3, "00002", date(1997, 1, 12), 5),
    ]


def test_purchases_are_read_as_the_original_has_them_without_header():
    assert list(purchases(["00001 19970101  1   11.77", "", "00001 19980630 0 0.00"])) == [
        Purchase(1, "00001", date(1997, 1, 1), 1),
        Purchase(3, "00001", date(1998, 6, 30), 0),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("00001 19970101 1", "3 columns"),
        ("00001 19970101 1 11.77 x", "5 columns"),
        ("00001 19970230 1 11.77", "'19970230' is no day"),
        ("00001 970130 1 11.77", "'970130' is no day"),
        ("00001 1997013x 1 11.77", "'1997013x' is no day"),
        ("00001 19970101 -1 11.77", "'-1' is no number of CDs"),
        ("00001 19970101 1.5 11.77", "'1.5' is no number of CDs"),
        ("../1 19970101 1 11.77", "'../1' is no customer's number"),
        ("customer date cds dollars", "'cds' is no number of CDs"),
    ],
)
def test_a_line_that_is_no_purchase_is_named_with_its_number(line, why):
    with pytest.raises(NotCdnow, match=f"line 2 is no purchase: .*{why}"):
        list(purchases(["00001 19970101 1 11.77", line]))
