"""Garbage collection between tests, for those that see something end with its last user."""

import gc

_mark: list[object] = []  # frozen, unless `collect` has made it after the last freeze


def collect() -> None:
    """Collect all garbage, also what a runtime of another test has frozen while it was in use.

    Searching all that was ever imported takes half a second, so that it stays frozen where nothing was frozen since."""
    global _mark
    if any(each is _mark for generation in range(3) for each in gc.get_objects(generation=generation)):
        gc.collect()
        return
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _mark = []
