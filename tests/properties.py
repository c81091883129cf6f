"""Counts of Hypothesis's examples: few in `make test`, the same each time; more in `make test-all`, always new ones."""

import os

from hypothesis import settings


def examples(quick: int, whole: int) -> settings:
    """Return settings with `quick` examples, and with `whole` in `make test-all`."""
    count = whole if os.environ.get("HYPOTHESIS_PROFILE") == "others" else quick
    return settings(max_examples=count, deadline=None)
