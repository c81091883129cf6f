"""Resize, crop, normalize and image_cu as Python functions over the C++, for the tests of each."""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import csim
import numpy as np
from numpy.typing import NDArray

from headrace.bitstreams.sources import hls_folder
from headrace.host.status import Status

CENTRED = 0xFFFFFFFF
BROKEN = 255  # the test bench's word for a unit that breaks the stream contract


@cache
def library() -> ctypes.CDLL:
    sources = [*sorted(hls_folder().glob("*/*.cpp")), Path(__file__).with_name("csim_units.cpp")]
    return csim.load(csim.build_library("units", sources))


def _unit(name: str, image: NDArray[np.uint8], settings: list[int], capacity: int, given, frame_status, end_status):
    height, width = image.shape[:2]
    image = np.ascontiguousarray(image)
    out = np.zeros(max(3, capacity), np.uint8)
    size = (ctypes.c_uint32(), ctypes.c_uint32())
    code = getattr(library(), name)(
        image.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(width), ctypes.c_uint32(height),
        ctypes.c_uint64(height * width if given is None else given),
        ctypes.c_uint32(frame_status), ctypes.c_uint32(end_status),
        *(ctypes.c_uint32(value) for value in settings),
        out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(len(out)),
        *(ctypes.byref(value) for value in size),
    )  # fmt: skip
    assert code != BROKEN, "the unit broke the stream contract"
    if code != Status.OK:
        return Status(code), None
    shape = (size[1].value, size[0].value, 3)
    return Status.OK, out[: int(np.prod(shape))].reshape(shape)


def resize(image, short, *, given=None, frame_status=0, end_status=0):
    height, width = image.shape[:2]
    longer = short * max(height, width) // min(height, width)
    capacity = 3 * short * longer if longer <= 65535 else 0
    return _unit("csim_resize", image, [short], capacity, given, frame_status, end_status)


def crop(image, width, height, x=CENTRED, y=CENTRED, *, given=None, frame_status=0, end_status=0):
    return _unit(
        "csim_crop",
        image,
        [width, height, x, y],
        min(3 * width * height, image.size),
        given,
        frame_status,
        end_status,
    )


def normalize(image, tables, end_status=0):
    """Returns the status and the 32-bit words, in the image's shape."""
    image = np.ascontiguousarray(image)
    out = np.zeros(image.shape, np.uint32)
    code = library().csim_normalize(
        image.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(image.size // 3), ctypes.c_uint32(end_status),
        np.ascontiguousarray(tables, np.uint32).ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p),
    )  # fmt: skip
    assert code != BROKEN, "the unit broke the stream contract"
    return Status(code), out


@dataclass(frozen=True)
class CuResult:
    status: Status
    out_size: tuple[int, int]  # width, height
    src_size: tuple[int, int]
    bytes: int
    memory: NDArray[np.uint8]  # the whole output buffer, 0xA5 where nothing was written


def image_cu(
    jpeg: bytes, *, stage=3, format=0, resize_short=256, crop=(224, 224), at=(CENTRED, CENTRED), tables=None,
    capacity=None, memory=4 << 20,
) -> CuResult:  # fmt: skip
    """One run on buffers as a device has them: 16-byte aligned, 0xA5 before. `capacity` defaults to `memory` bytes."""
    source = _aligned(len(jpeg), 0xEE)
    source[: len(jpeg)] = np.frombuffer(jpeg, np.uint8)
    tensor = _aligned(memory, 0xA5)
    words = _aligned(3 * 256 * 4, 0).view(np.uint32)
    if tables is not None:
        words[:] = np.asarray(tables).view(f"u{np.asarray(tables).itemsize}").reshape(-1)
    result = _aligned(32, 0xA5)
    registers = [ctypes.c_uint32(0xDEAD) for _ in range(5)]
    library().image_cu(
        source.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(len(jpeg)),
        tensor.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(memory if capacity is None else capacity),
        words.ctypes.data_as(ctypes.c_void_p), result.ctypes.data_as(ctypes.c_void_p),
        *(ctypes.c_uint32(value) for value in (stage, format, resize_short, *crop, *at)),
        *(ctypes.byref(register) for register in registers),
    )  # fmt: skip
    status, out_width, out_height, src_width, src_height = (register.value for register in registers)
    record = result.view("<u4")
    assert list(record[:5]) == [status, out_width, out_height, src_width, src_height], "record and registers differ"
    size = int(record[5]) | int(record[6]) << 32
    return CuResult(Status(status), (out_width, out_height), (src_width, src_height), size, tensor)


def _aligned(size: int, fill: int) -> NDArray[np.uint8]:
    raw = np.full(-(-size // 16) * 16 + 16, fill, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + len(raw) - 16]
