"""The common part of all tasks on tensors: a request is a slot of the shared memory.

Rule: a slot holds the inputs and outputs of one request, by name. The runtime writes inputs there when it admits the
request, and reads outputs there when it answers. Between the two, only slot numbers travel.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, Request, Task, UnknownModel
from headrace.host.live.results import Overloaded
from headrace.host.live.tasks.interface import Read, Written
from headrace.host.memory.files import FilePlace, SharedFile
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import DONE, LENT, MIN_BYTES, Places, SlotArena, Specs
from headrace.host.memory.sources import SlotTensor, Source, Tensor, array_of
from headrace.host.workers.networks.tokens import checked_tokens

SPARES = 3 * LENT  # slots of each model for tensors that two fronts receive, and for answers that are being sent

Tensors: TypeAlias = Tensor | Mapping[str, Tensor]


class SlotTasks:
    """The methods of `Tasks` that are the same for all tasks on tensors.

    Args:
        models: The inputs and outputs of each model.
        slots: How many requests of each model may be in flight.
    """

    in_files = False

    def __init__(self, models: Mapping[str, Specs], slots: int) -> None:
        self.arena = SlotArena(models, slots, SPARES)
        self._inputs = {model: [_Input(spec) for spec in inputs] for model, (inputs, _) in models.items()}
        self._specs = dict(models)
        self._joined = {model for model, (inputs, _) in models.items() if any(spec.joined for spec in inputs)}
        self._fixed_outputs = {
            model for model, (_, outputs) in models.items() if all(spec.variable is None for spec in outputs)
        }
        self.nan_outputs = 0
        self._places: dict[int, tuple[str, int, list[int]]] = {}  # by id: model, slot, lengths of variable inputs
        self._placed: dict[int, _Placed] = {}  # by id, of requests with tensors in files
        self.output_lengths: dict[int, list[int]] = {}  # by id: lengths of variable outputs

    def take(self, id: int, model: str, value: Tensors, outputs: Mapping[str, FilePlace] | None = None) -> float:
        """Write the inputs of a request into a free slot. A source is read straight into it. A request whose one input
        lies in a lent slot takes that slot, and the front gets the free one.

        Where workers use files, an input of a fixed shape that lies in a file stays there. `outputs` are the places of
        outputs of fixed shapes, by name.

        Returns:
            The input length: that of the first variable dimension, or 1 if no input has one. It is the number of tokens
            for a network with joined inputs.

        Raises:
            UnknownModel, BadInput, Overloaded: No slot is taken.
        """
        views = self.arena.views.get(model)
        if views is None:
            raise UnknownModel.asked_for(id, model, self.arena.views)
        inputs = self._inputs[model]
        arrays = _named(model, inputs, value)
        lengths = [
            array.shape[own.variable] for own, array in zip(inputs, arrays, strict=True) if own.variable is not None
        ]
        if model in self._joined:
            of_inputs, of_outputs = self._specs[model]
            checked_tokens(model, of_inputs, [array_of(array) for array in arrays], of_outputs)
        slot = self.arena.acquire(model)
        if slot is None:
            raise Overloaded(
                f"all {self.arena.slots} tensor slots of model {model!r} hold requests in flight; send fewer at a time"
            )
        placed: dict[int, tuple[Source, FilePlace]] = {}  # inputs that stay in files
        try:
            for number, (own, tensors, array) in enumerate(zip(inputs, views.inputs, arrays, strict=True)):
                if self.in_files and own.variable is None and isinstance(array, Source):
                    found = array.place()
                    if found is not None:
                        placed[number] = (array, found)
                        continue
                place = tensors.at(slot, array.shape[own.variable] if own.variable is not None else 0)
                filled = array.exchange(self.arena, model, slot) if isinstance(array, SlotTensor) else None
                if filled is not None:
                    slot = filled
                elif isinstance(array, np.ndarray):
                    np.copyto(place, array)
                else:
                    array.read_into(place)
        except BaseException:
            self.arena.release(model, slot)
            raise
        self._places[id] = (model, slot, lengths)
        if placed or outputs:
            self._placed[id] = _Placed(views.places, slot, placed, self._outputs_placed(model, outputs or {}))
        return float(lengths[0]) if lengths else 1.0

    def _outputs_placed(self, model: str, outputs: Mapping[str, FilePlace]) -> dict[str, tuple[int, FilePlace]]:
        """Return the numbers (`Places`) and the places of outputs, by name."""
        inputs, specs = self._specs[model]
        return {
            spec.name: (number, outputs[spec.name])
            for number, spec in enumerate(specs, len(inputs))
            if spec.name in outputs
        }

    def files(self, task: Task) -> Sequence[SharedFile]:
        if not self._placed:
            return ()
        found = [self._placed[request.id].files for request in task.requests if request.id in self._placed]
        return [file for files in found for file in files]

    def slots(self, requests: Sequence[Request]) -> list[int]:
        """Return the slot of each request."""
        return [self._places[request.id][1] for request in requests]

    def lengths(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the lengths of each variable input, one list per input with one length per request."""
        return [list(of_input) for of_input in zip(*(self._places[request.id][2] for request in requests), strict=True)]

    def result(self, request: Request, read: Read | None = None) -> Any:
        """Return copies of the outputs by name, because the slot goes to another request.

        `read` may keep outputs without a copy. The request then has a spare slot, and its own one is detached.

        Raises BadInput if an input could not be read from its file."""
        model, slot, input_lengths = self._places[request.id]
        tensors_of = self.arena.views[model].outputs
        outputs: dict[str, NDArray[Any] | Written]
        if model in self._fixed_outputs:
            outputs = {tensors.spec.name: tensors.at(slot) for tensors in tensors_of}
        else:
            lengths = iter(self.output_lengths.get(request.id, ()))

            def length(spec: TensorSpec) -> int:
                if spec.joined:
                    return input_lengths[0] // spec.tokens_per_row
                return 0 if spec.variable is None else next(lengths)

            outputs = {tensors.spec.name: tensors.at(slot, length(tensors.spec)) for tensors in tensors_of}
        placed = self._placed.get(request.id)
        if placed is not None:
            placed.check_inputs()
            for name in placed.written():
                output = outputs[name]
                outputs[name] = Written(output.shape, output.nbytes)
        if read is None:
            return {name: output if isinstance(output, Written) else output.copy() for name, output in outputs.items()}
        memory: NDArray[np.uint8] | None = None

        def keep(name: str) -> NDArray[Any]:
            nonlocal memory
            output = outputs[name]
            assert not isinstance(output, Written)
            if memory is None and output.nbytes >= MIN_BYTES:
                memory = self._detach(request)
            if memory is None or output.nbytes < MIN_BYTES:
                return output.copy()
            return next(each for each in tensors_of if each.spec.name == name).detached(memory, output.shape)

        return read(outputs, keep)

    def _detach(self, request: Request) -> NDArray[np.uint8] | None:
        """Give a request a spare slot, and return the memory of its own one. Return None if there is no spare."""
        model, slot, lengths = self._places[request.id]
        found = self.arena.detach(model, slot)
        if found is None:
            return None
        spare, memory = found
        self._places[request.id] = (model, spare, lengths)
        return memory

    def abandon(self, request: Request) -> None:
        if request.id in self._placed:
            self._placed[request.id].revoke()

    def release(self, request: Request) -> None:
        placed = self._placed.pop(request.id, None)
        if placed is not None:
            placed.end()
        model, slot, _ = self._places.pop(request.id)
        self.output_lengths.pop(request.id, None)
        self.arena.release(model, slot)

    def arena_use(self) -> Mapping[str, tuple[int, int]]:
        slots = self.arena.slots
        return {model: (slots - self.arena.free(model), slots) for model in self.arena.views}

    def lost(self, task: Task) -> Sequence[Request]:
        for request in task.requests:
            if request.id in self._placed:
                self._placed[request.id].renew()
        return task.requests

    def restart(self, request: Request) -> None:
        """Do nothing: the inputs of the request are still in its slot."""

    def close(self) -> None:
        self.arena.close()


class _Placed:
    """The tensors of one request that lie in files.

    `inputs` are by number (`Places`), with the source that knows why it cannot be read. `outputs` are by name, with
    their numbers."""

    __slots__ = ("_inputs", "_outputs", "_places", "_slot", "files")

    def __init__(
        self,
        places: Places,
        slot: int,
        inputs: Mapping[int, tuple[Source, FilePlace]],
        outputs: Mapping[str, tuple[int, FilePlace]],
    ) -> None:
        self._places = places
        self._slot = slot
        self._inputs = {number: source for number, (source, _) in inputs.items()}
        self._outputs = {name: number for name, (number, _) in outputs.items()}
        for number, (_, place) in inputs.items():
            places.put(slot, number, place)
        for number, place in outputs.values():
            places.put(slot, number, place)
        every = [place.file for _, place in inputs.values()] + [place.file for _, place in outputs.values()]
        self.files: list[SharedFile] = list(dict.fromkeys(every))
        for file in self.files:
            file.hold(self, self.revoke)

    def check_inputs(self) -> None:
        """Raise BadInput if an input was not read."""
        for number, source in self._inputs.items():
            if self._places.state(self._slot, number) != DONE:
                array_of(source)  # says why
                raise BadInput("an input in shared memory could not be read; keep its region until the answer has come")

    def written(self) -> list[str]:
        """Return the names of the outputs that a worker has written to their files."""
        return [name for name, number in self._outputs.items() if self._places.state(self._slot, number) == DONE]

    def _numbers(self) -> list[int]:
        return [*self._inputs, *self._outputs.values()]

    def renew(self) -> None:
        """Forget what a worker that is lost has done."""
        for number in self._numbers():
            self._places.renew(self._slot, number)

    def revoke(self) -> None:
        """Let no worker use the files any more."""
        for number in self._numbers():
            self._places.revoke(self._slot, number)

    def end(self) -> None:
        """Leave the slot without places, and let the files go."""
        self.revoke()
        for number in self._numbers():
            self._places.clear(self._slot, number)
        for file in self.files:
            file.let_go(self)


class _Input:
    """One input of a model, with all that a request's tensor is compared with."""

    __slots__ = ("dtype", "name", "shape", "spec", "variable")

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.dtype = np.dtype(spec.dtype)
        self.variable = spec.variable
        self.shape = spec.shape

    def takes(self, array: Tensor) -> bool:
        """Tell whether the input takes a tensor of this type and shape."""
        if array.dtype != self.dtype:
            return False
        if self.variable is None:
            return array.shape == self.shape
        length = array.shape[self.variable] if self.variable < array.ndim else 0
        return array.shape == self.spec.sized(length) and length <= self.spec.longest


def _named(model: str, inputs: Sequence[_Input], value: Tensors) -> list[Tensor]:
    """Return the tensors in the order of `inputs`. Raises BadInput if a name, type or shape is wrong."""
    if not isinstance(value, Mapping):
        if len(inputs) != 1:
            names = ", ".join(own.name for own in inputs)
            raise BadInput(f"model {model!r} takes {len(inputs)} inputs; give a mapping with {names}")
        value = {inputs[0].name: value}
    if unknown := set(value) - {own.name for own in inputs}:
        names = ", ".join(own.name for own in inputs)
        raise BadInput(f"model {model!r} has no input {sorted(unknown)[0]!r}; it takes {names}")
    arrays: list[Tensor] = []
    for own in inputs:
        spec, array = own.spec, value.get(own.name)
        if array is None:
            raise BadInput(f"model {model!r} was given no input {spec.name!r}")
        if not isinstance(array, np.ndarray) and not isinstance(array, Source):  # a union would be made each time
            array = np.asarray(array)
        if not own.takes(array):
            bound = f" with at most {spec.longest} in place of -1" if spec.longest else ""
            raise BadInput(
                f"input {spec.name!r} of model {model!r} was given as a tensor of {array.dtype}{array.shape}; "
                f"it takes {spec.dtype}{spec.shape}{bound}"
            )
        arrays.append(array)
    return arrays
