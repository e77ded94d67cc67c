"""What is shown of a counter: lines, pictures, JSON, the proof and the plot."""

import io
from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from counters import Total, layout, wire
from counters.cli.plot import draw
from counters.cli.proof import Line, side_by_side, together
from counters.cli.reading import Reading, Sample, Shard
from counters.cli.show import as_object
from counters.cli.view import Lines, Subject, line, picture
from counters.settings import parse

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=timezone.utc)
SUBJECT = Subject(5000, "purchases", "shops/cdnow/counters/cds")
DOCUMENT = wire.Document(
    "posts/1/counters/likes",
    {
        layout.LAYOUT_FIELD: layout.LAYOUT,
        layout.SHARD_COUNT: 10,
        layout.INITIAL: 5,
        layout.MIRRORS: [
            {
                layout.MIRROR_DOCUMENT: wire.Reference("projects/p/databases/d/documents/posts/1"),
                layout.MIRROR_FIELD: "stats.likes",
            }
        ],
    },
    read_time=0,
)
SETTINGS = parse(DOCUMENT)


def shard(number, value, damage=None):
    return Shard(str(number), value, writes=3, updated_at=NOW, receipts=2, damage=damage)


def reading(*shards, total=None, age=1.5, settings=SETTINGS):
    stored = Total(None, None) if total is None else Total(total, NOW - timedelta(seconds=age))
    return Reading("posts/1/counters/likes", settings, stored, NOW, shards, reads=1 + len(shards))


def printed(renderable):
    console = Console(file=io.StringIO(), width=100)
    console.print(renderable)
    return console.file.getvalue()


def test_a_value_is_the_sum_of_the_shards_negative_ones_too():
    assert reading(shard(0, 7), shard(1, -2)).value == 5
    assert reading().value == 0


def test_a_value_with_a_damaged_shard_cannot_be_known():
    assert reading(shard(0, 7), shard(1, None, damage="it is 'x'")).value is None


def test_staleness_is_measured_by_the_server_s_clock():
    assert reading(total=3, age=2.5).staleness == timedelta(seconds=2.5)
    assert reading().staleness is None


def test_a_line_tells_shards_value_total_and_how_stale_it_is():
    sample = Sample(12.34, 1200, reading(shard(0, 1000), shard(1, 1500), total=2000))
    assert line(SUBJECT, sample) == (
        "  12.3 s  1,200 of 5,000 purchases  value 2,500  total 2,000 (1.5 s old, 500 behind)  "
        "2 shards of 1,000 to 1,500"
    )


def test_a_line_before_anything_happened():
    assert line(SUBJECT, Sample(0.4, 0, reading())) == (
        "   0.4 s  0 of 5,000 purchases  value 0  total - (no rollup yet)  no shards"
    )


def test_line_and_picture_tell_the_children_where_some_are_counted_beside():
    subject = Subject(5000, "purchases", "shops/cdnow/counters/cds", "customers")
    sample = Sample(2.0, 100, reading(*(shard(number, 7) for number in range(40))), children=1603)
    assert line(subject, sample).endswith("  1,603 customers")
    text = printed(picture(subject, sample)).splitlines()
    assert [row.split() for row in text if "customers" in row] == [["customers", "1,603", "as", "children"]]
    assert len(text) <= 24


def test_lines_come_every_two_seconds_however_many_samples_there_are(capsys):
    with Lines(SUBJECT) as view:
        for tenth in range(45):
            view.show(Sample(tenth / 10, tenth, reading()))
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()] == ["0.0", "2.0", "4.0"]


def test_a_picture_shows_every_shard_with_its_value_and_the_total_with_its_age():
    text = printed(picture(SUBJECT, Sample(2.0, 100, reading(shard(0, 41), shard(1, 7), total=40))))
    assert "100 of 5,000 purchases" in text
    assert "1.5 s old, 8 behind" in text
    assert [row.split()[2] for row in text.splitlines() if row.lstrip().startswith("shard ")] == ["41", "7"]


def test_a_picture_fits_a_terminal_even_with_many_shards_and_marks_a_damaged_one():
    shards = [shard(0, None, damage="it is 'x'"), *(shard(number, number) for number in range(1, 40))]
    text = printed(picture(SUBJECT, Sample(2.0, 100, reading(*shards))))
    assert len(text.splitlines()) <= 24
    assert "28 more" in text
    assert "damaged" in text


def test_json_has_all_of_a_reading():
    assert as_object(reading(shard(3, 7), total=6)) == {
        "path": "posts/1/counters/likes",
        "value": 7,
        "value_at": "2026-11-30T12:00:00+00:00",
        "total": 6,
        "as_of": "2026-11-30T11:59:58.500000+00:00",
        "staleness_seconds": 1.5,
        "settings": {
            "shards": 10,
            "initial": 5,
            "mirrors": [{"document": "posts/1", "field": "stats.likes"}],
        },
        "shards": [
            {
                "id": "3",
                "value": 7,
                "writes": 3,
                "updated_at": "2026-11-30T12:00:00+00:00",
                "receipts": 2,
                "damage": None,
            }
        ],
        "reads": 2,
    }


def test_json_of_orphans_and_damage():
    told = as_object(reading(shard(0, None, damage="it is 'x'"), settings=None))
    assert told["settings"] is None
    assert told["value"] is None
    assert told["shards"][0]["damage"] == "it is 'x'"


@pytest.mark.parametrize(
    ("found", "exact"),
    [
        (Line("a", 5, 5, 5), True),
        (Line("a", 5, 6, 5), False),
        (Line("a", 5, 5, 4), False),
        (Line("a", 5, 5, None), False),
        (Line("a", 5, 5, None, rolled_up=False), True),
        (Line("a", 5, 4, None, rolled_up=False), False),
    ],
)
def test_a_line_of_the_proof_is_exact_if_value_and_total_are_as_expected(found, exact):
    assert found.exact is exact


def test_the_proof_shows_every_line_that_is_not_exact_however_far_down():
    lines = [Line(f"day {number}", 1, 1, 1) for number in range(50)]
    lines[40] = Line("day 40", 1, 2, 1)
    text = printed(side_by_side([together("all days", lines)], lines))
    assert [row.split() for row in text.splitlines() if "DIFFERENT" in row] == [
        ["all", "days", "50", "51", "50", "DIFFERENT"],
        ["day", "40", "1", "2", "1", "DIFFERENT"],
    ]
    assert "43 more, each exact" in text


def test_the_plot_is_a_png_also_of_a_run_without_any_rollup(tmp_path):
    file = tmp_path / "new" / "demo.png"
    draw([Sample(0.5, 1, reading(shard(0, 1)))], file, title="a title", counted="CDs sold")
    assert file.read_bytes().startswith(b"\x89PNG")
