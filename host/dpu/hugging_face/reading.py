"""Read the image processor of a model on Hugging Face: `preprocessor_config.json` to a `ProcessorSpec`.

A file names a class of transformers, and changes some of its settings. CLASSES has the classes, with the settings that
transformers 5.23 gives them. Every key of a file is either read, or known to have no effect, or refused by name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face import patches, plain, tiled
from headrace.host.dpu.hugging_face.settings import Class, Config, Settings, is_count, is_real
from headrace.host.dpu.processors import Engine, Filter, ProcessorSpec

CLASSES: Final[Mapping[str, Class]] = {**plain.CLASSES, **patches.CLASSES, **tiled.CLASSES}

REFUSED: Final[Mapping[str, str]] = {
    "DINOv3ViTImageProcessor": "it resizes rescaled numbers, and a resize here takes bytes",
    "NougatImageProcessor": "it cuts the margin by the content, and shrinks with Pillow's reducing_gap",
    "Phi4MultimodalImageProcessor": "its thumbnail is a resize of normalized numbers, and a resize here takes bytes",
}

FILTERS: Final = {  # PIL.Image.Resampling
    1: Filter.LANCZOS,
    2: Filter.BILINEAR,
    3: Filter.BICUBIC,
    4: Filter.BOX,
    5: Filter.HAMMING,
}

# Keys that say how a library runs, or what it does with many images. They change no pixel of one image.
WITHOUT_EFFECT: Final = frozenset(
    (
        "image_processor_type",
        "feature_extractor_type",
        "processor_class",
        "auto_map",
        "_valid_processor_keys",
        "do_convert_rgb",  # an image is RGB before it comes here
        "data_format",
        "input_data_format",
        "return_tensors",
        "device",
        "disable_grouping",
        "crop_size",  # a class that does not read it refuses do_center_crop
        "pad_size",  # and do_pad
    )
)
# Keys of all classes that are read.
COMMON: Final = frozenset(
    (
        "do_resize",
        "size",
        "default_to_square",
        "resample",
        "do_rescale",
        "rescale_factor",
        "do_normalize",
        "image_mean",
        "image_std",
    )
)


def from_hf(config: Config | Path | str, engine: Engine = Engine.TORCHVISION, base: str | None = None) -> ProcessorSpec:
    """Return the spec of an image processor of transformers.

    Args:
        config: The contents of a `preprocessor_config.json`, or the path of the file.
        engine: Library of the results. transformers 5 uses torchvision where it is installed.
        base: The processor's class, for a file that names none.

    Raises:
        UsageError: The file cannot be read, its class has no counterpart here, or a setting is unknown or wrong.
    """
    values = config if isinstance(config, Mapping) else _read(Path(config))
    name = _class_name(values, base)
    known = CLASSES[name]
    if engine is not Engine.TORCHVISION and not known.pillow:
        raise UsageError(f"{name}: transformers has no Pillow path for it; choose the engine torchvision")
    settings = Settings(name, known.defaults, values)
    unknown = sorted(set(values) - _without_effect(values) - COMMON - known.keys)
    if unknown:
        read = ", ".join(sorted(COMMON | known.keys))
        raise UsageError(f"{name}: the setting {unknown[0]} is unknown here; those that are read are {read}")
    filter_ = FILTERS.get(settings["resample"]) if is_count(settings["resample"]) else None
    if filter_ is None:
        raise settings.refuse("resample", "1 (lanczos), 2 (bilinear), 3 (bicubic), 4 (box) or 5 (hamming)")
    normalize, rescale = settings.flag("do_normalize"), settings.flag("do_rescale")
    if rescale and not is_real(settings["rescale_factor"]):
        raise settings.refuse("rescale_factor", "a number")
    geometry = known.geometry(settings)
    return ProcessorSpec(
        name=name,
        filter=filter_,
        engine=engine,
        sizes=geometry.sizes,
        place=geometry.place,
        tiles=geometry.tiles,
        rescale=settings["rescale_factor"] if rescale else None,
        mean=settings.values("image_mean") if normalize else None,
        std=settings.values("image_std") if normalize else None,
        bfloat16=geometry.bfloat16,
        layout=geometry.layout,
        extras=geometry.extras,
    )


def _without_effect(values: Config) -> frozenset[str]:
    """Return keys of a file that change nothing: nulls, and steps that are off with their sizes."""
    nulls = {key for key, value in values.items() if value is None}
    off = {key for key in ("do_center_crop", "do_pad") if values.get(key) is False}
    return WITHOUT_EFFECT | nulls | off


def _read(path: Path) -> Config:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} has no object of settings; give a preprocessor_config.json")
    return values


def _class_name(values: Config, base: str | None) -> str:
    """Return the name of the class without the endings that name its back end or its age."""
    named = values.get("image_processor_type") or values.get("feature_extractor_type") or base
    if not isinstance(named, str):
        raise UsageError("the processor has no image_processor_type; name its class in transformers")
    stem = (
        named.removesuffix("Fast").removesuffix("Pil").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    )
    name = f"{stem}ImageProcessor"
    if name in REFUSED:
        raise UsageError(f"{named} has no counterpart here, because {REFUSED[name]}; call transformers itself")
    if name not in CLASSES:
        raise UsageError(f"{named} has no counterpart here; known are {', '.join(CLASSES)}")
    return name
