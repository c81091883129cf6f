"""Read the image processor of a model on Hugging Face: `preprocessor_config.json` to a `ProcessorSpec`.

A file names a class of transformers, and changes some of its settings. CLASSES has the classes, with the settings that
transformers 5.23 gives them. Every key of a file is either read, or known to have no effect, or refused by name.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face import patches, plain, tiled
from headrace.host.dpu.hugging_face.settings import Class, Settings, is_count, is_real
from headrace.host.dpu.processors import Engine, Filter, MergedPatches, PatchImages, ProcessorSpec
from headrace.host.dpu.specs.config_file import Config, read, refuse_unknown

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
        "model_valid_processing_keys",
        "video_processor_type",
        "data_format",
        "input_data_format",
        "return_tensors",
        "device",
        "disable_grouping",
        "image_seq_length",  # of the model's tokens
        "_processor_class",  # and the next ones are those of earlier releases, or of classes that are not here
        "backend",
        "do_reduce_labels",
        "max_size",
        "size_divisor",
    )
)
# Keys of the base class, which every class has. Not every class reads all of them.
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
        "do_center_crop",
        "crop_size",
        "do_pad",
        "pad_size",
        "do_convert_rgb",
    )
)
FLAGS: Final = (
    "do_convert_rgb",
    "do_resize",
    "do_rescale",
    "do_normalize",
    "do_center_crop",
    "do_pad",
    "default_to_square",
)
# A class ignores the keys that other classes alone read. A key that nobody knows may be one of a later release.
KNOWN: Final = WITHOUT_EFFECT.union(COMMON, *(known.keys for known in CLASSES.values()))


def from_hf(config: Config | Path | str, engine: Engine = Engine.TORCHVISION, base: str | None = None) -> ProcessorSpec:
    """Return the spec of an image processor of transformers.

    Args:
        config: The contents of a `preprocessor_config.json`, or the path of the file.
        engine: Library of the results. transformers 5 uses torchvision where it is installed.
        base: The processor's class, for a file that names none.

    Raises:
        UsageError: The file cannot be read, its class has no counterpart here, or a setting is unknown or wrong.
    """
    if not isinstance(config, Mapping):
        path = Path(config)
        settings_of_file = read(path)
        return with_path(path, lambda: from_hf(settings_of_file, engine, base))
    name = _class_name(config, base)
    known = CLASSES[name]
    if engine is not Engine.TORCHVISION and not known.pillow:
        raise UsageError(f"{name}: transformers has no Pillow path for it; choose the engine torchvision")
    settings = Settings(name, known.defaults, config)
    refuse_unknown(name, config, KNOWN, COMMON | known.keys)
    for flag in FLAGS:
        settings.flag(flag)
    filter_ = FILTERS.get(settings["resample"]) if is_count(settings["resample"]) else None
    if filter_ is None:
        raise settings.refuse("resample", "1 (lanczos), 2 (bilinear), 3 (bicubic), 4 (box) or 5 (hamming)")
    normalize, rescale = settings.flag("do_normalize"), settings.flag("do_rescale")
    if rescale and not is_real(settings["rescale_factor"]):
        raise settings.refuse("rescale_factor", "a number")
    geometry = known.geometry(settings)
    of_bytes = not normalize and not rescale
    if of_bytes and engine is not Engine.TORCHVISION and isinstance(geometry.layout, MergedPatches | PatchImages):
        raise settings.refuse("do_rescale", "true, or do_normalize, because Pillow's path makes floats of bytes")
    return ProcessorSpec(
        name=name,
        filter=filter_,
        engine=engine,
        on_white=settings.flag("do_convert_rgb"),
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


def with_path(path: Path, make: Callable[[], ProcessorSpec]) -> ProcessorSpec:
    """Return what `make` makes of a file. An error names the file."""
    try:
        return make()
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


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
