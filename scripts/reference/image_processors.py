"""Tables about the image processors of Hugging Face: the classes, their settings, and the classes that are refused."""

from collections import defaultdict

from headrace.host.dpu.hugging_face.description import size_rule
from headrace.host.dpu.hugging_face.names import image_processor, names
from headrace.host.dpu.hugging_face.reading import CLASSES, COMMON, REFUSED, WITHOUT_EFFECT, from_hf
from headrace.host.dpu.processors import ProcessorSpec
from reference.markdown import table


def _models() -> dict[str, list[str]]:
    """Return the known models of each class."""
    models = defaultdict(list)
    for name in names():
        models[image_processor(name).name].append(name)
    return models


def _default(name: str, models: list[str]) -> ProcessorSpec:
    """Return the spec of a class without a file, or of its first model if its own settings contradict each other."""
    return image_processor(models[0]) if name == "LlavaNextImageProcessor" else from_hf({"image_processor_type": name})


def _listed(values: list[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def classes() -> str:
    """Return a table of the classes."""
    models = _models()
    rows = []
    for name, known in sorted(CLASSES.items()):
        spec = _default(name, models[name])
        tensors = ["pixel_values", *(extra for extra, _ in spec.extras)]
        own = "both" if known.pillow else "`torchvision`"
        rows.append((f"`{name}`", size_rule(spec), _listed(tensors), own, _listed(models[name])))
    return table(("class", "size", "tensors", "engines", "known models"), rows)


def settings() -> str:
    """Return a table of the settings that are read."""
    rows = [("every class", _listed(sorted(COMMON)))]
    rows += [(f"`{name}`", _listed(sorted(known.keys))) for name, known in sorted(CLASSES.items()) if known.keys]
    return table(("class", "settings"), rows)


def ignored() -> str:
    """Return the settings that never have an effect."""
    return ", ".join(f"`{key}`" for key in sorted(WITHOUT_EFFECT)) + "."


def refused() -> str:
    """Return a table of the classes that are refused."""
    rows = ((f"`{name}`", f"{why[0].upper()}{why[1:]}.") for name, why in sorted(REFUSED.items()))
    return table(("class", "reason"), rows)


GENERATORS = {
    "processor-classes": classes,
    "processor-settings": settings,
    "processor-ignored": ignored,
    "processor-refused": refused,
}
