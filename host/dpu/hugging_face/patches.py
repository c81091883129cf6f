"""The classes that make patches of one image, in the order in which a model takes them."""

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
    settings_of,
)
from headrace.host.dpu.processors import (
    MAX_PIXELS,
    Extra,
    Grow,
    MaxPatches,
    MergedPatches,
    PaddedPatches,
    PatchImages,
    SmartResize,
    SoftTokens,
)
from headrace.host.dpu.specs.config_file import Config

SOFT_TOKENS: Final = (70, 140, 280, 560, 1120)  # those that Gemma 4 was trained with


def _resizes(settings: Settings) -> None:
    """Refuse a processor in patches that does not resize: its sides would not be multiples of a patch."""
    if not settings.flag("do_resize"):
        raise settings.refuse("do_resize", "true, because patches need sides that are their multiples")


def _smart(settings: Settings, frames: int = 1, grow: Grow = Grow.NONE) -> SmartResize:
    """The size is in pixels of the whole image here."""
    _resizes(settings)
    low, high = settings.edges("size", "shortest_edge", "longest_edge")
    multiple = settings.number("patch_size") * settings.number("merge_size")
    return SmartResize(multiple, low, high, frames, grow)


def _merged(settings: Settings) -> MergedPatches:
    return MergedPatches(
        settings.number("patch_size"), settings.number("merge_size"), settings.number("temporal_patch_size")
    )


GRID_THW: Final = (("image_grid_thw", Extra.PATCH_GRID_OF_FRAMES),)


def _older_size(settings: Settings) -> None:
    """Older files have min_pixels and max_pixels, which take the place of a bound of `size`, under both names."""
    size = dict(settings["size"]) if isinstance(settings["size"], Mapping) else {}
    for pixels, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        if settings[pixels] is not None:
            size[edge] = settings.number(pixels)
            size.pop(pixels, None)
            settings.put("size", size)


def _qwen(settings: Settings) -> Geometry:
    _older_size(settings)
    return Geometry((_smart(settings),), layout=_merged(settings), extras=GRID_THW)


def _glm(settings: Settings) -> Geometry:
    layout = _merged(settings)
    return Geometry((_smart(settings, layout.frames, Grow.TOGETHER),), layout=layout, extras=GRID_THW)


def _paddle(settings: Settings) -> Geometry:
    _older_size(settings)
    layout = PatchImages(settings.number("patch_size"), settings.number("temporal_patch_size"))
    return Geometry((_smart(settings, grow=Grow.EACH),), layout=layout, extras=GRID_THW)


def _siglip2(settings: Settings) -> Geometry:
    _resizes(settings)
    side = settings.number("patch_size", 1024)
    count = settings.number("max_num_patches", MAX_PIXELS // side**2)
    extras = (("pixel_attention_mask", Extra.PATCH_MASK), ("spatial_shapes", Extra.PATCH_GRID))
    return Geometry((MaxPatches(side, count),), layout=PaddedPatches(side, count), extras=extras)


def _gemma4(settings: Settings) -> Geometry:
    _resizes(settings)
    tokens = settings["max_soft_tokens"]
    if not is_count(tokens) or tokens not in SOFT_TOKENS:
        raise settings.refuse("max_soft_tokens", ", ".join(map(str, SOFT_TOKENS[:-1])) + f" or {SOFT_TOKENS[-1]}")
    side, merge = settings.number("patch_size", 64), settings.number("pooling_kernel_size", 16)
    if tokens * (side * merge) ** 2 > MAX_PIXELS:
        raise settings.refuse("patch_size", f"a number with which {tokens} tokens have at most {MAX_PIXELS} pixels")
    extras = (("image_position_ids", Extra.PATCH_PLACES), ("num_soft_tokens_per_image", Extra.TOKENS))
    layout = PaddedPatches(side, tokens * merge**2, merge)
    return Geometry((SoftTokens(side * merge, tokens),), layout=layout, extras=extras)


def _pixels(low: int, high: int) -> Config:
    """The size of `SmartResize`, whose edges are numbers of pixels."""
    return {"shortest_edge": low, "longest_edge": high}


def _patches(frames: int) -> Config:
    return {"patch_size": 14, "temporal_patch_size": frames, "merge_size": 2}


_PATCHES: Final = frozenset(("patch_size", "temporal_patch_size", "merge_size"))
_BOUNDED: Final = _PATCHES | {"min_pixels", "max_pixels"}
_GLM: Final = Class(
    settings_of(3, _pixels(112 * 112, 28 * 28 * 15000), CLIP_MEAN, CLIP_STD, **_patches(2)), _PATCHES, _glm
)

CLASSES: Final[Mapping[str, Class]] = {
    "Qwen2VLImageProcessor": Class(
        settings_of(3, _pixels(56 * 56, 28 * 28 * 1280), CLIP_MEAN, CLIP_STD, **_patches(2)), _BOUNDED, _qwen
    ),
    "Glm4vImageProcessor": _GLM,
    "Glm46VImageProcessor": _GLM,
    "PaddleOCRVLImageProcessor": Class(
        settings_of(3, _pixels(384 * 384, 1536 * 1536), CLIP_MEAN, CLIP_STD, **_patches(1)), _BOUNDED, _paddle
    ),
    "Siglip2ImageProcessor": Class(
        settings_of(2, {}, HALF, HALF, patch_size=16, max_num_patches=256, do_convert_rgb=False),
        frozenset(("patch_size", "max_num_patches")),
        _siglip2,
    ),
    "Gemma4ImageProcessor": Class(
        settings_of(
            3,
            {},
            (0.0, 0.0, 0.0),
            (1.0, 1.0, 1.0),
            do_normalize=False,
            patch_size=16,
            max_soft_tokens=280,
            pooling_kernel_size=3,
        ),
        frozenset(("patch_size", "max_soft_tokens", "pooling_kernel_size")),
        _gemma4,
    ),
}
