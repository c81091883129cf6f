"""Tensor slots in memory that the runtime shares with its worker processes. Each slot holds the tensors of one
request of one model.

The memory is a memfd, not POSIX shared memory. A memfd has no name, so nothing remains after kill -9, and the
small /dev/shm of a container does not limit it. The system provides a page when the page is first written."""

import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.memory.files import FilePlace, MappedFiles
from headrace.host.memory.layout import TensorSpec

PAGE = 4096
KEPT_BYTES = 1 << 20  # of a free slot; the memory of joined tensors beyond it goes back to the system
LENT = 16  # slots of each model that one front borrows
MIN_BYTES = 1 << 16  # a smaller tensor is copied; grpc/native/connection.cpp has the same limit
WORDS = 3  # of a tensor's place: number of the file, offset in the file, state
REVOKED = (1 << 64) - 1  # in place of a number; 0 stands for a tensor in its slot
NOT_DONE, WRITING, DONE = 0, 1, 2
REVOKE_S = 0.1  # bound on the wait for a copy that has begun


def _pages(size: int) -> int:
    return -(-max(size, 1) // PAGE) * PAGE


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Describe where the slots of one model lie in the shared memory.

    The slots follow each other from `offset` on. A slot holds the named inputs and then the outputs. Each tensor starts
    on a page and has room for its longest size. The places of tensors in files (`Places`) follow the last slot."""

    offset: int
    slots: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def stride(self) -> int:
        """Return the bytes from the start of one slot to the start of the next."""
        return sum(_pages(spec.nbytes) for spec in (*self.inputs, *self.outputs))

    @property
    def places(self) -> tuple[int, int]:
        """Return the offset and the size of the places."""
        size = 8 * WORDS * self.slots * (len(self.inputs) + len(self.outputs))
        return self.offset + self.slots * self.stride, size

    @property
    def end(self) -> int:
        """Return the offset of the first page after the slots and the places."""
        offset, size = self.places
        return offset + _pages(size)


class Places:
    """Say for each tensor of each slot whether it lies in a client's file instead (memory/files.py).

    The runtime places a tensor, and a worker reads or writes it there. The runtime may revoke the place at any time: no
    write begins after that, and a read gives zeros. The worker first notes that it writes, and then looks for the
    place. The runtime first takes the place away, and then waits for a write. So one of the two sees the other.

    Inputs have the numbers from 0 on, and outputs follow them."""

    def __init__(self, layout: SlotLayout, memory: mmap.mmap) -> None:
        offset, size = layout.places
        self._words = memoryview(memory)[offset : offset + size].cast("Q")
        self._tensors = len(layout.inputs) + len(layout.outputs)
        self._fence = threading.Lock()

    def _at(self, slot: int, tensor: int) -> int:
        return (slot * self._tensors + tensor) * WORDS

    # ---- the runtime's side ----

    def put(self, slot: int, tensor: int, place: FilePlace) -> None:
        """Place a tensor in a file."""
        at = self._at(slot, tensor)
        self._words[at + 1] = place.offset
        self._words[at + 2] = NOT_DONE
        self._words[at] = place.file.number

    def state(self, slot: int, tensor: int) -> int:
        """Return whether a worker writes the tensor in its file now (WRITING), or has read or written it (DONE)."""
        return self._words[self._at(slot, tensor) + 2]

    def renew(self, slot: int, tensor: int) -> None:
        """Forget what a worker that is lost did with the tensor."""
        self._words[self._at(slot, tensor) + 2] = NOT_DONE

    def revoke(self, slot: int, tensor: int) -> None:
        """Take the place of a tensor away, and wait for a write that has begun, at most REVOKE_S."""
        at = self._at(slot, tensor)
        self._words[at] = REVOKED
        end = time.monotonic() + REVOKE_S
        while self._seen(at + 2) == WRITING and time.monotonic() < end:
            time.sleep(50e-6)

    def clear(self, slot: int, tensor: int) -> None:
        """Say that the tensor lies in its slot again."""
        self._words[self._at(slot, tensor)] = 0

    def _seen(self, at: int) -> int:
        """Return a word after all that this process has written is seen by the others."""
        with self._fence:
            return self._words[at]

    # ---- the worker's side ----

    def read(self, slot: int, tensor: int, files: MappedFiles, into: NDArray[Any]) -> bool:
        """Read a tensor from its file, as zeros if that fails. Return False if it lies in the slot.

        The slot may hold an earlier request's tensor, which nobody else may see."""
        at = self._at(slot, tensor)
        number = self._words[at]
        if not number:
            return False
        mapping = files.mapping(number)
        if mapping is None or not mapping.read_into(into, self._words[at + 1]):
            into.fill(0)
        else:
            self._words[at + 2] = DONE
        return True

    def write(self, slot: int, tensor: int, files: MappedFiles, array: NDArray[Any]) -> bool:
        """Write a tensor to its file. Return False if it belongs into the slot, also because its file cannot take
        it."""
        at = self._at(slot, tensor)
        if not self._words[at]:
            return False
        self._words[at + 2] = WRITING
        mapping = files.mapping(self._seen(at))
        done = mapping is not None and mapping.write(np.ascontiguousarray(array), self._words[at + 1])
        self._words[at + 2] = DONE if done else NOT_DONE
        return bool(done)


class SlotViews:
    """Give access to the tensors in the slots of one model. The runtime and the workers both use it."""

    def __init__(self, layout: SlotLayout, memory: mmap.mmap) -> None:
        offset = 0
        self.inputs: list[SlotTensors] = []
        self.outputs: list[SlotTensors] = []
        for specs, tensors in ((layout.inputs, self.inputs), (layout.outputs, self.outputs)):
            for spec in specs:
                tensors.append(SlotTensors(spec, memory, layout, offset))
                offset += _pages(spec.nbytes)
        self.places = Places(layout, memory)
        self._large = [
            each for each in (*self.inputs, *self.outputs) if each.spec.joined and each.spec.nbytes > KEPT_BYTES
        ]

    def spare(self, slot: int) -> list[tuple[int, int]]:
        """Return the parts of a free slot, as offsets and sizes, that need not keep their memory."""
        return [tensors.spare(slot) for tensors in self._large]

    def write_outputs(
        self,
        slots: Sequence[int],
        outputs: Sequence[NDArray[Any]],
        tokens: Sequence[int] = (),
        files: MappedFiles | None = None,
    ) -> tuple[int, list[int]]:
        """Copy batched outputs into the slots of their requests, or into the files in which they are placed.

        Args:
            slots: the slot of each request in the batch.
            outputs: one array per output. A stacked output has the batch as first dimension and one row per slot.
            tokens: the tokens of each request, by which joined outputs are split.
            files: the files that this process has mapped.

        Returns the number of requests with NaN in an output, and the length of each stacked output that has a variable
        dimension.

        Raises ValueError for an output of the wrong shape or type."""
        missing = np.zeros(len(slots), bool)
        lengths = []
        for number, (tensors, output) in enumerate(zip(self.outputs, outputs, strict=True), len(self.inputs)):
            spec, variable = tensors.spec, tensors.variable
            if tensors.joined:
                missing |= tensors.split(slots, output, tokens)
                continue
            length = output.shape[1 + variable] if variable is not None and variable + 1 < output.ndim else 0
            shape = spec.shape if variable is None else spec.sized(length)
            if output.shape != (len(slots), *shape) or length > spec.longest or output.dtype != tensors.dtype:
                raise ValueError(
                    f"output {spec.name!r} of a batch of {len(slots)} is {output.dtype}{output.shape}; expected "
                    f"{spec.dtype}{(len(slots), *spec.shape)}"
                    + (f" and at most {spec.longest} in place of -1" if spec.longest else "")
                )
            for row, slot in enumerate(slots):
                if files is None or not files.in_use or not self.places.write(slot, number, files, output[row]):
                    np.copyto(tensors.at(slot, length), output[row])
            if output.dtype.kind == "f":
                missing |= _rows_with_nan(output.reshape(len(slots), -1))
            if variable is not None:
                lengths.append(length)
        return int(np.count_nonzero(missing)), lengths


def _rows_with_nan(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell for each row whether it has a NaN. The largest number of a row is NaN if any is."""
    if rows.itemsize == 2:  # numpy has no vector instructions for the maximum of half floats
        return np.isnan(rows).any(1)
    found: NDArray[np.bool_] = np.isnan(rows.max(1, initial=-np.inf))
    return found


class SlotTensors:
    """Hold one named tensor of every slot."""

    def __init__(self, spec: TensorSpec, memory: mmap.mmap, layout: SlotLayout, within: int) -> None:
        """Describe the tensor that begins `within` so many bytes of each slot."""
        self.spec = spec
        self.dtype, self.variable, self.joined = np.dtype(spec.dtype), spec.variable, spec.joined
        self.slots = layout.slots
        self._memory, self._offset, self._stride, self._within = memory, layout.offset + within, layout.stride, within
        # An array takes as long to make as to copy, so arrays of a fixed shape are made only once.
        self._arrays = [self._array(slot, 0) for slot in range(layout.slots)] if self.variable is None else None

    def _array(self, slot: int, length: int) -> NDArray[Any]:
        shape = self.spec.sized(length)
        return np.ndarray(shape, self.spec.dtype, self._memory, self._offset + slot * self._stride)

    def at(self, slot: int, length: int = 0) -> NDArray[Any]:
        """Return the tensor in `slot`, with `length` elements in its variable dimension."""
        return self._arrays[slot] if self._arrays is not None else self._array(slot, length)

    def detached(self, memory: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the tensor of this shape in the memory of a slot that `SlotArena.detach` has returned."""
        return np.ndarray(shape, self.dtype, memory, self._within)

    def spare(self, slot: int) -> tuple[int, int]:
        """Return the offset and the size of the pages of a slot that lie beyond KEPT_BYTES."""
        return self._offset + slot * self._stride + KEPT_BYTES, _pages(self.spec.nbytes) - KEPT_BYTES

    def split(self, slots: Sequence[int], output: NDArray[Any], tokens: Sequence[int]) -> NDArray[np.bool_]:
        """Copy the rows of a joined output into the slots of their requests. Return which requests have NaN in it.

        Raises ValueError for an output of the wrong shape or type."""
        lengths = [each // self.spec.tokens_per_row for each in tokens]
        shape = self.spec.sized(sum(lengths))
        if output.shape != shape or output.dtype != self.spec.dtype:
            raise ValueError(
                f"output {self.spec.name!r} of a batch of {sum(tokens)} tokens is {output.dtype}{output.shape}; "
                f"expected {self.spec.dtype}{shape}"
            )
        missing = np.zeros(len(slots), bool)
        first = 0
        for row, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
            rows = output[first : first + length]
            self.at(slot, length)[...] = rows
            missing[row] = output.dtype.kind == "f" and np.isnan(rows).any()
            first += length
        return missing


Specs = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]  # a model's inputs and outputs


def slot_layouts(models: Mapping[str, Specs], slots: int) -> dict[str, SlotLayout]:
    """Lay out `slots` slots for each model, one model after another. Both sides compute the same layout."""
    layouts: dict[str, SlotLayout] = {}
    end = 0
    for model, (inputs, outputs) in models.items():
        layouts[model] = SlotLayout(end, slots, inputs, outputs)
        end = layouts[model].end
    return layouts


class SlotArena:
    """Allocate slots for the tensors of the requests in flight, separately for each model."""

    def __init__(self, models: Mapping[str, Specs], slots: int, spares: int = 0) -> None:
        """Reserve the memory.

        Args:
            models: the inputs and outputs of each model.
            slots: the number of slots of each model for requests in flight.
            spares: the number of further slots of each model, for `lend` and `detach`.

        Raises UsageError if there is no model or no slot."""
        if slots < 1 or not models:
            raise UsageError(f"{slots} slots for {len(models)} models; give at least one slot and one model")
        self.slots = slots
        self.all_slots = slots + spares
        self.layouts = slot_layouts(models, self.all_slots)
        size = max(layout.end for layout in self.layouts.values())
        self.fd = os.memfd_create("headrace-tensors", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        memory = mmap.mmap(self.fd, size)
        self._memory: mmap.mmap | None = memory
        self.views = {model: SlotViews(layout, memory) for model, layout in self.layouts.items()}
        self._spares = {model: list(range(slots, self.all_slots)) for model in models}
        self._detached: dict[tuple[str, int], weakref.ref[NDArray[np.uint8]]] = {}
        self._take_back: list[Callable[[], bool]] = []
        # The slot that was released last is used first, because its memory is still in the cache.
        self._free = {model: list(reversed(range(slots))) for model in models}

    def free(self, model: str) -> int:
        """Return how many slots of the model are free."""
        return len(self._free[model])

    def acquire(self, model: str) -> int | None:
        """Take a free slot of the model. Returns None if a request in flight holds every slot."""
        free = self._free[model]
        return free.pop() if free else None

    def release(self, model: str, slot: int) -> None:
        """Return a slot to the free slots of the model.

        A slot has room for the longest tensors. Most requests with joined tensors take a small part of it, and a few
        take all. So the pages of a large one do not stay with its slot."""
        self._trim(model, slot)
        self._free[model].append(slot)

    def _trim(self, model: str, slot: int) -> None:
        if self._memory is not None:
            for start, size in self.views[model].spare(slot):
                self._memory.madvise(mmap.MADV_REMOVE, start, size)

    def lend(self, model: str, take_back: Callable[[], bool]) -> tuple[int, ...]:
        """Return LENT spare slots that a front may fill, or as many as there are.

        The front exchanges a slot that it has filled for a free one (`acquire`), so it always has the same number.
        `close` calls `take_back`. It returns whether slots are still being filled. Their memory is then freed when
        nobody maps it any more."""
        spares = self._spares[model]
        lent = tuple(spares[:LENT])
        del spares[:LENT]
        if lent:
            self._take_back.append(take_back)
        return lent

    def detach(self, model: str, slot: int) -> tuple[int, NDArray[np.uint8]] | None:
        """Return a spare slot in place of this one, and the memory of this one. Return None if there is no spare.

        The caller then holds the spare slot in place of the other. That one becomes a spare when no array on its memory
        is left. `close` does not clear memory that is detached."""
        spares, memory, layout = self._spares[model], self._memory, self.layouts[model]
        if not spares or memory is None:
            return None
        detached = np.ndarray(layout.stride, np.uint8, memory, layout.offset + slot * layout.stride)

        def ended(_: object) -> None:
            del self._detached[model, slot]
            self._trim(model, slot)
            spares.append(slot)

        self._detached[model, slot] = weakref.ref(detached, ended)
        return spares.pop(), detached

    def close(self) -> None:
        """Close the file and give its memory back. Arrays that a caller still holds keep their addresses and read as
        zeros, unless `detach` returned their memory."""
        if self._memory is not None:
            if not any([take_back() for take_back in self._take_back]) and not self._detached:
                self._memory.madvise(mmap.MADV_REMOVE)
            self._memory, self.views = None, {}  # not closed: numpy arrays may point into the mapping
            os.close(self.fd)
            self.fd = -1
