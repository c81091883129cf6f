"""What the demo is asked to do, checked before anything is built, loaded or started."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.batching import POLICIES, Profile, UsageError, find_policy
from headrace.host.demo.inputs.images import Photo
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.xrt import Api

BEFOREHAND = "beforehand"  # every photo was made a tensor, by the DPU, before the run: the workers alone are loaded
PREPROCESSORS = (BEFOREHAND, "cpu", "dpu")
DEMO_POLICIES = tuple(name for name in POLICIES if find_policy(name).tasks != "cells")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`weights` and `input_shapes` are empty or have one for each of `models`, of which some may be None. `profiles`
    are found by their models' names; what has none is measured. `workers` of None are as many as there are devices.

    Networks are cut into nodes if a policy schedules nodes, or a profile has their latencies; `whole` keeps them in one
    piece, as those must be that cannot be cut. Without `rate_rps` loads are chosen (load.py), and without `requests` a
    run takes a few seconds.
    Raises UsageError."""

    photos: Sequence[Photo]
    models: Sequence[str] = ("mobilenet_v3_small",)
    weights: Sequence[str | None] = ()
    rules: FileRules = ANY_FILE  # for the files of all models
    input_shapes: Sequence[str | None] = ()
    profiles: Sequence[Profile] = ()
    requests: int | None = None
    rate_rps: float | None = None
    workers: int | None = None
    npus: int = 0  # simulated NPUs instead of workers
    whole: bool = False
    policies: Sequence[str] = ("serial", "graph", "preba")
    preprocessors: Sequence[str] = PREPROCESSORS
    window_s: float = 0.005
    max_batch: int = 32
    sla_s: float = 0.5
    drain_timeout_s: float = 120.0  # after a run's last arrival; what has no answer by then has failed
    seed: int = 0
    api: Api | None = None  # whose device the DPU is on; as `xrt.api_for`

    def __post_init__(self) -> None:
        check_names("policies", self.policies, DEMO_POLICIES)
        check_names("preprocessors", self.preprocessors, PREPROCESSORS)
        check_names("models", self.models)
        for name, given in (("weights", self.weights), ("input shapes", self.input_shapes)):
            if given and len(given) != len(self.models):
                raise UsageError(f"{len(given)} {name} for {len(self.models)} models; give one for each, or none")
        for profile in self.profiles:
            if profile.model not in self.models:
                raise UsageError(
                    f"the profile is of {profile.model!r} and the model is {' and '.join(map(repr, self.models))}; "
                    f"run `headrace profile --model {self.models[0]}`"
                )
        if self.requests is not None and self.requests < 1:
            raise UsageError(f"{self.requests} requests asked for; give at least 1")
        if self.rate_rps is not None and not 0 < self.rate_rps < math.inf:
            raise UsageError(f"the rate is {self.rate_rps} requests/s; give a rate above 0, or none to have one chosen")


def check_names(what: str, names: Sequence[str], known: Sequence[str] = ()) -> None:
    """At least one, none twice, and only `known` ones if there are any. Raises UsageError."""
    unknown = [name for name in names if known and name not in known]
    if not names:
        raise UsageError(f"no {what} given; name at least one")
    if unknown:
        cells = "serves networks of cells, which these are not" if unknown[0] in POLICIES else "is not one of them"
        raise UsageError(f"{what}: {unknown[0]!r} {cells}; choose from {', '.join(known)}")
    if len(set(names)) < len(names):
        raise UsageError(f"{what} {', '.join(names)}: name each once")
