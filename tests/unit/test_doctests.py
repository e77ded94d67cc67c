"""The examples in docstrings and documents do what they show."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import counters

NOT_IMPORTED = ("counters.cli.__main__",)  # would run


def modules_with_examples():
    for found in pkgutil.walk_packages(counters.__path__, "counters."):
        source = Path(found.module_finder.path, *found.name.split(".")[-1:]).with_suffix(".py")
        if found.name not in NOT_IMPORTED and source.is_file() and ">>> " in source.read_text("utf-8"):
            yield found.name


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted > 0


def test_the_modules_with_examples_are_found():
    assert {"counters.layout", "counters.rollup", "counters.increments"} <= set(modules_with_examples())
