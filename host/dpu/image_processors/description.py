"""Tell in words what an image processor does to the size of an image, and which tensors it makes."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from headrace.host.dpu.image_processors.names import names, processor
from headrace.host.dpu.processors import (
    Engine,
    FixedSize,
    GridCanvas,
    ListedCanvas,
    LongestEdge,
    LongestSide,
    MaxPatches,
    ProcessorSpec,
    ShortestEdge,
    Size,
    SmartResize,
    Tiles,
)
from headrace.host.dpu.reference.processor import process


@dataclass(frozen=True, slots=True)
class Tensor:
    """The shape and the type of a tensor."""

    shape: tuple[int, ...]
    dtype: str


def size_rule(spec: ProcessorSpec) -> str:
    """Return the rule of the resize in words, with the crop or the padding after it. Numbers are pixels."""
    words = "as it is" if spec.size is None else _rule(spec.size)
    if spec.tiles is not None:
        words = _tiles(spec.tiles)
    if spec.crop is not None:
        words += f", crop {_by(spec.crop)}"
    if spec.square is not None:
        words += ", padded to a square"
    return words


def tensors(spec: ProcessorSpec, source: Size) -> dict[str, Tensor]:
    """Return the shapes and types of the tensors of an RGB image of this size."""
    black = np.zeros((source.height, source.width, 3), np.uint8)
    return {name: Tensor(values.shape, str(values.dtype)) for name, values in process(black, spec).items()}


def known(source: Size, engine: Engine = Engine.TORCHVISION) -> list[dict[str, Any]]:
    """Return a row for each known model: its name, class, size rule and tensors of an image of this size."""
    rows = []
    for name in names():
        spec = processor(name, engine)
        found = {key: {"shape": each.shape, "dtype": each.dtype} for key, each in tensors(spec, source).items()}
        rows.append({"name": name, "class": spec.name, "size": size_rule(spec), "tensors": found})
    return rows


def _rule(rule: Any) -> str:
    match rule:
        case FixedSize(width, height):
            return f"{width}x{height}"
        case ShortestEdge(pixels):
            return f"shortest edge {pixels}"
        case LongestEdge(box, multiple):
            return f"at most {_by(box)}, multiples of {multiple.width}"
        case LongestSide(pixels, _):
            return f"longest edge {pixels}"
        case MaxPatches(side, patches):
            return f"at most {patches} patches of {side}x{side}"
        case SmartResize(multiple, low, high, frames):
            return f"multiples of {multiple}, {low} to {high} pixels" + (f" in {frames} frames" if frames > 1 else "")
    return _words(rule)


def _tiles(tiles: Tiles) -> str:
    match tiles.canvas:
        case ListedCanvas(canvases):
            return f"tiles of {_by(tiles.tile)} on one of {len(canvases)} canvases"
        case GridCanvas(low, high):
            return f"{low} to {high} tiles of {_by(tiles.tile)}"
    return f"tiles of {_by(tiles.tile)}, {_words(tiles.canvas)}"


def _words(rule: Any) -> str:
    """Return a rule that has no words of its own by its class and its settings."""
    return f"{type(rule).__name__} " + ", ".join(f"{each.name} {getattr(rule, each.name)}" for each in fields(rule))


def _by(size: Size) -> str:
    return f"{size.width}x{size.height}"
