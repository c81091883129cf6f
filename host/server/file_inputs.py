"""Choose what makes the inputs of a network from image or audio files, and check that it fits the network.

The first of these counts:

1. the option --processor, which names an image processor or a feature extractor of Hugging Face, or `none` for none;
2. the file of such a processor in the folder of the network's weights;
3. the network's own transform, with the options --resize, --crop, --mean and --std in it for images;
4. a guess: ImageNet's transform.

The tensors of a processor must have the shapes that the network's inputs have. Where a shape depends on the image or on
the length of audio, as that of patches does, one dimension of the input must be variable (memory/layout.py).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.names import (
    FILE,
    FILE_OF_ALL,
    audio_names,
    audio_processor,
    image_processor,
    is_for_audio,
)
from headrace.host.dpu.preprocessor import PIXEL_VALUES, AnySpec
from headrace.host.dpu.processors import Engine, ProcessorSpec, Size, type_name
from headrace.host.dpu.reference import audio
from headrace.host.dpu.reference.processor import Form, forms
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.live.hardware import Network
from headrace.host.memory.layout import TensorSpec
from headrace.host.server.settings import NO_PROCESSOR, ModelSettings
from headrace.host.workers.networks.description import TENSORS, NetworkDescription
from headrace.host.workers.networks.foreign.rules import EXPORTED
from headrace.host.workers.networks.input_shapes import DTYPES

RANDOM = "RANDOM weights, so its answers mean nothing; give --weights FILE"
# Images of usual, small and extreme sizes, which show what depends on the size.
SIZES = tuple(
    Size(*sides)
    for sides in ((640, 480), (480, 640), (32, 32), (97, 61), (224, 224), (1000, 100), (90, 1100), (2048, 1536))
)
LENGTHS_S = (0.1, 1.0, 7.3, 30.0)  # of audio, which show what depends on the length
MAX_BYTES = 1 << 20  # of the file of a processor; usual files have some hundred bytes
LONGEST = "LONGEST"  # in an advice, the number that the user must choose
# Types of a tensor, and the types of inputs that take it. Others would change values.
CASTS = {"float32": ("float32", "float16", "float64")}


@dataclass(frozen=True, slots=True)
class FileInput:
    """The maker of the inputs of one network from files.

    Args:
        spec: None if the network takes tensors alone.
        text: Its words for the user who starts the server.
        tensors: With a processor, the names of its tensors by the names of the network's inputs.
    """

    spec: AnySpec | None
    text: str
    tensors: Mapping[str, str] = field(default_factory=dict)


def file_input(own: ModelSettings, network: Network) -> FileInput:
    """Return what makes the inputs of a network. Reads the file of its processor. Raises UsageError."""
    weights = RANDOM if network.is_random else f"weights of {own.weights or own.source}"
    if own.source == TENSORS:
        weights = "it returns the tensors"
    if (chosen := _processor(own, network.description)) is not None:
        spec, tensors, origin = chosen
        if isinstance(spec, AudioSpec):
            return FileInput(spec, f"{own.name}: {weights}; audio becomes {tensors_text(spec)} of {origin}", tensors)
        how = f"images become {tensors_text(spec)} of {origin}, with the bits of {spec.engine.value}"
        return FileInput(spec, f"{own.name}: {weights}; {how}", tensors)
    if own.engine is not None:
        raise UsageError(f"model {own.name!r}: --engine is for an image processor, and it has none; give --processor")
    if (own_audio := network.description.audio_spec) is not None:
        if own_audio.tensors is None:
            return FileInput(own_audio, f"{own.name}: {weights}; audio becomes {own_audio.n_mels} mel bands")
        tensors = _fitted(own_audio, network.description)
        text = f"{own.name}: {weights}; audio becomes {tensors_text(own_audio)} of its own transform"
        return FileInput(own_audio, text, tensors)
    image = _image_spec(own, network.description)
    if image is None:
        return FileInput(None, f"{own.name}: {weights}")
    return FileInput(image, f"{own.name}: {weights}; {_image_text(own, network.description, image)}")


def check_processor(own: ModelSettings) -> None:
    """Raise UsageError for a --processor that names none, or with settings that contradict it. It needs no network."""
    if _names_processor(own):
        _read(own, str(own.processor), str(own.processor))


def with_inputs(own: ModelSettings) -> ModelSettings:
    """Return the settings with the tensors of the processor as inputs, for the source TENSORS without --input-shape.

    Raises UsageError if there is no processor, or if it makes tensors that no input takes."""
    if own.source != TENSORS or own.input_shape is not None:
        return own
    if not _names_processor(own):
        raise UsageError(
            f"model {own.name!r}: {TENSORS} returns what a processor makes; give --processor, or --input-shape"
        )
    named = str(own.processor)
    spec = _read(own, named, named)
    made = _forms_by_source(spec)
    if isinstance(spec, AudioSpec):
        made[spec.longest_s] = audio.forms(spec, int(spec.longest_s * spec.rate))
    inputs, of = [], _of(own, named)
    for name, form in next(iter(made.values())).items():
        shapes = [forms[name].shape for forms in made.values()]
        if str(form.dtype) not in DTYPES:
            raise UsageError(f"{of}: {name} is {type_name(form.dtype)}, which the protocol does not have")
        if len(set(map(len, shapes))) > 1 or len(varying := _varying(shapes)) > 1:
            raise UsageError(f"{of}: several sizes of {name} depend on the image, and one may; choose another model")
        longest = max(shape[varying[0]] for shape in shapes) if varying and isinstance(spec, AudioSpec) else LONGEST
        inputs.append(f"{name}={_sizes(shapes, str(longest))}:{form.dtype}")
    shape = ",".join(inputs)
    if LONGEST in shape:
        raise UsageError(f"{of}: the shape depends on the image; give --input-shape {shape}")
    return replace(own, input_shape=shape)


def check_unpadded(own: ModelSettings, network: NetworkDescription) -> None:
    """Raise UsageError if a batch would pad the tensors that the source TENSORS returns."""
    padded = next((each.name for each in network.inputs if each.variable is not None and not each.joined), None)
    if own.source == TENSORS and padded is not None and own.max_batch > 1:
        raise UsageError(
            f"model {own.name!r}: a batch pads {padded} to its longest, and {TENSORS} returns it so; give --max-batch 1"
        )


def tensors_text(spec: ProcessorSpec | AudioSpec) -> str:
    """Return the tensor of a processor and its name in words. N stands for a size that depends on the file."""
    made = [forms[_first(spec)] for forms in _forms_by_source(spec).values()]
    sizes = zip(*(form.shape for form in made), strict=False)
    shape = "x".join(str(size[0]) if len(set(size)) == 1 else "N" for size in sizes)
    return f"{shape} {type_name(made[0].dtype)} by {spec.name}"


def refuse_images(own: ModelSettings) -> None:
    """Raise UsageError if the user gave settings of images for a model that takes no images."""
    given = [*_of_images(own), *(["processor"] if _names_processor(own) else ())]
    if given:
        raise UsageError(f"model {own.name!r} takes no images; leave out --{given[0]}")


# ---- Image processors and feature extractors of Hugging Face ----


def _names_processor(own: ModelSettings) -> bool:
    return own.processor not in (None, NO_PROCESSOR)


def _processor(
    own: ModelSettings, network: NetworkDescription
) -> tuple[ProcessorSpec | AudioSpec, dict[str, str], str] | None:
    """Return the processor of a model, its tensors by the network's inputs, and where it comes from. None if it has
    none. Raises UsageError."""
    named, advice = own.processor, ""
    is_audio = _may_take_audio(network)
    if named is None and (is_audio or _may_take_images(network)) and (file := _file_of(own)) is not None:
        named, advice = str(file), f", or give --processor {NO_PROCESSOR}"
    if named is None or named == NO_PROCESSOR:
        return None
    # A file that was found is read by its folder, because it may have other settings near those of images.
    spec = _read(own, named, Path(named).parent if advice else named, advice, is_audio)
    try:
        if isinstance(spec, AudioSpec):
            spec = _within(spec, network)
        return spec, _fitted(spec, network), named
    except UsageError as error:
        reason = str(error).removeprefix(f"{named}: ")
        raise UsageError(f"{_of(own, named)}: {reason}{advice}") from None


def _read(
    own: ModelSettings, named: str, path: str | Path, advice: str = "", is_audio: bool = False
) -> ProcessorSpec | AudioSpec:
    """Return a processor, which `named` is in errors and `path` is read for. Raises UsageError.

    A model that has one for images and one for audio gives that for audio if `is_audio`."""
    if given := _of_images(own):
        option = next(iter(given))
        raise UsageError(
            f"{_of(own, named)}: it says what is done with images, and so does --{option}; leave out --{option}{advice}"
        )
    try:
        _check_files(Path(path))
        if is_for_audio(path) or (is_audio and Path(path).exists()):
            if own.engine is not None:
                raise UsageError("--engine is for images, and it takes audio; leave out --engine")
            return audio_processor(path)
        return image_processor(path, own.engine or Engine.TORCHVISION)
    except UsageError as error:
        reason = str(error).removeprefix(f"{named}: ")
        raise UsageError(f"{_of(own, named)}: {reason}{advice}") from None


def _check_files(path: Path) -> None:
    """Refuse a file that might never end, such as a pipe, and a file that is too large. `path` may be its folder."""
    for file in (path, path / FILE, path / FILE_OF_ALL):
        if file.exists() and not file.is_dir():
            if not file.is_file():
                raise UsageError(f"{file} is not a regular file; give a {FILE}")
            if file.stat().st_size > MAX_BYTES:
                raise UsageError(f"{file} has more than {MAX_BYTES} bytes; give a {FILE}")


def _of(own: ModelSettings, named: str) -> str:
    return f"model {own.name!r}, processor {named}"


def _may_take_images(network: NetworkDescription) -> bool:
    """Tell whether the file of a processor in the folder of the weights is for this network."""
    first = network.inputs[0]
    is_image = len(network.inputs) == 1 and len(first.shape) == 3 and first.shape[0] == 3
    return is_image or any(each.name == PIXEL_VALUES for each in network.inputs)


def _may_take_audio(network: NetworkDescription) -> bool:
    """Tell whether the network has an input with the name of features in transformers."""
    names = {known.tensors.features for known in map(audio_processor, audio_names()) if known.tensors is not None}
    return any(each.name in names for each in network.inputs)


def _within(spec: AudioSpec, network: NetworkDescription) -> AudioSpec:
    """Return the spec for audio that is no longer than the network takes, if its input varies."""
    assert spec.tensors is not None
    name, inputs = spec.tensors.features, network.inputs
    longest = next((each.longest for each in inputs if each.variable is not None and each.name == name), 0)
    if len(inputs) == 1 and inputs[0].variable is not None:
        longest = inputs[0].longest
    return spec if not longest else spec.within(longest)


def _file_of(own: ModelSettings) -> Path | None:
    """Return the file of a processor in the folder of the weights, or None if there is none."""
    files = [own.weights, Path(own.source) if own.source.endswith(EXPORTED) else None]
    near = [file.parent / name for file in files if file is not None for name in (FILE, FILE_OF_ALL)]
    return next((each for each in near if each.exists()), None)


def _fitted(spec: ProcessorSpec | AudioSpec, network: NetworkDescription) -> dict[str, str]:
    """Return the names of the processor's tensors by the names of the network's inputs.

    A network with one input takes `pixel_values`, or the features of audio, whatever the name of the input. Raises
    UsageError if the tensors do not fit the network. Tensors of some files may be longer than the input, but not those
    of all."""
    inputs = network.inputs
    taken = {inputs[0].name: _first(spec)} if len(inputs) == 1 else {each.name: each.name for each in inputs}
    made = _forms_by_source(spec)
    what = "audio" if isinstance(spec, AudioSpec) else "image"
    first, *others = made
    for each in inputs:
        name = taken[each.name]
        if name not in made[first]:
            raise UsageError(
                f"{spec.name} makes {', '.join(made[first])}, and the network has an input {each.name!r}; send tensors"
            )
        other = next((size for size in others if made[size][name] != made[first][name]), None)
        if other is not None and not all(_fits(forms[name], _unbounded(each)) for forms in made.values()):
            raise UsageError(
                f"{spec.name} makes tensors whose shape depends on the {what}: {name} is "
                f"{_text(made[first][name])} of {_by(first, True)} and {_text(made[other][name])} of {_by(other)}; "
                f"the input {each.name!r} takes {_taken(each)}; {_advice(made, name, network)}"
            )
        if not any(_fits(forms[name], each) for forms in made.values()):
            raise UsageError(
                f"{spec.name} makes {name} of {_text(made[first][name])}, and the input {each.name!r} takes "
                f"{_taken(each)}; give the processor of this network"
            )
    return taken


def _unbounded(spec: TensorSpec) -> TensorSpec:
    return spec if spec.variable is None else replace(spec, longest=sys.maxsize)


def _first(spec: ProcessorSpec | AudioSpec) -> str:
    """Return the name of the tensor that a network with one input takes."""
    return spec.tensors.features if isinstance(spec, AudioSpec) and spec.tensors is not None else PIXEL_VALUES


def _advice(made: Mapping[Any, Mapping[str, Form]], name: str, network: NetworkDescription) -> str:
    """Return the advice for a tensor whose shape depends on the image: the --input-shape that takes it."""
    if network.name.endswith(EXPORTED):
        return f"a {EXPORTED} file cannot take such tensors; serve the network as module:function, or send tensors"
    shapes = [forms[name].shape for forms in made.values()]
    if len({len(shape) for shape in shapes}) > 1:
        return "send tensors"
    varying = _varying(shapes)
    if len(varying) > 1:
        return f"{len(varying)} of its sizes vary, and one may; send tensors"
    return f"give --input-shape with {name}={_sizes(shapes, LONGEST)}"


def _varying(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the places of the sizes that differ between shapes of one length."""
    return [place for place, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]


def _sizes(shapes: Sequence[tuple[int, ...]], longest: str) -> str:
    """Return the sizes of an input for --input-shape that takes tensors of these shapes, with 1..`longest` where they
    vary."""
    varying = _varying(shapes)
    joined = varying == [0]  # otherwise the first size is 1, the batch of transformers
    sizes = [f"1..{longest}{'+' * joined}" if place in varying else str(size) for place, size in enumerate(shapes[0])]
    return "x".join(sizes if joined else sizes[1:]) or "scalar"


def _forms_by_source(spec: ProcessorSpec | AudioSpec) -> dict[Size | float, dict[str, Form]]:
    """Return the forms of the tensors for those of SIZES, or of LENGTHS_S, that the processor takes. Raises UsageError
    if it takes none."""
    made: dict[Size | float, dict[str, Form]] = {}
    refused = None
    if isinstance(spec, AudioSpec):
        longest = [seconds for seconds in LENGTHS_S if seconds <= spec.longest_s] or [spec.longest_s]
        return {seconds: audio.forms(spec, int(seconds * spec.rate)) for seconds in longest}
    for size in SIZES:
        try:
            made[size] = forms(spec, size)
        except UsageError as error:
            refused = error
    if not made and refused is not None:
        raise refused
    return made


def _fits(made: Form, taken: TensorSpec) -> bool:
    """Tell whether an input takes a tensor as transformers makes it, for a batch of one image."""
    types = CASTS.get(str(made.dtype), (str(made.dtype),))
    return taken.holds(made.shape) and taken.dtype in types


def _text(form: Form) -> str:
    return f"{'x'.join(map(str, form.shape)) or 'no axes'} {type_name(form.dtype)}"


def _taken(spec: TensorSpec) -> str:
    varying = f"1..{spec.longest}{'+' if spec.joined else ''}"
    sizes = [varying if number == spec.variable else str(size) for number, size in enumerate(spec.shape)]
    return f"{'x'.join(sizes if spec.joined else ('N', *sizes))} {spec.dtype}"


def _by(source: Size | float, unit: bool = False) -> str:
    if not isinstance(source, Size):
        return f"{source:g} s"
    return f"{source.width}x{source.height}{' pixels' if unit else ''}"


# ---- Headrace's own image transform ----


def _of_images(own: ModelSettings) -> dict[str, Any]:
    """Return the settings of the image transform that the user gave."""
    given = {"resize": own.resize, "crop": own.crop, "mean": own.mean, "std": own.std}
    return {name: value for name, value in given.items() if value is not None}


def _image_spec(own: ModelSettings, network: NetworkDescription) -> ImageSpec | None:
    """Return the transform of the network with the user's settings in it. Raises UsageError."""
    spec = network.image_spec
    if spec is None:
        refuse_images(own)
        return None
    changes = _of_images(own)
    if (crop := changes.pop("crop", None)) is not None and (spec.crop_width, spec.crop_height) != (crop, crop):
        raise UsageError(
            f"model {own.name!r}: --crop {crop} does not match its input of {spec.crop_width}x{spec.crop_height}; give "
            f"--input-shape 3x{crop}x{crop} too, if it takes that"
        )
    if "resize" in changes:
        changes["resize_short"] = changes.pop("resize")
    return replace(spec, **changes)


def _image_text(own: ModelSettings, network: NetworkDescription, spec: ImageSpec) -> str:
    """Return the transform and its origin in words."""
    how = (
        f"images are resized to {spec.resize_short}, cropped to {spec.crop_width}x{spec.crop_height}, "
        f"mean {_numbers(spec.mean)}, std {_numbers(spec.std)}"
    )
    if own.mean is not None and own.std is not None:
        origin = "from the settings"
    elif network.transform is None:
        origin = "GUESSED from ImageNet, because it names no transform; give --mean and --std, and --resize"
    else:
        origin = "from the settings and its own transform" if _of_images(own) else "from its own transform"
    return f"{how}, {origin}"


def _numbers(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)
