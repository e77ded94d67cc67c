"""The rollup as a Cloud Function, for Firebase's scheduler or behind gcloud's. Extra ``functions``.

Two lines in a ``main.py`` that has functions already::

    from counters.functions import scheduled_rollup

    rollup = scheduled_rollup()

Whoever calls it, an invocation rolls up once, or every few seconds for about a minute
(``Settings.every``), and writes one line of JSON a run to stdout, in the form that Cloud Logging
reads: what the run did, how far behind it is, and what it cost in billed operations.

What goes wrong leaves the invocation as an exception, so that Cloud Scheduler records a failure: an
error of a whole run at once, counters that failed (``RollupIncomplete``) at the end, when all others
have their totals. Nothing depends on the scheduler trying again: the next run does what this one
left undone. Invocations may overlap, repeat or be killed, see ``counters.rollup``.

Nothing is left to a background thread, since an instance may be frozen between requests, and no
client is made before the first run, since a module is also imported to be deployed.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Literal, TypeVar, cast

from google.cloud.firestore import Client

from counters import wire
from counters.app import Counters
from counters.errors import CounterError, InvalidValue
from counters.rollup import RollupReport

try:
    import flask
    from firebase_functions import scheduler_fn
    from firebase_functions.options import Timezone
    from firebase_functions.params import Expression, IntParam, StringParam
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"counters.functions needs {error.name}: pip install 'firestore-counters[functions]'",
        name=error.name,
    ) from error

__all__ = [
    "RollupIncomplete",
    "Settings",
    "http_rollup",
    "parameters",
    "scheduled_rollup",
]

_Value = TypeVar("_Value", int, str)

_RESERVE: Final = 30
"""Seconds between the end of a loop and the timeout: the last run may have to wait for answers."""

_SLICE: Final = 0.2
"""How often a pause looks whether the server is shutting down, in seconds.

Cloud Run gives 10 s between SIGTERM and SIGKILL
(https://cloud.google.com/run/docs/container-contract, 2026-11-30)."""

_LISTED: Final = 10
"""How many orphans and failures a log line names; it counts all. A log entry holds 256 KB
(https://cloud.google.com/logging/quotas, 2026-11-30)."""


class RollupIncomplete(CounterError):
    """Some counters could not be rolled up, all others were; the next runs try them again."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the rollup is deployed and run. ``parameters()`` takes them from ``.env`` files.

    Attributes:
        schedule: when, in unix-cron or App Engine syntax; a minute is the shortest interval.
        timezone: the time zone of ``schedule``.
        every: seconds from one run to the next within an invocation; 0 for one run. For totals that
            are fresher than the scheduler's minute. Price: docs/deploy.md.
        lasting: for how many seconds an invocation goes on with ``every``; the schedule's interval.
        region: where it runs; best where the database is.
        memory: in MiB.
        timeout: when an invocation is cut off, in seconds.
        max_instances, concurrency: how many run at once, 1 by 1. More would do no harm and no good.
        cpu: cores; ``"gcf_gen1"`` for what goes with the memory, a third of a core with 512 MiB.
        retry_count: how often the scheduler repeats a failed invocation. The next minute does it too.
        service_account: the e-mail address to run as; None for the project's default, which may do
            more than it need.
        database: the database's id.
    """

    schedule: str | Expression[str] = "* * * * *"
    timezone: str | Expression[str] = "UTC"
    every: int | Expression[int] = 0
    lasting: int | Expression[int] = 60
    region: str | Expression[str] = "us-central1"
    memory: int | Expression[int] = 512
    timeout: int | Expression[int] = 120
    max_instances: int | Expression[int] = 1
    concurrency: int | Expression[int] = 1
    cpu: int | Literal["gcf_gen1"] = "gcf_gen1"
    retry_count: int | Expression[int] = 0
    service_account: str | Expression[str] | None = None
    database: str | Expression[str] = "(default)"

    def __post_init__(self) -> None:
        every, lasting, timeout = (_value(this) for this in (self.every, self.lasting, self.timeout))
        if every < 0:
            raise InvalidValue(f"`every` is {every}: give seconds from run to run, or 0 for one run")
        if every and lasting > timeout - _RESERVE:
            raise InvalidValue(
                f"an invocation that lasts {lasting} s does not end well before its timeout of "
                f"{timeout} s: set `timeout` to {lasting + _RESERVE} or more, or `lasting` to less"
            )


@functools.cache
def parameters() -> Settings:
    """Declare a Firebase parameter ``COUNTERS_…`` for each setting; return them, with defaults.

    Values come from ``.env`` and ``.env.<project>`` beside ``main.py``; ``firebase deploy`` asks for
    what is missing there, and with ``--non-interactive`` refuses. Under gcloud they are environment
    variables of the same names (``--set-env-vars``).
    """
    default = Settings()

    def number(name: str, what: str) -> IntParam:
        return IntParam(f"COUNTERS_{name.upper()}", default=getattr(default, name), description=what)

    def text(name: str, what: str) -> StringParam:
        return StringParam(f"COUNTERS_{name.upper()}", default=getattr(default, name), description=what)

    return Settings(
        schedule=text("schedule", "When totals are brought up to date, in unix-cron syntax."),
        timezone=text("timezone", "The time zone of the schedule."),
        every=number("every", "Seconds between runs within an invocation; 0 for one run."),
        lasting=number("lasting", "For how many seconds an invocation goes on with that."),
        region=text("region", "Where the function runs; best where the database is."),
        memory=number("memory", "MiB of memory; CPU goes with it."),
        timeout=number("timeout", "Seconds until an invocation is cut off."),
        max_instances=number("max_instances", "How many instances there may be."),
        concurrency=number("concurrency", "How many invocations an instance serves at once."),
        retry_count=number("retry_count", "How often the scheduler repeats a failed invocation."),
        # Its value, since firebase-tools 15.34 would ask the scheduler for a token of an account "".
        # While it loads functions, what the .env files say is in the environment.
        service_account=text("service_account", "E-mail to run as; empty: the default.").value or None,
        database=text("database", "Id of the Firestore database."),
    )


def scheduled_rollup(
    settings: Settings | None = None, *, name: str = "rollup"
) -> Callable[[flask.Request], flask.Response]:
    """A function for ``firebase deploy``, run by Cloud Scheduler.

    It ignores what is no POST: the emulator's health probe runs a function's body at a cold start.

    Args:
        settings: default: a run a minute, ``Settings()``.
        name: the function's name; must be that of the variable it is assigned to.

    Raises:
        InvalidValue: settings that no invocation could keep to.
    """
    settings = settings or Settings()
    job = _Job(settings)

    def rollup(_event: scheduler_fn.ScheduledEvent) -> None:
        if flask.has_request_context() and flask.request.method != "POST":
            return
        job()

    rollup.__name__ = name
    deployment: dict[str, Any] = {  # Any: firebase-functions takes more expressions than it declares
        "schedule": settings.schedule,
        "timezone": _timezone(settings.timezone),
        "region": settings.region,
        "memory": settings.memory,
        "timeout_sec": settings.timeout,
        "max_instances": settings.max_instances,
        "concurrency": settings.concurrency,
        "cpu": settings.cpu,
        "retry_count": settings.retry_count,
        "service_account": settings.service_account,
    }
    deployed: Any = scheduler_fn.on_schedule(**deployment)(rollup)
    return cast("Callable[[flask.Request], flask.Response]", deployed)


def http_rollup(settings: Settings | None = None) -> Callable[[flask.Request], flask.Response]:
    """The same job as an HTTP function, for ``gcloud run deploy`` and ``gcloud functions deploy``.

    POST rolls up and answers with the last run's log line; anything else is refused with 405. Who
    may call it is IAM's to say: deploy it with ``--no-allow-unauthenticated``. Of the settings it
    uses ``every``, ``lasting``, ``timeout`` and ``database``; the rest are gcloud's options.

    Raises:
        InvalidValue: settings that no invocation could keep to.
    """
    job = _Job(settings or Settings())

    def rollup(request: flask.Request) -> flask.Response:
        if request.method != "POST":
            return flask.Response("a rollup is started by POST\n", 405, {"Allow": "POST"})
        return flask.Response(json.dumps(job()) + "\n", mimetype="application/json")

    return rollup


@dataclass(frozen=True, slots=True)
class Pace:
    """When runs start within one invocation. Seconds; ``every`` is 0 for a single run."""

    every: float
    lasting: float

    def pause(self, started: float, last: float, now: float) -> float | None:
        """How long to wait before the next run; None if it would not end in time.

        ``started`` is when the invocation did, ``last`` when its last run did. The next run is taken
        to last as long as that one.

        >>> Pace(every=5, lasting=60).pause(started=0, last=5, now=6)
        4
        >>> Pace(every=5, lasting=60).pause(started=0, last=5, now=12)
        0
        >>> Pace(every=5, lasting=60).pause(started=0, last=55, now=56)
        >>> Pace(every=0, lasting=60).pause(started=0, last=0, now=1)
        """
        if not self.every:
            return None
        start = max(now, last + self.every)
        return None if start + (now - last) > started + self.lasting else start - now


class _Job:
    """What an invocation does. Calling it returns the log line of its last run."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self) -> Mapping[str, Any]:
        pace = Pace(_value(self._settings.every), _value(self._settings.lasting))
        counters = _counters_of(_value(self._settings.database))
        started = time.monotonic()
        while True:
            last = time.monotonic()
            report = _run(counters)
            pause = pace.pause(started, last, time.monotonic())
            if pause is None or not _sleep(pause):
                break
        # What failed in an earlier run of this invocation and is well now was logged, and is over.
        if report.failed:
            raise RollupIncomplete(_message(report))
        return entry_of(report, wire.database_of(counters.client), datetime.now(timezone.utc))


def _run(counters: Counters) -> RollupReport:
    """Roll up once and log one line, whatever comes of it."""
    started = time.monotonic()
    database = wire.database_of(counters.client)
    try:
        report = counters.roll_up()
    except Exception as error:
        _log(
            {
                "severity": "ERROR",
                "message": f"the rollup failed: {type(error).__name__}: {error}",
                "job": "rollup",
                "database": database,
                "error": type(error).__name__,
                "seconds": round(time.monotonic() - started, 3),
            }
        )
        raise
    _log(entry_of(report, database, datetime.now(timezone.utc)))
    return report


def entry_of(report: RollupReport, database: str, now: datetime) -> dict[str, Any]:
    """A run's log line: ERROR if counters failed, WARNING if it saw orphans, else INFO.

    ``lag_seconds`` is how far behind the totals are, ``reads`` and ``writes`` are as billed.
    (Cloud Logging's form: https://cloud.google.com/logging/docs/structured-logging, 2026-11-30.)
    """
    lag = (now - report.as_of).total_seconds()
    return {
        "severity": "ERROR" if report.failed else "WARNING" if report.orphans else "INFO",
        "message": f"{_message(report)} ({lag:.1f} s behind, {report.reads} reads, {report.writes} writes)",
        "job": "rollup",
        "database": database,
        "counters": report.counters,
        "shards": report.shards,
        "orphans": len(report.orphans),
        "orphan_paths": list(report.orphans[:_LISTED]),
        "failed": len(report.failed),
        "failures": [
            {
                "counter": failure.path,
                "error": type(failure.error).__name__,
                "message": str(failure.error)[:500],
            }
            for failure in report.failed[:_LISTED]
        ],
        "reads": report.reads,
        "writes": report.writes,
        "seconds": round(report.seconds, 3),
        "as_of": report.as_of.isoformat(),
        "lag_seconds": round(lag, 3),
    }


def _message(report: RollupReport) -> str:
    total, shard = _counted(report.counters, "total"), _counted(report.shards, "changed shard")
    parts = [f"{total} written from {shard}"]
    if report.orphans:
        parts.append(f"{_counted(len(report.orphans), 'orphan')} (shards without a counter)")
    if report.failed:
        counter, first = _counted(len(report.failed), "counter"), report.failed[0]
        parts.append(f"{counter} failed, first {first.path}: {str(first.error)[:500]}")
    return "; ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _log(entry: Mapping[str, Any]) -> None:
    # One write, so that lines of overlapping invocations do not mix. default=str: never lose a line
    # to a value that JSON does not know.
    sys.stdout.write(json.dumps(entry, default=str) + "\n")
    sys.stdout.flush()


def _sleep(seconds: float) -> bool:
    """Pause; False, at once, if the server around us is shutting down."""
    until = time.monotonic() + seconds
    while not _shutting_down():
        left = until - time.monotonic()
        if left <= 0:
            return True
        time.sleep(min(left, _SLICE))
    return False


def _shutting_down() -> bool:
    """Whether gunicorn, which serves functions, was told to stop.

    Its handler takes SIGTERM in the worker's main thread, and a request is in another, which can set
    no handler. But it can ask whose the handler is. Under another server this is never true; then
    the loop ends in time, or is killed, which loses nothing.
    """
    worker = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(worker, "alive", True) is False


_making: Final = threading.Lock()
_made: Final[dict[str, Counters]] = {}


def _counters_of(database: str) -> Counters:
    """The process's ``Counters`` of a database, made at the first call: after gunicorn's fork."""
    with _making:
        if database not in _made:
            _made[database] = Counters(Client(database=database))
        return _made[database]


def _value(setting: _Value | Expression[_Value]) -> _Value:
    return setting.value if isinstance(setting, Expression) else setting


def _timezone(setting: str | Expression[str]) -> Any:
    return setting if isinstance(setting, Expression) else Timezone(setting)
