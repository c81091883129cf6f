"""A reader of JSON request bodies that uses simdjson.

The event loop waits while it reads. So the numbers of a tensor become an array directly, without a Python object for
each."""

from typing import Any

import numpy as np
import simdjson
from numpy.typing import NDArray

from headrace.batching import BadInput
from headrace.host.server.protocol.messages import BYTES, MAX_FIELDS, MAX_OBJECTS, bytes_tensor, check_fits, numpy_type

NEITHER = "the body is not JSON, nor a JPEG, PNG, WebP, WAV or FLAC file"
FORM = "the body is a form (multipart); send the file itself as the body, as `curl --data-binary @FILE` does"
_ELEMENTS = {"b": bool, "O": str}  # Python type of the elements of tensors that are not numeric, by kind of dtype
_END = object()


class Body:
    """Hold a JSON object that simdjson has parsed. `objects` and `tensor` convert only the parts that are needed."""

    def __init__(self, raw: memoryview, max_bytes: int) -> None:
        """Parse the bytes. Raises BadInput if they are not a JSON object, or are more than `max_bytes`."""
        if len(raw) > max_bytes:
            raise BadInput(
                f"the request has {len(raw)} bytes of JSON; send at most {max_bytes}, and tensors as binary data"
            )
        try:  # each body has its own parser, which keeps the parsed data as long as an object of it is in use
            parsed = simdjson.Parser().parse(raw)
        except (ValueError, RuntimeError) as error:  # includes text that is not UTF-8, and numbers that are too large
            if raw[:2] == b"--":  # the boundary of a form's first part; no JSON begins so
                raise BadInput(FORM) from None
            raise BadInput(f"the body is not JSON: {str(error)[:200]}" if raw[:1] == b"{" else NEITHER) from None
        if not isinstance(parsed, simdjson.Object):
            raise BadInput("the body must be a JSON object")
        self.fields = fields_of(parsed, "the body")

    def objects(self, key: str) -> list[dict[str, Any]]:
        """Return the fields of each object in the list `key`, or [] without such a list. Raises BadInput."""
        value = self.fields.get(key, ())
        if isinstance(value, simdjson.Array) and len(value) > MAX_FIELDS:
            raise BadInput(f"the request has {len(value)} {key}; send at most {MAX_FIELDS}")
        each = list(value) if isinstance(value, simdjson.Array) else value
        if each != () and not (isinstance(each, list) and all(isinstance(one, simdjson.Object) for one in each)):
            raise BadInput(f"{key} must be a list of objects")
        return [fields_of(one, key) for one in each]


def tensor(name: str, datatype: Any, shape: tuple[int, ...], data: Any) -> NDArray[Any]:
    """Return the tensor of a JSON list, which is flat or nested like its shape. Raises BadInput.

    Only the first list of each level is compared with the shape. The elements fill the tensor in their order."""
    if not isinstance(data, simdjson.Array):
        raise BadInput(f"input {name!r} has neither data nor a binary_data_size; give one")
    dtype = np.dtype(object if datatype == BYTES else numpy_type(name, datatype))
    sizes = _sizes(data)
    if len(sizes) > 1 and sizes != list(shape[: len(sizes)]):
        raise BadInput(
            f"input {name!r}: shape {list(shape)} does not fit its data; give a list of {datatype} that is flat or "
            "nested like the shape"
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
            raise BadInput(f"input {name!r}: its data are outside the range of {datatype}")
    with np.errstate(over="ignore"):  # a number beyond the range of FP16 becomes infinity
        return array.astype(dtype).reshape(shape)


def _no_list(name: str, datatype: str) -> BadInput:
    return BadInput(f"input {name!r}: its data are not a list of {datatype}, flat or nested like its shape")


def _sizes(data: Any) -> list[int]:
    """Return the length of the list, of the first list in it, and so on."""
    sizes = []
    while isinstance(data, simdjson.Array):
        sizes.append(len(data))
        data = data[0] if len(data) else None
    return sizes


def _flat(name: str, data: Any) -> list[Any]:
    """Return all elements. Raises BadInput if there are too many elements or lists."""
    elements: list[Any] = []
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
            elements.append(element)
    return elements


def _of_objects(name: str, datatype: str, shape: tuple[int, ...], elements: list[Any], kind: type) -> NDArray[Any]:
    if not all(type(element) is kind for element in elements):
        raise _no_list(name, datatype)
    if kind is str:
        return bytes_tensor(name, shape, [text.encode() for text in elements])
    check_fits(name, shape, len(elements))
    return np.array(elements, bool).reshape(shape)


def fields_of(value: Any, what: str) -> dict[str, Any]:
    """Return the fields of a JSON object. Their lists and objects remain simdjson's. `what` names the object in errors.

    Raises BadInput."""
    if len(value) > MAX_FIELDS:
        raise BadInput(f"{what}: there are {len(value)} fields; send at most {MAX_FIELDS}")
    try:
        return {key: value[key] for key in value.keys()}  # noqa: SIM118  an Object is no Mapping
    except KeyError:  # simdjson does not find a name with a zero byte
        raise BadInput(f"{what}: the name of a field has a zero byte; leave it out") from None
