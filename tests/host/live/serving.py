"""A runtime on real worker processes for a test's body, and what holds whenever that has ended."""

import asyncio
from pathlib import Path

import pytest

from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes

NETS = Path(__file__).parents[1] / "workers"


@pytest.fixture
def with_the_networks(monkeypatch):
    """Workers find the modules of the small networks."""
    monkeypatch.chdir(NETS)
    monkeypatch.syspath_prepend(str(NETS))


class PerNode:
    """One millisecond a node, whatever the batch: joining always pays."""

    def latency(self, node, batch, length):
        return 1e-3


def serve(policy, tasks, body, *, workers=1, on_execution=None, **settings):
    """`body(runtime, pool)` with the policy and the tasks; then nothing may be in flight, and all memory free."""

    chosen = RuntimeSettings(**settings)

    async def run():
        async with WorkerPool(processes(tasks.program(), worker_devices(workers))) as pool:
            async with Runtime(policy, pool, tasks, chosen, on_execution=on_execution) as runtime:
                result = await body(runtime, pool)
            runtime.ledger.check()
            assert runtime.ledger.in_flight == 0
            return result

    try:
        return asyncio.run(run())
    finally:
        tasks.close()


def balanced(runtime) -> bool:
    ledger = runtime.ledger
    ended = ledger.finished + ledger.failed + ledger.shed + ledger.dropped + ledger.cancelled
    return ledger.submitted == ended and ledger.in_flight == 0
