"""The work of an image processor for an image of some size, as the cycle model and the simulator take it."""

import math
from collections.abc import Callable

from headrace.batching import UnsupportedInput
from headrace.host.dpu.hugging_face.names import processor
from headrace.host.dpu.processors import (
    Images,
    MergedPatches,
    PaddedPatches,
    Pass,
    PatchImages,
    Placement,
    ProcessorSpec,
    Size,
)
from headrace.host.dpu.reference.processor import forms
from headrace.host.dpu.units import scaler
from headrace.host.dpu.units.program import Program, program
from headrace.sim.hardware.dpu.processor import Layout, Patches, Planes, ScalerPass, Workspace
from headrace.sim.system.processors import ProcessorWork


def processor_work(name: str) -> Callable[[int, int], ProcessorWork]:
    """Return the function that tells the work of a processor by width and height of an image.

    Raises UsageError for an unknown name, as the function does for a size that the processor does not take."""
    spec = processor(name)

    def work(width: int, height: int) -> ProcessorWork:
        size = Size(width, height)
        tensors = forms(spec, size).values()
        tensor_bytes = sum(math.prod(form.shape) * form.dtype.itemsize for form in tensors)
        try:
            return ProcessorWork(tensor_bytes, scaler_passes(spec, size))
        except UnsupportedInput as error:
            return ProcessorWork(tensor_bytes, str(error))

    return work


def scaler_passes(spec: ProcessorSpec, source: Size) -> tuple[ScalerPass, ...]:
    """Return what the clocks of each pass depend on.

    Raises:
        UnsupportedInput: The compute unit does not do what the spec wants for this size.
        UsageError: The spec does not take this size.
    """
    made = program(spec, source)
    passes = made.plan.passes
    return tuple(_pass(spec, source if each.of is None else passes[each.of].size, each, made) for each in passes)


def _pass(spec: ProcessorSpec, source: Size, each: Pass, made: Program) -> ScalerPass:
    by = each.placement or Placement(each.size, each.size)
    left, top = max(0, -by.left), max(0, -by.top)
    width = min(each.size.width - left, by.canvas.width - max(0, by.left))
    height = min(each.size.height - top, by.canvas.height - max(0, by.top))
    table = scaler.table(source, each.size, spec.filter, spec.engine, (left, top, width, height))
    return ScalerPass(
        source,
        table.out,
        table.row_entries,
        table.columns.flags.tolist(),
        table.wide,
        table.columns_first,
        by.canvas,
        max(0, by.top),
        Workspace() if each.placement is None else _layout(spec, by.canvas, made),
    )


def _layout(spec: ProcessorSpec, canvas: Size, made: Program) -> Layout:
    value_bytes = made.dtype.itemsize
    match spec.layout:
        case Images():
            return Planes(value_bytes)
        case MergedPatches(side, merge, frames):
            return Patches(side, value_bytes, merge=merge, frames=frames)
        case PatchImages(side, frames):
            return Patches(side, value_bytes, frames=frames)
        case PaddedPatches(side):
            values = 3 * (canvas.width // side * side) * (canvas.height // side * side)
            return Patches(side, value_bytes, channels_last=True, fill_bytes=made.tensor_bytes - values * value_bytes)
