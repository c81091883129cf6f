"""The count of requests by how they ended.

At all times the counts must balance, in the simulator and in the live runtime:

    submitted = finished + failed + shed + dropped + cancelled + in flight

`Ledger.check` tests this.
"""

from headrace.batching.errors import HeadraceError
from headrace.batching.request import Request


class AccountingError(HeadraceError):
    """A request was lost, or ended twice. The fault lies in a policy or a driver, never with the user."""


class Ledger:
    """Follows each request from its submission to its single end, and counts the ends by kind.

    Every method that takes a request raises AccountingError if the request is not in the state that the method
    needs."""

    def __init__(self) -> None:
        self.submitted = 0
        self.finished = 0
        self.failed = 0
        self.shed = 0
        self.dropped = 0
        self.cancelled = 0
        self.in_flight = 0
        self._in_flight: set[Request] = set()  # its size after a change tells whether the change had an effect

    def submit(self, request: Request) -> None:
        """Count a new request as in flight."""
        self._in_flight.add(request)
        if len(self._in_flight) == self.in_flight:
            raise AccountingError(f"request {request.id} was submitted twice")
        self.in_flight += 1
        self.submitted += 1

    def finish(self, request: Request) -> None:
        """Count a request as finished: its result is complete."""
        self._end(request, "finished")
        self.finished += 1

    def fail(self, request: Request) -> None:
        """Count a request as failed: it ended with an error."""
        self._end(request, "failed")
        self.failed += 1

    def turn_away(self, request: Request) -> None:
        """Count a request as shed: the server had no room for it."""
        self._end(request, "shed")
        self.shed += 1

    def drop_late(self, request: Request) -> None:
        """Count a request as dropped: it could no longer begin in time for its deadline."""
        self._end(request, "dropped")
        self.dropped += 1

    def cancel(self, request: Request) -> None:
        """Count a request as cancelled: its caller gave up before it began."""
        self._end(request, "cancelled")
        self.cancelled += 1

    def _end(self, request: Request, how: str) -> None:
        self._in_flight.discard(request)
        if len(self._in_flight) == self.in_flight:
            raise AccountingError(f"request {request.id} {how}, but it is not in flight")
        self.in_flight -= 1

    def find(self, id: int) -> Request | None:
        """Return the request with this id if it is in flight, else None. The search takes time in proportion to those
        in flight."""
        for request in self._in_flight:
            if request.id == id:
                return request
        return None

    def check(self) -> None:
        """Raise AccountingError unless the counts balance."""
        ended = self.finished + self.failed + self.shed + self.dropped + self.cancelled
        if self.submitted != ended + self.in_flight:
            raise AccountingError(
                f"{self.submitted} submitted, but {self.finished} finished + {self.failed} failed + "
                f"{self.shed} shed + {self.dropped} dropped + {self.cancelled} cancelled + {self.in_flight} in flight"
            )
