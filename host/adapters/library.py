"""transformers, and what both kinds of adapters do with its objects."""

import importlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
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


class Adapter:
    """The parts that adapters for images and for audio have in common.

    A subclass has a subclass of its own for each class of the library."""

    library_class: type

    def __new__(cls, *_: Any, **settings: Any) -> Any:
        if not hasattr(cls, "library_class"):
            raise UsageError(f"{cls.__name__} has a subclass for each model; call {cls.__name__}.from_pretrained")
        return super().__new__(cls)

    @property
    def counts(self) -> dict[str, int]:
        """The number of images, or of sounds, by the place that made their tensors: "dpu", "cpu" and "library"."""
        return self._work.counts.counts

    @property
    def reasons(self) -> dict[str, str]:
        """The last reason for "cpu" in place of the DPU, and for "library", by place."""
        return self._work.counts.reasons

    def close(self) -> None:
        """Close the device. Calls in progress and later calls go to the CPU."""
        self._work.close()

    @staticmethod
    def _knows(kind: type) -> bool:
        """Tell whether Headrace has a class of transformers."""
        raise NotImplementedError

    @staticmethod
    def _class_for(kind: type) -> type:
        """Return the adapter's class for a class of transformers. It has its name, which files of settings have."""
        raise NotImplementedError

    @classmethod
    def _adapted(cls, made: Any, work: "Work") -> Any:
        """Make an adapter of what a `from_pretrained` of transformers returned, and return the same object.

        That is an object, which keeps its settings, or a tuple that begins with it (`return_unused_kwargs`)."""
        if isinstance(made, tuple):
            return cls._adapted(made[0], work), *made[1:]
        made.__class__ = cls._class_for(made.library_class if isinstance(made, Adapter) else type(made))
        made.__dict__[STATE] = work
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, as the library's own object returns them."""
        settings: dict[str, Any] = super().to_dict()  # type: ignore[misc]
        settings.pop(STATE, None)
        return settings

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self)._class_for, self.library_class, dict(self.__dict__))

    @property
    def _work(self) -> "Work":
        if STATE not in self.__dict__:
            self.__dict__.setdefault(STATE, Work())  # which keeps that of a thread that came first
        work: Work = self.__dict__[STATE]
        return work


def _restored(class_for: Callable[[type], type], kind: type, attributes: dict[str, Any]) -> Any:
    """Return the adapter that was pickled or copied."""
    made: Any = object.__new__(class_for(kind))
    made.__dict__.update(attributes)
    return made


def transformers() -> Any:
    """Return the module. Raises UsageError where it or torch is missing."""
    try:
        # A torchvision that was built for CUDA loads with a torch without it only after this module.
        importlib.import_module("headrace.host.workers.networks.zoo.torchvision_operators")
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        raise UsageError(f"this needs {error.name}; pip install 'headrace[transformers]'") from error


def loaded(
    adapter: type[Adapter],
    auto: str,
    name_or_path: str | os.PathLike[str],
    known: Mapping[str, Any] | None,
    target: str | os.PathLike[str],
    settings: Mapping[str, Any],
) -> Any:
    """Return the adapter of a model, as `from_pretrained` of the adapter's class does.

    Args:
        auto: "AutoImageProcessor" or "AutoFeatureExtractor".
        known: The file's contents, for a model that Headrace knows by name.
        settings: Arguments of `from_pretrained` of that class.
    """
    load = getattr(transformers(), auto).from_pretrained
    if known is None:
        made = load(name_or_path, **{"local_files_only": True, **settings})
    else:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / FILE).write_text(json.dumps(dict(known)), "utf-8")
            made = load(folder, **settings)
    return adapter._adapted(made, Work(target))


def is_library_class(kind: type) -> bool:
    """Tell whether a class is one of transformers itself, and not a subclass of a user."""
    return kind.__module__.partition(".")[0] == "transformers"
