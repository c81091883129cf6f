"""The effect of a difference on a network: whether its first class changes, and how far its logits move."""

import importlib
import inspect
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.batching.named import own
from headrace.host.compare.stages import Tensors
from headrace.host.compare.values import numbers


@dataclass(frozen=True, slots=True)
class Effect:
    """The logits of the candidate's tensors, next to those of the reference's.

    Attributes:
        flips: Rows of logits whose largest value has another index.
        rows: Rows of logits.
        max: Largest absolute difference of a logit.
        distance: Euclidean distance of the logits.
    """

    flips: int
    rows: int
    max: float
    distance: float

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Model:
    """A network of PyTorch that turns tensors into logits."""

    def __init__(self, name: str) -> None:
        """Make the network that `module:name` stands for: a module, or a function or class that makes one.

        Raises UsageError."""
        self.name = name
        self._torch = importlib.import_module("torch")
        made = own("--model", name, "headrace.compare")
        if not isinstance(made, self._torch.nn.Module):
            if not callable(made):
                raise UsageError(f"--model {name!r} is {type(made).__name__}; name a torch module, or what makes one")
            try:
                made = made()
            except Exception as error:  # of the user's code
                raise UsageError(f"--model {name!r} fails: {one_line(error)}") from error
        if not isinstance(made, self._torch.nn.Module):
            raise UsageError(f"--model {name!r} makes {type(made).__name__}; make a torch.nn.Module")
        self._module = made.eval()
        parameters = inspect.signature(self._module.forward).parameters
        self._names = [name for name in parameters if name not in ("args", "kwargs")]

    def logits(self, tensors: Tensors, main: str) -> NDArray[Any]:
        """Return the logits of tensors by name, shape (rows, classes). Raises UsageError if the network fails."""
        given = {name: self._tensor(values) for name, values in tensors.items()}
        try:
            with self._torch.no_grad():
                if main in self._names:
                    answer = self._module(**{name: given[name] for name in self._names if name in given})
                else:
                    answer = self._module(given[main])
        except Exception as error:  # of the user's code
            raise UsageError(f"--model {self.name!r} fails: {one_line(error)}") from error
        found = getattr(answer, "logits", answer)
        found = next(iter(found.values())) if hasattr(found, "values") and not callable(found.values) else found
        found = found[0] if isinstance(found, tuple | list) else found
        if not isinstance(found, self._torch.Tensor) or found.ndim == 0:
            raise UsageError(f"--model {self.name!r} answers {type(found).__name__}; answer logits (rows, classes)")
        logits: NDArray[Any] = found.float().reshape(-1, found.shape[-1]).numpy()
        return logits

    def effect(self, ours: Tensors, theirs: Tensors, main: str) -> Effect:
        """Return the effect of the candidate's tensors in place of the reference's. Raises UsageError."""
        named = {name: _cast(ours.get(name, values), values) for name, values in theirs.items()}
        expected, found = self.logits(theirs, main), self.logits(named, main)
        if expected.shape != found.shape:
            raise UsageError(f"--model {self.name!r} answers {found.shape} and {expected.shape}")
        if not (np.isfinite(found).all() and np.isfinite(expected).all()):
            raise UsageError(f"--model {self.name!r} answers logits that are no finite numbers")
        change = np.abs(found.astype(np.float64) - expected)
        flips = int(np.count_nonzero(found.argmax(-1) != expected.argmax(-1)))
        return Effect(flips, len(expected), float(change.max(initial=0.0)), float(np.sqrt(np.square(change).sum())))

    def _tensor(self, values: NDArray[Any]) -> Any:
        if values.dtype.names:  # bfloat16, as its bits
            bits = np.ascontiguousarray(values).view(np.uint16).reshape(values.shape)
            return self._torch.from_numpy(bits.copy()).view(self._torch.bfloat16)
        return self._torch.from_numpy(np.ascontiguousarray(values))


def _cast(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype == like.dtype or like.dtype.names else numbers(values).astype(like.dtype)
