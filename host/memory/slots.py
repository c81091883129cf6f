"""Tensors in memory that the runtime and its worker processes share: slots, each for one request of one model.

A memfd and not POSIX shared memory: it has no name, so nothing is left behind after kill -9, and a container's small
/dev/shm does not limit it. Pages are taken from the system when first written.
"""

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.memory.layout import TensorSpec

PAGE = 4096


def _pages(size: int) -> int:
    return -(-max(size, 1) // PAGE) * PAGE


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Where the requests of one model lie in the shared memory: from `offset` on, slot after slot. In a slot the named
    inputs and then the outputs follow each other, each starting on a page, with room for its longest."""

    offset: int
    slots: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def stride(self) -> int:
        return sum(_pages(spec.nbytes) for spec in (*self.inputs, *self.outputs))

    @property
    def end(self) -> int:
        return self.offset + self.slots * self.stride


class SlotViews:
    """The tensors of one model's slots over the shared memory, for either side."""

    def __init__(self, layout: SlotLayout, memory: mmap.mmap) -> None:
        offset = layout.offset
        self.inputs: list[SlotTensors] = []
        self.outputs: list[SlotTensors] = []
        for specs, tensors in ((layout.inputs, self.inputs), (layout.outputs, self.outputs)):
            for spec in specs:
                tensors.append(SlotTensors(spec, memory, offset, layout.stride, layout.slots))
                offset += _pages(spec.nbytes)

    def write_outputs(self, slots: Sequence[int], outputs: Sequence[NDArray[Any]]) -> tuple[int, list[int]]:
        """Copy batched outputs to the requests in `slots`. Returns how many have NaN in one, and how long each output
        with a variable dimension is. Raises ValueError for an output of another shape or type."""
        missing = np.zeros(len(slots), bool)
        lengths = []
        for tensors, output in zip(self.outputs, outputs, strict=True):
            spec = tensors.spec
            length = (
                output.shape[1 + spec.variable] if spec.variable is not None and spec.variable + 1 < output.ndim else 0
            )
            if output.shape != (len(slots), *spec.sized(length)) or length > spec.longest or output.dtype != spec.dtype:
                raise ValueError(
                    f"output {spec.name!r} of a batch of {len(slots)} is {output.dtype}{output.shape}; expected "
                    f"{spec.dtype}{(len(slots), *spec.shape)}"
                    + (f" and at most {spec.longest} in place of -1" if spec.longest else "")
                )
            for row, slot in enumerate(slots):
                tensors.at(slot, length)[...] = output[row]
            if output.dtype.kind == "f":
                missing |= np.isnan(output.reshape(len(slots), -1)).any(1)
            if spec.variable is not None:
                lengths.append(length)
        return int(missing.sum()), lengths


class SlotTensors:
    """One named tensor in every slot."""

    def __init__(self, spec: TensorSpec, memory: mmap.mmap, offset: int, stride: int, slots: int) -> None:
        self.spec = spec
        self.slots = slots
        self._memory, self._offset, self._stride = memory, offset, stride
        # Where all requests have the same shape the arrays are made once: making one takes as long as copying it.
        fixed = spec.variable is None
        self._arrays = [self._array(slot, 0) for slot in range(slots)] if fixed else None

    def _array(self, slot: int, length: int) -> NDArray[Any]:
        shape = self.spec.sized(length)
        return np.ndarray(shape, self.spec.dtype, self._memory, self._offset + slot * self._stride)

    def at(self, slot: int, length: int = 0) -> NDArray[Any]:
        """The tensor in `slot`, its variable dimension of `length` elements."""
        return self._arrays[slot] if self._arrays is not None else self._array(slot, length)


Specs = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]  # a model's inputs and outputs


def slot_layouts(models: Mapping[str, Specs], slots: int) -> dict[str, SlotLayout]:
    """`slots` for each model, one model behind the other: the same on both sides."""
    layouts: dict[str, SlotLayout] = {}
    end = 0
    for model, (inputs, outputs) in models.items():
        layouts[model] = SlotLayout(end, slots, inputs, outputs)
        end = layouts[model].end
    return layouts


class SlotArena:
    """Slots for the tensors of the requests in flight, by model. Raises UsageError."""

    def __init__(self, models: Mapping[str, Specs], slots: int) -> None:
        """`models` has each one's inputs and outputs; each gets `slots` slots."""
        if slots < 1 or not models:
            raise UsageError(f"{slots} slots for {len(models)} models: give at least one of each")
        self.slots = slots
        layouts = slot_layouts(models, slots)
        size = max(layout.end for layout in layouts.values())
        self.fd = os.memfd_create("headrace-tensors", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        memory = mmap.mmap(self.fd, size)
        self._memory: mmap.mmap | None = memory
        self.views = {model: SlotViews(layout, memory) for model, layout in layouts.items()}
        # The slot used last is the first to be used again: it is in the cache.
        self._free = {model: list(reversed(range(slots))) for model in models}

    def free(self, model: str) -> int:
        return len(self._free[model])

    def acquire(self, model: str) -> int | None:
        """A free slot of the model; None if every one holds a request in flight."""
        free = self._free[model]
        return free.pop() if free else None

    def release(self, model: str, slot: int) -> None:
        self._free[model].append(slot)

    def close(self) -> None:
        """Give the file and its memory back. Arrays that somebody still holds read as zeros, and keep the addresses."""
        if self._memory is not None:
            self._memory.madvise(mmap.MADV_REMOVE)
            self.views, self._memory = {}, None  # never closed: numpy's arrays would point to nowhere
            os.close(self.fd)
            self.fd = -1
