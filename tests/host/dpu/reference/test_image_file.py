"""Image files on the CPU: they give OpenCV's pixels within the limits, and their damage is reported."""

import io
import resource
import struct
import subprocess
import zlib
from itertools import pairwise

import cv2
import numpy as np
import pytest
from cpu_time import cpu_s, least_s
from PIL import Image, ImageFile
from scan_script import Scan, photo_image, to_jpeg

from headrace.batching import CorruptInput
from headrace.host.demo.inputs.images import bundled_images
from headrace.host.dpu.reference.image import preprocess, process
from headrace.host.dpu.reference.image_file import MAX_SCANS, decode, size
from headrace.host.dpu.specs import Damaged, ImageSpec

PICTURE = cv2.GaussianBlur(np.random.default_rng(3).integers(0, 256, (67, 90, 3), np.uint8), (3, 3), 0)
COLOUR = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION


def by_pillow(kind: str, mode: str = "RGB", **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PICTURE).convert(mode).save(file, kind, **options)
    return file.getvalue()


def opencv(data: bytes):
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), COLOUR)
    except cv2.error:
        return None


def pillow(data: bytes) -> np.ndarray:
    """Return Pillow's pixels in BGR, also for a file that is cut off."""
    with pytest.MonkeyPatch.context() as patch, Image.open(io.BytesIO(data)) as image:
        patch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
        return np.asarray(image.convert("RGB"))[..., ::-1]


def interlaced_png(bits: int = 8) -> bytes:
    """Return a black image with one channel in Adam7's passes, which Pillow does not write."""
    starts = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    data = b""
    for x, y, step_x, step_y in starts:
        columns, rows = len(range(x, 13, step_x)), len(range(y, 9, step_y))
        data += bytes(rows * (1 + (columns * bits + 7) // 8)) if columns else b""
    header = struct.pack(">IIBBBBB", 13, 9, bits, 0, 0, 0, 1)
    return png(chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b""))


def png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        found.append((kind, data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def jfif_version_2(data: bytes) -> bytes:
    at = data.index(b"JFIF\0") + 5
    return data[:at] + b"\2" + data[at + 1 :]


def garbage_before(marker: bytes, data: bytes) -> bytes:
    at = data.index(marker)
    return data[:at] + b"\1\2\3" + data[at:]


JPEG = by_pillow("JPEG", quality=92)
PROGRESSIVE = by_pillow("JPEG", quality=92, progressive=True)
UNKNOWN_SAMPLING = to_jpeg(photo_image(PICTURE, "2x2 1x2 1x1", 1), [Scan((0, 1, 2))], progressive=False)
SOUND = {
    "4:2:0": JPEG,
    "4:4:4": by_pillow("JPEG", subsampling=0),
    "4:2:2": by_pillow("JPEG", subsampling=1),
    "gray": by_pillow("JPEG", "L"),
    "CMYK": by_pillow("JPEG", "CMYK"),
    "progressive": PROGRESSIVE,
    "restart intervals": by_pillow("JPEG", restart_marker_blocks=3),
    "JFIF 2": jfif_version_2(JPEG),
    "garbage between segments": garbage_before(b"\xff\xdb", JPEG),
    "garbage and JFIF 2": garbage_before(b"\xff\xc0", jfif_version_2(JPEG)),
    "bytes behind the end": JPEG + b"\0" * 9,
    "sampling that TurboJPEG does not know": UNKNOWN_SAMPLING,
    "sampling that TurboJPEG does not know, and garbage": garbage_before(b"\xff\xc0", UNKNOWN_SAMPLING),
    "PNG": by_pillow("PNG"),
    "PNG with a palette": by_pillow("PNG", "P"),
    "PNG with alpha": by_pillow("PNG", "RGBA"),
    "PNG, gray": by_pillow("PNG", "L"),
    "PNG, 1 bit": by_pillow("PNG", "1"),
    "PNG, interlaced": interlaced_png(),
    "PNG, interlaced, 1 bit": interlaced_png(1),
    "WebP": by_pillow("WEBP"),
    "WebP, lossless": by_pillow("WEBP", lossless=True),
    "WebP with alpha": by_pillow("WEBP", "RGBA"),
    "WebP with Exif": by_pillow("WEBP", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"),
}


@pytest.mark.parametrize("damaged", Damaged)
@pytest.mark.parametrize("name", SOUND)
def test_sound_files_are_opencvs_pixels_without_damage(name, damaged):
    expected = opencv(SOUND[name])
    assert expected is not None
    photo = decode(SOUND[name], 1, damaged)
    assert photo.damage is None and np.array_equal(photo.pixels, expected)
    assert size(SOUND[name]) == (expected.shape[1], expected.shape[0])


def test_bundled_photos_are_opencvs_pixels_without_damage():
    for path in bundled_images():
        data = path.read_bytes()
        assert np.array_equal(decode(data, 100, Damaged.STRICT).pixels, opencv(data)), path


def png_without_part_of_its_data() -> bytes:
    """Return a PNG file whose chunks all have right checksums, with less data than the image needs."""
    return png(*(chunk(kind, body[:-40] if kind == b"IDAT" else body) for kind, body in chunks(by_pillow("PNG"))))


def png_of_fewer_rows() -> bytes:
    """Return a PNG file with right checksums of chunks and data, with fewer rows than its header says."""
    short = zlib.compress(zlib.decompress(dict(chunks(by_pillow("PNG")))[b"IDAT"])[:-900])
    return png(*(chunk(kind, short if kind == b"IDAT" else body) for kind, body in chunks(by_pillow("PNG"))))


def bits_turned(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3] + bytes([data[len(data) * 2 // 3] ^ 0x55]) + data[len(data) * 2 // 3 + 1 :]


DAMAGED = {
    "half of a JPEG, closed": (JPEG[: len(JPEG) // 2] + b"\xff\xd9", "premature end"),
    "half of a progressive JPEG, closed": (PROGRESSIVE[: len(PROGRESSIVE) // 2] + b"\xff\xd9", "premature end"),
    "damage behind garbage": (
        garbage_before(b"\xff\xdb", jfif_version_2(JPEG))[: len(JPEG) // 2] + b"\xff\xd9",
        "premature end",
    ),
    "a JPEG of other sampling than it says": (
        JPEG.replace(b"\x03\x01\x22\0\x02\x11", b"\x03\x01\x22\0\x02\x12"),
        "bad Huffman code",
    ),
    "half of a JPEG of unknown sampling, closed": (
        UNKNOWN_SAMPLING[: len(UNKNOWN_SAMPLING) // 2] + b"\xff\xd9",
        "premature end",
    ),
    "half of a JPEG of unknown sampling behind garbage, closed": (
        garbage_before(b"\xff\xc0", UNKNOWN_SAMPLING)[: len(UNKNOWN_SAMPLING) // 2] + b"\xff\xd9",
        "premature end",
    ),
    "a bit of a PNG": (bits_turned(by_pillow("PNG")), "checksum of chunk 1"),
    "a PNG without part of its data": (png_without_part_of_its_data(), "less data|corrupt"),
    "a PNG of fewer rows": (png_of_fewer_rows(), "less data"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_an_error_or_marked(name):
    data, reason = DAMAGED[name]
    with pytest.raises(CorruptInput, match=f"it is damaged: .*({reason})"):
        decode(data, 1, Damaged.STRICT)
    try:
        photo = decode(data, 1, Damaged.LENIENT)
    except CorruptInput as error:
        assert "OpenCV cannot" in str(error) and opencv(data) is None and not data.startswith(b"\xff\xd8")
    else:
        expected = opencv(data)
        assert photo.damage and np.array_equal(photo.pixels, pillow(data) if expected is None else expected)


def test_a_tensor_of_a_damaged_photo_is_marked():
    data, _ = DAMAGED["half of a JPEG, closed"]
    spec = ImageSpec(64, 48, 48, damaged=Damaged.LENIENT)
    tensor, damage, _ = process(data, spec)
    assert tensor.shape == (3, 48, 48) and "premature end" in damage
    assert process(JPEG, spec)[1] is None


@pytest.mark.parametrize(
    ("subsampling", "progressive"),
    [
        ("4:2:0", False),
        ("4:4:4", True),
        pytest.param("4:4:4", False, marks=pytest.mark.slow),
        pytest.param("4:2:0", True, marks=pytest.mark.slow),
    ],
)
def test_a_jpeg_that_is_cut_off_gives_the_rows_that_are_there(subsampling, progressive, monkeypatch):
    """The rows are those of Pillow, and half of a file holds about half of them. A progressive file holds the whole
    image in lower quality; Pillow shows it less often."""
    data = by_pillow("JPEG", subsampling=subsampling, progressive=progressive, quality=90)
    whole = opencv(data)
    head, blur = data.index(b"\xff\xda") + 20, []
    for length in range(head, len(data) - 2, 293):
        try:
            photo = decode(data[:length], 1, Damaged.LENIENT)
        except CorruptInput:  # within the head of a later scan
            assert progressive
            continue
        assert "Premature end" in photo.damage
        blur.append(np.abs(photo.pixels.astype(int) - whole).mean())
        if not progressive:
            assert np.array_equal(photo.pixels, pillow(data[:length]))
            assert length < len(data) // 2 + 100 or (photo.pixels == whole)[:24].all()
    assert blur[-1] < 3 < 10 < blur[0] and all(later < earlier + 1 for earlier, later in pairwise(blur))
    monkeypatch.setattr(subprocess, "run", None)  # without a scan no process is started
    for length in range(2, head - 20):
        assert opencv(data[:length]) is None
        with pytest.raises(CorruptInput):
            decode(data[:length], 1, Damaged.LENIENT)


@pytest.mark.parametrize("name", ["WebP", "WebP, lossless", "WebP with alpha", "PNG", "JPEG"])
def test_files_cut_off_anywhere_are_refused(name):
    data = SOUND.get(name, JPEG)
    for length in [*range(0, 64), *range(64, len(data) - 1, 97), len(data) - 1]:
        with pytest.raises(CorruptInput):
            decode(data[:length], 1, Damaged.STRICT)


def test_strict_takes_no_damaged_jpeg_that_decodes_to_other_pixels_than_lenient_or_opencv():
    """In 400 bit flips, every file that passes gives OpenCV's pixels, and most flips in the data do not pass."""
    random, passed, marked = np.random.default_rng(8), 0, 0
    for _ in range(400):
        data = bytearray(JPEG)
        data[random.integers(2, len(data))] ^= 1 << random.integers(8)
        try:
            photo = decode(bytes(data), 1, Damaged.LENIENT)
        except CorruptInput:
            continue
        assert np.array_equal(photo.pixels, opencv(bytes(data)))
        passed, marked = passed + (photo.damage is None), marked + (photo.damage is not None)
    assert passed > 40 and marked > 40


def claiming(data: bytes, width: int, height: int) -> bytes:
    """Return `data` with another size in its header."""
    if data.startswith(b"\x89PNG"):
        (kind, header), *rest = chunks(data)
        return png(chunk(kind, struct.pack(">II", width, height) + header[8:]), *(chunk(*each) for each in rest))
    if data.startswith(b"RIFF"):
        if data[12:16] == b"VP8X":
            return data[:24] + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little") + data[30:]
        if data[12:16] == b"VP8L":
            return data[:21] + struct.pack("<I", (width - 1) | (height - 1) << 14) + data[25:]
        return data[:26] + struct.pack("<HH", width, height) + data[30:]
    at = min(place for kind in (b"\xff\xc0", b"\xff\xc2") if (place := data.find(kind)) >= 0) + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


@pytest.mark.parametrize(
    "name", ["4:2:0", "progressive", "garbage between segments", "PNG", "WebP", "WebP, lossless", "WebP with alpha"]
)
@pytest.mark.parametrize("damaged", Damaged)
def test_more_pixels_than_allowed_are_refused_before_anything_is_decoded(name, damaged):
    """A file of 631 bytes can claim 20000x20000 pixels, for which OpenCV took more than a minute and 2.4 GB. The
    refusal takes less time than the decoding of an image of 90x67."""
    data = claiming(SOUND[name], 16000, 16000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def refuse():
        with pytest.raises(CorruptInput, match=r"16000x16000 pixels.* --max-megapixels 100; make the image smaller"):
            decode(data, 100, damaged)

    refusing, decoding = least_s(
        lambda: cpu_s(refuse), lambda: cpu_s(lambda: decode(SOUND[name], 100, damaged)), rounds=10
    )
    assert refusing < decoding
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB
    with pytest.raises(CorruptInput, match="max-megapixels 100"):
        preprocess(data, ImageSpec())


def test_the_limit_is_a_number_of_pixels():
    exact = cv2.imencode(".jpg", np.zeros((1000, 1000, 3), np.uint8))[1].tobytes()
    assert decode(exact, 1, Damaged.STRICT).pixels.shape == (1000, 1000, 3)
    with pytest.raises(CorruptInput, match="1000x1001"):
        decode(claiming(exact, 1000, 1001), 1, Damaged.STRICT)


def test_a_few_bytes_a_scan_cannot_ask_for_a_pass_each():
    at = PROGRESSIVE.rindex(b"\xff\xda")
    with pytest.raises(CorruptInput, match="more than 100 scans"):
        decode(PROGRESSIVE[:at] + PROGRESSIVE[at:-2] * (MAX_SCANS + 1) + b"\xff\xd9", 1, Damaged.LENIENT)


def test_a_process_that_looks_for_damage_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr("headrace.host.dpu.reference.image_file.ALONE_S", 0.01)
    with pytest.raises(CorruptInput, match=r"has not decoded it within 0\.01 s"):
        decode(SOUND["sampling that TurboJPEG does not know"], 1, Damaged.STRICT)


def test_a_png_that_inflates_beyond_its_image_is_not_inflated():
    body = zlib.compress(bytes(200 << 20))
    bomb = png(*(chunk(kind, body if kind == b"IDAT" else data) for kind, data in chunks(by_pillow("PNG"))))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptInput, match="more data"):
        decode(bomb, 1, Damaged.STRICT)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


@pytest.mark.parametrize("kind", ["BMP", "GIF", "TIFF", "PPM"])
def test_other_formats_are_refused_by_name(kind):
    with pytest.raises(CorruptInput, match="JPEG, PNG or WebP"):
        decode(by_pillow(kind), 100, Damaged.LENIENT)
