"""`@pytest.mark.quick(n)`: n cases of a parametrised test stay in `make test`, and the others are `slow`.

`quick(csim=40, rtlsim=12)` thins out the cases of each of these names by themselves, and leaves all others. The choice
covers as many parts of the names as it can: each sampling, quality, size or kind of damage once before any of them
twice. It depends on the names alone, so that all processes of a run agree.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest


def chosen(names: Sequence[str], count: int) -> set[str]:
    """Return `count` of the names, each the one whose parts (and words of parts) were taken least often so far."""
    order = _spread(names)
    sizes = [len(_parts(name)) for name in order]
    holders = defaultdict(list)
    for at, name in enumerate(order):
        for part in _parts(name):
            holders[part].append(at)
    times = [0] * len(order)  # how often the parts of each name were taken
    left, taken = set(range(len(order))), set()
    while left and len(taken) < count:
        best = min(left, key=lambda at: (times[at] / sizes[at], at))
        taken.add(order[best])
        left.remove(best)
        for part in _parts(order[best]):
            for at in holders[part]:
                times[at] += 1
    return taken


def mark_others_slow(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that `quick` leaves out, of each test by itself; those that are slow already do not count."""
    groups: dict[tuple, list[pytest.Function]] = defaultdict(list)
    counts: dict[tuple, int] = {}
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is None or item.get_closest_marker("slow") is not None:
            continue
        every = {"": mark.args[0]} if mark.args else mark.kwargs
        for kind in [kind for kind in every if not kind or kind in item.callspec.id.split("-")]:
            key = (item.path, item.originalname, kind)
            groups[key].append(item)
            counts[key] = every[kind]
    for key, cases in groups.items():
        quick = chosen([case.callspec.id for case in cases], counts[key])
        for case in cases:
            if case.callspec.id not in quick:
                case.add_marker(pytest.mark.slow)


@functools.cache
def _parts(name: str) -> set[tuple[int, int, str]]:
    """Return the arguments of a case by their place, and the words of each by theirs."""
    arguments = list(enumerate(name.split("-")))
    words = [(place, at, word) for place, part in arguments for at, word in enumerate(re.split(r"[ :_.]", part))]
    return {*((place, -1, part) for place, part in arguments), *words}


def _spread(names: Sequence[str]) -> list[str]:
    """Return all names in an order of which each beginning is spread over the whole."""
    golden = 0.6180339887498949
    return [names[at] for at in sorted(range(len(names)), key=lambda at: (at * golden) % 1)]
