"""The error tree is as its docstring draws it, and its errors can be caught, sent and understood."""

import pickle
import re

import pytest

import counters
from counters import errors

ERRORS = [getattr(errors, name) for name in errors.__all__]


def drawn():
    """The tree of the docstring: name, parent's name, and builtins that it says it also is."""
    parents = []
    for line in errors.__doc__.splitlines():
        match = re.fullmatch(r"    ([│├└─ ]*)(\w+)( .*)?", line)
        if match:
            branch, name, text = match.groups()
            depth = len(branch) // 4
            del parents[depth:]
            also = re.findall(r"\(also an? (\w+)\)", text or "")
            yield name, parents[-1] if parents else "Exception", also
            parents.append(name)


def test_the_tree_is_as_drawn():
    real = {error.__name__: [base.__name__ for base in error.__bases__] for error in ERRORS}
    assert real == {name: [parent, *also] for name, parent, also in drawn()}


def test_every_error_is_exported_and_none_is_missing():
    assert errors.__all__ == sorted(errors.__all__)
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined == set(errors.__all__)
    assert all(getattr(counters, name) is getattr(errors, name) for name in errors.__all__)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_survives_the_way_between_processes(error):
    original = error("what happened")
    original.__cause__ = ValueError("why")
    copy = pickle.loads(pickle.dumps(original))
    assert type(copy) is error
    assert str(copy) == "what happened"


def test_a_corrupt_shard_names_the_document_between_processes_too():
    error = errors.CorruptShard("no number", "posts/a/counters/likes/counter_shards/3")
    assert pickle.loads(pickle.dumps(error)).path == "posts/a/counters/likes/counter_shards/3"


def test_nothing_applied_and_unknown_are_never_caught_as_each_other():
    assert not issubclass(errors.OutcomeUnknown, errors.NotApplied)
    assert not issubclass(errors.NotApplied, errors.OutcomeUnknown)
    assert issubclass(errors.ReadFailed, errors.NotApplied)
