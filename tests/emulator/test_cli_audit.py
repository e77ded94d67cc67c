"""``counters audit`` from the shell: what it prints, what it leaves alone, how it ends."""

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from counters import Counters, layout
from counters.cli.app import app as commands

LIKES = "posts/*/likes"


@pytest.fixture
def app(db):
    return Counters(db, shards=2)


@pytest.fixture
def run(counters_emulator, counters_project, monkeypatch):
    """Run the command on the test's database. Its stdout, stderr and exit code."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", counters_emulator.host)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", counters_project)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LOGNAME", "operator")

    def audit(*arguments, answer=None):
        return CliRunner().invoke(commands, ["audit", LIKES, *arguments], input=answer)

    return audit


@pytest.fixture
def posts(app, db):
    """Three posts: of a, one child was deleted behind our back, to c two were added; b is true."""
    for post in "abc":
        for user in range(3):
            app.children(f"posts/{post}", "likes").add(f"u{user}")
    db.document("posts/a/likes/u1").delete()
    for user in "xy":
        db.document(f"posts/c/likes/{user}").set({})


def lines(text):
    return [line.split() for line in text.splitlines() if line.strip()]


def test_all_is_well_is_a_table_what_it_cost_and_exit_code_0(run, app):
    for post in "ab":
        app.children(f"posts/{post}", "likes").add("u")
    result = run()
    assert result.exit_code == 0
    heading, first, second, summary = lines(result.stdout)
    assert heading == ["parent", "stored", "actual", "difference"]
    assert (first, second) == (["posts/a", "1", "1", "0"], ["posts/b", "1", "1", "0"])
    assert " ".join(summary).startswith("2 counts of posts/*/likes: 0 not true; 8 reads,")


@pytest.mark.usefixtures("posts")
def test_drift_comes_first_and_is_exit_code_1(run):
    result = run()
    assert result.exit_code == 1
    _, *rows, summary, hint = lines(result.stdout)
    assert rows == [
        ["posts/c", "3", "5", "+2"],
        ["posts/a", "3", "2", "-1"],
        ["posts/b", "3", "3", "0"],
    ]
    assert "2 not true" in " ".join(summary)
    assert {"--explain", "--repair"} <= set(hint)


@pytest.mark.usefixtures("posts")
def test_json_holds_the_same_and_nothing_else_is_on_stdout(run):
    result = run("--json", "--explain")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["pattern"], found["drifted"], found["failed"], found["more"]) == (LIKES, 2, 0, False)
    assert [(count["parent"], count["difference"]) for count in found["counts"]] == [
        ("posts/c", 2),
        ("posts/a", -1),
        ("posts/b", 0),
    ]
    first = found["counts"][0]
    assert (first["stored"], first["actual"], first["exists"], first["total"]) == (3, 5, True, None)
    assert first["evidence"]["uncounted"] == ["x", "y"]
    assert "evidence" not in found["counts"][2]
    assert found["reads"] > 3 * 4


@pytest.mark.usefixtures("posts")
def test_csv_holds_the_same_and_nothing_else_is_on_stdout(run):
    result = run("--csv")
    assert result.exit_code == 1
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["parent"], row["stored"], row["actual"], row["difference"]) for row in rows] == [
        ("posts/c", "3", "5", "2"),
        ("posts/a", "3", "2", "-1"),
        ("posts/b", "3", "3", "0"),
    ]


def test_json_and_csv_at_once_is_a_misuse(run):
    assert run("--json", "--csv").exit_code == 2


def test_a_count_that_cannot_be_audited_is_a_row_and_a_complaint_and_exit_code_1(run, app, db):
    for post in "ab":
        app.children(f"posts/{post}", "likes").add("u")
    (shard, *_) = db.collection(f"posts/a/counters/likes/{layout.SHARDS}").stream()
    shard.reference.update({layout.VALUE: "one"})
    result = run()
    assert result.exit_code == 1
    assert ["posts/a", "-", "-", "unknown", "see", "below"] in lines(result.stdout)
    assert ["posts/b", "1", "1", "0"] in lines(result.stdout)
    assert shard.reference.path in result.stderr
    rows = list(csv.DictReader(io.StringIO(run("--csv").stdout)))
    assert (rows[0]["parent"], rows[0]["difference"]) == ("posts/a", "")
    assert shard.reference.path in rows[0]["error"]


@pytest.mark.usefixtures("posts")
def test_an_explanation_is_told_below_the_table(run):
    told = run("--explain").stdout
    assert "nobody counted 2 of the children: x, y" in told
    assert "the difference came between" in told
    assert "posts/a/counters/likes: -1" in told


@pytest.mark.usefixtures("posts")
def test_parents_of_a_file_or_of_stdin_and_no_others_are_audited(run, tmp_path):
    file = tmp_path / "posts.txt"
    file.write_text("posts/b\n\n  a \n", encoding="utf-8")
    for result in (run("--csv", "--parents", str(file)), run("--csv", "--parents", "-", answer="b\na\n")):
        parents = [row["parent"] for row in csv.DictReader(io.StringIO(result.stdout))]
        assert parents == ["posts/a", "posts/b"]
    file.write_text("pages/b\n", encoding="utf-8")
    result = run("--parents", str(file))
    assert result.exit_code == 2
    assert "no parent of posts/*/likes" in result.stderr


@pytest.mark.usefixtures("posts")
def test_limit_prefix_and_existing_bound_what_is_audited(run, db):
    result = run("--limit", "1")
    assert "1 count of" in result.stdout
    assert "there are more" in result.stdout
    assert "1 count of posts/*/likes: 0 not true" in run("--prefix", "b").stdout
    db.document("posts/b").set({})
    result = run("--existing")
    assert result.exit_code == 0
    assert "1 count of posts/*/likes: 0 not true" in result.stdout


@pytest.mark.usefixtures("posts")
def test_a_repair_is_shown_asked_for_and_made_one_by_one(run, app):
    refused = run("--repair", answer="n\n")
    assert refused.exit_code == 1
    assert "+2 on posts/c/counters/likes" in refused.stderr
    assert "-1 on posts/a/counters/likes" in refused.stderr
    assert len(app.audit(LIKES).drifted) == 2, "asked, and told no"
    agreed = run("--repair", "--by", "op@example.org", answer="y\n")
    assert agreed.exit_code == 0
    assert "repaired 2 of 2 counts" in agreed.stderr
    assert app.audit(LIKES).drifted == ()
    assert run().exit_code == 0


def test_a_repair_without_a_question_records_the_login_name_and_makes_missing_counters(run, app, db):
    db.document("posts/old/likes/u").set({})
    app.children("posts/a", "likes").add("u")
    db.document("posts/a/likes/u").delete()
    result = run("--repair", "--yes", "--json")
    assert result.exit_code == 0
    assert [count.get("repaired") for count in json.loads(result.stdout)["counts"]] == [-1, 1]
    records = [
        next(db.collection(f"posts/{post}/counters/likes/{layout.ADJUSTMENTS}").stream()).to_dict()
        for post in ("a", "old")
    ]
    assert {record[layout.ADJUSTMENT_BY] for record in records} == {"operator"}
    assert [record[layout.ADJUSTMENT_REASON] for record in records] == ["repair", "backfill"]


def test_orphans_of_a_count_that_is_gone_are_deleted_and_no_counter_is_made(run, db):
    orphan = db.document("posts/gone/counters/likes/counter_shards/0")
    orphan.set({layout.VALUE: 3})
    result = run("--repair", "--yes")
    assert result.exit_code == 0
    assert "-3 on posts/gone/counters/likes: orphans of a deleted counter" in result.stderr
    assert not orphan.get().exists
    assert not db.document("posts/gone/counters/likes").get().exists
    assert run().exit_code == 0


@pytest.mark.usefixtures("posts")
def test_what_is_true_is_not_touched_by_a_repair(run, db):
    before = db.document("posts/b/counters/likes").get().update_time
    assert run("--repair", "--yes").exit_code == 0
    assert db.document("posts/b/counters/likes").get().update_time == before
    assert run("--repair", "--yes").exit_code == 0


def test_many_true_counts_are_a_line_and_all_are_in_csv(run, app):
    for number in range(25):
        app.children(f"posts/{number}", "likes").create()
    result = run("--concurrency", "4")
    assert ["5", "more,", "each", "true"] in lines(result.stdout)
    assert len(lines(run("--csv").stdout)) == 26
