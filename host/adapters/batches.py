"""Put the tensors of single images together as each class of transformers does for a batch.

BATCHES has a function for each class. Its result has the entries of the library's BatchFeature: those that become
tensors, and those that are added after it. Needs torch.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.processors import BFLOAT16, Plan

Entries = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Made:
    """The tensors of one image by name, and its plan."""

    tensors: Mapping[str, torch.Tensor]
    plan: Plan

    @property
    def pixels(self) -> torch.Tensor:
        return self.tensors["pixel_values"]

    @property
    def tiles(self) -> list[int]:
        """Return the number of tiles on the height and on the width."""
        placement = self.plan.canvas.placement
        assert placement is not None
        return [placement.grid.height, placement.grid.width]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an image processor.

    Args:
        processor: The object of the library.
        samples: The images of each sample. A class without samples has one image in each.
        settings: The settings that hold for this call.
        arguments: Arguments of the library's `_preprocess` after the images.
    """

    processor: Any
    samples: Sequence[Sequence[Made]]
    settings: Mapping[str, Any]
    arguments: tuple[Any, ...] = ()

    @property
    def images(self) -> list[Made]:
        return [image for sample in self.samples for image in sample]

    def of_module(self, name: str) -> Any:
        """Return a function of the module that has the library's class."""
        return getattr(sys.modules[self.processor.library_class.__module__], name)


def as_torch(values: NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor, in bfloat16 for its bits."""
    if values.dtype == BFLOAT16:
        return torch.from_numpy(np.ascontiguousarray(values).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(values))


def _list(call: Call) -> Entries:
    return {"pixel_values": [each.pixels[0] for each in call.images]}


def _padded_list(call: Call) -> Entries:
    """Pad all images to the largest one, if the settings say so."""
    images = _list(call)["pixel_values"]
    if call.settings.get("do_pad"):
        images = call.processor.pad(images, pad_size=None, disable_grouping=call.settings.get("disable_grouping"))
    return {"pixel_values": images}


def _gemma3(call: Call) -> Entries:
    return {**_list(call), "num_crops": [0] * len(call.images)}


def _mean_colour(call: Call) -> Entries:
    """The library takes the colour around the image from the mean that the object had at first."""
    mean = call.settings["image_mean"]
    if call.settings.get("do_pad") and call.processor.background_color != tuple(int(each * 255) for each in mean):
        raise UsageError("background_color is not image_mean; the library has both")
    return _list(call)


def _pixtral(call: Call) -> Entries:
    images = _list(call)["pixel_values"]
    sizes = [image.shape[-2:] for image in images]
    if call.settings.get("do_pad"):
        images = call.processor._pad_for_batching(pixel_values=images, image_sizes=sizes)
    return {"pixel_values": images, "image_sizes": sizes}


def _aria(call: Call) -> Entries:
    return {"pixel_values": _joined(call), "pixel_mask": _joined(call, "pixel_mask"), "num_crops": 1}


def _patches(call: Call) -> Entries:
    return {"pixel_values": _joined(call), "image_grid_thw": _joined(call, "image_grid_thw")}


def _siglip2(call: Call) -> Entries:
    return {
        **_list(call),
        "pixel_attention_mask": [each.tensors["pixel_attention_mask"][0] for each in call.images],
        "spatial_shapes": [tuple(each.tensors["spatial_shapes"][0].tolist()) for each in call.images],
    }


def _gemma4(call: Call) -> Entries:
    return {
        "pixel_values": _joined(call),
        "image_position_ids": _joined(call, "image_position_ids"),
        "num_soft_tokens_per_image": [int(each.tensors["num_soft_tokens_per_image"][0]) for each in call.images],
    }


def _llava_next(call: Call) -> Entries:
    images = _list(call)["pixel_values"]
    if call.settings.get("do_pad"):
        images = call.processor._pad_for_batching(images)
    return {
        "pixel_values": images,
        "image_sizes": [(each.plan.source.height, each.plan.source.width) for each in call.images],
    }


def _onevision(call: Call) -> Entries:
    (numbers,) = call.arguments
    if numbers != [1] * len(call.images):
        raise UsageError("several images of one sample become squares without tiles; the library makes them")
    return {**_llava_next(call), "batch_num_images": numbers}


def _crops(call: Call) -> Entries:
    return {
        "pixel_values": [tile for each in call.images for tile in each.pixels],
        "num_patches": [len(each.pixels) for each in call.images],
    }


def _ovis2(call: Call) -> Entries:
    return {"pixel_values": _crops(call)["pixel_values"], "grids": [each.tiles for each in call.images]}


def _idefics3(call: Call) -> Entries:
    samples = [[tile for image in sample for tile in image.pixels[0]] for sample in call.samples]
    number = max(map(len, samples))
    sides = [max(tile.shape[axis] for sample in samples for tile in sample) for axis in (-2, -1)]
    pixels = torch.zeros(len(samples), number, 3, *sides)
    masks = torch.zeros(len(samples), number, *sides, dtype=torch.int64)
    for place, sample in enumerate(samples):
        for index, tile in enumerate(sample):
            rows, columns = tile.shape[-2:]
            pixels[place, index, :, :rows, :columns] = tile
            masks[place, index, :rows, :columns] = 1
    return {"pixel_values": pixels, "pixel_attention_mask": masks}


def _rows_and_columns(call: Call) -> Entries:
    if not call.settings.get("return_row_col_info"):
        return {}
    grids = [[[0, 0] if each.tiles == [1, 1] else each.tiles for each in sample] for sample in call.samples]
    return {
        "rows": [[rows for rows, _ in sample] for sample in grids],
        "cols": [[columns for _, columns in sample] for sample in grids],
    }


def _mllama(call: Call) -> Entries:
    high = call.settings["max_image_tiles"]
    grids = [[tuple(each.tiles) for each in sample] for sample in call.samples]
    tiles = [[each.pixels[0, 0, : each.plan.images] for each in sample] for sample in call.samples]
    return {
        "pixel_values": call.of_module("pad_batches_and_tiles")(tiles, high)[0],
        "aspect_ratio_ids": call.of_module("convert_aspect_ratios_to_ids")(grids, max_image_tiles=high),
        "aspect_ratio_mask": call.of_module("build_aspect_ratio_mask")(grids, max_image_tiles=high),
    }


def _number_of_tiles(call: Call) -> Entries:
    return {"num_tiles": [[each.plan.images for each in sample] for sample in call.samples]}


def _llama4(call: Call) -> Entries:
    joined = call.settings.get("return_tensors")
    return {
        "pixel_values": _joined(call) if joined else [each.pixels for each in call.images],
        "aspect_ratios": [torch.tensor(each.tiles) for each in call.images],
    }


def _joined(call: Call, name: str = "pixel_values") -> torch.Tensor:
    return torch.cat([each.tensors[name] for each in call.images])


def _nothing(call: Call) -> Entries:
    return {}


@dataclass(frozen=True, slots=True)
class Batch:
    """How a class makes a batch.

    Args:
        tensors: The function that makes the entries of a call that become tensors.
        added: The function that makes the entries that are added as they are.
        without_effect: Settings that change `added` alone.
    """

    tensors: Callable[[Call], Entries]
    added: Callable[[Call], Entries] = _nothing
    without_effect: frozenset[str] = frozenset()


_OF_IDEFICS3: Final = Batch(_idefics3, _rows_and_columns, frozenset(("return_row_col_info",)))

BATCHES: Final[Mapping[str, Batch]] = {
    **dict.fromkeys(
        (f"{name}ImageProcessor" for name in ("CLIP", "Bit", "Siglip", "ViT", "DeiT", "Chameleon")), Batch(_padded_list)
    ),
    **dict.fromkeys((f"{name}ImageProcessor" for name in ("Llava", "ConvNext", "Donut")), Batch(_list)),
    **dict.fromkeys((f"{name}ImageProcessor" for name in ("DeepseekVL", "Janus")), Batch(_mean_colour)),
    **dict.fromkeys(
        (f"{name}ImageProcessor" for name in ("Qwen2VL", "Glm4v", "Glm46V", "PaddleOCRVL")), Batch(_patches)
    ),
    **dict.fromkeys((f"{name}ImageProcessor" for name in ("GotOcr2", "Cohere2Vision")), Batch(_crops)),
    **dict.fromkeys((f"{name}ImageProcessor" for name in ("Idefics3", "SmolVLM")), _OF_IDEFICS3),
    "Gemma3ImageProcessor": Batch(_gemma3),
    "PixtralImageProcessor": Batch(_pixtral),
    "AriaImageProcessor": Batch(_aria),
    "Siglip2ImageProcessor": Batch(_siglip2),
    "Gemma4ImageProcessor": Batch(_gemma4),
    "LlavaNextImageProcessor": Batch(_llava_next),
    "LlavaOnevisionImageProcessor": Batch(_onevision),
    "Ovis2ImageProcessor": Batch(_ovis2),
    "MllamaImageProcessor": Batch(_mllama, _number_of_tiles),
    "Llama4ImageProcessor": Batch(_llama4),
}
