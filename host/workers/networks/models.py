"""Load networks by name: torchvision's with fixed random weights, or a user's own. It downloads nothing.

The inputs of a network come from the caller, from the network itself, or from the transform that torchvision publishes
with its weights. They are never guessed. The outputs are measured by two runs, on a batch of 2 and then of 1.
"""

import contextlib
import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.host.dpu.reference.audio import forms
from headrace.host.dpu.specs import AUDIO_FORMATS, IMAGE_FORMATS, AudioSpec, ImageSpec
from headrace.host.memory.layout import VARIABLE, TensorSpec
from headrace.host.workers.networks import tokens as tokens_of
from headrace.host.workers.networks.description import MAX_BATCH, TENSORS, WITH_WEIGHTS, NetworkDescription
from headrace.host.workers.networks.foreign.limits import box_of
from headrace.host.workers.networks.foreign.rules import ANY_FILE, EXPORTED, FileRules
from headrace.host.workers.networks.foreign.weights import load_weights
from headrace.host.workers.networks.input_shapes import DTYPES, parse_input_shape
from headrace.host.workers.networks.zoo import torchvision_operators  # noqa: F401  a user's network may import torchvision

DEFAULT_INPUT = "3x224x224"
# Files that cannot be read as networks: what they hold, and what to do.
_WEIGHTS = (
    "such a file has weights, or a pickle that could run any code; give the network as module:function with --weights "
    "FILE, or save it with torch.export.save as .pt2"
)
_WEIGHTS_ALONE = (
    "such a file has weights alone; give their network by its name or as module:function with --weights FILE"
)
_OTHERS = (
    "networks of other frameworks are not read; make it a torch.nn.Module and save that with torch.export.save as .pt2"
)
FOREIGN = {
    ".onnx": "ONNX is not read; save the network that it was made of with torch.export.save as .pt2",
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), _WEIGHTS),
    ".safetensors": _WEIGHTS_ALONE,
    **dict.fromkeys((".h5", ".keras", ".tflite", ".pb", ".gguf"), _OTHERS),
}
TIMM_CROP_PCT = 0.875  # timm's default for networks that do not name their own


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel(NetworkDescription):
    """A network in eval mode on the CPU.

    With `by_name`, the module takes its tensors by the names of `inputs`, otherwise in their order."""

    module: torch.nn.Module
    by_name: bool = False

    def described(self) -> NetworkDescription:
        """Return the description without the network."""
        return NetworkDescription(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(NetworkDescription)}
        )

    def forward(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs of the module, in the order of `outputs`, for batched tensors in the order of `inputs`.

        It runs in inference mode."""
        with torch.inference_mode():
            return self.call(tensors)

    def call(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the same as `forward`, in the caller's mode."""
        given = _call(self.module, self.inputs, tensors, self.by_name)
        return [given[output.name] for output in self.outputs]


def load_model(
    name: str, weights: str | None = None, input_shape: str | None = None, rules: FileRules = ANY_FILE
) -> LoadedModel:
    """Load a network and find its inputs and outputs.

    Args:
        name: A torchvision network; one of WITH_WEIGHTS; TENSORS, which returns its inputs; `module:function`, which
            names a function that returns a user's own; or a file that torch.export has saved (`.pt2`), whose inputs are
            those of the export.
        weights: File with a state_dict. Without it the parameters of torchvision's networks are random but fixed.
        input_shape: Text of the option --input-shape, see `parse_input_shape`.
        rules: The user's rules for reading these files.

    Without `input_shape`, the first of these counts: the network's own attribute `input_shape` (that text, a tuple, or
    a mapping of names to either); timm's `default_cfg`; the inputs that the network's own AudioSpec makes; the
    transform of torchvision's default weights. Without any of them 3x224x224 float32 is tried. A user's module may also
    have `transform`, an ImageSpec, or an AudioSpec if it takes features and their number of frames, or what the
    AudioSpec names, and `categories`,
    the names of its classes.

    Raises:
        UsageError: The network cannot be loaded or run. The text says what to change.
    """
    given = None if input_shape is None else parse_input_shape(input_shape)
    torch.manual_seed(0)
    source, largest = WITH_WEIGHTS.get(name, name), MAX_BATCH
    exported, users = name.endswith(EXPORTED), ":" in source
    if exported:  # outside the box, because this imports much of torch
        from headrace.host.workers.networks.foreign.exported import load_exported
    with (
        _cwd_importable(),
        contextlib.redirect_stdout(sys.stderr),  # stdout is for --json alone
        box_of(name, weights, rules),
    ):
        if exported:
            if given is not None:
                raise UsageError(f"model {name!r} has inputs of its own: leave --input-shape out")
            module, inputs, by_name, largest = load_exported(Path(name), rules)
            transform = categories = None
        elif name == TENSORS:
            module, inputs = _same(given)
            transform = categories = None
        elif users:
            module = _users_model(source)
            transform, categories = _own_transform(module), _own_categories(name, module)
            inputs = given or _own_inputs(name, module) or _audio_inputs(transform) or _named_audio(module, transform)
        elif (suffix := Path(name).suffix.lower()) in FOREIGN:
            raise UsageError(f"--model {name}: {FOREIGN[suffix]}")
        else:
            from headrace.host.workers.networks.zoo.torchvision_networks import known_name, published, torchvision_model

            wanted = known_name(name)
            transform, categories = published(wanted)
            inputs = given or (transform and (TensorSpec("", "float32", transform.tensor_shape),))
            module = torchvision_model(wanted, inputs)
        with contextlib.suppress(NotImplementedError):  # modules of torch.export stay as they were exported
            module.eval()
        if weights is not None:
            load_weights(module, Path(weights), rules)
        inputs_given = bool(inputs)
        if not exported:
            inputs, by_name = _named_inputs(name, module, inputs or parse_input_shape(DEFAULT_INPUT))
        outputs = _outputs(name, module, inputs, by_name, inputs_given=inputs_given)
    return LoadedModel(
        name=name,
        inputs=inputs,
        outputs=outputs,
        transform=_fitted(transform, inputs),
        categories=categories,
        largest_batch=largest,
        module=module,
        by_name=by_name,
    )


# ---- The network that returns its inputs ----


class _Same(torch.nn.Module):
    """Returns its inputs by their names."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = tuple(names)

    def forward(self, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(zip(self._names, tensors, strict=True))


def _same(given: tuple[TensorSpec, ...] | None) -> tuple[torch.nn.Module, tuple[TensorSpec, ...]]:
    """Return the network and its inputs. Raises UsageError if no inputs are given, because it has none of its own."""
    if given is None:
        raise UsageError(
            f"model {TENSORS!r} has no inputs of its own; give --input-shape, or serve it with --processor"
        )
    inputs, _ = _named_inputs(TENSORS, _Same(()), given)
    return _Same([spec.name for spec in inputs]), inputs


# ---- A user's own network ----


def _users_model(name: str) -> torch.nn.Module:
    module_name, _, function = name.partition(":")
    try:
        module = getattr(importlib.import_module(module_name), function)()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"--model {name}: calling it failed: {one_line(error)}") from error
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"--model {name} returned a {type(module).__name__}; it must return a torch.nn.Module")
    return module


def _own_inputs(name: str, module: torch.nn.Module) -> tuple[TensorSpec, ...] | None:
    shape = getattr(module, "input_shape", None)
    if shape is None:
        shape = _timm(module).get("input_size")
    if shape is None:
        return None
    try:
        named = isinstance(shape, Mapping)
        text = ",".join(f"{key}={_text(sizes)}" for key, sizes in shape.items()) if named else _text(shape)
    except TypeError:
        raise UsageError(
            f"model {name!r}: its input_shape is a {type(shape).__name__}; make it a tuple of sizes, a text as "
            "--input-shape takes, or a mapping of names to these"
        ) from None
    return parse_input_shape(text, f"model {name!r}, input_shape")


def _audio_inputs(transform: ImageSpec | AudioSpec | None) -> tuple[TensorSpec, ...] | None:
    """Return the inputs that an AudioSpec makes, without names. None for another transform."""
    if not isinstance(transform, AudioSpec):
        return None
    if transform.tensors is not None:
        return None
    longest = transform.frames(int(transform.longest_s * transform.rate))
    return parse_input_shape(f"{transform.n_mels}x1..{longest},scalar:int64")


def _named_audio(module: torch.nn.Module, transform: ImageSpec | AudioSpec | None) -> tuple[TensorSpec, ...] | None:
    """Return the inputs of a network whose AudioSpec names its tensors: the features, and what else `forward` takes."""
    if not isinstance(transform, AudioSpec) or transform.tensors is None:
        return None
    shortest, longest = (forms(transform, round(s * transform.rate)) for s in (0.1, transform.longest_s))
    taken = inspect.signature(module.forward).parameters
    inputs = []
    for name, form in longest.items():
        if name not in taken and name != transform.tensors.features:
            continue
        sizes = [
            str(size) if size == other else f"1..{size}"
            for size, other in zip(form.shape[1:], shortest[name].shape[1:], strict=True)
        ]
        own = f"{name}=" if transform.tensors.features in taken else ""
        inputs.append(f"{own}{_text(sizes)}:{form.dtype}")
    return parse_input_shape(",".join(inputs if transform.tensors.features in taken else inputs[:1]))


def _text(sizes: str | Sequence[int]) -> str:
    return sizes if isinstance(sizes, str) else "x".join(map(str, sizes)) or "scalar"


def _timm(module: torch.nn.Module) -> Mapping[str, Any]:
    """Return the settings of a network that timm made: input_size, crop_pct, mean, std. Empty for any other network."""
    described = getattr(module, "default_cfg", None)
    return described if isinstance(described, Mapping) else {}


def _own_transform(module: torch.nn.Module) -> ImageSpec | AudioSpec | None:
    transform = getattr(module, "transform", None)
    if isinstance(transform, (ImageSpec, AudioSpec)):
        return transform
    described = _timm(module)
    if not {"input_size", "mean", "std"} <= described.keys():
        return None
    _, height, width = described["input_size"]
    short = int(min(height, width) / (described.get("crop_pct") or TIMM_CROP_PCT))
    return ImageSpec(short, width, height, mean=tuple(described["mean"]), std=tuple(described["std"]))


def _own_categories(name: str, module: torch.nn.Module) -> tuple[str, ...] | None:
    categories = getattr(module, "categories", None)
    if categories is None:
        return None
    if not isinstance(categories, (list, tuple)) or not all(isinstance(label, str) for label in categories):
        raise UsageError(f"model {name!r}: its categories must be a list of strings, one a class")
    return tuple(categories)


@contextlib.contextmanager
def _cwd_importable() -> Iterator[None]:
    """Let a user's module import modules from its folder, as a script can."""
    folder = os.getcwd()
    if folder in sys.path:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


# ---- Inputs and outputs ----


def _named_inputs(
    name: str, module: torch.nn.Module, inputs: tuple[TensorSpec, ...]
) -> tuple[tuple[TensorSpec, ...], bool]:
    """Return the inputs, with the names that `forward` has where they have none, and whether to call it by name."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
        taken = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        takes_more = len(parameters) > len(taken)  # such as *args
    except ValueError:  # torch.jit.trace keeps no names
        taken, takes_more = [], True
    matching = [spec.name for spec in inputs if spec.name in taken]
    if matching and len(matching) < len(inputs):
        unknown = next(spec.name for spec in inputs if spec.name not in taken)
        raise UsageError(f"model {name!r} has an input {matching[0]!r}, but no {unknown!r}; it has {', '.join(taken)}")
    if len(inputs) > len(taken) and not takes_more:
        raise UsageError(f"model {name!r} takes {', '.join(taken) or 'nothing'}, not {len(inputs)} inputs")
    if not inputs[0].name:
        others = [f"input_{number}" for number in range(len(taken), len(inputs))] if len(inputs) > 1 else ["input"]
        inputs = tuple(replace(spec, name=own) for spec, own in zip(inputs, taken + others, strict=False))
    return inputs, bool(matching)


def _call(
    module: torch.nn.Module, inputs: Sequence[TensorSpec], tensors: Sequence[torch.Tensor], by_name: bool
) -> dict[str, torch.Tensor]:
    """Run the module once, and return its outputs by name."""
    if by_name:
        return _named_outputs(module(**{spec.name: tensor for spec, tensor in zip(inputs, tensors, strict=True)}))
    return _named_outputs(module(*tensors))


def _named_outputs(result: Any) -> dict[str, Any]:
    """Return the outputs of a network by name, without those that are None.

    The names are the keys of a mapping, or the fields of a named tuple or dataclass. Otherwise they are `output`, or
    `output_0`, `output_1` and so on."""
    if isinstance(result, Mapping):
        outputs = {str(key): value for key, value in result.items()}
    elif hasattr(result, "_fields"):
        outputs = result._asdict()
    elif dataclasses.is_dataclass(result):
        outputs = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    elif isinstance(result, (tuple, list)) and len(result) != 1:
        outputs = {f"output_{number}": value for number, value in enumerate(result)}
    else:
        outputs = {"output": result[0] if isinstance(result, (tuple, list)) else result}
    return {name: value for name, value in outputs.items() if value is not None}


def _outputs(
    name: str, module: torch.nn.Module, inputs: tuple[TensorSpec, ...], by_name: bool, inputs_given: bool
) -> tuple[TensorSpec, ...]:
    """Return the outputs for one request, from a batch of 2 of the longest inputs and a batch of 1 of half of them.

    The batch of 1 shows an output that has no batch dimension, or loses it. The two lengths show which dimension
    varies. A network with joined inputs runs two requests of few tokens, and then the smaller one."""
    joined = next((spec for spec in inputs if spec.joined), None)
    tokens = (0, 0) if joined is None else tokens_of.example_tokens(joined.longest)

    def run(batch: int, part: int) -> dict[str, torch.Tensor]:
        if joined is not None:
            tensors = [torch.from_numpy(array) for array in tokens_of.example_batch(inputs, tokens[:batch])]
        else:
            tensors = [
                torch.zeros(batch, *spec.sized(spec.longest // part), dtype=getattr(torch, spec.dtype))
                for spec in inputs
            ]
        shown = ", ".join(
            f"{spec.name} {spec.dtype} {tuple(tensor.shape)}" for spec, tensor in zip(inputs, tensors, strict=True)
        )
        try:
            with torch.inference_mode():
                given = _call(module, inputs, tensors, by_name)
        except (Exception, SystemExit) as error:
            hint = "" if inputs_given else "; give the shape that it takes with --input-shape"
            raise UsageError(f"model {name!r} does not take {shown}{hint}: {one_line(error)}") from error
        for output, tensor in given.items():
            if not isinstance(tensor, torch.Tensor):
                raise UsageError(
                    f"model {name!r}: output {output!r} is a {type(tensor).__name__}; return tensors alone"
                )
            if (dtype := str(tensor.dtype).removeprefix("torch.")) not in DTYPES:
                raise UsageError(f"model {name!r}: output {output!r} is {dtype}; convert it to {', '.join(DTYPES)}")
            if tensor.shape[:1] != (batch,) and (joined is None or not tensor.shape):
                raise UsageError(
                    f"model {name!r}: output {output!r} of a batch of {batch} has shape {tuple(tensor.shape)}; its "
                    "first dimension must be the batch"
                )
        return given

    two, one = run(2, 1), run(1, 2)
    if not two:
        raise UsageError(f"model {name!r} returns no tensors")
    if two.keys() != one.keys():
        raise UsageError(f"model {name!r} returns other outputs for a batch of 1; return the same for every batch")
    if joined is not None:
        return tuple(
            _joined_output_spec(name, output, tensor, one[output], joined.longest, tokens)
            for output, tensor in two.items()
        )
    return tuple(
        _output_spec(name, output, tensor, one[output], any(spec.longest for spec in inputs))
        for output, tensor in two.items()
    )


def _joined_output_spec(
    name: str, output: str, two: torch.Tensor, one: torch.Tensor, longest: int, tokens: tuple[int, int]
) -> TensorSpec:
    """Return one output of a network with joined inputs, from two requests with these tokens and the smaller one
    alone. Raises UsageError unless it has one row a request, or one row for some tokens."""
    per_row = tokens_of.tokens_per_row(len(two), len(one), tokens)
    dtype, shape = str(two.dtype).removeprefix("torch."), tuple(two.shape[1:])
    if per_row is None or one.dtype != two.dtype or tuple(one.shape[1:]) != shape:
        raise UsageError(
            f"model {name!r}: output {output!r} is {two.dtype} {tuple(two.shape)} for requests of {tokens[0]} and "
            f"{tokens[1]} tokens, and {one.dtype} {tuple(one.shape)} for the first one alone; its first dimension must "
            "have one row for each request, or one for each token or for as many tokens as it merges"
        )
    if per_row == 0:
        return TensorSpec(output, dtype, shape)
    return TensorSpec(output, dtype, (VARIABLE, *shape), longest // per_row, per_row)


def _output_spec(name: str, output: str, two: torch.Tensor, one: torch.Tensor, may_vary: bool) -> TensorSpec:
    """Return one output, from a batch of 2 and a batch of 1, which has half the length if lengths vary."""
    shape, other = tuple(two.shape[1:]), tuple(one.shape[1:])
    varying = [i for i, sizes in enumerate(zip(shape, other, strict=False)) if sizes[0] != sizes[1]]
    if len(shape) != len(other) or two.dtype != one.dtype or (varying and not may_vary):
        raise UsageError(
            f"model {name!r}: output {output!r} is {two.dtype} {tuple(two.shape)} for a batch of 2 and {one.dtype} "
            f"{tuple(one.shape)} for a batch of 1; only the first dimension may depend on the batch"
        )
    if len(varying) > 1:
        raise UsageError(
            f"model {name!r}: output {output!r} has {len(varying)} dimensions that vary, {tuple(two.shape)} and "
            f"{tuple(one.shape)}; at most one may"
        )
    longest = max(shape[varying[0]], other[varying[0]]) if varying else 0
    sizes = tuple(VARIABLE if i in varying else size for i, size in enumerate(shape))
    return TensorSpec(output, str(two.dtype).removeprefix("torch."), sizes, longest)


def _fitted(transform: ImageSpec | AudioSpec | None, inputs: Sequence[TensorSpec]) -> ImageSpec | AudioSpec | None:
    """Return the transform adapted to the actual inputs, or None if it does not make such inputs.

    Another image size keeps the ratio of resize to crop. Audio may last as long as there are frames for it."""
    spec = inputs[0]
    if isinstance(transform, AudioSpec) and transform.tensors is not None:
        return transform if spec.variable is None else transform.within(spec.longest)
    if isinstance(transform, AudioSpec):
        if len(inputs) != 2 or inputs[1].shape or inputs[1].dtype not in ("int32", "int64"):
            return None
        if spec.dtype not in AUDIO_FORMATS or spec.shape != (transform.n_mels, VARIABLE):
            return None
        longest_s = min(transform.longest_s, (spec.longest - 1) * transform.hop / transform.rate)
        return replace(transform, dtype=spec.dtype, longest_s=longest_s)
    if transform is None or len(inputs) > 1 or len(spec.shape) != 3 or spec.variable is not None:
        return None
    channels, height, width = spec.shape
    if channels != 3 or spec.dtype not in IMAGE_FORMATS:
        return None
    if transform.dtype != spec.dtype:
        transform = replace(transform, dtype=spec.dtype)
    if transform.tensor_shape == spec.shape:
        return transform
    short = round(transform.resize_short * max(height, width) / max(transform.crop_height, transform.crop_width))
    return replace(transform, resize_short=short, crop_width=width, crop_height=height, crop_x=None, crop_y=None)
