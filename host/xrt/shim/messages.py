"""The messages between XRT's emulation shims and the device process: protobuf over a Unix socket.

A request is a header of 14 bytes and a body. The header has the size of the body and the number of the request's kind.
An answer is a header of 9 bytes, with the size, and a body.

The numbers and fields are those of XRT 2.13 to 2.16 (rpc_messages.proto). Fields that this package does not read are
left out, which protobuf allows."""

import socket
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from headrace.batching.errors import HeadraceError

LARGEST = 1 << 30  # limit on a body in bytes; the shims send buffers in parts of 8 MiB

_Proto = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bool": _Proto.TYPE_BOOL,
    "bytes": _Proto.TYPE_BYTES,  # also for XRT's strings, which are the same on the wire
    "fixed32": _Proto.TYPE_FIXED32,
    "fixed64": _Proto.TYPE_FIXED64,
    "number": _Proto.TYPE_UINT64,
}
Fields = dict[str, tuple[int, str]]  # name: field number and type

_ACK: Fields = {"ack": (1, "bool")}
# Copy `size` bytes between the buffer at `address` and a file. `from` is the offset in the source, `to` in the target.
_COPY: Fields = {
    "address": (1, "number"),
    "file": (2, "bytes"),
    "size": (3, "number"),
    "from": (4, "number"),
    "to": (5, "number"),
}
# name: number, fields of the request, of the answer
_KINDS: dict[str, tuple[int, Fields, Fields]] = {
    "close": (1, {"everything": (3, "bool")}, _ACK),
    "load": (3, {"kernels": (1, "bytes"), "library": (2, "bytes"), "folder": (4, "bytes")}, _ACK),
    "allocate": (4, {"address": (1, "number"), "size": (2, "number")}, _ACK | {"file": (2, "bytes")}),
    "free": (5, {"address": (1, "number")}, _ACK),
    "to_device": (
        6,
        {"address": (3, "number"), "data": (4, "bytes"), "size": (5, "number"), "seek": (6, "number")},
        {"size": (1, "number")},
    ),
    "to_host": (
        7,
        {"address": (4, "number"), "size": (5, "number"), "skip": (6, "number")},
        {"size": (1, "number"), "data": (2, "bytes")},
    ),
    "write_memory": (8, {"address": (2, "number"), "data": (4, "bytes")}, _ACK),
    "write_registers": (9, {"address": (2, "number"), "data": (4, "bytes")}, _ACK),
    "read_memory": (10, {"address": (2, "number"), "size": (3, "number")}, _ACK | {"data": (2, "bytes")}),
    "read_registers": (11, {"address": (2, "number"), "size": (3, "number")}, _ACK | {"data": (2, "bytes")}),
    "debug_messages": (19, {}, {}),
    "set_environment": (20, {}, _ACK),
    "copy_to_file": (22, _COPY, _ACK),
    "import_file": (27, {"file": (1, "bytes"), "address": (2, "number"), "size": (3, "number")}, _ACK),
    "set_up": (28, {}, _ACK),
    "copy_from_file": (50, _COPY, _ACK),
    "write_register": (51, {"base": (1, "number"), "offset": (2, "number"), "data": (3, "bytes")}, _ACK),
    "read_register": (
        52,
        {"base": (1, "number"), "offset": (2, "number"), "size": (3, "number")},
        _ACK | {"data": (2, "bytes")},
    ),
    "version": (53, {"version": (1, "bytes")}, _ACK),
}


class ProtocolError(HeadraceError):
    """The received bytes do not follow the protocol of the shims; the message says where."""


def _classes() -> dict[str, type[message.Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="headrace_xrt_shim.proto", package="headrace", syntax="proto2")
    messages: dict[str, Fields] = {"header": {"size": (1, "fixed64"), "kind": (2, "fixed32")}}
    for name, (_, request, answer) in _KINDS.items():
        messages |= {f"{name}_request": request, f"{name}_answer": answer}
    for name, fields in messages.items():
        entry = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            entry.field.add(name=field, number=number, type=_TYPES[kind], label=_Proto.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"headrace.{name}")) for name in messages}


_CLASSES = _classes()
_NAMES = {number: name for name, (number, _, _) in _KINDS.items()}
_HEADER_BYTES = 14


class Request(NamedTuple):
    """Hold one request. `fields` has its values by the names in _KINDS; a field that was not sent is 0 or empty."""

    name: str
    fields: dict[str, Any]


def receive(connection: socket.socket) -> Request | None:
    """Return the next request, or None when the other side has closed. Raises ProtocolError."""
    head = _exactly(connection, _HEADER_BYTES)
    if not head:
        return None
    header = _parsed("header", head)
    if header["kind"] not in _NAMES:
        raise ProtocolError(f"the shim sent a request of the unknown kind {header['kind']}")
    if header["size"] > LARGEST:
        raise ProtocolError(f"a request of {header['size']} bytes is over the limit of {LARGEST} bytes")
    name = _NAMES[header["kind"]]
    body = _exactly(connection, header["size"])
    if len(body) < header["size"]:
        return None
    return Request(name, _parsed(f"{name}_request", body))


def answer(connection: socket.socket, name: str, **fields: Any) -> None:
    """Send the answer to a request of that name."""
    connection.sendall(packed(f"{name}_answer", fields, header=False))


def packed(name: str, fields: dict[str, Any], *, header: bool) -> bytes:
    """Return a message with its header, as bytes. `header` adds the number of the kind, which requests have and
    answers do not."""
    body = _CLASSES[name](**fields).SerializeToString()
    kind = {"kind": _KINDS[name.removesuffix("_request")][0]} if header else {}
    return _CLASSES["header"](size=len(body), **kind).SerializeToString() + body


def _parsed(name: str, raw: bytes) -> dict[str, Any]:
    try:
        decoded = _CLASSES[name].FromString(raw)
    except message.DecodeError as error:
        raise ProtocolError(f"the message {name} cannot be decoded: {error}") from error
    return {field.name: getattr(decoded, field.name) for field in decoded.DESCRIPTOR.fields}


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Return `size` bytes, or fewer if the other side closes."""
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            break
        parts += part
    return bytes(parts)
