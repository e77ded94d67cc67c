"""Which parents a pattern such as ``posts/*/likes`` stands for, page by page.

``pattern`` reads and checks one, pure. ``walk`` finds the parents that there are; ``named`` hands out
those of a list.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from google.cloud.firestore_v1.base_document import BaseDocumentReference

from counters import layout, wire
from counters.errors import InvalidType, InvalidValue
from counters.steps import Steps

if TYPE_CHECKING:
    from counters.audit import Reads
    from counters.context import Call

STAR: Final = "*"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Collections of one name below many parents.

    ``parent`` is the path of a parent in parts, with ``*`` for any document.
    """

    parent: tuple[str, ...]
    name: str

    @property
    def stars(self) -> int:
        """How many documents it leaves open."""
        return self.parent.count(STAR)

    def children_of(self, parent: str) -> str:
        """The collection below a parent."""
        return f"{parent}/{self.name}"

    def parent_of(self, text: str) -> str:
        """The parent that ``text`` names: its path, or what the only star stands for.

        >>> pattern("posts/*/likes").parent_of("a91f"), pattern("posts/*/likes").parent_of("posts/a91f")
        ('posts/a91f', 'posts/a91f')

        Raises ``InvalidValue``.
        """
        parts = text.split("/")
        if len(parts) == 1 and self.stars == 1:
            parts = [text if part == STAR else part for part in self.parent]
        if (
            len(parts) == len(self.parent)
            and all(map(layout.is_document_id, parts))
            and all(wanted in (STAR, part) for wanted, part in zip(self.parent, parts, strict=True))
        ):
            return "/".join(parts)
        raise InvalidValue(f"{text!r} is no parent of {self}")

    def parents_of(self, named: object) -> tuple[str, ...]:
        """The parents that a list names, each once. Raises ``InvalidType`` or ``InvalidValue``."""
        if isinstance(named, str) or not isinstance(named, Iterable):
            raise InvalidType(f"parents are a list of paths or documents, not {type(named).__name__}")
        paths = []
        for parent in named:
            path = parent.path if isinstance(parent, BaseDocumentReference) else parent
            if not isinstance(path, str):
                raise InvalidType(f"a parent is a document or its path, not {type(parent).__name__}")
            paths.append(self.parent_of(path))
        return tuple(dict.fromkeys(paths))

    def __str__(self) -> str:
        """As it was written."""
        return "/".join((*self.parent, self.name))


def pattern(text: object) -> Pattern:
    """Read a pattern: a collection's path in which documents may be ``*``.

    >>> pattern("posts/*/comments/*/likes")
    Pattern(parent=('posts', '*', 'comments', '*'), name='likes')

    Raises ``InvalidType`` or ``InvalidValue``.
    """
    if not isinstance(text, str):
        raise InvalidType(f"a pattern is a str such as 'posts/*/likes', not {type(text).__name__}")
    *parent, name = text.split("/")
    collections = [*parent[::2], name]
    if not parent or len(parent) % 2 or not all(map(layout.is_document_id, (*parent, name))):
        raise InvalidValue(f"{text!r} is no collection below a document, such as 'posts/*/likes'")
    if STAR in collections:
        raise InvalidValue(f"{text!r}: a * stands for a document, not for a collection")
    if layout.OURS.intersection(collections):
        raise InvalidValue(f"{text!r} holds documents of this package, and no children")
    return Pattern(tuple(parent), name)


class Parents(Protocol):
    """Parents, to be taken page by page."""

    @property
    def open(self) -> bool:
        """Whether there may be more."""
        ...

    def next_page(self, call: Call, most: int) -> Steps[list[str]]:
        """The next ones: at most so many, maybe none."""
        ...


def named(paths: Sequence[str]) -> Parents:
    """The parents of a list. Makes no request."""
    return _List(list(paths))


def walk(wanted: Pattern, prefix: str, *, missing: bool, reads: Reads) -> Parents:
    """The parents that there are, in the order of their names: 1 read each.

    ``prefix`` is what the first star's ids begin with. With ``missing``, documents that do not exist
    and have something below them are there, too; no query finds those, so all ids up to the prefix
    are read.
    """
    below = _descend("", wanted.parent, prefix)
    return _List([below]) if isinstance(below, str) else _Walk([below], missing, reads)


@dataclass(slots=True)
class _List:
    paths: list[str]

    @property
    def open(self) -> bool:
        return bool(self.paths)

    def next_page(self, call: Call, most: int) -> Steps[list[str]]:  # noqa: ARG002 - like the others
        page, self.paths = self.paths[:most], self.paths[most:]
        return page
        yield  # a generator that yields nothing


@dataclass(frozen=True, slots=True)
class _Level:
    """A collection whose documents a star stands for, what is below each, and where to go on."""

    collection: str
    below: tuple[str, ...]
    prefix: str
    start: str = ""


@dataclass(slots=True)
class _Walk:
    """Depth first, so that parents come in order: the last level is the next to be listed."""

    levels: list[_Level]
    missing: bool
    reads: Reads

    @property
    def open(self) -> bool:
        return bool(self.levels)

    def next_page(self, call: Call, most: int) -> Steps[list[str]]:
        level = self.levels.pop()
        listing = _listed(call, level, most) if self.missing else _queried(call, level, most)
        documents, start = yield from listing
        self.reads.documents(len(documents))
        if start and not is_past(_id(documents[-1]), level.prefix):
            self.levels.append(replace(level, start=start))
        found = [
            _descend(document, level.below, "")
            for document in documents
            if _id(document).startswith(level.prefix)
        ]
        self.levels += [below for below in reversed(found) if isinstance(below, _Level)]
        return [parent for parent in found if isinstance(parent, str)]


def _listed(call: Call, level: _Level, most: int) -> Steps[tuple[list[str], str]]:
    """Documents of a collection, missing ones too, and where to go on; empty where all were listed."""
    parent, collection = layout.split_collection(level.collection)
    answer = yield from call.ask(
        lambda timeout: wire.list_names(
            call.database, parent, collection, timeout, limit=most, start=level.start
        )
    )
    return wire.names_of(answer)


def _queried(call: Call, level: _Level, most: int) -> Steps[tuple[list[str], str]]:
    """The same of documents that exist, and of none without the prefix."""
    parent, collection = layout.split_collection(level.collection)
    first = f"{level.collection}/{level.prefix}"
    answer = yield from call.ask(
        lambda timeout: wire.list_documents(
            call.database,
            parent,
            collection,
            ("__name__",),
            timeout,
            limit=most,
            after=level.start or None,
            between=(first, first + chr(sys.maxunicode)) if level.prefix else None,
        )
    )
    found = [document.path for document in wire.page_of(answer).documents]
    return found, found[-1] if len(found) == most else ""


def _descend(path: str, below: Sequence[str], prefix: str) -> str | _Level:
    """From a document (or the root) down to a parent, or to the next star."""
    parts = [path] if path else []
    for number in range(0, len(below), 2):
        collection, document = below[number : number + 2]
        parts.append(collection)
        if document == STAR:
            return _Level("/".join(parts), tuple(below[number + 2 :]), prefix)
        parts.append(document)
    return "/".join(parts)


def is_past(ident: str, prefix: str) -> bool:
    """Whether an id, in Firestore's order, comes after all that begin with ``prefix``.

    >>> is_past("b1", "b"), is_past("a", "b"), is_past("c", "b"), is_past("c", "")
    (False, False, True, False)
    >>> is_past("__id7__", "A")  # numeric ids, as of Datastore, come first
    False
    """
    numeric = ident.startswith("__") and ident.endswith("__")
    return not numeric and not ident.startswith(prefix) and ident.encode() > prefix.encode()


def _id(path: str) -> str:
    return path.rpartition("/")[2]
