"""The labels that the networks give to photos: the first class and its probability, if the classes have names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 200  # photos of each network
SHOWN = 5
RANDOM_NOTE = "random weights: labels mean nothing"


@dataclass(frozen=True, slots=True)
class Label:
    label: str
    probability: float


class Labels:
    """The labels of the first KEPT distinct photos that each network answers for.

    `by_image` has them by model and by the photo's name. `categories` are the names of each model's classes; models
    without names get no labels."""

    def __init__(self, categories: Mapping[str, Sequence[str] | None]) -> None:
        self._categories = categories
        self.by_image: dict[str, dict[str, Label]] = {name: {} for name in categories}

    def add(self, model: str, image: str, outputs: Any) -> None:
        """Keep the label of a photo, from the outputs of its request by name."""
        categories, labels = self._categories[model], self.by_image[model]
        if categories is None or image in labels or len(labels) == KEPT:
            return
        label = first_label(list(outputs.values()), categories)
        if label is not None:
            labels[image] = label


def surest(labels: Mapping[str, Label], pictures: Mapping[str, str | None]) -> dict[str, Label]:
    """Return the SHOWN most probable labels by the photo's name, at most one of each picture.

    `pictures` says what a photo shows, by its name. Photos of None are left out."""
    chosen: dict[str, Label] = {}
    seen: set[str | None] = {None}
    for name, label in sorted(labels.items(), key=lambda item: -item[1].probability):
        if pictures[name] not in seen and len(chosen) < SHOWN:
            seen.add(pictures[name])
            chosen[name] = label
    return chosen


def first_label(outputs: Sequence[NDArray[Any]], categories: Sequence[str]) -> Label | None:
    """Return the most probable class of a network whose single output has one number for each class.

    The numbers are probabilities, or logits, of which softmax makes probabilities. Returns None for any other output,
    and for values that are not finite."""
    if len(outputs) != 1 or outputs[0].shape != (len(categories),) or outputs[0].dtype.kind != "f":
        return None
    values = outputs[0].astype(np.float64)
    if not np.isfinite(values).all():
        return None
    if values.min() < 0 or abs(values.sum() - 1) > 1e-3:
        values = np.exp(values - values.max())
        values /= values.sum()
    best = int(values.argmax())
    return Label(categories[best], float(values[best]))
