"""The rollup, deployed: ``rollup`` by Firebase, ``rollup_http`` by gcloud. Settings are in ``.env``."""

from counters.functions import http_rollup, parameters, scheduled_rollup

settings = parameters()
rollup = scheduled_rollup(settings)
rollup_http = http_rollup(settings)
