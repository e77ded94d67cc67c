"""docs/deploy.md: its arithmetic is right, its settings are those of the code, its scripts are shell."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from counters.cli.firebase_project import by_gcloud
from counters.functions import Settings
from counters.prices import PRICES

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "deploy.md").read_text()
MINUTES = 30 * 24 * 60
CORES = {"256": 0.167, "512": 0.333}  # https://cloud.google.com/functions/docs/configuring/memory
CPU, MEMORY = 0.000024, 0.0000025  # https://cloud.google.com/run/pricing
FREE_CPU, FREE_MEMORY = 180_000, 360_000
RUN = 0.5
ROWS = re.findall(r"^\| (\d+) min, (\d+), (\d+) \|(.*)\|$", DOC, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_costs_adds_up(row):
    interval, every, memory, cells = int(row[0]), int(row[1]), row[2], row[3].split("|")
    invocations = MINUTES // interval
    lasts = RUN + (every * ((60 - 1) // every) if every else 0)
    busy = invocations * lasts
    cpu, gib = busy * CORES[memory], busy * int(memory) / 1024
    assert [cell.strip() for cell in cells] == [
        f"{invocations:,} x {lasts:g} = {busy:,.0f}",
        f"{cpu:,.0f}",
        f"{gib:,.0f}",
        f"${cpu * CPU + gib * MEMORY:.2f}",
        f"${max(0, cpu - FREE_CPU) * CPU + max(0, gib - FREE_MEMORY) * MEMORY:.2f}",
    ]


def test_the_table_has_a_row_for_the_defaults_and_for_5_seconds():
    assert len(ROWS) == 5
    assert ("1", str(Settings.every), str(Settings.memory)) in [row[:3] for row in ROWS]


def test_what_busy_counters_cost_adds_up():
    reads, writes = 1 + 100 * 10 + 2 * 100, 100 + 100 + 1
    assert f"{reads:,} reads and {writes:,} writes a run" in DOC
    prices = PRICES["nam5"]
    month = MINUTES * (reads * prices.reads + writes * prices.writes) / 100_000
    assert f"${month:.2f} a month at one run a minute, and twelve times as much, ${12 * month:.2f}" in DOC


def test_every_setting_is_in_the_table_with_its_default():
    env = dict(
        line.split("=", 1)
        for line in (ROOT / "functions" / ".env").read_text().splitlines()
        if line.startswith("COUNTERS_")
    )
    table = DOC[DOC.index("### Settings") : DOC.index("### In a project")]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `COUNTERS_")]
    told = {}
    for names, values in rows:
        defaults = [value.strip(" `") for value in values.split(",")]
        told.update(zip(re.findall(r"COUNTERS_\w+", names), defaults, strict=True))
    assert told == {name: value.strip('"') for name, value in env.items()}


def test_gcloud_makes_the_indexes_exemptions_and_ttl_policy_that_firebase_deploys():
    wanted = by_gcloud(json.loads((ROOT / "firestore.indexes.json").read_text()))
    joined = DOC.replace("\\\n ", "")
    told = re.findall(r"^(gcloud firestore (?:indexes|fields) .*)", joined, re.MULTILINE)
    assert sorted(" ".join(line.split()) for line in told) == sorted(wanted)


@pytest.mark.parametrize("script", re.findall(r"```sh\n(.*?)```", DOC, re.DOTALL))
def test_every_script_is_valid_shell(script):
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
