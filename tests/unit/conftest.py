"""What the unit tests share."""

from hypothesis import settings

# How long an example takes says nothing on a machine that does other things too.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
