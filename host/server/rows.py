"""Conversion of a request's tensors into rows. Each row of the batch becomes one request of the runtime."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, CorruptInput
from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.dpu.processors import ProcessorSpec, Size
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.reference.audio_file import is_audio
from headrace.host.dpu.reference.orientation import orientation
from headrace.host.dpu.reference.processor import forms
from headrace.host.dpu.specs import AudioSpec
from headrace.host.memory.layout import VARIABLE, TensorSpec
from headrace.host.memory.sources import Tensor, array_of
from headrace.host.server.protocol.messages import BYTES, MAX_NUMBERS, InferRequest
from headrace.host.workers.networks.sequence_networks import tree_of
from headrace.host.workers.networks.steps import Signature
from headrace.host.workers.networks.tokens import is_grid

IMAGE, AUDIO = "IMAGE", "AUDIO"  # names of the inputs that take image and audio files
TOKENS, WORDS, PARENTS = "tokens", "words", "parents"
_tree_of: Callable[..., Any] = tree_of  # mypyc does not end on the type of a tree, which contains itself
LONGEST_TREE = 1 << 14  # limit on the nodes of all trees of a request, because each node becomes a Python object

Tensors = Mapping[str, NDArray[Any]]


class Row(NamedTuple):
    """Hold the arguments of `Runtime.infer` for one row. A value of bytes is a file, which is preprocessed first."""

    value: Any
    options: Mapping[str, Any] = {}


class Rows(ABC):
    """Convert the requests for one model into rows.

    `inputs` are the inputs in the model's metadata, without the batch. `encoded` is the name of the input that takes
    files instead, if the model has one."""

    inputs: Sequence[TensorSpec]
    encoded: str | None = None

    def count(self, inputs: Mapping[str, Tensor]) -> int:
        """Return the number of rows that these inputs claim to have."""
        return max([len(array) for array in inputs.values() if array.ndim], default=0)

    @abstractmethod
    def of(self, request: InferRequest) -> list[Row]:
        """Return the rows of a request. Raises BadInput and CorruptInput."""

    def preprocessed(self, made: Preprocessed) -> Any:
        """Return the value for `Runtime.infer` when preprocessing has turned a file into this. Raises BadInput."""
        return made.tensor


class TensorRows(Rows):
    """Make rows for a network that takes `inputs`, or files in their place.

    `encoded` is the kind of these files, IMAGE or AUDIO. Joined inputs (memory/layout.py) have the tokens of all rows
    as their first dimension, and the grids in the request split them."""

    def __init__(self, model: str, inputs: Sequence[TensorSpec], encoded: str | None) -> None:
        self.inputs = tuple(inputs)
        self.encoded = None if any(spec.name == encoded for spec in inputs) else encoded
        self._model = model
        self._names = frozenset(spec.name for spec in self.inputs)
        self._joined = {spec.name for spec in self.inputs if spec.joined}

    def count(self, inputs: Mapping[str, Tensor]) -> int:
        if not self._joined:
            return super().count(inputs) or 1
        return super().count({name: array for name, array in inputs.items() if name not in self._joined}) or 1

    def of(self, request: InferRequest) -> list[Row]:
        inputs = request.inputs
        if self.encoded is not None and self.encoded in inputs:
            return [Row(file) for file in _files(self.encoded, inputs)]
        self._check_names(inputs)
        if self._joined:
            return self._split({name: array_of(tensor) for name, tensor in inputs.items()})
        count = _batch(self._model, inputs)
        return [Row({name: tensor[row] for name, tensor in inputs.items()}) for row in range(count)]

    def _split(self, inputs: Tensors) -> list[Row]:
        """Return the rows of joined tensors: one for each grid, or a single one without grids."""
        stacked = {name: array for name, array in inputs.items() if name not in self._joined}
        joined = {name: array for name, array in inputs.items() if name in self._joined}
        count = _batch(self._model, stacked) if stacked else 1
        grids = next((inputs[spec.name] for spec in self.inputs if is_grid(spec) and spec.name in inputs), None)
        if grids is None:
            if count > 1:
                raise BadInput(f"model {self._model!r} has no grids that split {count} rows; send them one at a time")
            return [Row({**joined, **{name: array[0] for name, array in stacked.items()}})]
        ends = np.cumsum(grids.prod(1)).tolist() if grids.ndim == 2 and grids.dtype.kind in "iu" else []
        for name, array in joined.items():
            if array.ndim == 0 or not ends or len(array) != ends[-1] or grids.min() < 1:
                shown = grids.tolist() if grids.size < 64 else f"of shape {list(grids.shape)}"
                raise BadInput(
                    f"{name} of model {self._model!r} has shape {list(array.shape)}, and the grids are {shown}; give a "
                    "row for each patch of the grids"
                )
        rows = []
        for row, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            tokens = {name: array[first:end] for name, array in joined.items()}
            rows.append(Row({**tokens, **{name: array[row] for name, array in stacked.items()}}))
        return rows

    def _check_names(self, inputs: Mapping[str, Tensor]) -> None:
        """Raise BadInput for an input that the model does not have. The error also names the input for files."""
        if not inputs.keys() <= self._names:
            unknown = sorted(inputs.keys() - self._names)
            names = ", ".join(spec.name for spec in self.inputs)
            files = "" if self.encoded is None else f", or files as {self.encoded}"
            raise BadInput(f"model {self._model!r} has no input {unknown[0]!r}; it takes {names}{files}")

    def _misfit(self, spec: TensorSpec, name: str, shape: tuple[int, ...], what: str, change: str) -> BadInput:
        """Return the error for a file whose tensor `name` does not fit the input. `change` is what to send instead."""
        longest = f", at most {spec.longest} in place of -1" if spec.variable is not None else ""
        return BadInput(
            f"{what} gives {name} of shape {list(shape)}, and model {self._model!r} takes "
            f"{list(spec.batched(1, VARIABLE))}{longest}; send {change}"
        )


class AudioRows(TensorRows):
    """Make rows for a network that takes features and their number of frames, or audio files in their place."""

    def __init__(self, model: str, inputs: Sequence[TensorSpec], spec: AudioSpec) -> None:
        super().__init__(model, inputs, AUDIO)
        self._spec = spec

    def preprocessed(self, made: Preprocessed) -> Any:
        """Return the features with the number of their frames that count."""
        features, frames = self.inputs
        counted = self._spec.counted(made.tensor.shape[-1])
        return {features.name: made.tensor, frames.name: np.array(counted, frames.dtype)}


class FeatureRows(TensorRows):
    """Make rows for a network that takes tensors of a feature extractor of Hugging Face, or audio files in their place.

    `tensors` are the names of the extractor's tensors by the names of the inputs."""

    def __init__(self, model: str, inputs: Sequence[TensorSpec], tensors: Mapping[str, str]) -> None:
        super().__init__(model, inputs, AUDIO)
        self._tensors = tensors

    def preprocessed(self, made: Preprocessed) -> Any:
        """Return the inputs, without the batch of 1 that transformers has. Raises BadInput if they do not fit."""
        values = {}
        for spec in self.inputs:
            tensor = made.tensors[self._tensors[spec.name]]
            if not spec.holds(tensor.shape):
                raise self._misfit(spec, self._tensors[spec.name], tensor.shape, "the audio", "audio of another length")
            values[spec.name] = tensor[0].astype(spec.dtype, copy=False)
        return values


class ProcessorRows(TensorRows):
    """Make rows for a network that takes tensors of an image processor of Hugging Face, or image files in their place.

    Args:
        spec: The processor.
        tensors: The names of the processor's tensors by the names of the inputs.
        max_tokens: The most tokens of a batch, if there is a limit.
    """

    def __init__(
        self,
        model: str,
        inputs: Sequence[TensorSpec],
        spec: ProcessorSpec,
        tensors: Mapping[str, str],
        max_tokens: int | None = None,
    ) -> None:
        super().__init__(model, inputs, IMAGE)
        self._spec = spec
        self._tensors = tensors
        self._max_tokens = max_tokens
        self._varies = any(each.variable is not None for each in self.inputs)

    def of(self, request: InferRequest) -> list[Row]:
        rows = super().of(request)
        if self._varies:
            for row in rows:
                if isinstance(row.value, bytes):
                    self._check_header(row.value)
        return rows

    def _check_header(self, file: bytes) -> None:
        """Refuse an image whose tensors the model does not take, by the size in its header.

        Raises BadInput. A header that cannot be read is reported when the image is decoded."""
        try:
            size = Size(*image_file.size(file))
        except CorruptInput:
            return
        if orientation(file).exchanges_sides:
            size = size.exchanged
        made = forms(self._spec, size)
        for each in self.inputs:
            self._check(each, made[self._tensors[each.name]].shape, f" of {size.width}x{size.height} pixels")

    def _check(self, spec: TensorSpec, shape: tuple[int, ...], size: str) -> None:
        """Raise BadInput if an input does not take a tensor of this shape."""
        if not spec.holds(shape):
            change = "an image of another size"
            if spec.variable is not None:
                change += " or give --input-shape a longer size"
            raise self._misfit(spec, self._tensors[spec.name], shape, f"the image{size}", change)
        if spec.joined and self._max_tokens is not None and shape[0] > self._max_tokens:
            raise BadInput(
                f"the image{size} gives {shape[0]} rows of {self._tensors[spec.name]}, and a batch of model "
                f"{self._model!r} has at most {self._max_tokens}; send a smaller image or give --max-batch-tokens a "
                "larger number"
            )

    def preprocessed(self, made: Preprocessed) -> Any:
        """Return the inputs. A stacked one comes without the batch of 1 that transformers has."""
        values = {}
        for spec in self.inputs:
            tensor = made.tensors[self._tensors[spec.name]]
            self._check(spec, tensor.shape, "")
            values[spec.name] = (tensor if spec.joined else tensor[0]).astype(spec.dtype, copy=False)
        return values


class TokenRows(Rows):
    """Make rows for a step model over sequences. All rows of one request have the same length.

    The parameter `max_tokens` limits the decoded tokens; without it the limit is the model's longest output. `limit` is
    the runtime's name of this option."""

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
    """Make rows for a step model over binary trees. The inputs are the words, and the parent of each node, as `tree_of`
    takes them."""

    def __init__(self, signature: Signature) -> None:
        self.inputs = tuple(TensorSpec(name, "int64", (-1,), LONGEST_TREE) for name in (WORDS, PARENTS))
        self._model = signature.name

    def of(self, request: InferRequest) -> list[Row]:
        count = _batch(self._model, request.inputs)
        words, parents = _integers(self._model, request.inputs, (WORDS, PARENTS))
        if parents.size > LONGEST_TREE:
            raise BadInput(
                f"the trees of the request have {parents.size} nodes together; give at most {LONGEST_TREE} at a time"
            )
        return [Row(_tree_of(words[row].tolist(), parents[row].tolist())) for row in range(count)]


def _batch(model: str, inputs: Mapping[str, Tensor]) -> int:
    if not inputs:
        raise BadInput(f"the request has no input for model {model!r}; give its inputs")
    counts = {len(array) if array.ndim else 0 for array in inputs.values()}
    if len(counts) > 1 or not min(counts):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
        raise BadInput(
            f"the first dimension of each input is the batch and must be the same, 1 or more; the inputs are {shapes}"
        )
    return counts.pop()


def _integers(model: str, inputs: Mapping[str, Tensor], names: Sequence[str]) -> list[NDArray[Any]]:
    """Return the inputs of these names. Raises BadInput for other inputs and for inputs that are not whole numbers."""
    if set(inputs) != set(names):
        raise BadInput(f"model {model!r} takes {' and '.join(names)}; the request has {', '.join(sorted(inputs))}")
    for name in names:
        array = inputs[name]
        if (size := math.prod(array.shape)) > MAX_NUMBERS:
            raise BadInput(f"input {name!r} has {size} numbers; send at most {MAX_NUMBERS} at a time")
        if array.dtype.kind not in "iu" or array.ndim != 2:
            raise BadInput(
                f"input {name!r} is {array.dtype} of shape {list(array.shape)}; give whole numbers of shape "
                "[rows, length]"
            )
    return [array_of(inputs[name]) for name in names]


def _is_image(file: bytes) -> bool:
    return file[:3] == b"\xff\xd8\xff" or file[:8] == b"\x89PNG\r\n\x1a\n" or file[:4] + file[8:12] == b"RIFFWEBP"


# Only these formats reach the decoding libraries, which could read dozens of others.
_KINDS = {IMAGE: (_is_image, "JPEG, PNG or WebP"), AUDIO: (is_audio, "WAV or FLAC")}


def kind_of(file: bytes) -> str | None:
    """Return IMAGE or AUDIO after the first bytes of a file, or None if it is neither."""
    return next((kind for kind, (is_one, _) in _KINDS.items() if is_one(file)), None)


def _files(kind: str, inputs: Mapping[str, Tensor]) -> list[bytes]:
    array = inputs[kind]
    is_bytes = isinstance(array, np.ndarray) and array.dtype == object
    if len(inputs) > 1 or not is_bytes or array.ndim not in (1, 2) or array.shape[1:] not in ((), (1,)):
        raise BadInput(f"{kind} is {BYTES} of shape [files] or [files, 1]; give it, and no other input")
    files: list[bytes] = array_of(array).ravel().tolist()
    if not files:
        raise BadInput(f"{kind} has no file; give one or more")
    is_one, formats = _KINDS[kind]
    for file in files:
        if not is_one(file):
            raise CorruptInput(
                f"{kind} holds {len(file)} bytes that are not a {formats} file; in JSON, encode files as base64 and "
                'give the input the parameter "base64": true'
            )
    return files


def outputs_by_name(specs: Sequence[TensorSpec], outputs: Any) -> Tensors:
    """Return the outputs of a request by name. Some kinds of task return their only output without its name."""
    return outputs if isinstance(outputs, Mapping) else {specs[0].name: np.asarray(outputs, specs[0].dtype)}
