"""The demo's options. They are checked before anything is built, loaded or started."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.batching import POLICIES, Profile, UsageError, find_policy, policy_with
from headrace.batching.registry import PolicySettings
from headrace.host.demo.inputs.images import ImageFile
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.xrt import Api

BEFOREHAND = "beforehand"  # the tensors are made before the run, so that the run loads the workers alone
PREPROCESSORS = (BEFOREHAND, "cpu", "dpu")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of all three demos.

    `models` take the tensors that were made beforehand. `file_models` take files, which are preprocessed in the run;
    without any, `models` do that too. `weights` and `input_shapes` are empty, or have one entry for each of `models`;
    an entry may be None. A profile belongs to the model that it names. The demo measures the profiles that are not
    given. If `workers` is None, there are as many workers as devices.

    The demo cuts networks into nodes if a policy schedules nodes, or if a profile has latencies of nodes. `whole`
    keeps a network in one piece if it cannot be cut. Without `rate_rps` the demo chooses the loads, and without `slo_s`
    the target latency (load.py). Without `requests` a run takes a few seconds.

    `settings` are settings of policies by name, as texts or values. Each policy takes those that it has, and at least
    one policy must have each of them.

    Raises UsageError."""

    images: Sequence[ImageFile]
    models: Sequence[str] = ("mobilenet_v3_small",)
    file_models: Sequence[str] = ()
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
    settings: Mapping[str, Any] = field(default_factory=dict)
    preprocessors: Sequence[str] = PREPROCESSORS
    max_batch: int = 32  # largest batch to profile, and the limit of policies that have one
    slo_s: float | None = None
    drain_timeout_s: float = 120.0  # after a run's last arrival; requests without an answer then count as failed
    seed: int = 0
    api: Api | None = None  # which XRT the DPU uses, as in `xrt.api_for`

    def __post_init__(self) -> None:
        self._check_policies()
        check_names("preprocessors", self.preprocessors, PREPROCESSORS)
        check_names("models", self.models)
        for name, given in (("weights", self.weights), ("input shapes", self.input_shapes)):
            if given and len(given) != len(self.models):
                raise UsageError(f"{len(given)} {name} for {len(self.models)} models; give one for each, or none")
        for profile in self.profiles:
            if profile.model not in (*self.models, *self.file_models):
                raise UsageError(
                    f"the profile is of {profile.model!r} and the model is {' and '.join(map(repr, self.models))}; "
                    f"run `headrace profile --model {self.models[0]}`"
                )
        if self.requests is not None and self.requests < 1:
            raise UsageError(f"{self.requests} requests; give at least 1")
        if self.rate_rps is not None and not 0 < self.rate_rps < math.inf:
            raise UsageError(f"the rate is {self.rate_rps} requests/s; give a rate above 0, or none to have one chosen")

    def _check_policies(self) -> None:
        check_names("policies", self.policies)
        entries = [find_policy(name, "policies:") for name in self.policies]
        for entry in entries:
            if entry.tasks == "cells":
                taken = [name for name in POLICIES if find_policy(name).tasks != "cells"]
                raise UsageError(
                    f"policies: {entry.name!r} serves networks of cells, and the demo has none; choose from "
                    f"{', '.join(taken)}, or give module:Class"
                )
        known = dict.fromkeys(each.name for entry in entries for each in entry.settings)
        for name in self.settings:
            if name not in known:
                raise UsageError(
                    f"--set {name}: none of the policies {', '.join(self.policies)} has this setting; known are "
                    f"{', '.join(known) or 'none'}"
                )
        for name in self.policies:
            self.policy(name)

    @property
    def first_preprocessor(self) -> str:
        """The preprocessor of the runs that compare the policies: none at all, if there are such runs."""
        return min(self.preprocessors, key=PREPROCESSORS.index)

    @property
    def last_preprocessor(self) -> str:
        """The preprocessor that does most for a run."""
        return max(self.preprocessors, key=PREPROCESSORS.index)

    def models_of(self, preprocessor: str) -> Sequence[str]:
        """Return the networks of the runs with a preprocessor."""
        return self.models if preprocessor == BEFOREHAND else self.file_models or self.models

    def policies_of(self, preprocessor: str) -> Sequence[str]:
        """Return the policies of the runs with a preprocessor.

        The runs from files only show that the whole chain works if other runs compare the policies. Then they have the
        last policy alone."""
        if BEFOREHAND in self.preprocessors and preprocessor != BEFOREHAND:
            return self.policies[-1:]
        return self.policies

    @property
    def used_models(self) -> list[str]:
        """The networks of all runs."""
        return list(dict.fromkeys(name for kind in self.preprocessors for name in self.models_of(kind)))

    def policy(self, name: str) -> PolicySettings:
        """Return a policy with those of the settings that it has. Raises UsageError."""
        return policy_with(name, **{"max_batch": self.max_batch, **self.settings})


def check_names(what: str, names: Sequence[str], known: Sequence[str] = ()) -> None:
    """Check that there is at least one name, that none occurs twice, and that all are among `known` if it is given.

    Raises UsageError."""
    unknown = [name for name in names if known and name not in known]
    if not names:
        raise UsageError(f"no {what} given; name at least one")
    if unknown:
        raise UsageError(f"{what}: {unknown[0]!r} is not one of them; choose from {', '.join(known)}")
    if len(set(names)) < len(names):
        raise UsageError(f"{what} {', '.join(names)}: name each once")
