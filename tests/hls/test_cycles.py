"""The cycle models of decode and of the whole compute unit against the RTL, and the goals for the clocks of photos.

The fast selection has each sampling, quality, table and header at least once; the slow one crosses photos, samplings
and qualities. Goals and models are about clocks, which do not depend on the machine."""

from functools import cache

import cu_rtlsim
import cv2
import numpy as np
import pytest
import test_decode as jpegs
from scan_script import Scan, photo_image, to_jpeg

from headrace.host.demo.photos import bundled_photos, demo_photos
from headrace.host.dpu.status import Status
from headrace.host.xrt.hw_emu import MemoryModel
from headrace.sim.hardware.dpu import decode_cycles, header_cycles, image_cu_cycles
from headrace.sim.hardware.jpeg import JpegWork, read_jpeg_work

SLOW = pytest.mark.slow
SAMPLINGS = (*jpegs.SAMPLINGS, "gray")
QUALITIES = (30, 75, 90, 95)
PHOTOS = {path.stem: path for path in bundled_photos()}
WIDTH, HEIGHT = 500, 375
# Of the clocks. 2 % is what a model must hold; where a run takes tens of thousands, it holds a
# quarter of that.
PHOTO, SMALL = 0.005, 0.02


@cache
def photo(name: str, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """The middle of a photo, scaled as little as possible."""
    image = cv2.imread(str(PHOTOS[name]), cv2.IMREAD_COLOR)
    scale = max(width / image.shape[1], height / image.shape[0])
    size = max(width, round(image.shape[1] * scale)), max(height, round(image.shape[0] * scale))
    x, y = (size[0] - width) // 2, (size[1] - height) // 2
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)[y : y + height, x : x + width]


def encode(image: np.ndarray, quality: int, sampling: str, **options) -> bytes:
    if sampling == "gray":
        return jpegs.encode(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), quality, "4:2:0", **options)
    return jpegs.encode(image, quality, sampling, **options)


def check_decode(jpeg: bytes, within: float = PHOTO) -> JpegWork:
    work = read_jpeg_work(jpeg)
    status, *_, counters = jpegs.rtl_decode(jpeg)
    assert status == Status.OK
    assert counters.symbols == sum(work.symbols)
    assert counters.header == header_cycles(work) + 2  # two clocks for the first word
    assert counters.cycles == pytest.approx(decode_cycles(work), rel=within)
    return work


def check_cu(
    jpeg: bytes, *, stage: int = 3, format: int = 0, short: int = 256, crop: int = 224, latency: int = 120,
    within: float = PHOTO,
) -> dict[str, int]:  # fmt: skip
    """Buffers begin where pages do, as XRT has them. Returns the counters."""
    done = cu_rtlsim.image_cu(
        jpeg, stage=stage, format=format, resize_short=short, crop=(crop, crop), stagger=0, memory=16 << 20,
        behind=MemoryModel(latency=latency),
    )  # fmt: skip
    assert done.status == Status.OK
    expected = image_cu_cycles(
        read_jpeg_work(jpeg), stage=stage, resize_short=short, crop_width=crop, crop_height=crop,
        element_bytes=4 >> format, latency=latency,
    )  # fmt: skip
    assert done.counters["cycles"] == pytest.approx(expected, rel=within)
    return done.counters


def cases() -> list:
    """Every photo, sampling and quality; each sampling and each quality with different photos is fast."""
    fast = {
        (list(PHOTOS)[(4 * i + j) % len(PHOTOS)], sampling, QUALITIES[(i + j) % 4])
        for i, sampling in enumerate(SAMPLINGS)
        for j in range(2)
    }
    every = [(name, sampling, quality) for name in PHOTOS for sampling in SAMPLINGS for quality in QUALITIES]
    return [pytest.param(*case, marks=() if case in fast else SLOW) for case in every]


@pytest.mark.parametrize(("name", "sampling", "quality"), cases())
def test_clocks_of_photos_follow_the_models(name, sampling, quality):
    jpeg = encode(photo(name), quality, sampling)
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.parametrize("coarseness", [1, 4])
@pytest.mark.parametrize(
    "sampling",
    ["4:1:0", "2x2 1x2 1x2", "2x1 2x1 2x1", "1x2 1x2 1x2", "2x2 2x1 1x1", "4x1 2x1 2x1", "2x2 1x2 1x1", "1x4 1x2 1x1"],
)
def test_clocks_of_mixed_sampling_follow_the_models(sampling, coarseness):
    image = photo_image(photo("china"), sampling, coarseness)
    jpeg = to_jpeg(image, [Scan((0, 1, 2))], progressive=False)
    assert check_decode(jpeg).blocks_per_mcu == sum(h * v for h, v in image.factors)
    check_cu(jpeg)


@pytest.mark.parametrize("jpeg", [pytest.param(p.jpeg, id=p.name, marks=SLOW) for p in demo_photos()])
def test_clocks_of_photos_as_they_are_follow_the_models(jpeg):
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("restart", [1, 4, 100])
def test_clocks_with_restart_markers_follow_the_models(restart, sampling):
    jpeg = encode(photo("china", 240, 180), 90, sampling, restart=restart)
    assert check_decode(jpeg).restart_interval == restart
    check_cu(jpeg)


@pytest.mark.parametrize(("sampling", "quality"), [("4:2:0", 75), ("4:4:4", 95), ("gray", 30)])
def test_clocks_with_optimised_tables_follow_the_models(sampling, quality):
    jpeg = encode(photo("coffee", 240, 180), quality, sampling, optimize=True)
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.parametrize("sizes", [(1,), (500, 33), (65500,), (65531, 65532, 65533)])
def test_clocks_with_segments_to_skip_follow_the_models(sizes):
    """Large segments, such as Exif with a thumbnail, take a clock for 16 bytes."""
    file = jpegs.take_apart(encode(photo("rocket", 240, 180), 75, "4:2:0"))
    plain = header_cycles(read_jpeg_work(file.to_bytes()))
    jpeg = file.with_first(*(jpegs.Segment(jpegs.APP1, bytes(size)) for size in sizes)).to_bytes()
    assert header_cycles(check_decode(jpeg)) - plain <= sum(size / 16 + 16 for size in sizes)
    check_cu(jpeg)


@pytest.mark.parametrize("sampling", ["4:2:0", "gray"])
def test_clocks_without_huffman_tables_and_with_garbage_follow_the_models(sampling):
    file = jpegs.take_apart(encode(photo("rocket", 240, 180), 75, sampling))
    bare = file.without(jpegs.DHT).to_bytes()
    assert len(check_decode(bare).standard_tables) == (2 if sampling == "gray" else 4)
    check_cu(bare)
    plain = file.to_bytes()
    at = plain.index(b"\xff\xdb")
    assert check_decode(plain[:at] + bytes(range(200)) + plain[at:]).garbage[1] == 200


@pytest.mark.parametrize("size", [(32, 32), (47, 33), (64, 48), (16, 200), (200, 16), (1000, 40)])
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4"])
def test_clocks_of_small_images_follow_the_models(sampling, size):
    jpeg = encode(photo("flower", *size), 90, sampling)
    check_decode(jpeg, SMALL)
    check_cu(jpeg, stage=0, within=SMALL)
    check_cu(jpeg, stage=3, short=16, crop=16, within=SMALL)


@pytest.mark.parametrize(
    ("size", "short", "crop"), [((200, 64), 64, 16), ((400, 64), 64, 16), ((400, 64), 32, 16), ((800, 64), 64, 64)]
)
def test_clocks_of_narrow_crops_follow_the_models(size, short, crop):
    """What is left of the crop takes its clocks in resize, while its queue of taps lasts beside the rows before."""
    check_cu(encode(photo("flower", *size), 90, "4:4:4"), short=short, crop=crop)


@pytest.mark.parametrize("size", [(4104, 60), (8192, 60)])
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4", "gray"])
def test_clocks_of_wide_images_follow_the_models(sampling, size):
    """Few MCU rows fit their ring, and two source rows that of resize."""
    jpeg = encode(photo("flower", *size), 90, sampling)
    check_decode(jpeg)
    check_cu(jpeg, short=60, crop=60)
    check_cu(jpeg, short=16, crop=16)


@pytest.mark.parametrize("quality", [95, 100])
def test_clocks_of_noise_follow_the_models(quality):
    jpeg = encode(np.random.default_rng(1).integers(0, 256, (120, 160, 3), np.uint8), quality, "4:4:4")
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.parametrize("half", ["left", "right", "upper", "lower"])
def test_clocks_of_half_a_photo_beside_a_plane_follow_the_models(half):
    """Blocks of two symbols beside blocks of many: the transform's buffer and the ring of MCU rows are at work."""
    image = photo("motorcycle_left", 320, 240).copy()
    region = {
        "left": np.s_[:, :160], "right": np.s_[:, 160:], "upper": np.s_[:120], "lower": np.s_[120:],
    }[half]  # fmt: skip
    image[region] = 90
    jpeg = encode(image, 95, "4:4:4")
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.parametrize(("stage", "format"), [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2)])
def test_clocks_of_every_stage_and_format_follow_the_model(stage, format):
    check_cu(encode(photo("chelsea", 240, 180), 90, "4:2:0"), stage=stage, format=format)


@pytest.mark.parametrize(("short", "crop"), [(40, 40), (180, 180), (181, 100), (300, 300), (400, 224)])
def test_clocks_of_any_scale_follow_the_model(short, crop):
    """Going up, the resized rows take longer than those of the photo, and the store unit's words even longer."""
    check_cu(encode(photo("astronaut", 240, 180), 90, "4:2:0"), short=short, crop=crop)


@pytest.mark.parametrize("latency", [1, 20, 300])
def test_clocks_with_any_memory_latency_follow_the_model(latency):
    check_cu(encode(photo("astronaut", 240, 180), 90, "4:2:0"), latency=latency)


# ---- Goals: whole CU, memory that answers after 120 clocks, photos at 500x375 ----

PER_PIXEL = {("4:2:0", 90): 0.75, ("4:2:0", 75): 0.6, ("4:4:4", 90): 1.2}  # clocks, at most


@pytest.mark.parametrize(
    ("name", "sampling", "quality"),
    [
        pytest.param(name, sampling, quality, marks=() if name in ("motorcycle_left", "china") else SLOW)
        for name in PHOTOS
        for sampling, quality in (*PER_PIXEL, ("4:2:2", 90), ("gray", 95))
    ],
)
def test_a_photo_takes_little_more_than_its_symbols_or_half_its_pixels(name, sampling, quality):
    counters = check_cu(encode(photo(name), quality, sampling))
    pixels = WIDTH * HEIGHT
    assert counters["cycles"] <= 1.10 * max(counters["symbols"], pixels / 2) + 3000
    assert counters["cycles"] <= PER_PIXEL.get((sampling, quality), 1.2) * pixels
    # What is behind decode never holds it back. The tensor's first word may wait a clock for its turn at the port.
    assert counters["wait_output"] == 0 and counters["wait_write"] <= 1
