"""The invariant of every run, simulated or live, at all times:

submitted = finished + failed + shed + dropped + cancelled + in flight."""

from headrace.batching.errors import HeadraceError
from headrace.batching.request import Request


class AccountingError(HeadraceError):
    """A request was lost, or ended twice: a bug in a policy or a driver, never the user's."""


class Ledger:
    """Follows each request from its submission to its one end."""

    def __init__(self) -> None:
        self.submitted = 0
        self.finished = 0
        self.failed = 0
        self.shed = 0
        self.dropped = 0
        self.cancelled = 0
        self.in_flight = 0
        self._in_flight: set[Request] = set()  # one look-up a change: its size tells whether there was one

    def submit(self, request: Request) -> None:
        self._in_flight.add(request)
        if len(self._in_flight) == self.in_flight:
            raise AccountingError(f"request {request.id} was submitted twice")
        self.in_flight += 1
        self.submitted += 1

    def finish(self, request: Request) -> None:
        self._end(request, "finished")
        self.finished += 1

    def fail(self, request: Request) -> None:
        self._end(request, "failed")
        self.failed += 1

    def turn_away(self, request: Request) -> None:
        """There was no room for it: it counts as shed."""
        self._end(request, "shed")
        self.shed += 1

    def drop_late(self, request: Request) -> None:
        """Its deadline had passed before it began: it counts as dropped."""
        self._end(request, "dropped")
        self.dropped += 1

    def cancel(self, request: Request) -> None:
        """Its caller gave up before it began."""
        self._end(request, "cancelled")
        self.cancelled += 1

    def _end(self, request: Request, how: str) -> None:
        self._in_flight.discard(request)
        if len(self._in_flight) == self.in_flight:
            raise AccountingError(f"request {request.id} {how}, but it is not in flight")
        self.in_flight -= 1

    def find(self, id: int) -> Request | None:
        """Return the request of this id if it is in flight. Takes time in proportion to those in flight."""
        for request in self._in_flight:
            if request.id == id:
                return request
        return None

    def check(self) -> None:
        """Raises AccountingError unless the invariant holds."""
        ended = self.finished + self.failed + self.shed + self.dropped + self.cancelled
        if self.submitted != ended + self.in_flight:
            raise AccountingError(
                f"{self.submitted} submitted, but {self.finished} finished + {self.failed} failed + "
                f"{self.shed} shed + {self.dropped} dropped + {self.cancelled} cancelled + {self.in_flight} in flight"
            )
