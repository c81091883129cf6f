"""Find the image processor of a model: by a known name, in a file, or in the folder of a model."""

import difflib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.model_types import MODEL_TYPES
from headrace.host.dpu.hugging_face.reading import from_hf, read, with_path
from headrace.host.dpu.processors import Engine, ProcessorSpec

FILE: Final = "preprocessor_config.json"
FILE_OF_ALL: Final = "processor_config.json"  # with the settings of all inputs; transformers looks there first
KEY_OF_ALL: Final = "image_processor"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all known models, in alphabetical order."""
    folder = files(__package__) / "models"
    return tuple(sorted(each.name.removesuffix(".json") for each in folder.iterdir() if each.name.endswith(".json")))


def config(name: str) -> Mapping[str, Any]:
    """Return the settings of a known model, as its `preprocessor_config.json` has them."""
    text = (files(__package__) / "models" / f"{name}.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def processor(
    name_or_path: str | Path,
    engine: Engine | str = Engine.TORCHVISION,
    *,
    dtype: str | None = None,
    channels_last: bool = False,
) -> ProcessorSpec:
    """Return the image processor of a model.

    A known name takes precedence over a path; `./NAME` names the path.

    Args:
        name_or_path: A known model, such as "qwen2-vl" (`headrace preprocess processors` lists them), a
            `preprocessor_config.json`, or the folder of a model, which has that file beside its weights.
        engine: The library whose bits the tensors have: "torchvision", as transformers 5 has it, "pillow12" (up to
            12.1) or "pillow13".
        dtype: Type to which the values are cast at the end: "float32", "float16" or "bfloat16", whose bits come. None
            keeps that of the processor.
        channels_last: Whether images have the layout (rows, columns, channels).

    Raises:
        UsageError: There is no such name, file, engine or type. Headrace does not have the processor. Or
            `channels_last` is given for a tensor of patches.
    """
    return _found(name_or_path, _engine(engine)).cast(dtype, channels_last)


def _found(name_or_path: str | Path, by: Engine) -> ProcessorSpec:
    if isinstance(name_or_path, str) and name_or_path in names():
        return from_hf(config(name_or_path), by)
    path = Path(name_or_path)
    if path.is_dir():
        return _of_folder(path, by)
    if path.exists() or path.suffix == ".json":
        return _of_file(path, by)
    close = difflib.get_close_matches(str(name_or_path).rpartition("/")[2].lower(), names(), n=3)
    hint = (
        f"did you mean {', '.join(close)}? `headrace preprocess processors` lists all"
        if close
        else f"known are {', '.join(names())}"
    )
    raise UsageError(
        f"there is no processor {str(name_or_path)!r}; {hint}; or give a {FILE}, or the folder that has it"
    )


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
