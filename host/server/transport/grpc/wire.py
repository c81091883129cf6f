"""The two messages of gRPC that carry tensors, on bytes: the tensors stay where they came, and are copied once into an
answer. Protobuf's own classes copy them twice on either way, which took half of a call's time.

Only the fields of raw contents are handled here: all others are small, and protobuf's."""

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import BadInput
from headrace.host.server.protocol.messages import MAX_FIELDS

Bytes = bytes | memoryview

# Bytes that protobuf reads, while nobody else is served. At most some 50 ms.
MAX_UNKNOWN = 1 << 18  # of a message with fields that are not known here
MAX_PLAIN = 1 << 20  # of all but the raw contents

# Keys of fields with a length: the number, then wire type 2 in the lowest three bits.
_REQUEST_FIELDS = bytes(number << 3 | 2 for number in range(1, 8))
_RAW_INPUT = 7 << 3 | 2  # ModelInferRequest.raw_input_contents
_RAW_OUTPUT = bytes([6 << 3 | 2])  # ModelInferResponse.raw_output_contents
_STREAM_ANSWER = bytes([2 << 3 | 2])  # ModelStreamInferResponse.infer_response


def read_request(message: bytes) -> tuple[Any, Sequence[Bytes]]:
    """A ModelInferRequest, and its raw contents, which are not in it but in `message`. Raises BadInput, also for what
    would hold up all others while it is read: more than MAX_FIELDS inputs, outputs and parameters."""
    try:
        apart = _isolated(message)
        if apart is not None:
            request, contents = pb.ModelInferRequest.FromString(apart[0]), apart[1]
        elif len(message) > MAX_UNKNOWN:
            raise BadInput(
                f"a message with fields that no ModelInferRequest has; send at most {MAX_UNKNOWN} bytes of it"
            )
        else:
            request = pb.ModelInferRequest.FromString(message)
            contents = request.raw_input_contents
    except DecodeError:
        raise BadInput("the message is no ModelInferRequest") from None
    fields = len(request.inputs) + len(request.outputs) + len(request.parameters) + len(contents)
    for given in (request.inputs, request.outputs):
        fields += sum(len(each.parameters) for each in given[:MAX_FIELDS])
    if fields > MAX_FIELDS:
        raise _too_many()
    return request, contents


def _too_many() -> BadInput:
    return BadInput(f"a request of more than {MAX_FIELDS} inputs, outputs and parameters; send fewer")


def _isolated(message: bytes) -> tuple[bytes, list[memoryview]] | None:
    """All other fields, and the raw contents; None for what is no plain run of a request's fields: that is left to
    protobuf as a whole, be it unknown or wrong. Raises BadInput."""
    view, end, at = memoryview(message), len(message), 0
    others, contents = list[memoryview](), list[memoryview]()
    plain = 0
    while at < end:
        if len(others) + len(contents) > MAX_FIELDS + 3:  # a model's name, its version and an id are no such field
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
                    f"a request of more than {MAX_PLAIN} bytes beside its raw_input_contents; send tensors in these"
                )
        at += length
    return b"".join(others), contents


def write_response(response: Any, contents: Iterable[Bytes]) -> bytes:
    """A ModelInferResponse with its raw contents."""
    parts: list[Bytes] = [response.SerializeToString()]
    for raw in contents:
        parts += (_RAW_OUTPUT, _varint(len(raw)), raw)
    return b"".join(parts)


def write_stream_response(response: bytes) -> bytes:
    """A ModelStreamInferResponse of what `write_response` wrote."""
    return b"".join((_STREAM_ANSWER, _varint(len(response)), response))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
