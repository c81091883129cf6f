"""Read the image processor of a model on Hugging Face: `preprocessor_config.json` to a `ProcessorSpec`.

A file names a class of transformers, and changes some of its settings. CLASSES has the classes, with the settings that
transformers 5.23 gives them. Every key of a file is either read, or known to have no effect, or refused by name.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.batching import UsageError
from headrace.host.dpu.processors import (
    Engine,
    Filter,
    FixedSize,
    GridCanvas,
    Grow,
    Layout,
    ListedCanvas,
    LongestEdge,
    LongestSide,
    MaxPatches,
    MergedPatches,
    PaddedPatches,
    PatchImages,
    Planes,
    ProcessorSpec,
    ShortestEdge,
    Size,
    SizeRule,
    SmartResize,
    StackedTiles,
    TileRows,
    Tiles,
)

Config = Mapping[str, Any]

MAX_TILES: Final = 64

CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)
HALF: Final = (0.5, 0.5, 0.5)

FILTERS: Final = {  # PIL.Image.Resampling
    1: Filter.LANCZOS,
    2: Filter.BILINEAR,
    3: Filter.BICUBIC,
    4: Filter.BOX,
    5: Filter.HAMMING,
}

# Keys that say how a library runs, or what it does with many images. They change no pixel of an image.
WITHOUT_EFFECT: Final = frozenset(
    (
        "image_processor_type",
        "feature_extractor_type",
        "processor_class",
        "auto_map",
        "_valid_processor_keys",
        "do_convert_rgb",  # an image is RGB before it comes here
        "data_format",
        "input_data_format",
        "return_tensors",
        "device",
        "disable_grouping",
    )
)
# Keys of all classes that are read.
COMMON: Final = frozenset(
    ("do_resize", "size", "resample", "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")
)
CROP: Final = frozenset(("do_center_crop", "crop_size"))


@dataclass(frozen=True, slots=True)
class Geometry:
    """The part of a processor that gives an image another shape."""

    size: SizeRule | None
    crop: Size | None = None
    square: tuple[int, int, int] | None = None
    tiles: Tiles | None = None
    layout: Layout = field(default_factory=Planes)


@dataclass(frozen=True, slots=True)
class Class:
    """A class of transformers: its settings where a file has none, its own keys, and the geometry of its settings."""

    defaults: Config
    keys: frozenset[str]
    geometry: Callable[["Settings"], Geometry]


class Settings:
    """The settings of a file over those of its class. Its methods refuse a value of the wrong form by its key."""

    def __init__(self, name: str, values: Config) -> None:
        self.name = name
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values.get(key)

    def refuse(self, key: str, wanted: str) -> UsageError:
        return UsageError(f"{self.name}: {key} is {json.dumps(self[key])}; give {wanted}")

    def flag(self, key: str) -> bool:
        if self[key] not in (True, False, None):
            raise self.refuse(key, "true or false")
        return bool(self[key])

    def number(self, key: str) -> int:
        if not is_count(self[key]):
            raise self.refuse(key, "a whole number above 0")
        return int(self[key])

    def values(self, key: str) -> tuple[float, float, float]:
        given = self[key]
        given = [given] * 3 if is_real(given) else given
        if not isinstance(given, list | tuple) or len(given) != 3 or not all(map(is_real, given)):
            raise self.refuse(key, "three numbers, for red, green and blue")
        return (float(given[0]), float(given[1]), float(given[2]))

    def sides(self, key: str) -> Size:
        """Return a width and a height, of an object with both or of one number."""
        given = self[key]
        given = {"width": given, "height": given} if is_count(given) else given
        if (
            not isinstance(given, Mapping)
            or set(given) != {"width", "height"}
            or not all(map(is_count, given.values()))
        ):
            raise self.refuse(key, '{"height": ..., "width": ...}')
        return Size(given["width"], given["height"])

    def edges(self, key: str, *names: str) -> list[int]:
        """Return the numbers of an object with exactly these names."""
        given = self[key]
        if not isinstance(given, Mapping) or set(given) != set(names) or not all(map(is_count, given.values())):
            raise self.refuse(key, "{" + ", ".join(f'"{name}": ...' for name in names) + "}")
        return [given[name] for name in names]

    def names(self, key: str, name: str) -> bool:
        """Tell whether a key has an object with this name."""
        return isinstance(self[key], Mapping) and name in self[key]

    def square(self, key: str, name: str) -> Size:
        """Return both sides of a square, of which an object has one under this name."""
        (side,) = self.edges(key, name)
        return Size(side, side)

    def crop(self) -> Size | None:
        return self.sides("crop_size") if self.flag("do_center_crop") else None

    def size(self) -> SizeRule | None:
        """Return the rule of `size`: one size, or a shortest edge."""
        if not self.flag("do_resize"):
            return None
        if self.names("size", "shortest_edge"):
            return ShortestEdge(*self.edges("size", "shortest_edge"))
        return FixedSize(*self.sides("size"))


def from_hf(config: Config | Path | str, engine: Engine = Engine.TORCHVISION, base: str | None = None) -> ProcessorSpec:
    """Return the spec of an image processor of transformers.

    Args:
        config: The contents of a `preprocessor_config.json`, or the path of the file.
        engine: Library of the results. transformers 5 uses torchvision where it is installed.
        base: The processor's class, for a file that names none.

    Raises:
        UsageError: The file cannot be read, its class has no counterpart here, or a setting is unknown or wrong.
    """
    values = config if isinstance(config, Mapping) else _read(Path(config))
    name = _class_name(values, base)
    known = CLASSES[name]
    settings = Settings(name, {**known.defaults, **values})
    unknown = sorted(set(values) - WITHOUT_EFFECT - COMMON - known.keys)
    if unknown:
        read = ", ".join(sorted(COMMON | known.keys))
        raise UsageError(f"{name}: the setting {unknown[0]} is unknown here; those that are read are {read}")
    filter_ = FILTERS.get(settings["resample"]) if is_count(settings["resample"]) else None
    if filter_ is None:
        raise settings.refuse("resample", "1 (lanczos), 2 (bilinear), 3 (bicubic), 4 (box) or 5 (hamming)")
    normalize, rescale = settings.flag("do_normalize"), settings.flag("do_rescale")
    if rescale and not is_real(settings["rescale_factor"]):
        raise settings.refuse("rescale_factor", "a number")
    geometry = known.geometry(settings)
    return ProcessorSpec(
        name=name,
        size=geometry.size,
        filter=filter_,
        engine=engine,
        crop=geometry.crop,
        rescale=settings["rescale_factor"] if rescale else None,
        mean=settings.values("image_mean") if normalize else None,
        std=settings.values("image_std") if normalize else None,
        square=geometry.square,
        tiles=geometry.tiles,
        layout=geometry.layout,
    )


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read(path: Path) -> Config:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} has no object of settings; give a preprocessor_config.json")
    return values


def _class_name(values: Config, base: str | None) -> str:
    """Return the name of the class without the endings that name its back end or its age."""
    named = values.get("image_processor_type") or values.get("feature_extractor_type") or base
    if not isinstance(named, str):
        raise UsageError("the processor has no image_processor_type; name its class in transformers")
    stem = (
        named.removesuffix("Fast").removesuffix("Pil").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    )
    name = f"{stem}ImageProcessor"
    if name not in CLASSES:
        raise UsageError(f"{named} has no counterpart here; known are {', '.join(CLASSES)}")
    return name


# ---- The classes ----


def _plain(settings: Settings) -> Geometry:
    return Geometry(settings.size(), settings.crop())


def _convnext(settings: Settings) -> Geometry:
    """Below 384 pixels, the image is larger by 1 / crop_pct, and cropped. From 384 on it fills the square."""
    if not settings.flag("do_resize"):
        return Geometry(None)
    (edge,) = settings.edges("size", "shortest_edge")
    if edge >= 384:
        return Geometry(FixedSize(edge, edge))
    part = settings["crop_pct"]
    if not is_real(part) or not 0 < part <= 1:
        raise settings.refuse("crop_pct", "a number above 0, at most 1")
    return Geometry(ShortestEdge(int(edge / part)), Size(edge, edge))


def _of_patches(settings: Settings) -> None:
    """Refuse a processor in patches that does not resize: its sides would not be multiples of a patch."""
    if not settings.flag("do_resize"):
        raise settings.refuse("do_resize", "true, because patches need sides that are their multiples")


def _smart(settings: Settings, frames: int = 1, grow: Grow = Grow.NONE) -> SmartResize:
    """The size is in pixels of the whole image here. Older files have min_pixels and max_pixels instead."""
    _of_patches(settings)
    low, high = settings.edges("size", "shortest_edge", "longest_edge")
    low = settings.number("min_pixels") if settings["min_pixels"] is not None else low
    high = settings.number("max_pixels") if settings["max_pixels"] is not None else high
    multiple = settings.number("patch_size") * settings.number("merge_size")
    return SmartResize(multiple, low, high, frames, grow)


def _merged(settings: Settings) -> MergedPatches:
    return MergedPatches(
        settings.number("patch_size"), settings.number("merge_size"), settings.number("temporal_patch_size")
    )


def _qwen(settings: Settings) -> Geometry:
    return Geometry(_smart(settings), layout=_merged(settings))


def _glm(settings: Settings) -> Geometry:
    layout = _merged(settings)
    return Geometry(_smart(settings, layout.frames, Grow.TOGETHER), layout=layout)


def _paddle(settings: Settings) -> Geometry:
    layout = PatchImages(settings.number("patch_size"), settings.number("temporal_patch_size"))
    return Geometry(_smart(settings, grow=Grow.EACH), layout=layout)


def _siglip2(settings: Settings) -> Geometry:
    _of_patches(settings)
    side, count = settings.number("patch_size"), settings.number("max_num_patches")
    return Geometry(MaxPatches(side, count), layout=PaddedPatches(side, count))


def _pixtral(settings: Settings) -> Geometry:
    if not settings.flag("do_resize"):
        return Geometry(None, layout=Planes(sizes=True))
    edge = "longest_edge"
    box = settings.square("size", edge) if settings.names("size", edge) else settings.sides("size")
    return Geometry(LongestEdge(box, settings.sides("patch_size")), layout=Planes(sizes=True))


def _deepseek(settings: Settings) -> Geometry:
    """The square has the mean colour, unless the file says not to pad."""
    mean = settings.values("image_mean")
    if not all(0 <= value <= 1 for value in mean):
        raise settings.refuse("image_mean", "numbers from 0 to 1, because the mean is the colour around the image")
    square = (int(mean[0] * 255), int(mean[1] * 255), int(mean[2] * 255)) if settings.flag("do_pad") else None
    if not settings.flag("do_resize"):
        return Geometry(None, square=square)
    size = settings.sides("size")
    if size.width != size.height:
        raise settings.refuse("size", "the same height and width")
    return Geometry(LongestSide(size.width, settings.number("min_size")), square=square)


def _llava(settings: Settings, images: bool = False) -> Geometry:
    """Each tile would be resized and cropped again. That changes nothing if it is as large as `size` and the crop."""
    edge = "shortest_edge"
    tile = settings.square("size", edge) if settings.names("size", edge) else settings.sides("size")
    if tile.width != tile.height:
        raise settings.refuse("size", "the same height and width")
    crop = settings.crop()
    if crop not in (None, tile):
        raise settings.refuse("crop_size", f"the size of a tile, {tile.height}, without which tiles are cropped")
    if not settings.flag("do_resize"):
        raise settings.refuse("do_resize", "true, because a canvas has a size of its own")
    listed = settings["image_grid_pinpoints"]
    if not isinstance(listed, list | tuple) or not listed or not all(_is_canvas(each, tile) for each in listed):
        raise settings.refuse(
            "image_grid_pinpoints", f"a list of [height, width], all of them multiples of {tile.height}"
        )
    canvas = ListedCanvas(tuple(Size(width, height) for height, width in listed))
    return Geometry(None, tiles=Tiles(tile, canvas, thumbnail_first=True), layout=StackedTiles(images))


def _onevision(settings: Settings) -> Geometry:
    return _llava(settings, images=True)


def _is_canvas(sides: Any, tile: Size) -> bool:
    if not isinstance(sides, list | tuple) or len(sides) != 2 or not all(map(is_count, sides)):
        return False
    return sides[0] % tile.height == 0 and sides[1] % tile.width == 0


def _grid(settings: Settings) -> Geometry:
    """The tiles are as large as `size`. Without `crop_to_patches` there is one image."""
    if not settings.flag("do_resize"):
        raise settings.refuse("do_resize", "true, because a tile has a size of its own")
    tile = settings.sides("size")
    if not settings.flag("crop_to_patches"):
        return Geometry(FixedSize(*tile), layout=TileRows())
    low, high = settings.number("min_patches"), settings.number("max_patches")
    if not low <= high <= MAX_TILES:
        raise settings.refuse("max_patches", f"{low} (min_patches) to {MAX_TILES}")
    return Geometry(None, tiles=Tiles(tile, GridCanvas(low, high), thumbnail_first=False), layout=TileRows())


def _settings(resample: int, size: Config, mean: Any, std: Any, **more: Any) -> Config:
    values = {"do_resize": True, "size": size, "resample": resample, "do_rescale": True, "rescale_factor": 1 / 255}
    return {**values, "do_normalize": True, "image_mean": mean, "image_std": std, **more}


def _square(side: int) -> Config:
    return {"height": side, "width": side}


def _pixels(low: int, high: int) -> Config:
    """The size of `SmartResize`, whose edges are numbers of pixels."""
    return {"shortest_edge": low, "longest_edge": high}


def _patches(frames: int) -> Config:
    return {"patch_size": 14, "temporal_patch_size": frames, "merge_size": 2}


SMART: Final = frozenset(("min_pixels", "max_pixels", "patch_size", "temporal_patch_size", "merge_size"))
GRID: Final = frozenset(("crop_to_patches", "min_patches", "max_patches"))
_CROPPED: Final = {"do_center_crop": True, "crop_size": _square(224)}
_CLIP: Final = Class(_settings(3, {"shortest_edge": 224}, CLIP_MEAN, CLIP_STD, **_CROPPED), CROP, _plain)

_DEEPSEEK: Final = Class(
    _settings(3, _square(384), CLIP_MEAN, CLIP_STD, min_size=14, do_pad=True),
    frozenset(("min_size", "do_pad", "background_color")),  # transformers takes the colour from image_mean
    _deepseek,
)

CLASSES: Final[Mapping[str, Class]] = {
    "CLIPImageProcessor": _CLIP,
    "BitImageProcessor": _CLIP,
    "SiglipImageProcessor": Class(_settings(3, _square(224), HALF, HALF), frozenset(), _plain),
    "ViTImageProcessor": Class(_settings(2, _square(224), HALF, HALF), frozenset(), _plain),
    "DeiTImageProcessor": Class(_settings(3, _square(256), HALF, HALF, **_CROPPED), CROP, _plain),
    "ChameleonImageProcessor": Class(
        _settings(
            1,
            {"shortest_edge": 512},
            (1.0, 1.0, 1.0),
            (1.0, 1.0, 1.0),
            rescale_factor=0.0078,
            do_center_crop=True,
            crop_size=_square(512),
        ),
        CROP,
        _plain,
    ),
    "ConvNextImageProcessor": Class(
        _settings(3, {"shortest_edge": 384}, HALF, HALF, crop_pct=224 / 256), frozenset(("crop_pct",)), _convnext
    ),
    "Qwen2VLImageProcessor": Class(
        _settings(3, _pixels(56 * 56, 28 * 28 * 1280), CLIP_MEAN, CLIP_STD, **_patches(2)), SMART, _qwen
    ),
    "Glm4vImageProcessor": Class(
        _settings(3, _pixels(112 * 112, 28 * 28 * 15000), CLIP_MEAN, CLIP_STD, **_patches(2)), SMART, _glm
    ),
    "PaddleOCRVLImageProcessor": Class(
        _settings(3, _pixels(384 * 384, 1536 * 1536), CLIP_MEAN, CLIP_STD, **_patches(1)), SMART, _paddle
    ),
    "Siglip2ImageProcessor": Class(
        _settings(2, {}, HALF, HALF, patch_size=16, max_num_patches=256),
        frozenset(("patch_size", "max_num_patches")),
        _siglip2,
    ),
    "PixtralImageProcessor": Class(
        _settings(3, {"longest_edge": 1024}, CLIP_MEAN, CLIP_STD, patch_size=_square(16)),
        frozenset(("patch_size", "do_pad")),  # the pad is for images of several sizes in a batch
        _pixtral,
    ),
    "LlavaNextImageProcessor": Class(
        _settings(
            3,
            {"shortest_edge": 224},
            CLIP_MEAN,
            CLIP_STD,
            do_center_crop=True,
            crop_size=_square(224),
            do_pad=True,
            image_grid_pinpoints=[[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
        ),
        CROP | {"do_pad", "image_grid_pinpoints"},
        _llava,
    ),
    "LlavaOnevisionImageProcessor": Class(
        _settings(
            3,
            _square(384),
            CLIP_MEAN,
            CLIP_STD,
            do_pad=True,
            image_grid_pinpoints=[[384 * down, 384 * across] for down in range(1, 7) for across in range(1, 7)],
        ),
        CROP | {"do_pad", "image_grid_pinpoints"},
        _onevision,
    ),
    "GotOcr2ImageProcessor": Class(
        _settings(3, _square(384), CLIP_MEAN, CLIP_STD, crop_to_patches=False, min_patches=1, max_patches=12),
        GRID,
        _grid,
    ),
    "DeepseekVLImageProcessor": _DEEPSEEK,
    "JanusImageProcessor": _DEEPSEEK,
}
