"""Encodes coefficients into JPEG files by a script of scans: any order, bands, bits, tables and restart intervals.

After ITU-T T.81 annexes F and G. Nothing is checked: a script that no decoder should take is encoded as well.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

Coefficients = NDArray[np.int64]  # of a component: [block row, block column, 64 in zigzag order]

SAMPLING = {
    "4:4:4": (1, 1),
    "4:2:2": (2, 1),
    "4:4:0": (1, 2),
    "4:2:0": (2, 2),
    "4:1:1": (4, 1),
    "4:1:0": (4, 2),
    "gray": (1, 1),
}
MIXED = ["2x2 1x2 1x2", "2x2 2x1 1x1", "4x2 1x1 1x1", "4x1 2x1 1x1", "2x1 2x1 2x1", "1x4 1x2 1x1", "2x4 1x1 1x1"]
ZIGZAG = sorted(range(64), key=lambda at: (at // 8 + at % 8, (at // 8 if (at // 8 + at % 8) % 2 else at % 8)))
LONGEST_RUN = 32767  # of blocks without new coefficients


def factors_of(sampling: str) -> list[tuple[int, int]]:
    """Of each component: by a name, or written out as "2x2 1x2 1x2"."""
    if "x" in sampling:
        return [(int(factors[0]), int(factors[2])) for factors in sampling.split()]
    return [SAMPLING[sampling]] if sampling == "gray" else [SAMPLING[sampling], (1, 1), (1, 1)]


@dataclass(frozen=True, slots=True)
class Scan:
    """A sequential one has the band 0 to 63. `end_of_band_runs` is the longest run that the encoder uses."""

    components: tuple[int, ...]
    first: int = 0
    last: int = 63
    high: int = 0
    low: int = 0
    restart: int = 0
    end_of_band_runs: int = LONGEST_RUN
    before: bytes = b""  # segments in front of this scan
    tables: bool = True  # its Huffman tables stand in front of it


@dataclass(frozen=True, slots=True)
class Image:
    width: int
    height: int
    sampling: str
    planes: tuple[Coefficients, ...]  # blocks of whole MCUs
    quant: tuple[tuple[int, ...], ...] = field(default=((1,) * 64,) * 3)

    @property
    def factors(self) -> list[tuple[int, int]]:
        return factors_of(self.sampling)

    @property
    def most(self) -> tuple[int, int]:
        """The blocks of an MCU across and down, where there are most."""
        return tuple(map(max, zip(*self.factors, strict=True)))

    def seen(self, component: int) -> tuple[int, int]:
        """Rows and columns of blocks that have a sample of the image."""
        (h, v), (max_h, max_v) = self.factors[component], self.most
        return _up(self.height * v, 8 * max_v), _up(self.width * h, 8 * max_h)

    @property
    def workspace_bytes(self) -> int:
        return sum(2 * plane.size for plane in self.planes)


def _up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def random_image(rng: np.random.Generator, width: int, height: int, sampling: str) -> Image:
    """Coefficients as photos have them: few, and smaller towards the end of a block."""
    factors = factors_of(sampling)
    across, down = _up(width, 8 * max(h for h, _ in factors)), _up(height, 8 * max(v for _, v in factors))
    density = float(rng.choice([0.02, 0.1, 0.3, 0.7]))
    planes = []
    for h, v in factors:
        shape = (down * v, across * h, 64)
        scale = 1 + 60 / (1 + np.arange(64)) ** rng.uniform(0.3, 1.5)
        plane = np.rint(rng.laplace(0, 1, shape) * scale).astype(np.int64)
        plane[rng.random(shape) > density] = 0
        plane[rng.random(shape[:2]) < 0.3, 1:] = 0
        plane[..., 0] = rng.integers(-120, 121, shape[:2])
        planes.append(plane.clip(-1023, 1023))
    quant = tuple(tuple(int(q) for q in rng.integers(1, 9, 64)) for _ in range(3))
    return Image(width, height, sampling, tuple(planes), quant)


def photo_image(bgr: NDArray[np.uint8], sampling: str, coarseness: int) -> Image:
    """A photo as an encoder would have it: `coarseness` 1 keeps nearly everything, 8 little."""
    height, width = bgr.shape[:2]
    factors = factors_of(sampling)
    max_h, max_v = (max(pair[i] for pair in factors) for i in (0, 1))
    across, down = _up(width, 8 * max_h), _up(height, 8 * max_v)
    y, x = np.mgrid[:8, :8]
    steps = coarseness * (2 + y + x)
    planes = []
    for plane, (h, v) in zip(
        np.moveaxis(cv2.cvtColor(bgr, cv2.COLOR_BGR2YCrCb), 2, 0)[[0, 2, 1]], factors, strict=True
    ):
        whole = np.pad(plane, ((0, 8 * max_v * down - height), (0, 8 * max_h * across - width)), "edge")
        shrunk = cv2.resize(whole, (8 * h * across, 8 * v * down), interpolation=cv2.INTER_AREA)
        blocks = shrunk.reshape(v * down, 8, h * across, 8).swapaxes(1, 2).astype(np.float64) - 128
        cosines = np.sqrt((1 + (y > 0)) / 8) * np.cos((2 * x + 1) * y * np.pi / 16)
        coefficients = np.rint(cosines @ blocks @ cosines.T / steps).astype(np.int64)
        planes.append(coefficients.reshape(v * down, h * across, 64)[..., ZIGZAG])
    return Image(width, height, sampling, tuple(planes), (tuple(int(q) for q in steps.reshape(64)[ZIGZAG]),) * 3)


def to_jpeg(image: Image, script: list[Scan], progressive: bool = True) -> bytes:
    out = bytearray(b"\xff\xd8")
    for number in range(len(image.planes)):
        out += _segment(0xDB, bytes([number, *image.quant[number]]))
    frame = bytes([8]) + image.height.to_bytes(2, "big") + image.width.to_bytes(2, "big") + bytes([len(image.planes)])
    for c, (h, v) in enumerate(image.factors):
        frame += bytes([c + 1, h << 4 | v, c])
    out += _segment(0xC2 if progressive else 0xC0, frame)
    interval = 0
    for scan in script:
        out += scan.before
        if scan.restart != interval:
            out += _segment(0xDD, scan.restart.to_bytes(2, "big"))
            interval = scan.restart
        out += _scan(image, scan, progressive)
    return bytes(out + b"\xff\xd9")


def symbol_count(image: Image, script: list[Scan], progressive: bool = True) -> int:
    """Huffman symbols in the file that `to_jpeg` makes of the same."""
    return sum(
        table >= 0
        for scan in script
        for mcus in _intervals(image, scan)
        for table, _, _ in _items(image, scan, progressive, mcus)
    )


def _segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2, "big") + payload


# ---- A scan ----

Item = tuple[int, int, str]  # class of the table (0 DC, 1 AC), or -1; symbol; bits behind it


def _scan(image: Image, scan: Scan, progressive: bool) -> bytes:
    intervals = [_items(image, scan, progressive, mcus) for mcus in _intervals(image, scan)]
    codes, tables = {}, b""
    for kind in (0, 1):
        counts = Counter(symbol for items in intervals for table, symbol, _ in items if table == kind)
        if counts:
            table, codes[kind] = _huffman_table(kind, counts)
            tables += _segment(0xC4, table)
    header = bytes([len(scan.components)])
    for c in scan.components:
        header += bytes([c + 1, 0])
    header += bytes([scan.first, scan.last, scan.high << 4 | scan.low])
    data = b""
    for number, items in enumerate(intervals):
        if number:
            data += bytes([0xFF, 0xD0 + (number - 1) % 8])
        bits = "".join((codes[table][symbol] if table >= 0 else "") + more for table, symbol, more in items)
        bits += "1" * (-len(bits) % 8)
        data += int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:].replace(b"\xff", b"\xff\0")
    return (tables if scan.tables else b"") + _segment(0xDA, header) + data


def _intervals(image: Image, scan: Scan) -> list[list[list[tuple[int, NDArray[np.int64]]]]]:
    """MCUs of each restart interval, each a list of blocks with their components."""
    if len(scan.components) == 1:
        c = scan.components[0]
        rows, columns = image.seen(c)
        mcus = [[(c, image.planes[c][y, x])] for y in range(rows) for x in range(columns)]
    else:
        across = image.planes[0].shape[1] // image.factors[0][0]
        down = image.planes[0].shape[0] // image.factors[0][1]
        mcus = [
            [
                (c, image.planes[c][y * v + j, x * h + i])
                for c in scan.components
                for h, v in [image.factors[c]]
                for j in range(v)
                for i in range(h)
            ]
            for y in range(down)
            for x in range(across)
        ]
    step = scan.restart or len(mcus)
    return [mcus[at : at + step] for at in range(0, len(mcus), step)]


def _items(image: Image, scan: Scan, progressive: bool, mcus: list[list[tuple[int, NDArray[np.int64]]]]) -> list[Item]:
    items: list[Item] = []
    predictor = dict.fromkeys(scan.components, 0)
    run = _EndOfBandRun(items, scan.end_of_band_runs if progressive else 0)
    for mcu in mcus:
        for c, block in mcu:
            values = block.tolist()
            if scan.first == 0 and scan.high:
                items.append((-1, 0, str(values[0] >> scan.low & 1)))
            elif scan.first == 0:
                dc = values[0] >> scan.low
                size, bits = _bits(dc - predictor[c])
                items.append((0, size, bits))
                predictor[c] = dc
            if scan.last > 0 and scan.high:
                _refine(values, scan, items, run)
            elif scan.last > 0:
                _first_pass(values, scan, items, run)
    run.flush()
    return items


@cache
def _bits(value: int) -> tuple[int, str]:
    size = abs(value).bit_length()
    return size, f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else ""


class _EndOfBandRun:
    """Blocks whose band has no new coefficient any more, with the correction bits of their last ones."""

    def __init__(self, items: list[Item], longest: int) -> None:
        self._items, self._longest, self._blocks, self._corrections = items, longest, 0, ""

    def add(self, corrections: str = "") -> None:
        self._blocks += 1
        self._corrections += corrections
        if self._blocks >= self._longest:
            self.flush()

    def flush(self) -> None:
        if self._blocks:
            size = self._blocks.bit_length() - 1
            bits = f"{self._blocks - (1 << size):0{size}b}" if size else ""
            self._items.append((1, size << 4, bits + self._corrections))
        self._blocks, self._corrections = 0, ""


def _first_pass(values: list[int], scan: Scan, items: list[Item], run: _EndOfBandRun) -> None:
    first = max(scan.first, 1)
    behind = first  # the one after the last that was sent
    for k, coefficient in enumerate(values[first : scan.last + 1], first):
        if not coefficient or not (value := abs(coefficient) >> scan.low):
            continue
        zeros, behind = k - behind, k + 1
        run.flush()
        for _ in range(zeros // 16):
            items.append((1, 0xF0, ""))
        size, bits = _bits(value if coefficient > 0 else -value)
        items.append((1, zeros % 16 << 4 | size, bits))
    if behind <= scan.last:
        run.add()


def _refine(values: list[int], scan: Scan, items: list[Item], run: _EndOfBandRun) -> None:
    magnitudes = [abs(value) >> scan.low for value in values]
    new = [k for k in range(scan.first, scan.last + 1) if magnitudes[k] == 1]
    zeros, corrections = 0, ""
    for k in range(scan.first, scan.last + 1):
        if magnitudes[k] == 0:
            zeros += 1
            continue
        while zeros > 15 and new and k <= new[-1]:
            run.flush()
            items.append((1, 0xF0, corrections))
            zeros, corrections = zeros - 16, ""
        if magnitudes[k] > 1:
            corrections += str(magnitudes[k] & 1)
            continue
        run.flush()
        items.append((1, zeros << 4 | 1, ("1" if values[k] > 0 else "0") + corrections))
        zeros, corrections = 0, ""
    if zeros or corrections:
        run.add(corrections)


def _huffman_table(kind: int, counts: Counter[int]) -> tuple[bytes, dict[int, str]]:
    """The eight most frequent symbols have codes of 1 to 8 bits, the others of 16."""
    symbols = [symbol for symbol, _ in counts.most_common()]
    lengths = [*range(1, 9)][: len(symbols)] + [16] * (len(symbols) - 8)
    codes, code, before = {}, 0, 0
    for symbol, length in zip(symbols, lengths, strict=True):
        code <<= length - before
        codes[symbol] = f"{code:0{length}b}"
        code, before = code + 1, length
    numbers = [lengths.count(length) for length in range(1, 17)]
    return bytes([kind << 4, *numbers, *symbols]), codes


# ---- Scripts ----


def random_script(rng: np.random.Generator, components: int, most: int = 100) -> list[Scan]:
    """A progression of any order that ends with every bit of every coefficient sent, of at most `most` scans."""
    while True:
        script = _any_script(rng, components)
        if len(script) <= most:
            return script


def _any_script(rng: np.random.Generator, components: int) -> list[Scan]:
    unsent, done = 14, 0
    bit = np.full((components, 64), unsent)
    script: list[Scan] = []
    coarsest = int(rng.choice([0, 1, 3]))
    longest_band = int(rng.choice([10, 40, 63]))
    common = {
        "restart": int(rng.choice([0, 0, 1, 3, 50])),
        "end_of_band_runs": int(rng.choice([1, 3, LONGEST_RUN])),
    }
    groups = [(0, 1, 2), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2)] if components == 3 else [(0,)]
    while (bit != done).any():
        dc = [g for g in groups if len({bit[c, 0] for c in g}) == 1 and bit[g[0], 0] != done]
        ac = np.argwhere((bit[:, 1:] != done) & (bit[:, :1] != unsent)) + np.array([0, 1])
        if dc and (len(ac) == 0 or rng.random() < 0.3):
            members, first, last = dc[rng.integers(len(dc))], 0, 0
        else:
            component, first = (int(value) for value in ac[rng.integers(len(ac))])
            last, members = first, (component,)
            length = int(rng.integers(1, longest_band + 1))
            while last < 63 and last - first + 1 < length and bit[component, last + 1] == bit[component, first]:
                last += 1
        before = int(bit[members[0], first])
        low = int(rng.integers(0, coarsest + 1)) if before == unsent else before - 1
        bit[members, first : last + 1] = low
        script.append(Scan(members, first, last, 0 if before == unsent else before, low, **common))
    return script


def libjpeg_script(components: int) -> list[Scan]:
    """libjpeg's own, jpeg_simple_progression."""
    if components == 1:
        return [
            Scan((0,), 0, 0, 0, 1),
            Scan((0,), 1, 5, 0, 2),
            Scan((0,), 6, 63, 0, 2),
            Scan((0,), 1, 63, 2, 1),
            Scan((0,), 0, 0, 1, 0),
            Scan((0,), 1, 63, 1, 0),
        ]
    return [
        Scan((0, 1, 2), 0, 0, 0, 1),
        Scan((0,), 1, 5, 0, 2),
        Scan((2,), 1, 63, 0, 1),
        Scan((1,), 1, 63, 0, 1),
        Scan((0,), 6, 63, 0, 2),
        Scan((0,), 1, 63, 2, 1),
        Scan((0, 1, 2), 0, 0, 1, 0),
        Scan((2,), 1, 63, 1, 0),
        Scan((1,), 1, 63, 1, 0),
        Scan((0,), 1, 63, 1, 0),
    ]


def with_all(script: list[Scan], **changes) -> list[Scan]:
    return [replace(scan, **changes) for scan in script]


# ---- Other tables ----

Table = tuple[int, bytes, bytes]  # its number, how many codes it has of each length, and its symbols
MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7]")  # not within the data of a scan


def with_ac_tables(jpeg: bytes, change: Callable[[int, bytes, bytes], Table]) -> bytes:
    """Change each AC table of a file that `to_jpeg` made. Scans follow a new number."""
    out, at = bytearray(jpeg[:2]), 2
    numbers = {}
    while at < len(jpeg) - 2:
        end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        kind, payload = jpeg[at + 1], jpeg[at + 4 : end]
        if kind == 0xC4 and payload[0] >> 4 == 1:
            number, counts, symbols = change(payload[0] & 15, payload[1:17], payload[17:])
            numbers[payload[0] & 15] = number
            payload = bytes([0x10 | number, *counts, *symbols])
        elif kind == 0xDA:
            selectors = range(2, 2 * payload[0] + 1, 2)
            payload = bytes(
                byte & 0xF0 | numbers.get(byte & 15, 0) if place in selectors else byte
                for place, byte in enumerate(payload)
            )
        out += jpeg[at : at + 2] + (len(payload) + 2).to_bytes(2, "big") + payload
        at = end
        if kind == 0xDA:
            found = MARKER.search(jpeg, end)
            assert found
            at = found.start()
            out += jpeg[end:at]
    return bytes(out + jpeg[-2:])


def beyond_short_codes(number: int, counts: bytes, symbols: bytes) -> Table:
    """Tables 2 and 3 have no short codes in progressive_decoder."""
    return number + 2, counts, symbols


def with_a_strange_symbol(number: int, counts: bytes, symbols: bytes) -> Table:
    """The longest code, of at most 7 bits, is for a coefficient of 15 bits, which no scan has and no block uses."""
    if len(symbols) > 6:
        return number, counts, symbols
    return number, bytes([1] * (len(symbols) + 1)).ljust(16, b"\0"), symbols + b"\x0f"
