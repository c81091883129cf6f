"""Weights from a file: of torch.save (`.pt`, `.pth` and others), or `.safetensors`."""

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.host.workers.networks.foreign.archives import checked, is_archive, opened
from headrace.host.workers.networks.foreign.limits import box
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules

SAFETENSORS = ".safetensors"
_INNER = ("model", "state_dict", "model_state_dict")


def load_weights(module: torch.nn.Module, path: Path, rules: FileRules = ANY_FILE) -> None:
    """Load a state_dict, also one under `model`, `state_dict` or `model_state_dict`, or of a DataParallel module.

    Raises UsageError, which names what is missing, not expected, or no number."""
    where = f"--weights {path}"
    with box(where, [path], rules), opened(where, path, rules.weights_sha256) as file:
        state = _safetensors(where, file) if path.suffix == SAFETENSORS else _state_dict(where, file)
        prefix = "module."  # of DataParallel
        own = module.state_dict()
        if all(key.startswith(prefix) for key in state) and not all(key.startswith(prefix) for key in own):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
        _check_values(where, state, own, rules)
        try:
            missing, unexpected = module.load_state_dict(state, strict=False)
        except Exception as error:
            raise UsageError(f"{where} does not fit the network: {one_line(error)}") from error
    if missing or unexpected:
        raise UsageError(
            f"{where} does not fit the network: missing {', '.join(missing[:3]) or 'nothing'}, "
            f"unexpected {', '.join(unexpected[:3]) or 'nothing'}"
        )


def check_finite(where: str, state: Mapping[str, Any]) -> None:
    """Raise UsageError for the first weight that is NaN or infinite."""
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
            continue
        if value.element_size() == 1:  # of the kinds of 8 bits, which torch does not compare
            value = value.float()
        if not (finite := torch.isfinite(value)).all():
            count = int(value.numel() - finite.sum())
            raise UsageError(
                f"{where}: {name!r} has {count} values that are NaN or infinite; bring other weights, or take these "
                "with --allow-nonfinite-weights"
            )


def _check_values(where: str, state: Mapping[str, Any], own: Mapping[str, Any], rules: FileRules) -> None:
    for name, value in state.items():
        taken = own.get(name)
        if isinstance(value, torch.Tensor) and value.is_meta:
            raise UsageError(f"{where}: {name!r} was saved without its values; save weights that are in memory")
        if isinstance(value, torch.Tensor) and value.is_complex() and taken is not None and not taken.is_complex():
            raise UsageError(
                f"{where}: {name!r} is complex, and the network's is {str(taken.dtype).removeprefix('torch.')}; save "
                "weights of the network's own type"
            )
    if not rules.allow_nonfinite:
        check_finite(where, state)


def _safetensors(where: str, file: BinaryIO) -> Mapping[str, Any]:
    """Return the weights in a file of safetensors. Raises UsageError, also where the library is missing."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{where}: safetensors is not installed, which reads it: pip install 'headrace[torch]'"
        ) from error
    try:
        return load_file(f"/proc/self/fd/{file.fileno()}")
    except SafetensorError as error:
        raise UsageError(f"{where}: it is no file of safetensors, or a damaged one: {one_line(error)}") from error


def _state_dict(where: str, file: BinaryIO) -> Mapping[str, Any]:
    """Return the innermost state_dict in a file of torch.save. Raises UsageError."""
    if is_archive(file):
        if _is_torchscript(file):
            raise UsageError(f"{where}: {_more_than_weights('TorchScript')}")
        with checked(where, file):
            pass
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:
        raise UsageError(f"{where}: {_why_not_loaded(error)}") from error
    seen = set()
    while isinstance(state, Mapping):
        if id(state) in seen:
            raise UsageError(
                f"{where}: a table in it holds itself; save the weights alone: torch.save(module.state_dict(), file)"
            )
        seen.add(id(state))
        nested = next((state[key] for key in _INNER if isinstance(state.get(key), Mapping)), None)
        if nested is None:
            break
        state = nested
    if not isinstance(state, Mapping) or not all(isinstance(key, str) for key in state):
        raise UsageError(f"{where}: it holds a {type(state).__name__}; a state_dict is needed")
    return state


def _is_torchscript(file: BinaryIO) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except Exception:  # `checked` says why
        return False


def _more_than_weights(what: str) -> str:
    return (
        f"it holds more than weights ({what}), which could run any code as it loads; "
        "save the weights alone with torch.save(module.state_dict(), file)"
    )


def _why_not_loaded(error: Exception) -> str:
    if found := re.search(r"Unsupported global: GLOBAL (\S+)", str(error)):
        return _more_than_weights(found[1])
    if isinstance(error, (pickle.UnpicklingError, EOFError)):
        return "it is no file of torch.save, or a damaged one"
    return one_line(error)
