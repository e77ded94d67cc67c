"""What calls share in a process: settings cache, lanes, backoff, chance and the server's clock.

A ``Context`` belongs to a client and outlives every handle, so a handle made for each request costs
nothing. A ``Call`` is one call's view of it: its database and its time limit.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.api_core import exceptions

from counters import layout, wire
from counters.errors import InvalidArgument, InvalidType, InvalidValue, NotApplied, ReadFailed
from counters.lanes import Lanes
from counters.policy import Policy
from counters.receipts import HORIZON, LONGEST_TIMEOUT
from counters.steps import Rpc, Sleep, Steps

if TYPE_CHECKING:
    from google.cloud.firestore_v1.base_client import BaseClient

    from counters.app import AsyncCounters, Counters
    from counters.settings import Settings

_CACHED_COUNTERS: Final = 10_000
_REFRESH_GRACE: Final = 5.0
_LONGEST_KEY_DAYS: Final = 3650
_ATTEMPT: Final = 15.0
"""The longest wait for one answer, in seconds; a lost one is then settled while there is time."""


class OutOfTime(Exception):
    """The call's time limit is over. Internal: what it means depends on what was under way."""


class Context:
    """Holds what calls share; knows no client and does no I/O."""

    def __init__(
        self,
        *,
        shards: int = layout.DEFAULT_SHARDS,
        timeout: float = 30.0,
        cache_seconds: float = 60.0,
        poll_seconds: float = 1.0,
        key_days: float = 14.0,
        policy: Policy | None = None,
    ) -> None:
        self.shards = checked_shards(shards)
        self.timeout = _checked_seconds("timeout", timeout, LONGEST_TIMEOUT)
        self.cache_seconds = _checked_seconds("cache_seconds", cache_seconds, 86_400)
        self.poll_seconds = _checked_seconds("poll_seconds", poll_seconds, 86_400)
        self.key_seconds = _checked("key_days", key_days, "days", _LONGEST_KEY_DAYS) * 86_400
        if not isinstance(policy, Policy | None):
            raise InvalidType(f"policy must be a Policy, not {type(policy).__name__}")
        self.policy = policy or Policy()
        self.lanes = Lanes()
        self._chance = self.policy.chance()
        self._process = os.getpid()
        self._settings: dict[str, _Cached] = {}
        self._loading: dict[str, tuple[int, object]] = {}
        self._server_seen = (0, self.policy.clock())

    # Chance.

    def random(self) -> float:
        """A number from 0 up to 1; forked processes draw different ones unless a seed is set."""
        if os.getpid() != self._process:
            self._process = os.getpid()
            self._chance = self.policy.chance()
        return self._chance.random()

    def shard(self, shards: int, avoid: int | None) -> int:
        """A shard at random, another than ``avoid`` where there is one."""
        if avoid is None or shards == 1 or avoid >= shards:
            return int(self.random() * shards)
        return (avoid + 1 + int(self.random() * (shards - 1))) % shards

    # The server's clock: its last answer, plus what has passed here since. Never ahead of it.

    def saw_server_time(self, microseconds: int) -> None:
        """Take note of a moment that an answer carried."""
        self._server_seen = (microseconds, self.policy.clock())  # at once: threads share it

    @property
    def knows_server_time(self) -> bool:
        """Whether any answer has carried the server's time yet."""
        return self._server_seen[0] > 0

    def server_time(self) -> int:
        """About the server's time, in microseconds, whatever the local wall clock says."""
        microseconds, seen = self._server_seen
        return microseconds + int((self.policy.clock() - seen) * 1_000_000)

    def expiry(self) -> int:
        """When a key used now may be forgotten, in microseconds of the server's time.

        Never while a doubt about it can last.
        """
        return self.server_time() + int(max(self.key_seconds, HORIZON) * 1_000_000)

    # Settings.

    def cached(self, key: str) -> Settings | None:
        """The settings last read, unless they are older than ``cache_seconds``.

        Of many calls that find them too old, one refreshes them and the others go on for a moment.
        """
        cached = self._settings.get(key)
        if cached is None:
            return None
        now = self.policy.clock()
        if now < cached.until:
            return cached.settings
        if now < cached.until + _REFRESH_GRACE and cached.refreshing:
            return cached.settings
        cached.refreshing = True
        return None

    def cache(self, key: str, settings: Settings) -> None:
        """Keep settings for ``cache_seconds``; the oldest of 10,000 counters make room."""
        self._settings.pop(key, None)
        while len(self._settings) >= _CACHED_COUNTERS:
            self._settings.pop(next(iter(self._settings)), None)
        self._settings[key] = _Cached(settings, self.policy.clock() + self.cache_seconds)

    def claim_loading(self, key: str) -> bool:
        """Whether it is for this call to read a counter's settings; the others wait for it.

        Who is given a claim must ``end_loading``. A forked child is not bound by its parent's.
        """
        mine = (os.getpid(), object())
        claim = self._loading.setdefault(key, mine)
        if claim[0] != mine[0]:
            self._loading[key] = claim = mine
        return claim is mine

    def end_loading(self, key: str) -> None:
        """Give up a claim to read settings, whether they were read or not."""
        self._loading.pop(key, None)

    def forget(self, key: str) -> None:
        """Read the settings anew at the next call."""
        self._settings.pop(key, None)


@dataclass(slots=True)
class _Cached:
    settings: Settings
    until: float
    refreshing: bool = False


class Call:
    """One call: where it goes, and how long it may take."""

    __slots__ = ("context", "database", "until")

    def __init__(self, context: Context, database: str) -> None:
        self.context = context
        self.database = database
        self.until = context.policy.clock() + context.timeout

    def renewed(self) -> Call:
        """The same call with a time limit of its own, for work that comes in pages."""
        return Call(self.context, self.database)

    def name(self, path: str) -> str:
        """The full resource name of a document."""
        return wire.document_name(self.database, path)

    def patience(self) -> float:
        """How long to wait for the next answer, in seconds.

        Half of what is left, so that time remains to settle a doubt. Raises ``OutOfTime`` when
        nothing is.
        """
        left = self.until - self.context.policy.clock()
        if left <= 0:
            raise OutOfTime
        return min(_ATTEMPT, max(left / 2, 0.05))

    def back_off(self, attempt: int) -> Steps[None]:
        """Wait before trying again, with jitter. Raises ``OutOfTime`` when nothing is left."""
        left = self.until - self.context.policy.clock()
        if left <= 0:
            raise OutOfTime
        wait = self.context.random() * self.context.policy.backoff.bound(attempt)
        if wait:
            yield Sleep(min(wait, left))

    def start_over(self, attempt: int) -> Steps[None]:
        """Wait before starting over what others changed meanwhile. Raises ``NotApplied``."""
        try:
            yield from self.back_off(attempt)
        except OutOfTime:
            raise NotApplied(
                f"nothing was applied within {self.context.timeout:g} s: others kept changing it; "
                "calling again is safe"
            ) from None

    def pause(self, seconds: float) -> Steps[None]:
        """Wait for something that another call of this process does. Raises ``ReadFailed``."""
        if self.context.policy.clock() >= self.until:
            raise ReadFailed(f"nothing was changed: no answer within {self.context.timeout:g} s")
        yield Sleep(seconds)

    def ask(self, make: Callable[[float], Rpc]) -> Steps[Any]:
        """Send a request that changes nothing until it is answered.

        ``make`` is given the seconds to wait. Raises ``ReadFailed``.
        """
        attempt = 0
        cause: Exception | None = None
        try:
            while True:
                rpc = make(self.patience())
                try:
                    return (yield rpc)
                except wire.RETRYABLE as error:
                    cause = error
                except exceptions.GoogleAPICallError as error:
                    raise ReadFailed(f"nothing was changed: {error.message}") from error
                yield from self.back_off(attempt)
                attempt += 1
        except OutOfTime:
            raise ReadFailed(
                f"nothing was changed: no answer within {self.context.timeout:g} s; "
                "try again, or raise `timeout`"
            ) from cause

    def read_for_certain(self, path: str) -> Steps[wire.Document]:
        """Read a document that decides a doubt: again after any error, until there is an answer.

        Raises ``OutOfTime``.
        """
        attempt = 0
        while True:
            rpc = wire.get(self.database, [path], self.patience())
            try:
                return wire.documents_of((yield rpc))[path]
            except InvalidArgument:
                raise  # not the server's: the client cannot be used here
            except Exception:  # noqa: BLE001, S110 - the doubt stays until the document was read
                pass
            yield from self.back_off(attempt)
            attempt += 1

    def learn_server_time(self) -> Steps[None]:
        """Have an idea of the server's time: 1 read if this process has none yet."""
        if not self.context.knows_server_time:
            yield from self.get(layout.cursor_path())

    def get(self, *paths: str, read_time: int | None = None) -> Steps[Mapping[str, wire.Document]]:
        """Read documents outside any transaction, by path. One read each, missing ones too."""
        answer = yield from self.ask(
            lambda timeout: wire.get(self.database, paths, timeout, read_time=read_time)
        )
        documents = wire.documents_of(answer)
        if read_time is None and documents:
            self.context.saw_server_time(min(doc.read_time for doc in documents.values()))
        return documents


_defaults: weakref.WeakKeyDictionary[BaseClient, Context] = weakref.WeakKeyDictionary()


def default_context(client: BaseClient) -> Context:
    """The context of handles that were made without a ``Counters``: one for each client."""
    context = _defaults.get(client)
    return context if context is not None else _defaults.setdefault(client, Context())


def context_of(client: BaseClient, counters: Counters | AsyncCounters | None) -> Context:
    """The context of ``counters``, or the client's default where there are none.

    Raises ``InvalidValue`` for counters of another database: settings are cached by path.
    """
    if counters is None:
        return default_context(client)
    if wire.database_of(counters.client) != wire.database_of(client):
        raise InvalidValue("the document is in another database than these Counters: make others for it")
    return counters.context


def checked_progress(progress: Callable[[int], object] | None) -> Callable[[int], object] | None:
    """``progress`` if it can be told of progress."""
    if progress is not None and not callable(progress):
        raise InvalidType(f"progress is a function, not {type(progress).__name__}")
    return progress


def checked_shards(shards: object) -> int:
    """``shards`` if a counter can have so many. Raises ``InvalidType`` or ``InvalidValue``."""
    if isinstance(shards, bool) or not isinstance(shards, int):
        raise InvalidType(f"shards must be an int, not {type(shards).__name__}")
    if not 1 <= shards <= layout.MAX_SHARDS:
        raise InvalidValue(f"shards must be from 1 to {layout.MAX_SHARDS:,}, not {shards}")
    return shards


def _checked_seconds(name: str, seconds: object, longest: float) -> float:
    return _checked(name, seconds, "seconds", longest)


def _checked(name: str, number: object, unit: str, most: float) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidType(f"{name} must be a number of {unit}, not {type(number).__name__}")
    if not 0 < number <= most:
        raise InvalidValue(f"{name} must be above 0 and at most {most:g} {unit}, not {number}")
    return float(number)
