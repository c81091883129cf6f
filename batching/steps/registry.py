"""The step policies by name. Each name stands for a class of settings with a method `build(context)`."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from headrace.batching.errors import LONGEST_NAME, UsageError
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


STEP_POLICIES: Mapping[str, type[StepPolicySettings]] = {
    "continuous": Continuous,
    "token-deadline": TokenDeadline,
    "lazy": LazySteps,
    "cellular": CellularSteps,
    "prefill-first": PrefillFirst,
}


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
    if policy not in STEP_POLICIES:
        raise UsageError(
            f"policy {policy[:LONGEST_NAME]!r}: there is no such policy of steps; choose from "
            f"{', '.join(STEP_POLICIES)}"
        )
    return read_settings(STEP_POLICIES[policy], given or {}, what=f"policy {policy}")


def step_policy_name(settings: StepPolicySettings) -> str:
    """Return the name of the policy of these settings: that of a built-in policy, or `module:Class`."""
    cls = type(settings)
    return next((name for name, known in STEP_POLICIES.items() if known is cls), f"{cls.__module__}:{cls.__qualname__}")
