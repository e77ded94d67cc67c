"""What Google Cloud says of a project: indexes, TTL policy and schedule. Emulators have none of it.

Read over REST with the credentials of the environment. What is asked and what an answer means are
apart, so that the latter is tested without a cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import google.auth
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from counters import layout

Level = Literal["good", "warning", "bad", "unknown"]
Get = Callable[[str], Mapping[str, Any]]
"""Reads a resource by its URL. Raises ``Refused``."""

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_FIRESTORE: Final = "https://firestore.googleapis.com/v1/"
_SCHEDULER: Final = "https://cloudscheduler.googleapis.com/v1/"
_TIMEOUT: Final = 30


class Refused(Exception):
    """A resource could not be read; the text is Google's."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what is found, and what to do about it if it is not good."""

    level: Level
    subject: str
    text: str
    remedy: str | None = None


def sign_in() -> Get:
    """A reader with the credentials of the environment.

    Raises:
        google.auth.exceptions.GoogleAuthError: there are none.
    """
    credentials, _ = google.auth.default(scopes=[_SCOPE])
    session: Any = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]

    def get(url: str) -> Mapping[str, Any]:
        try:
            answer = session.get(url, timeout=_TIMEOUT)
            body: Any = answer.json()
        except (OSError, ValueError, GoogleAuthError) as error:
            raise Refused(f"{url}: {error}") from error
        if not answer.ok or not isinstance(body, dict):
            refusal = body.get("error", {}) if isinstance(body, dict) else {}
            raise Refused(str(refusal.get("message", answer.reason)).partition("\n")[0])
        return body

    return get


def look(get: Get, database: str, region: str, job: str) -> list[Finding]:
    """All that is looked at; ``database`` is a full name, ``projects/…/databases/…``.

    Price: 4 requests that are not billed.
    """
    project = "/".join(database.split("/")[:2])
    group = f"{_FIRESTORE}{database}/collectionGroups"
    updated_at = f"{group}/{layout.SHARDS}/fields/{layout.UPDATED_AT}"
    expire_at = f"{group}/{layout.OPERATIONS}/fields/{layout.EXPIRE_AT}"
    jobs = f"{_SCHEDULER}{project}/locations/{region}/jobs?pageSize=500"
    return [
        _asked(get, "index", f"{group}/{layout.SHARDS}/indexes", index),
        _asked(get, "exemption", updated_at, exemption),
        _asked(get, "TTL policy", expire_at, ttl),
        _asked(get, "schedule", jobs, lambda answer: schedule(answer, region, job)),
    ]


def _asked(get: Get, subject: str, url: str, read: Callable[[Mapping[str, Any]], Finding]) -> Finding:
    try:
        return read(get(url))
    except Refused as refusal:
        return Finding("unknown", subject, str(refusal))


_DEPLOY: Final = "firebase deploy --only firestore:indexes"


def index(answer: Mapping[str, Any]) -> Finding:
    """Whether the index that the rollup's query needs is there and built."""
    name = f"{layout.SHARDS} ({layout.BUCKET}, {layout.UPDATED_AT})"
    for found in answer.get("indexes", []):
        fields = [
            (part.get("fieldPath"), part.get("order"))
            for part in found.get("fields", [])
            if part.get("fieldPath") != "__name__"
        ]
        wanted = [(layout.BUCKET, "ASCENDING"), (layout.UPDATED_AT, "ASCENDING")]
        if fields == wanted and found.get("queryScope") == "COLLECTION_GROUP":
            state = found.get("state")
            if state == "READY":
                return Finding("good", "index", f"{name} is built")
            return Finding(
                "bad", "index", f"{name} is {state}", "runs fail until it is READY: minutes, or hours"
            )
    return Finding("bad", "index", f"{name} is missing, and runs fail without it", _DEPLOY)


def exemption(answer: Mapping[str, Any]) -> Finding:
    """Whether ``updated_at`` has no index of its own, which would be a hot spot."""
    config = answer.get("indexConfig", {})
    if config.get("usesAncestorConfig") or config.get("indexes"):
        return Finding(
            "warning",
            "exemption",
            f"{layout.UPDATED_AT} has an index of its own, which takes about 500 increments/s in all",
            _DEPLOY,
        )
    return Finding("good", "exemption", f"{layout.UPDATED_AT} has no index of its own")


def ttl(answer: Mapping[str, Any]) -> Finding:
    """Whether used idempotency keys are deleted in time."""
    state = answer.get("ttlConfig", {}).get("state")
    name = f"{layout.OPERATIONS}.{layout.EXPIRE_AT}"
    if state == "ACTIVE":
        return Finding("good", "TTL policy", f"on {name}")
    if state == "CREATING":
        return Finding("warning", "TTL policy", f"on {name} is being made")
    return Finding("warning", "TTL policy", f"none on {name}: used idempotency keys stay for ever", _DEPLOY)


def schedule(answer: Mapping[str, Any], region: str, job: str) -> Finding:
    """Whether the scheduler calls the rollup, and how its last call ended."""
    jobs = [
        found
        for found in answer.get("jobs", [])
        if job in _last(found) or job in str(found.get("httpTarget", {}).get("uri", ""))
    ]
    if not jobs:
        return Finding(
            "bad",
            "schedule",
            f"no job for `{job}` in {region}",
            "deploy it (docs/deploy.md), or name region and job with --region and --job",
        )
    found = jobs[0]
    text = f"{_last(found)}, {found.get('schedule')} {found.get('timeZone', '')}".rstrip()
    if found.get("state") != "ENABLED":
        return Finding(
            "bad",
            "schedule",
            f"{text}, is {found.get('state')}",
            f"gcloud scheduler jobs resume {_last(found)} --location={region}",
        )
    attempt = found.get("lastAttemptTime")
    if attempt is None:
        return Finding("warning", "schedule", f"{text}, has made no attempt yet")
    when = f"{datetime.fromisoformat(attempt[:19]):%Y-%m-%d %H:%M:%S} UTC"
    code = found.get("status", {}).get("code", 0)
    if code:
        return Finding(
            "bad",
            "schedule",
            f"{text}; the last attempt, {when}, failed with code {code}",
            "gcloud logging read 'jsonPayload.job=\"rollup\" severity>=ERROR' --limit=5",
        )
    return Finding("good", "schedule", f"{text}; last attempt {when}, well")


def _last(job: Mapping[str, Any]) -> str:
    return str(job.get("name", "")).rsplit("/", 1)[-1]
