"""Replay: reading a user's file, filling templates, and refusing what cannot be counted."""

import pytest
from typer.testing import CliRunner

from counters.cli.app import app
from counters.cli.database import Place
from counters.cli.leftovers import tell_what_is_left
from counters.cli.records import Format, Record, Source, Unreadable
from counters.cli.rows import BadRows, rows_of
from counters.cli.tally import Broken, Tally
from counters.cli.template import BadField, BadTemplate, PathTemplate
from counters.cli.work import Increment, Row


@pytest.fixture
def source(tmp_path):
    def source(content, kind=Format.CSV):
        file = tmp_path / f"rows.{kind.value}"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Source(file, kind)

    return source


def read(source):
    return [(record.line, dict(record.fields), record.error) for record in source.records()]


# Files.


def test_csv_rows_come_with_their_line_past_a_byte_order_mark_quotes_and_empty_lines(source):
    text = '\ufeffshop,note\r\nnorth,"two\r\nlines"\r\n\r\nsüd,"a, b"\r\n'
    assert read(source(text)) == [
        (3, {"shop": "north", "note": "two\r\nlines"}, None),
        (5, {"shop": "süd", "note": "a, b"}, None),
    ]


def test_tsv_is_separated_by_tabs(source):
    assert read(source("a\tb\n1,5\t2\n", Format.TSV)) == [(2, {"a": "1,5", "b": "2"}, None)]


def test_a_csv_row_with_too_few_or_too_many_fields_comes_with_its_error(source):
    assert read(source("a,b\n1\n1,2\n1,2,3\n")) == [
        (2, {}, "it has 1 fields, not 2"),
        (3, {"a": "1", "b": "2"}, None),
        (4, {}, "it has 3 fields, not 2"),
    ]


def test_an_open_quote_ends_the_file_with_an_error(source):
    *_, (line, _, error) = read(source('a,b\n1,2\n1,"2\n3,4\n'))
    assert line == 4
    assert error


def test_json_lines_rows_are_objects_and_everything_else_comes_with_its_error(source):
    rows = read(source('{"a": 1, "b": "x"}\n\n[1]\nnonsense\n', Format.JSONL))
    assert [(line, fields) for line, fields, _ in rows] == [(1, {"a": 1, "b": "x"}), (3, {}), (4, {})]
    assert rows[1][2] == "it is no JSON object, but list"
    assert rows[2][2].startswith("it is no JSON: ")


@pytest.mark.parametrize(
    ("content", "why"),
    [("", "empty"), ("a,b,a\n", "names a field twice"), (b"a\n\xff\n", "not UTF-8")],
)
def test_a_file_that_is_no_csv_at_all_is_refused(source, content, why):
    with pytest.raises(Unreadable, match=why):
        read(source(content))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.csv", Format.CSV), ("a.TSV", Format.TSV), ("a.b.jsonl", Format.JSONL), ("a.ndjson", Format.JSONL)],
)
def test_a_file_s_name_tells_its_format(tmp_path, name, kind):
    assert Format.of(tmp_path / name) is kind


def test_a_file_s_name_may_tell_nothing(tmp_path):
    assert Format.of(tmp_path / "rows.txt") is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Format.CSV, 'a,b\n1,"x\ny"\n\n2,y\n3,z\n'),
        (Format.JSONL, '{"a": 1}\n\n{"a": 2}\n{"a": 3}'),
    ],
)
def test_a_copy_of_some_rows_reads_as_those_rows(source, tmp_path, kind, text):
    original = source(text, kind)
    first, _, last = read(original)
    target = tmp_path / "copy"
    original.copy({first[0], last[0]}, target)
    assert [fields for _, fields, _ in read(Source(target, kind))] == [first[1], last[1]]


def test_a_copy_overwrites_nothing(source, tmp_path):
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(FileExistsError):
        source("a\n1\n").copy({2}, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


# Templates.


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("shops/{shop}/counters/cds", "shops/north/counters/cds"),
        ("{shop}/{day}", "north/7"),
        ("days/{day}-{shop}", "days/7-north"),
        ("a/{{{shop}}}", "a/{north}"),
        ("fixed/path", "fixed/path"),
        ("a/{a field.with[signs]}", "a/x"),
    ],
)
def test_a_template_is_filled_with_fields(template, path):
    fields = {"shop": "north", "day": 7, "a field.with[signs]": "x"}
    assert PathTemplate(template).fill(fields) == path


@pytest.mark.parametrize(
    "template", ["shops", "a/b/c", "", "/a", "a//b/c", "a/{}", "a/{x", "a/x}", "a/{x!r}", "a/{x:>5}"]
)
def test_a_template_that_makes_no_document_s_path_is_refused(template):
    with pytest.raises(BadTemplate):
        PathTemplate(template)


@pytest.mark.parametrize("value", ["", "a/b", ".", "..", "__x__", "é" * 751, "\ud800", True, None, 1.5, []])
def test_a_value_that_can_be_no_id_is_refused(value):
    with pytest.raises(BadField):
        PathTemplate("a/{x}").fill({"x": value})


def test_a_missing_field_is_refused_with_those_that_there_are():
    with pytest.raises(BadField, match="no field 'x', only 'y', 'z'"):
        PathTemplate("a/{x}").fill({"y": 1, "z": 2})


# Rows.


def rows(*fields, templates=("shops/{shop}",), amount=None):
    records = [Record(line, row) for line, row in enumerate(fields, start=2)]
    return rows_of(records, [PathTemplate(text) for text in templates], amount)


def test_a_row_counts_one_on_each_template():
    assert rows({"shop": "n", "day": "1"}, templates=["shops/{shop}", "days/{day}"]) == [
        Row(2, (Increment("shops/n", 1), Increment("days/1", 1)))
    ]


@pytest.mark.parametrize(
    ("value", "amount"),
    [("3", 3), (" -3 ", -3), ("+4", 4), (5, 5), ("0", 0), (str(2**63 - 1), 2**63 - 1)],
)
def test_an_amount_is_any_whole_number(value, amount):
    (row,) = rows({"shop": "n", "cds": value}, amount="cds")
    assert row.increments == (Increment("shops/n", amount),)


@pytest.mark.parametrize(
    "value", ["", "x", "1.0", "1e3", "1_000", "٣", 1.0, True, None, str(2**63), "9" * 5000, [1]]
)
def test_an_amount_that_is_no_whole_number_or_does_not_fit_is_refused(value):
    with pytest.raises(BadRows) as caught:
        rows({"shop": "n", "cds": value}, amount="cds")
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith("line 2: 'cds' is ")


def test_all_bad_rows_are_named_not_only_the_first():
    with pytest.raises(BadRows) as caught:
        rows({"shop": "a/b"}, {"shop": "n"}, {"day": "1"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["line 2", "line 4"]


# The command, up to the point where it would write.


@pytest.fixture
def replay(monkeypatch, tmp_path):
    """Run the command; the second result says whether it went on to count."""
    counted = []
    monkeypatch.setattr("counters.cli.replay._run", lambda *args, **_: counted.append(args))

    def replay(text, *args, host=None, name="sales.csv", answer=None):
        place = Place(host, "my-project", None)
        monkeypatch.setattr("counters.cli.replay.connect", lambda *_: (None, place))
        (tmp_path / name).write_text(text)
        ended = CliRunner().invoke(app, ["replay", str(tmp_path / name), *args], input=answer)
        return ended, bool(counted)

    return replay


TEMPLATE = ("--counter", "shops/{shop}/counters/cds")
GOOD = "shop,cds\nnorth,1\nsouth,2\n"


def test_bad_rows_are_named_with_their_lines_before_anything_is_written(replay):
    ended, counted = replay("shop,cds\nn,1\nn,x\na/b,1\n", *TEMPLATE, "--amount", "cds", host="a:1")
    assert (ended.exit_code, counted) == (1, False)
    first, second, last = ended.stderr.splitlines()
    assert "sales.csv, line 3: 'cds' is 'x', no whole number" in first
    assert "sales.csv, line 4: 'shop' is 'a/b'" in second
    assert last.endswith("2 rows cannot be counted; nothing was written")


def test_of_very_many_bad_rows_ten_are_named(replay):
    ended, counted = replay("shop\n" + "a/b\n" * 30, *TEMPLATE)
    assert not counted
    assert len(ended.stderr.splitlines()) == 11
    assert "30 rows cannot be counted" in ended.stderr


@pytest.mark.parametrize(
    ("answer", "code", "counts"), [("y\n", 0, True), ("n\n", 1, False), ("", 1, False)]
)
def test_a_real_database_is_written_only_after_yes(replay, answer, code, counts):
    ended, counted = replay(GOOD, *TEMPLATE, answer=answer)
    assert (ended.exit_code, counted) == (code, counts)
    assert "2 rows, 2 increments on 2 counters of Cloud Firestore, project my-project" in ended.stdout


@pytest.mark.parametrize(("args", "host"), [(["--yes"], None), ([], "127.0.0.1:8080")])
def test_nothing_is_asked_with_yes_or_on_an_emulator(replay, args, host):
    ended, counted = replay(GOOD, *TEMPLATE, *args, host=host)
    assert (ended.exit_code, counted) == (0, True)
    assert "Go on?" not in ended.output


def test_a_file_whose_name_tells_nothing_needs_a_format(replay):
    ended, counted = replay(GOOD, *TEMPLATE, host="a:1", name="sales.txt")
    assert (ended.exit_code, counted) == (2, False)
    ended, counted = replay(GOOD, *TEMPLATE, "--format", "csv", host="a:1", name="sales.txt")
    assert (ended.exit_code, counted) == (0, True)


def test_a_bad_template_is_misuse(replay):
    ended, counted = replay(GOOD, "--counter", "shops/{shop}/counters", host="a:1")
    assert (ended.exit_code, counted) == (2, False)


def test_a_file_that_adds_up_to_no_increment_is_refused(replay):
    ended, counted = replay("shop,cds\nnorth,0\n", *TEMPLATE, "--amount", "cds", host="a:1")
    assert (ended.exit_code, counted) == (1, False)
    assert "nothing to count" in ended.stderr


# Cut short.


def lines(*numbers):
    return [Row(number, (Increment("a/b", 1),)) for number in numbers]


def test_rows_that_were_not_counted_are_in_a_file_that_can_be_replayed(source, capsys):
    original = source("shop\nn\ns\ne\n")
    tell_what_is_left(Tally(counted=1, rest=lines(2, 4)), original)
    rest = original.file.with_name("rows.rest.csv")
    assert rest.read_text() == "shop\nn\ne\n"
    told = capsys.readouterr().err
    assert "cut short: counted 1 row\n" in told
    assert f"not counted: 2 rows; replay {rest}" in told


def test_what_an_earlier_run_left_is_not_overwritten(source, capsys):
    original = source("shop\nn\ns\n")
    original.file.with_name("rows.rest.csv").write_text("mine")
    tell_what_is_left(Tally(rest=lines(3)), original)
    assert original.file.with_name("rows.rest.csv").read_text() == "mine"
    assert original.file.with_name("rows.rest-2.csv").read_text() == "shop\ns\n"
    assert "rows.rest-2.csv" in capsys.readouterr().err


def test_where_no_file_can_be_written_the_lines_are_told(source, capsys):
    original = source("shop\nn\ns\n")
    gone = Source(original.file.with_name("gone") / "rows.csv", Format.CSV)
    tell_what_is_left(Tally(rest=lines(2, 3)), gone)
    assert "not counted: 2 rows; replay the lines 2, 3" in capsys.readouterr().err


def test_rows_in_part_and_rows_in_doubt_are_told_apart_from_the_rest(source, capsys):
    original = source("shop\nn\ns\n")
    broken = Broken(Row(2, (Increment("a/b", 1), Increment("c/d", 1))), applied=1, unknown=False)
    tell_what_is_left(Tally(broken=[broken], unknown=lines(3), errors=["gone", "gone"]), original)
    told = capsys.readouterr().err
    assert told.count("counters: gone\n") == 1
    assert "line 2: +1 on a/b: counted; +1 on c/d: not counted" in told
    assert "counted or not, nobody knows: 1 row; see" in told
    assert original.file.with_name("rows.unknown.csv").read_text() == "shop\ns\n"
    assert not original.file.with_name("rows.rest.csv").exists()
