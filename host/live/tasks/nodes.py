"""Tasks of nodes: a sub-batch that runs some nodes of a graph and may be interrupted at their boundaries.

On worker processes they run networks that are cut into nodes, and step models (`SplitTasks`;
workers/executors/nodes.py). Simulated accelerators (workers/simulated.py) need to be told the true number of decoder
steps: they compute no outputs that would tell."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.batching import BadInput, Policy, Task, WorkConserving
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.host.live.tasks.slots import SlotTasks, Tensors
from headrace.host.memory.slots import Specs
from headrace.host.workers.inspection.parent import signature
from headrace.host.workers.messages import nodes_answer, write_nodes
from headrace.host.workers.networks.program import NodeModel, Program, StepNodes, node_program
from headrace.host.workers.networks.sequence_networks import limit_of, tokens_of


class NodeTasks(SlotTasks):
    """`graphs` of the models, whose inputs and outputs are `tensors`, under the same names and in the same order."""

    cells = False

    def __init__(
        self,
        graphs: Mapping[str, ModelGraph],
        tensors: Mapping[str, Specs],
        slots: int,
    ) -> None:
        super().__init__(tensors, slots)
        self.graphs = dict(graphs)
        self._numbers = {name: number for number, name in enumerate(graphs)}

    def apart(self) -> Policy:
        return WorkConserving(self.graphs.values(), 1)

    def admit(
        self, id: int, model: str, value: Tensors, *, input_len: float | None = None, output_len: int = 1
    ) -> tuple[float, int]:
        """`input_len` is that of the tensor if not given."""
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
    """Networks that are cut into nodes (`node_model`), and step models (`step_nodes`), on worker processes; `graphs`
    are theirs, by name."""

    def __init__(
        self,
        models: Sequence[NodeModel],
        graphs: Mapping[str, ModelGraph],
        slots: int,
        step_models: Sequence[StepNodes] = (),
    ) -> None:
        every = (*models, *step_models)
        tensors = {model.name: (model.inputs, model.outputs) for model in every}
        super().__init__({model.name: graphs[model.name] for model in every}, tensors, slots)
        self.models = tuple(models)
        self.step_models = tuple(step_models)
        self._signatures = {model.name: signature(model.network) for model in step_models}

    def program(self) -> Program:
        """For the worker processes."""
        return node_program(self.models, self.step_models, self.arena)

    def admit(
        self, id: int, model: str, value: Any, *, input_len: float | None = None, output_len: int = 50
    ) -> tuple[float, int]:
        """A step model takes a list of token ids, and decodes at most `output_len` tokens; others take tensors."""
        told = self._signatures.get(model)
        if told is None:
            return super().admit(id, model, value, input_len=input_len)
        tokens, limit = tokens_of(told, value), limit_of(told, output_len) if told.decodes else 1
        told.check_lengths(len(tokens), limit)
        if told.decodes and limit > told.longest_output:
            raise BadInput(
                f"network {model!r} decodes at most {told.longest_output} tokens, not {limit}; ask for fewer"
            )
        return super().admit(id, model, np.array(tokens), output_len=limit)
