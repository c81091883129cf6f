"""The image units as Python functions over their implementations, for their tests."""

import ctypes
import itertools
from dataclasses import dataclass
from functools import cache

import csim
import numpy as np
import pytest
import rtlsim
from numpy.typing import NDArray

from headrace.bitstreams.configurations import FULL
from headrace.host.dpu.processors import Size
from headrace.host.dpu.units.status import Status

CENTRED = 0xFFFFFFFF
GUARD = 1 << 16  # bytes behind a workspace that stay as they are
BROKEN, TIMEOUT = 255, 254  # the test benches' words for a unit that breaks the stream contract, or does not end


@cache
def library() -> ctypes.CDLL:
    return csim.load("units")


@cache
def verilated(top: str) -> ctypes.CDLL:
    return rtlsim.load(top)


@dataclass(frozen=True)
class PatchesResult:
    status: Status
    size: Size
    bytes: int
    words: NDArray[np.uint8]  # of memory, as they came


class Csim:
    """The C++ as software."""

    name = "csim"

    def resize(self, image, short, crop=None, *, given=None, frame_status=0, end_status=0):
        """With `crop` (width, height, x, y) the beats of the resized image that have pixels of it."""
        height, width = image.shape[:2]
        longer = short * max(height, width) // min(height, width)
        size = (short, longer) if width <= height else (longer, short)
        rows, columns = size[1], 0
        if crop:
            rows, columns = crop[1], min((crop[0] + crop[2] - 1) | 1, size[0] - 1) + 1 - (crop[2] & ~1)
        capacity = 3 * (columns or size[0]) * rows if longer <= 65535 else 0
        settings = [short, crop is not None, *(crop or (1, 1, 0, 0)), columns]
        return self._framed("resize", image, settings, capacity, given, frame_status, end_status, columns=columns)

    def scaler(self, image, table, *, words=None, canvas=None, given=None, frame_status=0, end_status=0):
        """`table`: a ScalerTable. `words`: what the unit reads in place of its bytes, of the same length.

        `canvas`: width, height, left, top and colour; without it, that of the result."""
        rows, columns = table.rows, table.columns
        passes = [table.row_entries, rows.bits, rows.gather, table.column_entries, columns.bits, columns.gather]
        canvas = canvas or (*table.out, 0, 0, 0)
        setup = np.array([*table.out, *passes, table.wide, table.columns_first, *canvas], np.uint32)
        words = np.ascontiguousarray(table.packed() if words is None else words)
        capacity = 3 * canvas[0] * canvas[1]
        frame = {"given": given, "frame_status": frame_status, "end_status": end_status}
        return self._framed("scaler", image, [_pointer(setup), _pointer(words)], capacity, **frame)

    def crop(self, image, width, height, x=CENTRED, y=CENTRED, *, cut=False, given=None, frame_status=0, end_status=0):
        """`cut`: only the beats with pixels of the window come."""
        capacity = min(3 * width * height, image.size)
        part = image[y : y + height, x & ~1 : ((x + width - 1) | 1) + 1] if cut else image
        settings = [width, height, x, y, part.shape[1] if cut else 0]
        return self._framed("crop", part, settings, capacity, given, frame_status, end_status, size=image.shape[:2])

    def patches(self, image, layout, tables, *, capacity=None, given=None, frame_status=0, end_status=0):
        """`layout`: a PatchLayout. `tables`: of shape (3, 256). Returns a PatchesResult."""
        height, width = image.shape[:2]
        image, size = np.ascontiguousarray(image), tables.dtype.itemsize
        room = 3 * layout.frames * height * width * size + layout.fill
        fields = [layout.side_width, layout.side_height, layout.merge, layout.frames, layout.channels_last, layout.fill]
        setup = np.array([*fields, size.bit_length() - 1, room if capacity is None else capacity], np.uint32)
        words = np.full(room // 16 + 1, 0xA5, "V16").view(np.uint8)
        sizes = np.zeros(4, np.uint64)
        code = self._call(
            "patches",
            _pointer(image),
            ctypes.c_uint32(width),
            ctypes.c_uint32(height),
            ctypes.c_uint64(image.size // 3 if given is None else given),
            ctypes.c_uint32(frame_status),
            ctypes.c_uint32(end_status),
            _pointer(setup),
            _pointer(np.ascontiguousarray(tables.view(f"u{size}"), np.uint32)),
            _pointer(words),
            ctypes.c_uint64(len(words) // 16),
            _pointer(sizes),
        )
        out_width, out_height, out_bytes, sent = map(int, sizes)
        return PatchesResult(_status(code), Size(out_width, out_height), out_bytes, words[: 16 * sent])

    def normalize(self, image, tables, end_status=0):
        """Returns the status and the 32-bit words, in the image's shape."""
        image = np.ascontiguousarray(image)
        out = np.zeros(image.shape, np.uint32)
        code = self._normalize(image, np.ascontiguousarray(tables, np.uint32), out, end_status)
        return _status(code), out

    def _framed(self, name, image, settings, capacity, given, frame_status, end_status, size=None, columns=0):
        """`size` of the frame, where `image` is a part of it; `columns` of the output, where it is.

        Settings are numbers or pointers."""
        height, width = size or image.shape[:2]
        image = np.ascontiguousarray(image)
        out = np.zeros(max(3, capacity), np.uint8)
        out_size = (ctypes.c_uint32(), ctypes.c_uint32())
        code = self._call(
            name,
            _pointer(image),
            ctypes.c_uint32(width),
            ctypes.c_uint32(height),
            ctypes.c_uint64(image.size // 3 if given is None else given),
            ctypes.c_uint32(frame_status),
            ctypes.c_uint32(end_status),
            *(each if isinstance(each, ctypes.c_void_p) else ctypes.c_uint32(each) for each in settings),
            _pointer(out),
            ctypes.c_uint64(len(out)),
            *map(ctypes.byref, out_size),
        )
        if _status(code) != Status.OK:
            return Status(code), None
        return Status.OK, out.reshape(-1, columns or out_size[0].value, 3)

    def _call(self, name, *arguments) -> int:
        return getattr(library(), f"csim_{name}")(*arguments)

    def _normalize(self, image, tables, out, end_status) -> int:
        return library().csim_normalize(
            _pointer(image),
            ctypes.c_uint64(image.size // 3),
            ctypes.c_uint32(end_status),
            _pointer(tables),
            _pointer(out),
        )


@dataclass(frozen=True)
class Clocks:
    cycles: int  # from the first input to the last output
    held: int  # of them, clocks in which the unit did not take a beat that was there


class Rtlsim(Csim):
    """The SystemVerilog, Verilated. Every call runs twice, without stalls and with random ones on every stream, and
    both must say the same. One model serves all calls, without a reset between them. `clocks` of the last call are
    those without stalls."""

    name = "rtlsim"
    clocks: Clocks

    def __init__(self) -> None:
        self._seeds = itertools.count(1)

    def resize(self, *arguments, **keywords):
        return self._twice(super().resize, *arguments, **keywords)

    def scaler(self, *arguments, **keywords):
        return self._twice(super().scaler, *arguments, **keywords)

    def patches(self, *arguments, **keywords):
        self._seed = 0
        result = super().patches(*arguments, **keywords)
        self.clocks = self._clocks
        self._seed = next(self._seeds)
        stalled = super().patches(*arguments, **keywords)
        assert (result.status, result.size, result.bytes) == (stalled.status, stalled.size, stalled.bytes), self._seed
        if result.status == Status.OK:
            assert np.array_equal(result.words, stalled.words), f"stalls of seed {self._seed} change it"
        return result

    def crop(self, *arguments, **keywords):
        return self._twice(super().crop, *arguments, **keywords)

    def normalize(self, *arguments, **keywords):
        return self._twice(super().normalize, *arguments, **keywords)

    def _twice(self, method, *arguments, **keywords):
        self._seed = 0
        status, out = method(*arguments, **keywords)
        self.clocks = self._clocks
        self._seed = next(self._seeds)
        stalled_status, stalled = method(*arguments, **keywords)
        assert (status, out is None) == (stalled_status, stalled is None), f"stalls of seed {self._seed} change it"
        if status == Status.OK:
            assert np.array_equal(out, stalled), f"stalls of seed {self._seed} change it"
        return status, out

    def _call(self, name, *arguments) -> int:
        numbers = (ctypes.c_uint64 * 2)()
        if name == "crop":  # its place, by the unit that says so in image_cu
            (image, width, height, *frame), window, rest = arguments[:6], arguments[6:10], arguments[10:]
            place = (ctypes.c_uint32 * 4)()
            verilated("crop_window").rtl_crop_window(width, height, *window, place)
            arguments = (image, width, height, *frame, place, *rest)
        code = getattr(verilated(name), f"rtl_{name}")(*arguments, ctypes.c_uint32(self._seed), numbers)
        self._clocks = Clocks(*numbers)
        return code

    def _normalize(self, image, tables, out, end_status) -> int:
        return self._call(
            "normalize",
            _pointer(image),
            ctypes.c_uint32(image.shape[1]),
            ctypes.c_uint64(image.size // 3),
            ctypes.c_uint32(end_status),
            _pointer(tables),
            _pointer(out),
        )


CSIM, RTLSIM = Csim(), Rtlsim()
# Runs a test with each of them as `units`.
on_both = pytest.mark.parametrize("units", [CSIM, RTLSIM], ids=lambda implementation: implementation.name)


def _pointer(array) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def _status(code: int) -> Status:
    assert code != BROKEN, "the unit broke the stream contract"
    assert code != TIMEOUT, "the unit did not end"
    return Status(code)


@dataclass(frozen=True)
class CuResult:
    status: Status
    out_size: tuple[int, int]  # width, height
    src_size: tuple[int, int]
    bytes: int
    memory: NDArray[np.uint8]  # the whole output buffer, 0xA5 where nothing was written


def image_cu(
    jpeg: bytes,
    *,
    stage=3,
    format=0,
    resize_short=256,
    crop=(224, 224),
    at=(CENTRED, CENTRED),
    tables=None,
    capacity=None,
    memory=4 << 20,
    workspace_bytes=1 << 20,
    program=b"",
    ring_entries=0,
    configuration=FULL,
) -> CuResult:
    """One run on buffers as a device has them: 16-byte aligned, 0xA5 before. `capacity` defaults to `memory` bytes.

    `ring_entries`: for a configuration without a queue; there is no ring."""
    source = _aligned(len(jpeg), 0xEE)
    source[: len(jpeg)] = np.frombuffer(jpeg, np.uint8)
    tensor = _aligned(memory, 0xA5)
    words = _aligned(3 * 256 * 4, 0).view(np.uint32)
    if tables is not None:
        words[:] = np.asarray(tables).view(f"u{np.asarray(tables).itemsize}").reshape(-1)
    result, workspace = _aligned(32, 0xA5), _aligned(workspace_bytes + GUARD, 0xA5)
    code = _aligned(len(program), 0xEE)
    code[: len(program)] = np.frombuffer(program, np.uint8)
    (library() if configuration == FULL else csim.load(configuration)).image_cu(
        source.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint32(len(jpeg)),
        tensor.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint32(memory if capacity is None else capacity),
        words.ctypes.data_as(ctypes.c_void_p),
        result.ctypes.data_as(ctypes.c_void_p),
        *(ctypes.c_uint32(value) for value in (stage, format, resize_short, *crop, *at)),
        workspace.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint32(workspace_bytes),
        ctypes.c_void_p(),
        ctypes.c_uint32(ring_entries),
        *(ctypes.c_uint32(0) for _ in range(2)),
        code.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint32(len(program)),
    )
    assert (workspace[workspace_bytes:] == 0xA5).all(), "the unit wrote behind its workspace"
    record = result.view("<u4")
    status, out_width, out_height, src_width, src_height = map(int, record[:5])
    size = int(record[5]) | int(record[6]) << 32
    return CuResult(Status(status), (out_width, out_height), (src_width, src_height), size, tensor)


def _aligned(size: int, fill: int) -> NDArray[np.uint8]:
    raw = np.full(-(-size // 16) * 16 + 16, fill, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + len(raw) - 16]
