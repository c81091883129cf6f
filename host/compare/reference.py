"""The reference: an image processor or a feature extractor of transformers, and what is known of its stages."""

import importlib
import io
import json
import platform
import tempfile
from pathlib import Path
from typing import Any, Final

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.host.compare.stages import Tensors, decode_audio, engine_of_pillow, installed, mono, resample
from headrace.host.compare.values import as_tensors
from headrace.host.dpu.hugging_face import names
from headrace.host.dpu.hugging_face.reading import from_hf
from headrace.host.dpu.processors import Engine, ProcessorSpec
from headrace.host.dpu.specs import AudioSpec, feature_extractors

PREFIX: Final = "transformers:"
PIXEL_VALUES: Final = "pixel_values"


class Refused(UsageError):
    """The reference itself makes no tensor of a file, so there is nothing to compare."""


class Reference:
    """An image processor or a feature extractor of transformers.

    Attributes:
        name: As it was given, without the prefix.
        audio: Whether it takes audio.
        class_name: Its class in transformers.
        spec: What it computes, as Headrace reads it, or None.
        why_no_spec: The reason for None.
        versions: Versions of the libraries, by name.
    """

    def __init__(self, text: str) -> None:
        """Load a processor by `transformers:NAME` or `transformers:FOLDER`. Raises UsageError."""
        if not text.startswith(PREFIX) or not text.removeprefix(PREFIX).strip():
            raise UsageError(f"--reference {text!r}: give {PREFIX}NAME, or {PREFIX}FOLDER of a model")
        self.name = text.removeprefix(PREFIX)
        known = self.name in (*names.names(), *names.audio_names())
        if not known and (Path(self.name).exists() or self.name.startswith((".", "/"))):
            _check_folder(Path(self.name))
        self.audio = names.is_for_audio(self.name)
        self._transformers = _transformers()
        self._processor = self._loaded(known)
        self.class_name = type(self._processor).__name__
        self.spec, self.why_no_spec = self._spec(known)
        packages = ("transformers", "torch", "numpy") + (() if self.audio else ("pillow", "torchvision"))
        self.versions = {"python": platform.python_version(), **{each: installed(each) for each in packages}}

    @property
    def main(self) -> str:
        """Return the name of the tensor that stages are told of."""
        if isinstance(self.spec, AudioSpec) and self.spec.tensors is not None:
            return self.spec.tensors.features
        return str(self._processor.model_input_names[0]) if self.audio else PIXEL_VALUES

    @property
    def rate(self) -> int:
        """Return the rate of the samples that a feature extractor takes, in Hz."""
        return int(self._processor.sampling_rate)

    def tensors(self, data: bytes) -> Tensors:
        """Return the tensors of a file. Raises Refused for a file of which transformers makes none."""
        try:
            if self.audio:
                return self.features(resample(mono(decode_audio(data)), self.rate))
            pillow = importlib.import_module("PIL.Image")
            load_image = importlib.import_module("transformers.image_utils").load_image
            image = load_image(pillow.open(io.BytesIO(data)))
            return as_tensors(self._processor(images=image, return_tensors="pt"))
        except Exception as error:  # of any class: transformers, Pillow and torch raise their own
            raise Refused(f"{self.class_name}: {one_line(error)}") from error

    def features(self, samples: Any) -> Tensors:
        """Return the tensors of samples at `rate`, shape (n,)."""
        return as_tensors(self._processor(samples, sampling_rate=self.rate, return_tensors="np"))

    def _loaded(self, known: bool) -> Any:
        auto = self._transformers.AutoFeatureExtractor if self.audio else self._transformers.AutoImageProcessor
        if not known:
            return self._from_pretrained(auto, self.name)
        settings = feature_extractors.MODELS[self.name] if self.audio else names.config(self.name)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / names.FILE).write_text(json.dumps(dict(settings)), "utf-8")
            return self._from_pretrained(auto, folder)

    def _from_pretrained(self, auto: Any, path: str) -> Any:
        try:
            return auto.from_pretrained(path)
        except Exception as error:  # of any class, as a file may be anything
            hint = "" if Path(path).exists() else f"; name a folder with a {names.FILE}, or a known model"
            raise UsageError(
                f"--reference {PREFIX}{self.name}: transformers {installed('transformers')} does not load it "
                f"({one_line(error)}){hint}"
            ) from error

    def _spec(self, known: bool) -> tuple[ProcessorSpec | AudioSpec | None, str | None]:
        engine = engine_of_pillow() if self.class_name.endswith("Pil") else Engine.TORCHVISION
        try:
            if known or Path(self.name).exists():
                path = Path(self.name)
                name = self.name if known or not path.is_file() else path
                return (
                    (names.audio_processor(name), None) if self.audio else (names.image_processor(name, engine), None)
                )
            settings = self._processor.to_dict()
            return (AudioSpec.from_hf(settings), None) if self.audio else (from_hf(settings, engine), None)
        except UsageError as error:
            return None, str(error)


def _check_folder(path: Path) -> None:
    """Raise UsageError unless a path has the settings of a processor."""
    if path.is_file():
        return
    if not path.is_dir():
        raise UsageError(f"--reference {PREFIX}{path}: there is no such folder; name the folder of a model")
    if not any((path / name).exists() for name in (names.FILE, names.FILE_OF_ALL)):
        raise UsageError(f"--reference {PREFIX}{path}: the folder has no {names.FILE}; name the folder of a model")


def _transformers() -> Any:
    """Return transformers, silent. A torchvision that was built for CUDA loads after the operators are defined."""
    importlib.import_module("headrace.host.workers.networks.zoo.torchvision_operators")
    module = importlib.import_module("transformers")
    module.utils.logging.set_verbosity_error()
    return module
