"""The invariant of every run, simulated or live: submitted = finished + failed + shed + in flight, at all times."""

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
        self.in_flight = 0
        self._in_flight: set[int] = set()  # one look-up a change: its size tells whether there was one

    def submit(self, request: Request) -> None:
        self._in_flight.add(request.id)
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

    def drop(self, request: Request) -> None:
        """The policy or the server chose not to run it: it counts as shed."""
        self._end(request, "shed")
        self.shed += 1

    def _end(self, request: Request, how: str) -> None:
        self._in_flight.discard(request.id)
        if len(self._in_flight) == self.in_flight:
            raise AccountingError(f"request {request.id} {how}, but it is not in flight")
        self.in_flight -= 1

    def check(self) -> None:
        """Raises AccountingError unless the invariant holds."""
        ended = self.finished + self.failed + self.shed
        if self.submitted != ended + self.in_flight:
            raise AccountingError(
                f"{self.submitted} submitted, but {self.finished} finished + {self.failed} failed + "
                f"{self.shed} shed + {self.in_flight} in flight"
            )
