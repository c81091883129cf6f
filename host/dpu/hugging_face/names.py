"""Find the image processor or the feature extractor of a model by a known name, in a file, or in the model's folder."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.model_types import MODEL_TYPES
from headrace.host.dpu.hugging_face.reading import CLASSES, REFUSED, from_hf, with_path
from headrace.host.dpu.processors import Engine, ProcessorSpec
from headrace.host.dpu.specs import AudioSpec, feature_extractors
from headrace.host.dpu.specs.config_file import Config, read

FILE: Final = "preprocessor_config.json"
FILE_OF_ALL: Final = "processor_config.json"  # with the settings of all inputs; transformers looks there first
KEY_OF_ALL: Final = "image_processor"
AUDIO_KEY_OF_ALL: Final = "feature_extractor"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all known models that take images, in alphabetical order."""
    folder = files(__package__) / "models"
    return tuple(sorted(each.name.removesuffix(".json") for each in folder.iterdir() if each.name.endswith(".json")))


def config(name: str) -> Mapping[str, Any]:
    """Return the settings of a known model, as its `preprocessor_config.json` has them."""
    text = (files(__package__) / "models" / f"{name}.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def audio_names() -> tuple[str, ...]:
    """Return the names of all known models that take audio, in alphabetical order."""
    return tuple(sorted(feature_extractors.MODELS))


def processor(
    name_or_path: str | Path,
    engine: Engine | str | None = None,
    *,
    dtype: str | None = None,
    channels_last: bool = False,
) -> ProcessorSpec | AudioSpec:
    """Return the image processor of a model, or the feature extractor of a model that takes audio.

    A known name takes precedence over a path; `./NAME` names the path. A model with both is taken for images.

    Args:
        name_or_path: A known model, such as "qwen2-vl" or "whisper-tiny" (`headrace preprocess processors` lists them),
            a `preprocessor_config.json`, or the folder of a model, which has that file beside its weights.
        engine: The library whose bits the tensors of an image have: "torchvision", as transformers 5 has it, which is
            the default, "pillow12" (up to 12.1) or "pillow13".
        dtype: Type to which the values are cast at the end: "float32", "float16" or, for images, "bfloat16", whose bits
            come. None keeps that of the processor.
        channels_last: Whether images have the layout (rows, columns, channels).

    Raises:
        UsageError: There is no such name, file, engine or type. Headrace does not have the processor. Or
            `channels_last` is given for a tensor of patches, or an argument of images for audio.
    """
    if not is_for_audio(name_or_path):
        return image_processor(name_or_path, engine or Engine.TORCHVISION, dtype=dtype, channels_last=channels_last)
    for name, given in (("engine", engine), ("channels_last", channels_last)):
        if given:
            raise UsageError(f"{name_or_path} is for audio, and {name} is for images; leave out {name}")
    return audio_processor(name_or_path, dtype=dtype)


def image_processor(
    name_or_path: str | Path,
    engine: Engine | str = Engine.TORCHVISION,
    *,
    dtype: str | None = None,
    channels_last: bool = False,
) -> ProcessorSpec:
    """Return the image processor of a model, as `processor` does. Raises UsageError for one that takes audio alone."""
    by = _engine(engine)
    if is_for_audio(name_or_path):
        raise UsageError(f"{name_or_path} is for audio, and images are given; name a model that takes images")
    return _found(name_or_path, by).cast(dtype, channels_last)


def audio_processor(name_or_path: str | Path, *, dtype: str | None = None) -> AudioSpec:
    """Return the feature extractor of a model, as `processor` does. Raises UsageError for one that takes images."""
    if isinstance(name_or_path, str) and name_or_path in feature_extractors.MODELS:
        spec = AudioSpec.from_hf(feature_extractors.MODELS[name_or_path])
    elif isinstance(name_or_path, str) and name_or_path in names():
        raise UsageError(f"{name_or_path} is for images, and audio is given; name a model that takes audio")
    else:
        path = Path(name_or_path)
        if not path.exists() and path.suffix != ".json":
            raise _unknown(name_or_path, audio_names())
        spec = _audio_of_folder(path) if path.is_dir() else _audio_of_file(path)
    return spec if dtype is None else replace(spec, dtype=dtype)


def is_for_audio(name_or_path: str | Path) -> bool:
    """Tell whether this names a model that takes audio and no images. A file that cannot be read does not."""
    if isinstance(name_or_path, str) and name_or_path in (*names(), *feature_extractors.MODELS):
        return name_or_path in feature_extractors.MODELS
    path = Path(name_or_path)
    of_all = _settings(path / FILE_OF_ALL)
    if isinstance(of_all.get(KEY_OF_ALL), dict):
        return False
    if isinstance(of_all.get(AUDIO_KEY_OF_ALL), dict):
        return True
    file = path / FILE if path.is_dir() else path
    config = _settings(file)
    named = config.get("feature_extractor_type") or _audio_class_of_model(file.with_name("config.json"))
    if config.get("image_processor_type") or not isinstance(named, str):
        return False
    if named in feature_extractors.CLASSES:
        return True
    # Image processors had the names of feature extractors once.
    of_images = f"{named.removesuffix('FeatureExtractor')}ImageProcessor"
    return named.endswith("FeatureExtractor") and of_images not in CLASSES and of_images not in REFUSED


def _settings(path: Path) -> Config:
    """Return the settings of a file, or none."""
    try:
        return read(path) if path.is_file() else {}
    except UsageError:
        return {}


def _audio_class_of_model(path: Path) -> str | None:
    """Return the class for a file that names none, by the model's own settings. None if they do not tell."""
    model_type = _settings(path).get("model_type")
    return feature_extractors.MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None


def _audio_of_file(path: Path) -> AudioSpec:
    return AudioSpec.from_hf(path, _audio_class_of_model(path.with_name("config.json")))


def _audio_of_folder(folder: Path) -> AudioSpec:
    of_all = folder / FILE_OF_ALL
    if of_all.exists() and isinstance(settings := read(of_all).get(AUDIO_KEY_OF_ALL), dict):
        try:
            return AudioSpec.from_hf(settings)
        except UsageError as error:
            raise UsageError(f"{of_all}: {error}") from error
    if (folder / FILE).exists():
        return _audio_of_file(folder / FILE)
    raise UsageError(f"{folder} has no {FILE}; name the folder of a model that takes audio")


def _found(name_or_path: str | Path, by: Engine) -> ProcessorSpec:
    if isinstance(name_or_path, str) and name_or_path in names():
        return from_hf(config(name_or_path), by)
    path = Path(name_or_path)
    if path.is_dir():
        return _of_folder(path, by)
    if path.exists() or path.suffix == ".json":
        return _of_file(path, by)
    raise _unknown(name_or_path, names())


def _unknown(name: str | Path, known: tuple[str, ...]) -> UsageError:
    """Return the error for a name that no model has."""
    close = difflib.get_close_matches(str(name).rpartition("/")[2].lower(), (*names(), *audio_names()), n=3)
    hint = (
        f"did you mean {', '.join(close)}? `headrace preprocess processors` lists all"
        if close
        else f"known are {', '.join(known)}"
    )
    return UsageError(f"there is no processor {str(name)!r}; {hint}; or give a {FILE}, or the folder that has it")


def _engine(engine: Engine | str) -> Engine:
    try:
        return Engine(engine)
    except ValueError:
        raise UsageError(
            f"there is no engine {engine!r}; choose from {', '.join(each.value for each in Engine)}"
        ) from None


def _of_file(path: Path, engine: Engine) -> ProcessorSpec:
    return from_hf(path, engine, _class_of_model(path.with_name("config.json")))


def _class_of_model(path: Path) -> str | None:
    """Return the class for a file that names none, by the model's own settings. None if they do not tell."""
    try:
        model_type = read(path).get("model_type")
    except UsageError:
        return None
    return MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None


def _of_folder(folder: Path, engine: Engine) -> ProcessorSpec:
    of_all = folder / FILE_OF_ALL
    if of_all.exists():
        settings = read(of_all).get(KEY_OF_ALL)
        if isinstance(settings, dict):
            return with_path(of_all, lambda: from_hf(settings, engine))
    if (folder / FILE).exists():
        return _of_file(folder / FILE, engine)
    if of_all.exists():
        raise UsageError(f"{of_all} has no {KEY_OF_ALL}; name a model that takes images")
    raise UsageError(f"{folder} has no {FILE}; name the folder of a model that takes images")
