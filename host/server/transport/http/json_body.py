"""A reader of JSON request bodies, by simdjson.

The event loop waits while it reads, so the numbers of a tensor become an array without being Python objects first."""

from typing import Any

import numpy as np
import simdjson
from numpy.typing import NDArray

from headrace.batching import BadInput
from headrace.host.server.protocol.messages import BYTES, MAX_FIELDS, MAX_OBJECTS, bytes_tensor, check_fits, numpy_type

HINT = ", nor a JPEG, PNG, WebP, WAV or FLAC file"
_ELEMENTS = {"b": bool, "O": str}  # what the elements are of tensors without numbers, by the kind of their dtype
_END = object()


class Body:
    """A JSON object. simdjson has parsed it, and `objects` and `tensor` convert only the parts that are needed."""

    def __init__(self, raw: memoryview, most: int) -> None:
        """Raises BadInput if the bytes are no JSON object, or more than `most`."""
        if len(raw) > most:
            raise BadInput(f"{len(raw)} bytes of JSON; send at most {most}, and tensors as binary data")
        try:  # with a parser of its own, which keeps what it has read as long as somebody looks at it
            found = simdjson.Parser().parse(raw)
        except (ValueError, RuntimeError) as error:  # of text that is no UTF-8, and numbers beyond all measure, too
            hint = "" if raw[:1] == b"{" else HINT
            raise BadInput(f"the body is no JSON{hint}: {str(error)[:200]}") from None
        if not isinstance(found, simdjson.Object):
            raise BadInput("the body must be a JSON object")
        self.fields = fields_of(found, "the body")

    def objects(self, key: str) -> list[dict[str, Any]]:
        """Return the fields of each object in the list `key`; [] without such a list. Raises BadInput."""
        found = self.fields.get(key, ())
        if isinstance(found, simdjson.Array) and len(found) > MAX_FIELDS:
            raise BadInput(f"{len(found)} {key}; send at most {MAX_FIELDS}")
        each = list(found) if isinstance(found, simdjson.Array) else found
        if each != () and not (isinstance(each, list) and all(isinstance(one, simdjson.Object) for one in each)):
            raise BadInput(f"{key} must be a list of objects")
        return [fields_of(one, key) for one in each]


def tensor(name: str, datatype: Any, shape: tuple[int, ...], data: Any) -> NDArray[Any]:
    """Return the tensor of a list that is flat, or nested like its shape. Raises BadInput.

    Only the first list of each level is compared with the shape. The elements fill the tensor in their order."""
    if not isinstance(data, simdjson.Array):
        raise BadInput(f"input {name!r} has neither data nor a binary_data_size")
    dtype = np.dtype(object if datatype == BYTES else numpy_type(name, datatype))
    sizes = _sizes(data)
    if len(sizes) > 1 and sizes != list(shape[: len(sizes)]):
        raise BadInput(
            f"input {name!r}: shape {list(shape)} does not hold its data, which are no list of {datatype} that is flat "
            "or nested as the shape"
        )
    if dtype.kind in _ELEMENTS:
        return _of_objects(name, datatype, shape, _flat(name, data), _ELEMENTS[dtype.kind])
    floats = dtype.kind == "f"
    try:
        array = np.frombuffer(data.as_buffer(of_type="d" if floats else "i"), np.float64 if floats else np.int64)
    except TypeError:
        raise _no_list(name, datatype) from None
    except ValueError:
        raise BadInput(f"input {name!r}: its data go beyond {datatype}") from None
    check_fits(name, shape, len(array))
    if not floats and len(array):
        limits = np.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise BadInput(f"input {name!r}: its data go beyond {datatype}")
    with np.errstate(over="ignore"):  # beyond FP16 is infinity
        return array.astype(dtype).reshape(shape)


def _no_list(name: str, datatype: str) -> BadInput:
    return BadInput(f"input {name!r}: its data are no list of {datatype}, flat or nested as its shape")


def _sizes(data: Any) -> list[int]:
    """Return the length of the list, of the first list in it, and so on."""
    found = []
    while isinstance(data, simdjson.Array):
        found.append(len(data))
        data = data[0] if len(data) else None
    return found


def _flat(name: str, data: Any) -> list[Any]:
    """Return all elements. Raises BadInput if there are too many elements, or too many lists."""
    found: list[Any] = []
    ahead, steps = [iter(data)], 0
    while ahead:
        element = next(ahead[-1], _END)
        steps += 1
        if steps > 2 * MAX_OBJECTS:
            raise BadInput(f"input {name!r} has too many elements; send more than {MAX_OBJECTS} as binary data")
        if element is _END:
            ahead.pop()
        elif isinstance(element, simdjson.Array):
            ahead.append(iter(element))
        else:
            found.append(element)
    return found


def _of_objects(name: str, datatype: str, shape: tuple[int, ...], found: list[Any], kind: type) -> NDArray[Any]:
    if not all(type(element) is kind for element in found):
        raise _no_list(name, datatype)
    if kind is str:
        return bytes_tensor(name, shape, [text.encode() for text in found])
    check_fits(name, shape, len(found))
    return np.array(found, bool).reshape(shape)


def fields_of(found: Any, what: str) -> dict[str, Any]:
    """Return the fields of an object. Its lists and objects remain simdjson's. Raises BadInput."""
    if len(found) > MAX_FIELDS:
        raise BadInput(f"{what} with {len(found)} fields; send at most {MAX_FIELDS}")
    try:
        return {key: found[key] for key in found.keys()}  # noqa: SIM118  an Object is no Mapping
    except KeyError:  # simdjson finds no name with such a byte
        raise BadInput(f"{what} with a zero byte in the name of a field; leave it out") from None
