"""What one client may cost the server."""

from dataclasses import dataclass

IDLE_S = 120.0  # of a connection without a request
SMALL = 1 << 16  # bytes of an answer for which there is always room
BYTES_PER_S = 100_000  # a client that sends or takes less is cut


@dataclass(frozen=True, slots=True)
class Limits:
    """`body` is of a request, on gRPC of a message; `bodies` of all that are here at a time, by transport; `head` of a
    request's head; `json` of what is JSON in a body, for nothing else is served while it is read. All are bytes.

    `elements` bounds the elements of a tensor, `answer` the bytes of the outputs of a request, and `megapixels` the
    photos of a request together. `connections` bounds connections on each transport, and calls on gRPC. A client must
    begin to send or to take within `client_s`, and then keep up with BYTES_PER_S."""

    body: int = 64 << 20
    bodies: int = 1 << 30
    head: int = 32 << 10
    json: int = 8 << 20
    elements: int = 1 << 28
    answer: int = 64 << 20
    megapixels: int = 500
    connections: int = 1024
    client_s: float = 15.0
