"""Files of several scans, progressive ones among them, which decode takes with a workspace: against cv2.imdecode, and
the coefficients in the workspace against those that were encoded."""

import ctypes
import subprocess
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import csim
import cv2
import numpy as np
import pytest
import scan_script
from scan_script import Image, Scan, libjpeg_script, random_image, random_script, to_jpeg
from test_decode import (
    DHT,
    SAMPLINGS,
    SLOW,
    STATUS,
    bundled_images,
    encode_pillow,
    golden,
    huffman_tables,
    picture,
    sample,
)

WORKSPACE = 1 << 18
MAX_SCANS = 128


@dataclass(frozen=True, slots=True)
class Decoded:
    status: int
    pixels: np.ndarray  # of the rows that were asked for
    needed: int
    workspace: np.ndarray

    def planes(self, image: Image) -> list[np.ndarray]:
        """The coefficients, in the shapes of the image's."""
        values, planes = self.workspace[: image.workspace_bytes].view(np.int16), []
        for plane in image.planes:
            planes.append(values[: plane.size].reshape(plane.shape))
            values = values[plane.size :]
        return planes


@cache
def library() -> ctypes.CDLL:
    return csim.load("progressive")


def decode_partly(
    jpeg: bytes, workspace_bytes: int, rows: tuple[int, int, int, int], capacity: int
) -> tuple[int, int, int, int, np.ndarray, np.ndarray]:
    """Status, width and height, bytes of workspace needed, RGB bytes with zeros where none came, the workspace. `rows`:
    the image's width and height, the first row that is wanted and how many."""
    width, height, needed = ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_uint32()
    rgb, workspace = np.zeros(capacity, np.uint8), np.zeros(max(workspace_bytes, 16), np.uint8)
    status = library().csim_progressive(
        jpeg,
        len(jpeg),
        *map(ctypes.c_uint32, rows),
        ctypes.c_void_p(workspace.ctypes.data),
        ctypes.c_uint32(workspace_bytes),
        ctypes.c_void_p(rgb.ctypes.data),
        ctypes.c_uint64(rgb.size),
        ctypes.byref(width),
        ctypes.byref(height),
        ctypes.byref(needed),
    )
    return status, width.value, height.value, needed.value, rgb, workspace


def decode(jpeg: bytes, workspace_bytes: int = WORKSPACE, rows: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Decoded:
    status, width, height, needed, rgb, workspace = decode_partly(jpeg, workspace_bytes, rows, 3 * 4096 * 512)
    shape = (rows[3] or height, width, 3)
    pixels = rgb[: int(np.prod(shape))].reshape(shape) if status == 0 else rgb[:0]
    return Decoded(status, pixels, needed, workspace)


def assert_equal_to_opencv(jpeg: bytes, workspace_bytes: int = WORKSPACE) -> Decoded:
    decoded = decode(jpeg, workspace_bytes)
    assert decoded.status == STATUS["OK"]
    np.testing.assert_array_equal(decoded.pixels, golden(jpeg))
    return decoded


def encode(image: np.ndarray, quality: int = 90, sampling: str = "4:2:0", restart: int = 0) -> bytes:
    options = [
        cv2.IMWRITE_JPEG_PROGRESSIVE,
        1,
        cv2.IMWRITE_JPEG_QUALITY,
        quality,
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
        SAMPLINGS[sampling],
        cv2.IMWRITE_JPEG_RST_INTERVAL,
        restart,
    ]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


# ---- Files that encoders write ----


@pytest.mark.quick(12)
@pytest.mark.parametrize("sampling", [*SAMPLINGS, "gray"])
@pytest.mark.parametrize("seed", range(4))
def test_libjpegs_progressive_files_equal_opencv(sampling, seed):
    rng = np.random.default_rng(seed)
    for _ in range(12):
        size, quality = rng.integers(1, 200, 2), int(rng.integers(1, 101))
        image = picture(rng, *map(int, size), 1 if sampling == "gray" else 3)
        restart = int(rng.choice([0, 0, 1, 7]))
        jpeg = encode(image, quality, "4:2:0" if sampling == "gray" else sampling, restart)
        assert_equal_to_opencv(jpeg)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("width", [4097, 8191, 8192])
def test_the_widest_files_equal_opencv(sampling, width):
    image = cv2.resize(cv2.imread(str(bundled_images()[0])), (width, 20))
    assert_equal_to_opencv(encode(image, 90, sampling), 128 * 3 * 1024 * 4)


def test_the_workspace_of_the_greatest_image_is_told():
    jpeg = bytearray(encode(np.zeros((8, 8, 3), np.uint8), 90, "4:4:4"))
    at = jpeg.index(b"\xff\xc2") + 5
    jpeg[at : at + 4] = (65500).to_bytes(2, "big") + (8192).to_bytes(2, "big")
    decoded = decode(bytes(jpeg), 1 << 20)
    assert (decoded.status, decoded.needed) == (STATUS["BUFFER_TOO_SMALL"], 128 * 3 * 1024 * 8188)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_small_size_equals_opencv(sampling, step):
    rng = np.random.default_rng(3)
    for height in range(1, 19):
        for width in range(1, 35, step if height in (1, 8, 9) else 5 * step):
            assert_equal_to_opencv(encode(picture(rng, width, height), 95, sampling))


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize(
    "options",
    [{"quality": 100}, {"quality": 30, "restart_marker_rows": 1}, {"quality": 75, "restart_marker_blocks": 5}],
    ids=["q100", "restart each row", "restart each 5 MCUs"],
)
def test_pillow_files_equal_opencv(subsampling, options):
    image = picture(np.random.default_rng(5), 121, 67)
    assert_equal_to_opencv(encode_pillow(image, subsampling=subsampling, progressive=True, **options))


def test_pillow_rgb_file_equals_opencv():
    image = picture(np.random.default_rng(5), 40, 30)
    assert_equal_to_opencv(encode_pillow(image, progressive=True, keep_rgb=True))


@pytest.mark.quick(10)
@pytest.mark.parametrize("path", bundled_images(), ids=lambda path: path.name)
def test_photos_equal_opencv(path):
    image = cv2.resize(cv2.imread(str(path)), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    for quality, sampling in ((75, "4:2:0"), (92, "4:4:4")):
        assert_equal_to_opencv(encode(image, quality, sampling), 8 << 20)


# ---- Files of any script ----


def random_file(seed: int, most: int = 90) -> tuple[Image, list[Scan]]:
    rng = np.random.default_rng(seed)
    samplings = [*scan_script.SAMPLING, *scan_script.MIXED]
    sampling = samplings[seed % len(samplings)]
    image = random_image(rng, int(rng.integers(1, most)), int(rng.integers(1, most)), sampling)
    return image, random_script(rng, len(image.planes))


def assert_coefficients(decoded: Decoded, image: Image) -> None:
    for c, (found, encoded) in enumerate(zip(decoded.planes(image), image.planes, strict=True)):
        rows, columns = image.seen(c)
        np.testing.assert_array_equal(found[:rows, :columns], encoded[:rows, :columns])


def of_seeds(quick: int, end: int) -> pytest.MarkDecorator:
    """Parametrise `seeds`: each of the first by itself, and the others in slow cases of fifty."""
    many = [range(first, min(first + 50, end)) for first in range(quick, end, 50)]
    cases = [
        *(pytest.param([seed], id=f"{seed}") for seed in range(quick)),
        *(pytest.param(seeds, id=f"{seeds[0]} to {seeds[-1]}", marks=SLOW) for seeds in many),
    ]
    return pytest.mark.parametrize("seeds", cases)


@of_seeds(30, 1000)
def test_any_progression_gives_its_coefficients_and_opencvs_pixels(seeds):
    for seed in seeds:
        image, script = random_file(seed)
        decoded = assert_equal_to_opencv(to_jpeg(image, script))
        assert_coefficients(decoded, image)


SEQUENTIAL = {
    "one by one": [(0,), (1,), (2,)],
    "in another order": [(2,), (0,), (1,)],
    "luma, then chroma": [(0,), (1, 2)],
    "two, then one": [(0, 1), (2,)],
    "the outer ones, then the middle": [(0, 2), (1,)],
}


@pytest.mark.quick(30)
@pytest.mark.parametrize("groups", SEQUENTIAL.values(), ids=SEQUENTIAL)
@pytest.mark.parametrize("sampling", [*SAMPLINGS, "4:1:0", *scan_script.MIXED])
def test_sequential_files_of_several_scans_equal_opencv(groups, sampling):
    rng = np.random.default_rng(8)
    for size in ((1, 1), (17, 9), (50, 70)):
        image = random_image(rng, *size, sampling)
        script = [Scan(group, restart=int(rng.choice([0, 1, 5]))) for group in groups]
        decoded = assert_equal_to_opencv(to_jpeg(image, script, progressive=False))
        assert_coefficients(decoded, image)


def test_a_run_of_blocks_without_new_coefficients_may_be_as_long_as_its_bits_allow():
    """40,960 blocks: a run of 32,767, and a second one."""
    planes = (np.zeros((40, 1024, 64), np.int64),)
    planes[0][0, 0, 1] = planes[0][39, 1023, 63] = 5
    planes[0][..., 0] = 2 * np.arange(40)[:, None] - 40
    image = Image(8192, 320, "gray", planes)
    script = [Scan((0,), 0, 0), Scan((0,), 1, 63, 0, 2), Scan((0,), 1, 63, 2, 1), Scan((0,), 1, 63, 1, 0)]
    jpeg = to_jpeg(image, script)
    decoded = decode(jpeg, image.workspace_bytes, (8192, 320, 150, 170))
    assert decoded.status == STATUS["OK"]
    np.testing.assert_array_equal(decoded.pixels, golden(jpeg)[150:])
    assert_coefficients(decoded, image)


def first_byte(jpeg: bytes, before: int, after: int) -> bytes:
    """With another first byte of the last scan."""
    at = jpeg.rindex(b"\xff\xda") + 10
    assert jpeg[at] == before
    return jpeg[:at] + bytes([after]) + jpeg[at + 1 :]


def test_a_run_that_goes_on_behind_a_restart_or_the_scan_ends_there_as_in_libjpeg():
    image = random_image(np.random.default_rng(2), 64, 64, "gray")
    image.planes[0][..., 1:] = 0
    jpeg = to_jpeg(image, [Scan((0,), 0, 0), Scan((0,), 1, 63)])
    longer = first_byte(jpeg, 0b00000001, 0b01111111)  # code 0, 64 blocks; 127
    assert_equal_to_opencv(longer)
    image.planes[0][2:, :, 1] = 3
    jpeg = to_jpeg(image, [Scan((0,), 0, 0), Scan((0,), 1, 63, restart=16)])
    longer = first_byte(jpeg, 0b11000001, 0b11001111)  # code 110, 16 blocks; 23
    assert_coefficients(assert_equal_to_opencv(longer), image)


def files_that_define_quantisation_tables_again() -> list[bytes]:
    image = random_image(np.random.default_rng(4), 40, 40, "4:2:0")
    tables = b"".join(scan_script._segment(0xDB, bytes([c, *range(20 + c, 84 + c)])) for c in range(3))
    script = [
        Scan((0,), 0, 0),
        Scan((1, 2), 0, 0, before=tables),
        Scan((0,), 1, 63),
        Scan((1,), 1, 63),
        Scan((2,), 1, 63),
    ]
    one_by_one = [Scan((0,)), Scan((1,), before=tables), Scan((2,))]
    return [to_jpeg(image, script), to_jpeg(image, one_by_one, progressive=False)]


def test_a_quantisation_table_counts_as_it_is_at_the_first_scan_of_a_component():
    for jpeg in files_that_define_quantisation_tables_again():
        assert_equal_to_opencv(jpeg)


def file_of_several_scans_without_huffman_tables() -> bytes:
    """Components of a file with the standard's tables, which the encoder of the tests does not write, one by one."""
    parts = [sample("4:4:4", width=8, height=8, restart=0)]
    tables = {table[0]: table for payload in parts[0].payloads(DHT) for table in huffman_tables(payload)}
    assert sorted(tables) == [0x00, 0x01, 0x10, 0x11]
    # DC difference 0 is 00 in table 0, end of block 1010 in table 1: one block for each component.
    image = Image(8, 8, "4:4:4", tuple(np.zeros((1, 1, 64), np.int64) for _ in range(3)))
    jpeg = to_jpeg(image, [Scan((c,), tables=False) for c in range(3)], progressive=False)
    end = b"\0\x3f\0"
    assert jpeg.count(end) == 3
    data = int("00" + "1010" + "11", 2)
    for _ in range(3):
        at = jpeg.index(end) + 3
        jpeg = jpeg[: at - 3] + b"\0\x3e\0" + bytes([data]) + jpeg[at + 1 :]
    return jpeg.replace(b"\0\x3e\0", end)


def test_huffman_tables_are_the_standards_where_a_sequential_file_has_none():
    assert_equal_to_opencv(file_of_several_scans_without_huffman_tables())


def test_what_is_wanted_of_the_image_bounds_only_the_last_pass():
    image, script = random_image(np.random.default_rng(5), 60, 150, "4:2:0"), libjpeg_script(3)
    jpeg = to_jpeg(image, script)
    for first, count in ((0, 1), (37, 60), (149, 1), (0, 150)):
        decoded = decode(jpeg, rows=(60, 150, first, count))
        np.testing.assert_array_equal(decoded.pixels, golden(jpeg)[first : first + count])
        assert_coefficients(decoded, image)
    damaged = to_jpeg(image, [*script[:-1], replace(script[-1], high=2)])
    assert decode(damaged, rows=(60, 150, 0, 1)).status == STATUS["CORRUPT_HEADER"]


# ---- The workspace ----


def test_a_workspace_that_is_too_small_is_left_alone_and_the_size_said():
    for seed in range(12):
        image, script = random_file(seed)
        jpeg = to_jpeg(image, script)
        exact = assert_equal_to_opencv(jpeg, image.workspace_bytes)
        assert exact.needed == image.workspace_bytes
        small = decode(jpeg, image.workspace_bytes - 16)
        assert (small.status, small.needed) == (STATUS["BUFFER_TOO_SMALL"], image.workspace_bytes)


def test_without_a_workspace_such_files_are_refused_as_decode_does():
    image = random_image(np.random.default_rng(1), 30, 30, "4:2:0")
    assert decode(to_jpeg(image, libjpeg_script(3)), 0).status == STATUS["PROGRESSIVE"]
    one_by_one = to_jpeg(image, [Scan((c,)) for c in range(3)], progressive=False)
    assert decode(one_by_one, 0).status == STATUS["MULTIPLE_SCANS"]


def test_a_file_of_one_sequential_scan_needs_no_workspace():
    decoded = decode(sample().to_bytes(), 16)
    assert (decoded.status, decoded.needed) == (STATUS["OK"], 0)


# ---- Files that are refused ----

DC = Scan((0, 1, 2), 0, 0)
AC = [Scan((c,), 1, 63) for c in range(3)]


def scripted(*script: Scan, progressive: bool = True, sampling: str = "4:2:0") -> bytes:
    return to_jpeg(random_image(np.random.default_rng(6), 33, 35, sampling), list(script), progressive)


def one_coefficient_a_scan(scans: int) -> bytes:
    """64 first scans of gray and then one bit more of a coefficient each, the coarsest ones first."""
    bits = [2] * (scans - 128) + [1] * 64
    first = [Scan((0,), k, k, 0, bits[k]) for k in range(64)]
    more = [Scan((0,), k, k, bit, bit - 1) for k in range(64) for bit in range(bits[k], 0, -1)]
    return scripted(*first, *more, sampling="gray")


def with_symbol(jpeg: bytes, scan: int, symbol: int) -> bytes:
    """The first symbol of a scan's Huffman table becomes another."""
    at = -1
    for _ in range(scan + 1):
        at = jpeg.index(b"\xff\xc4", at + 1)
    return jpeg[: at + 21] + bytes([symbol]) + jpeg[at + 22 :]


def one_block(*script: Scan, dc: int = 0, ac: int = 1) -> bytes:
    block = np.zeros((1, 1, 64), np.int64)
    block[0, 0, [0, 5]] = dc, ac
    return to_jpeg(Image(8, 8, "gray", (block,)), list(script))


GRAY = (Scan((0,), 0, 0), Scan((0,), 1, 63))
# The second bit of the coefficient 5, by itself: its one symbol is a bit, its sign another, and six are padding.
ONE_BIT_MORE = (Scan((0,), 0, 0), Scan((0,), 1, 4), Scan((0,), 5, 5, 0, 1), Scan((0,), 5, 5, 1, 0), Scan((0,), 6, 63))

REFUSED = {
    "AC before DC": ("CORRUPT_HEADER", lambda: scripted(AC[0], DC, *AC[1:])),
    "DC with some AC": ("CORRUPT_HEADER", lambda: scripted(Scan((0,), 0, 5), DC, *AC)),
    "AC of two components": ("CORRUPT_HEADER", lambda: scripted(DC, Scan((0, 1), 1, 63), AC[2])),
    "band that ends before it begins": ("CORRUPT_HEADER", lambda: scripted(DC, Scan((0,), 5, 4), *AC)),
    "band beyond the block": ("CORRUPT_HEADER", lambda: scripted(DC, *AC).replace(b"\x01\x3f\0", b"\x01\x40\0", 1)),
    "14 bits left": ("CORRUPT_HEADER", lambda: scripted(DC, replace(AC[0], low=14), *AC[1:])),
    "two bits more": ("CORRUPT_HEADER", lambda: scripted(replace(DC, low=2), replace(DC, high=2), *AC)),
    "bits that do not follow": ("CORRUPT_HEADER", lambda: scripted(replace(DC, low=2), replace(DC, high=1), *AC)),
    "more bits before the first": ("CORRUPT_HEADER", lambda: scripted(DC, replace(AC[0], high=1), *AC[1:])),
    "coefficients sent twice": ("CORRUPT_HEADER", lambda: scripted(DC, *AC, AC[0])),
    "DC sent twice": ("CORRUPT_HEADER", lambda: scripted(DC, DC, *AC)),
    "sequential component sent twice": (
        "CORRUPT_HEADER",
        lambda: scripted(*[Scan((c,)) for c in (0, 1, 1, 2)], progressive=False),
    ),
    "sequential with a band": ("CORRUPT_HEADER", lambda: scripted(Scan((0,), 0, 5), progressive=False)),
    "components out of order": ("CORRUPT_HEADER", lambda: scripted(replace(DC, components=(1, 0)), *AC)),
    "a component that is not there": (
        "CORRUPT_HEADER",
        lambda: scripted(DC, *AC).replace(b"\x01\x02\0\x01", b"\x01\x09\0\x01"),
    ),
    "reserved marker between scans": ("CORRUPT_HEADER", lambda: scripted(DC, replace(AC[0], before=b"\xff\x02\0\2"))),
    "second frame header": ("CORRUPT_HEADER", lambda: scripted(DC, replace(AC[0], before=b"\xff\xc2\0\2"))),
    "no Huffman table": ("MISSING_TABLE", lambda: scripted(replace(DC, tables=False), *AC)),
    "no AC table": ("MISSING_TABLE", lambda: scripted(DC, replace(AC[0], tables=False), *AC[1:])),
    "no quantisation table": ("MISSING_TABLE", lambda: scripted(DC, *AC).replace(b"\xff\xdb", b"\xff\xfe", 1)),
    "129 scans": ("MULTIPLE_SCANS", lambda: one_coefficient_a_scan(MAX_SCANS + 1)),
    "a component is missing": ("TRUNCATED", lambda: scripted(Scan((0,)), Scan((1,)), progressive=False)),
    "no DC of a component": ("TRUNCATED", lambda: scripted(Scan((0, 1), 0, 0), AC[0], AC[1])),
    "no AC of a component": ("TRUNCATED", lambda: scripted(DC, *AC[:2])),
    "ninth AC coefficient missing": ("TRUNCATED", lambda: scripted(DC, *AC[:2], Scan((2,), 1, 8), Scan((2,), 10, 63))),
    "last bits missing": ("TRUNCATED", lambda: scripted(*libjpeg_script(3)[:-1])),
    "hierarchical": ("PROGRESSIVE", lambda: scripted(DC, *AC).replace(b"\xff\xc2", b"\xff\xc6", 1)),
    "arithmetic": ("ARITHMETIC", lambda: scripted(DC, *AC).replace(b"\xff\xc2", b"\xff\xca", 1)),
    "DC category 12": ("CORRUPT_HUFFMAN", lambda: one_block(*GRAY, dc=2048)),
    "AC category 11": ("CORRUPT_HUFFMAN", lambda: one_block(*GRAY, ac=-1024)),
    "new coefficient of two bits": ("CORRUPT_HUFFMAN", lambda: with_symbol(one_block(*ONE_BIT_MORE), 3, 2)),
    "data behind a scan": ("CORRUPT_HUFFMAN", lambda: scripted(DC, replace(AC[0], before=b"\0\1"), *AC[1:])),
    "much data behind a scan": (
        "CORRUPT_HUFFMAN",
        lambda: scripted(DC, replace(AC[0], before=bytes(50) + b"\1"), *AC[1:]),
    ),
    "restart marker missing": (
        "RESTART_MISMATCH",
        lambda: scripted(replace(DC, restart=2), *AC).replace(b"\xff\xd1", b"", 1),
    ),
    "restart marker without DRI": (
        "RESTART_MISMATCH",
        lambda: scripted(replace(DC, restart=2), *AC).replace(b"\xff\xdd\0\4\0\2", b"", 1),
    ),
    "run beyond the band to what was sent before": (
        "CORRUPT_HUFFMAN",
        lambda: with_symbol(scripted(DC, Scan((0,), 6, 63), Scan((0,), 1, 5)), 2, 0x51),
    ),
    "run beyond the band": ("CORRUPT_HUFFMAN", lambda: with_symbol(scripted(DC, Scan((0,), 1, 5)), 1, 0x51)),
    "16 zeros beyond the band": ("CORRUPT_HUFFMAN", lambda: with_symbol(scripted(DC, Scan((0,), 1, 5)), 1, 0xF0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_file_that_cannot_be_decoded_ends_in_its_status(name):
    expected, build = REFUSED[name]
    assert decode(build()).status == STATUS[expected]


TAKEN = {
    "DC category 11": lambda: one_block(*GRAY, dc=2047),
    "AC category 10": lambda: one_block(*GRAY, ac=-1023),
    "new coefficient of one bit": lambda: one_block(*ONE_BIT_MORE),
    "AC coefficients from the tenth on missing": lambda: scripted(DC, *(Scan((c,), 1, 9) for c in range(3))),
    "last bits of these missing": lambda: scripted(
        DC, *(Scan((c,), 1, 9) for c in range(3)), *(Scan((c,), 10, 63, 0, 2) for c in range(3))
    ),
    "last bits of DC missing": lambda: scripted(replace(DC, low=1), *AC),
    "128 scans": lambda: one_coefficient_a_scan(MAX_SCANS),
    "a comment between scans": lambda: scripted(DC, replace(AC[0], before=b"\xff\xfe\0\4ab"), *AC[1:]),
    "restart markers and zeros behind a scan": lambda: scripted(DC, *(replace(s, before=b"\0\0\xff\xd3") for s in AC)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_libjpeg_takes_without_guessing_equals_opencv(name):
    assert_equal_to_opencv(TAKEN[name]())


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize("restart", [0, 2])
def test_file_cut_off_anywhere_is_reported_as_truncated(restart, step):
    image = random_image(np.random.default_rng(9), 33, 20, "4:2:0")
    jpeg = to_jpeg(image, scan_script.with_all(libjpeg_script(3), restart=restart))
    for length in range(2, len(jpeg), step):
        assert decode(jpeg[:length]).status == STATUS["TRUNCATED"], length


LAST = {
    "DC refined": [replace(GRAY[0], low=1), GRAY[1], replace(GRAY[0], high=1)],
    "AC": [*GRAY],
    "AC refined": [GRAY[0], replace(GRAY[1], low=1), replace(GRAY[1], high=1)],
}


@pytest.mark.parametrize("name", LAST)
def test_a_last_scan_that_lacks_bits_is_reported_as_truncated(name):
    """Its last byte has bits of some of the 16 blocks."""
    image = random_image(np.random.default_rng(3), 32, 32, "gray")
    image.planes[0][..., 0], image.planes[0][..., 63] = np.arange(16).reshape(4, 4) * 9, 900
    jpeg = to_jpeg(image, LAST[name])
    assert_equal_to_opencv(jpeg)
    assert decode(jpeg[:-3] + jpeg[-2:]).status == STATUS["TRUNCATED"]


# ---- Damaged files ----


def mutants(count: int, seed: int) -> list[bytes]:
    """Bits, bytes, pieces, markers and whole scans, of files of libjpeg and of any script."""
    rng = np.random.default_rng(seed)
    originals = []
    for number in range(40):
        if number % 2:
            image, script = random_file(1000 * seed + number, most=40)
            originals.append(to_jpeg(image, script))
        elif number % 10 == 0:
            image = random_image(rng, *map(int, rng.integers(1, 60, 2)), list(SAMPLINGS)[number % 5])
            script = [Scan(g, restart=number % 20) for g in list(SEQUENTIAL.values())[number // 10]]
            originals.append(to_jpeg(image, script, progressive=False))
        else:
            pixels = picture(rng, *map(int, rng.integers(1, 60, 2)))
            originals.append(encode(pixels, int(rng.integers(5, 100)), list(SAMPLINGS)[number % 5], number % 3))
    return [_mutate(rng, originals[number % 40]) for number in range(count)]


def _mutate(rng: np.random.Generator, jpeg: bytes) -> bytes:
    data = bytearray(jpeg)
    markers = [i for i in range(2, len(data) - 1) if data[i] == 0xFF and data[i + 1] not in (0, 0xFF)]
    scans = [i for i in markers if data[i + 1] == 0xDA]
    scan = scans[rng.integers(len(scans))]
    kind, at = rng.integers(10), int(rng.integers(2, len(data)))
    if kind < 3:  # a bit of the data: most often still valid codes
        data[rng.integers(scan + 10, len(data) - 2)] ^= 1 << rng.integers(8)
    elif kind == 3:  # a few bits anywhere
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    elif kind == 4:  # the band or the bits of a scan
        end = scan + 1 + data[scan + 3]
        data[end - int(rng.integers(0, 3))] ^= 1 << rng.integers(8)
    elif kind == 5:
        del data[at:]
    elif kind == 6:  # a piece is lost or repeated
        piece = data[at : at + int(rng.integers(1, 20))]
        data[at : at + len(piece)] = piece * int(rng.choice([0, 2]))
    elif kind == 7:  # a marker becomes another, or comes where none was
        if rng.integers(2):
            data[markers[rng.integers(len(markers))] + 1] = rng.integers(256)
        else:
            data[at:at] = bytes([0xFF, rng.integers(256)])
    elif kind == 8:  # what is between two markers is lost or comes twice
        ends = [*markers, len(data)]
        number = int(rng.integers(len(markers)))
        piece = data[ends[number] : ends[number + 1]]
        data[ends[number] : ends[number + 1]] = piece * int(rng.choice([0, 2]))
    else:  # a symbol of a Huffman table, or a count
        table = [i for i in markers if data[i + 1] == 0xC4]
        place = table[rng.integers(len(table))]
        data[place + 4 + int(rng.integers(0, 30))] = rng.integers(256)
    return bytes(data)


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(700, 1, id="700"),
        *(pytest.param(6000, n, marks=SLOW, id=f"corpus {n}") for n in range(1, 7)),
    ],
)
def test_damaged_files_end_in_opencv_pixels_or_a_status(csim_executable, tmp_path, count, seed):
    """Under the address and UB sanitizers, each file within the bench's bound on time."""
    files = mutants(count, seed)
    corpus = tmp_path / "corpus"
    corpus.write_bytes(b"".join(len(file).to_bytes(4, "little") + file for file in files))
    program = csim_executable("progressive")
    done = subprocess.run([program, corpus, str(WORKSPACE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results = [tuple(int(value) for value in line.split()) for line in done.stdout.splitlines()]
    assert len(results) == len(files)
    seen = Counter(status for status, *_ in results)
    different = []
    for number, (file, (status, width, height, crc, _)) in enumerate(zip(files, results, strict=True)):
        if status == STATUS["OK"]:
            expected = golden(file)
            if expected is None or expected.shape != (height, width, 3) or zlib.crc32(expected.tobytes()) != crc:
                different.append(number)
    assert not different, f"{len(different)} of {seen}: {different[:20]}"
    assert seen[STATUS["OK"]] > count // 10 and len(seen) >= 9, seen  # the mutations reach what they are meant to
