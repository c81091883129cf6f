"""The classes that make one image: resized, and then cropped or padded."""

from collections.abc import Mapping
from typing import Final

from headrace.host.dpu.hugging_face.settings import (
    CLIP_MEAN,
    CLIP_STD,
    HALF,
    Class,
    Geometry,
    Settings,
    is_count,
    is_real,
    settings_of,
    square,
)
from headrace.host.dpu.processors import (
    Crop,
    Extra,
    FixedSize,
    LongestEdge,
    LongestSide,
    Pad,
    ShortestEdge,
    Size,
    Square,
    Within,
)
from headrace.host.dpu.specs.config_file import Config


def _plain(settings: Settings) -> Geometry:
    """The padding of one image needs a size. Without one, transformers pads to the largest image of a batch."""
    if settings.flag("do_pad") and settings["pad_size"] is not None:
        raise settings.refuse("pad_size", "null, because transformers pads after the normalization")
    return Geometry(settings.sizes(), settings.crop())


def _llava(settings: Settings) -> Geometry:
    settings.must_be(False, "do_pad", "it makes the source a square, and a pass reads the source as it is")
    return Geometry(settings.sizes(), settings.crop())


def _gemma3(settings: Settings) -> Geometry:
    settings.must_be(False, "do_pan_and_scan", "pan and scan crops the source, and a pass reads a whole image")
    return Geometry(settings.sizes(), extras=(("num_crops", Extra.NO_CROPS),))


def _convnext(settings: Settings) -> Geometry:
    """Below 384 pixels, the image is larger by 1 / crop_pct, and cropped. From 384 on it fills the square."""
    settings.no_crop()
    if not settings.flag("do_resize"):
        return Geometry()
    (edge,) = settings.edges("size", "shortest_edge")
    if edge >= 384:
        return Geometry((FixedSize(edge, edge),))
    part = settings["crop_pct"]
    if not is_real(part) or not 0 < part <= 1:
        raise settings.refuse("crop_pct", "a number above 0, at most 1")
    return Geometry((ShortestEdge(int(edge / part)),), Crop(Size(edge, edge)))


def _pixtral(settings: Settings) -> Geometry:
    settings.no_crop()
    sizes = (("image_sizes", Extra.RESULT_SIZE),)
    if not settings.flag("do_resize"):
        return Geometry(extras=sizes)
    longest = settings.names("size", "longest_edge")
    box = Size(*[settings.longest_edge("size")] * 2) if longest else settings.sides("size")
    return Geometry((LongestEdge(box, settings.sides("patch_size")),), extras=sizes)


def _deepseek(settings: Settings) -> Geometry:
    """The square has the mean colour, unless the file says not to pad."""
    mean = settings.values("image_mean")
    if not all(0 <= value <= 1 for value in mean):
        raise settings.refuse("image_mean", "numbers from 0 to 1, because the mean is the colour around the image")
    place = Square((int(mean[0] * 255), int(mean[1] * 255), int(mean[2] * 255))) if settings.flag("do_pad") else None
    if not settings.flag("do_resize"):
        return Geometry(place=place)
    return Geometry((LongestSide(settings.tile().width, settings.number("min_size")),), place)


def _aria(settings: Settings) -> Geometry:
    """The image is in the upper left corner of a square. transformers always resizes here."""
    settings.must_be(False, "split_image", "each tile would be resized again")
    side = settings["max_image_size"]
    if not is_count(side) or side not in (490, 980):
        raise settings.refuse("max_image_size", "490 or 980")
    least = settings.number("min_image_size", side)
    extras = (("pixel_mask", Extra.PIXEL_MASK), ("num_crops", Extra.CROPS))
    return Geometry((LongestSide(side, least, down=True),), Pad(Size(side, side), middle=False), extras=extras)


def _donut(settings: Settings) -> Geometry:
    """The shortest edge becomes that of `size`, and then the image shrinks into `size`. Older files have a list."""
    settings.no_crop()
    settings.must_be(False, "do_align_long_axis", "no image is turned here")
    given = settings["size"]
    if isinstance(given, list | tuple):
        if len(given) != 2 or not all(map(is_count, given)):
            raise settings.refuse("size", '[width, height] or {"height": ..., "width": ...}')
        size = Size(*given)
    else:
        size = settings.sides("size")
    size = settings.bounded("size", size)
    resized = (ShortestEdge(min(size)),) if settings.flag("do_resize") else ()
    shrunk = (Within(size),) if settings.flag("do_thumbnail") else ()
    return Geometry(resized + shrunk, Pad(size, middle=True) if settings.flag("do_pad") else None)


_CROPPED: Final[Config] = {"do_center_crop": True, "crop_size": square(224)}
_EDGE: Final[Config] = {"default_to_square": False}  # a size of one number is a shortest edge
_KEEPS: Final[Config] = {"do_convert_rgb": False}  # the colours of transparent pixels stay
_CLIP: Final = Class(
    settings_of(3, {"shortest_edge": 224}, CLIP_MEAN, CLIP_STD, **_CROPPED, **_EDGE), frozenset(), _plain
)
_DEEPSEEK: Final = Class(
    settings_of(3, square(384), CLIP_MEAN, CLIP_STD, min_size=14, do_pad=True, **_KEEPS),
    frozenset(("min_size", "background_color")),  # transformers takes the colour from image_mean
    _deepseek,
)
_GEMMA3_KEYS: Final = frozenset(  # the numbers of pan and scan change nothing without it
    (
        "do_pan_and_scan",
        "pan_and_scan_min_crop_size",
        "pan_and_scan_max_num_crops",
        "pan_and_scan_min_ratio_to_activate",
    )
)

CLASSES: Final[Mapping[str, Class]] = {
    "CLIPImageProcessor": _CLIP,
    "LlavaImageProcessor": Class(
        settings_of(3, {"shortest_edge": 224}, CLIP_MEAN, CLIP_STD, do_pad=False, **_CROPPED, **_EDGE),
        frozenset(),
        _llava,
    ),
    "BitImageProcessor": _CLIP,
    "SiglipImageProcessor": Class(settings_of(3, square(224), HALF, HALF, **_EDGE), frozenset(), _plain),
    "ViTImageProcessor": Class(settings_of(2, square(224), HALF, HALF, **_KEEPS), frozenset(), _plain),
    "Gemma3ImageProcessor": Class(
        settings_of(2, square(224), HALF, HALF, do_pan_and_scan=False), _GEMMA3_KEYS, _gemma3
    ),
    "DeiTImageProcessor": Class(settings_of(3, square(256), HALF, HALF, **_CROPPED, **_KEEPS), frozenset(), _plain),
    "ChameleonImageProcessor": Class(
        settings_of(
            1,
            {"shortest_edge": 512},
            (1.0, 1.0, 1.0),
            (1.0, 1.0, 1.0),
            rescale_factor=0.0078,
            do_center_crop=True,
            crop_size=square(512),
            **_EDGE,
        ),
        frozenset(),
        _plain,
    ),
    "ConvNextImageProcessor": Class(
        settings_of(3, {"shortest_edge": 384}, HALF, HALF, crop_pct=224 / 256, **_EDGE, **_KEEPS),
        frozenset(("crop_pct",)),
        _convnext,
    ),
    "PixtralImageProcessor": Class(
        settings_of(3, {"longest_edge": 1024}, CLIP_MEAN, CLIP_STD, patch_size=square(16)),
        frozenset(("patch_size",)),
        _pixtral,
    ),
    "DeepseekVLImageProcessor": _DEEPSEEK,
    "JanusImageProcessor": _DEEPSEEK,
    "AriaImageProcessor": Class(
        settings_of(3, {}, HALF, HALF, max_image_size=980, min_image_size=336, split_image=False),
        frozenset(  # the last two are for tiles
            ("max_image_size", "min_image_size", "split_image", "split_resolutions", "split_ratio")
        ),
        _aria,
    ),
    "DonutImageProcessor": Class(
        settings_of(
            2,
            {"height": 2560, "width": 1920},
            HALF,
            HALF,
            do_thumbnail=True,
            do_align_long_axis=False,
            do_pad=True,
            **_KEEPS,
        ),
        frozenset(("do_thumbnail", "do_align_long_axis")),
        _donut,
    ),
}
