"""scaler x {csim, rtlsim} against the reference resampler, which is Pillow and torchvision bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from units import BROKEN, CSIM, RTLSIM, TIMEOUT, on_both

from headrace.batching import UnsupportedInput
from headrace.host.dpu.processors import Engine, Filter, Size
from headrace.host.dpu.reference import resampler
from headrace.host.dpu.specs import Orientation
from headrace.host.dpu.units import scaler
from headrace.host.dpu.units.scaler import EMIT, ENTRY_BYTES, MAX_ENTRIES, TAKE, Box, ScalerTable, Span, needed, table
from headrace.host.dpu.units.status import Status

RNG = np.random.default_rng(0)
OF_ENGINES = [
    (by, engine)
    for engine in resampler.WITH_TAPS
    for by in Filter
    if engine is not Engine.TORCHVISION or by not in (Filter.BOX, Filter.HAMMING)
]


def noise(size: Size) -> np.ndarray:
    return RNG.integers(0, 256, (size.height, size.width, 3), np.uint8)


def edges(size: Size) -> np.ndarray:
    """An image of black and white, which drives sums beyond 0 and 255."""
    return RNG.choice(np.array([0, 255], np.uint8), (size.height, size.width, 3))


def whole(source: Size, target: Size, by: Filter, engine: Engine) -> ScalerTable:
    return table(source, target, by, engine, scaler.whole(target), scaler.whole(source))


def check(units, image: np.ndarray, target: Size, by: Filter, engine: Engine, part: Box | None = None) -> None:
    source = Size(image.shape[1], image.shape[0])
    part = part or scaler.whole(target)
    expected = cut(resampler.resize(image, *target, by, engine), part)
    for given_part in {scaler.whole(source), needed(source, target, by, engine, part)}:
        made = table(source, target, by, engine, part, given_part)
        status, out = units.scaler(cut(image, given_part), made)
        assert status == Status.OK
        assert np.array_equal(out, expected)


def cut(image: np.ndarray, part: Box) -> np.ndarray:
    (left, width), (top, height) = part
    return image[top : top + height, left : left + width]


SIDE = st.integers(1, 160)
SIZES = st.builds(Size, SIDE, SIDE)


@on_both
@settings(max_examples=40)
@given(source=SIZES, target=SIZES, how=st.sampled_from(OF_ENGINES))
def test_any_size_is_the_librarys_bit_for_bit(units, source, target, how):
    check(units, noise(source), target, *how)
    check(units, edges(source), target, *how)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("how", OF_ENGINES, ids=lambda how: f"{how[0].value}-{how[1].value}")
def test_two_thousand_sizes_of_a_filter_are_the_librarys_bit_for_bit(units, how):
    rng = np.random.default_rng(3)
    for number in range(2000):
        sides = [int(2 ** rng.uniform(0, 8)) for _ in range(4)]
        image = (noise, edges)[number % 2](Size(*sides[:2]))
        check(units, image, Size(*sides[2:]), *how)


@on_both
@settings(max_examples=40)
@given(source=SIZES, target=SIZES, how=st.sampled_from(OF_ENGINES), turn=st.sampled_from(Orientation))
def test_a_stored_image_gives_the_result_of_the_upright_one(units, source, target, how, turn):
    upright = noise(source)
    back = {6: Orientation(8), 8: Orientation(6)}.get(turn, turn)  # the others undo themselves
    made = table(source, target, *how, scaler.whole(target), scaler.whole(source), turn)
    status, out = units.scaler(back.turned(upright, 0), made)
    assert status == Status.OK
    assert np.array_equal(turn.turned(out, 0), resampler.resize(upright, *target, *how))


@on_both
@settings(max_examples=40)
@given(data=st.data())
def test_a_part_is_that_of_the_whole_image_and_needs_a_part_of_the_source(units, data):
    source, target = data.draw(SIZES), data.draw(SIZES)
    left, top = data.draw(st.integers(0, target.width - 1)), data.draw(st.integers(0, target.height - 1))
    width = data.draw(st.integers(1, target.width - left))
    height = data.draw(st.integers(1, target.height - top))
    part = Box(Span(left, width), Span(top, height))
    check(units, noise(source), target, *data.draw(st.sampled_from(OF_ENGINES)), part)


@on_both
@pytest.mark.parametrize(
    ("source", "target", "by"),
    [
        ((1, 1), (4096, 3), Filter.LANCZOS),
        ((1, 1), (3, 4096), Filter.BICUBIC),
        ((8190, 2), (64, 2), Filter.BICUBIC),
        ((8192, 2), (8192, 3), Filter.BICUBIC),
        ((4090, 3), (4080, 2), Filter.LANCZOS),
        ((3, 9000), (2, 7), Filter.LANCZOS),
        ((1, 65535), (1, 1), Filter.BICUBIC),
        ((2, 300), (2, 300), Filter.BILINEAR),
        ((301, 2), (301, 2), Filter.BILINEAR),
        ((1040, 12), (1030, 11), Filter.LANCZOS),
        pytest.param((2048, 2048), (1456, 1456), Filter.BICUBIC, marks=pytest.mark.slow),
        pytest.param((640, 480), (1288, 952), Filter.BICUBIC, marks=pytest.mark.slow),
    ],
)
def test_extreme_shapes(units, source, target, by):
    check(units, noise(Size(*source)), Size(*target), by, Engine.PILLOW12)


@on_both
def test_pillow_13_has_columns_first_where_the_height_shrinks_more(units):
    assert whole(Size(60, 300), Size(50, 20), Filter.BICUBIC, Engine.PILLOW13).columns_first
    for by in Filter:
        check(units, edges(Size(61, 300)), Size(51, 21), by, Engine.PILLOW13)
    check(units, noise(Size(61, 300)), Size(51, 21), Filter.LANCZOS, Engine.PILLOW13, Box(Span(3, 20), Span(4, 9)))


def test_a_list_beyond_the_memory_is_refused_with_the_limit():
    for source, target, by in (
        ((8192, 4), (100, 4), Filter.LANCZOS),
        ((10, 4), (8200, 4), Filter.BICUBIC),
        ((8192, 4), (4000, 4), Filter.BICUBIC),  # the last outputs need a step each
    ):
        with pytest.raises(UnsupportedInput, match=str(MAX_ENTRIES)):
            whole(Size(*source), Size(*target), by, Engine.TORCHVISION)


@on_both
@settings(max_examples=40)
@given(data=st.data())
def test_the_image_lies_on_a_canvas_of_a_colour(units, data):
    side = st.integers(1, 40)
    source, target = (Size(data.draw(side), data.draw(side)) for _ in range(2))
    width, height = (kept + data.draw(st.integers(0, 30)) for kept in target)
    left, top = data.draw(st.integers(0, width - target.width)), data.draw(st.integers(0, height - target.height))
    image = noise(source)
    made = whole(source, target, Filter.BICUBIC, Engine.TORCHVISION)
    status, out = units.scaler(image, made, canvas=(width, height, left, top, 0x123456))
    assert status == Status.OK
    expected = np.full((height, width, 3), (0x12, 0x34, 0x56), np.uint8)
    resized = resampler.resize(image, *target, Filter.BICUBIC, Engine.TORCHVISION)
    expected[top : top + target.height, left : left + target.width] = resized
    assert np.array_equal(out, expected)


@on_both
@pytest.mark.parametrize(
    "canvas", [(6, 5, 0, 0), (7, 4, 0, 0), (7, 5, 1, 0), (7, 5, 0, 1), (0, 0, 0, 0), (9, 9, 65535, 0)]
)
def test_an_image_that_does_not_lie_on_the_canvas_ends_in_a_status(units, canvas):
    assert units.scaler(noise(GOOD.source), GOOD, canvas=(*canvas, 0))[0] == Status.BAD_ARGUMENT


class Changed:
    """A table with other numbers than its lists have."""

    def __init__(self, of: ScalerTable, **changes) -> None:
        self._of, self._changes = of, changes

    def __getattr__(self, name):
        return self._changes[name] if name in self._changes else getattr(self._of, name)


GOOD = whole(Size(12, 9), Size(7, 5), Filter.BICUBIC, Engine.TORCHVISION)


@on_both
@pytest.mark.parametrize("size", [(6, 5), (8, 5), (7, 4), (7, 6), (0, 5), (7, 0), (65535, 65535)])
def test_lists_of_another_output_end_in_a_status(units, size):
    status, _ = units.scaler(noise(GOOD.source), Changed(GOOD, out=Size(*size)))
    assert status == Status.BAD_ARGUMENT


@on_both
@pytest.mark.parametrize("source", [(11, 9), (13, 9), (12, 8), (12, 10), (1, 1), (300, 2)])
@pytest.mark.parametrize("columns_first", [False, True])
def test_an_image_of_another_size_ends_in_a_status(units, source, columns_first):
    status, _ = units.scaler(noise(Size(*source)), Changed(GOOD, columns_first=columns_first))
    assert status == Status.BAD_ARGUMENT


@on_both
@pytest.mark.parametrize("wide", [False, True])
def test_a_list_beyond_the_memory_ends_in_a_status(units, wide):
    lists = np.zeros((MAX_ENTRIES + 2, ENTRY_BYTES), np.uint8)
    lists[:, 24] = (TAKE | EMIT) * (5 if wide else 1)
    width = MAX_ENTRIES * (2 if wide else 1)
    fits = Changed(GOOD, wide=wide, row_entries=MAX_ENTRIES, column_entries=2, out=Size(width, 2))
    assert units.scaler(noise(Size(width, 2)), fits, words=lists)[0] == Status.OK
    beyond = Changed(GOOD, wide=wide, row_entries=MAX_ENTRIES + 1, column_entries=1, out=Size(width, 1))
    assert units.scaler(noise(Size(width, 1)), beyond, words=lists)[0] == Status.BAD_ARGUMENT


@on_both
def test_a_frame_with_an_error_passes(units):
    for status in (Status.PROGRESSIVE, Status.NOT_JPEG, Status.CORRUPT_HEADER) * 5:
        assert units.scaler(noise(GOOD.source), GOOD, frame_status=status)[0] == status


@on_both
@pytest.mark.parametrize("given_pixels", [1, 2, 25, 12 * 9 - 1, 12 * 9])
@pytest.mark.parametrize("columns_first", [False, True])
def test_an_early_end_passes_its_status_on(units, given_pixels, columns_first):
    made = Changed(GOOD, columns_first=columns_first)
    status, _ = units.scaler(noise(GOOD.source), made, given=given_pixels, end_status=Status.TRUNCATED)
    assert status == Status.TRUNCATED


@on_both
def test_every_request_stands_alone_whatever_the_one_before_was(units):
    source = GOOD.source
    for before in (
        {"given": 30, "end_status": Status.TRUNCATED},
        {"given": 108, "end_status": Status.CORRUPT_HUFFMAN},
        {"frame_status": Status.NOT_JPEG},
        {},
    ):
        for made in (GOOD, Changed(GOOD, out=Size(7, 6)), Changed(GOOD, columns_first=True)):
            units.scaler(noise(source), made, **before)
            check(units, noise(source), Size(7, 5), Filter.BICUBIC, Engine.TORCHVISION)
            check(units, noise(source), Size(30, 21), Filter.LANCZOS, Engine.PILLOW13)


@settings(max_examples=150)
@given(data=st.data())
def test_rtl_and_cpp_agree_on_damaged_lists(data):
    """Lists are bytes of memory. Whatever they say, both end, with the same status and the same pixels."""
    side = st.integers(1, 12)
    source, target = Size(data.draw(side), data.draw(side)), Size(data.draw(side), data.draw(side))
    made = whole(source, target, data.draw(st.sampled_from(list(Filter))), Engine.PILLOW12)
    words = made.packed().copy()
    for _ in range(data.draw(st.integers(0, 4))):
        words[data.draw(st.integers(0, len(words) - 1))] ^= data.draw(st.integers(1, 255))
    changes = {}
    if data.draw(st.booleans()):
        changes["columns_first"] = data.draw(st.booleans())
        changes["out"] = Size(data.draw(st.integers(0, 13)), data.draw(st.integers(0, 13)))
    image = edges(source)
    status, out = CSIM.scaler(image, Changed(made, **changes), words=words)
    assert status in (Status.OK, Status.BAD_ARGUMENT)
    assert status not in (BROKEN, TIMEOUT)
    of_rtl, rtl = RTLSIM.scaler(image, Changed(made, **changes), words=words)
    assert of_rtl == status
    assert status != Status.OK or np.array_equal(out, rtl)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("source", "target", "by", "of_pixels"),
    [
        ((1024, 256), (728, 182), Filter.BICUBIC, 1024 * 256 / 2),
        ((1024, 256), (224, 224), Filter.BILINEAR, 1024 * 256 / 2),
        ((1024, 256), (728, 182), Filter.LANCZOS, 1024 * 256),
        ((200, 150), (728, 546), Filter.BICUBIC, 728 * 546 / 2),
        ((300, 1000), (298, 224), Filter.BICUBIC, 300 * 1000 / 2),
    ],
)
def test_the_clocks_are_those_of_two_pixels_or_one(source, target, by, of_pixels):
    made = whole(Size(*source), Size(*target), by, Engine.PILLOW13)
    check(RTLSIM, noise(made.source), Size(*target), by, Engine.PILLOW13)
    loaded = 2 * made.row_entries
    assert of_pixels <= RTLSIM.clocks.cycles - loaded <= 1.03 * of_pixels + 2 * made.row_entries
