"""The demo's options. They are checked before anything is built, loaded or started."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.batching import POLICIES, Profile, UsageError, find_policy
from headrace.host.demo.inputs.images import ImageFile
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.xrt import Api

BEFOREHAND = "beforehand"  # the tensors are made before the run, so that the run loads the workers alone
PREPROCESSORS = (BEFOREHAND, "cpu", "dpu")
DEMO_POLICIES = tuple(name for name in POLICIES if find_policy(name).tasks != "cells")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of all three demos.

    `weights` and `input_shapes` are empty, or have one entry for each of `models`; an entry may be None. A profile
    belongs to the model that it names. The demo measures the profiles that are not given. If `workers` is None, there
    are as many workers as devices.

    The demo cuts networks into nodes if a policy schedules nodes, or if a profile has latencies of nodes. `whole`
    keeps a network in one piece if it cannot be cut. Without `rate_rps` the demo chooses the loads (load.py). Without
    `requests` a run takes a few seconds.

    Raises UsageError."""

    images: Sequence[ImageFile]
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
    slo_s: float = 0.5
    drain_timeout_s: float = 120.0  # after a run's last arrival; requests without an answer then count as failed
    seed: int = 0
    api: Api | None = None  # which XRT the DPU uses, as in `xrt.api_for`

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
            raise UsageError(f"{self.requests} requests; give at least 1")
        if self.rate_rps is not None and not 0 < self.rate_rps < math.inf:
            raise UsageError(f"the rate is {self.rate_rps} requests/s; give a rate above 0, or none to have one chosen")


def check_names(what: str, names: Sequence[str], known: Sequence[str] = ()) -> None:
    """Check that there is at least one name, that none occurs twice, and that all are among `known` if it is given.

    Raises UsageError."""
    unknown = [name for name in names if known and name not in known]
    if not names:
        raise UsageError(f"no {what} given; name at least one")
    if unknown:
        fault = "serves networks of cells, and the demo has none" if unknown[0] in POLICIES else "is not one of them"
        raise UsageError(f"{what}: {unknown[0]!r} {fault}; choose from {', '.join(known)}")
    if len(set(names)) < len(names):
        raise UsageError(f"{what} {', '.join(names)}: name each once")
