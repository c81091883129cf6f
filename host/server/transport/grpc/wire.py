"""Readers and writers of gRPC's two messages with tensors, on bytes.

The tensors of a request stay in the received message, and those of an answer in their arrays. Protobuf's own classes
copy them twice in either direction.

This module handles only the fields of raw contents. All other fields are small, and protobuf handles them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import BadInput
from headrace.host.memory.sources import FilledSlot
from headrace.host.server.protocol.messages import MAX_FIELDS

Bytes = bytes | memoryview


class Placed(NamedTuple):
    """A ModelInferRequest whose only tensor lies in a slot. `fields` are the bytes of all other fields."""

    fields: Bytes
    contents: FilledSlot


Contents = Sequence[Bytes | FilledSlot]

# Limits on the bytes that protobuf parses. The event loop waits meanwhile, at most some 50 ms.
MAX_UNKNOWN = 1 << 18  # bytes of a message with fields that this module does not know
MAX_PLAIN = 1 << 20  # bytes of all fields except the raw contents

# Keys of fields with a length: the field's number, and wire type 2 in the lowest three bits.
_REQUEST_FIELDS = bytes(number << 3 | 2 for number in range(1, 8))
_RAW_INPUT = 7 << 3 | 2  # ModelInferRequest.raw_input_contents
_RAW_OUTPUT = bytes([6 << 3 | 2])  # ModelInferResponse.raw_output_contents
_STREAM_ANSWER = bytes([2 << 3 | 2])  # ModelStreamInferResponse.infer_response


def read_request(message: Bytes) -> tuple[Any, Contents]:
    """Return a ModelInferRequest without its raw contents, and the raw contents as parts of `message`.

    Raises BadInput for a damaged message, and for one that would block the event loop too long: more than MAX_FIELDS
    inputs, outputs and parameters."""
    description, contents = separated(message)
    return parsed(description, contents)


def separated(message: Bytes | Placed) -> tuple[Bytes, Contents]:
    """Split a message into the bytes of all other fields and the raw contents, which are parts of `message`.

    A message that is no plain sequence of a request's fields is not split. Raises BadInput."""
    if isinstance(message, Placed):
        return separated(message.fields)[0], (message.contents,)
    found = _separated(message)
    if found is not None:
        return found
    if len(message) > MAX_UNKNOWN:
        raise BadInput(
            "the message has fields that a ModelInferRequest does not have; leave them out, or send at most "
            f"{MAX_UNKNOWN} bytes"
        )
    return message, ()


def parsed(description: Bytes, contents: Contents) -> tuple[Any, Contents]:
    """Return the ModelInferRequest in the other fields, and all raw contents. Raises BadInput (see `read_request`)."""
    try:
        request = pb.ModelInferRequest.FromString(description)
    except DecodeError:
        raise BadInput("the message is not a ModelInferRequest") from None
    contents = contents or request.raw_input_contents
    fields = len(request.inputs) + len(request.outputs) + len(request.parameters) + len(contents)
    for tensors in (request.inputs, request.outputs):
        fields += sum(len(each.parameters) for each in tensors[:MAX_FIELDS])
    if fields > MAX_FIELDS:
        raise _too_many()
    return request, contents


def _too_many() -> BadInput:
    return BadInput(f"the request has more than {MAX_FIELDS} inputs, outputs and parameters; send fewer")


def _separated(message: Bytes) -> tuple[bytes, list[memoryview]] | None:
    """Split a message into all other fields and the raw contents.

    Returns None unless the message is a plain sequence of a request's fields. Protobuf then parses all of it, whether
    it is unknown or damaged. Raises BadInput."""
    view, end, at = memoryview(message), len(message), 0
    others, contents = list[memoryview](), list[memoryview]()
    plain = 0
    while at < end:
        if len(others) + len(contents) > MAX_FIELDS + 3:  # the model's name and version, and the id, do not count
            raise _too_many()
        begin, key = at, message[at]
        if key not in _REQUEST_FIELDS:
            return None
        length = shift = 0
        while True:
            at += 1
            if at == end or shift > 28:
                return None
            length |= (message[at] & 0x7F) << shift
            shift += 7
            if message[at] < 0x80:
                break
        at += 1
        if at + length > end:
            return None
        if key == _RAW_INPUT:
            contents.append(view[at : at + length])
        else:
            others.append(view[begin : at + length])
            plain += at + length - begin
            if plain > MAX_PLAIN:
                raise BadInput(
                    f"the request has more than {MAX_PLAIN} bytes outside its raw_input_contents; send tensors there"
                )
        at += length
    return b"".join(others), contents


def write_response(response: bytes, contents: Iterable[Bytes]) -> list[Bytes]:
    """Return a serialized ModelInferResponse with its raw contents, as parts that follow each other.

    Contents are not copied."""
    parts: list[Bytes] = [response]
    for raw in contents:
        parts += (_RAW_OUTPUT + _varint(len(raw)), raw)
    return parts


def write_stream_response(response: Sequence[Bytes]) -> list[Bytes]:
    """Return a ModelStreamInferResponse with the parts of a `write_response`, as parts."""
    return [_STREAM_ANSWER + _varint(sum(map(len, response))), *response]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
