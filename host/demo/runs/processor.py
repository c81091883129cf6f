"""Make tensors of an image processor of Hugging Face with the DPU and with the CPU path, and compare them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from headrace.batching import HeadraceError
from headrace.host.demo.inputs.images import ImageFile
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.hugging_face.front import preprocess
from headrace.host.dpu.hugging_face.names import image_processor
from headrace.host.xrt import Api

MODEL: Final = "qwen2-vl"
COUNT: Final = 2  # photos, for the CPU path and an emulation take their time


@dataclass(frozen=True, slots=True)
class ProcessorCheck:
    """The photos whose tensors the DPU made with the processor of a model, and how many equal those of the CPU path.

    `shapes` are those of `pixel_values` of these photos."""

    model: str
    on_dpu: int
    equal: int
    shapes: tuple[tuple[int, ...], ...]


async def check_processor(
    xclbin: Path, images: Sequence[ImageFile], api: Api | None, step: Callable[[], None], model: str = MODEL
) -> ProcessorCheck:
    """Compare all tensors of the first COUNT photos. A photo that either of the two does not take is left out."""
    spec = image_processor(model)
    equal, shapes = 0, []
    async with Dpu(xclbin, spec, api=api) as dpu:
        for image in images[:COUNT]:
            step()
            try:
                expected = preprocess(image.jpeg, spec)
                done = await dpu.process(image.jpeg)
            except HeadraceError:
                continue
            if done.unit == "cpu":
                continue
            same = expected.keys() == done.tensors.keys()
            equal += same and all(np.array_equal(done.tensors[name], each) for name, each in expected.items())
            shapes.append(done.tensor.shape)
    return ProcessorCheck(model, len(shapes), equal, tuple(shapes))
