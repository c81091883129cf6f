"""Make the policies of the live runs and of the simulated server, with the settings of the demo's options."""

from headrace.batching import Policy, PolicyContext, policy_with
from headrace.host.demo.options import DemoOptions


def policy_of(options: DemoOptions, name: str, context: PolicyContext) -> Policy:
    """Return a new policy for one run."""
    return policy_with(name, window_ms=options.window_s * 1e3, max_batch=options.max_batch).build(context)
