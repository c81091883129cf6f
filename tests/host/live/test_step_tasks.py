"""Step models under node-level policies on real worker processes, with networks that are cut into nodes."""

import asyncio
import os
import signal

import numpy as np
import pytest
from make_policy import make_policy
from serving import PerNode, balanced, serve, with_the_networks  # noqa: F401 - a fixture

from headrace.batching import BadInput, GraphBatching, LazyBatching, NodeTimes
from headrace.host.live.tasks.nodes import SplitTasks
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.split.network import node_model
from headrace.host.workers.networks.step_models import load_steps, run_alone, step_nodes

RESIDUAL = "split_nets:residual"
TRANSFORMER = Network("transformer", "transformer", hidden=32, vocabulary=50, heads=2, longest_input=24)
SEQ2SEQ = Network("seq2seq", "seq2seq", hidden=32, vocabulary=50)
LSTM = Network("lstm", "lstm", hidden=16, vocabulary=50)
STEPS = 12


pytestmark = pytest.mark.usefixtures("with_the_networks")


def made(*networks, slots=128):
    step_models = [step_nodes(network, 64) for network in networks]
    graphs = {model.name: graph for model, graph in step_models}
    times = {name: NodeTimes(graph, PerNode()) for name, graph in graphs.items()}
    return SplitTasks([], graphs, slots, [model for model, _ in step_models]), times


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(2, 50, rng.integers(1, 20)).tolist() for _ in range(count)]


async def staggered(runtime, network, values, gap_s=0.001):
    async def one(number, value):
        await asyncio.sleep(number * gap_s)
        return await runtime.infer(network.name, value, output_len=STEPS)

    return await asyncio.gather(*(one(number, value) for number, value in enumerate(values)))


def check(network, values, done):
    loaded = load_steps(network)
    for value, inference in zip(values, done, strict=True):
        expected = run_alone(loaded, value, max_steps=STEPS)
        if isinstance(expected, list):
            assert inference.output.tolist() == expected
        else:
            np.testing.assert_allclose(inference.output, expected.numpy(), atol=1e-5)


@pytest.mark.quick(5)
@pytest.mark.timed  # sentences join where the load leaves a worker time for it
@pytest.mark.parametrize("network", (TRANSFORMER, SEQ2SEQ, LSTM), ids=lambda network: network.name)
@pytest.mark.parametrize("policy", ("lazy", "graph", "serial", "preba", "preba-lazy"))
def test_sentences_of_all_lengths_get_what_they_would_alone(network, policy):
    tasks, times = made(network)
    executions = []

    async def body(runtime, _):
        values = sentences(40)
        check(network, values, await staggered(runtime, network, values))

    chosen = make_policy(policy, times, workers=1, window_s=0.002, max_batch=8, dec_timesteps={network.name: STEPS})
    serve(chosen, tasks, body, on_execution=executions.append)
    assert all(e.error is None for e in executions)
    assert (max(e.task.batch_size for e in executions) > 1) == (policy != "serial")
    if policy == "lazy" and network is not LSTM:  # whose steps take no time
        assert any(e.task.reason == "merge" for e in executions)


def test_a_transformer_and_a_cut_network_share_a_worker():
    steps, times = made(TRANSFORMER)
    steps.close()
    model, graph = node_model(RESIDUAL, 8)
    both = SplitTasks([model], {model.name: graph, **{n: t.graph for n, t in times.items()}}, 128, steps.step_models)
    times = {model.name: NodeTimes(graph, PerNode()), **times}

    async def body(runtime, _):
        values = sentences(20)
        image = np.random.default_rng(1).standard_normal(model.inputs[0].shape, np.float32)
        done, *images = await asyncio.gather(
            staggered(runtime, TRANSFORMER, values), *(runtime.infer(RESIDUAL, image) for _ in range(20))
        )
        check(TRANSFORMER, values, done)
        for other in images[1:]:
            np.testing.assert_allclose(other.output, images[0].output, atol=1e-5)

    serve(LazyBatching(times, 1, 8, {TRANSFORMER.name: STEPS}), both, body)


def test_a_worker_killed_between_two_steps_costs_nobody_an_answer():
    tasks, times = made(TRANSFORMER)

    async def body(runtime, pool):
        values = sentences(100)
        calls = asyncio.create_task(staggered(runtime, TRANSFORMER, values))
        await asyncio.sleep(0.06)
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        check(TRANSFORMER, values, await calls)
        assert runtime.statistics().workers_lost == 1 and balanced(runtime)

    serve(LazyBatching(times, 1, 8, {TRANSFORMER.name: STEPS}), tasks, body, attempts=3)


@pytest.mark.parametrize(
    ("value", "steps", "message"),
    [
        ([], 5, "empty"),
        ("words", 5, "list of token ids"),
        ([51], 5, "0 to 49"),
        ([2] * 25, 5, "at most 24"),
        ([2], 0, "max_steps"),
        ([2], 129, "fewer"),
    ],
)
def test_what_has_no_room_or_is_no_sentence_is_refused_and_the_next_is_served(value, steps, message):
    tasks, times = made(TRANSFORMER)

    async def body(runtime, _):
        with pytest.raises(BadInput, match=message):
            await runtime.infer(TRANSFORMER.name, value, output_len=steps)
        assert runtime.ledger.submitted == 0
        check(TRANSFORMER, [[3, 4]], await staggered(runtime, TRANSFORMER, [[3, 4]]))

    serve(GraphBatching([times[TRANSFORMER.name].graph], 0.0, 8), tasks, body)
