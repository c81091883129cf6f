"""Tasks of nodes: a sub-batch that runs some nodes of a graph and may be interrupted at their boundaries.

On worker processes they run networks that are split (`SplitTasks`; workers/nodes.py). Simulated accelerators
(workers/simulated.py) need to be told the true number of decoder steps: they compute no outputs that would tell."""

from collections.abc import Mapping, Sequence

from headrace.batching import BadInput, Policy, Task, WorkConserving
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.host.live.slots import SlotTasks, Tensors
from headrace.host.memory.slots import Specs
from headrace.host.workers.messages import nodes_answer, write_nodes
from headrace.host.workers.program import NodeModel, Program, node_program


class NodeTasks(SlotTasks):
    """`graphs` of the models, whose inputs and outputs are `tensors`, under the same names and in the same order."""

    def __init__(
        self,
        graphs: Mapping[str, ModelGraph],
        tensors: Mapping[str, Specs],
        slots: int,
    ) -> None:
        super().__init__(tensors, slots)
        self._graphs = dict(graphs)
        self._numbers = {name: number for number, name in enumerate(graphs)}

    def apart(self) -> Policy:
        return WorkConserving(self._graphs.values(), 1)

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
    """Networks that are split, on worker processes; `graphs` as `split` gives them, under the models' names."""

    def __init__(self, models: Sequence[NodeModel], graphs: Mapping[str, ModelGraph], slots: int) -> None:
        super().__init__(
            {model.name: graphs[model.name] for model in models},
            {model.name: (model.inputs, model.outputs) for model in models},
            slots,
        )
        self.models = tuple(models)

    def program(self) -> Program:
        """For the worker processes."""
        return node_program(self.models, self.arena)
