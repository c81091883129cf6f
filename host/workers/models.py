"""Networks by name: torchvision's classification networks with fixed random weights, or a user's own. No downloads."""

import difflib
import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from headrace.batching import UsageError

INPUT_SHAPE = (3, 224, 224)  # CHW
_registered: list[torch.library.Library] = []  # an operator lives as long as its library object


def import_torchvision():
    """torchvision, also beside a torch without CUDA.

    Its wheel's compiled operators are built against a CUDA torch and do not load beside a CPU one; importing it then
    fails on the fake kernels of two operators that no classification network uses. Defining these two is enough."""
    if not _registered and torch.version.cuda is None:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _registered.append(library)
    return importlib.import_module("torchvision")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """`module` maps float tensors of shape (batch, *input_shape) to (batch, classes)."""

    name: str
    module: torch.nn.Module
    input_shape: tuple[int, ...]
    classes: int


def load_model(name: str, weights: str | None = None) -> LoadedModel:
    """A torchvision classification network by name, or `module:function` for a function that returns one's own.

    Without `weights` (a file with a state_dict) the parameters are random but fixed. Raises UsageError."""
    torch.manual_seed(0)
    module = (_users_model(name) if ":" in name else _torchvision_model(name)).eval()
    if weights is not None:
        load_weights(module, Path(weights))
    try:
        with torch.inference_mode():
            output = module(torch.zeros(1, *INPUT_SHAPE))
    except Exception as error:
        raise UsageError(f"model {name!r} does not take a float tensor of shape (1, 3, 224, 224): {error}") from error
    if not isinstance(output, torch.Tensor) or output.ndim != 2:
        raise UsageError(f"model {name!r} must return a tensor of shape (batch, classes)")
    return LoadedModel(name, module, INPUT_SHAPE, output.shape[1])


def _torchvision_model(name: str) -> torch.nn.Module:
    models = import_torchvision().models
    known = models.list_models(module=models)
    wanted = name.replace("-", "_")
    if wanted not in known:
        close = difflib.get_close_matches(wanted, known, n=4)
        hint = f"did you mean {', '.join(close)}?" if close else "for example mobilenet_v3_small or resnet50"
        raise UsageError(f"torchvision has no network {name!r}; {hint}")
    return models.get_model(wanted, weights=None)


def _users_model(name: str) -> torch.nn.Module:
    module_name, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = getattr(importlib.import_module(module_name), function)()
    except Exception as error:
        raise UsageError(f"--model {name}: calling it failed: {type(error).__name__}: {error}") from error
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"--model {name} returned a {type(module).__name__}; it must return a torch.nn.Module")
    return module


def load_weights(module: torch.nn.Module, path: Path) -> None:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UsageError(f"--weights {path}: {error}") from error
    if isinstance(state, dict) and "state_dict" in state:
        state = state["state_dict"]
    if not isinstance(state, dict):
        raise UsageError(f"--weights {path}: it holds a {type(state).__name__}; a state_dict is needed")
    try:
        missing, unexpected = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise UsageError(f"--weights {path} does not fit the network: {error}") from error
    if missing or unexpected:
        raise UsageError(
            f"--weights {path} does not fit the network: missing {', '.join(missing[:3]) or 'nothing'}, "
            f"unexpected {', '.join(unexpected[:3]) or 'nothing'}"
        )
