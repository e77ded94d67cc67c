"""The documents and docstrings speak of what there is."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from textwrap import dedent

import pytest

import counters

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

HANDLES = {
    "app": [counters.Counters, counters.AsyncCounters],
    "likes": [counters.Counter, counters.ReferenceCount],
}
"""What the examples call things."""

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def text_without_code(document):
    return re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.DOTALL)


def anchors(document):
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text_without_code(document), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@documents
def test_every_link_within_the_project_leads_somewhere(document):
    for link in re.findall(r"\]\(([^)\s]+)\)", text_without_code(document)):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def python_blocks():
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        for number, block in enumerate(blocks):
            yield pytest.param(dedent(block), id=f"{document.name}-{number}")


@pytest.mark.parametrize("block", list(python_blocks()))
def test_examples_are_python_and_use_names_that_there_are(block):
    tree = compile(block, "example", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "counters":
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module}.{alias.name}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            kinds = HANDLES.get(node.value.id, [])
            assert not kinds or any(hasattr(kind, node.attr) for kind in kinds), ast.unparse(node)


# Docstrings: first the effect, then the price, the arguments, the errors.


def public_functions():
    for name in counters.__all__:
        item = getattr(counters, name)
        if inspect.isfunction(item):
            yield pytest.param(item, item, id=name)
        elif isinstance(item, type) and not name.startswith("Async"):
            yield pytest.param(item, item.__init__, id=name)
            for method, function in vars(item).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield pytest.param(function, function, id=f"{name}.{method}")


def section(documented, title):
    """The names in a section of a docstring."""
    words = inspect.getdoc(documented) or ""
    found = re.search(rf"^{title}:\n((?:    .*\n?|\n)+)", words, flags=re.MULTILINE)
    lines = re.findall(r"^    (\w[\w, ]*):", found[1], flags=re.MULTILINE) if found else []
    return [name for line in lines for name in line.split(", ")]


@pytest.mark.parametrize(("documented", "function"), list(public_functions()))
def test_arguments_that_are_explained_are_arguments_that_there_are(documented, function):
    assert set(section(documented, "Args")) <= set(inspect.signature(function).parameters)


@pytest.mark.parametrize(("documented", "function"), list(public_functions()))
def test_errors_that_are_named_are_errors_that_there_are(documented, function):
    assert all(issubclass(getattr(counters, name), Exception) for name in section(documented, "Raises"))
    assert function


def methods_that_ask():
    for twin in (counters.AsyncCounter, counters.AsyncCounters, counters.AsyncReferenceCount):
        for name, function in vars(twin).items():
            if inspect.iscoroutinefunction(function) and not name.startswith("_"):
                yield pytest.param(function, id=f"{twin.__name__}.{name}")


@pytest.mark.parametrize("method", list(methods_that_ask()))
def test_every_method_that_asks_the_server_says_what_it_costs_or_whose_price_it_has(method):
    assert re.search(r"\b[Pp]rice\b|``\w+\.\w+``", inspect.getdoc(method))
