"""The work of a processor by its name, as the simulator takes it, and the passes of an image processor for an image of
some size, as the cycle model takes them."""

import math
from functools import partial

from headrace.batching import UnsupportedInput
from headrace.host.dpu.audio_work import audio_work
from headrace.host.dpu.hugging_face.names import processor
from headrace.host.dpu.processors import (
    Images,
    MergedPatches,
    PaddedPatches,
    PatchImages,
    ProcessorSpec,
    Size,
)
from headrace.host.dpu.reference.processor import forms
from headrace.host.dpu.specs import AudioSpec
from headrace.host.dpu.units.program import CuPass, Program, program
from headrace.sim.hardware.dpu.processor import Layout, Patches, Planes, ScalerPass, Workspace
from headrace.sim.hardware.inputs import AudioWork
from headrace.sim.system.processors import ImageWork, ImageWorkOf


def processor_work(name: str) -> ImageWorkOf | AudioWork:
    """Return the work of an image processor, by width and height of an image, or that of a feature extractor.

    Raises UsageError for an unknown name, as the function does for a size that the processor does not take."""
    spec = processor(name)
    return audio_work(spec) if isinstance(spec, AudioSpec) else partial(image_work, spec)


def image_work(spec: ProcessorSpec, width: int, height: int) -> ImageWork:
    """Return the work of an image processor for an image. Raises UsageError for a size that it does not take."""
    size = Size(width, height)
    made = forms(spec, size)
    tensor_bytes = sum(math.prod(form.shape) * form.dtype.itemsize for form in made.values())
    layout = spec.layout
    patches = made["pixel_values"].shape[0]
    tokens = patches // layout.merge**2 if isinstance(layout, MergedPatches) else None
    try:
        return ImageWork(tensor_bytes, scaler_passes(spec, size), tokens)
    except UnsupportedInput as error:
        return ImageWork(tensor_bytes, str(error), tokens)


def scaler_passes(spec: ProcessorSpec, source: Size) -> tuple[ScalerPass, ...]:
    """Return what the clocks of each pass depend on.

    Raises:
        UnsupportedInput: The compute unit does not do what the spec wants for this size.
        UsageError: The spec does not take this size.
    """
    made = program(spec, source)
    return tuple(_pass(spec, each, made) for each in made.passes)


def _pass(spec: ProcessorSpec, each: CuPass, made: Program) -> ScalerPass:
    table = each.table
    return ScalerPass(
        table.source,
        table.out,
        table.row_gives(),
        table.columns.flags.tolist(),
        table.wide,
        table.columns_first,
        each.canvas,
        each.left,
        each.top,
        Workspace() if each.keeps else _layout(spec, each.canvas, made),
    )


def _layout(spec: ProcessorSpec, canvas: Size, made: Program) -> Layout:
    value_bytes = made.dtype.itemsize
    match spec.layout:
        case Images(channels_last=False):
            return Planes(value_bytes)
        case Images():  # a row of the image is a patch
            return Patches(canvas.width, value_bytes, channels_last=True, height=1)
        case MergedPatches(side, merge, frames):
            return Patches(side, value_bytes, merge=merge, frames=frames)
        case PatchImages(side, frames):
            return Patches(side, value_bytes, frames=frames)
        case PaddedPatches(side):
            values = 3 * (canvas.width // side * side) * (canvas.height // side * side)
            return Patches(side, value_bytes, channels_last=True, fill_bytes=made.tensor_bytes - values * value_bytes)
