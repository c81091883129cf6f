"""Tasks of whole networks: a worker runs the whole network on a batch of requests.

Rule: a request is a slot of the shared memory (slots.py). A task names the slots of its requests.
"""

from collections.abc import Mapping, Sequence

from headrace.batching import Policy, Task, UsageError, WorkConservingBatching
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.host.live.tasks.slots import SlotTasks, Tensors
from headrace.host.memory.files import FilePlace
from headrace.host.workers.messages import MAX_TASK, WHOLE, whole_answer, write_whole
from headrace.host.workers.networks.program import Program, WholeModel, whole_program


class WholeTasks(SlotTasks):
    """Networks that run as one piece on worker processes.

    Args:
        models: The networks, each under its own name.
        slots: How many requests of each model may be in flight.

    Raises:
        UsageError: Two models share a name, or a batch does not fit into a message.
    """

    cells = False
    wait_at_worker = True
    in_files = True

    def __init__(self, models: Sequence[WholeModel], slots: int) -> None:
        self.models = {model.name: model for model in models}
        if len(self.models) < len(models):
            raise UsageError("two models have the same name; give each its own")
        for model in models:
            variable = sum(spec.variable is not None for spec in model.inputs)
            largest = (MAX_TASK - WHOLE.size) // (4 * (1 + variable))
            if not 1 <= model.max_batch <= largest:
                raise UsageError(f"model {model.name!r}: batches of {model.max_batch}; give 1 to {largest}")
        super().__init__({model.name: (model.inputs, model.outputs) for model in models}, slots)
        self.graphs = dict.fromkeys(self.models)
        self._numbers = {name: number for number, name in enumerate(self.models)}

    def program(self) -> Program:
        """Return the program that the worker processes run."""
        return whole_program(tuple(self.models.values()), self.arena)

    def isolated_policy(self) -> Policy:
        return WorkConservingBatching(
            [ModelGraph.opaque(name) for name in self.models], max(model.max_batch for model in self.models.values())
        )

    def admit(
        self, id: int, model: str, value: Tensors, *, outputs: Mapping[str, FilePlace] | None = None
    ) -> tuple[float, int]:
        """Take a request. `outputs` are the places of outputs in files, by name.

        Raises:
            UnknownModel, BadInput, Overloaded: The request is not admitted.
        """
        return self.take(id, model, value, outputs), 1

    def message(self, task: Task) -> bytes:
        return write_whole(self._numbers[task.model], self.slots(task.requests), self.lengths(task.requests))

    def ended(self, task: Task, answer: bytes) -> Task:
        nans, lengths = whole_answer(answer)
        self.nan_outputs += nans
        if lengths:
            for request in task.requests:
                self.output_lengths[request.id] = lengths
        return task
