"""decode x {csim, rtlsim} against cv2.imdecode: equal pixels, or a status code that says why not."""

import ctypes
import io
import re
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import csim
import cv2
import numpy as np
import pytest
import rtlsim
from PIL import Image
from scan_script import factors_of

from headrace.bitstreams.sources import hls_folder

STATUS = {
    name: int(value)
    for name, value in re.findall(
        r"STATUS_(\w+) = (\d+)", (hls_folder() / "include" / "headrace" / "status.hpp").read_text()
    )
}
EXIF_ROTATED = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
SAMPLINGS = {
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}

SLOW = pytest.mark.slow

Decode = Callable[[bytes], tuple[int, np.ndarray | None]]


# ---- Taking files apart and putting them together again ----

SOF0, DHT, SOI, EOI, SOS, DQT, DRI = 0xC0, 0xC4, 0xD8, 0xD9, 0xDA, 0xDB, 0xDD
APP0, APP1, APP14, COM = 0xE0, 0xE1, 0xEE, 0xFE


@dataclass(frozen=True, slots=True)
class Segment:
    marker: int
    payload: bytes  # without the length field

    def to_bytes(self) -> bytes:
        return bytes([0xFF, self.marker]) + (len(self.payload) + 2).to_bytes(2, "big") + self.payload


@dataclass(frozen=True, slots=True)
class Jpeg:
    """A file with one scan: segments up to and with SOS, the scan's bytes, and what follows from EOI on."""

    segments: tuple[Segment, ...]
    scan: bytes
    trailer: bytes = bytes([0xFF, EOI])

    def to_bytes(self, fill: int = 0) -> bytes:
        """The file, with `fill` bytes 0xFF before every header marker."""
        padding = b"\xff" * fill
        headers = b"".join(padding + segment.to_bytes() for segment in self.segments)
        return bytes([0xFF, SOI]) + headers + self.scan + self.trailer

    def edit(self, marker: int, change) -> "Jpeg":
        """`change` maps the payload of each segment with this marker."""
        return replace(
            self,
            segments=tuple(Segment(s.marker, change(s.payload)) if s.marker == marker else s for s in self.segments),
        )

    def without(self, *markers: int) -> "Jpeg":
        return replace(self, segments=tuple(s for s in self.segments if s.marker not in markers))

    def with_first(self, *segments: Segment) -> "Jpeg":
        return replace(self, segments=segments + self.segments)

    def payloads(self, marker: int) -> list[bytes]:
        return [s.payload for s in self.segments if s.marker == marker]


def take_apart(jpeg: bytes) -> Jpeg:
    """Raises AssertionError if the file is none that an encoder wrote."""
    assert jpeg[:2] == bytes([0xFF, SOI])
    at, segments = 2, []
    while not segments or segments[-1].marker != SOS:
        assert jpeg[at] == 0xFF
        length = int.from_bytes(jpeg[at + 2 : at + 4], "big")
        segments.append(Segment(jpeg[at + 1], jpeg[at + 4 : at + 2 + length]))
        at += 2 + length
    end = jpeg.rindex(bytes([0xFF, EOI]))
    return Jpeg(tuple(segments), jpeg[at:end], jpeg[end:])


def patched(payload: bytes, at: int, *values: int) -> bytes:
    return payload[:at] + bytes(values) + payload[at + len(values) :]


def quant_tables(payload: bytes) -> list[tuple[int, list[int]]]:
    """The 8-bit tables (number, 64 values in zigzag order) of a DQT segment."""
    return [(payload[at], list(payload[at + 1 : at + 65])) for at in range(0, len(payload), 65)]


def wide_quant_table(number: int, values: list[int]) -> bytes:
    """A 16-bit table of a DQT segment."""
    return bytes([0x10 | number]) + b"".join(value.to_bytes(2, "big") for value in values)


def huffman_tables(payload: bytes) -> list[bytes]:
    """The tables of a DHT segment, each with its class and number, 16 counts and symbols."""
    tables, at = [], 0
    while at < len(payload):
        length = 17 + sum(payload[at + 1 : at + 17])
        tables.append(payload[at : at + length])
        at += length
    return tables


# ---- The unit and its reference ----


class RtlCounters(ctypes.Structure):
    """Clocks and events of one file, as tests/hls/rtl_decode.cpp counts them."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "cycles",
            "first_beat",
            "symbols",
            "header",
            "wait_data",
            "wait_transform",
            "wait_rows",
            "wait_output",
            "bytes",
            "workspace_needed",
            "read_words",
            "written_words",
            "pairs",
        )
    )


class RtlMemory(ctypes.Structure):
    """The workspace and how its memory behaves, see tests/hls/rtl_decode.cpp."""

    _fields_ = (
        ("workspace_bytes", ctypes.c_uint32),
        ("latency", ctypes.c_uint32),
        ("stall", ctypes.c_uint32),
        ("forgets", ctypes.c_uint32),
        ("error_after", ctypes.c_uint64),
        ("reset_at", ctypes.c_uint64),
        ("takes_writes", ctypes.c_uint64),
    )


NO_WORKSPACE = RtlMemory()
WAS_RESET = -6


CAPACITY = 3 * 4096 * 768  # bytes of RGB: the greatest image of the tests


@cache
def csim_library() -> ctypes.CDLL:
    return csim.load("decode")


Rows = tuple[int, int, int, int]  # the image's width and height, first row, number of rows; zeros for all


def csim_decode(jpeg: bytes, capacity: int = CAPACITY, rows: Rows = (0, 0, 0, 0)) -> tuple[int, int, int, np.ndarray]:
    width, height = ctypes.c_uint32(), ctypes.c_uint32()
    rgb = np.zeros(capacity, np.uint8)
    out, size = ctypes.c_void_p(rgb.ctypes.data), ctypes.c_uint64(capacity)
    status = csim_library().csim_decode(
        jpeg, len(jpeg), *map(ctypes.c_uint32, rows), out, size, ctypes.byref(width), ctypes.byref(height)
    )
    return status, width.value, height.value, rgb


@cache
def rtl_library() -> ctypes.CDLL:
    return rtlsim.load("decode")


# Per cent of the clocks in which input and output pause. The input has 16 bytes a word: it must pause for long before
# anything waits for it; then it does so between any two bytes.
STALLS = ((20, 20), (97, 0), (0, 80), (60, 60), (95, 30))


def cycles_bound(jpeg: bytes, stall_in: int, stall_out: int, memory: RtlMemory) -> int:
    """No file may take longer: an MCU has at least 2 bits a block of the file and at most 256 pixels, and the first
    error ends it. A scan of several visits each word of the workspace and its coefficients. Stalls on either side make
    each clock cost several."""
    scans = jpeg.count(b"\xff\xda") + 2 if memory.workspace_bytes else 0
    clocks = 4000 + 150 * len(jpeg) + scans * (4 * memory.latency + 1000 + 2 * memory.workspace_bytes)
    return clocks * (10 if stall_in or stall_out or memory.stall else 1)


def rtl_decode(
    jpeg: bytes,
    stall_in: int = 0,
    stall_out: int = 0,
    seed: int = 0,
    capacity: int = CAPACITY,
    rows: Rows = (0, 0, 0, 0),
    memory: RtlMemory = NO_WORKSPACE,
) -> tuple[int, int, int, np.ndarray, RtlCounters]:
    """As csim_decode, through the Verilated RTL; stalls in per cent of the clocks."""
    width, height, counters = ctypes.c_uint32(), ctypes.c_uint32(), RtlCounters()
    rgb = np.zeros(capacity, np.uint8)
    window = (rows[2], rows[2] + rows[3] - 1 if rows[0] else 0xFFFF)
    status = rtl_library().rtl_decode(
        jpeg,
        len(jpeg),
        seed,
        stall_in,
        stall_out,
        *window,
        ctypes.c_uint64(cycles_bound(jpeg, stall_in, stall_out, memory)),
        ctypes.byref(memory),
        ctypes.c_void_p(rgb.ctypes.data),
        ctypes.c_uint64(rgb.size),
        ctypes.byref(width),
        ctypes.byref(height),
        ctypes.byref(counters),
    )
    problems = {
        -1: "it takes too long",
        -2: "it breaks the stream contract",
        -3: "it does not come to rest",
        -4: "an access beside the workspace or after a reset",
        -5: "it says idle with accesses under way",
    }
    assert status >= 0 or status == WAS_RESET, problems[status]
    return status, width.value, height.value, rgb, counters


def rtl_decode_twice(jpeg: bytes, rows: Rows = (0, 0, 0, 0)) -> tuple[int, int, int, np.ndarray]:
    """Without stalls; files of moderate size also with them, and with the same outcome."""
    *result, rgb, counters = rtl_decode(jpeg, rows=rows)
    if len(jpeg) < 20_000:
        number = zlib.crc32(jpeg)
        stalls = STALLS[number % len(STALLS)]
        *stalled, stalled_rgb, stalled_counters = rtl_decode(jpeg, *stalls, seed=number >> 8, rows=rows)
        size = counters.bytes
        assert stalled == result and stalled_counters.bytes == size
        assert np.array_equal(stalled_rgb[:size], rgb[:size])
    return *result, rgb


@pytest.fixture(params=["csim", "rtlsim"])
def decode_partly(request) -> Callable[..., tuple[int, int, int, np.ndarray]]:
    """decode_partly(jpeg) -> status, width and height of the frame, RGB bytes with zeros where none came."""
    return csim_decode if request.param == "csim" else rtl_decode_twice


@pytest.fixture
def decode(decode_partly) -> Decode:
    """decode(jpeg) -> status and, if that is OK, the RGB image."""

    def run(jpeg: bytes) -> tuple[int, np.ndarray | None]:
        status, width, height, rgb = decode_partly(jpeg)
        if status:
            return status, None
        assert 3 * width * height <= rgb.size
        return status, rgb[: 3 * width * height].reshape(height, width, 3)

    return run


def golden(jpeg: bytes) -> np.ndarray | None:
    try:
        bgr = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None
    return None if bgr is None else bgr[..., ::-1]


def assert_equal_to_opencv(decode: Decode, jpeg: bytes) -> None:
    status, image = decode(jpeg)
    assert status == STATUS["OK"]
    expected = golden(jpeg)
    assert expected is not None
    np.testing.assert_array_equal(image, expected)


def picture(rng: np.random.Generator, width: int, height: int, channels: int = 3) -> np.ndarray:
    """Noise, blurred by a random amount: from flat blocks to every coefficient in use."""
    noise = rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
    sigma = rng.choice([0, 0, 1, 3])
    smooth = cv2.GaussianBlur(noise, (0, 0), float(sigma)) if sigma else noise
    return smooth.reshape(height, width, channels)


def encode(
    image: np.ndarray, quality: int = 90, sampling: str = "4:2:0", optimize: bool = False, restart: int = 0
) -> bytes:
    options = [
        cv2.IMWRITE_JPEG_QUALITY,
        quality,
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
        SAMPLINGS[sampling],
        cv2.IMWRITE_JPEG_OPTIMIZE,
        int(optimize),
        cv2.IMWRITE_JPEG_RST_INTERVAL,
        restart,
    ]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def encode_pillow(image: np.ndarray, **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", **options)
    return file.getvalue()


def sample(sampling: str = "4:2:0", width: int = 83, height: int = 61, **options) -> Jpeg:
    """A small file in parts, always the same."""
    return take_apart(encode(picture(np.random.default_rng(7), width, height), sampling=sampling, **options))


# ---- Files that encoders write ----


def generated_cases() -> list:
    rng = np.random.default_rng(2024)
    cases = []
    for i in range(360):
        sampling = (*SAMPLINGS, "gray")[i % 6]
        width, height, quality, seed = (
            int(rng.integers(1, 131)),
            int(rng.integers(1, 131)),
            int(rng.integers(1, 101)),
            int(rng.integers(1 << 30)),
        )
        optimize, restart = bool(rng.integers(2)), int(rng.choice([0, 0, 1, 2, 7]))
        name = f"{sampling} {width}x{height} q{quality}{' optimised' * optimize} rst{restart}"
        cases.append(pytest.param(sampling, width, height, quality, optimize, restart, seed, id=name))
    return cases


@pytest.mark.quick(csim=90, rtlsim=24)
@pytest.mark.parametrize(("sampling", "width", "height", "quality", "optimize", "restart", "seed"), generated_cases())
def test_pixels_equal_opencv(decode, sampling, width, height, quality, optimize, restart, seed):
    image = picture(np.random.default_rng(seed), width, height, 1 if sampling == "gray" else 3)
    jpeg = encode(image, quality, "4:2:0" if sampling == "gray" else sampling, optimize, restart)
    assert_equal_to_opencv(decode, jpeg)


@pytest.mark.quick(csim=5, rtlsim=3)
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_small_size_equals_opencv(decode, sampling, step):
    """Edges: chroma of one or two columns, rows that no MCU row follows, MCUs mostly outside the image.

    Every fifth size has each width and each height."""
    rng = np.random.default_rng(3)
    sizes = [(width, height) for height in range(1, 19) for width in range(1, 19)]
    for width, height in sizes[::step]:
        assert_equal_to_opencv(decode, encode(picture(rng, width, height), 95, sampling))


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize(
    "options",
    [
        {"quality": 100},
        {"quality": 75, "optimize": True},
        {"quality": 85, "restart_marker_rows": 1},
        {"quality": 85, "restart_marker_blocks": 3},
        {"qtables": [[1] * 64, [255] * 64]},
        {"quality": 60, "comment": "a comment", "dpi": (300, 300), "exif": EXIF_ROTATED},
    ],
    ids=["q100", "optimised", "restart each row", "restart each 3 MCUs", "flat tables", "comment and Exif"],
)
def test_pillow_files_equal_opencv(decode, subsampling, options):
    image = picture(np.random.default_rng(5), 121, 67)
    assert_equal_to_opencv(decode, encode_pillow(image, subsampling=subsampling, **options))


def test_pillow_rgb_file_equals_opencv(decode):
    assert_equal_to_opencv(decode, encode_pillow(picture(np.random.default_rng(5), 40, 30), keep_rgb=True))


def bundled_images() -> list[Path]:
    folders = [("sklearn", "datasets/images"), ("skimage", "data")]
    roots = [Path(find_spec(package).submodule_search_locations[0]) / sub for package, sub in folders]
    return sorted(path for root in roots for path in root.iterdir() if path.suffix in (".jpg", ".png"))


@pytest.mark.quick(csim=3, rtlsim=1)
@pytest.mark.parametrize("path", bundled_images(), ids=lambda path: path.name)
def test_photos_equal_opencv(decode, path):
    if path.suffix == ".jpg":
        assert_equal_to_opencv(decode, path.read_bytes())
    image = cv2.imread(str(path))
    image = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    for quality, sampling in zip((95, 75, 50, 90, 30), SAMPLINGS, strict=True):
        assert_equal_to_opencv(decode, encode(image, quality, sampling))


@pytest.mark.quick(csim=4, rtlsim=3)
@pytest.mark.parametrize("width", [4097, 5001, 8192])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_wide_photo_equals_opencv(decode, sampling, width):
    photo = cv2.imread(str(next(path for path in bundled_images() if path.name == "china.jpg")))
    assert_equal_to_opencv(decode, encode(cv2.resize(photo, (width, 100)), 90, sampling))


@SLOW
@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_photos_of_any_size_equal_opencv(decode, seed):
    """Parts of photos, scaled by any factor along each axis, with any quality, sampling and restart interval."""
    rng = np.random.default_rng(seed)
    photos = [cv2.imread(str(path)) for path in bundled_images()]
    for _ in range(100):
        photo = photos[rng.integers(len(photos))]
        top, left = (int(rng.integers(0, side - 1)) for side in photo.shape[:2])
        height, width = (int(2 ** rng.uniform(0, 9.5)) for _ in range(2))
        image = cv2.resize(photo[top:, left:], (width, height), interpolation=int(rng.integers(0, 4)))
        sampling, restart = list(SAMPLINGS)[rng.integers(len(SAMPLINGS))], int(rng.choice([0, 0, 1, 5, 100]))
        gray = rng.integers(6) == 0
        image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) if gray else image
        jpeg = encode(image, int(rng.integers(1, 101)), sampling, bool(rng.integers(2)), restart)
        assert_equal_to_opencv(decode, jpeg)


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0"])
def test_image_of_the_greatest_height_equals_opencv(decode, sampling):
    column = picture(np.random.default_rng(9), 8, 655)
    assert_equal_to_opencv(decode, encode(np.tile(column, (100, 1, 1)), 80, sampling))


# ---- A part of the rows ----


@pytest.mark.quick(csim=12, rtlsim=10)
@pytest.mark.parametrize("sampling", (*SAMPLINGS, "gray"))
@pytest.mark.parametrize("size", [(61, 83), (3, 40), (17, 64), (40, 1)])
def test_some_rows_are_those_of_the_whole_image(decode_partly, sampling, size):
    rng = np.random.default_rng(11)
    image = picture(rng, *size, 1 if sampling == "gray" else 3)
    jpeg = encode(image, 90, "4:2:0" if sampling == "gray" else sampling, restart=int(rng.integers(3)))
    width, height = size
    expected = golden(jpeg)
    for _ in range(12):
        first = int(rng.integers(0, height))
        count = int(rng.integers(1, height - first + 1))
        status, _, _, rgb = decode_partly(jpeg, rows=(*size, first, count))
        assert status == STATUS["OK"]
        assert np.array_equal(rgb[: 3 * width * count].reshape(count, width, 3), expected[first : first + count])


@pytest.mark.quick(csim=6, rtlsim=6)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("width", [4, 5])
def test_windows_that_end_around_an_mcu_row(decode_partly, sampling, width):
    """With and without the triangle filter, which wants the row below."""
    jpeg = encode(picture(np.random.default_rng(4), width, 34), 90, sampling)
    expected = golden(jpeg)
    for last in (*range(5, 18), 30, 31, 32):
        status, _, _, rgb = decode_partly(jpeg, rows=(width, 34, 5, last - 4))
        assert status == STATUS["OK"]
        assert np.array_equal(rgb[: 3 * width * (last - 4)].reshape(-1, width, 3), expected[5 : last + 1])


@pytest.mark.parametrize(
    ("sampling", "last", "mcu_rows"),
    [
        ("4:2:0", 14, 1),
        ("4:2:0", 15, 2),
        ("4:2:0", 16, 2),
        ("4:4:4", 7, 1),
        ("4:4:4", 8, 2),
        ("4:4:0", 31, 3),
        ("4:2:2", 15, 2),
        ("gray", 15, 2),
    ],
)
def test_nothing_behind_the_last_mcu_row_that_is_needed_is_seen(decode_partly, sampling, last, mcu_rows):
    """A restart interval an MCU row: what lies between the markers can be damaged by itself."""
    image = picture(np.random.default_rng(2), 64, 80, 1 if sampling == "gray" else 3)
    mcus = 4 if sampling in ("4:2:0", "4:2:2") else 8
    jpeg = encode(image, 90, "4:2:0" if sampling == "gray" else sampling, restart=mcus)
    expected = golden(jpeg)
    at = [0, *(place for place in range(len(jpeg)) if jpeg[place] == 0xFF and 0xD0 <= jpeg[place + 1] <= 0xD7)]
    rows = (64, 80, 3, last - 2)
    for behind in (b"", b"\xff\xd9", b"\xff\xc4 no table", bytes(40), b"\xff" * 9):
        status, _, _, rgb = decode_partly(jpeg[: at[mcu_rows]] + behind, rows=rows)
        assert status == STATUS["OK"]
        assert np.array_equal(rgb[: 3 * 64 * rows[3]].reshape(-1, 64, 3), expected[3 : last + 1])
    damaged = jpeg[: at[mcu_rows] - 3] + b"\xff\xd9"
    assert decode_partly(damaged, rows=rows)[0] == STATUS["TRUNCATED"]


@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4"])
def test_the_rest_of_the_file_costs_next_to_no_clocks(sampling):
    image = picture(np.random.default_rng(2), 64, 800)
    jpeg = encode(image, 95, sampling)
    *_, counters = rtl_decode(jpeg, rows=(64, 800, 0, 60))
    *_, short = rtl_decode(encode(image[:80], 95, sampling))
    assert counters.cycles <= short.cycles


@pytest.mark.parametrize("size", [20, 47, 200])
def test_a_skipped_segment_hides_markers_while_the_words_of_the_file_are_late(size):
    """No byte of it may count before it is there: else what is left of the segment would be read as markers."""
    plain = encode(picture(np.random.default_rng(2), 16, 16), 75, "4:2:0")
    segment = Segment(APP1, (b"\xff\xd8" * size)[:size])
    jpeg = take_apart(plain).with_first(segment).to_bytes()
    expected = golden(plain)
    for seed in range(8):
        status, width, height, rgb, _ = rtl_decode(jpeg, 97, 0, seed)
        assert (status, width, height) == (STATUS["OK"], 16, 16)
        assert np.array_equal(rgb[: expected.size], expected.reshape(-1))


# ---- Files built by hand: valid, but rarely written ----


def adobe(transform: int) -> Segment:
    return Segment(APP14, b"Adobe" + bytes([0, 100, 0, 0, 0, 0, transform]))


def with_factors(jpeg: Jpeg, sampling: str) -> Jpeg:
    """Three components said to be sampled so, whatever the scan holds."""

    def frame(payload: bytes) -> bytes:
        for component, (h, v) in enumerate(factors_of(sampling)):
            payload = patched(payload, 7 + 3 * component, h << 4 | v)
        return payload

    return jpeg.edit(SOF0, frame)


def with_ids(jpeg: Jpeg, *ids: int) -> Jpeg:
    def frame(payload: bytes) -> bytes:
        return patched(patched(patched(payload, 6, ids[0]), 9, ids[1]), 12, ids[2])

    def scan(payload: bytes) -> bytes:
        return patched(patched(patched(payload, 1, ids[0]), 3, ids[1]), 5, ids[2])

    return jpeg.edit(SOF0, frame).edit(SOS, scan)


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize(
    "change",
    [
        lambda file: file,
        lambda file: file.without(APP0),
        lambda file: file.without(APP0).with_first(adobe(0)),
        lambda file: file.without(APP0).with_first(adobe(1)),
        lambda file: file.with_first(adobe(0)),
        lambda file: with_ids(file.without(APP0), *b"RGB"),
        lambda file: with_ids(file, *b"RGB"),
        lambda file: with_ids(file.without(APP0), 0, 1, 2),
        lambda file: with_ids(file.without(APP0), 5, 5, 5),
        lambda file: file.without(APP0).with_first(Segment(APP0, b"JFIF\0\1"), adobe(0)),
    ],
    ids=[
        "JFIF",
        "no marker",
        "Adobe RGB",
        "Adobe YCC",
        "JFIF before Adobe RGB",
        "ids RGB",
        "JFIF and ids RGB",
        "ids 0 1 2",
        "equal ids",
        "short JFIF is none",
    ],
)
def test_colour_space_is_chosen_as_libjpeg_does(decode, sampling, change):
    assert_equal_to_opencv(decode, change(sample(sampling)).to_bytes())


def as_wide_tables(payload: bytes) -> bytes:
    return b"".join(wide_quant_table(number, values) for number, values in quant_tables(payload))


def split(file: Jpeg, marker: int, parts: Callable[[bytes], list[bytes]]) -> Jpeg:
    segments = []
    for segment in file.segments:
        several = parts(segment.payload) if segment.marker == marker else [segment.payload]
        segments += [Segment(segment.marker, payload) for payload in several]
    return replace(file, segments=tuple(segments))


def merged(file: Jpeg, marker: int) -> Jpeg:
    return file.without(marker).with_first(Segment(marker, b"".join(file.payloads(marker))))


def without_tables(file: Jpeg, *selectors: int) -> Jpeg:
    """Without the Huffman tables of these classes and numbers."""
    return file.edit(DHT, lambda p: b"".join(t for t in huffman_tables(p) if t[0] not in selectors))


def with_tables_above(file: Jpeg, by: int) -> Jpeg:
    """The scan uses the Huffman tables whose numbers are so much higher."""
    return file.edit(SOS, lambda p: patched(p, 2, p[2] + 17 * by, p[3], p[4] + 17 * by, p[5], p[6] + 17 * by))


GARBAGE = b"\0ab\xff\0\xff\xff\0c"  # no marker

UNUSUAL = {
    "fill bytes before markers": lambda file: file.to_bytes(fill=5),
    "fill bytes before EOI": lambda file: replace(file, trailer=b"\xff\xff\xff\xd9").to_bytes(),
    "data after EOI": lambda file: replace(file, trailer=b"\xff\xd9" + bytes(range(100))).to_bytes(),
    "segments between scan and EOI": lambda file: replace(
        file, trailer=Segment(COM, b"late").to_bytes() + Segment(APP1, b"x" * 300).to_bytes() + b"\xff\xd9"
    ).to_bytes(),
    "comments and applications": lambda file: file.with_first(
        Segment(COM, b""),
        Segment(COM, b"\xff\xd9\xff\xda"),
        Segment(0xEF, b"x" * 65533),
        Segment(0xE2, b"ICC\0"),
    ).to_bytes(),
    "Exif orientation is ignored": lambda file: file.with_first(Segment(APP1, EXIF_ROTATED)).to_bytes(),
    "one DQT and one DHT": lambda file: merged(merged(file, DQT), DHT).to_bytes(),
    "a segment for each table": lambda file: split(
        split(file, DHT, huffman_tables), DQT, lambda p: [p[at : at + 65] for at in range(0, len(p), 65)]
    ).to_bytes(),
    "tables defined again": lambda file: file.with_first(
        Segment(DQT, bytes([0]) + bytes(range(1, 65)) + bytes([3]) + bytes([7] * 64)),
        Segment(DHT, bytes([0x00, 0, 2, *[0] * 14, 3, 4])),
        Segment(DHT, bytes([0x11, 0, 0, 3, *[0] * 13, 1, 2, 0])),
    ).to_bytes(),
    "16-bit DQT": lambda file: file.edit(DQT, as_wide_tables).to_bytes(),
    "extended sequential frame": lambda file: replace(
        file, segments=tuple(Segment(0xC1, s.payload) if s.marker == SOF0 else s for s in file.segments)
    ).to_bytes(),
    "JFIF 2": lambda file: file.edit(APP0, lambda p: patched(p, 5, 2)).to_bytes(),
    "JFIF 0": lambda file: file.edit(APP0, lambda p: patched(p, 5, 0)).to_bytes(),
    "no DHT, as in Motion JPEG": lambda file: file.without(DHT).to_bytes(),
    **{
        f"no Huffman table {selector:02X}": lambda file, selector=selector: without_tables(file, selector).to_bytes()
        for selector in (0x00, 0x01, 0x10, 0x11)
    },
    "no chroma tables": lambda file: without_tables(file, 0x01, 0x11).to_bytes(),
    "garbage between segments": lambda file: (
        b"\xff\xd8" + GARBAGE.join(segment.to_bytes() for segment in file.segments) + file.scan + file.trailer
    ),
    "FF 00 behind SOI": lambda file: b"\xff\xd8\xff\0" + file.to_bytes()[2:],
    "garbage between segments behind the scan": lambda file: replace(
        file, trailer=Segment(COM, b"late").to_bytes() + GARBAGE + b"\xff\xd9"
    ).to_bytes(),
    "a byte 0 before EOI": lambda file: replace(file, trailer=b"\0\xff\xd9").to_bytes(),
    "zeros before EOI": lambda file: replace(file, trailer=bytes(99) + b"\xff\xd9").to_bytes(),
    "tables with other numbers": lambda file: (
        file.edit(DHT, lambda p: b"".join(bytes([t[0] + 2]) + t[1:] for t in huffman_tables(p)))
        .edit(SOS, lambda p: patched(patched(patched(p, 2, p[2] + 0x22), 4, p[4] + 0x22), 6, p[6] + 0x22))
        .to_bytes()
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_but_valid_file_equals_opencv(decode, name):
    assert_equal_to_opencv(decode, UNUSUAL[name](sample()))


@pytest.mark.parametrize("comments", [40, pytest.param(300, marks=SLOW)])
def test_file_of_many_megabytes_equals_opencv(decode, comments):
    """Of comments, which are skipped a word at a time."""
    file = sample()
    assert_equal_to_opencv(decode, file.with_first(*[Segment(COM, b"\xff" * 65533)] * comments).to_bytes())


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0", "gray"])
@pytest.mark.parametrize("restart", [0, 1])
def test_motion_jpeg_without_tables_equals_opencv(decode, sampling, restart):
    """At every quality: most of the standard's codes are in use."""
    rng = np.random.default_rng(restart)
    for quality in (5, 40, 75, 95, 100):
        image = picture(rng, 75, 43, 1 if sampling == "gray" else 3)
        file = take_apart(encode(image, quality, "4:4:4" if sampling == "gray" else sampling, restart=restart))
        assert_equal_to_opencv(decode, file.without(DHT).to_bytes())


@pytest.mark.parametrize("factors", [0x11, 0x21, 0x22, 0x14, 0x41, 0x44])
def test_sampling_factors_of_a_gray_file_do_not_matter(decode, factors):
    file = take_apart(encode(picture(np.random.default_rng(1), 45, 37, 1)))
    assert_equal_to_opencv(decode, file.edit(SOF0, lambda payload: patched(payload, 7, factors)).to_bytes())


def test_restart_markers_may_follow_fill_bytes_and_the_last_mcu(decode):
    file = sample(restart=2)
    padded = re.sub(rb"\xff(?=[\xd0-\xd7])", b"\xff\xff\xff", file.scan)
    assert padded != file.scan
    assert_equal_to_opencv(decode, replace(file, scan=padded).to_bytes())
    exact = sample(width=64, height=48, restart=4)  # 12 MCUs: the last interval is whole
    assert_equal_to_opencv(decode, replace(exact, scan=exact.scan + b"\xff\xd2").to_bytes())


@pytest.mark.parametrize("trials", [14, pytest.param(40, marks=SLOW)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_overflow_wraps_and_saturates_as_in_libjpeg_turbo(decode, sampling, trials):
    """Quantisation tables of 16 bits drive every sum of the inverse DCT out of range."""
    rng = np.random.default_rng(11)
    for trial in range(trials):
        quality = int(rng.integers(20, 101))
        file = take_apart(encode(picture(rng, 40, 24), quality, sampling))
        limit = int(2.0 ** rng.uniform(8, 16)) - 1
        tables = b"".join(
            wide_quant_table(n, rng.integers(0 if trial % 2 else limit // 2, limit + 1, 64).tolist()) for n in (0, 1)
        )
        assert_equal_to_opencv(decode, file.without(DQT).with_first(Segment(DQT, tables)).to_bytes())


# ---- Files with tables that no encoder writes ----


def random_huffman_table(rng: np.random.Generator, symbols: list[int]) -> tuple[bytes, dict[int, str]]:
    """Counts and symbols as DHT has them, and the code of each symbol as a string of digits. Lengths are those of some
    leaves of a tree that is split at random: some are flat, some have codes of every length up to 16, and few have all
    leaves but the one that must not be used, all ones."""
    leaves = [1, 1]  # lengths
    deep, unused = rng.random(), int(rng.integers(1, 4) * rng.integers(1, len(symbols)))
    while len(leaves) < len(symbols) + unused:
        open_ones = [i for i, length in enumerate(leaves) if length < 16]
        at = open_ones[-1] if rng.random() < deep else open_ones[rng.integers(len(open_ones))]
        leaves[at] += 1
        leaves.append(leaves[at])
    lengths = sorted(rng.permutation(leaves)[: len(symbols)].tolist())
    order = [int(symbol) for symbol in rng.permutation(symbols)]
    codes, code = {}, 0
    for i, (symbol, length) in enumerate(zip(order, lengths, strict=True)):
        code <<= length - (lengths[i - 1] if i else length)
        codes[symbol] = f"{code:0{length}b}"
        code += 1
    return bytes(lengths.count(n) for n in range(1, 17)) + bytes(order), codes


AC_SYMBOLS = [run << 4 | size for run in range(16) for size in range(1, 11)] + [0xF0]


def file_of_random_codes(
    rng: np.random.Generator,
    sampling: str,
    ac_symbols: list[int] = AC_SYMBOLS,
    numbers: int = 4,
    below: tuple[int, int] = (70, 50),
) -> bytes:
    """Random coefficients in random codes; the tables' numbers are random, too, below `numbers`, and the size. Each AC
    table has some of these symbols, and end of block."""
    width, height = int(rng.integers(1, below[0])), int(rng.integers(1, below[1]))
    frame = with_factors(sample("4:4:4", width, height), sampling)
    tables, codes = [], {}
    for table_class in (0, 1):
        for number in range(4):
            some = [*rng.permutation(ac_symbols)[: rng.integers(1, len(ac_symbols) + 1)].tolist(), 0]
            packed, code = random_huffman_table(rng, some if table_class else list(range(12)))
            tables.append(Segment(DHT, bytes([table_class << 4 | number]) + packed))
            codes[table_class, number] = code
    dc, ac = rng.integers(0, numbers, (2, 3)).tolist()
    selectors = [value for i in range(3) for value in (i + 1, dc[i] << 4 | ac[i])]
    file = frame.without(DHT).with_first(*tables).edit(SOS, lambda payload: bytes([3, *selectors, 0, 63, 0]))

    def extra(value: int, size: int) -> str:
        return f"{value if value >= 0 else value + (1 << size) - 1:0{size}b}" if size else ""

    def random_value(size: int) -> int:
        value = int(rng.integers(1 << size - 1, 1 << size))
        return value if rng.integers(2) else -value

    factors = factors_of(sampling)
    across, down = (max(pair) for pair in zip(*factors, strict=True))
    last, bits = [0, 0, 0], []
    for _ in range(-(-width // (8 * across)) * -(-height // (8 * down))):
        for component, blocks in enumerate(h * v for h, v in factors):
            dc_code, ac_code = codes[0, dc[component]], codes[1, ac[component]]
            sendable = list(ac_code)
            for _ in range(blocks):
                value = int(rng.integers(-1023, 1024))
                difference, last[component] = value - last[component], value
                size = abs(difference).bit_length()
                bits += dc_code[size], extra(difference, size)
                k = 1
                while k < 64:
                    symbol = sendable[rng.integers(len(sendable))]
                    run, size = symbol >> 4, symbol & 15
                    if k + run >= 64:
                        symbol = run = size = 0
                    bits.append(ac_code[symbol])
                    if symbol == 0:
                        break
                    if size:
                        bits.append(extra(random_value(size), size))
                    k += run + 1
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    scan = int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")
    return replace(file, scan=scan).to_bytes()


@pytest.mark.parametrize(
    "seeds",
    [
        *([seed] for seed in range(8)),
        *(pytest.param(range(first, first + 20), marks=SLOW) for first in range(8, 220, 20)),
    ],
    ids=lambda seeds: f"from {seeds[0]}",
)
def test_codes_of_any_length_in_any_table_equal_opencv(decode, seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for sampling in SAMPLINGS:
            assert_equal_to_opencv(decode, file_of_random_codes(rng, sampling))


# ---- Files that end in a status ----


def frame_type(marker: int) -> bytes:
    """The type of frame is changed, and nothing sensible follows it."""
    file = sample().to_bytes()
    at = file.index(b"\xff\xc0")
    return file[: at + 1] + bytes([marker]) + bytes(range(60))


def wide_tables_cut_off() -> bytes:
    """In the middle of a value of 16 bits."""
    file = sample().edit(DQT, as_wide_tables).to_bytes()
    return file[: file.index(b"\xff\xdb") + 10]


def spectrum_cut_off() -> bytes:
    """Behind a wrong start of the spectral selection: the file is too short, too."""
    file = edited(SOS, 7, 1)
    return file[: file.index(b"\xff\xda") + 12]


def edited(marker: int, at: int, *values: int, file: Jpeg | None = None) -> bytes:
    return (file or sample()).edit(marker, lambda payload: patched(payload, at, *values)).to_bytes()


def four_components() -> bytes:
    file = io.BytesIO()
    Image.new("CMYK", (20, 20)).save(file, "JPEG")
    return file.getvalue()


def progressive() -> bytes:
    return encode_pillow(picture(np.random.default_rng(1), 30, 30), progressive=True)


def scan_changed(change: Callable[[bytes], bytes], restart: int = 0) -> bytes:
    file = sample(restart=restart)
    scan = change(file.scan)
    assert scan != file.scan
    return replace(file, scan=scan).to_bytes()


def second_scan_only_gray() -> bytes:
    """Y alone in the first scan."""
    return sample().edit(SOS, lambda payload: bytes([1]) + payload[1:3] + payload[-3:]).to_bytes()


def short_huffman_table() -> bytes:
    """The luma AC table has one code, so that almost any data holds one that is not in it."""
    return (
        sample()
        .edit(
            DHT,
            lambda p: b"".join(bytes([0x10, 0, 1, *[0] * 14, 1]) if t[0] == 0x10 else t for t in huffman_tables(p)),
        )
        .to_bytes()
    )


def large_categories(table_class: int, symbol: int) -> bytes:
    """Every symbol of the luma table becomes one that 8-bit samples do not need."""
    return (
        sample()
        .edit(
            DHT,
            lambda p: b"".join(
                t[:17] + bytes([symbol]) * (len(t) - 17) if t[0] == table_class << 4 else t for t in huffman_tables(p)
            ),
        )
        .to_bytes()
    )


def longest_code_and_most_bits() -> bytes:
    """A gray file whose first AC symbol has a code of 16 bits and says that 15 more follow: 31 bits in all."""
    file = take_apart(encode(np.zeros((8, 8), np.uint8)))
    dc = bytes([0x00, 1, *[0] * 15, 0])
    ac = bytes([0x10, 1, *[0] * 14, 1, 0x00, 0x0F])
    scan = bytes([0b01000000, 0, 0b01111111]) + bytes(range(1, 60))
    tables = (Segment(DHT, dc), Segment(DHT, ac))
    return replace(file.without(DHT).with_first(*tables), scan=scan).to_bytes()


def filled(file: Jpeg, place: int = 0, fill: int = 1) -> bytes:
    """With fill bytes before the 0xFF of data at `place`: T.81 B.1.1.2 allows them before markers only."""
    at = [found.start() for found in re.finditer(rb"\xff(?=\0)", file.scan)][place]
    return replace(file, scan=file.scan[:at] + b"\xff" * fill + file.scan[at:]).to_bytes()


REFUSED = {
    "empty": ("NOT_JPEG", lambda: b""),
    "png": ("NOT_JPEG", lambda: cv2.imencode(".png", np.zeros((8, 8, 3), np.uint8))[1].tobytes()),
    "one byte": ("NOT_JPEG", lambda: b"\xff"),
    "SOI alone": ("TRUNCATED", lambda: b"\xff\xd8"),
    "no EOI": ("TRUNCATED", lambda: replace(sample(), trailer=b"").to_bytes()),
    "EOI too early": ("TRUNCATED", lambda: scan_changed(lambda s: s[:300])),
    "wide quantisation table cut off": ("TRUNCATED", wide_tables_cut_off),
    "spectral selection cut off": ("TRUNCATED", spectrum_cut_off),
    "segment cut off after the scan": (
        "TRUNCATED",
        lambda: replace(sample(), trailer=b"\xff\xfe\1\0abc").to_bytes(),
    ),
    "progressive": ("PROGRESSIVE", progressive),
    **{f"SOF{n}": ("PROGRESSIVE", lambda n=n: frame_type(0xC0 + n)) for n in (2, 5, 6, 7)},
    "hierarchical": ("PROGRESSIVE", lambda: frame_type(0xDE)),
    **{f"SOF{n}": ("ARITHMETIC", lambda n=n: frame_type(0xC0 + n)) for n in (9, 10, 11, 13, 14, 15)},
    "DAC": ("ARITHMETIC", lambda: frame_type(0xCC)),
    "SOF3": ("LOSSLESS", lambda: frame_type(0xC3)),
    "12 bits": ("PRECISION", lambda: edited(SOF0, 0, 12)),
    "2 components": ("COMPONENTS", lambda: edited(SOF0, 5, 2)),
    "CMYK": ("COMPONENTS", four_components),
    "no components": ("COMPONENTS", lambda: edited(SOF0, 5, 0)),
    "luma 3x1": ("SAMPLING", lambda: edited(SOF0, 7, 0x31)),
    "luma 4x4": ("SAMPLING", lambda: edited(SOF0, 7, 0x44)),
    "chroma 4x1, luma 2x2": ("SAMPLING", lambda: edited(SOF0, 10, 0x41)),
    "all 2x2": ("SAMPLING", lambda: edited(SOF0, 10, 0x22, 1, 3, 0x22)),
    "gray 0x1": (
        "SAMPLING",
        lambda: edited(SOF0, 7, 0x01, file=take_apart(encode(np.zeros((8, 8), np.uint8)))),
    ),
    "gray 5x1": (
        "SAMPLING",
        lambda: edited(SOF0, 7, 0x51, file=take_apart(encode(np.zeros((8, 8), np.uint8)))),
    ),
    "8193 wide": ("TOO_LARGE", lambda: edited(SOF0, 3, 0x20, 0x01)),
    "65501 high": ("TOO_LARGE", lambda: edited(SOF0, 1, 0xFF, 0xDD)),
    "no height": ("TOO_LARGE", lambda: edited(SOF0, 1, 0, 0)),
    "no width": ("CORRUPT_HEADER", lambda: edited(SOF0, 3, 0, 0)),
    "garbage behind SOI": ("CORRUPT_HEADER", lambda: b"\xff\xd8\0" + sample().to_bytes()[2:]),
    "garbage without end": ("TRUNCATED", lambda: b"\xff\xd8\xff" + b"\xff\0a" * 50),
    "second SOI": ("CORRUPT_HEADER", lambda: b"\xff\xd8" + sample().to_bytes()),
    "second SOF": (
        "CORRUPT_HEADER",
        lambda: sample().with_first(Segment(SOF0, sample().payloads(SOF0)[0])).to_bytes(),
    ),
    "SOS before SOF": ("CORRUPT_HEADER", lambda: sample().without(SOF0).to_bytes()),
    "EOI before SOS": ("CORRUPT_HEADER", lambda: b"\xff\xd8\xff\xd9"),
    "reserved marker": ("CORRUPT_HEADER", lambda: sample().with_first(Segment(0x02, b"")).to_bytes()),
    "segment shorter than its length": (
        "CORRUPT_HEADER",
        lambda: b"\xff\xd8\xff\xe1\0\1" + sample().to_bytes()[2:],
    ),
    "SOF of a wrong length": ("CORRUPT_HEADER", lambda: sample().edit(SOF0, lambda p: p + b"\0").to_bytes()),
    "DQT number 4": ("CORRUPT_HEADER", lambda: edited(DQT, 0, 4)),
    "DQT precision 2": ("CORRUPT_HEADER", lambda: edited(DQT, 0, 0x20)),
    "DQT too short": ("CORRUPT_HEADER", lambda: sample().edit(DQT, lambda p: p[:-1]).to_bytes()),
    "DHT number 4": ("CORRUPT_HEADER", lambda: edited(DHT, 0, 4)),
    "DHT too short": ("CORRUPT_HEADER", lambda: sample().edit(DHT, lambda p: p[:-1]).to_bytes()),
    "more codes than a length has": ("CORRUPT_HEADER", lambda: edited(DHT, 1, 3)),
    "code of all ones": (
        "CORRUPT_HEADER",
        lambda: sample().with_first(Segment(DHT, bytes([0, 2, *[0] * 15, 1, 2]))).to_bytes(),
    ),
    "DC category 16": ("CORRUPT_HEADER", lambda: edited(DHT, 17, 16)),
    "DRI of a wrong length": (
        "CORRUPT_HEADER",
        lambda: sample().with_first(Segment(DRI, b"\0\0\0")).to_bytes(),
    ),
    "SOS with five components": ("CORRUPT_HEADER", lambda: edited(SOS, 0, 5)),
    "SOS with another component": ("CORRUPT_HEADER", lambda: edited(SOS, 1, 9)),
    "SOS with table 4": ("CORRUPT_HEADER", lambda: edited(SOS, 2, 0x40)),
    "part of the spectrum": ("CORRUPT_HEADER", lambda: edited(SOS, 8, 5)),
    "spectrum without DC": ("CORRUPT_HEADER", lambda: edited(SOS, 7, 1)),
    **{
        f"Adobe transform {n}": ("CORRUPT_HEADER", lambda n=n: sample().without(APP0).with_first(adobe(n)).to_bytes())
        for n in (2, 0xFC, 3)
    },
    "SOF after the scan": (
        "CORRUPT_HEADER",
        lambda: replace(sample(), trailer=b"\xff\xc0\0\2\xff\xd9").to_bytes(),
    ),
    "no DQT": ("MISSING_TABLE", lambda: sample().without(DQT).to_bytes()),
    "no DHT and no table 2 in the standard": (
        "MISSING_TABLE",
        lambda: with_tables_above(sample(), 2).without(DHT).to_bytes(),
    ),
    "no DC table 2": (
        "MISSING_TABLE",
        lambda: sample().without(DHT).edit(SOS, lambda p: patched(p, 4, 0x21)).to_bytes(),
    ),
    "no AC table 3": (
        "MISSING_TABLE",
        lambda: sample().without(DHT).edit(SOS, lambda p: patched(p, 4, 0x13)).to_bytes(),
    ),
    "code in no table": ("CORRUPT_HUFFMAN", short_huffman_table),
    "DC category 12": ("CORRUPT_HUFFMAN", lambda: large_categories(0, 12)),
    "AC category 11": ("CORRUPT_HUFFMAN", lambda: large_categories(1, 11)),
    "AC category 15 behind a code of 16 bits": ("CORRUPT_HUFFMAN", longest_code_and_most_bits),
    "more than 64 coefficients": ("CORRUPT_HUFFMAN", lambda: large_categories(1, 0xF1)),
    "marker in the data": (
        "CORRUPT_HUFFMAN",
        lambda: scan_changed(lambda s: s[:300] + b"\xff\xfe" + s[300:]),
    ),
    "fill bytes before a stuffed zero": ("CORRUPT_HUFFMAN", lambda: filled(sample())),
    "fill bytes and zero after the last MCU": ("CORRUPT_HUFFMAN", lambda: scan_changed(lambda s: s + b"\xff\xff\0")),
    "fill bytes and zero before a restart marker": (
        "CORRUPT_HUFFMAN",
        lambda: scan_changed(lambda s: s.replace(b"\xff\xd0", b"\xff\xff\0\xff\xd0", 1), restart=2),
    ),
    "data after the last MCU": ("CORRUPT_HUFFMAN", lambda: scan_changed(lambda s: s + b"\0\1")),
    "much data after the last MCU": ("CORRUPT_HUFFMAN", lambda: scan_changed(lambda s: s + bytes(50) + b"\1")),
    "a one in the last bit of the byte after the last MCU": (
        "CORRUPT_HUFFMAN",
        lambda: scan_changed(lambda s: s + b"\1"),
    ),
    "a one in the first bit of the byte after the last MCU": (
        "CORRUPT_HUFFMAN",
        lambda: scan_changed(lambda s: s + b"\x80"),
    ),
    "restart marker missing": (
        "RESTART_MISMATCH",
        lambda: scan_changed(lambda s: s.replace(b"\xff\xd1", b"", 1), restart=2),
    ),
    "restart marker out of order": (
        "RESTART_MISMATCH",
        lambda: scan_changed(lambda s: s.replace(b"\xff\xd1", b"\xff\xd5", 1), restart=2),
    ),
    "restart marker too early": (
        "RESTART_MISMATCH",
        lambda: scan_changed(lambda s: s[:20] + b"\xff\xd0" + s[20:], restart=2),
    ),
    "restart marker without DRI": (
        "RESTART_MISMATCH",
        lambda: scan_changed(lambda s: s[:300] + b"\xff\xd0" + s[300:]),
    ),
    "data before a restart marker": (
        "RESTART_MISMATCH",
        lambda: scan_changed(lambda s: s.replace(b"\xff\xd0", b"\0\0\xff\xd0", 1), restart=2),
    ),
    "a scan of one component": ("MULTIPLE_SCANS", second_scan_only_gray),
    "a second scan": (
        "MULTIPLE_SCANS",
        lambda: replace(sample(), trailer=Segment(SOS, sample().payloads(SOS)[0]).to_bytes() + b"\xff\xd9").to_bytes(),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_file_that_cannot_be_decoded_ends_in_its_status(decode, name):
    expected, build = REFUSED[name]
    status, _ = decode(build())
    assert status == STATUS[expected]


def test_every_status_of_the_unit_has_a_case():
    assert {STATUS[expected] for expected, _ in REFUSED.values()} == set(range(1, 15))


@pytest.mark.parametrize("marker", [SOF0, DQT, DHT, SOS])
def test_a_wrong_byte_of_a_header_counts_although_the_file_ends_behind_it(marker):
    """The RTL acts on it when it already looks for the next byte."""
    jpeg = sample().to_bytes()
    begin = jpeg.index(bytes([0xFF, marker])) + 4
    end = begin + int.from_bytes(jpeg[begin - 2 : begin], "big") - 2
    outcomes = set()
    for place in range(begin, min(end, begin + 20)):
        for value in (0, 2, 9, 0x31, 0xFF):
            cut = jpeg[:place] + bytes([value])
            status = rtl_decode(cut)[0]
            assert status == csim_decode(cut)[0], (place - begin, value)
            outcomes.add(status)
    assert STATUS["TRUNCATED"] in outcomes and len(outcomes) > 1


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize("restart", [0, 2])
def test_file_cut_off_anywhere_is_reported_as_truncated(decode, restart, step):
    jpeg = sample(width=33, height=35, restart=restart).to_bytes()
    for length in range(2, len(jpeg), step):
        assert decode(jpeg[:length])[0] == STATUS["TRUNCATED"], length


@pytest.mark.parametrize(("sampling", "rows_before"), [("4:2:2", 48), ("4:2:0", 95), ("4:1:1", 48)])
def test_error_in_mid_image_follows_the_rows_before_it(decode_partly, sampling, rows_before):
    """A wrong marker ends the sixth MCU row. 4:2:0 also keeps back the row that needs chroma of the next."""
    image = picture(np.random.default_rng(4), 64, 200)
    mcus_across = 2 if sampling == "4:1:1" else 4
    file = take_apart(encode(image, sampling=sampling, restart=mcus_across))
    damaged = replace(file, scan=file.scan.replace(b"\xff\xd5", b"\xff\xff\xff\xd7", 1)).to_bytes()
    status, width, height, rgb = decode_partly(damaged)
    assert (status, width, height) == (STATUS["RESTART_MISMATCH"], 64, 200)
    sent = rgb[: 3 * 64 * 200].reshape(200, 64, 3)
    np.testing.assert_array_equal(sent[:rows_before], golden(file.to_bytes())[:rows_before])
    assert not sent[rows_before:].any()


def test_error_before_the_first_pixel_is_in_the_frame(decode_partly):
    status, width, height, _ = decode_partly(REFUSED["code in no table"][1]())
    assert (status, width, height) == (STATUS["CORRUPT_HUFFMAN"], 0, 0)


# ---- Damaged files ----


def small_files(rng: np.random.Generator) -> list[bytes]:
    files = []
    for i in range(48):
        width, height = int(rng.integers(1, 60)), int(rng.integers(1, 100))
        sampling, restart = list(SAMPLINGS)[i % 5], int(rng.choice([0, 0, 1, 3]))
        image = picture(rng, width, height, 1 if i % 6 == 5 else 3)
        files.append(encode(image, int(rng.integers(5, 101)), sampling, bool(i % 2), restart))
    return files


def mutants(
    count: int, seed: int = 20, files: Callable[[np.random.Generator], list[bytes]] = small_files
) -> list[bytes]:
    """Bit flips, cuts, moved and repeated pieces, marker surgery; the same files each time."""
    rng = np.random.default_rng(seed)
    originals = files(rng)

    def mutate(jpeg: bytes) -> bytes:
        data = bytearray(jpeg)
        scan = jpeg.index(b"\xff\xda") + 14
        kind = rng.integers(11)
        at = int(rng.integers(len(data)))
        if kind == 0:  # a few bits anywhere
            for _ in range(rng.integers(1, 4)):
                data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        elif kind == 1:  # one bit of the headers
            data[rng.integers(2, scan)] ^= 1 << rng.integers(8)
        elif kind in (2, 3):  # one bit of the data: most often still valid codes
            data[rng.integers(min(scan, len(data) - 1), len(data))] ^= 1 << rng.integers(8)
        elif kind == 4:
            del data[at:]
        elif kind == 5:  # a piece is lost or repeated
            length = int(rng.integers(1, 20))
            piece = data[at : at + length]
            data[at : at + length] = piece * int(rng.choice([0, 2]))
        elif kind == 6:  # a marker where none was
            data[at:at] = bytes([0xFF, rng.integers(256)])
        elif kind == 7:  # a marker becomes another
            places = [i for i in range(2, len(data) - 1) if data[i] == 0xFF and data[i + 1] not in (0, 0xFF)]
            data[places[rng.integers(len(places))] + 1] = rng.integers(256)
        elif kind == 9:  # the Huffman tables are lost, or the segment of some
            file = take_apart(jpeg)
            lost = rng.integers(len(file.segments)) if rng.integers(2) else None
            kept = (s for i, s in enumerate(file.segments) if s.marker != DHT or lost not in (None, i))
            data[:] = replace(file, segments=tuple(kept)).to_bytes()
            if rng.integers(2):
                data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        elif kind == 10:  # garbage before a marker
            places = [i for i in range(2, len(data) - 1) if data[i] == 0xFF and data[i + 1] not in (0, 0xFF)]
            at = places[rng.integers(len(places))]
            garbage = bytes(int(rng.integers(1, 20))) if rng.integers(2) else rng.bytes(int(rng.integers(1, 20)))
            data[at:at] = garbage
        else:  # a quantisation value, or a whole table, becomes large
            places = jpeg.index(b"\xff\xdb") + 5
            length = int(rng.choice([1, 64]))
            data[places : places + length] = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
        return bytes(data)

    files = [mutate(originals[i % len(originals)]) for i in range(count)]
    files += [rng.bytes(int(n)) for n in rng.integers(0, 200, 50)]
    files += [b"\xff\xd8\xff" + rng.bytes(int(n)) for n in rng.integers(0, 200, 50)]
    return files


@pytest.mark.parametrize("count", [1700, pytest.param(6000, marks=SLOW)])
def test_damaged_files_end_in_opencv_pixels_or_a_status(csim_executable, tmp_path, count):
    """These and 100 more files under the address and UB sanitizers. The bound on steps is one of time: the bench kills
    itself if a file takes 20 s (the slowest takes milliseconds). A stream that is read while empty, which
    would hang the hardware, ends it too."""
    files = mutants(count)
    corpus = tmp_path / "corpus"
    corpus.write_bytes(b"".join(len(file).to_bytes(4, "little") + file for file in files))
    done = subprocess.run([csim_executable("decode"), corpus], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results = [tuple(int(field) for field in line.split()) for line in done.stdout.splitlines()]
    assert len(results) == len(files)

    seen = Counter(status for status, *_ in results)
    assert set(seen) <= set(range(15))
    assert seen[STATUS["OK"]] > count // 6 and len(seen) >= 12, seen  # the mutations reach what they are meant to
    for file, (status, width, height, crc, _) in zip(files, results, strict=True):
        if status == STATUS["OK"]:
            expected = golden(file)
            assert expected is not None and expected.shape == (height, width, 3)
            assert zlib.crc32(expected.tobytes()) == crc


def filled_mutants(count: int) -> list[bytes]:
    """Files with many 0xFF of data, each with fill bytes before one 0xFF of the scan: of data, or of a marker."""
    rng = np.random.default_rng(19)
    files = []
    for number in range(count):
        image = picture(rng, int(rng.integers(16, 90)), int(rng.integers(16, 90)), 1 if number % 6 == 5 else 3)
        jpeg = encode(image, int(rng.integers(90, 101)), list(SAMPLINGS)[number % 5], restart=int(rng.choice([0, 2])))
        file = take_apart(jpeg)
        places = [found.start() for found in re.finditer(b"\xff", file.scan)]
        for at in rng.choice(places, min(len(places), 40), replace=False):
            scan = file.scan[:at] + b"\xff" * int(rng.integers(1, 4)) + file.scan[at:]
            files.append(replace(file, scan=scan).to_bytes())
    return files


@pytest.mark.parametrize("count", [3, pytest.param(30, marks=SLOW)])
def test_fill_bytes_are_taken_before_markers_and_nowhere_else(decode, count):
    """libjpeg-turbo takes FF FF 00 for a byte of data or for none, as its two decoders of a scan see it."""
    files = filled_mutants(count)
    seen = Counter()
    for file in files:
        status, image = decode(file)
        before_zero = re.search(rb"\xff\xff\0", take_apart(file).scan) is not None
        assert status == STATUS["CORRUPT_HUFFMAN" if before_zero else "OK"]
        if status == STATUS["OK"]:
            np.testing.assert_array_equal(image, golden(file))
        seen[status] += 1
    assert len(seen) == 2 and min(seen.values()) > 5 * count // 3, seen


def longest_dc_symbols(seed: int) -> bytes:
    """A gray file of blocks without AC, whose DC differences are 0, with a code of 1 to 9 bits, or of 11 bits behind a
    code of 16: 27 bits, as many as a symbol can have. The scan begins at any byte of a word."""
    rng = np.random.default_rng(seed)
    blocks, short, end = 400, int(rng.integers(1, 10)), int(rng.integers(1, 17))
    dc = bytes([0x00, *(int(length in (short, 16)) for length in range(1, 17)), 0, 11])
    ac = bytes([0x10, *(int(length == end) for length in range(1, 17)), 0])
    file = take_apart(encode(np.zeros((8, 8 * blocks), np.uint8)))
    long = f"{1 << (16 - short):016b}"  # the first code of 16 bits behind a short one of zeros
    bits, up = "", True
    for big in rng.integers(0, 3, blocks):
        if big:
            size = int(rng.integers(1024, 1040))
            bits += long + f"{size if up else 2047 - size:011b}"
            up = not up
        else:
            bits += "0" * short
        bits += "0" * end
    bits += "1" * (-len(bits) % 8)
    scan = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    tables = (Segment(COM, bytes(int(rng.integers(0, 16)))), Segment(DHT, dc), Segment(DHT, ac))
    quant = [(number, [1] * 64) for number, _ in quant_tables(file.payloads(DQT)[0])]
    file = file.edit(DQT, lambda _: b"".join(bytes([number, *values]) for number, values in quant))
    return replace(file.without(DHT).with_first(*tables), scan=scan).to_bytes()


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 40), marks=SLOW)], ids=["16 seeds", "24 seeds"])
def test_a_symbol_waits_for_all_its_bits_however_the_file_comes(seeds):
    """Every number of bits that can be left when the input pauses: 26 of 27 are not enough."""
    for seed in seeds:
        file = longest_dc_symbols(seed)
        expected = golden(file)
        for status, _, _, rgb, *_ in (csim_decode(file, expected.size), rtl_decode(file, 97, 0, seed, expected.size)):
            assert status == STATUS["OK"]
            np.testing.assert_array_equal(rgb.reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(200, 20, id="200"),
        *(pytest.param(2000, n, marks=SLOW, id=f"corpus {n}") for n in range(100, 150)),
    ],
)
def test_rtl_and_cpp_agree_on_every_damaged_file_within_a_bound_of_cycles(count, seed):
    for number, file in enumerate(mutants(count, seed)):
        *expected, pixels = csim_decode(file, capacity=1 << 16)
        stalls = ((0, 0), *STALLS)[number % (len(STALLS) + 1)]
        *found, rgb, _ = rtl_decode(file, *stalls, seed=number, capacity=1 << 16)
        assert found == expected and np.array_equal(rgb, pixels), f"mutant {number}, {stalls} % stalls"
