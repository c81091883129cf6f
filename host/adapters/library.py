"""transformers, and what both kinds of adapters do with its objects."""

import importlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headrace.batching import UsageError
from headrace.host.adapters.counts import Counts
from headrace.host.adapters.device import CPU, Device, container_of
from headrace.host.dpu.hugging_face.names import FILE

STATE: Final = "_headrace"  # the attribute of an adapter that has its Work


class Work:
    """The parts of an adapter besides the settings of the library: its target, its device and its counts.

    Copies of an adapter share it. A pickled adapter gets one of its own."""

    def __init__(self, target: str | os.PathLike[str] = CPU) -> None:
        """Build the container of an emulated target. Raises UsageError for a target that does not exist."""
        self.target = target
        self.counts = Counts()
        self.device = None if target == CPU else Device(container_of(target))

    def __deepcopy__(self, memo: Any) -> "Work":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Work, (self.target,)

    def close(self) -> None:
        if self.device is not None:
            self.device.close()


def transformers() -> Any:
    """Return the module. Raises UsageError where it, torch or torchvision is missing."""
    try:
        # A torchvision that was built for CUDA loads with a torch without it only after this module.
        importlib.import_module("headrace.host.workers.networks.zoo.torchvision_operators")
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise UsageError(f"this needs {error.name}; pip install 'headrace[transformers]'") from error


def loaded(auto: Any, name_or_path: str | os.PathLike[str], known: Mapping[str, Any] | None, **settings: Any) -> Any:
    """Return the object that a class of transformers makes of a model.

    Args:
        auto: AutoImageProcessor or AutoFeatureExtractor.
        known: The file's contents, for a model that Headrace knows by name.
        settings: Arguments of `from_pretrained`, among them settings that take the place of those of the file. Nothing
            is downloaded unless they say `local_files_only=False`.
    """
    if known is None:
        return auto.from_pretrained(name_or_path, **{"local_files_only": True} | settings)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_text(json.dumps(dict(known)), "utf-8")
        return auto.from_pretrained(folder, **settings)


def is_library_class(kind: type) -> bool:
    """Tell whether a class is one of transformers itself, and not a subclass of a user."""
    return kind.__module__.partition(".")[0] == "transformers"
