"""The live runtime in virtual time does what the simulator does, to the nanosecond and to the task.

These are the policies that run nodes or whole graphs. `cellular` and `dynamic-graph` run cells, and are not here."""

import asyncio
import math
import random

import pytest
from make_policy import make_policy
from virtual_worker import OPAQUE, STRAIGHT, TRANSLATOR, serve, value

from headrace.batching import NodeTimes
from headrace.sim.engine import Arrivals, run

REQUESTS = 300
POLICIES = (
    "serial",
    "graph",
    "static",
    "work-conserving",
    "bucketed-graph",
    "lazy",
    "lazy eq2",
    "lazy batched",
    "oracle",
    "preba",
    "smdp",
    "preba-lazy",
    "deferred",
    "earliest-deadline",
)


class Sublinear:
    """Latency grows with the batch, but less than in proportion, and differs from node to node."""

    def latency(self, node, batch, length):
        return (0.4 + 0.1 * batch + 0.03 * node) * 1e-3


def load(graph, workers, seed):
    """Poisson arrivals, more than workers can serve one by one and less than they can in batches, with deadlines."""
    rng = random.Random(seed)
    at, now = [], 0.0
    for _ in range(REQUESTS):
        now += rng.expovariate(250.0 * workers)
        at.append(now)
    lengths = [(1, 1) if graph is STRAIGHT else (rng.randint(1, 6), rng.randint(1, 6)) for _ in at]
    return at, [t + rng.uniform(0.01, 0.05) for t in at], lengths


@pytest.mark.quick(18)
@pytest.mark.parametrize("drop_late", [False, True], ids=["all", "drop_late"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("graph", [STRAIGHT, TRANSLATOR], ids=["straight", "translator"])
@pytest.mark.parametrize("name", POLICIES)
def test_what_is_simulated_is_what_is_served(name, graph, workers, drop_late):
    compare(name, NodeTimes(graph, Sublinear()), workers, drop_late)


class ByTokens:
    """Latency grows with the tokens of the batch."""

    def latency(self, node, batch, length):
        return (1.0 + 0.8 * batch * length) * 1e-3


@pytest.mark.quick(9)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("times", [NodeTimes(TRANSLATOR, Sublinear()), NodeTimes(OPAQUE, ByTokens(), joined=True)])
@pytest.mark.parametrize("name", sorted({*POLICIES} - {"serial"}))
def test_it_is_also_with_a_bound_on_the_tokens_of_a_batch(name, times, workers):
    served = compare(name, times, workers, False, max_batch_tokens=12, bucket_width=2)
    tokens = [sum(lengths) for lengths in served]
    assert max(tokens) <= 12 and max(tokens) > 6 and max(map(len, served)) > 1


def compare(name, known, workers, drop_late, **more):
    """Assert that the simulator and the runtime do the same, and return the input lengths of each task."""
    graph, times = known.graph, {"net": known}
    at, deadlines, lengths = load(graph, workers, f"{name}{workers}")

    policy_name, *slack = name.split()

    def policy():
        settings = {**more, **({"slack": slack[0]} if slack else {})}
        return make_policy(
            policy_name, times, workers=workers, window_s=0.01, max_batch=8, dec_timesteps={"net": 4}, **settings
        )

    arrivals = Arrivals(["net"] * len(at), at, deadlines, [float(i) for i, _ in lengths], [o for _, o in lengths])
    simulated = run(policy(), arrivals, times, workers, True, drop_late=drop_late)

    async def body(runtime, _, served):
        async def request(number):
            inputs, outputs = lengths[number]
            done = await runtime.infer("net", value(), deadline=deadlines[number], input_len=inputs, output_len=outputs)
            return done.served.finished

        calls = []
        for number, when in enumerate(at):
            await asyncio.sleep(when - runtime.now())
            calls.append(asyncio.create_task(request(number)))
        return await asyncio.gather(*calls, return_exceptions=True), runtime.statistics(), runtime.ledger, served

    done, statistics, ledger, served = serve(
        policy(), times, body, workers=workers, slots=REQUESTS, drop_late=drop_late
    )
    finished = [-1.0 if isinstance(one, Exception) else one for one in done]
    assert finished == pytest.approx(simulated.finished, abs=1e-9, rel=0)
    assert (ledger.finished, ledger.dropped) == (simulated.ledger.finished, simulated.ledger.dropped)
    assert ledger.finished + ledger.dropped == REQUESTS
    assert statistics.tasks == simulated.tasks
    assert statistics.node_runs == simulated.node_runs
    assert statistics.busy_s == pytest.approx(simulated.busy_s)
    assert math.fsum(e.ended - e.started for e in served.executions) == pytest.approx(simulated.busy_s)
    return [[request.input_len for request in execution.task.requests] for execution in served.executions]
