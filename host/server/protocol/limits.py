"""Limits on the resources that one client can use."""

from dataclasses import dataclass

IDLE_S = 120.0  # a connection without a request is closed after this time
SMALL = 1 << 16  # an answer of up to this size is sent even if the limit on all bodies is reached
BYTES_PER_S = 100_000  # the server disconnects a client that sends or receives more slowly


@dataclass(frozen=True, slots=True)
class Limits:
    """Hold the limits on requests, answers and connections.

    Args:
        body: bytes of a request's body; on gRPC, of a message.
        bodies: bytes of all bodies and answers that the server holds at a time, for each transport.
        head: bytes of a request's head.
        json: bytes of JSON in a body. The server serves no other request while it parses JSON.
        elements: elements of a tensor.
        answer: bytes of the outputs of a request.
        megapixels: pixels of all images of a request together, in millions.
        connections: connections of each transport, and calls on gRPC.
        client_s: seconds in which a client must begin to send or to receive. It must then keep up with BYTES_PER_S."""

    body: int = 64 << 20
    bodies: int = 1 << 30
    head: int = 32 << 10
    json: int = 8 << 20
    elements: int = 1 << 28
    answer: int = 64 << 20
    megapixels: int = 500
    connections: int = 1024
    client_s: float = 15.0
