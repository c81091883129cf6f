"""Tasks of whole networks: a request is a slot of tensors, a task a batch of slots."""

from collections.abc import Sequence

from headrace.batching import Policy, Task, UsageError, WorkConserving
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.host.live.tasks.slots import SlotTasks, Tensors
from headrace.host.workers.messages import MAX_TASK, WHOLE, whole_answer, write_whole
from headrace.host.workers.networks.program import Program, WholeModel, whole_program


class WholeTasks(SlotTasks):
    """Networks that run as one piece on worker processes. Raises UsageError."""

    cells = False

    def __init__(self, models: Sequence[WholeModel], slots: int) -> None:
        self.models = {model.name: model for model in models}
        if len(self.models) < len(models):
            raise UsageError("two models have the same name; give each its own")
        for model in models:
            variable = sum(spec.variable is not None for spec in model.inputs)
            most = (MAX_TASK - WHOLE.size) // (4 * (1 + variable))
            if not 1 <= model.max_batch <= most:
                raise UsageError(f"model {model.name!r}: batches of {model.max_batch}; give 1 to {most}")
        super().__init__({model.name: (model.inputs, model.outputs) for model in models}, slots)
        self.graphs = dict.fromkeys(self.models)
        self._numbers = {name: number for number, name in enumerate(self.models)}

    def program(self) -> Program:
        """For the worker processes."""
        return whole_program(tuple(self.models.values()), self.arena)

    def apart(self) -> Policy:
        return WorkConserving(
            [ModelGraph.opaque(name) for name in self.models], max(model.max_batch for model in self.models.values())
        )

    def admit(self, id: int, model: str, value: Tensors) -> tuple[float, int]:
        return self.take(id, model, value), 1

    def message(self, task: Task) -> bytes:
        return write_whole(self._numbers[task.model], self.slots(task.requests), self.lengths(task.requests))

    def ended(self, task: Task, answer: bytes) -> Task:
        nans, lengths = whole_answer(answer)
        self.nan_outputs += nans
        if lengths:
            for request in task.requests:
                self.output_lengths[request.id] = lengths
        return task
