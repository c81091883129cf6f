"""Images as a medium: their features are equal to the engine's, bit for bit.

Some engines normalize pixels themselves. They take floats as well, and then generate wrong tokens without an error.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from PIL import Image

from headrace.batching import UsageError
from headrace.host.adapters.render.items import Form, Item
from headrace.host.adapters.render.media import IMAGE, Source, image_as_vllm_reads
from headrace.host.adapters.render.medium import (
    WRONG_FOLDER,
    Content,
    Maker,
    Medium,
    Ready,
    Rendered,
    differs,
    files_of,
)
from headrace.host.adapters.render.prompt import learned
from headrace.host.dpu.hugging_face.names import processor
from headrace.host.dpu.preprocessor import PIXEL_VALUES, Preprocessed
from headrace.host.dpu.processors import ProcessorSpec


class Images(Medium[ProcessorSpec]):
    """Makes the features of images."""

    kind = IMAGE

    def __init__(self, rendered: Sequence[Rendered], maker: Maker) -> None:
        """Read the image processor of the model. Raises UsageError."""
        spec = processor(maker.folder)
        if not isinstance(spec, ProcessorSpec):
            raise UsageError(
                f"--model {maker.folder}: it has a feature extractor for audio, and the engine takes images"
            )
        (found,) = rendered
        self.forms = found.forms
        self.placeholder = learned(list(zip(found.items, found.lengths, strict=True)), found.forms, found.token)
        super().__init__(_in_form(spec, found.forms), rendered, maker)

    @staticmethod
    def samples() -> Sequence[Content]:
        """Return one message with three images."""
        return [[SAMPLES[0], "a", SAMPLES[1], SAMPLES[2]]]

    async def check(self, rendered: Sequence[Rendered]) -> None:
        """Compare features with those of the engine. Raises UsageError."""
        for data, theirs in zip(files_of(self.samples()[0]), rendered[0].items, strict=True):
            _check_item((await self.ready(data)).item, theirs)

    def _as_vllm_reads(self, data: bytes) -> bytes:
        return image_as_vllm_reads(data, self._maker.max_megapixels)

    def _ready(self, done: Preprocessed) -> Ready:
        if missing := self.forms.keys() - done.tensors.keys():
            raise UsageError(f"the engine wants a tensor {min(missing)!r}, which Headrace does not make for this model")
        item = {name: form.of_one(done.tensors[name]) for name, form in self.forms.items()}
        return Ready(item, self.placeholder.length(item))


def _in_form(spec: ProcessorSpec, forms: Mapping[str, Form]) -> ProcessorSpec:
    """Return the spec with values as the engine wants them. An engine that takes bytes normalizes them itself."""
    if PIXEL_VALUES not in forms:
        raise UsageError(f"the engine wants {', '.join(forms)} of an image, and Headrace makes {PIXEL_VALUES}")
    dtype = forms[PIXEL_VALUES].dtype
    if dtype == "uint8":
        return replace(spec, rescale=None, mean=None, std=None, bfloat16=False, dtype=None)
    return spec.cast(dtype) if dtype != "float32" else spec


def _check_item(ours: Item, theirs: Item) -> None:
    for name, expected in theirs.items():
        found = ours[name]
        if (found.dtype, found.shape) != (expected.dtype, expected.shape):
            raise UsageError(
                f"{name} is {found.dtype} {found.shape} here, and {expected.dtype} {expected.shape} in the engine; "
                f"{WRONG_FOLDER}"
            )
        if not np.array_equal(found, expected):
            raise differs(name, float((found != expected).mean()))


def _sample(width: int, height: int, kind: str, mode: str = "RGB") -> Source:
    """Return a picture with colours and edges."""
    y, x = np.mgrid[:height, :width]
    planes = [(x * 5 + y * 3) % 256, (x * y) % 256, ((x // 9 + y // 7) % 2) * 200, (x + y) * 255 // (width + height)]
    pixels = np.stack(planes[: len(mode)], axis=-1).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels, mode).save(file, kind)
    return Source(IMAGE, "a sample", data=file.getvalue())


SAMPLES: Final = (_sample(203, 124, "JPEG"), _sample(96, 140, "PNG"), _sample(120, 80, "PNG", "RGBA"))
