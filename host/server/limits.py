"""What one client may cost the server."""

from dataclasses import dataclass

IDLE_S = 120.0  # of a connection without a request
SMALL = 1 << 16  # bytes of an answer for which there is always room
BYTES_PER_S = 100_000  # a client that sends or takes less is cut


@dataclass(frozen=True, slots=True)
class Limits:
    """`body` is of a request, on gRPC of a message; `bodies` of all that are here at a time, by transport; `head` of a
    request's head; `json` of what is JSON in a body, for nothing else is served while it is read. All are bytes.

    `elements` is how many a tensor may have, `answer` the bytes of the outputs that an answer is made of, `megapixels`
    the millions of pixels of a request's photos together. `connections` is of HTTP, and of gRPC
    that of connections and of calls. What a client has to send or to take must be on its way within `client_s`,
    and comes no slower than BYTES_PER_S after that."""

    body: int = 64 << 20
    bodies: int = 1 << 30
    head: int = 32 << 10
    json: int = 8 << 20
    elements: int = 1 << 28
    answer: int = 64 << 20
    megapixels: int = 500
    connections: int = 1024
    client_s: float = 15.0
