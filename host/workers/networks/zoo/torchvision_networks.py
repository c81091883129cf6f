"""torchvision's networks by name, with random weights. It downloads nothing.

The import of this module imports torchvision, which takes a second. A fork server does it for all of its workers.
"""

import difflib
import inspect
from collections.abc import Sequence
from typing import Any

import torch

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.host.dpu.specs import ImageSpec
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.zoo import torchvision_operators  # noqa: F401  before torchvision

import torchvision  # isort: skip


def known_name(name: str) -> str:
    """Return torchvision's own name of a network whose inputs are tensors. Raises UsageError, which suggests close
    names."""
    models = torchvision.models
    modules = (models, models.segmentation, models.video, models.optical_flow)
    known = [known for module in modules for known in models.list_models(module=module)]
    wanted = name.replace("-", "_")
    if wanted not in known:
        close = difflib.get_close_matches(wanted, known, n=4)
        hint = f"did you mean {', '.join(close)}?" if close else "for example mobilenet_v3_small or resnet50"
        raise UsageError(f"torchvision has no network {name!r}; {hint}")
    return wanted


def published(name: str) -> tuple[ImageSpec | None, tuple[str, ...] | None]:
    """Return the transform and the labels of torchvision's default weights, from their description alone."""
    models = torchvision.models
    weights = models.get_model_weights(name).DEFAULT
    categories = weights.meta.get("categories")
    transform = None
    if name in models.list_models(module=models):  # classification; an ImageSpec cannot express other tasks' transforms
        made = weights.transforms()
        (crop,), (short,) = made.crop_size, made.resize_size
        transform = ImageSpec(short, crop, crop, mean=tuple(made.mean), std=tuple(made.std))
    return transform, categories and tuple(categories)


def torchvision_model(name: str, inputs: Sequence[TensorSpec] | None) -> torch.nn.Module:
    """Return the network with random weights, otherwise built as torchvision builds it for its own weights."""
    models = torchvision.models
    builder = models.get_model_builder(name)
    options: dict[str, Any] = {}
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None  # torchvision downloads them otherwise
    if name in ("googlenet", "inception_v3"):
        # Their weights come from TensorFlow: images are normalized as for all networks and rescaled inside.
        options |= {"transform_input": True, "init_weights": False}  # the initialisation would take 10 s
    if inputs and len(inputs[0].shape) == 3:
        if name.startswith("vit_"):
            options["image_size"] = inputs[0].shape[-1]
        if name == "maxvit_t":
            options["input_size"] = inputs[0].shape[-2:]
    try:
        return builder(weights=None, **options)
    except Exception as error:  # only the caller's sizes can cause it
        raise UsageError(f"model {name!r} cannot be built for this --input-shape: {one_line(error)}") from error
