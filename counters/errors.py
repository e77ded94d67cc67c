"""What can go wrong, as types. Each keeps its cause and says what to do next.

::

    CounterError
    ├── NotApplied             nothing of the call was applied; calling again is safe
    │   └── ReadFailed         what had to be read could not be
    ├── OutcomeUnknown         it may or may not have been applied; look before calling again
    ├── CounterNotFound        there is no counter document (also a LookupError)
    ├── CorruptShard           a shard holds something that is no whole number
    ├── StaleAudit             repair() of a difference that is no longer there
    ├── UnsupportedLayout      the counter was written by a newer version of this package
    └── InvalidArgument        what was asked for cannot be; nothing was changed
        ├── InvalidType        (also a TypeError)
        └── InvalidValue       (also a ValueError)
            ├── SettingsConflict   create() of a counter that exists with other settings
            └── KeyConflict        an idempotency key that was used with another amount
"""

from __future__ import annotations

__all__ = [
    "CorruptShard",
    "CounterError",
    "CounterNotFound",
    "InvalidArgument",
    "InvalidType",
    "InvalidValue",
    "KeyConflict",
    "NotApplied",
    "OutcomeUnknown",
    "ReadFailed",
    "SettingsConflict",
    "StaleAudit",
    "UnsupportedLayout",
]


class CounterError(Exception):
    """The root of every error that this package raises of its own accord."""


class NotApplied(CounterError):
    """Nothing of the call was applied; calling again is safe. ``__cause__`` is the server's error."""


class ReadFailed(NotApplied):
    """The server could not be read, or not in time; nothing was changed."""


class OutcomeUnknown(CounterError):
    """The call may or may not have been applied, and no proof was to be had in time.

    Calling again may count twice: compare ``value()`` with what you expect first.
    """


class CounterNotFound(CounterError, LookupError):
    """There is no counter document at this path: ``create()`` it, or check the path."""


class CorruptShard(CounterError):
    """A shard holds something that is no whole number, so no sum over it can be right.

    ``path`` names the document where it is known. Set its ``value`` to the whole number that it
    should be, or delete the document if it is no shard at all.
    """

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class StaleAudit(CounterError):
    """The difference that an audit found is no longer there; nothing was changed. Audit again."""


class UnsupportedLayout(CounterError):
    """The counter was written by a newer version of this package: upgrade firestore-counters."""


class InvalidArgument(CounterError):
    """An argument that cannot be, or not on this counter; nothing was changed.

    A bad argument is refused before anything is sent; one that conflicts with what is stored, after
    that was read.
    """


class InvalidType(InvalidArgument, TypeError):
    """An argument of a type that would be stored wrongly, or could not be stored at all."""


class InvalidValue(InvalidArgument, ValueError):
    """An argument of the right type that is out of range or malformed."""


class SettingsConflict(InvalidValue):
    """The counter exists, with other settings than ``create()`` was asked for."""


class KeyConflict(InvalidValue):
    """The idempotency key was used before, with another amount: two events share one key."""
