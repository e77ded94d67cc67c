"""What the unit tests share."""

import os

from hypothesis import settings

# How long an example takes says nothing on a machine that does other things too. Where a failure keeps
# others from landing their work, the same examples run every time; by hand, new ones are looked for.
settings.register_profile("unit", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("unit")
