"""What one client may cost the server."""

from dataclasses import dataclass

IDLE_S = 120.0  # of a connection without a request
BYTES_PER_S = 100_000  # a client that sends or takes less is cut


@dataclass(frozen=True, slots=True)
class Limits:
    """`body` is of a request, on gRPC of a message; `bodies` of all that are here at a time, by transport; `head` of a
    request's head; `json` of what is JSON in a body, for nothing else is served while it is read. All are bytes.

    `json_depth` is how deep JSON may nest, `elements` how many a tensor may have. `connections` is of HTTP, and of
    gRPC that of connections and of calls. What a client has to send or to take must be on its way within `client_s`,
    and comes no slower than BYTES_PER_S after that."""

    body: int = 64 << 20
    bodies: int = 1 << 30
    head: int = 32 << 10
    json: int = 16 << 20
    json_depth: int = 64
    elements: int = 1 << 28
    connections: int = 1024
    client_s: float = 15.0
