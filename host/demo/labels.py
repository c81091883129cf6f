"""What the networks see in a few photos: the first label and its probability, where the classes have names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LABELLED = 5  # photos of each network
RANDOM_NOTE = "random weights: labels mean nothing"


@dataclass(frozen=True, slots=True)
class Label:
    label: str
    probability: float


class Labels:
    """Collects the labels of the first LABELLED distinct photos that each network answers for."""

    def __init__(self, categories: Mapping[str, Sequence[str] | None]) -> None:
        self._categories = categories
        self.of: dict[str, dict[str, Label]] = {name: {} for name in categories}  # model -> photo -> label

    def see(self, model: str, photo: str, outputs: Any) -> None:
        """`outputs` are a request's, by name."""
        categories, found = self._categories[model], self.of[model]
        if categories is None or photo in found or len(found) == LABELLED:
            return
        label = first_label(list(outputs.values()), categories)
        if label is not None:
            found[photo] = label


def first_label(outputs: Sequence[NDArray[Any]], categories: Sequence[str]) -> Label | None:
    """Of a network whose one output has a number a class: a probability, or a logit, of which softmax makes one. None
    for any other, and for NaN."""
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
