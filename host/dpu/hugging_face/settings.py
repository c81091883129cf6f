"""This module has the settings of a class of transformers, and checks their values."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.host.dpu.processors import (
    IMAGES,
    MAX_PIXELS,
    Crop,
    Extra,
    FixedSize,
    Layout,
    Pad,
    ShortestEdge,
    Size,
    SizeRule,
    Square,
    Tiles,
)
from headrace.host.dpu.specs.config_file import Config, FileSettings

CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)
HALF: Final = (0.5, 0.5, 0.5)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The part of a processor that gives an image another shape. The fields are those of `ProcessorSpec`."""

    sizes: tuple[SizeRule, ...] = ()
    place: Crop | Square | Pad | None = None
    tiles: Tiles | None = None
    bfloat16: bool = False
    layout: Layout = IMAGES
    extras: tuple[tuple[str, Extra], ...] = ()


@dataclass(frozen=True, slots=True)
class Class:
    """A class of transformers.

    Args:
        defaults: Its settings where a file has none.
        keys: Its own keys, which are read, or have no effect.
        geometry: The geometry of its settings.
        pillow: Whether transformers has it for Pillow, too.
    """

    defaults: Config
    keys: frozenset[str]
    geometry: Callable[["Settings"], Geometry]
    pillow: bool = True


class Settings(FileSettings):
    """The settings of a file over those of its class. Its methods refuse a value of the wrong form by its key.

    A null in a file leaves the setting of the class, as in transformers. A size of one number is a square, unless
    `default_to_square` is false: then it is a shortest edge. A list of two numbers is a height and a width."""

    def __init__(self, name: str, defaults: Config, values: Config) -> None:
        super().__init__(name, {**defaults, **{key: value for key, value in values.items() if value is not None}})
        if not self.flag("default_to_square") and is_count(self["size"]):
            self._values["size"] = {"shortest_edge": self["size"]}

    def put(self, key: str, value: Any) -> None:
        self._values[key] = value

    def must_be(self, value: bool, key: str, why: str) -> None:
        """Refuse a flag with the other value. A flag that is none of both is refused, too."""
        if self.flag(key) is not value:
            raise self.refuse(key, f"{json.dumps(value)}, because {why}")

    def number(self, key: str, high: int | None = None) -> int:
        given = self[key]
        if not is_count(given) or (high is not None and given > high):
            raise self.refuse(key, "a whole number above 0" if high is None else f"a whole number from 1 to {high}")
        return int(given)

    def values(self, key: str) -> tuple[float, float, float]:
        given = self[key]
        given = [given] * 3 if is_real(given) else given
        if not isinstance(given, list | tuple) or len(given) != 3 or not all(map(is_real, given)):
            raise self.refuse(key, "three numbers, for red, green and blue")
        return (float(given[0]), float(given[1]), float(given[2]))

    def sides(self, key: str) -> Size:
        """Return a width and a height, of an object with both, of [height, width] or of one number."""
        given = self[key]
        given = [given, given] if is_count(given) else given
        if isinstance(given, list | tuple) and len(given) == 2:
            given = {"height": given[0], "width": given[1]}
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

    def longest_edge(self, key: str) -> int:
        """Return the longest edge of an object, which may have a shortest edge that the class does not read."""
        names = ("shortest_edge", "longest_edge") if self.names(key, "shortest_edge") else ("longest_edge",)
        return self.edges(key, *names)[-1]

    def tile(self) -> Size:
        """Return the size of a tile, which is a square of `size`."""
        size = self.sides("size")
        if size.width != size.height:
            raise self.refuse("size", "the same height and width")
        return size

    def no_crop(self) -> None:
        """Refuse a crop after the other steps."""
        self.must_be(False, "do_center_crop", "no other step is possible after the canvas")

    def crop(self) -> Crop | None:
        if not self.flag("do_center_crop"):
            return None
        return Crop(self.bounded("crop_size", self.sides("crop_size")))

    def bounded(self, key: str, size: Size) -> Size:
        """Refuse a canvas with too many pixels."""
        if size.width * size.height > MAX_PIXELS:
            raise self.refuse(key, f"at most {MAX_PIXELS} pixels in all")
        return size

    def sizes(self) -> tuple[SizeRule, ...]:
        """Return the rule of `size`: one size, or a shortest edge. There is none without a resize."""
        if not self.flag("do_resize"):
            return ()
        if self.names("size", "shortest_edge"):
            return (ShortestEdge(*self.edges("size", "shortest_edge")),)
        return (FixedSize(*self.sides("size")),)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def settings_of(resample: int, size: Config, mean: Any, std: Any, **more: Any) -> Config:
    values = {
        "do_convert_rgb": True,
        "default_to_square": True,
        "do_resize": True,
        "size": size,
        "resample": resample,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
    }
    return {**values, "do_normalize": True, "image_mean": mean, "image_std": std, **more}


def square(side: int) -> Config:
    return {"height": side, "width": side}
