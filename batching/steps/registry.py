"""The step policies by name: built-in ones, those of installed packages, and a user's own.

A step policy is named as other policies are (batching/registry.py). Installed packages give names in the group
`headrace.step_policies`, because one name may stand for a policy of each kind.

Each name stands for a class of settings: a frozen dataclass with `tasks = "steps"` and a method `build(context)`, which
returns the policy for one replica (policy.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Final, Protocol, cast, runtime_checkable

from headrace.batching.errors import LONGEST_NAME, UsageError
from headrace.batching.named import installed, is_own, own
from headrace.batching.settings import check_policy_object, read_settings
from headrace.batching.steps.cellular import CellularSteps
from headrace.batching.steps.continuous import Continuous
from headrace.batching.steps.lazy import LazySteps
from headrace.batching.steps.policy import StepContext, StepPolicy
from headrace.batching.steps.prefill_first import PrefillFirst
from headrace.batching.steps.token_deadline import TokenDeadline


@runtime_checkable
class StepPolicySettings(Protocol):
    """The settings of a step policy. They make the policy for one replica."""

    def build(self, context: StepContext) -> StepPolicy:
        """Return the policy for one replica. Raises UsageError."""
        ...


STEP_GROUP: Final = "headrace.step_policies"  # the group of entry points
STEPS: Final = "steps"  # the tasks of every step policy
STEP_POLICIES: Mapping[str, type[StepPolicySettings]] = {
    "continuous": Continuous,
    "token-deadline": TokenDeadline,
    "lazy": LazySteps,
    "cellular": CellularSteps,
    "prefill-first": PrefillFirst,
}


@dataclass(frozen=True, slots=True)
class FoundStepPolicy:
    """A step policy that was found by its name.

    Args:
        cls: The class of its settings.
        source: The module and class, or the value of the entry point.
        package: The package that it came with; None for a class that was named as `module:Class`.
    """

    cls: type[StepPolicySettings]
    source: str
    package: str | None


def step_policy_names() -> list[str]:
    """Return the names of all step policies: built-in ones, then those of installed packages."""
    return [*STEP_POLICIES, *sorted(name for name in installed(STEP_GROUP) if name not in STEP_POLICIES)]


def find_step_policy(name: str, where: str) -> FoundStepPolicy:
    """Return the step policy with this name. The head of this file lists the kinds of names.

    Raises UsageError that begins with `where`."""
    if name in STEP_POLICIES:
        built_in = STEP_POLICIES[name]
        return FoundStepPolicy(built_in, f"{built_in.__module__}:{built_in.__qualname__}", "headrace")
    if not is_own(name, STEP_GROUP):
        raise UsageError(
            f"{where} {name[:LONGEST_NAME]!r}: there is no such policy for models that decode; choose from "
            f"{', '.join(step_policy_names())}, or give module:Class"
        )
    point = installed(STEP_GROUP).get(name)
    source = name if point is None else point.value
    cls = own(where, name, STEP_GROUP)
    if not isinstance(cls, type) or not is_dataclass(cls) or not callable(getattr(cls, "build", None)):
        raise UsageError(f"{where} {name!r}: {source} must be a dataclass of settings with a method build(context)")
    if (tasks := getattr(cls, "tasks", "graph")) != STEPS:
        raise UsageError(
            f"{where} {name!r}: its tasks are {tasks!r:.20}, so it is no policy for models that decode; give the class "
            f'tasks = "{STEPS}", or choose from {", ".join(step_policy_names())}'
        )
    package = None if point is None or point.dist is None else point.dist.name
    return FoundStepPolicy(cast("type[StepPolicySettings]", cls), source, package)


def step_policy_settings(
    policy: str | StepPolicySettings, given: Mapping[str, Any] | None = None
) -> StepPolicySettings:
    """Return the settings of a step policy.

    Args:
        policy: The policy's name, or settings that are made already.
        given: Values by the settings' names, for a policy that is named.

    Raises:
        UsageError: The name or a value is wrong, or values are given for settings that are made already.
    """
    if not isinstance(policy, str):
        check_policy_object(policy, StepPolicySettings, given)
        return policy
    return read_settings(find_step_policy(policy, "policy").cls, given or {}, what=f"policy {policy}")


def step_policy_name(settings: StepPolicySettings) -> str:
    """Return the name of the policy of these settings: of a built-in one or an entry point, or `module:Class`."""
    cls = type(settings)
    place = f"{cls.__module__}:{cls.__qualname__}"
    built_in = next((name for name, known in STEP_POLICIES.items() if known is cls), None)
    return built_in or next((name for name, point in installed(STEP_GROUP).items() if point.value == place), place)
