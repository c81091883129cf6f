"""Tasks of nodes: a sub-batch runs some consecutive nodes of a graph, and may be interrupted between two nodes.

- `NodeTasks` is for simulated accelerators (workers/simulated.py). They compute no outputs, so each request must say
  how many decoder steps it takes (`output_len`).
- `SplitTasks` is for worker processes (workers/executors/nodes.py). They run networks that are cut into nodes, and step
  models. A decoder there ends by itself, and `output_len` is only a bound.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.batching import BadInput, Policy, Task, WorkConservingBatching
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.host.live.tasks.slots import SlotTasks, Tensors
from headrace.host.memory.slots import Specs
from headrace.host.workers.inspection.parent import signature
from headrace.host.workers.messages import nodes_answer, write_nodes
from headrace.host.workers.networks.program import NodeModel, Program, StepNodes, node_program
from headrace.host.workers.networks.sequence_networks import limit_of, tokens_of


class NodeTasks(SlotTasks):
    """Models as graphs of nodes.

    Args:
        graphs: The graph of each model. A model's position is its number in messages.
        tensors: The inputs and outputs of each model, under the same names and in the same order.
        slots: How many requests of each model may be in flight.
    """

    cells = False
    wait_at_worker = True

    def __init__(
        self,
        graphs: Mapping[str, ModelGraph],
        tensors: Mapping[str, Specs],
        slots: int,
    ) -> None:
        super().__init__(tensors, slots)
        self.graphs = dict(graphs)
        self._numbers = {name: number for number, name in enumerate(graphs)}

    def isolated_policy(self) -> Policy:
        return WorkConservingBatching(self.graphs.values(), 1)

    def admit(
        self, id: int, model: str, value: Tensors, *, input_len: float | None = None, output_len: object = 1
    ) -> tuple[float, int]:
        """Take a request. Its input length is `input_len`, or the length of its tensor if that is None.

        `output_len` must be a whole number. It is checked here, because it may come from a client.

        Raises:
            UnknownModel, BadInput, Overloaded: The request is not admitted.
        """
        if not isinstance(output_len, int) or output_len < 1:
            raise BadInput(f"output_len is {output_len}; give a whole number of 1 or more steps")
        length = self.take(id, model, value)
        return length if input_len is None else input_len, output_len

    def message(self, task: Task) -> bytes:
        return write_nodes(self._numbers[task.model], task, self.slots(task.requests))

    def ended(self, task: Task, answer: bytes) -> Task:
        task, nans, lengths = nodes_answer(task, answer)
        self.nan_outputs += nans
        self.output_lengths.update(lengths)
        return task


class SplitTasks(NodeTasks):
    """Networks that are cut into nodes, and step models, on worker processes.

    Args:
        models: Networks that `node_model` has cut.
        graphs: The graph of each of them and of each step model, by name.
        slots: How many requests of each model may be in flight.
        step_models: Step models from `step_nodes`.
    """

    def __init__(
        self,
        models: Sequence[NodeModel],
        graphs: Mapping[str, ModelGraph],
        slots: int,
        step_models: Sequence[StepNodes] = (),
    ) -> None:
        every: tuple[NodeModel | StepNodes, ...] = (*models, *step_models)
        tensors = {model.name: (model.inputs, model.outputs) for model in every}
        super().__init__({model.name: graphs[model.name] for model in every}, tensors, slots)
        self.models = tuple(models)
        self.step_models = tuple(step_models)
        self._signatures = {model.name: signature(model.network) for model in step_models}

    def program(self) -> Program:
        """Return the program that the worker processes run."""
        return node_program(self.models, self.step_models, self.arena)

    def admit(
        self, id: int, model: str, value: Any, *, input_len: float | None = None, output_len: object = 50
    ) -> tuple[float, int]:
        """Take a request. A step model takes a list of token ids, and decodes at most `output_len` tokens.

        All other models take tensors.

        Raises:
            UnknownModel, BadInput, Overloaded: The request is not admitted.
        """
        step_model = self._signatures.get(model)
        if step_model is None:
            return super().admit(id, model, value, input_len=input_len)
        tokens, limit = tokens_of(step_model, value), limit_of(step_model, output_len) if step_model.decodes else 1
        step_model.check_lengths(len(tokens), limit)
        if step_model.decodes and limit > step_model.longest_output:
            raise BadInput(
                f"network {model!r} decodes at most {step_model.longest_output} tokens, not {limit}; ask for fewer"
            )
        return super().admit(id, model, np.array(tokens), output_len=limit)
