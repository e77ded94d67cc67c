"""``python -m counters.cli``: the same as ``counters``."""

from counters.cli import main

main()
