"""The tables of the policy `smdp` are solved in the background, while the policy already serves.

Rule: solving takes seconds, so it runs in a thread. Until a model has its tables, `SmdpBatching` serves all requests
that wait in one batch, up to `max_batch`.
"""

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
    """Solve the tables of `policy` while the block runs, if it is an `SmdpBatching`. Other policies need none.

    The tables minimise the mean latency, because nothing measures energy here. The end of the block waits for the
    solver; an exception in the block stops it.

    Args:
        policy: The policy that serves.
        times: The node times of each model.
        profiles: The profile of each model. A table uses no batch beyond the measured ones.
        max_batch: The largest batch that the policy may use.
        workers: The number of workers.
    """
    if not isinstance(policy, SmdpBatching):
        yield
        return

    services = {
        # Latencies of batches that were not measured are only extrapolated.
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
