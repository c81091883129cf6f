"""Test the bounds of a spec, the passes of its plan, and the rounding of bfloat16."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.reading import CLASSES, from_hf
from headrace.host.dpu.processors import (
    BFLOAT16,
    DTYPES,
    MAX_PIXELS,
    MAX_SIDE,
    Crop,
    Engine,
    Extra,
    Filter,
    FixedSize,
    GridCanvas,
    Images,
    MergedPatches,
    Pad,
    PaddedPatches,
    Pass,
    Placement,
    ProcessorSpec,
    Size,
    Square,
    Thumbnail,
    Tiles,
    tensor,
)

TILED = Tiles(Size(4, 4), GridCanvas(1, 2), Thumbnail.LAST)


def spec_with(**settings):
    return ProcessorSpec("a processor", Filter.BOX, Engine.PILLOW13, **settings)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"mean": (0, 0, 0)}, "give both image_mean and image_std, or neither"),
        ({"mean": (0, 0, 0), "std": (1, 0, 1)}, "each value must be above 0"),
        ({"place": Crop(Size(8193, 8192))}, "a canvas of 8193x8192 is too large; give at most 67108864 pixels in all"),
        ({"place": Pad(Size(8192, 8193), middle=True)}, "a canvas of 8192x8193 is too large"),
        ({"place": Square((0, 0, 0)), "tiles": TILED}, "tiles have a canvas of their own"),
        ({"layout": PaddedPatches(8192, 2)}, "2 patches of 8192x8192 are too many; give at most 67108864 pixels"),
    ],
)
def test_a_spec_outside_its_range_is_refused(settings, told):
    with pytest.raises(UsageError, match=told):
        spec_with(**settings)


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({"place": Crop(Size(8192, 8192))}, (5, 5)),
        ({"place": Pad(Size(4, 5), middle=False)}, (4, 5)),
        ({"layout": PaddedPatches(8192, 1)}, (5, 5)),
        ({"sizes": (FixedSize(65535, 5),)}, (5, 5)),
        ({"sizes": (FixedSize(8192, 8192),)}, (5, 5)),
        ({"layout": Images(slots=1 << 26)}, (1, 1)),
    ],
)
def test_the_largest_values_are_taken(settings, source):
    assert spec_with(**settings).plan(Size(*source)).images == 1


@pytest.mark.parametrize(
    ("settings", "source", "told"),
    [
        ({"sizes": (FixedSize(65536, 5),)}, (5, 5), "resizes 5x5 to 65536x5; each side must be 1 to 65535 pixels"),
        ({"sizes": (FixedSize(65536, 1), FixedSize(5, 5))}, (5, 5), "to 65536x1; each side must be 1 to 65535 pixels"),
        (
            {"sizes": (FixedSize(9000, 9000), FixedSize(5, 5))},
            (5, 5),
            "the image must have at most 67108864 pixels, also",
        ),
        ({"sizes": (FixedSize(9000, 5),)}, (5, 9000), "resizes 5x9000 to 9000x5; the image must have at most 67108864"),
        ({"sizes": (FixedSize(0, 1),)}, (5, 5), "to 0x1; each side must be 1"),
        ({"place": Pad(Size(4, 4), middle=False)}, (4, 5), "4x5 does not fit into 4x4; give settings"),
        ({"layout": Images(slots=10**8)}, (5, 5), "makes a tensor of 2500000000 pixels of 5x5; at most 67108864"),
        ({"layout": MergedPatches(1, 1, 10**8)}, (5, 5), "makes a tensor of 2500000000 pixels of 5x5"),
    ],
)
def test_a_source_that_would_need_too_much_memory_is_refused(settings, source, told):
    with pytest.raises(UsageError, match=told):
        spec_with(**settings).plan(Size(*source))


def test_the_passes_of_idefics3_are_chained():
    plan = from_hf({"image_processor_type": "Idefics3ImageProcessor"}).plan(Size(640, 427))
    tile, canvas = Size(364, 364), Size(1456, 1092)
    assert plan.passes == (
        Pass(None, Size(1456, 972)),
        Pass(0, canvas, Placement(canvas, tile)),
        Pass(1, tile, Placement(tile, tile)),
    )
    assert (plan.images, plan.image) == (13, tile)


def test_the_passes_of_ovis2_read_the_source_and_the_thumbnail_comes_first():
    settings = {"image_processor_type": "Ovis2ImageProcessor", "crop_to_patches": True, "max_patches": 2}
    plan = from_hf({**settings, "size": {"height": 100, "width": 100}}).plan(Size(400, 200))
    tile = Size(100, 100)
    assert [each.of for each in plan.passes] == [None, None]
    assert [each.placement.canvas for each in plan.passes] == [tile, Size(100, 200)]
    one = from_hf(settings).plan(Size(20, 20))
    assert [each.size for each in one.passes] == [Size(384, 384)]


def test_the_place_of_an_image_is_the_middle_or_the_corner():
    size, canvas = Size(5, 2), Size(10, 5)
    assert Pad(canvas, middle=True).of(size, Engine.TORCHVISION) == Placement(canvas, canvas, 2, 1)
    assert Pad(canvas, middle=False).of(size, Engine.TORCHVISION) == Placement(canvas, canvas)
    assert Crop(canvas).of(size, Engine.PILLOW13) == Placement(canvas, canvas, 3, 2)
    assert Crop(Size(2, 2)).of(size, Engine.TORCHVISION) == Placement(Size(2, 2), Size(2, 2), -1, 0)
    assert Square((1, 2, 3)).of(size, Engine.PILLOW13) == Placement(Size(5, 5), Size(5, 5), 0, 1, (1, 2, 3))


@given(
    name=st.sampled_from(sorted(set(CLASSES) - {"LlavaNextImageProcessor"})),
    width=st.integers(1, 3000),
    height=st.integers(1, 3000),
)
def test_a_plan_reads_earlier_passes_and_every_tensor_has_its_shape(name, width, height):
    spec = from_hf({"image_processor_type": name})
    try:
        plan = spec.plan(Size(width, height))
    except UsageError:
        return
    for number, each in enumerate(plan.passes):
        assert each.of is None or each.of < number
        assert 1 <= min(each.size) <= max(each.size) <= MAX_SIDE
        assert each.size.width * each.size.height <= MAX_PIXELS
        if each.placement is not None:
            assert each.placement.tile == plan.image
            assert each.placement.canvas.width % plan.image.width == 0
            assert each.placement.canvas.height % plan.image.height == 0
    for _, what in spec.extras:
        assert tensor(what, plan, spec.layout).size <= max(MAX_PIXELS, plan.images)


@pytest.mark.parametrize(("what", "layout"), [(Extra.PATCH_MASK, Images()), (Extra.IMAGES, MergedPatches(1, 1, 1))])
def test_a_tensor_that_a_layout_does_not_have_is_an_error(what, layout):
    with pytest.raises(ValueError, match="has no tensor with"):
        tensor(what, spec_with().plan(Size(1, 1)), layout)


@given(
    factor=st.floats(2**-20, 8, width=32),
    mean=st.tuples(*[st.floats(-2, 2, width=32)] * 3),
    std=st.tuples(*[st.floats(2**-7, 4, width=32)] * 3),
    bfloat16=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
def test_a_cast_table_rounds_as_torch_does(factor, mean, std, bfloat16, dtype):
    spec = ProcessorSpec(
        "a processor", Filter.BICUBIC, Engine.TORCHVISION, rescale=factor, mean=mean, std=std, bfloat16=bfloat16
    )
    values = spec.table()
    if bfloat16:
        values = (values["bfloat16"].astype(np.uint32) << 16).view(np.float32)
    expected = torch.from_numpy(values.copy()).to(getattr(torch, dtype))
    found = spec.cast(dtype).table()
    if dtype == "bfloat16":
        found, expected = found["bfloat16"], expected.view(torch.uint16)
    assert found.dtype == expected.numpy().dtype and np.array_equal(found, expected.numpy())


def test_a_cast_that_is_none_is_refused():
    with pytest.raises(UsageError, match="there is no dtype 'int8'; choose from float32, float16, bfloat16"):
        spec_with().cast("int8")
    with pytest.raises(UsageError, match="makes patches, whose channels have their place; leave out channels_last"):
        spec_with(layout=MergedPatches(14, 2, 2)).cast(channels_last=True)


@given(
    factor=st.floats(2**-20, 8, width=32),
    mean=st.tuples(*[st.floats(-2, 2, width=32)] * 3),
    std=st.tuples(*[st.floats(2**-7, 4, width=32)] * 3),
)
def test_a_table_in_bfloat16_rounds_each_step_as_torch_does(factor, mean, std):
    table = ProcessorSpec(
        "a processor", Filter.BICUBIC, Engine.TORCHVISION, rescale=factor, mean=mean, std=std, bfloat16=True
    ).table()
    pixels = torch.arange(256).expand(3, 256).to(torch.bfloat16) * factor
    mean, std = (torch.tensor(each, dtype=torch.bfloat16)[:, None] for each in (mean, std))
    expected = ((pixels - mean) / std).view(torch.uint16).numpy()
    assert table.dtype == BFLOAT16
    assert np.array_equal(table["bfloat16"], expected)
