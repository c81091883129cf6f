"""The bytes of HTTP/2 and gRPC, for tests that send what no client of gRPC sends."""

import struct

RPC = "/inference.GRPCInferenceService"
INFER = f"{RPC}/ModelInfer".encode()
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def head(path=INFER, stream=1, flags=4, **more):
    """Return a frame with headers as literals that are not indexed (RFC 7541, section 6.2.2)."""
    fields = {
        ":method": b"POST",
        ":scheme": b"http",
        ":path": path,
        ":authority": b"a",
        "te": b"trailers",
        "content-type": b"application/grpc",
        **more,
    }
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value for name, value in fields.items()
    )
    return frame(1, flags, stream, block)


def message(raw, flag=0):
    return bytes([flag]) + struct.pack(">I", len(raw)) + raw


def frame_from(file):
    start = file.read(9)
    if len(start) < 9:
        return None
    payload = file.read(int.from_bytes(start[:3], "big"))
    return start[3], start[4], int.from_bytes(start[5:], "big"), payload
