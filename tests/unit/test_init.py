"""``counters init``: what it adds to a project, and that all that was there stays as it was."""

import json

import pytest
import typer
from typer.testing import CliRunner

from counters.cli.exits import Commands, Failure
from counters.cli.firebase_project import ours, plan
from counters.cli.init import init

OURS = {"main.py", "predeploy.py", "requirements.txt", ".env", ".gcloudignore", ".gitignore"}
FOLDER = "functions-counters"
INDEX = json.loads(ours("firestore.indexes.json"))["indexes"][0]
THEIR_INDEX = {
    "collectionGroup": "posts",
    "queryScope": "COLLECTION",
    "fields": [{"fieldPath": "author", "order": "ASCENDING"}, {"fieldPath": "at", "order": "DESCENDING"}],
}
THEIR_OVERRIDE = {"collectionGroup": "posts", "fieldPath": "text", "indexes": []}


def project(**files):
    """A reader of a project that has these files; other values than text are written as JSON."""
    texts = {
        name: content if isinstance(content, str) else json.dumps(content, indent=4)
        for name, content in files.items()
    }
    return texts.get


def planned(config, database="(default)", **files):
    return plan(project(**{"firebase.json": config}, **files), folder=FOLDER, database=database)


def written(made, name="firebase.json"):
    return json.loads(made.files[name])


@pytest.mark.parametrize(
    "theirs",
    [
        {"source": "functions", "predeploy": ["npm run lint"]},
        [{"source": "functions", "codebase": "default"}, {"source": "payments", "codebase": "payments"}],
        [],
        None,
    ],
)
def test_our_functions_become_a_codebase_of_their_own_behind_those_that_are_there(theirs):
    config = {"hosting": {"public": "dist"}, **({} if theirs is None else {"functions": theirs})}
    made = planned(config)
    after = written(made)
    before = theirs if isinstance(theirs, list) else [theirs] if theirs else []
    assert after["hosting"] == {"public": "dist"}
    assert after["functions"][:-1] == before
    assert after["functions"][-1] == {
        "codebase": "counters",
        "source": FOLDER,
        "runtime": "python313",
        "predeploy": ['python3 "$RESOURCE_DIR/predeploy.py" --runtime python313'],
        "ignore": ["!@(main.py|requirements.txt|*.whl)"],
    }
    assert {name for name in made.files if "/" in name} == {f"{FOLDER}/{name}" for name in OURS}


def test_a_folder_without_firebase_json_gets_one():
    made = plan(project(), folder=FOLDER)
    assert [codebase["codebase"] for codebase in written(made)["functions"]] == ["counters"]


def test_indexes_are_added_to_theirs_and_none_is_dropped():
    made = planned(
        {"firestore": {"indexes": "db/indexes.json"}},
        **{"db/indexes.json": {"indexes": [THEIR_INDEX], "fieldOverrides": [THEIR_OVERRIDE]}},
    )
    after = written(made, "db/indexes.json")
    wanted = json.loads(ours("firestore.indexes.json"))
    assert after["indexes"] == [THEIR_INDEX, *wanted["indexes"]]
    assert after["fieldOverrides"] == [THEIR_OVERRIDE, *wanted["fieldOverrides"]]
    assert made.todo == []


def test_an_index_that_is_there_as_exported_from_the_database_is_not_added_again():
    exported = {
        **INDEX,
        "density": "SPARSE_ALL",
        "fields": [*INDEX["fields"], {"fieldPath": "__name__", "order": "ASCENDING"}],
    }
    made = planned(
        {"firestore": {"indexes": "i.json"}}, **{"i.json": {"indexes": [exported], "fieldOverrides": []}}
    )
    assert written(made, "i.json")["indexes"] == [exported]


def test_an_exemption_of_theirs_is_kept_and_the_difference_told():
    theirs = {
        "collectionGroup": "counters",
        "fieldPath": "as_of",
        "indexes": [{"order": "ASCENDING", "queryScope": "COLLECTION_GROUP"}],
    }
    made = planned({"firestore": {"indexes": "i.json"}}, **{"i.json": {"fieldOverrides": [theirs]}})
    after = written(made, "i.json")["fieldOverrides"]
    assert [item for item in after if item["fieldPath"] == "as_of"] == [theirs]
    (note,) = made.todo
    assert "counters.as_of" in note


@pytest.mark.parametrize("config", [{}, {"firestore": {}}, {"firestore": {"rules": "r"}}])
def test_without_a_file_of_indexes_none_is_made_since_a_deploy_would_replace_what_the_database_has(config):
    made = planned(config)
    assert [name for name in made.files if name.endswith("indexes.json")] == []
    (note,) = made.todo
    assert "firebase firestore:indexes > firestore.indexes.json" in note
    assert (
        "gcloud firestore indexes composite create --collection-group=counter_shards "
        "--query-scope=collection-group --field-config=field-path=bucket,order=ascending "
        "--field-config=field-path=updated_at,order=ascending"
    ) in note
    assert "--database" not in note
    assert "indexes fields update bucket --collection-group=counter_shards --disable-indexes" in note
    assert "fields ttls update expire_at --collection-group=counter_operations --enable-ttl" in note


def test_a_named_database_goes_into_settings_and_into_every_line_of_advice():
    made = planned({"firestore": {"indexes": "i.json"}}, database="archive", **{"i.json": {}})
    assert 'COUNTERS_DATABASE="archive"\n' in made.files[f"{FOLDER}/.env"]
    assert "(default)" not in made.files[f"{FOLDER}/.env"]
    assert "i.json" not in made.files
    (note,) = made.todo
    assert "firebase.json names no file of indexes of the database archive" in note
    assert "firebase firestore:indexes --database archive > firestore.archive.indexes.json" in note
    assert (
        '"firestore": [ { "database": "(default)", … }, '
        '{ "database": "archive", "indexes": "firestore.archive.indexes.json", … } ]'
    ) in note
    lines = [line for line in note.splitlines() if "gcloud" in line]
    assert len(lines) > 5
    assert all(line.endswith(" --database=archive") for line in lines)


def test_advice_for_the_default_database_keeps_an_entry_that_is_another_s():
    (note,) = planned({"firestore": {"database": "archive", "indexes": "a.json"}}).todo
    assert "firebase firestore:indexes --database '(default)' > firestore.indexes.json" in note
    assert '[ { "database": "archive", … }, { "database": "(default)", "indexes": ' in note


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        (None, "(default)"),
        ("COUNTERS_EVERY=5\n", "(default)"),
        ("COUNTERS_DATABASE=orders # ours\n", "orders"),
        ("COUNTERS_DATABASE='orders'\n", "orders"),
    ],
)
def test_a_folder_for_another_database_is_kept_and_said_to_be(settings, first):
    files = {"firebase.json": "{}"}
    files |= planned({}).files
    files |= {f"{FOLDER}/.env": settings} if settings else {}
    again = plan(files.get, folder=FOLDER, database="archive")
    assert again.files == {}
    (note,) = [note for note in again.todo if ".env" in note]
    assert f"{FOLDER}/.env is for the database {first}, and kept as it is" in note
    same = plan(files.get, folder=FOLDER, database=first)
    assert not any("is for the database" in note for note in same.todo)


def test_what_names_no_database_is_refused():
    with pytest.raises(Failure, match="no database"):
        planned({}, database='a"b')


def test_of_several_databases_the_named_one_gets_the_indexes():
    config = {
        "firestore": [
            {"database": "(default)", "indexes": "a.json"},
            {"database": "archive", "indexes": "b.json"},
        ]
    }
    made = plan(
        project(**{"firebase.json": config, "a.json": {}, "b.json": {}}), folder=FOLDER, database="archive"
    )
    assert "a.json" not in made.files
    assert written(made, "b.json")["indexes"] == [INDEX]


def test_rules_are_theirs_and_get_a_block_to_paste():
    theirs = "service cloud.firestore { match /databases/{d}/documents {} }"
    made = planned({"firestore": {"rules": "firestore.rules"}}, **{"firestore.rules": theirs})
    assert "firestore.rules" not in made.files
    assert made.rules in ours("firestore.rules")
    assert "match /{parent=**}/counters/{counter}" in made.rules
    assert "match /databases" not in made.rules

    pasted = theirs.replace("{}", "{" + made.rules + "}")
    again = planned({"firestore": {"rules": "firestore.rules"}}, **{"firestore.rules": pasted})
    assert again.rules is None


def test_the_second_time_there_is_nothing_to_write():
    files = {"firebase.json": json.dumps({"firestore": {"indexes": "i.json"}}), "i.json": "{}"}
    made = plan(files.get, folder=FOLDER)
    again = plan({**files, **made.files}.get, folder=FOLDER)
    assert (again.files, again.todo) == ({}, [])


def test_settings_that_were_edited_are_kept():
    made = planned({})
    edited = {**made.files, f"{FOLDER}/.env": "COUNTERS_EVERY=5\n"}
    again = plan(edited.get, folder=FOLDER)
    assert again.files == {}
    assert any(f"{FOLDER}/.env is kept" in note for note in again.todo)


def test_the_package_comes_from_the_index_or_from_a_wheel_beside_the_requirements():
    lines = planned({}).files[f"{FOLDER}/requirements.txt"].splitlines()
    assert lines[0].startswith("firestore-counters[functions]==")
    assert any(line.startswith("functions-framework") for line in lines)
    made = plan(project(), folder=FOLDER, wheel="firestore_counters-9-py3-none-any.whl")
    lines = made.files[f"{FOLDER}/requirements.txt"].splitlines()
    assert lines[0] == "./firestore_counters-9-py3-none-any.whl[functions]"


def test_the_indentation_of_a_file_is_kept():
    made = plan({"firebase.json": '{\n\t"hosting": {\n\t\t"public": "x"\n\t}\n}\n'}.get, folder=FOLDER)
    assert made.files["firebase.json"].startswith('{\n\t"hosting": {\n\t\t"public": "x"\n\t},\n')


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('{ // mine\n "functions": [] }', "no plain JSON"),
        ("[]", "holds no JSON object"),
        ({"functions": "functions"}, "neither an object nor a list"),
        ({"firestore": ["x"]}, "neither an object nor a list"),
        ({"functions": {"codebase": "counters", "source": "elsewhere"}}, "--source elsewhere"),
        ({"functions": {"source": FOLDER}}, "choose a folder of their own"),
    ],
)
def test_what_is_not_understood_is_refused_before_anything_is_written(config, why):
    with pytest.raises(Failure, match=why):
        planned(config)


@pytest.mark.parametrize("folder", ["/tmp/f", "../f", "."])
def test_our_folder_is_within_the_project(folder):
    with pytest.raises(Failure, match="--source"):
        plan(project(), folder=folder)


# The command.


@pytest.fixture
def run(tmp_path):
    app = typer.Typer(cls=Commands)
    app.command()(init)
    app.command("other")(lambda: None)  # with one command alone, Typer takes its name away

    def run(*arguments, answer=None):
        return CliRunner().invoke(app, ["init", str(tmp_path), *arguments], input=answer)

    return run


def files_in(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_the_changes_are_shown_and_without_a_yes_nothing_is_written(run, tmp_path):
    (tmp_path / "firebase.json").write_text('{\n  "hosting": {}\n}\n')
    result = run(answer="n\n")
    assert result.exit_code == 1
    assert '+      "codebase": "counters",' in result.output
    assert f"+++ b/{FOLDER}/main.py" in result.output
    assert files_in(tmp_path) == {"firebase.json"}
    assert "is this the folder?" not in result.output
    assert run(answer="").exit_code == 1  # nobody there to ask
    assert files_in(tmp_path) == {"firebase.json"}


def test_with_a_yes_it_is_written_and_told_what_is_next(run, tmp_path):
    result = run(answer="y\n")
    assert result.exit_code == 0
    assert files_in(tmp_path) == {"firebase.json", *(f"{FOLDER}/{name}" for name in OURS)}
    for step in ("predeploy.py", "firebase deploy --only functions:counters", "counters doctor", "Paste"):
        assert step in result.output
    assert (tmp_path / FOLDER / "main.py").read_text() == ours("functions/main.py")
    assert "nothing to write, but see below" in run().output


def test_without_firebase_json_it_is_asked_whether_this_is_the_folder(run):
    said = run(answer="n\n").output
    assert said.index("no firebase.json here: is this the folder?") < said.index("Write this, 7 files")


def test_notes_come_last_and_no_indexes_are_deployed_that_no_file_names(run, tmp_path):
    said = run("--yes").output
    note = said.index("! firebase.json names no file of indexes")
    assert (
        said.index("Paste into your rules")
        < said.index("firebase deploy --only functions:counters\n")
        < note
    )
    (tmp_path / "firebase.json").write_text('{"firestore": {"indexes": "i.json"}}')
    assert "firebase deploy --only functions:counters,firestore:indexes\n" in run("--yes").output


def test_what_is_next_is_said_for_the_database(run):
    said = run("--yes", "--database", "archive").output
    assert "counters doctor PROJECT --database archive" in said
    assert "Paste into the rules of the database archive" in said
    assert "is for the database archive" in run("--yes").output


def test_a_wheel_is_copied_beside_the_requirements(run, tmp_path):
    wheel = tmp_path / "dist" / "firestore_counters-9-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"wheel")
    assert run("--yes", "--wheel", str(wheel), "--source", "rollup").exit_code == 0
    assert (tmp_path / "rollup" / wheel.name).read_bytes() == b"wheel"


def test_a_refusal_is_one_line(run, tmp_path):
    (tmp_path / "firebase.json").write_text("{ // mine\n}")
    result = run()
    assert result.exit_code == 1
    assert "no plain JSON" in result.output
    assert "Traceback" not in result.output
