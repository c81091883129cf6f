"""The classes that make tiles of a canvas, and a picture of the whole image."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.host.dpu.hugging_face.settings import (
    CLIP_MEAN,
    CLIP_STD,
    HALF,
    Class,
    Geometry,
    Settings,
    is_count,
    settings_of,
    square,
)
from headrace.host.dpu.processors import (
    Canvas,
    ClosestCanvas,
    CoveringCanvas,
    EvenLongestSide,
    Extra,
    Fit,
    FixedSize,
    GridCanvas,
    Images,
    ListedCanvas,
    MultiplesCanvas,
    Size,
    SizeRule,
    Thumbnail,
    Tiles,
)

MAX_TILES: Final = 64
MAX_EDGE: Final = 4096  # of Idefics3, which shrinks larger images to it

OWN_SIZE: Final = "a tile has a size of its own"


def _llava(settings: Settings) -> Geometry:
    """A tile is as large as `crop_size`, or else as `size`.

    Each tile would be resized to `size` and cropped again. That changes nothing if both are equal."""
    edge = "shortest_edge"
    tile = Size(*settings.edges("size", edge) * 2) if settings.names("size", edge) else settings.tile()
    if settings["crop_size"] is not None and settings.sides("crop_size") != tile:
        raise settings.refuse("crop_size", f"{tile.height}, which is size, because tiles are not resized again")
    listed = settings["image_grid_pinpoints"]
    if not isinstance(listed, list | tuple) or not listed or not all(_is_canvas(each, tile) for each in listed):
        raise settings.refuse(
            "image_grid_pinpoints",
            f"a list of [height, width], all of them multiples of {tile.height}, with at most {MAX_TILES} tiles",
        )
    canvas = ListedCanvas(tuple(Size(width, height) for height, width in listed))
    return Geometry(
        tiles=Tiles(tile, canvas, Thumbnail.ALWAYS_FIRST, middle=True),
        layout=Images(axes=1),
        extras=(("image_sizes", Extra.SOURCE_SIZE),),
    )


def _onevision(settings: Settings) -> Geometry:
    one = _llava(settings)
    return Geometry(tiles=one.tiles, layout=one.layout, extras=(*one.extras, ("batch_num_images", Extra.BATCH)))


def _is_canvas(sides: Any, tile: Size) -> bool:
    if not isinstance(sides, list | tuple) or len(sides) != 2 or not all(map(is_count, sides)):
        return False
    down, across = sides[0] // tile.height, sides[1] // tile.width
    return [down * tile.height, across * tile.width] == list(sides) and down * across <= MAX_TILES


def _grid(settings: Settings) -> Geometry:
    return _cropped(settings, _nearest, Thumbnail.LAST, ("num_patches", Extra.IMAGES))


def _cohere(settings: Settings) -> Geometry:
    """transformers does not read min_patches here."""
    return _cropped(settings, _stretched, Thumbnail.LAST, ("num_patches", Extra.IMAGES))


def _ovis(settings: Settings) -> Geometry:
    settings.no_crop()
    covering = settings.flag("use_covering_area_grid")
    return _cropped(settings, _covering if covering else _nearest, Thumbnail.FIRST, ("grids", Extra.TILE_GRID))


def _nearest(settings: Settings) -> Canvas:
    low, high = settings.number("min_patches"), settings.number("max_patches")
    if not low <= high <= MAX_TILES:
        raise settings.refuse("max_patches", f"{low} (min_patches) to {MAX_TILES}")
    return GridCanvas(low, high)


def _stretched(settings: Settings) -> Canvas:
    settings.tile()
    return ClosestCanvas(settings.number("max_patches", MAX_TILES), Fit.STRETCHED)


def _covering(settings: Settings) -> Canvas:
    settings.tile()
    return CoveringCanvas(settings.number("max_patches", MAX_TILES))


def _cropped(
    settings: Settings, canvas: Callable[[Settings], Canvas], thumbnail: Thumbnail, extra: tuple[str, Extra]
) -> Geometry:
    """The tiles are as large as `size`, also without `do_resize`. Without `crop_to_patches` there is one image."""
    if not settings.flag("crop_to_patches"):
        return Geometry(settings.sizes(), extras=(extra,))
    return Geometry(tiles=Tiles(settings.sides("size"), canvas(settings), thumbnail), extras=(extra,))


def _idefics(settings: Settings) -> Geometry:
    """The image becomes large, then its sides multiples of a tile. The thumbnail is a resize of that canvas."""
    settings.must_be(False, "return_row_col_info", "both numbers follow from the shape")
    settings.must_be(True, "do_pad", "a model takes images together with their pixel_attention_mask")
    _needs_values(settings)
    first: tuple[SizeRule, ...] = ()
    if settings.flag("do_resize"):
        if settings.names("size", "longest_edge"):
            longest = settings.longest_edge("size")
            if longest > MAX_EDGE:
                raise settings.refuse("size", f"a longest_edge of at most {MAX_EDGE}")
            first = (EvenLongestSide(longest),)
        else:
            first = (FixedSize(*settings.sides("size")),)
    tile = Size(*settings.edges("max_image_size", "longest_edge") * 2)
    masks = (("pixel_attention_mask", Extra.PIXELS_OF_IMAGES),)
    if not settings.flag("do_image_splitting"):
        return Geometry((*first, FixedSize(*tile)), layout=Images(axes=1), extras=masks)
    tiles = Tiles(tile, MultiplesCanvas(MAX_TILES), Thumbnail.LAST_OF_CANVAS)
    return Geometry(first, tiles=tiles, layout=Images(axes=1), extras=masks)


def _mllama(settings: Settings) -> Geometry:
    settings.must_be(True, "do_resize", OWN_SIZE)
    settings.must_be(True, "do_pad", "the canvas is larger than the image")
    _needs_values(settings)
    high = settings.number("max_image_tiles", MAX_TILES)
    extras = (
        ("aspect_ratio_ids", Extra.TILE_GRID_ID),
        ("aspect_ratio_mask", Extra.TILE_MASK),
        ("num_tiles", Extra.IMAGES_OF_BATCH),
    )
    tiles = Tiles(settings.tile(), ClosestCanvas(high, Fit.INNER), thumbnail=None)
    return Geometry(tiles=tiles, layout=Images(axes=2, slots=high), extras=extras)


def _llama4(settings: Settings) -> Geometry:
    """With both steps of the values, all of them are bfloat16. transformers normalizes no bytes here."""
    settings.must_be(True, "do_resize", OWN_SIZE)
    normalizes = settings.flag("do_normalize")
    if normalizes:
        settings.must_be(True, "do_rescale", "bytes are not normalized")
    largest = settings.flag("resize_to_max_canvas")
    fit = Fit.FULL if largest else Fit.INNER
    canvas = ClosestCanvas(settings.number("max_patches", MAX_TILES), fit, single=True, largest=largest)
    return Geometry(
        tiles=Tiles(settings.tile(), canvas, Thumbnail.LAST),
        bfloat16=normalizes,
        extras=(("aspect_ratios", Extra.TILE_GRID),),
    )


def _needs_values(settings: Settings) -> None:
    """Refuse bytes: transformers makes floats of them where it fills a tensor up."""
    if not settings.flag("do_rescale") and not settings.flag("do_normalize"):
        raise settings.refuse("do_rescale", "true, or do_normalize, because the tensor has no bytes")


GRID: Final = frozenset(("crop_to_patches", "min_patches", "max_patches"))
PINPOINTS: Final = frozenset(("image_grid_pinpoints", "aspect_ratio_setting"))  # nobody reads the last one
_ONE_TO_12: Final = {"min_patches": 1, "max_patches": 12}
_IDEFICS: Final = Class(
    settings_of(
        1,
        {"longest_edge": 4 * 364},
        HALF,
        HALF,
        do_image_splitting=True,
        max_image_size={"longest_edge": 364},
        do_pad=True,
        return_row_col_info=False,
    ),
    frozenset(("do_image_splitting", "max_image_size", "return_row_col_info", "video_sampling")),  # no video
    _idefics,
)

CLASSES: Final[Mapping[str, Class]] = {
    "LlavaNextImageProcessor": Class(
        settings_of(
            3,
            {"shortest_edge": 224},
            CLIP_MEAN,
            CLIP_STD,
            do_center_crop=True,
            crop_size=square(224),
            do_pad=True,
            image_grid_pinpoints=[[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
            default_to_square=False,
        ),
        PINPOINTS,
        _llava,
    ),
    "LlavaOnevisionImageProcessor": Class(
        settings_of(
            3,
            square(384),
            CLIP_MEAN,
            CLIP_STD,
            do_pad=True,
            image_grid_pinpoints=[[384 * down, 384 * across] for down in range(1, 7) for across in range(1, 7)],
            default_to_square=False,
        ),
        PINPOINTS,
        _onevision,
    ),
    "GotOcr2ImageProcessor": Class(
        settings_of(3, square(384), CLIP_MEAN, CLIP_STD, crop_to_patches=False, **_ONE_TO_12), GRID, _grid
    ),
    "Cohere2VisionImageProcessor": Class(
        settings_of(3, square(512), CLIP_MEAN, CLIP_STD, crop_to_patches=True, **_ONE_TO_12),
        GRID | {"patch_size"},  # of the model
        _cohere,
        pillow=False,
    ),
    "Ovis2ImageProcessor": Class(
        settings_of(
            3,
            square(384),
            CLIP_MEAN,
            CLIP_STD,
            crop_to_patches=False,
            use_covering_area_grid=True,
            **_ONE_TO_12,
        ),
        GRID | {"use_covering_area_grid"},
        _ovis,
    ),
    "Idefics3ImageProcessor": _IDEFICS,
    "SmolVLMImageProcessor": _IDEFICS,
    "MllamaImageProcessor": Class(
        settings_of(2, square(224), HALF, HALF, do_pad=True, max_image_tiles=4),
        frozenset(("max_image_tiles",)),
        _mllama,
    ),
    "Llama4ImageProcessor": Class(
        settings_of(2, square(336), HALF, HALF, max_patches=16, resize_to_max_canvas=False),
        frozenset(("max_patches", "resize_to_max_canvas")),
        _llama4,
        pillow=False,
    ),
}
