"""The examples of docs/reference-counts.md."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference-counts.md"


def test_every_example_runs_as_it_stands(db):
    page = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) > 5
    names = {"db": db}
    for example in examples:
        exec(compile(example, PAGE.name, "exec"), names)
