"""Images with an orientation are turned as OpenCV turns them, and the CPU and the DPU agree."""

import asyncio
import io

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from headrace.batching import UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CpuPreprocessor, Fallback
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.reference.orientation import orientation
from headrace.host.dpu.specs import ImageSpec, ImageStage, Orientation


def photo(width: int = 301, height: int = 200) -> bytes:
    """Return an image as a camera stores it."""
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.GaussianBlur(pixels, (0, 0), 3))[1].tobytes()


def tiff(value: int, order: str = "big", kind: int = 3) -> bytes:
    """Return an Exif directory of two entries, the second of which is the orientation."""

    def number(n: int, size: int) -> bytes:
        return n.to_bytes(size, order)

    width = number(0x0100, 2) + number(3, 2) + number(1, 4) + number(640, 2) + bytes(2)
    long = kind in (4, 9)
    turn = number(0x0112, 2) + number(kind, 2) + number(1, 4)
    turn += number(value, 4) if long else number(value, 2) + bytes(2)
    head = (b"MM" if order == "big" else b"II") + number(42, 2) + number(8, 4)
    return head + number(2, 2) + width + turn + bytes(4)


def with_exif(jpeg: bytes, content: bytes) -> bytes:
    segment = b"Exif\0\0" + content
    return jpeg[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[2:]


def upright(jpeg: bytes) -> np.ndarray:
    """Return the RGB image as OpenCV turns it."""
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("turn", Orientation)
def test_a_photo_is_turned_as_opencv_turns_it(turn, order):
    jpeg = with_exif(photo(), tiff(turn, order))
    assert orientation(jpeg) is turn
    assert np.array_equal(preprocess(jpeg, ImageSpec(orient=True), ImageStage.DECODE), upright(jpeg))


def test_what_pillow_writes_is_read():
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "a maker's name", 8
    assert orientation(with_exif(photo(), exif.tobytes().removeprefix(b"Exif\0\0"))) is Orientation.BACK_QUARTER_TURN


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(("kind", "order"), [(3, "big"), (3, "little"), (4, "big"), (4, "little"), (9, "little")])
@pytest.mark.parametrize("turn", Orientation)
def test_a_file_of_each_format_is_turned_as_pillow_turns_it(turn, kind, order, file_format):
    """Integers of other types than SHORT count as in Pillow. WebP's data may have a head, and PNG's has none."""
    stored = Image.open(io.BytesIO(photo(31, 20)))
    for head in (b"Exif\0\0", b"") if file_format == "WEBP" else (b"Exif\0\0",):
        file = io.BytesIO()
        stored.save(file, file_format, exif=head + tiff(turn, order, kind), lossless=True)
        with Image.open(file) as found:
            pillows = np.asarray(ImageOps.exif_transpose(found).convert("RGB"))
        assert orientation(file.getvalue()) is turn
        assert np.array_equal(preprocess(file.getvalue(), ImageSpec(orient=True), ImageStage.DECODE), pillows)


@pytest.mark.parametrize("cut", range(0, 120, 7))
@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_a_file_that_ends_early_is_not_turned_or_as_it_says(file_format, cut):
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, file_format, exif=b"Exif\0\0" + tiff(6))
    assert orientation(file.getvalue()[:-cut]) in (Orientation.NONE, Orientation.QUARTER_TURN)


@pytest.mark.parametrize(
    "jpeg",
    [
        b"",
        b"\xff\xd8",
        photo(),
        with_exif(photo(), tiff(0)),
        with_exif(photo(), tiff(9)),
        with_exif(photo(), tiff(6, kind=2)),
        with_exif(photo(), tiff(6 << 16, kind=4)),
        with_exif(photo(), tiff(6)[:29] + b"\2" + tiff(6)[30:]),
        with_exif(photo(), b"XX" + tiff(6)[2:]),
        with_exif(photo(), tiff(6)[:3] + b"\x2b" + tiff(6)[4:]),
        with_exif(photo(), tiff(6)[:30]),
        with_exif(photo(), tiff(6)[:4] + b"\xff\xff\xff\xff" + tiff(6)[8:]),
        photo()[:-2] + with_exif(photo(), tiff(6))[2:],
    ],
    ids=[
        "empty",
        "SOI alone",
        "no Exif",
        "0",
        "9",
        "another type",
        "beyond",
        "two values",
        "byte order",
        "no TIFF",
        "cut off",
        "far away",
        "behind the scan",
    ],
)
def test_a_photo_without_a_sound_orientation_stays_as_it_is(jpeg):
    assert orientation(jpeg) is Orientation.NONE


def test_the_first_exif_segment_counts_also_behind_garbage_and_fill_bytes():
    jpeg = with_exif(with_exif(photo(), tiff(3)), tiff(6))
    assert orientation(jpeg) is Orientation.QUARTER_TURN
    start = jpeg.index(b"\xff\xe1", 6 + len(tiff(6)))
    assert orientation(jpeg[:2] + b"\xff\0x\xff\xff" + jpeg[start:]) is Orientation.HALF_TURN


@given(st.binary(max_size=60), st.integers(0, 60))
def test_no_bytes_make_it_fail(noise, at):
    jpeg = with_exif(photo(8, 8), tiff(6))
    assert orientation(jpeg[:at] + noise + jpeg[at:]) in Orientation
    assert orientation(b"\xff\xd8" + noise) in Orientation
    assert orientation(with_exif(photo(8, 8), noise)) in Orientation


@pytest.mark.parametrize("turn", Orientation)
@pytest.mark.parametrize("stage", [ImageStage.RESIZE, ImageStage.CROP])
def test_turning_first_differs_by_no_more_than_rounding(turn, stage):
    """The crop cuts off an even number of pixels here, so that the window is exactly in the middle."""
    jpeg = with_exif(photo(400, 300), tiff(turn))
    spec = ImageSpec(resize_short=240, crop_width=100, crop_height=160, orient=True)
    found = preprocess(jpeg, spec, stage)
    image = upright(jpeg)
    size = (320, 240) if image.shape[1] > image.shape[0] else (240, 320)
    expected = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR_EXACT)
    if stage is ImageStage.CROP:
        y, x = (size[1] - 160) // 2, (size[0] - 100) // 2
        expected = expected[y : y + 160, x : x + 100]
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_a_turned_photo_has_no_crop_offsets():
    with pytest.raises(UsageError, match="orient needs a centred crop; give no crop offsets with it"):
        ImageSpec(orient=True, crop_x=0)


@pytest.mark.parametrize("orient", [False, True])
def test_the_orientation_is_told_whoever_does_the_work_and_whether_the_photo_is_turned_or_not(tmp_path, orient):
    build_sw_emu(tmp_path / "dpu.xclbin", image_cus=1)
    jpeg = with_exif(photo(), tiff(Orientation.QUARTER_TURN))
    pixels = cv2.imdecode(np.frombuffer(photo(), np.uint8), cv2.IMREAD_COLOR)
    wide = cv2.imencode(".jpg", cv2.resize(pixels, (8193, 60)))[1].tobytes()
    spec = ImageSpec(orient=orient)

    async def told() -> list[Orientation | None]:
        async with Dpu(tmp_path / "dpu.xclbin", spec) as dpu, CpuPreprocessor(spec) as cpu:
            made = [
                await dpu.process(jpeg),
                await dpu.process(photo()),
                await cpu.process(jpeg),
                await dpu.process(with_exif(wide, tiff(Orientation.FLIP))),
                await cpu.process(cv2.imencode(".png", pixels)[1].tobytes()),
            ]
        return [each.orientation for each in made]

    none = Orientation.NONE
    assert asyncio.run(told()) == [Orientation.QUARTER_TURN, none, Orientation.QUARTER_TURN, Orientation.FLIP, none]


def test_cpu_and_dpu_give_the_same_tensor(tmp_path):
    build_sw_emu(tmp_path / "dpu.xclbin", image_cus=1)
    spec = ImageSpec(crop_width=128, crop_height=224, orient=True)

    async def on_dpu() -> None:
        async with Dpu(tmp_path / "dpu.xclbin", spec, fallback=Fallback.RAISE) as dpu:
            for turn in Orientation:
                jpeg = with_exif(photo(), tiff(turn))
                for stage in ImageStage:
                    done = await dpu.process(jpeg, stage)
                    found = done.tensor
                    assert done.orientation is turn
                    assert found.flags.c_contiguous
                    assert np.array_equal(found, preprocess(jpeg, spec, stage)), (turn, stage)
                assert found.shape == spec.tensor_shape

    asyncio.run(on_dpu())
