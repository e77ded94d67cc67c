"""Sync and async are twins: the same names, arguments, defaults, types and words."""

import inspect
import re

import pytest

import counters
from counters import public

PAIRS = {name: f"Async{name}" for name in counters.__all__ if f"Async{name}" in counters.__all__}
CLASSES = [(getattr(counters, name), getattr(counters, twin)) for name, twin in PAIRS.items()]

NOT_AWAITED = {"at", "children", "counter", "on", "path", "watch"}
"""What makes no request, or is awaited later."""


def members(cls):
    """The public methods and properties of a class, and how it is made; properties as their getters."""
    found = {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}
    found["__init__"] = cls.__init__
    return {name: item.fget if isinstance(item, property) else item for name, item in found.items()}


def as_sync(annotation):
    """A written annotation, without what makes it async."""
    return re.sub(r"Awaitable\[(\w+)\]", r"\1", str(annotation)).replace("Async", "")


def signature(function):
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default, as_sync(each.annotation)) for each in parameters]


def twin_methods():
    return [
        pytest.param(members(cls)[name], members(twin).get(name), id=f"{cls.__name__}.{name}")
        for cls, twin in CLASSES
        for name in members(cls)
    ]


def test_every_handle_has_its_twin():
    assert {name: f"Async{name}" for name in ("Counter", "Counters", "ReferenceCount")} == PAIRS


@pytest.mark.parametrize(("cls", "twin"), CLASSES)
def test_twins_have_the_same_public_names(cls, twin):
    assert members(cls).keys() == members(twin).keys()


@pytest.mark.parametrize(("method", "twin"), twin_methods())
def test_twins_take_the_same_arguments_and_return_the_same(method, twin):
    assert signature(method) == signature(twin)
    returned = (inspect.signature(each).return_annotation for each in (method, twin))
    assert len({as_sync(annotation) for annotation in returned}) == 1


@pytest.mark.parametrize(("method", "twin"), twin_methods())
def test_what_asks_the_server_is_awaited_in_the_async_twin_and_nothing_in_the_sync_one(method, twin):
    asks = method.__name__ not in NOT_AWAITED | {"__init__"}
    assert not inspect.iscoroutinefunction(method)
    assert inspect.iscoroutinefunction(twin) == asks


@pytest.mark.parametrize(("method", "twin"), twin_methods())
def test_twins_say_the_same_of_themselves(method, twin):
    if method.__name__ != "__init__":  # documented on the class
        assert inspect.getdoc(method)
        assert inspect.getdoc(method) == inspect.getdoc(twin)


@pytest.mark.parametrize(("cls", "twin"), CLASSES)
def test_an_async_handle_names_its_twin(cls, twin):
    assert f"async twin of ``{cls.__name__}``" in inspect.getdoc(twin)


def test_the_functions_are_twins_too():
    assert signature(counters.roll_up) == signature(counters.roll_up_async)
    assert inspect.iscoroutinefunction(counters.roll_up_async)


# What is public.


def test_the_public_names_are_sorted_and_the_same_wherever_they_are_listed():
    assert counters.__all__ == public.__all__
    natural = sorted(counters.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert counters.__all__ == natural


def test_every_public_name_is_given_out_and_no_other():
    for name in counters.__all__:
        assert getattr(counters, name) is getattr(public, name)
    assert set(counters.__all__) <= set(dir(counters))
    imported = {name for name in vars(public) if name.isidentifier() and not name.startswith("_")}
    assert imported == set(public.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = counters.no_such_name


@pytest.mark.parametrize("name", [name for name in counters.__all__ if not name.isupper()])
def test_every_public_name_is_documented_in_words_of_its_own(name):
    item = getattr(counters, name)
    words = inspect.getdoc(item)
    assert words
    if isinstance(item, type):
        assert all(words != inspect.getdoc(base) for base in item.__mro__[1:])
        assert not words.startswith(f"{name}("), "the docstring that a dataclass makes up"


@pytest.mark.parametrize("name", [name for name in counters.__all__ if not name.isupper()])
def test_every_public_method_of_a_public_class_is_documented(name):
    item = getattr(counters, name)
    if isinstance(item, type):
        for method, function in members(item).items():
            if callable(function) and getattr(function, "__module__", "").startswith("counters"):
                assert method == "__init__" or inspect.getdoc(function), method
