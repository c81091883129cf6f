"""Test that image files are read as transformers reads them, and that a bad file is one clear error."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from properties import examples
from transformers.image_utils import load_image

from headrace.batching import CorruptInput
from headrace.host.dpu.reference import pillow_file
from headrace.host.dpu.reference.image_file import MAX_SCANS
from headrace.host.dpu.reference.pillow_file import read
from headrace.host.dpu.specs import Damaged, Orientation

RNG = np.random.default_rng(5)
PICTURE = Image.fromarray(RNG.integers(0, 256, (9, 7, 3), np.uint8)).resize((70, 90), Image.Resampling.BICUBIC)
ALPHA = Image.fromarray(RNG.integers(0, 256, (90, 70), np.uint8))
TURNED = {number: Image.Exif() for number in range(1, 9)}
for number, exif in TURNED.items():
    exif[0x0112] = number


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.copy().save(file, kind, **options)  # Pillow keeps settings of an encoder in the image
    return file.getvalue()


def with_alpha(mode: str = "RGBA") -> Image.Image:
    image = PICTURE.convert("RGB" if mode == "RGBA" else "L").convert(mode)
    image.putalpha(ALPHA)
    return image


def palette(transparent: bool) -> bytes:
    return encoded(PICTURE.quantize(40), "PNG", **({"transparency": 3} if transparent else {}))


def gray16(mode: str = "I;16") -> Image.Image:
    return Image.fromarray(RNG.integers(0, 65536, (90, 70), np.uint16).astype("<u2")).convert(mode)


def many(kind: str) -> bytes:
    others = [PICTURE.rotate(180), PICTURE.transpose(Image.Transpose.FLIP_TOP_BOTTOM)]
    return encoded(PICTURE, kind, save_all=True, append_images=others)


FILES = {
    "JPEG": encoded(PICTURE, "JPEG", quality=92),
    "JPEG, progressive": encoded(PICTURE, "JPEG", progressive=True),
    "JPEG, 4:4:4": encoded(PICTURE, "JPEG", subsampling=0),
    "JPEG, 4:2:2": encoded(PICTURE, "JPEG", subsampling=1),
    "JPEG, gray": encoded(PICTURE.convert("L"), "JPEG"),
    "JPEG, CMYK": encoded(PICTURE.convert("CMYK"), "JPEG"),
    "JPEG of several images": many("MPO"),
    "PNG": encoded(PICTURE, "PNG"),
    "PNG, gray": encoded(PICTURE.convert("L"), "PNG"),
    "PNG, 1 bit": encoded(PICTURE.convert("1"), "PNG"),
    "PNG, 16-bit gray": encoded(gray16(), "PNG"),
    "PNG with alpha": encoded(with_alpha(), "PNG"),
    "PNG, gray with alpha": encoded(with_alpha("LA"), "PNG"),
    "PNG with a palette": palette(transparent=False),
    "PNG with a palette and a transparent colour": palette(transparent=True),
    "PNG with a palette and alpha": encoded(with_alpha().quantize(40), "PNG"),
    "PNG, gray with a transparent level": encoded(PICTURE.convert("L"), "PNG", transparency=90),
    "WebP": encoded(PICTURE, "WEBP"),
    "WebP, lossless": encoded(PICTURE, "WEBP", lossless=True),
    "WebP with alpha": encoded(with_alpha(), "WEBP"),
    "WebP, animated": many("WEBP"),
    "GIF": encoded(PICTURE, "GIF"),
    "GIF, animated": many("GIF"),
    "GIF, transparent": encoded(PICTURE.quantize(40), "GIF", transparency=3),
    "TIFF": encoded(PICTURE, "TIFF"),
    "TIFF, LZW": encoded(PICTURE, "TIFF", compression="tiff_lzw"),
    "TIFF, pages": many("TIFF"),
    "TIFF, CMYK": encoded(PICTURE.convert("CMYK"), "TIFF"),
    "TIFF, 16-bit gray": encoded(gray16(), "TIFF"),
    "TIFF, float": encoded(PICTURE.convert("F"), "TIFF"),
    "BMP": encoded(PICTURE, "BMP"),
    "BMP with a palette": encoded(PICTURE.quantize(40), "BMP"),
    "large TIFF, turned": encoded(PICTURE, "TIFF", big_tiff=True, exif=TURNED[6]),
}
XMP = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="8"/></rdf:RDF></x:xmpmeta>"""
FILES["JPEG, XMP with orientation 8"] = encoded(PICTURE, "JPEG", xmp=XMP.encode())


def xmp_behind_pixels() -> bytes:
    png, text = encoded(PICTURE, "PNG"), b"XML:com.adobe.xmp\0\0\0\0\0" + XMP.encode()
    return png[:-12] + chunk(b"iTXt", text) + png[-12:]  # before IEND


FILES["PNG, XMP behind the pixels, orientation 8"] = xmp_behind_pixels()
FILES |= {f"JPEG, orientation {number}": encoded(PICTURE, "JPEG", exif=exif) for number, exif in TURNED.items()}
FILES |= {
    f"{kind}, orientation {number}": encoded(PICTURE, kind, exif=TURNED[number])
    for kind in ("PNG", "WEBP", "TIFF")
    for number in (3, 6)
}


def transformers_pixels(data: bytes, folder) -> np.ndarray:
    path = folder / "image"
    path.write_bytes(data)
    return np.asarray(load_image(str(path)))


@pytest.mark.parametrize("damaged", Damaged)
@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_transformers(name, damaged, tmp_path):
    found = read(FILES[name], 1, damaged)
    expected = transformers_pixels(FILES[name], tmp_path)
    assert found.pixels.dtype == np.uint8 and np.array_equal(found.pixels, expected)
    assert found.damage is None
    turned = int(name.rpartition("orientation ")[2]) if "orientation" in name else 1
    assert found.orientation == (6 if name == "large TIFF, turned" else turned)


def test_the_cases_are_what_their_names_say():
    """The golden values above would otherwise not show what they are for."""
    modes = {name: Image.open(io.BytesIO(data)).mode for name, data in FILES.items()}
    assert modes["JPEG, CMYK"] == modes["TIFF, CMYK"] == "CMYK"
    assert modes["PNG, 16-bit gray"] == modes["TIFF, 16-bit gray"] == "I;16"
    assert modes["PNG with alpha"] == "RGBA" and modes["PNG, gray with alpha"] == "LA"
    assert modes["PNG with a palette"] == modes["GIF"] == "P" and modes["PNG, 1 bit"] == "1"
    assert Image.open(io.BytesIO(FILES["GIF, animated"])).n_frames == 3
    assert Image.open(io.BytesIO(FILES["TIFF, pages"])).n_frames == 3
    assert not np.array_equal(read(FILES["JPEG, orientation 6"], 1).pixels, read(FILES["JPEG"], 1).pixels)


def huge(width: int, height: int) -> dict[str, bytes]:
    """Return files whose headers name a size, and that have few bytes."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    gif = bytearray(encoded(Image.new("P", (4, 4)), "GIF"))
    gif[6:10] = struct.pack("<HH", min(width, 65535), min(height, 65535))
    bmp = bytearray(encoded(Image.new("RGB", (4, 4)), "BMP"))
    bmp[18:26] = struct.pack("<ii", width, height)
    jpeg = bytearray(FILES["JPEG"])
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", min(height, 65535), min(width, 65535))
    return {"PNG": png, "GIF": bytes(gif), "BMP": bytes(bmp), "JPEG": bytes(jpeg)}


@pytest.mark.parametrize("name", huge(1, 1))
def test_a_bomb_is_refused_by_its_header(name):
    with pytest.raises(CorruptInput, match=r"\d+x\d+ pixels, by its header, are more than --max-megapixels 100; make"):
        read(huge(60000, 60000)[name], 100)


def test_the_limit_of_pillow_for_all_users_does_not_count(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert read(FILES["PNG"], 1).pixels.shape == (90, 70, 3)


def garbled(data: bytes) -> bytes:
    """Return a JPEG file that has codes after its middle that no table has."""
    middle = len(data) // 2
    return data[:middle] + b"\xff\0" * 30 + data[middle + 60 :]


JPEG, PNG = FILES["JPEG"], FILES["PNG"]
BAD = {
    "nothing": (b"", "it is empty"),
    "a text": (b"no image", "it is no image file of a known format; give one of JPEG, PNG, WebP, GIF, TIFF, BMP"),
    "PostScript, which Pillow would run": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "no image file of a known format"),
    "a sound": (b"RIFF\x24\0\0\0WAVEfmt ", "Pillow cannot decode this WebP file"),
    "a header alone": (b"\xff\xd8\xff", "Pillow cannot decode this JPEG file"),
    "JPEG, cut off": (JPEG[: len(JPEG) // 2], "it is damaged: Premature end of JPEG file"),
    "JPEG, garbled": (garbled(JPEG), "it is damaged: "),
    "JPEG of many scans": (JPEG + b"\xff\xda" * (MAX_SCANS + 1), "more than 100 scans"),
    "PNG, cut off": (PNG[: len(PNG) // 2], "it is damaged: the file ends too early"),
    "PNG, one bit wrong": (PNG[:60] + bytes([PNG[60] ^ 1]) + PNG[61:], "it is damaged: the checksum of chunk"),
    "WebP, cut off": (FILES["WebP"][:-9], "Pillow cannot decode this WebP file: "),
    "GIF, cut off": (FILES["GIF"][:1200], "Pillow cannot decode this GIF file: "),
    "TIFF, cut off": (FILES["TIFF"][:900], "Pillow cannot decode this TIFF file: "),
    "BMP, cut off": (FILES["BMP"][:900], "Pillow cannot decode this BMP file: "),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_clear_error(name):
    data, told = BAD[name]
    with pytest.raises(CorruptInput) as raised:
        read(data, 100)
    assert told in str(raised.value) and "\n" not in str(raised.value)


def test_lenient_takes_what_pillow_makes_of_a_damaged_file(tmp_path):
    data = garbled(JPEG)
    found = read(data, 1, Damaged.LENIENT)
    assert found.damage and np.array_equal(found.pixels, transformers_pixels(data, tmp_path))
    with pytest.raises(CorruptInput, match=r"Pillow cannot decode this JPEG file: .*truncated"):
        read(JPEG[: len(JPEG) // 2], 1, Damaged.LENIENT)  # transformers refuses it, too


@pytest.mark.parametrize("value", [0, 9, 300])
def test_an_orientation_that_there_is_not_turns_nothing(value, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = value
    data = encoded(PICTURE, "PNG", exif=exif)
    found = read(data, 1)
    assert found.orientation is Orientation.NONE
    assert np.array_equal(found.pixels, transformers_pixels(data, tmp_path))


@examples(120, 300)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_a_mutated_file_is_read_or_refused(name, data):
    file = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, min(len(file) - 1, 400)))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(file)), st.integers(0, len(file))))
    try:
        found = read(bytes(file[:cut]), 1, data.draw(st.sampled_from(Damaged)))
    except CorruptInput as error:
        assert str(error)
    else:
        assert found.pixels.ndim == 3 and found.pixels.size <= 3 * 10**6


def test_every_format_has_a_case():
    kinds = {kind for _, kind, _ in pillow_file.READERS}
    assert {name.split(",")[0].split(" ")[0] for name in FILES} >= kinds
