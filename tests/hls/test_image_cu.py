"""image_cu x {csim, rtlsim}: whole files through the compute unit against OpenCV and numpy, and what it does to
memory.

rtlsim is the Verilated RTL behind hw_emu's AXI memory, with 120 clocks of latency, and again with random stalls on
every channel. Its runs share one model, so that each begins in the state that another left."""

import random
from dataclasses import replace
from functools import partial

import cu_rtlsim
import cv2
import numpy as np
import pytest
import test_decode as jpegs
import units
from test_image_cu_sanitized import corpus

from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.reference.image import preprocess, resized_size
from headrace.host.dpu.specs import IMAGE_FORMATS, ImageSpec, ImageStage
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelFailed, KernelModel, MemoryModel

PHOTOS = demo_images()
STALLED = MemoryModel(stall=0.3, seed=7)
CUS = {
    "csim": units.image_cu,
    "rtlsim": cu_rtlsim.image_cu,
    "stalled": partial(cu_rtlsim.image_cu, behind=STALLED),
}
SAMPLINGS = {
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "gray": None,
}


SLOW = pytest.mark.slow


@pytest.fixture(params=list(CUS))
def cu(request):
    return CUS[request.param]


def jpeg(width: int, height: int, quality: int = 90) -> bytes:
    pixels = cv2.GaussianBlur(np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8), (3, 3), 0)
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


# For what a photo would show no better: tensors of several bursts, from a file that takes thousands of clocks.
SMALL = ImageSpec(resize_short=64, crop_width=60, crop_height=50)
SMALL_SETTINGS = {"resize_short": 64, "crop": (60, 50), "tables": SMALL.tables()}
SMALL_JPEG = jpeg(150, 110)


def check(cu, data: bytes, spec: ImageSpec, stage: ImageStage, memory: int = 4 << 20, **more):
    expected = preprocess(data, spec, stage)
    done = cu(
        data,
        stage=stage,
        format=IMAGE_FORMATS.index(spec.dtype),
        resize_short=spec.resize_short,
        crop=(spec.crop_width, spec.crop_height),
        tables=spec.tables(),
        memory=memory,
        **more,
    )
    assert done.status == Status.OK and done.bytes == expected.nbytes
    height, width = expected.shape[1:] if stage == ImageStage.NORMALIZE else expected.shape[:2]
    assert done.out_size == (width, height)
    assert np.array_equal(done.memory[: expected.nbytes], expected.reshape(-1).view(np.uint8))
    # The RTL writes just the output, the C++ whole words.
    written = expected.nbytes if isinstance(done, cu_rtlsim.RtlResult) else -(-expected.nbytes // 16) * 16
    assert (done.memory[written:] == 0xA5).all(), "bytes beyond the output were written"
    return done


@pytest.mark.quick(csim=4, rtlsim=1, stalled=1)
@pytest.mark.parametrize(
    ("cu", "photo"),
    [
        pytest.param(name, photo, id=f"{name}-{photo.name}", marks=SLOW if name == "stalled" and i % 4 else ())
        for name in CUS
        for i, photo in enumerate(PHOTOS)
    ],
    indirect=["cu"],
)
def test_every_photo_becomes_opencvs_tensor(cu, photo):
    check(cu, photo.jpeg, ImageSpec(), ImageStage.NORMALIZE)


@pytest.mark.parametrize("stage", list(ImageStage))
def test_every_stage_can_be_the_last(cu, stage):
    check(cu, SMALL_JPEG, SMALL, stage)


@SLOW
@pytest.mark.parametrize("stage", list(ImageStage))
def test_every_stage_of_a_photo_can_be_the_last(cu, stage):
    check(cu, PHOTOS[0].jpeg, ImageSpec(), stage)


@pytest.mark.quick(30)
@pytest.mark.parametrize("dtype", IMAGE_FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (3, 1), (5, 3), (7, 7), (13, 9), (16, 16), (33, 17), (224, 224)])
def test_planes_of_any_size_are_packed_without_gaps(cu, dtype, size):
    spec = ImageSpec(resize_short=256, crop_width=size[0], crop_height=size[1], dtype=dtype)
    check(cu, jpeg(64, 48), spec, ImageStage.NORMALIZE)


@pytest.mark.quick(csim=6, rtlsim=6, stalled=2)
@pytest.mark.parametrize(
    "size", [(1, 1), (2, 3), (5, 1), (17, 31), (130, 7), (4096, 5), pytest.param((8192, 5), marks=SLOW)]
)
def test_small_and_odd_images(cu, size):
    for stage in (ImageStage.DECODE, ImageStage.RESIZE):
        check(cu, jpeg(*size), ImageSpec(resize_short=9), stage)


@pytest.mark.quick(csim=3, rtlsim=2, stalled=0)
@pytest.mark.parametrize(
    ("size", "stage", "short", "crop"),
    [
        ((2, 65500), ImageStage.DECODE, 1, (1, 1)),
        ((3001, 9), ImageStage.DECODE, 1, (1, 1)),
        ((8192, 1), ImageStage.RESIZE, 7, (1, 1)),
        ((1, 4096), ImageStage.CROP, 15, (7, 43691)),
        ((8192, 1), ImageStage.NORMALIZE, 7, (43691, 3)),
        ((1, 4096), ImageStage.NORMALIZE, 13, (5, 43691)),
    ],
)
def test_the_widest_and_highest_images(cu, size, stage, short, crop):
    spec = ImageSpec(resize_short=short, crop_width=crop[0], crop_height=crop[1])
    check(cu, jpeg(*size), spec, stage)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("width", "sampling", "short", "crop"),
    [
        (8192, "4:2:0", 20, (15, 8)),
        (8192, "4:4:0", 9, (40, 9)),
        (8192, "4:4:4", 20, (8, 20)),
        (8191, "4:2:2", 9, (40, 5)),
        (8191, "4:1:1", 20, (33, 8)),
        (5001, "4:2:0", 33, (9, 20)),
        (4097, "gray", 20, (9, 20)),
        (4097, "4:4:0", 33, (1, 1)),
    ],
)
def test_a_crop_at_either_end_of_the_widest_images(cu, sampling, width, short, crop):
    """In mid-image the rows above it and below it are left out, too."""
    pixels = jpegs.picture(np.random.default_rng(width), width, 20, 1 if sampling == "gray" else 3)
    data = jpegs.encode(pixels, 30, "4:2:0" if sampling == "gray" else sampling)
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    whole = cv2.resize(image, resized_size(width, 20, short), interpolation=cv2.INTER_LINEAR_EXACT)
    for x in (0, whole.shape[1] - crop[0]):
        y = (short - crop[1]) // 2
        done = cu(data, stage=ImageStage.CROP, resize_short=short, crop=crop, at=(x, y))
        assert done.status == Status.OK and done.out_size == crop
        expected = whole[y : y + crop[1], x : x + crop[0]].ravel()
        assert np.array_equal(done.memory[: expected.size], expected)


def test_a_buffer_that_is_too_small_is_left_alone_and_the_size_is_told(cu):
    needed = 3 * 60 * 50 * 4
    done = cu(SMALL_JPEG, capacity=needed - 1, **SMALL_SETTINGS)
    assert done.status == Status.BUFFER_TOO_SMALL
    assert (done.bytes, done.out_size) == (needed, (60, 50))
    assert (done.memory == 0xA5).all()
    assert cu(SMALL_JPEG, capacity=needed, **SMALL_SETTINGS).status == Status.OK


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"stage": 4}, Status.BAD_ARGUMENT),
        ({"format": 3}, Status.BAD_ARGUMENT),
        ({"resize_short": 0}, Status.RESIZE_LIMIT),
        ({"resize_short": 65536 + 256}, Status.RESIZE_LIMIT),
        ({"resize_short": 60000}, Status.RESIZE_LIMIT),
        ({"crop": (300, 300)}, Status.CROP_OUTSIDE),
        ({"crop": (0, 1)}, Status.CROP_OUTSIDE),
        ({"at": (400, 0)}, Status.CROP_OUTSIDE),
    ],
)
def test_impossible_settings_end_in_their_status_and_write_nothing(cu, settings, status):
    done = cu(SMALL_JPEG, **settings)
    assert done.status == status and done.out_size == (0, 0) and (done.memory == 0xA5).all()


@pytest.mark.parametrize(
    ("data", "status"), [(b"", 1), (b"\xff", 1), (b"not a jpeg at all", 1), (PHOTOS[0].jpeg[:3000], 2)]
)
@pytest.mark.parametrize("stage", list(ImageStage))
def test_bad_files_end_in_decodes_status_at_every_stage(cu, data, status, stage):
    assert cu(data, stage=stage).status == status


def test_a_run_leaves_nothing_behind_for_the_next(cu):
    first = cu(SMALL_JPEG, stage=1, **SMALL_SETTINGS)
    assert cu(SMALL_JPEG[: len(SMALL_JPEG) // 2], stage=1, **SMALL_SETTINGS).status == Status.TRUNCATED
    assert np.array_equal(cu(SMALL_JPEG, stage=1, **SMALL_SETTINGS).memory, first.memory)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=SLOW, id=f"corpus {seed}") for seed in range(2, 6))])
def test_cpp_and_rtl_agree_on_damaged_files_and_odd_settings(seed):
    records = corpus(seed, 80 if seed == 1 else 600)
    seen = set()
    for number, (data, (capacity, stage, form, short, crop, offset)) in enumerate(records):
        settings = {
            "stage": stage,
            "format": form,
            "resize_short": short,
            "crop": (crop, crop),
            "at": (offset, offset),
            "capacity": capacity,
            "memory": -(-max(capacity, 16) // 16) * 16,
        }
        expected = units.image_cu(data, **settings)
        behind = MemoryModel(stall=0.3, seed=number) if number % 2 else None
        done = cu_rtlsim.image_cu(data, **settings, behind=behind, max_cycles=2_000_000)
        told = (expected.status, expected.out_size, expected.src_size, expected.bytes)
        assert (done.status, done.out_size, done.src_size, done.bytes) == told, f"record {number}"
        if expected.status == Status.OK:
            size = done.bytes
            assert np.array_equal(done.memory[:size], expected.memory[:size]), f"record {number}"
            assert (done.memory[size:] == 0xA5).all(), f"record {number}"
        seen.add(expected.status)
    assert {Status.OK, Status.BUFFER_TOO_SMALL, Status.CROP_OUTSIDE, Status.BAD_ARGUMENT} <= seen


def scaled(photo: bytes, width: int, height: int) -> bytes:
    image = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)
    return cv2.imencode(".jpg", cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA))[1].tobytes()


@pytest.mark.parametrize(
    ("photo", "settings"),
    [
        pytest.param(scaled(PHOTOS[0].jpeg, 200, 133), SMALL_SETTINGS, id=f"{PHOTOS[0].name}, smaller"),
        *(pytest.param(photo.jpeg, {}, marks=SLOW, id=photo.name) for photo in PHOTOS),
    ],
)
def test_cpp_and_rtl_agree_on_damaged_photos(photo, settings):
    rng = random.Random(len(photo))
    for _ in range(6):
        data = bytearray(photo)
        for _ in range(rng.choice([1, 1, 2, 5])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        expected = units.image_cu(bytes(data), **settings)
        done = cu_rtlsim.image_cu(bytes(data), **settings, max_cycles=20_000_000)
        assert (done.status, done.out_size, done.src_size) == (expected.status, expected.out_size, expected.src_size)
        if expected.status == Status.OK:
            assert np.array_equal(done.memory, expected.memory)


# ---- rtlsim only ----


def photo_500x375(photo: bytes, sampling: str, quality: int) -> bytes:
    """One of the demo's originals, cut to 500x375."""
    image = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)
    scale = max(500 / image.shape[1], 375 / image.shape[0])
    image = cv2.resize(image, None, fx=scale + 0.01, fy=scale + 0.01, interpolation=cv2.INTER_AREA)[:375, :500]
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    if SAMPLINGS[sampling] is None:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    else:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling]]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


@pytest.mark.quick(1)
@pytest.mark.parametrize("quality", [75, 90])
@pytest.mark.parametrize("sampling", list(SAMPLINGS))
@pytest.mark.parametrize("photo", PHOTOS[::3], ids=lambda photo: photo.name.split()[0])
def test_a_request_takes_little_more_than_its_symbols_or_half_its_pixels(photo, sampling, quality):
    data = photo_500x375(photo.jpeg, sampling, quality)
    done = check(cu_rtlsim.image_cu, data, ImageSpec(), ImageStage.NORMALIZE)
    cycles, symbols = done.counters["cycles"], done.counters["symbols"]
    assert cycles <= 1.10 * max(symbols, 500 * 375 / 2) + 3000, done.counters
    assert abs(done.run.cycles - cycles) < 20
    assert 0 < done.counters["first_output"] < done.counters["last_output"] < cycles
    assert sum(value for name, value in done.counters.items() if name.startswith(("wait_data", "header"))) < cycles


def test_the_same_request_takes_the_same_clocks_again_and_after_reset():
    models = [KernelModel(cu_rtlsim.library("image_cu"), seed) for seed in (1, 2)]
    cycles = [
        [cu_rtlsim.image_cu(SMALL_JPEG, model=model, **SMALL_SETTINGS).run.cycles for _ in range(3)] for model in models
    ]
    assert cycles[0] == cycles[1] and len(set(cycles[0][1:])) == 1
    assert abs(cycles[0][0] - cycles[0][1]) <= 2


@pytest.mark.parametrize("stagger", [0, 16, 0x800, 0xFF0])
def test_buffers_may_begin_anywhere_in_a_page(stagger):
    for stage in (ImageStage.DECODE, ImageStage.NORMALIZE):
        check(cu_rtlsim.image_cu, SMALL_JPEG, replace(SMALL, dtype="float16"), stage, stagger=stagger)


@pytest.mark.parametrize("high", [0x5555_5555_5555_5000, 0xAAAA_AAAA_AAAA_A000])
def test_buffers_may_begin_anywhere_in_64_bits(high):
    check(cu_rtlsim.image_cu, SMALL_JPEG, replace(SMALL, dtype="int8"), ImageStage.NORMALIZE, high=high)


@pytest.mark.parametrize("behind", [MemoryModel(latency=1), MemoryModel(latency=1000), MemoryModel(bandwidth=0.05)])
@pytest.mark.parametrize(
    ("data", "spec"),
    [
        pytest.param(SMALL_JPEG, SMALL, id="small"),
        pytest.param(PHOTOS[3].jpeg, ImageSpec(), marks=SLOW, id="photo"),
    ],
)
def test_slow_memory_costs_time_and_nothing_else(behind, data, spec):
    check(cu_rtlsim.image_cu, data, spec, ImageStage.NORMALIZE, behind=behind)


@pytest.mark.parametrize("name", ["jpeg", "tensor", "tables", "result"])
def test_a_pointer_to_nowhere_ends_in_bus_error_and_the_next_run_is_right(name):
    done = cu_rtlsim.image_cu(SMALL_JPEG, addresses={name: 0xDEAD_0000_0000}, **SMALL_SETTINGS)
    assert done.status == Status.BUS_ERROR
    if name == "tensor":
        assert (done.memory == 0xA5).all()
    check(cu_rtlsim.image_cu, SMALL_JPEG, SMALL, ImageStage.NORMALIZE)


@pytest.mark.parametrize("name", ["jpeg", "tensor", "tables"])
def test_a_pointer_off_its_16_bytes_is_a_bad_argument(name):
    done = cu_rtlsim.image_cu(SMALL_JPEG, addresses={name: cu_rtlsim.BANK + 8}, **SMALL_SETTINGS)
    assert done.status == Status.BAD_ARGUMENT and (done.memory == 0xA5).all()
    check(cu_rtlsim.image_cu, SMALL_JPEG, SMALL, ImageStage.NORMALIZE)


@pytest.mark.parametrize("clocks", [10, 200, 700, 3_000, 10_000, 20_000])
def test_a_reset_in_mid_image_leaves_nothing_behind(clocks):
    with pytest.raises(KernelFailed, match="did not finish within"):
        cu_rtlsim.image_cu(SMALL_JPEG, stage=1, max_cycles=clocks)
    check(cu_rtlsim.image_cu, SMALL_JPEG, SMALL, ImageStage.RESIZE)


@SLOW
@pytest.mark.parametrize("clocks", [10, 200, 700, 5_000, 50_000, 100_000])
def test_a_reset_in_mid_photo_leaves_nothing_behind(clocks):
    with pytest.raises(KernelFailed, match="did not finish within"):
        cu_rtlsim.image_cu(PHOTOS[0].jpeg, stage=1, max_cycles=clocks)
    check(cu_rtlsim.image_cu, PHOTOS[0].jpeg, ImageSpec(), ImageStage.RESIZE)
