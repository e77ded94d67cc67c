"""``counters demo``: real writers, a real rollup, the proof; and that Ctrl-C leaves nothing."""

import os
import re
from collections import Counter as Tally

import pytest
from running import Running, descendants, gone
from typer.testing import CliRunner

from counters import Counters
from counters.cli import proof
from counters.cli.app import app
from counters.testing import LostAnswer


@pytest.fixture
def purchases(tmp_path):
    """200 purchases of 70 customers on 20 days, 1 to 3 CDs each, as CDNOW has them."""
    file = tmp_path / "purchases.txt"
    file.write_text(
        "".join(f" {n % 70:05} 199701{1 + n % 20:02} {1 + n % 3} {11.77:.2f}\r\n" for n in range(200))
    )
    return file


def demo(host, project, data, *args):
    command = ["demo", "--data", str(data), "--writers", "2", "--project", project, *args]
    return CliRunner(env={"FIRESTORE_EMULATOR_HOST": host}).invoke(app, command)


def stored(client):
    """Value and total of every counter that a demo left: of the shop, and by day."""
    counters = Counters(client)
    (shop,) = client.collection("shops").list_documents()
    days = {day.id: counters.on(day, "cds") for day in shop.collection("days").list_documents()}
    found = {name: (c.value(), c.total().value) for name, c in days.items()}
    c = counters.on(shop, "cds")
    return (c.value(), c.total().value), found


def customers(client):
    """Audit, total, and ids of the children that a demo left."""
    (shop,) = client.collection("shops").list_documents()
    likes = Counters(client).children(shop, "customers")
    return likes.audit(), likes.total().value, {child.id for child in shop.collection("customers").stream()}


def by_day(file):
    """What the purchases add up to, read without any code of ours."""
    days = Tally()
    for line in file.read_text().splitlines():
        _, day, cds, _ = line.split()
        if day.isdecimal():
            days[f"{day[:4]}-{day[4:6]}-{day[6:]}"] += int(cds)
    return days


def test_every_cd_is_counted_and_the_totals_are_rolled_up(
    counters_emulator, counters_project, counters_client, purchases, tmp_path
):
    picture = tmp_path / "demo.png"
    ended = demo(counters_emulator.host, counters_project, purchases, "--plot", str(picture))
    assert ended.exit_code == 0, ended.output
    days = by_day(purchases)
    assert stored(counters_client) == (
        (days.total(), days.total()),
        {day: (cds, cds) for day, cds in days.items()},
    )
    assert re.search(r"the shop +399 +399 +399 +exact", ended.stdout)
    assert ended.stdout.endswith("every CD was counted exactly once, and so was every customer\n")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_each_customer_is_a_child_that_is_counted_once_though_both_writers_add_it(
    counters_emulator, counters_project, counters_client, purchases
):
    ended = demo(counters_emulator.host, counters_project, purchases)
    assert ended.exit_code == 0, ended.output
    audit, total, children = customers(counters_client)
    assert (audit.stored, audit.actual, total) == (70, 70, 70)
    assert children == {f"{n:05}" for n in range(70)}
    assert re.search(r"customers +70 +70 +70 +exact", ended.stdout)
    told = r"an audit finds 70, difference 0; 70 adds said True, ([1-9]\d*) False"
    assert re.search(told, ended.stdout)


def test_it_is_as_exact_when_a_fifth_of_the_answers_are_lost(
    counters_gateway, counters_project, counters_client, purchases
):
    counters_gateway.random(seed=1, rates={LostAnswer("Commit"): 0.2})
    ended = demo(counters_gateway.host, counters_project, purchases)
    assert ended.exit_code == 0, ended.output
    days = by_day(purchases)
    assert stored(counters_client)[1] == {day: (cds, cds) for day, cds in days.items()}
    assert customers(counters_client)[0].stored == 70
    assert "70 adds said True" in ended.stdout


def test_a_count_that_is_off_shows_and_fails(counters_emulator, counters_project, purchases, monkeypatch):
    def one_too_many(counters, expected, **kwargs):
        path = next(iter(expected))
        counters.at(counters.client.document(path)).increment()
        return prove(counters, expected, **kwargs)

    prove = proof.prove
    monkeypatch.setattr(proof, "prove", one_too_many)
    ended = demo(counters_emulator.host, counters_project, purchases)
    assert ended.exit_code == 1
    assert "DIFFERENT" in ended.stdout
    assert "1 of 22 counters are not as expected: the shop" in ended.stderr


def test_a_customer_that_nobody_counted_shows_and_fails(
    counters_emulator, counters_project, purchases, monkeypatch
):
    def behind_our_back(counters, expected, **kwargs):
        shop = counters.client.document(next(iter(expected))).parent.parent
        shop.collection("customers").document("stranger").set({})
        return prove(counters, expected, **kwargs)

    prove = proof.prove
    monkeypatch.setattr(proof, "prove", behind_our_back)
    ended = demo(counters_emulator.host, counters_project, purchases)
    assert ended.exit_code == 1
    assert "an audit finds 71, difference 1" in ended.stdout
    assert "the customers as children are not as expected, 70" in ended.stderr


def test_ctrl_c_ends_writers_and_emulator_with_code_130(tmp_path):
    data = tmp_path / "purchases.txt"
    data.write_text("00001 19970101 1 11.77\n" * 20_000)
    environ = {name: value for name, value in os.environ.items() if name != "FIRESTORE_EMULATOR_HOST"}
    with Running("demo", "--data", str(data), "--all", "--writers", "2", env=environ) as running:
        running.read_until(r" s  [1-9][\d,]* of 20,000 purchases")
        children = descendants(running.pid)
        assert len(children) >= 3  # two writers and an emulator
        running.interrupt()
        said = running.rest()
        assert running.wait() == 130
    assert "purchases were counted" in said
    assert "Traceback" not in said
    assert gone(children)
