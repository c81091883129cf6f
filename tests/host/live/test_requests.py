"""No file is written for a request whose caller has an error, though the request runs on."""

import asyncio
import itertools
import math

import pytest
from virtual_worker import OPAQUE

from headrace.batching import CheckedPolicy, SerialBatching
from headrace.host.live.requests import Requests
from headrace.host.live.results import NoWorker


class Tasks:
    """Admits every request, and notes which were abandoned and which released."""

    def __init__(self):
        self.abandoned, self.released = [], []

    def admit(self, id, model, value):
        return 1, 1

    def abandon(self, request):
        self.abandoned.append(request.id)

    def release(self, request):
        assert request.id not in self.released
        self.released.append(request.id)


@pytest.mark.parametrize("end", ["answer_all", "fail_all"])
def test_a_request_that_runs_on_after_an_error_is_abandoned_first(end):
    async def body():
        tasks = Tasks()
        requests = Requests(tasks, itertools.count())
        policy = CheckedPolicy(SerialBatching([OPAQUE]), {"net": None}, False, requests.ledger)
        request = requests.admit("net", None, 0.0, math.inf, {})
        policy.submit(request, 0.0)
        in_flight = requests.add(request, policy, 0.0, math.inf)
        task = policy.next_task(0, 0.0)
        requests.begin(task.requests, 0.0)
        error = NoWorker("no worker is left")
        if end == "answer_all":
            assert not requests.answer_all(error, 1.0)
        else:
            requests.fail_all(error)
        with pytest.raises(NoWorker):
            await in_flight.answer
        assert tasks.abandoned == [request.id] and not tasks.released

    asyncio.run(body())
