"""Layout 1 is what databases hold already: names and hashes that may never change."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import counters
from counters import layout

LETTERS = st.characters(exclude_characters="/", exclude_categories=["Cs"])
SEGMENTS = st.text(LETTERS, min_size=1, max_size=20)
PATHS = st.lists(SEGMENTS, min_size=2, max_size=8).filter(lambda parts: len(parts) % 2 == 0).map("/".join)

# What is spelled in databases, by what layout.py calls it.
NAMES = {
    # collections
    "COUNTERS": "counters",
    "SHARDS": "counter_shards",
    "ROLLUPS": "counter_rollups",
    "OPERATIONS": "counter_operations",
    "ADJUSTMENTS": "counter_adjustments",
    # a counter
    "LAYOUT_FIELD": "layout",
    "SHARD_COUNT": "shards",
    "INITIAL": "initial",
    "MIRRORS": "mirrors",
    "MIRROR_DOCUMENT": "document",
    "MIRROR_FIELD": "field",
    "TOTAL": "total",
    "AS_OF": "as_of",
    "CHILDREN": "children",
    "ADJUSTED_AT": "adjusted_at",
    # a shard
    "VALUE": "value",
    "WRITES": "writes",
    "UPDATED_AT": "updated_at",
    "BUCKET": "bucket",
    "RECEIPTS": "receipts",
    "PRUNED": "pruned",
    # an operation
    "OPERATION_COUNTER": "counter",
    "OPERATION_AMOUNT": "amount",
    "EXPIRE_AT": "expire_at",
    # a child
    "CHILD_SHARD": "counter_shard",
    # an adjustment
    "ADJUSTMENT_REASON": "reason",
    "ADJUSTMENT_BY": "by",
    "ADJUSTMENT_DIFFERENCE": "difference",
    "ADJUSTMENT_STORED": "stored",
    "ADJUSTMENT_ACTUAL": "actual",
    "ADJUSTMENT_AS_OF": "as_of",
    "ADJUSTMENT_AT": "at",
    # the rollup
    "CURSOR": "cursor",
    "SCANNED_AT": "scanned_at",
    "RESCANNED_AT": "rescanned_at",
    "PENDING_COUNTER": "counter",
    "PENDING_ERROR": "error",
    "PENDING_SINCE": "since",
}


def test_the_names_of_layout_1_never_change_and_a_new_one_is_added_here():
    assert layout.LAYOUT == 1
    spelled = {name: value for name, value in vars(layout).items() if isinstance(value, str)}
    assert {name: value for name, value in spelled.items() if name.isupper()} == NAMES


def test_the_buckets_of_layout_1_never_change():
    found = [layout.bucket("posts/a91f/counters/likes", shard) for shard in range(6)]
    assert found == [7, 8, 9, 5, 6, 7]
    assert layout.bucket("müsli/ä/counters/♥", 3) == 24
    assert layout.BUCKETS == 30


def test_the_paths_of_layout_1_never_change():
    counter = layout.counter_path("posts/a91f", "likes")
    assert layout.shard_path(counter, 7) == "posts/a91f/counters/likes/counter_shards/7"
    assert layout.cursor_path() == "counter_rollups/cursor"
    assert layout.pending_path(counter) == "counter_rollups/pending-c80c1f351cff170447e9a53f6d3b084b"


@given(PATHS, st.integers(0, layout.MAX_SHARDS))
def test_a_shard_s_path_tells_its_counter(counter, shard):
    assert layout.counter_of(layout.shard_path(counter, shard)) == counter


@given(PATHS, st.integers(0, layout.MAX_SHARDS))
def test_all_buckets_of_a_counter_are_its_group_s_and_five_shards_in_a_row_take_all_five(counter, shard):
    group = layout.group_of(counter)
    assert 0 <= group < layout.GROUPS
    buckets = {layout.bucket(counter, number) for number in range(shard, shard + 5)}
    assert buckets == set(range(group * 5, group * 5 + 5))


def test_counters_spread_evenly_over_the_groups():
    taken = [layout.group_of(f"posts/{number}/counters/likes") for number in range(6000)]
    assert all(900 < taken.count(group) < 1100 for group in range(layout.GROUPS))


@given(PATHS, PATHS)
def test_the_note_of_a_failed_counter_is_a_document_of_its_own_beside_the_cursor(one, other):
    note = layout.pending_path(one)
    collection, _, document = note.partition("/")
    assert collection == layout.cursor_path().partition("/")[0]
    assert note != layout.cursor_path()
    assert "/" not in document
    assert len(document.encode()) < 1500
    assert (note == layout.pending_path(other)) == (one == other)


# Nothing else spells them.

MODULES = [path for path in Path(counters.__file__).parent.glob("*.py") if path.name != "layout.py"]
SPELLED = set(NAMES.values())
NOT_OURS = {
    ("getLogger", "counters"),
    ("ThreadPoolExecutor", "counters"),
    ("HasField", "document"),  # a protobuf message's
}
"""Words given to these functions mean something else."""

NO_DATABASE = {"functions", "prices", "simulation", "sizing"}
"""Modules of log lines, prices and models: in them, only the names of collections are unmistakable."""


def literals(tree):
    """The string literals of a module, f-strings' too, with the function that each is given to."""
    docstrings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    given_to = {
        argument: ast.unparse(node.func).rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.value, given_to.get(node), node.lineno


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_other_module_spells_a_collection_or_a_field(path):
    ours = {name for name in SPELLED if path.stem not in NO_DATABASE or name.startswith("counter_")}
    for text, function, line in literals(ast.parse(path.read_text(encoding="utf-8"))):
        spelled = [] if (function, text) in NOT_OURS else [text, *text.split("/")[1:]]
        assert ours.isdisjoint(spelled), f"{path.name}:{line} spells {text!r}"


def test_the_search_for_spelled_names_finds_them():
    tree = ast.parse('"a docstring: value"\nx.get("value"); log(f"{parent}/counters/{name}")')
    assert [(text, function) for text, function, _ in literals(tree)] == [
        ("value", "get"),
        ("/counters/", None),
    ]
