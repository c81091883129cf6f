"""A small space of partitions and parameters, in which tests place models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from headrace.sim.hardware.gpu.mig import GPUS, gpu_named
from headrace.sim.planner import allocate, bounds, capacity, space
from headrace.sim.planner import target as target_module

GPU = "a100-40gb"
FEW = (("7g.40gb",), ("3g.20gb", "4g.20gb"), ("3g.20gb", "3g.20gb"))


@contextmanager
def few_slices() -> Iterator[None]:
    profiles = GPUS[GPU].profiles
    few = [tuple(profiles[name] for name in names) for names in FEW]
    kinds = {name: profiles[name] for name in ("3g.20gb", "4g.20gb", "7g.40gb")}
    with pytest.MonkeyPatch.context() as patch:
        for module in (allocate, space):
            patch.setattr(module, "partitions", lambda gpu, full: few)
        patch.setattr(capacity, "gpu_named", lambda name: replace(gpu_named(name), profiles=kinds))
        patch.setattr(space, "CUS", (2,))
        patch.setattr(space, "SOCKETS", (1,))
        patch.setattr(space, "WINDOWS", (1 / 4,))
        patch.setattr(bounds, "BATCHES", (4,))
        patch.setattr(target_module, "SHORTEST", 1500)
        for cached in (bounds.bounds, allocate._different):
            cached.cache_clear()
        yield
    for cached in (bounds.bounds, allocate._different):
        cached.cache_clear()
