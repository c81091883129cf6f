"""Descriptions of requests: all that a request says about its tensors, apart from their elements.

Most clients send the same description with every request. To parse and check it takes far longer than to serve the
rest of a request, so a server remembers the last descriptions by their bytes. A description that holds elements itself
is not remembered, because the next one has others.

A transport parses the description and then binds it (`bound`) to the bytes that came with it. The regions of shared
memory are looked up anew for every request, because they come and go."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from headrace.batching import BadInput
from headrace.host.memory.sources import Tensor
from headrace.host.server.protocol.messages import InferRequest, RequestedOutput, from_window
from headrace.host.server.protocol.shared_memory import Place, Shared

MAX_KEPT = 256
MAX_BYTES = 4096  # a longer description is not remembered


@dataclass(frozen=True, slots=True)
class InputDescription:
    """Describe one input.

    Its elements are at `place` in shared memory, or in `array`. With neither of them they are bytes of the message:
    `size` bytes, or None if the message itself says how many."""

    name: str
    datatype: Any
    shape: tuple[int, ...]
    place: Place | None = None
    array: NDArray[Any] | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class OutputDescription:
    """Describe one requested output (see RequestedOutput) and its place in shared memory, if it has one."""

    requested: RequestedOutput
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """Describe one request: an InferRequest without inputs and outputs, and these.

    `repeats` says whether another request may have the same description: it holds no elements."""

    request: InferRequest
    inputs: Sequence[InputDescription]
    outputs: Sequence[OutputDescription]
    repeats: bool


Key = tuple[bytes, *tuple[str, ...]]


def key_of(said: bytes | memoryview, *path: str) -> Key | None:
    """Return the key of a description: its bytes and what else decides how they are read. None if it is too long."""
    return (bytes(said), *path) if len(said) <= MAX_BYTES else None


class Descriptions:
    """Remember the last descriptions. The oldest is forgotten first. A description without a key is not remembered."""

    def __init__(self) -> None:
        self._kept: dict[Key, Description] = {}

    def find(self, key: Key | None) -> Description | None:
        """Return the description with this key, if it is remembered."""
        return None if key is None else self._kept.get(key)

    def keep(self, key: Key | None, description: Description) -> None:
        """Remember a description, unless it holds elements of its tensors."""
        if key is None or not description.repeats:
            return
        if len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = description


def bound(description: Description, shared: Shared, taken: Callable[[InputDescription], Tensor]) -> InferRequest:
    """Return the request that a description describes.

    `taken` returns an input whose elements are bytes of the message. It is called in the order of the inputs.

    Raises BadInput, UnknownRegion and the errors of `taken`."""
    inputs: dict[str, Tensor] = {}
    for each in description.inputs:
        if each.place is not None:
            window = shared.input(each.name, each.place)
            inputs[each.name] = from_window(each.name, each.datatype, each.shape, window)
        else:
            inputs[each.name] = each.array if each.array is not None else taken(each)
    outputs = [
        each.requested if each.place is None else _placed(each.requested, shared, each.place)
        for each in description.outputs
    ]
    own = description.request
    return InferRequest(
        own.model, inputs, outputs, own.version, own.id, own.timeout_us, own.priority, own.max_tokens, own.binary
    )


def _placed(requested: RequestedOutput, shared: Shared, place: Place) -> RequestedOutput:
    window = shared.window(requested.name, place)
    return RequestedOutput(requested.name, requested.classes, requested.binary, window)


def check_new(name: str, inputs: Sequence[InputDescription]) -> None:
    """Raise BadInput if a request describes the input `name` again."""
    if any(each.name == name for each in inputs):
        raise BadInput(f"the request has input {name!r} twice; give it once")


def place_of(name: str, parameters: Mapping[str, Any]) -> Place | None:
    """Return the place of a tensor with these parameters, or None if it is not in shared memory. Raises BadInput."""
    region = parameters.get("shared_memory_region")
    if region is None:
        return None
    offset, byte_size = parameters.get("shared_memory_offset", 0), parameters.get("shared_memory_byte_size")
    if not isinstance(region, str) or type(offset) is not int or type(byte_size) is not int:
        raise BadInput(
            f"{name!r}: give shared_memory_region as a string, and its offset and byte_size as whole numbers"
        )
    return Place(region, offset, byte_size)
