"""Tell in words what an image processor does to the size of an image, and which tensors a model takes."""

from dataclasses import fields
from typing import Any

from headrace.host.dpu.hugging_face.names import audio_names, audio_processor, image_processor, names
from headrace.host.dpu.processors import (
    ClosestCanvas,
    CoveringCanvas,
    Crop,
    Engine,
    EvenLongestSide,
    FixedSize,
    GridCanvas,
    ListedCanvas,
    LongestEdge,
    LongestSide,
    MaxPatches,
    MultiplesCanvas,
    Pad,
    ProcessorSpec,
    ShortestEdge,
    Size,
    SmartResize,
    SoftTokens,
    Square,
    Tiles,
    Within,
    type_name,
)
from headrace.host.dpu.reference.audio import forms as audio_forms
from headrace.host.dpu.reference.processor import forms


def size_rule(spec: ProcessorSpec) -> str:
    """Return the rules of the resizes in words, with the crop, the padding or the tiles after them, in pixels."""
    words = [_rule(rule) for rule in spec.sizes]
    match spec.place:
        case Crop(size):
            words.append(f"crop {_by(size)}")
        case Square():
            words.append("padded to a square")
        case Pad(size):
            words.append(f"padded to {_by(size)}")
    if spec.tiles is not None:
        words.append(_tiles(spec.tiles))
    return ", ".join(words) or "as it is"


def known(source: Size, engine: Engine = Engine.TORCHVISION) -> list[dict[str, Any]]:
    """Return a row for each known model: its name, class, size rule and tensors of an image of this size."""
    rows = []
    for name in names():
        spec = image_processor(name, engine)
        tensors = {
            key: {"shape": form.shape, "dtype": type_name(form.dtype)} for key, form in forms(spec, source).items()
        }
        rows.append({"name": name, "class": spec.name, "size": size_rule(spec), "tensors": tensors})
    return rows


def known_audio(seconds: int) -> list[dict[str, Any]]:
    """Return a row for each known model of audio: its name, class, and tensors of audio of this length."""
    rows = []
    for name in audio_names():
        spec = audio_processor(name)
        made = audio_forms(spec, seconds * spec.rate)
        tensors = {key: {"shape": form.shape, "dtype": type_name(form.dtype)} for key, form in made.items()}
        rows.append({"name": name, "class": spec.name, "tensors": tensors})
    return rows


def _rule(rule: Any) -> str:
    match rule:
        case FixedSize(width, height):
            return f"{width}x{height}"
        case ShortestEdge(pixels):
            return f"shortest edge {pixels}"
        case LongestEdge(box, multiple):
            return f"at most {_by(box)}, multiples of {multiple.width}"
        case LongestSide(pixels, _, _):
            return f"longest edge {pixels}"
        case EvenLongestSide(pixels):
            return f"longest edge {pixels} and the other even"
        case Within(box):
            return f"at most {_by(box)}"
        case SoftTokens(multiple, tokens):
            return f"at most {tokens} tokens of {multiple}x{multiple}"
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
        case ClosestCanvas(high) | CoveringCanvas(high) | MultiplesCanvas(high):
            return f"1 to {high} tiles of {_by(tiles.tile)}"
    return f"tiles of {_by(tiles.tile)}, {_words(tiles.canvas)}"


def _words(rule: Any) -> str:
    """Return a rule that has no words of its own by its class and its settings."""
    return f"{type(rule).__name__} " + ", ".join(f"{each.name} {getattr(rule, each.name)}" for each in fields(rule))


def _by(size: Size) -> str:
    return f"{size.width}x{size.height}"
