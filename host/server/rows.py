"""What a request's tensors mean to a model: a row of the batch is one request of the runtime."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, CorruptInput
from headrace.host.dpu.reference.audio_file import is_audio
from headrace.host.dpu.specs import AudioSpec
from headrace.host.memory.layout import TensorSpec
from headrace.host.server.protocol.messages import BYTES, MAX_NUMBERS, InferRequest
from headrace.host.workers.networks.sequence_networks import tree_of
from headrace.host.workers.networks.steps import Signature

IMAGE, AUDIO = "IMAGE", "AUDIO"  # the inputs of photos and of sounds, as files
TOKENS, WORDS, PARENTS = "tokens", "words", "parents"
LONGEST_TREE = 1 << 14  # nodes of all trees of a request, which are Python objects

Tensors = Mapping[str, NDArray[Any]]


class Row(NamedTuple):
    """What `Runtime.infer` is given; bytes are a file, to be preprocessed before."""

    value: Any
    options: Mapping[str, Any] = {}


class Rows(ABC):
    """`inputs` are those that metadata tell, without the batch; `encoded` is one of files, beside them."""

    inputs: Sequence[TensorSpec]
    encoded: str | None = None

    @abstractmethod
    def of(self, request: InferRequest) -> list[Row]:
        """Raises BadInput and CorruptInput."""

    def preprocessed(self, tensor: NDArray[Any]) -> Any:
        """What `Runtime.infer` is given for a file that became this tensor."""
        return tensor


class TensorRows(Rows):
    """Rows of a network that takes `inputs`, or files of the kind `encoded` in their place, IMAGE or AUDIO.

    `sounds` is the network's spec if it takes sounds."""

    def __init__(
        self, model: str, inputs: Sequence[TensorSpec], encoded: str | None, sounds: AudioSpec | None = None
    ) -> None:
        self.inputs = tuple(inputs)
        self.encoded = None if any(spec.name == encoded for spec in inputs) else encoded
        self._model = model
        self._sounds = sounds

    def of(self, request: InferRequest) -> list[Row]:
        inputs = request.inputs
        if self.encoded is not None and self.encoded in inputs:
            return [Row(file) for file in _files(self.encoded, inputs)]
        count = _batch(self._model, inputs)
        return [Row({name: array[row] for name, array in inputs.items()}) for row in range(count)]

    def preprocessed(self, tensor: NDArray[Any]) -> Any:
        """With a sound's features goes how many of their frames count."""
        if self._sounds is None:
            return tensor
        features, frames = self.inputs
        return {features.name: tensor, frames.name: np.array(self._sounds.counted(tensor.shape[-1]), frames.dtype)}


class TokenRows(Rows):
    """Of a step model over sequences. Rows of one request are sequences of one length. The parameter `max_tokens`
    limits what is decoded, its longest output without; the runtime knows it as `limit`."""

    def __init__(self, signature: Signature, limit: str) -> None:
        self.inputs = (TensorSpec(TOKENS, "int64", (-1,), signature.longest_input),)
        self._signature = signature
        self._limit = limit

    def of(self, request: InferRequest) -> list[Row]:
        count = _batch(self._signature.name, request.inputs)
        (tokens,) = _integers(self._signature.name, request.inputs, (TOKENS,))
        options: dict[str, int] = {}
        if self._signature.decodes:
            options[self._limit] = request.max_tokens or self._signature.longest_output
        return [Row(tokens[row].tolist(), options) for row in range(count)]


class TreeRows(Rows):
    """Of a step model over binary trees: the words, and of every node its parent, as `tree_of` takes them."""

    def __init__(self, signature: Signature) -> None:
        self.inputs = tuple(TensorSpec(name, "int64", (-1,), LONGEST_TREE) for name in (WORDS, PARENTS))
        self._model = signature.name

    def of(self, request: InferRequest) -> list[Row]:
        count = _batch(self._model, request.inputs)
        words, parents = _integers(self._model, request.inputs, (WORDS, PARENTS))
        if parents.size > LONGEST_TREE:
            raise BadInput(f"trees of {parents.size} nodes together; give at most {LONGEST_TREE} at a time")
        return [Row(tree_of(words[row].tolist(), parents[row].tolist())) for row in range(count)]


def _batch(model: str, inputs: Tensors) -> int:
    if not inputs:
        raise BadInput(f"model {model!r} was given no input")
    counts = {len(array) if array.ndim else 0 for array in inputs.values()}
    if len(counts) > 1 or not min(counts):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
        raise BadInput(f"the first dimension of every input is the batch, 1 or more and alike; these are {shapes}")
    return counts.pop()


def _integers(model: str, inputs: Tensors, names: Sequence[str]) -> list[NDArray[Any]]:
    """The inputs of these names, which are all that there may be."""
    if set(inputs) != set(names):
        raise BadInput(f"model {model!r} takes {' and '.join(names)}, and was given {', '.join(sorted(inputs))}")
    for name in names:
        array = inputs[name]
        if array.size > MAX_NUMBERS:
            raise BadInput(f"input {name!r} has {array.size} numbers; send at most {MAX_NUMBERS} at a time")
        if array.dtype.kind not in "iu" or array.ndim != 2:
            raise BadInput(
                f"input {name!r} is whole numbers of shape [rows, length], not {array.dtype} of {list(array.shape)}"
            )
    return [inputs[name] for name in names]


def _is_image(file: bytes) -> bool:
    return file[:3] == b"\xff\xd8\xff" or file[:8] == b"\x89PNG\r\n\x1a\n" or file[:4] + file[8:12] == b"RIFFWEBP"


# Libraries that read dozens of formats shall see only these.
_KINDS = {IMAGE: (_is_image, "JPEG, PNG or WebP"), AUDIO: (is_audio, "WAV or FLAC")}


def kind_of(file: bytes) -> str | None:
    """Return IMAGE or AUDIO, by the first bytes of a file, or None if it is neither."""
    return next((kind for kind, (is_one, _) in _KINDS.items() if is_one(file)), None)


def _files(kind: str, inputs: Tensors) -> list[bytes]:
    array = inputs[kind]
    if len(inputs) > 1 or array.dtype != object or array.ndim not in (1, 2) or array.shape[1:] not in ((), (1,)):
        raise BadInput(f"{kind} is {BYTES} of shape [files] or [files, 1], and needs no other input")
    found: list[bytes] = array.ravel().tolist()
    if not found:
        raise BadInput(f"{kind} holds no file")
    is_one, formats = _KINDS[kind]
    for file in found:
        if not is_one(file):
            raise CorruptInput(
                f"{kind} holds {len(file)} bytes that are no {formats} file; in JSON, files are base64, and the input "
                'has the parameter "base64": true'
            )
    return found


def outputs_by_name(specs: Sequence[TensorSpec], found: Any) -> Tensors:
    """A request's outputs, where its kind of task gives the only one without its name."""
    return found if isinstance(found, Mapping) else {specs[0].name: np.asarray(found, specs[0].dtype)}
