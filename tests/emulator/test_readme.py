"""README's code blocks run as they stand, in order, in one database."""

import re
from pathlib import Path

import pytest
from google.cloud import firestore

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def names(counters_client, monkeypatch):
    monkeypatch.setattr(firestore, "Client", lambda: counters_client)
    names = {}
    for block in BLOCKS:
        exec(block, names)
    return names


def test_the_blocks_of_readme_run_one_after_the_other(names):
    assert len(BLOCKS) == 3
    assert names["views"].value() == 1 + 5 + 1 + 1
    assert names["views"].total().value == 6
    assert names["post"].get().to_dict() == {"title": "Counting", "viewCount": 6}
    assert names["likes"].value() == 0
    assert names["likes"].audit().difference == 0


def test_what_readme_says_in_comments_is_so(names):
    app, post = names["app"], names["post"]
    assert app.roll_up().failed == ()
    likes = app.children(post, "likes")
    assert [likes.add("u1"), likes.add("u1"), likes.remove("u1"), likes.remove("u1")] == [
        True,
        False,
        True,
        False,
    ]
    assert not names["views"].increment_once(names["event_id"])
