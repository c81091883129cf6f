"""Cellular batching on real cells and worker processes: every output equals the one of the request run alone, whatever
it was batched with and whatever happened to the workers; and what is wrong with an input is said."""

import asyncio
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from headrace.batching import BadInput, Profile, UnknownModel, UsageError
from headrace.batching.policies.cellular import CellularBatching
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching
from headrace.host.live.results import Overloaded, RuntimeClosed
from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.live.tasks.cells import CellTasks
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.networks.sequence_networks import Network, plan, post_order, tree_of
from headrace.host.workers.networks.step_models import load_steps, run_alone, signature
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import ModelError, processes
from headrace.host.workers.profiling.cells import measure_cell

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL_STEPS = Path(__file__).parents[1] / "workers"
WORDS = 90
LSTM = Network("lstm", "lstm", 24, WORDS, max_batch=(6,))
SEQ2SEQ = Network("translate", "seq2seq", 32, 12, seed=6, max_batch=(8, 4))
TREE = Network("tree", "treelstm", 16, WORDS, seed=5, max_batch=(5, 4))
TRANSFORMER = Network(
    "attend", "transformer", 32, 30, seed=1, max_batch=(3, 6), heads=4, longest_input=20, longest_output=12
)
ALL = (LSTM, SEQ2SEQ, TREE, TRANSFORMER)
STEPS = 12

# A word 66 raises, 67 kills its process, 68 hangs; every step takes a while, so that there is time to kill a worker.
UNLUCKY = """
import os, time
from headrace.host.workers.networks.zoo import recurrent
from headrace.host.workers.networks.steps import Step

class Unlucky(recurrent.LstmStep):
    def forward(self, tokens, state, lengths):
        if (tokens == 66).any():
            raise ValueError("unlucky word")
        if (tokens == 67).any():
            os._exit(3)
        if (tokens == 68).any():
            time.sleep(60)
        time.sleep(0.003)
        return super().forward(tokens, state, lengths)

def model():
    made = recurrent.lstm(8, 90)
    made.steps = [Step("lstm", made.steps[0].kind, Unlucky(8, 90))]
    return made
"""


@pytest.fixture
def unlucky(tmp_path, monkeypatch) -> Network:
    (tmp_path / "unluckynet.py").write_text(UNLUCKY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "unluckynet", raising=False)
    return Network("slow", "unluckynet:model", max_batch=(1,))


def serve(networks, body, *, workers=1, rows=1 << 16, policy=CellularBatching, **settings):
    """`body(runtime, pool, executions)`."""

    async def run():
        tasks = CellTasks(networks, workers, rows=rows)
        executions = []
        async with WorkerPool(processes(tasks.program(), worker_devices(workers))) as pool:
            made = policy(tasks.models, workers)
            chosen = RuntimeSettings(**settings)
            async with Runtime(made, pool, tasks, chosen, on_execution=executions.append) as runtime:
                result = await body(runtime, pool, executions)
                assert runtime.ledger.in_flight == 0
        runtime.ledger.check()
        assert tasks.arena.free == tasks.arena.rows
        for views in tasks.arena.views.values():
            assert not any(block[0].any() for block in (*views.states.values(), *views.lengths.values()))
        tasks.close()
        return result

    return asyncio.run(run())


def random_tree(leaves: int, rng: random.Random):
    if leaves == 1:
        return rng.randrange(WORDS)
    left = rng.randint(1, leaves - 1)
    return (random_tree(left, rng), random_tree(leaves - left, rng))


def random_input(network: Network, rng: random.Random):
    if network.kind == "treelstm":
        return random_tree(rng.randint(1, 14), rng)
    return [rng.randrange(network.vocabulary) for _ in range(rng.randint(1, 20))]


def random_requests(count: int, seed: int):
    rng = random.Random(seed)
    networks = [rng.choice(ALL) for _ in range(count)]  # arrivals in bursts, so that there is something to batch
    return [
        (network, random_input(network, rng), rng.choice((0.0, 0.0, 0.0, rng.expovariate(150)))) for network in networks
    ]


def check(network: Network, value, output, loaded=None) -> None:
    alone = run_alone(loaded or load_steps(network), value, STEPS)
    if isinstance(alone, list):
        assert output == alone
    else:
        np.testing.assert_allclose(output, alone.numpy(), rtol=1e-4, atol=1e-5)


async def serve_all(runtime: Runtime, requests):
    """Each request at its time; `serve_all` returns the inferences in the order of the requests."""
    running = []
    for network, value, pause in requests:
        running.append(asyncio.create_task(runtime.infer(network.name, value, max_steps=STEPS)))
        await asyncio.sleep(pause)
    return await asyncio.gather(*running)


def check_all(requests, done) -> None:
    loaded = {network.name: load_steps(network) for network in ALL}
    for (network, value, _), inference in zip(requests, done, strict=True):
        check(network, value, inference.output, loaded[network.name])


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_every_request_gets_the_output_it_has_alone_whatever_it_was_batched_with(workers):
    requests = random_requests(120, workers)

    async def body(runtime, pool, executions):
        done = await serve_all(runtime, requests)
        check_all(requests, done)
        assert all(0 <= s.arrival <= s.queued <= s.started <= s.finished for s in (one.served for one in done))
        decoded = [one.output for one in done if isinstance(one.output, list)]
        assert any(1 in tokens for tokens in decoded) and any(len(tokens) == STEPS for tokens in decoded)
        for network in ALL:
            for kind, cell in enumerate(signature(network).types):
                ran = [e.task for e in executions if e.task.model == network.name and e.task.start == kind]
                assert 1 < max(task.batch_size for task in ran) <= cell.max_batch
        assert {execution.worker for execution in executions} == set(range(workers))
        assert (runtime.ledger.finished, runtime.ledger.submitted) == (120, 120)

    serve(ALL, body, workers=workers)


@pytest.mark.parametrize("policy", [CellularBatching, lambda models, workers: DynamicGraphBatching(models, workers, 8)])
def test_networks_with_steps_that_take_the_whole_input_are_served(policy, monkeypatch):
    monkeypatch.chdir(SMALL_STEPS)
    networks = [Network("stray", "small_steps:stray"), Network("sections", "small_steps:sections", seed=4)]
    rng = random.Random(3)
    requests = [(network, [rng.randrange(20) for _ in range(rng.randint(1, 15))], 0.0) for network in networks * 60]

    async def body(runtime, pool, executions):
        loaded = {network.name: load_steps(network) for network in networks}
        for wave in (requests[:60], requests[60:]):  # the second finds rows that the first has left
            for (network, value, _), inference in zip(wave, await serve_all(runtime, wave), strict=True):
                check(network, value, inference.output, loaded[network.name])

    serve(networks, body, policy=policy)


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1])  # 1: a worker dies
def test_merged_graphs_of_cells_are_served_by_the_same_runtime_also_when_a_worker_dies(seed):
    requests = random_requests(60, 20 + seed)

    async def body(runtime, pool, executions):
        running = asyncio.create_task(serve_all(runtime, requests))
        if seed == 1:
            while len(executions) < 20:
                await asyncio.sleep(0.001)
            os.kill(pool.workers[0].pid, signal.SIGKILL)
        check_all(requests, await running)
        assert runtime.ledger.finished == 60 and runtime.statistics().workers_lost == seed

    serve(ALL, body, workers=2, policy=lambda models, workers: DynamicGraphBatching(models, workers, 8), attempts=5)


def test_a_step_model_of_ones_own_is_served(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    network = Network("own", "moving_average:Model", max_batch=(4, 3))
    rng = random.Random(4)
    inputs = [[rng.randrange(50) for _ in range(rng.randint(1, 30))] for _ in range(40)]

    async def body(runtime, pool, executions):
        done = await asyncio.gather(*(runtime.infer("own", value, max_steps=STEPS) for value in inputs))
        loaded = load_steps(network)
        for value, inference in zip(inputs, done, strict=True):
            check(network, value, inference.output, loaded)
        assert {execution.task.batch_size for execution in executions if execution.task.start == 1} >= {3}

    serve([network], body)


def test_a_short_request_leaves_before_a_long_one_that_it_was_batched_with():
    async def body(runtime, pool, executions):
        long = asyncio.create_task(runtime.infer("lstm", [5] * 600))
        await asyncio.sleep(0.02)
        short = await runtime.infer("lstm", [7] * 3)
        assert not long.done()
        check(LSTM, [7] * 3, short.output)
        check(LSTM, [5] * 600, (await long).output)
        assert short.served.batch == 2

    serve([LSTM], body)


def test_at_hidden_size_1024():
    network = Network("big", "lstm", 1024, 300, max_batch=(8,))
    inputs = [list(range(first, first + 5)) for first in range(6)]

    async def body(runtime, pool, executions):
        done = await asyncio.gather(*(runtime.infer("big", value) for value in inputs))
        loaded = load_steps(network)
        for value, inference in zip(inputs, done, strict=True):
            check(network, value, inference.output, loaded)
        assert max(execution.task.batch_size for execution in executions) > 1

    serve([network], body)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_worker_killed_amid_its_work_costs_no_request_its_output(seed):
    requests = random_requests(150, 10 + seed)

    async def body(runtime, pool, executions):
        running = asyncio.create_task(serve_all(runtime, requests))
        for _ in range(2):  # both workers, one after the other
            target = len(executions) + 40
            while len(executions) < target or all(worker.pid is None for worker in pool.workers):
                await asyncio.sleep(0.001)
            os.kill(next(worker.pid for worker in pool.workers if worker.pid is not None), signal.SIGKILL)
        check_all(requests, await running)
        assert runtime.statistics().workers_lost >= 1 and runtime.ledger.finished == 150

    serve(ALL, body, workers=2, attempts=5)


def test_a_cell_that_raises_kills_or_hangs_fails_its_request_alone(unlucky):
    good = [[n] * 8 for n in range(5)]

    async def body(runtime, pool, executions):
        others = [asyncio.create_task(runtime.infer("slow", value)) for value in good[:3]]
        bad = [asyncio.create_task(runtime.infer("slow", [3, word, 3, 3, 3])) for word in (66, 67, 68)]
        others += [asyncio.create_task(runtime.infer("slow", value)) for value in good[3:]]
        for request, error, text in zip(
            bad, (ModelError, WorkerLost, WorkerLost), ("unlucky word", "died", r"within 1\.0 s"), strict=True
        ):
            with pytest.raises(error, match=text):
                await request
        for value, inference in zip(good, await asyncio.gather(*others), strict=True):
            check(unlucky, value, inference.output)
        assert (runtime.ledger.finished, runtime.ledger.failed) == (5, 3)

    serve([unlucky], body, task_timeout_s=1.0, attempts=1)


def test_cells_that_raise_or_kill_take_none_of_their_batch_mates_along(unlucky):
    """Sixteen in a batch, over and over; the bad ones are in the middle of it when their word comes."""
    network = replace(unlucky, max_batch=(16,))

    async def body(runtime, pool, executions):
        good = [[n] * 10 for n in range(30)]
        calls = [asyncio.create_task(runtime.infer("slow", value)) for value in good[:15]]
        bad = [asyncio.create_task(runtime.infer("slow", [3, 4, word, 3])) for word in (66, 67, 66)]
        calls += [asyncio.create_task(runtime.infer("slow", value)) for value in good[15:]]
        ends = await asyncio.gather(*bad, return_exceptions=True)
        assert [type(end) for end in ends] == [ModelError, WorkerLost, ModelError]
        for value, inference in zip(good, await asyncio.gather(*calls), strict=True):
            check(network, value, inference.output)
        assert max(execution.task.batch_size for execution in executions) > 8
        assert (runtime.ledger.finished, runtime.ledger.failed) == (30, 3)

    serve([network], body, workers=2)


def test_what_cannot_be_served_is_refused_with_what_to_change(unlucky):
    async def body(runtime, pool, executions):
        for model, value, text in [
            ("lstm", [], "empty sequence; give at least one token"),
            ("lstm", [3, WORDS], "from 0 to 89"),
            ("lstm", ["the"], "give integers"),
            ("lstm", "the cat", "takes a list of token ids"),
            ("translate", [4], "max_steps is 0"),
            ("tree", None, "token None"),
            ("tree", (1, None), "token None"),
            ("tree", ((1, 2), (None, 3)), "token None"),
            ("tree", (1, 2, 3), "3 children; give two"),
            ("tree", ((1, 2), -1), "token -1"),
        ]:
            with pytest.raises(BadInput, match=text):
                await runtime.infer(model, value, max_steps=0)
        with pytest.raises(BadInput, match="takes at most 20 tokens, not 21; give fewer"):
            await runtime.infer("attend", [4] * 21)
        with pytest.raises(BadInput, match=r"at most 12 steps in 'cache'.*max_steps 13"):
            await runtime.infer("attend", [4] * 20, max_steps=13)
        for steps in (2.5, None, "3"):
            with pytest.raises(BadInput, match="a whole number of tokens"):
                await runtime.infer("translate", [4], max_steps=steps)
        with pytest.raises(UnknownModel, match="lstm, slow, translate, tree"):
            await runtime.infer("gru", [1])
        with pytest.raises(Overloaded, match="send fewer"):
            await runtime.infer("tree", random_tree(9, random.Random(0)))
        assert (runtime.ledger.submitted, runtime.ledger.shed) == (1, 1)
        deep = 0
        for word in range(1, 8):
            deep = (deep, word)
        check(TREE, deep, (await runtime.infer("tree", deep)).output)
        waiting = asyncio.create_task(runtime.infer("slow", [68]))
        caller = asyncio.create_task(runtime.infer("lstm", [1, 2]))
        await asyncio.sleep(0)
        caller.cancel()  # a caller that gives up leaves the accounts in order
        await asyncio.sleep(0.2)
        async with asyncio.timeout(8):
            await runtime.close()
        with pytest.raises(RuntimeClosed):
            await waiting
        with pytest.raises(RuntimeClosed):
            await runtime.infer("lstm", [1])

    serve([*ALL, unlucky], body, rows=8)


def test_networks_and_parent_lists_that_make_no_sense_are_refused():
    for settings, text in [
        ({"kind": "gru"}, "lstm, seq2seq, treelstm"),
        ({"hidden": 0}, "hidden size of 1"),
        ({"kind": "seq2seq", "hidden": 8, "max_batch": (3,)}, "one for each of encoder, decoder"),
    ]:
        with pytest.raises(UsageError, match=text):
            CellTasks([Network("net", **settings)], 1)
    with pytest.raises(UsageError, match="own name"):
        CellTasks([LSTM, LSTM], 1)
    for least in ({"workers": 0}, {"workers": 1, "ahead": 0}, {"workers": 1, "rows": 0}):
        with pytest.raises(UsageError, match="give 1 or more of each"):
            CellTasks([LSTM], **least)
    tasks = CellTasks([LSTM], 1, ahead=1, rows=1)
    assert tasks.nan_outputs == 0
    tasks.close()
    for words, parents, text in [
        ([1, 2], [3, 3], "0 roots"),
        ([1], [2, 0], "1 children"),
        ([1, 2], [0, 3, 2], "cycle"),
    ]:
        with pytest.raises(BadInput, match=text):
            tree_of(words, parents)


def test_a_parent_list_and_a_very_deep_tree_unfold():
    assert tree_of([7, 8, 9], [4, 4, 5, 5, 0]) == ((7, 8), 9)
    deep = 1
    for _ in range(5000):
        deep = (deep, 2)
    unfolded = plan(signature(TREE), deep, 1)
    assert (unfolded.graph.cells, unfolded.rows, len(post_order(deep))) == (10001, 5001, 10001)


def test_the_lstm_alone_is_torchs(tmp_path):
    step, *_ = modules = load_steps(Network("l", "lstm", 12, 30, seed=9)).modules
    torch.save(modules.state_dict(), tmp_path / "weights.pt")
    network = Network("l", "lstm", 12, 30, weights=str(tmp_path / "weights.pt"))
    reference = torch.nn.LSTM(12, 12)
    reference.load_state_dict({f"{name}_l0": value for name, value in step.step.state_dict().items()})
    words = [4, 29, 0, 17]
    with torch.inference_mode():
        _, (h, _) = reference(step.embedding(torch.tensor(words)))
    torch.testing.assert_close(run_alone(load_steps(network), words), h[0])


def test_the_treelstm_alone_follows_the_equations():
    """Tai, Socher, Manning 2015, equations 9 to 14, gate by gate, for ((5, 3), 8)."""
    network = Network("t", "treelstm", 10, 20, seed=2)
    loaded = load_steps(network)
    leaf, inner = loaded.modules
    sigmoid, tanh = torch.sigmoid, torch.tanh

    def rows(linear, gate):
        return linear.weight[10 * gate : 10 * gate + 10], linear.bias[10 * gate : 10 * gate + 10]

    def of_leaf(word):
        x = leaf.embedding.weight[word]
        i, o, u = (weight @ x + bias for weight, bias in (rows(leaf.gates, gate) for gate in range(3)))
        c = sigmoid(i) * tanh(u)
        return sigmoid(o) * tanh(c), c

    def of_inner(left, right):
        gates = [rows(inner.gates, gate) for gate in range(5)]
        i, f_left, f_right, o, u = (w[:, :10] @ left[0] + w[:, 10:] @ right[0] + bias for w, bias in gates)
        c = sigmoid(i) * tanh(u) + sigmoid(f_left) * left[1] + sigmoid(f_right) * right[1]
        return sigmoid(o) * tanh(c), c

    with torch.inference_mode():
        expected = of_inner(of_inner(of_leaf(5), of_leaf(3)), of_leaf(8))[0]
    torch.testing.assert_close(run_alone(loaded, ((5, 3), 8)), expected)


def test_a_cells_curve_is_measured(monkeypatch):
    monkeypatch.setattr("headrace.host.workers.profiling.batches.TIME_PER_POINT_S", 0.05)
    profile = asyncio.run(measure_cell("inner", 32, vocabulary=50, workers=1, max_batch=4))
    assert profile.model == "inner-32" and [point.batch for point in profile.points] == [1, 2, 4]
    assert Profile.from_json(profile.to_json()) == profile
    with pytest.raises(UsageError, match="lstm, encoder, decoder, leaf, inner"):
        asyncio.run(measure_cell("gru"))


@pytest.mark.parametrize("cell", ["transformer-encoder", "transformer-decoder"])
def test_a_transformers_steps_are_measured_at_their_longest(cell, monkeypatch):
    monkeypatch.setattr("headrace.host.workers.profiling.batches.TIME_PER_POINT_S", 0.05)
    profile = asyncio.run(measure_cell(cell, 32, vocabulary=50, workers=1, max_batch=2))
    assert profile.model == f"{cell}-32" and [point.batch for point in profile.points] == [1, 2]
