"""What a counter document says, how it is refused, and how a process comes by it."""

import asyncio
import re
from datetime import datetime, timezone

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import Client, types
from google.cloud.firestore_v1._helpers import decode_dict
from hypothesis import given
from hypothesis import strategies as st
from server_model import DATABASE, World, create_counter, made_up, silence

from counters import (
    CounterNotFound,
    InvalidType,
    InvalidValue,
    Mirror,
    ReadFailed,
    UnsupportedLayout,
    layout,
    settings,
    wire,
)
from counters.increments import load_settings
from counters.settings import MirrorTarget, Total, parse, targets_of, total_from, total_in
from counters.steps import Sleep

COUNTER = "posts/a91f/counters/likes"
CLIENT = Client("p", AnonymousCredentials(), database="d")
POST = CLIENT.document("posts/a91f")


def counter_document(**fields):
    return wire.Document(COUNTER, {"layout": 1, "shards": 10} | fields, 3, created=1, updated=2)


def test_a_counter_document_tells_its_settings():
    found = parse(counter_document(initial=5, total=7, anything=None))
    assert (found.shards, found.initial, found.mirrors) == (10, 5, frozenset())
    assert (found.created, found.updated) == (1, 2)


def test_where_there_is_no_document_there_is_no_counter():
    with pytest.raises(CounterNotFound, match=r"create\(\)"):
        parse(wire.Document(COUNTER, None, 3))


@pytest.mark.parametrize("number", [None, "1", 1.0, True, 0, -1])
def test_a_document_without_a_layout_is_somebody_elses(number):
    with pytest.raises(UnsupportedLayout, match="no counter document"):
        parse(counter_document(layout=number))


def test_a_newer_layout_is_refused_with_what_to_do():
    with pytest.raises(UnsupportedLayout, match=r"layout 2.*upgrade firestore-counters"):
        parse(counter_document(layout=2))


@pytest.mark.parametrize("shards", [None, 0, -1, 10_001, 10.0, "10", True])
def test_a_damaged_number_of_shards_is_refused_with_what_to_do(shards):
    with pytest.raises(UnsupportedLayout, match="from 1 to 10,000"):
        parse(counter_document(shards=shards))


@pytest.mark.parametrize(
    "mirrors",
    [
        7,
        "text",
        [7],
        [{}],
        [{"document": "posts/a91f", "field": "likes"}],
        [{"document": wire.Reference("short"), "field": "likes"}],
        [{"document": wire.Reference(f"{DATABASE}/documents/a/b"), "field": "a..b"}],
        [{"document": wire.Reference(f"{DATABASE}/documents/a/b"), "field": 7}],
        [{"document": wire.Reference(f"{DATABASE}/documents/a/b")}],
    ],
)
def test_damaged_mirrors_are_refused_with_what_to_do(mirrors):
    with pytest.raises(UnsupportedLayout, match=r"set_mirrors\(\)"):
        parse(counter_document(mirrors=mirrors))


LETTERS = st.characters(exclude_categories=["Cs"])
# Google's lexer, which Mirror asks too, does not read a path with a backslash before a closing backtick.
NAMES = st.text(LETTERS, min_size=1, max_size=12).filter(
    lambda name: not name.endswith("\\") and not re.fullmatch("__.*__", name, re.DOTALL)
)
MIRROR_TARGETS = st.builds(
    MirrorTarget,
    st.lists(NAMES.filter(lambda name: "/" not in name), min_size=2, max_size=2).map("/".join),
    st.lists(NAMES, min_size=1, max_size=3).map(tuple),
)


@given(st.integers(1, 10_000), st.integers(-(2**63), 2**63 - 1), st.frozensets(MIRROR_TARGETS, max_size=4))
def test_settings_are_read_as_they_were_written(shards, initial, mirrors):
    stored = wire.encode(settings.fields_of(DATABASE, shards, initial, mirrors))
    found = parse(wire.Document(COUNTER, wire.decode(stored), 3))
    assert (found.shards, found.initial, found.mirrors) == (shards, initial, mirrors)


def test_defaults_are_not_stored():
    assert settings.fields_of(DATABASE, 10, 0, frozenset()) == {"layout": 1, "shards": 10}


# Mirrors.


@pytest.mark.parametrize(
    ("field", "parts"),
    [
        ("likes", ("likes",)),
        ("stats.likes", ("stats", "likes")),
        ("stats.`like-count`", ("stats", "like-count")),
        ("`a.b`", ("a.b",)),
    ],
)
def test_a_mirrors_field_may_be_a_path(field, parts):
    assert settings.target_of(Mirror(POST, field)) == MirrorTarget("posts/a91f", parts)


@pytest.mark.parametrize("field", ["", "a..b", ".a", "a.", "like-count", "`", "a`b", "ä", "1st"])
def test_a_mirrors_field_that_firestore_would_refuse_is_refused_at_once(field):
    with pytest.raises(InvalidValue, match="field path"):
        Mirror(POST, field)


@given(st.text(max_size=8) | st.text("ab.`\\-", max_size=8))
def test_any_text_is_a_field_path_or_refused_as_none(field):
    try:
        mirror = Mirror(POST, field)
    except InvalidValue:
        return
    assert all(settings.target_of(mirror).field)


@pytest.mark.parametrize(
    ("document", "field"), [("posts/a91f", "likes"), (None, "likes"), (POST, None), (POST, 7)]
)
def test_a_mirror_of_the_wrong_types_is_refused(document, field):
    with pytest.raises(InvalidType, match="mirror"):
        Mirror(document, field)


def test_mirrors_are_a_set_of_where_they_point():
    mirrors = [Mirror(POST, "likes"), Mirror(POST, "`likes`"), Mirror(POST, "stats.likes")]
    assert targets_of(iter(mirrors), COUNTER, DATABASE) == {
        MirrorTarget("posts/a91f", ("likes",)),
        MirrorTarget("posts/a91f", ("stats", "likes")),
    }


@pytest.mark.parametrize("mirrors", [7, None, Mirror(POST, "likes"), [POST], ["likes"]])
def test_what_is_no_list_of_mirrors_is_refused(mirrors):
    with pytest.raises(InvalidType, match="list of Mirror"):
        targets_of(mirrors, COUNTER, DATABASE)


def test_a_counter_is_not_mirrored_into_itself():
    with pytest.raises(InvalidValue, match="own document"):
        targets_of([Mirror(CLIENT.document(COUNTER), "likes")], COUNTER, DATABASE)


def test_a_mirror_in_another_database_cannot_be_written_with_its_total():
    elsewhere = Client("p", AnonymousCredentials(), database="elsewhere").document("posts/a91f")
    with pytest.raises(InvalidValue, match="another database"):
        targets_of([Mirror(elsewhere, "likes")], COUNTER, DATABASE)


@pytest.mark.parametrize("fields", [("stats", "stats.likes"), ("a.b.c", "a.b")])
def test_a_mirror_within_another_is_refused(fields):
    with pytest.raises(InvalidValue, match="within"):
        targets_of([Mirror(POST, field) for field in fields], COUNTER, DATABASE)
    other_post = Mirror(CLIENT.document("posts/b"), fields[1])
    assert len(targets_of([Mirror(POST, fields[0]), other_post], COUNTER, DATABASE)) == 2


# Totals.

MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1), timezones=st.just(timezone.utc))  # noqa: DTZ001


@given(MOMENTS, st.integers(-(2**63), 2**63 - 1))
def test_a_total_is_the_same_from_our_messages_and_from_the_sdks_snapshots(moment, value):
    stamp = wire.timestamp(wire.from_datetime(moment))
    fields = {"total": value, "as_of": stamp}
    snapshot = decode_dict({key: wire_value(item) for key, item in fields.items()}, CLIENT)
    expected = Total(value, moment)
    assert total_in(counter_document(**fields)) == expected
    assert total_from(snapshot) == expected
    assert type(total_from(snapshot).as_of) is datetime


def wire_value(item):
    return types.Value.wrap(wire.encode(item))


@pytest.mark.parametrize(
    "fields", [{}, {"total": 7}, {"as_of": wire.timestamp(5)}, {"total": "7", "as_of": wire.timestamp(5)}]
)
def test_half_a_total_is_none(fields):
    assert total_in(counter_document(**fields)) == Total(None, None)
    as_sdk = {key: datetime.now(timezone.utc) if key == "as_of" else item for key, item in fields.items()}
    assert total_from(as_sdk) == Total(None, None)


def test_where_there_is_no_counter_there_is_no_total():
    assert total_in(wire.Document(COUNTER, None, 3)) == Total(None, None)


# How a process comes by them.


def test_settings_are_read_once_and_then_cached():
    world = World()
    create_counter(world.server, COUNTER, shards=7)
    context = world.context()
    for _ in range(3):
        assert world.run(load_settings(world.call(context), COUNTER)).shards == 7
    assert world.methods == ["batch_get_documents"]


def test_a_counter_that_is_not_there_is_created_with_the_apps_settings():
    world = World()
    context = world.context(shards=7)
    found = world.run(load_settings(world.call(context), COUNTER))
    assert found.shards == world.server.field(COUNTER, layout.SHARD_COUNT) == 7
    assert found.created == world.server.documents[COUNTER].created


def test_of_many_calls_that_need_them_at_once_one_reads_and_the_others_wait():
    world = World()
    create_counter(world.server, COUNTER, shards=7)
    context = world.context()
    first, second = (load_settings(world.call(context), COUNTER) for _ in range(2))
    request = next(first)
    assert isinstance(next(second), Sleep)
    assert isinstance(second.send(None), Sleep)
    with pytest.raises(StopIteration) as ended:
        first.send(world.send(request))
    with pytest.raises(StopIteration) as waited:
        second.send(None)
    assert ended.value.value == waited.value.value
    assert world.sent == 1


@pytest.mark.parametrize("error", [exceptions.PermissionDenied("no"), asyncio.CancelledError()])
def test_when_the_one_fails_or_is_cut_short_another_reads(error):
    world = World()
    create_counter(world.server, COUNTER, shards=7)
    context = world.context()
    first, second = (load_settings(world.call(context), COUNTER) for _ in range(2))
    next(first)
    next(second)
    with pytest.raises((ReadFailed, asyncio.CancelledError)):
        first.throw(error)
    request = second.send(None)
    with pytest.raises(StopIteration):
        second.send(world.send(request))


def test_who_waits_for_another_waits_no_longer_than_its_own_timeout():
    world = World()
    context = world.context(timeout=1)
    next(load := load_settings(world.call(context), COUNTER))
    with pytest.raises(ReadFailed):
        world.run(load_settings(world.call(context), COUNTER))
    assert 1 <= world.seconds < 1.1
    load.close()


def test_settings_that_cannot_be_read_end_the_call_and_leave_it_to_the_next():
    world = World()
    create_counter(world.server, COUNTER, shards=7)
    context = world.context(timeout=10)
    world.faults["batch_get_documents"] = [silence] * 20
    with pytest.raises(ReadFailed):
        world.run(load_settings(world.call(context), COUNTER))
    world.faults["batch_get_documents"] = [made_up(exceptions.PermissionDenied("no"))]
    with pytest.raises(ReadFailed):
        world.run(load_settings(world.call(context), COUNTER))
    assert world.run(load_settings(world.call(context), COUNTER)).shards == 7


def test_settings_that_are_refused_are_read_again_by_the_next_call():
    world = World()
    create_counter(world.server, COUNTER, shards=7, **{layout.LAYOUT_FIELD: 2})
    context = world.context()
    with pytest.raises(UnsupportedLayout):
        world.run(load_settings(world.call(context), COUNTER))
    world.server.put(COUNTER, **{layout.LAYOUT_FIELD: 1})
    assert world.run(load_settings(world.call(context), COUNTER)).shards == 7
