"""The cycle models of decode and of the whole compute unit against the RTL, and the goals for the clocks of photos.

The fast selection has each sampling, quality, table and header at least once; the slow one crosses photos, samplings
and qualities. Goals and models are about clocks, which do not depend on the machine."""

from dataclasses import replace
from functools import cache

import cu_rtlsim
import cv2
import numpy as np
import pytest
import test_decode as jpegs
import test_progressive as scans
from scan_script import (
    MIXED,
    Scan,
    beyond_short_codes,
    libjpeg_script,
    photo_image,
    random_script,
    to_jpeg,
    with_a_strange_symbol,
    with_ac_tables,
    with_all,
)
from test_image_cu import PHOTOS as DEMO_PHOTOS

from headrace.batching import UsageError
from headrace.bitstreams.configurations import FULL, configuration
from headrace.host.demo.inputs.images import bundled_images
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import MemoryModel
from headrace.sim.hardware.dpu.headers import header_cycles
from headrace.sim.hardware.dpu.image import BEAT, BLOCK, PIXELS, WRITE_BYTES, decode_cycles, image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import SOF0, SOF2, JpegWork, read_jpeg_work
from headrace.sim.hardware.dpu.jpeg_scans import STEP_SYMBOL

SLOW = pytest.mark.slow
SAMPLINGS = (*jpegs.SAMPLINGS, "gray")
QUALITIES = (30, 75, 90, 95)
PHOTOS = {path.stem: path for path in bundled_images()}
WIDTH, HEIGHT = 500, 375
# Of the clocks. 2 % is what a model must hold; where a run takes tens of thousands, it holds a
# quarter of that.
PHOTO, SMALL = 0.005, 0.02
# Of several scans decode's model follows each clock, up to the end of the last ones.
EXACT, CLOCKS = 0.0001, 4
FIRST_BYTES = 3  # clocks until the file's first bytes can be read
WORKSPACE, LATENCY, NEVER = 16 << 20, 20, 1 << 40  # the workspace of decode alone


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


def check_decode(jpeg: bytes, within: float = PHOTO, clocks: int = CLOCKS) -> JpegWork:
    """`clocks`: how many, in files of several scans."""
    work = read_jpeg_work(jpeg)
    # This memory takes as many bursts as come. With a latency of so few clocks the model's 32 are as good.
    memory = jpegs.RtlMemory(WORKSPACE, LATENCY, 0, False, NEVER)
    status, *_, counters = jpegs.rtl_decode(jpeg, memory=memory if work.scans else jpegs.NO_WORKSPACE)
    assert status == Status.OK
    assert counters.symbols == symbol_count(work)
    assert counters.header == header_cycles(work) + FIRST_BYTES
    accuracy = {"rel": 0, "abs": clocks} if work.scans else {"rel": within}
    assert counters.cycles == pytest.approx(decode_cycles(work, LATENCY), **accuracy)
    return work


def symbol_count(work: JpegWork) -> int:
    """Huffman symbols in the file."""
    if not work.scans:
        return sum(work.symbols)
    return sum(step >= STEP_SYMBOL for scan in work.scans for part in scan.intervals for step in part.steps)


def check_cu(
    jpeg: bytes,
    *,
    stage: int = 3,
    format: int = 0,
    short: int = 256,
    crop: int = 224,
    latency: int = 120,
    within: float = PHOTO,
) -> dict[str, int]:
    """Buffers begin where pages do, as XRT has them. Returns the counters."""
    done = cu_rtlsim.image_cu(
        jpeg,
        stage=stage,
        format=format,
        resize_short=short,
        crop=(crop, crop),
        stagger=0,
        memory=16 << 20,
        behind=MemoryModel(latency=latency),
        workspace_bytes=WORKSPACE,
    )
    assert done.status == Status.OK
    expected = image_cu_cycles(
        read_jpeg_work(jpeg),
        stage=stage,
        resize_short=short,
        crop_width=crop,
        crop_height=crop,
        element_bytes=4 >> format,
        latency=latency,
    )
    assert done.counters["cycles"] == pytest.approx(expected, rel=within)
    return done.counters


def test_the_model_has_the_widths_of_the_build():
    constants = configuration(FULL).constants
    assert (constants["pixels"], constants["write_bytes"]) == (PIXELS, WRITE_BYTES)


SMALL_OUTPUT = {"short": 64, "crop": 56}  # where only the file matters: a tensor of 224x224 takes as long as its file


def cases() -> list:
    """Every photo, sampling and quality; each sampling and each quality with different photos is fast."""
    fast = {
        (list(PHOTOS)[(4 * i + j) % len(PHOTOS)], sampling, QUALITIES[(i + j) % 4])
        for i, sampling in enumerate(SAMPLINGS)
        for j in range(2)
    }
    every = [(name, sampling, quality) for name in PHOTOS for sampling in SAMPLINGS for quality in QUALITIES]
    return [pytest.param(*case, marks=() if case in fast else SLOW) for case in every]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("name", "sampling", "quality"), cases())
def test_clocks_of_photos_follow_the_models(name, sampling, quality):
    jpeg = encode(photo(name), quality, sampling)
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.quick(2)
@pytest.mark.parametrize("size", [(240, 180), pytest.param((WIDTH, HEIGHT), marks=SLOW)])
@pytest.mark.parametrize("coarseness", [1, 4])
@pytest.mark.parametrize(
    "sampling",
    ["4:1:0", "2x2 1x2 1x2", "2x1 2x1 2x1", "1x2 1x2 1x2", "2x2 2x1 1x1", "4x1 2x1 2x1", "2x2 1x2 1x1", "1x4 1x2 1x1"],
)
def test_clocks_of_mixed_sampling_follow_the_models(sampling, coarseness, size):
    image = photo_image(photo("china", *size), sampling, coarseness)
    jpeg = to_jpeg(image, [Scan((0, 1, 2))], progressive=False)
    assert check_decode(jpeg).blocks_per_mcu == sum(h * v for h, v in image.factors)
    check_cu(jpeg)


@pytest.mark.parametrize("jpeg", [pytest.param(p.jpeg, id=p.name, marks=SLOW) for p in DEMO_PHOTOS])
def test_clocks_of_photos_as_they_are_follow_the_models(jpeg):
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.quick(2)
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
    check_cu(jpeg, **SMALL_OUTPUT)


@pytest.mark.quick(12)
@pytest.mark.parametrize("odd", [False, True], ids=["even", "odd"])
@pytest.mark.parametrize("size", [*range(31, 54), 63, 64, 65])
def test_clocks_of_headers_follow_the_model_wherever_a_segment_to_skip_begins_and_ends(size, odd):
    file = jpegs.take_apart(encode(photo("rocket", 16, 16), 75, "4:2:0"))
    first = [jpegs.Segment(jpegs.APP1, bytes(3))] * odd
    jpeg = file.with_first(*first, jpegs.Segment(jpegs.APP1, bytes(size))).to_bytes()
    *_, counters = jpegs.rtl_decode(jpeg)
    assert counters.header == header_cycles(read_jpeg_work(jpeg)) + FIRST_BYTES


@pytest.mark.parametrize("sizes", [(1,), (500, 33), (65500,), (65531, 65532, 65533)])
def test_clocks_with_segments_to_skip_follow_the_models(sizes):
    """Large segments, such as Exif with a thumbnail, take a clock for 16 bytes, and for each of the last 31."""
    file = jpegs.take_apart(encode(photo("rocket", 120, 90), 75, "4:2:0"))
    plain = header_cycles(read_jpeg_work(file.to_bytes()))
    jpeg = file.with_first(*(jpegs.Segment(jpegs.APP1, bytes(size)) for size in sizes)).to_bytes()
    assert header_cycles(check_decode(jpeg)) - plain <= sum(size / 16 + 32 for size in sizes)
    check_cu(jpeg, **SMALL_OUTPUT)


@pytest.mark.parametrize("sampling", ["4:2:0", "gray"])
def test_clocks_without_huffman_tables_and_with_garbage_follow_the_models(sampling):
    file = jpegs.take_apart(encode(photo("rocket", 240, 180), 75, sampling))
    bare = file.without(jpegs.DHT).to_bytes()
    assert len(check_decode(bare).headers.standard_tables) == (2 if sampling == "gray" else 4)
    check_cu(bare)
    plain = file.to_bytes()
    at = plain.index(b"\xff\xdb")
    assert check_decode(plain[:at] + bytes(range(200)) + plain[at:]).headers.garbage[1] == 200


@pytest.mark.quick(8)
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


@pytest.mark.quick(3)
@pytest.mark.parametrize("size", [(4104, 60), (8192, 60)])
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4", "gray"])
@pytest.mark.slow
def test_clocks_of_wide_images_follow_the_models(sampling, size):
    """Few MCU rows fit their ring, and two source rows that of resize."""
    jpeg = encode(photo("flower", *size), 90, sampling)
    check_decode(jpeg)
    check_cu(jpeg, short=60, crop=60)
    check_cu(jpeg, short=16, crop=16)


@pytest.mark.parametrize("quality", [pytest.param(95, marks=SLOW), 100])
def test_clocks_of_noise_follow_the_models(quality):
    jpeg = encode(np.random.default_rng(1).integers(0, 256, (120, 160, 3), np.uint8), quality, "4:4:4")
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.quick(1)
@pytest.mark.parametrize("half", ["left", "right", "upper", "lower"])
def test_clocks_of_half_a_photo_beside_a_plane_follow_the_models(half):
    """Blocks of two symbols beside blocks of many: the transform's buffer and the ring of MCU rows are at work."""
    image = photo("motorcycle_left", 320, 240).copy()
    region = {"left": np.s_[:, :160], "right": np.s_[:, 160:], "upper": np.s_[:120], "lower": np.s_[120:]}[half]
    image[region] = 90
    jpeg = encode(image, 95, "4:4:4")
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.quick(3)
@pytest.mark.parametrize(("stage", "format"), [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2)])
def test_clocks_of_every_stage_and_format_follow_the_model(stage, format):
    check_cu(encode(photo("chelsea", 240, 180), 90, "4:2:0"), stage=stage, format=format)


@pytest.mark.quick(3)
@pytest.mark.parametrize(("short", "crop"), [(40, 40), (180, 180), (181, 100), (300, 300), (400, 224)])
def test_clocks_of_any_scale_follow_the_model(short, crop):
    """Going up, the resized rows take longer than those of the photo, and the store unit's words even longer."""
    check_cu(encode(photo("astronaut", 240, 180), 90, "4:2:0"), short=short, crop=crop)


@pytest.mark.parametrize("latency", [1, 20, 300])
def test_clocks_with_any_memory_latency_follow_the_model(latency):
    check_cu(encode(photo("astronaut", 240, 180), 90, "4:2:0"), latency=latency)


# ---- Files of several scans ----


def progressive_cases() -> list:
    """As `cases`, of progressive files."""
    return [(name, sampling, quality) for name in PHOTOS for sampling in SAMPLINGS for quality in QUALITIES]


def encode_progressive(image: np.ndarray, quality: int, sampling: str, restart: int = 0) -> bytes:
    if sampling == "gray":
        return scans.encode(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), quality, "4:2:0", restart)
    return scans.encode(image, quality, sampling, restart)


@SLOW
@pytest.mark.parametrize(("name", "sampling", "quality"), progressive_cases())
def test_clocks_of_progressive_photos_follow_the_models(name, sampling, quality):
    check_progressive_photo(photo(name), sampling, quality, EXACT)


def test_clocks_of_a_small_progressive_photo_follow_the_models():
    """Within as many clocks as those of 500x375."""
    check_progressive_photo(photo("china", 160, 120), "4:4:4", 75, 10 * EXACT)


def check_progressive_photo(image: np.ndarray, sampling: str, quality: int, within: float) -> None:
    jpeg = encode_progressive(image, quality, sampling)
    assert len(check_decode(jpeg).scans) == (6 if sampling == "gray" else 10)
    check_cu(jpeg, within=within)


BANDS = [Scan((0, 1, 2), 0, 0), *(Scan((c,), *band) for c in range(3) for band in ((1, 2), (3, 20), (21, 63)))]
BITS = [
    Scan((0, 1, 2), 0, 0, 0, 2),
    *(Scan((c,), 1, 63, 0, 2) for c in range(3)),
    *(
        Scan(group, *band, high, high - 1)
        for high in (2, 1)
        for group, band in (((0, 1, 2), (0, 0)), ((0,), (1, 63)), ((1,), (1, 63)), ((2,), (1, 63)))
    ),
]
SCRIPTS = {
    "bands of coefficients": BANDS,
    "bits of coefficients": BITS,
    "libjpeg's, no long runs": with_all(libjpeg_script(3), end_of_band_runs=1),
    "libjpeg's, runs of three": with_all(libjpeg_script(3), end_of_band_runs=3),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("coarseness", [1, 8])
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.slow
def test_clocks_of_scripts_of_scans_follow_the_models(script, sampling, coarseness):
    jpeg = to_jpeg(photo_image(photo("coffee", 240, 180), sampling, coarseness), script)
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.parametrize("change", [beyond_short_codes, with_a_strange_symbol])
def test_clocks_of_scans_without_short_codes_follow_the_models(change):
    """Scans of one coefficient have few symbols, which leaves short codes for a strange one."""
    bands = [(k, k) for k in range(1, 5)] + [(5, 63)]
    script = [Scan((0, 1, 2), 0, 0), *(Scan((c,), *band) for c in range(3) for band in bands)]
    jpeg = to_jpeg(photo_image(photo("coffee", 120, 90), "4:2:0", 4), script)
    changed = with_ac_tables(jpeg, change)
    assert decode_cycles(check_decode(changed), LATENCY) > decode_cycles(read_jpeg_work(jpeg), LATENCY)
    check_cu(changed)


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=SLOW, id=f"{n}") for n in range(6, 60))])
@pytest.mark.slow
def test_clocks_of_any_progression_follow_the_models(seed):
    rng = np.random.default_rng(seed)
    image = photo_image(photo(list(PHOTOS)[seed % len(PHOTOS)], 240, 180), SAMPLINGS[seed % 5], (1, 4, 8)[seed % 3])
    jpeg = to_jpeg(image, random_script(rng, 3, 40))
    check_decode(jpeg)
    check_cu(jpeg)


@pytest.mark.quick(2)
@pytest.mark.parametrize("size", [(115, 85), pytest.param((230, 170), marks=SLOW)])
@pytest.mark.parametrize("sampling", MIXED)
def test_clocks_of_several_scans_with_any_sampling_follow_the_models(sampling, size):
    jpeg = to_jpeg(photo_image(photo("coffee", *size), sampling, 2), libjpeg_script(3))
    check_decode(jpeg)
    check_cu(jpeg, **(SMALL_OUTPUT if size[0] < 200 else {}))


@pytest.mark.parametrize("script", [libjpeg_script(3), None], ids=["several scans", "one scan"])
@pytest.mark.parametrize(
    ("sampling", "width"),
    [
        ("2x2 2x2 2x2", 20),
        ("4x4 1x1 1x1", 20),
        ("1x1 2x1 1x1", 20),
        ("1x1 1x2 1x1", 20),
        ("3x1 1x1 1x1", 20),
        ("1x4 1x4 1x1", 2049),
        ("1x2 1x2 1x2", 4097),
        ("2x4 1x1 1x1", 4097),
    ],
)
def test_the_model_refuses_the_sampling_that_the_cu_refuses(sampling, width, script):
    jpeg = to_jpeg(photo_image(photo("coffee", width, 10), sampling, 8), script or [Scan((0, 1, 2))], bool(script))
    assert scans.decode(jpeg).status == Status.SAMPLING
    with pytest.raises(UsageError, match="sampling factors that the image CU does not take"):
        read_jpeg_work(jpeg)


@pytest.mark.parametrize("progressive", [False, True])
def test_the_model_takes_every_factor_of_gray_that_the_cu_takes(progressive):
    image = cv2.cvtColor(photo("coffee", 40, 30), cv2.COLOR_BGR2GRAY)
    jpeg = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_PROGRESSIVE, int(progressive)])[1].tobytes()
    at = jpeg.index(bytes([0xFF, SOF2 if progressive else SOF0])) + 11
    assert jpeg[at] == 0x11
    plain = read_jpeg_work(jpeg)
    for pair in range(256):
        file = jpeg[:at] + bytes([pair]) + jpeg[at + 1 :]
        status = scans.decode(file).status
        if 1 <= pair >> 4 <= 4 and 1 <= pair & 15 <= 4:
            assert status == Status.OK and read_jpeg_work(file) == plain
        else:
            assert status == Status.SAMPLING
            with pytest.raises(UsageError, match="sampling factors that the image CU does not take"):
                read_jpeg_work(file)


@pytest.mark.parametrize("size", [(8193, 8), (8, 65501)])
def test_the_model_refuses_the_sizes_that_the_cu_refuses(size):
    frame = b"".join(side.to_bytes(2, "big") for side in reversed(size))
    jpeg = jpegs.edited(SOF0, 1, *frame)
    assert scans.decode(jpeg).status == Status.TOO_LARGE
    with pytest.raises(UsageError, match="pixels, which the image CU does not take"):
        read_jpeg_work(jpeg)


@pytest.mark.quick(4)
@pytest.mark.parametrize("size", [(120, 90), pytest.param((240, 180), marks=SLOW)])
@pytest.mark.parametrize("groups", scans.SEQUENTIAL.values(), ids=scans.SEQUENTIAL)
@pytest.mark.parametrize("restart", [0, 5])
def test_clocks_of_sequential_files_of_several_scans_follow_the_models(groups, restart, size):
    image = photo_image(photo("china", *size), "4:2:0", 2)
    jpeg = to_jpeg(image, [Scan(group, restart=restart) for group in groups], progressive=False)
    check_decode(jpeg)
    check_cu(jpeg, **(SMALL_OUTPUT if size[0] < 200 else {}))


def test_clocks_of_several_scans_without_huffman_tables_follow_the_models():
    work = check_decode(scans.file_of_several_scans_without_huffman_tables())
    assert (
        sum(len(headers.standard_tables) for headers in (work.headers, *(scan.next_headers for scan in work.scans)))
        == 2
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("size", [(120, 90), pytest.param((240, 180), marks=SLOW)])
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("restart", [1, 4, 100])
def test_clocks_of_progressive_files_with_restart_markers_follow_the_models(restart, sampling, size):
    jpeg = encode_progressive(photo("china", *size), 90, sampling, restart)
    check_decode(jpeg)
    check_cu(jpeg, **(SMALL_OUTPUT if size[0] < 200 else {}))


def test_clocks_with_segments_to_skip_between_scans_follow_the_models():
    """Longer than what the decoder still has to do when the parser comes to them; when it does, the model knows to a
    block."""
    first, *others = libjpeg_script(3)
    script = [first, *(replace(scan, before=jpegs.Segment(jpegs.APP1, bytes(65000)).to_bytes()) for scan in others)]
    image = photo_image(photo("rocket", 120, 90), "4:2:0", 2)
    skipped = check_decode(to_jpeg(image, script), clocks=9 * 64)
    plain = check_decode(to_jpeg(image, [first, *others]))
    assert decode_cycles(skipped) - decode_cycles(plain) > 9 * 3000
    check_cu(to_jpeg(image, script), **SMALL_OUTPUT)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "size",
    [
        (32, 32),
        (47, 33),
        (16, 200),
        (200, 16),
        pytest.param((1000, 40), marks=SLOW),
        pytest.param((4104, 60), marks=SLOW),
        pytest.param((8192, 60), marks=SLOW),
    ],
)
@pytest.mark.parametrize("sampling", ["4:2:0", "4:4:4"])
def test_clocks_of_small_and_wide_progressive_images_follow_the_models(sampling, size):
    jpeg = encode_progressive(photo("flower", *size), 90, sampling)
    check_decode(jpeg)
    check_cu(jpeg, stage=0)
    check_cu(jpeg, short=16, crop=16)


@pytest.mark.quick(1)
@pytest.mark.parametrize("half", ["left", "right", "upper", "lower"])
@pytest.mark.slow
def test_clocks_of_half_a_progressive_photo_beside_a_plane_follow_the_models(half):
    """Runs of blocks without coefficients, as fast as memory takes and gives words."""
    image = photo("motorcycle_left", 320, 240).copy()
    image[{"left": np.s_[:, :160], "right": np.s_[:, 160:], "upper": np.s_[:120], "lower": np.s_[120:]}[half]] = 90
    jpeg = encode_progressive(image, 95, "4:4:4")
    check_decode(jpeg)
    for latency in (120, 400):
        check_cu(jpeg, latency=latency)


@pytest.mark.quick(2)
@pytest.mark.parametrize("size", [(120, 90), pytest.param((240, 180), marks=SLOW)])
@pytest.mark.parametrize(("stage", "format"), [(1, 0), (2, 0), (3, 1), (3, 2)])
def test_clocks_of_progressive_files_at_every_stage_follow_the_model(stage, format, size):
    check_cu(encode_progressive(photo("chelsea", *size), 90, "4:2:0"), stage=stage, format=format)


@pytest.mark.quick(1)
@pytest.mark.parametrize("latency", [1, 20, 300, 1000])
@pytest.mark.slow
def test_clocks_of_progressive_files_with_any_memory_latency_follow_the_model(latency):
    """Memory takes bursts of 32 blocks at a time, which from some 100 clocks on holds runs without coefficients up."""
    check_cu(encode_progressive(photo("astronaut"), 90, "4:2:0"), latency=latency, within=EXACT)


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(80, 45, id="80"),
        *(pytest.param(2000, n, marks=SLOW, id=f"corpus {n}") for n in range(41, 48)),
    ],
)
def test_the_models_know_of_damaged_files_which_of_them_are_taken(count, seed):
    """The C++ says which are, and test_decode_scans that the RTL does the same."""
    taken = 0
    for number, file in enumerate(scans.mutants(count, seed)):
        try:
            clocks = image_cu_cycles(read_jpeg_work(file))
        except UsageError:
            clocks = 0
        assert (clocks > 0) == (scans.decode(file).status == Status.OK), number
        taken += clocks > 0
    assert count // 10 < taken < count // 2


# ---- Goals: whole CU, memory that answers after 120 clocks, photos at 500x375 ----

# Clocks, at most: some 3 % more than the slowest photo takes, and than the twelve take on average.
PER_PIXEL = {("4:2:0", 75): 0.255, ("4:2:0", 90): 0.51, ("4:4:4", 90): 0.65, ("4:2:2", 90): 0.545, ("gray", 95): 0.63}
MEAN = {("4:2:0", 75): 0.2, ("4:2:0", 90): 0.37, ("4:4:4", 90): 0.47, ("4:2:2", 90): 0.4, ("gray", 95): 0.415}
TENSOR_CLOCKS = max(3 * 224 * 224 * 4 // WRITE_BYTES, 224 * 224 // BEAT)
INT8 = 2


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "sampling", "quality"),
    [
        pytest.param(name, sampling, quality, marks=() if name in ("motorcycle_left", "china") else SLOW)
        for name in PHOTOS
        for sampling, quality in PER_PIXEL
    ],
)
def test_a_photo_takes_little_more_than_its_symbols_blocks_or_tensor(name, sampling, quality):
    jpeg = encode(photo(name), quality, sampling)
    counters = check_cu(jpeg)
    blocks = BLOCK * len(read_jpeg_work(jpeg).symbols)
    assert counters["cycles"] <= 1.10 * max(counters["symbols"], blocks, TENSOR_CLOCKS) + 3000
    assert counters["cycles"] <= PER_PIXEL[sampling, quality] * WIDTH * HEIGHT
    # The tensor's first word may wait a clock for its turn at the port.
    assert counters["wait_write"] <= 1


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "china" else SLOW) for name in PHOTOS])
@pytest.mark.parametrize("sampling", ["4:2:0", "gray"])
def test_what_comes_after_decode_never_holds_it_back_where_the_tensor_has_few_words(name, sampling):
    assert check_cu(encode(photo(name), 30, sampling), format=INT8)["wait_output"] == 0


@pytest.mark.quick(1)
@pytest.mark.parametrize(("sampling", "quality"), MEAN)
def test_photos_take_no_more_clocks_than_they_should_on_average(sampling, quality):
    """By the model, which the RTL keeps to."""
    works = [read_jpeg_work(encode(photo(name), quality, sampling)) for name in PHOTOS]
    assert sum(image_cu_cycles(work) for work in works) <= MEAN[sampling, quality] * len(works) * WIDTH * HEIGHT
