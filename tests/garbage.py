"""Garbage collection between tests, for those that see something end with its last user."""

import gc

_mark: list[object] = []  # frozen, unless `collect` has made it after the last freeze


def collect() -> None:
    """Collect all garbage, also objects that a runtime of another test froze while they were in use.

    A search of all imported modules takes half a second. They stay frozen unless something was frozen since."""
    global _mark
    if any(each is _mark for generation in range(3) for each in gc.get_objects(generation=generation)):
        gc.collect()
        return
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _mark = []
