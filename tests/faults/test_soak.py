"""A short soak, as part of the proof; ``make soak`` runs it for as long as one likes."""

import secrets

import pytest
from soak import Soak


@pytest.mark.proof
def test_a_plain_model_agrees_at_every_quiet_moment(host, record_property):
    seed = secrets.randbelow(2**32)
    record_property("soak", f"seed {seed}")
    soak = Soak(host, f"soak-{seed}", seed)
    soak.run(0.75, lambda line: record_property("soak", line))
    assert soak.acknowledged > 100
    record_property("soak", str(soak))
