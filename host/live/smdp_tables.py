"""The tables of `smdp`, solved while it already serves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from headrace.batching import NodeTimes, Policy, Profile, SmdpBatching
from headrace.batching.smdp import BatchService, Weights
from headrace.batching.smdp.tables import rate_tables


@contextlib.asynccontextmanager
async def solve_tables_in_background(
    policy: Policy, times: Mapping[str, NodeTimes], profiles: Mapping[str, Profile], max_batch: int, workers: int
) -> AsyncIterator[None]:
    """`smdp` gets its tables while it already serves: they are solved in a thread, for the least mean latency, as
    nothing here measures energy."""
    if not isinstance(policy, SmdpBatching):
        yield
        return

    services = {
        # Beyond the profile's points latencies are only extrapolated.
        model: BatchService.of_times(
            times[model], min(max_batch, profile.curve(profile.typical_length)[-1].batch), (profile.typical_length, 1)
        )
        for model, profile in profiles.items()
    }

    async def solve() -> None:
        for model, service in services.items():
            policy.install(model, await asyncio.to_thread(rate_tables, service, Weights(), workers))

    solving = asyncio.create_task(solve())
    try:
        yield
        await solving
    finally:
        solving.cancel()
