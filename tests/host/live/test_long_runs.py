"""A long run, for `make test-all`: memory stays flat."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
from serving import balanced, serve
from small_nets import NET, OTHER, graphs, small, tasks, tensor  # noqa: F401 - a fixture

from headrace.batching import WorkConservingBatching

pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.usefixtures("small"), pytest.mark.timeout(1200)]


def resident_mib() -> float:
    return int(Path(f"/proc/{os.getpid()}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_a_million_requests_leave_memory_flat():
    async def body(runtime, _):
        x = np.ones(2, np.float32)
        sizes = []
        left = 1_000_000

        async def caller():
            nonlocal left
            while left > 0:
                left -= 1
                inference = await runtime.infer(OTHER, x, deadline=runtime.now() + 3600)
                assert inference.output[2] == 2
                if left % 100_000 == 0:
                    sizes.append(resident_mib())

        await asyncio.gather(*(caller() for _ in range(64)))
        assert runtime.ledger.finished >= 1_000_000 and balanced(runtime)
        assert sizes[-1] - sizes[1] < 4, sizes  # MiB; one that keeps a reference a request takes 8 and more

    serve(
        WorkConservingBatching(graphs([OTHER]), 32),
        tasks(slots=64, sources=[OTHER], max_batch=32),
        body,
        drop_late=True,
    )
