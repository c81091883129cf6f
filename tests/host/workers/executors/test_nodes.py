"""The executor of nodes keeps requests between tasks. It runs in this process, without clock and policy."""

import numpy as np
import pytest
import torch

from headrace.batching import Request, Task
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.executors.nodes import NodeExecutor
from headrace.host.workers.messages import nodes_answer, write_nodes
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import NodeSettings
from headrace.host.workers.networks.split.network import node_model

KILLER = "split_nets:killer"


class Never:
    """Interrupts that never come."""

    def interrupt_sent(self):
        return False


@pytest.fixture
def executor():
    threads = torch.get_num_threads()
    model, _ = node_model(KILLER, 4)
    arena = SlotArena({model.name: (model.inputs, model.outputs)}, 4)
    made = NodeExecutor(NodeSettings((model,), (), arena.slots, arena.fd), "cpu", 1, lambda what: None)
    made.views, made.last = arena.views[model.name], len(model.nodes)
    for slot in range(arena.slots):
        array = made.views.inputs[0].at(slot)
        array[...] = np.random.default_rng(slot).standard_normal(array.shape)
    yield made
    arena.close()
    torch.set_num_threads(threads)


def run(executor, slots, start, stop, preemptible=True):
    requests = tuple(Request(slot, KILLER, 0.0) for slot in slots)
    task = Task(0, KILLER, requests, start, stop, preemptible)
    ran = executor.run(memoryview(write_nodes(0, task, slots)), Never())
    return nodes_answer(task, ran.answer)[0]


def check_output(executor, slot):
    given = torch.from_numpy(executor.views.inputs[0].at(slot).copy())[None]
    (expected,) = load_model(KILLER).forward([given])
    np.testing.assert_allclose(executor.views.outputs[0].at(slot), expected[0].numpy(), atol=1e-5, rtol=1e-4)


def test_a_sub_batch_goes_on_from_where_it_stands_and_nowhere_else(executor):
    assert run(executor, [0, 1], 0, 1).stop == 1
    with pytest.raises(RuntimeError, match="slot 0 does not stand before node 2"):
        run(executor, [0, 1], 2, executor.last)


def test_a_request_that_begins_at_node_0_begins_anew_whatever_is_kept_of_its_slot(executor):
    run(executor, [0, 1], 0, 2)
    executor.views.inputs[0].at(0)[...] = 0.5  # the slot is another request's
    run(executor, [0], 0, executor.last)
    run(executor, [1], 2, executor.last)
    for slot in (0, 1):
        check_output(executor, slot)
    with pytest.raises(RuntimeError, match="slot 0 does not stand before node 2"):
        run(executor, [0], 2, executor.last)


def test_what_is_kept_is_dropped_when_a_preemptible_task_fails_and_only_then(executor):
    executor.views.inputs[0].at(3).flat[0] = 1e35
    run(executor, [0], 0, 1)
    with pytest.raises(ValueError, match="unlucky number"):
        run(executor, [3], 0, executor.last, preemptible=False)  # a suspect's, which runs apart
    run(executor, [0], 1, executor.last)
    check_output(executor, 0)
    run(executor, [0], 0, 1)
    with pytest.raises(ValueError, match="unlucky number"):
        run(executor, [3], 0, executor.last)
    with pytest.raises(RuntimeError, match="slot 0 does not stand before node 1"):
        run(executor, [0], 1, executor.last)
