"""This module writes and reads the tensors of one image or sound as vLLM's servers pass them to each other.

An item is the base64 of a MessagePack map. It names each tensor, with its values and its place in a batch. The place
tells vLLM how to join items: `batched` ones are stacked, and `flat` ones follow each other along one axis.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError
from headrace.host.dpu.processors import BFLOAT16

Item = Mapping[str, NDArray[Any]]

RAW_VIEW: Final = 3  # the code of vLLM's MessagePack extension for the bytes of a tensor
DTYPES: Final = ("float32", "float16", "bfloat16", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
BATCHED: Final = "batched"
FLAT: Final = "flat"


class BadItem(HeadraceError):
    """Bytes are no item, or an item has a form that is not known here."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a tensor within an item.

    Attributes:
        dtype: Its type, as torch names it.
        place: BATCHED or FLAT.
        keep_on_cpu: Whether vLLM leaves it in main memory.
        axis: For FLAT, the axis along which items follow each other.
    """

    dtype: str
    place: str
    keep_on_cpu: bool = False
    axis: int = 0

    def of_one(self, tensor: NDArray[Any]) -> NDArray[Any]:
        """Return a tensor of a batch of one as it is within an item: `batched` drops the axis of the batch."""
        return tensor[0] if self.place == BATCHED else tensor


def write_item(item: Item, forms: Mapping[str, Form]) -> bytes:
    """Return an item as text in ASCII. The tensors have the forms' types and are those of one image or sound."""
    made: dict[str, Any] = {}
    for name, form in forms.items():
        tensor = np.asarray(item[name], order="C")  # ascontiguousarray would add an axis to a number
        place: dict[str, Any] = {"keep_on_cpu": form.keep_on_cpu}
        if form.place == FLAT:
            whole = [[None, None, None]] * form.axis
            place |= {"slices": [[*whole, [0, tensor.shape[form.axis], None]]], "dim": form.axis}
        made[name] = {
            "data": [form.dtype, list(tensor.shape), msgpack.ExtType(RAW_VIEW, tensor.tobytes())],
            "field": [form.place, place],
        }
    return base64.b64encode(msgpack.packb(made))


def read_item(text: str) -> tuple[dict[str, NDArray[Any]], dict[str, Form]]:
    """Return the tensors of an item, and their forms. Raises BadItem."""
    try:
        read = msgpack.unpackb(base64.b64decode(text, validate=True))
        tensors: dict[str, NDArray[Any]] = {}
        forms: dict[str, Form] = {}
        for name, element in read.items():
            (dtype, shape, data), (place, settings) = element["data"], element["field"]
            axis = settings.get("dim", 0)
            if dtype not in DTYPES or place not in (BATCHED, FLAT) or not 0 <= axis < max(len(shape), 1):
                raise BadItem(f"the tensor {name!r} of the engine is {dtype}, {place!r}; no such form is known here")
            kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
            tensors[name] = np.frombuffer(data.data, kind).reshape(shape)
            forms[name] = Form(dtype, place, bool(settings["keep_on_cpu"]), axis)
        return tensors, forms
    except (binascii.Error, ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as error:
        raise BadItem(f"the engine's item is not in the form of vLLM 0.32: {error}") from error
