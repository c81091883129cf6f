"""Specs say what preprocessing computes: sizes, formats and stages. They compute no input themselves.

A driver, its compute units and the CPU path take the same spec. The type of a spec names the kind of input.
`reference/` defines the results for a spec.
"""

from headrace.host.dpu.specs.audio import (
    AUDIO_FORMATS,
    NORMALIZE_OVER,
    RATES,
    RESAMPLERS,
    SILENCE,
    AudioSpec,
    AudioStage,
)
from headrace.host.dpu.specs.front_ends import (
    Ends,
    Floor,
    Lengths,
    Mask,
    MelScale,
    Rescale,
    Statistics,
    Tensors,
    Tokens,
    Window,
)
from headrace.host.dpu.specs.images import (
    IMAGE_FORMATS,
    IMAGENET_MEAN,
    IMAGENET_STD,
    MAX_MEGAPIXELS,
    Damaged,
    ImageSpec,
    ImageStage,
    Orientation,
)

__all__ = [
    "AUDIO_FORMATS",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "IMAGE_FORMATS",
    "MAX_MEGAPIXELS",
    "NORMALIZE_OVER",
    "RATES",
    "RESAMPLERS",
    "SILENCE",
    "AudioSpec",
    "AudioStage",
    "Damaged",
    "Ends",
    "Floor",
    "ImageSpec",
    "ImageStage",
    "Lengths",
    "Mask",
    "MelScale",
    "Orientation",
    "Rescale",
    "Statistics",
    "Tensors",
    "Tokens",
    "Window",
]
