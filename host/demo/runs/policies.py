"""Make the policies of the live runs and of the simulated server, with the settings of the demo's options."""

from collections.abc import Mapping

from headrace.batching import NodeTimes, Policy, Profile, make_policy
from headrace.host.demo.options import DemoOptions


def policy_of(
    options: DemoOptions,
    name: str,
    times: Mapping[str, NodeTimes],
    workers: int,
    profiles: Mapping[str, Profile],
    *,
    late_tables: bool = False,
    dec_timesteps: Mapping[str, int] | None = None,
) -> Policy:
    """Return a new policy with the settings of the options. With `late_tables`, `smdp` gets its tables later."""
    return make_policy(
        name,
        times,
        workers=workers,
        window_s=options.window_s,
        max_batch=options.max_batch,
        profiles=profiles,
        tables={} if late_tables else None,
        dec_timesteps=dec_timesteps,
    )
