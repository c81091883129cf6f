"""Makes policies for tests, from what most of them give: latencies, workers, a window and a limit."""

from headrace.batching import PolicyContext, policy_with


def make_policy(
    name, times, *, workers, window_s, max_batch, profiles=None, dec_timesteps=None, tables=None, cells=None, **settings
):
    """Return a new policy for one run. Settings that the policy does not have are left out."""
    context = PolicyContext(
        times,
        workers,
        profiles,
        cells=cells,
        steps_of=None if dec_timesteps is None else lambda coverage: dec_timesteps,
        tables=tables,
    )
    return policy_with(name, window_ms=window_s * 1e3, max_batch=max_batch, **settings).build(context)
