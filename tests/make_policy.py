"""Makes policies for tests, from what most of them give: latencies, workers, a window and a limit."""

from headrace.batching import PolicyContext, policy_with
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching


def make_policy(
    name,
    times,
    *,
    workers,
    window_s,
    max_batch,
    profiles=None,
    dec_timesteps=None,
    tables=None,
    cells=None,
    merge_s=None,
    **settings,
):
    """Return a new policy for one run. Settings that the policy does not have are left out.

    `merge_s` is of `dynamic-graph`, for which it is no setting."""
    if name == "dynamic-graph" and merge_s is not None:
        return DynamicGraphBatching(cells.values(), workers, max_batch, merge_s)
    context = PolicyContext(
        times,
        workers,
        profiles,
        cells=cells,
        steps_of=None if dec_timesteps is None else lambda coverage: dec_timesteps,
        tables=tables,
    )
    return policy_with(name, window_ms=window_s * 1e3, max_batch=max_batch, **settings).build(context)
