"""``counters doctor``: what the answers of Google's APIs and the state of a database mean."""

from datetime import datetime, timedelta, timezone

import pytest
from google.auth.exceptions import RefreshError

from counters.cli import cloud, doctor
from counters.cli.cloud import Finding, Refused
from counters.cli.database import Place
from counters.cli.health import Failing, Health, Waiting

NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
DATABASE = "projects/p/databases/(default)"
INDEX = {
    "name": f"{DATABASE}/collectionGroups/counter_shards/indexes/C1",
    "queryScope": "COLLECTION_GROUP",
    "fields": [
        {"fieldPath": "bucket", "order": "ASCENDING"},
        {"fieldPath": "updated_at", "order": "ASCENDING"},
        {"fieldPath": "__name__", "order": "ASCENDING"},
    ],
    "state": "READY",
}
JOB = {
    "name": "projects/p/locations/us-central1/jobs/firebase-schedule-rollup-us-central1",
    "schedule": "* * * * *",
    "timeZone": "UTC",
    "state": "ENABLED",
    "httpTarget": {"uri": "https://rollup-abc-uc.a.run.app"},
    "lastAttemptTime": "2026-11-30T11:59:00.123456Z",
}


def health(**fields):
    well = {
        "last_run": NOW - timedelta(seconds=30),
        "shards": 10,
        "current": 2,
        "waiting": (),
        "orphans": (),
    }
    oldest = NOW - timedelta(seconds=31)
    return Health(**{"moment": NOW, **well, "oldest": oldest, "failing": (), "reads": 14, **fields})


def judged(staleness=180, **fields):
    findings = doctor.judge(health(**fields), timedelta(seconds=staleness))
    return {finding.subject: finding for finding in findings}


# The cloud's answers.


def test_the_index_is_good_once_it_is_built():
    assert cloud.index({"indexes": [INDEX]}).level == "good"
    building = cloud.index({"indexes": [{**INDEX, "state": "CREATING"}]})
    assert (building.level, "CREATING" in building.text) == ("bad", True)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"indexes": []},
        {"indexes": [{**INDEX, "queryScope": "COLLECTION"}]},
        {"indexes": [{**INDEX, "fields": INDEX["fields"][:1]}]},
        {"indexes": [{**INDEX, "fields": [INDEX["fields"][1], INDEX["fields"][0]]}]},
    ],
)
def test_another_index_does_not_serve_the_rollup(answer):
    finding = cloud.index(answer)
    assert (finding.level, finding.remedy) == ("bad", "firebase deploy --only firestore:indexes")


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ({"indexConfig": {}}, "good"),
        ({"indexConfig": {"usesAncestorConfig": True, "indexes": [{}]}}, "warning"),
        ({"indexConfig": {"indexes": [{}]}}, "warning"),
    ],
)
def test_an_index_on_updated_at_alone_is_a_warning(answer, level):
    assert cloud.exemption(answer).level == level


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ({"ttlConfig": {"state": "ACTIVE"}}, "good"),
        ({"ttlConfig": {"state": "CREATING"}}, "warning"),
        ({"ttlConfig": {"state": "NEEDS_REPAIR"}}, "warning"),
        ({}, "warning"),
    ],
)
def test_without_a_ttl_policy_keys_stay_for_ever(answer, level):
    assert cloud.ttl(answer).level == level


@pytest.mark.parametrize(
    ("change", "level", "text"),
    [
        ({}, "good", "last attempt 2026-11-30 11:59:00 UTC, well"),
        ({"state": "PAUSED"}, "bad", "is PAUSED"),
        ({"status": {"code": 13}}, "bad", "failed with code 13"),
        ({"lastAttemptTime": None}, "warning", "no attempt yet"),
    ],
)
def test_the_schedule_is_judged_by_its_state_and_its_last_attempt(change, level, text):
    finding = cloud.schedule({"jobs": [{"name": "x/other"}, {**JOB, **change}]}, "us-central1", "rollup")
    assert finding.level == level
    assert text in finding.text


def test_a_job_is_found_by_its_name_or_by_what_it_calls():
    by_url = {**JOB, "name": "projects/p/locations/r/jobs/every-minute"}
    assert cloud.schedule({"jobs": [by_url]}, "r", "rollup").level == "good"
    missing = cloud.schedule({"jobs": [by_url]}, "r", "tally")
    assert (missing.level, "no job for `tally` in r" in missing.text) == ("bad", True)


def test_each_resource_is_asked_once_where_google_keeps_it():
    asked = []
    cloud.look(lambda url: asked.append(url) or {}, DATABASE, "europe-west1", "rollup")
    assert asked == [
        f"https://firestore.googleapis.com/v1/{DATABASE}/collectionGroups/counter_shards/indexes",
        f"https://firestore.googleapis.com/v1/{DATABASE}/collectionGroups/counter_shards/fields/updated_at",
        f"https://firestore.googleapis.com/v1/{DATABASE}/collectionGroups/counter_operations/fields/expire_at",
        "https://cloudscheduler.googleapis.com/v1/projects/p/locations/europe-west1/jobs?pageSize=500",
    ]


def test_what_may_not_be_read_is_unknown_and_stops_nothing():
    def get(url):
        if "cloudscheduler" in url:
            raise Refused("Cloud Scheduler API has not been used in project p before or it is disabled.")
        return {"indexes": [INDEX]}

    findings = cloud.look(get, DATABASE, "us-central1", "rollup")
    assert [finding.level for finding in findings] == ["good", "good", "warning", "unknown"]
    assert "has not been used" in findings[-1].text


class Session:
    """In place of google-auth's session: one answer, or an error."""

    def __init__(self, status=200, body=None, reason="OK", error=None):
        self.ok, self.reason, self._body, self._error = status == 200, reason, body, error

    def __call__(self, _credentials):
        return self

    def get(self, _url, timeout):
        assert timeout > 0
        if self._error:
            raise self._error
        return self

    def json(self):
        if self._body is None:
            raise ValueError("no JSON")
        return self._body


@pytest.fixture
def signed_in(monkeypatch):
    def sign_in(**answer):
        monkeypatch.setattr(cloud.google.auth, "default", lambda scopes: (scopes, "p"))
        monkeypatch.setattr(cloud, "AuthorizedSession", Session(**answer))
        return cloud.sign_in()

    return sign_in


def test_a_resource_is_its_json(signed_in):
    assert signed_in(body={"indexes": []})("https://x") == {"indexes": []}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"status": 403, "body": {"error": {"message": "denied on p\nmore"}}}, "denied on p$"),
        ({"status": 502, "body": [], "reason": "Bad Gateway"}, "Bad Gateway"),
        ({"status": 502, "reason": "Bad Gateway"}, "no JSON"),
        ({"error": ConnectionError("no route")}, "no route"),
        ({"error": RefreshError("log in again")}, "log in again"),
    ],
)
def test_whatever_else_comes_is_a_refusal_with_its_reason(signed_in, answer, why):
    with pytest.raises(Refused, match=why):
        signed_in(**answer)("https://x")


# The database.


def test_all_is_well():
    assert {finding.level for finding in judged().values()} == {"good"}


def test_a_change_that_waits_longer_than_it_may_is_a_rollup_that_does_not_run():
    waiting = (
        Waiting("posts/b/counters/likes", NOW - timedelta(seconds=20)),
        Waiting("posts/a/counters/likes", NOW - timedelta(minutes=26)),
    )
    finding = judged(waiting=waiting, last_run=NOW - timedelta(minutes=27))["last run"]
    assert finding.level == "bad"
    assert "27 min ago" in finding.text
    assert "posts/a/counters/likes has waited 26 min" in finding.text
    assert judged(waiting=waiting, staleness=3600)["last run"].level == "good"


def test_a_rollup_that_never_ran_is_told_from_one_that_had_nothing_to_do():
    never = judged(last_run=None, waiting=(Waiting("c", NOW - timedelta(hours=1)),))["last run"]
    assert (never.level, "none has ever ended" in never.text) == ("bad", True)
    nothing = judged(last_run=None, shards=0, current=0, oldest=None)["last run"]
    assert (nothing.level, "nothing to roll up" in nothing.text) == ("good", True)


def test_failures_are_told_with_their_reasons_and_orphans_with_their_paths():
    failing = (Failing("posts/a/counters/likes", "`value` of … is 'three'", NOW),)
    found = judged(failing=failing, orphans=tuple(f"posts/{n}/counters/likes" for n in range(5)))
    assert found["failures"].level == "bad"
    assert "posts/a/counters/likes: `value` of … is 'three'" in found["failures"].text
    assert "since 2026-11-30 12:00 UTC" in found["failures"].text
    assert found["orphans"].level == "warning"
    assert found["orphans"].text.endswith("posts/2/counters/likes\nand 2 more")


GONE = "the mirror posts/a of posts/a/counters/likes does not exist: create the document, or take it out"


def test_a_mirror_that_is_gone_is_told_apart_from_a_total_that_does_not_move(capsys):
    likes = Failing("posts/a/counters/likes", GONE, NOW)
    found = judged(failing=(likes,))
    assert (found["failures"].level, found["mirrors"].level) == ("good", "bad")
    assert GONE in found["mirrors"].text
    doctor.show(Place(None, "p", None), list(found.values()), "read 2 documents")
    said = capsys.readouterr().out
    assert "Totals move; a mirror does not.\n" in said
    assert "keeps totals from moving" not in said

    both = judged(failing=(likes, Failing("posts/b/counters/likes", "`value` is 'three'", NOW)))
    assert "posts/a" not in both["failures"].text
    doctor.show(Place(None, "p", None), list(both.values()), "read 2 documents")
    assert "What keeps totals from moving: failures.\n" in capsys.readouterr().out


def test_the_worst_case_still_fits_into_one_screen(capsys):
    failing = tuple(Failing(f"posts/{n}/counters/likes", "a mirror is gone", NOW) for n in range(99))
    findings = doctor.judge(
        health(
            waiting=(Waiting("posts/a/counters/likes", NOW - timedelta(hours=9)),),
            failing=failing,
            orphans=("posts/x/counters/likes",) * 99,
        ),
        timedelta(minutes=3),
    )
    findings += cloud.look(lambda _: {}, DATABASE, "us-central1", "rollup")
    doctor.show(Place(None, "p", None), findings, "read 1,000 documents")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert "What keeps totals from moving: last run, failures, index, schedule." in lines


def test_when_all_is_well_it_says_so(capsys):
    doctor.show(Place(None, "p", None), [Finding("good", "failures", "none")], "read 2 documents")
    assert "Nothing found that would keep totals from moving." in capsys.readouterr().out
