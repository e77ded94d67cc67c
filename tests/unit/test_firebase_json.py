"""The files that a deploy reads agree with each other and with the code."""

import json
import re
from pathlib import Path

import pytest

from counters import __name__ as package
from counters import layout, wire

ROOT = Path(__file__).parents[2]
CONFIG = json.loads((ROOT / "firebase.json").read_text())
INDEXES = json.loads((ROOT / "firestore.indexes.json").read_text())
RULES = (ROOT / "firestore.rules").read_text()
REQUIREMENTS = (ROOT / "functions" / "requirements.txt").read_text()
PYPROJECT = (ROOT / "pyproject.toml").read_text()
(FUNCTIONS,) = CONFIG["functions"]


def test_all_files_that_it_names_are_there():
    assert (ROOT / CONFIG["firestore"]["rules"]).is_file()
    assert (ROOT / CONFIG["firestore"]["indexes"]).is_file()
    assert (ROOT / FUNCTIONS["source"] / "main.py").is_file()
    assert package == "counters"


def test_the_functions_are_a_codebase_of_their_own_so_that_others_are_left_alone():
    assert FUNCTIONS["codebase"] == "counters"


def test_predeploy_makes_the_virtual_environment_of_the_runtime_and_builds_the_wheel():
    (command,) = FUNCTIONS["predeploy"]
    assert f"--runtime {FUNCTIONS['runtime']} " in command
    assert command.endswith('--wheel-of "$PROJECT_DIR"')


def test_firebase_and_gcloud_upload_the_same_few_files():
    (allowed,) = FUNCTIONS["ignore"]
    names = re.fullmatch(r"!@\((.*)\)", allowed)[1].split("|")
    lines = (ROOT / "functions" / ".gcloudignore").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["*", *(f"!{name}" for name in names)]
    assert names == ["main.py", "requirements.txt", "*.whl"]


def test_requirements_name_the_wheel_of_this_version_beside_them():
    version = re.search(r'^version = "(.*)"', PYPROJECT, re.MULTILINE)[1]
    assert f"./firestore_counters-{version}-py3-none-any.whl[functions]\n" in REQUIREMENTS


def index_that(query):
    """The composite index that a query of one collection group needs, as firestore.indexes.json has it."""
    (source,) = query.from_
    filters = query.where.composite_filter.filters
    operators = ("EQUAL", "IN")
    equal = [
        part.field_filter.field.field_path for part in filters if part.field_filter.op.name in operators
    ]
    ordered = [part.field.field_path for part in query.order_by if part.field.field_path != "__name__"]
    assert len(equal) + len(ordered) == len({*equal, *ordered})
    return {
        "collectionGroup": source.collection_id,
        "queryScope": "COLLECTION_GROUP" if source.all_descendants else "COLLECTION",
        "fields": [{"fieldPath": name, "order": "ASCENDING"} for name in (*equal, *ordered)],
    }


def test_the_rollups_query_has_its_index():
    request = wire.changed_since(
        "projects/p/databases/d",
        layout.SHARDS,
        (layout.UPDATED_AT,),
        1.0,
        bucket=(layout.BUCKET, range(layout.BUCKETS)),
        changed=(layout.UPDATED_AT, 0),
        limit=1,
        read_time=1,
    ).request
    assert INDEXES["indexes"] == [index_that(request.structured_query)]


def overrides(**settings):
    return {
        (item["collectionGroup"], item["fieldPath"])
        for item in INDEXES["fieldOverrides"]
        if {**item, **settings} == item
    }


@pytest.mark.parametrize(
    ("collection", "field"),
    [
        (layout.SHARDS, layout.UPDATED_AT),
        (layout.COUNTERS, layout.AS_OF),
        (layout.OPERATIONS, layout.EXPIRE_AT),
    ],
)
def test_no_value_that_only_rises_has_an_index_of_its_own(collection, field):
    assert (collection, field) in overrides(indexes=[])


def test_receipts_are_in_no_index():
    assert {(layout.SHARDS, layout.RECEIPTS), (layout.COUNTERS, layout.RECEIPTS)} <= overrides(indexes=[])


def test_what_is_summed_keeps_its_index():
    exempt = {field for collection, field in overrides() if collection == layout.SHARDS}
    assert not exempt & {"*", layout.VALUE}


def test_used_keys_are_deleted_by_a_ttl_policy():
    assert overrides(ttl=True) == {(layout.OPERATIONS, layout.EXPIRE_AT)}


def collections():
    """All collection ids of ours: what the code's layout spells in capitals without a field's name."""
    named = [layout.COUNTERS, layout.SHARDS, layout.ROLLUPS, layout.OPERATIONS, layout.ADJUSTMENTS]
    prefixed = {value for value in vars(layout).values() if str(value).startswith("counter_")}
    assert prefixed - {layout.CHILD_SHARD} <= set(named), "a collection is new: it needs its rules"
    return named


@pytest.mark.parametrize("collection", collections())
def test_rules_refuse_every_client_to_write_what_is_ours(collection):
    block = re.search(rf"match \S*/{collection}/{{\w+}} {{(.*?)}}", RULES, re.DOTALL)[1]
    refused = re.findall(r"allow ([\w, ]+): if false;", block)
    assert any("write" in what for what in refused)
    assert re.findall(r"allow [^:]*: if (?!false)", block) == (
        ["allow read: if "] if collection == layout.COUNTERS else []
    )


def test_what_a_build_leaves_below_functions_is_not_committed():
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"functions/*.whl", "functions/venv/", "*.local"} <= set(ignored)
