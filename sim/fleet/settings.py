"""The settings of a simulated fleet, and how its parts are written on the command line."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace.batching.errors import UsageError
from headrace.batching.settings import setting, settings
from headrace.sim.fleet.routers import ROUTERS, make_router

LOST = ("reroute", "fail")
MAX = 100_000  # servers


@dataclass(frozen=True, slots=True)
class Delay:
    """The delay of the network, one way: `median_s` seconds, times a lognormal of `sigma` if that is above 0."""

    median_s: float = 0.0
    sigma: float = 0.0

    def sampler(self, seed: int) -> Callable[[], float] | None:
        """Return a function that draws a delay (s), or None if there is no delay."""
        if self.median_s == 0:
            return None
        rng, median_s, sigma = random.Random(seed), self.median_s, self.sigma
        if sigma == 0:
            return lambda: median_s
        return lambda: median_s * math.exp(sigma * rng.gauss(0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Failure:
    """A server that dies at `at_s` and is back `for_s` later, empty."""

    server: int
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Autoscale:
    """A rule that starts and stops servers, so that between `least` and all of them run.

    The rule is applied whenever a request comes or is answered, or a server fails or is back. It computes how many
    servers are needed for `target` requests each. If fewer run or start, one more starts, and takes requests `start_s`
    later. If more run, and no server started or stopped in the last `cooldown_s`, one server takes no more requests and
    stops when it has none. A server that failed can be started when it is back."""

    least: int
    target: float
    start_s: float
    cooldown_s: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """Equal servers behind a router, with their parts read.

    With `mtbf_s`, each server fails after an exponential time of that mean and is back after one of mean `mttr_s`, in
    addition to the planned `failures`. The requests of a server that fails are sent to another at once (`lost` is
    "reroute") or fail ("fail"). A request that finds no server fails, too."""

    servers: int
    router: str
    delay: Delay = Delay()
    failures: tuple[Failure, ...] = ()
    mtbf_s: float | None = None
    mttr_s: float | None = None
    lost: str = "reroute"
    autoscale: Autoscale | None = None

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if not 1 <= self.servers <= MAX:
            raise UsageError(f"--servers {self.servers}: give 1 to {MAX}")
        make_router(self.router, self.servers, 0)
        if self.lost not in LOST:
            raise UsageError(f"--lost {self.lost!r}: choose from {', '.join(LOST)}")
        for failure in self.failures:
            if failure.server >= self.servers:
                raise UsageError(f"--failure: there is no server {failure.server}; they are 0 to {self.servers - 1}")
        if (self.mtbf_s is None) != (self.mttr_s is None):
            raise UsageError("--mtbf-s and --mttr-s go together; give both")
        for option, seconds in (("--mtbf-s", self.mtbf_s), ("--mttr-s", self.mttr_s)):
            if seconds is not None and not 0 < seconds < math.inf:
                raise UsageError(f"{option} {seconds:g}: give a time above 0")
        if self.autoscale is not None and not 1 <= self.autoscale.least <= self.servers:
            raise UsageError(
                f"--autoscale: at least {self.autoscale.least} of --servers {self.servers}; give 1 to {self.servers}"
            )


def parse_delay(text: str) -> Delay:
    """2 is 2 ms always, lognormal:2:0.5 has that median (ms) and that sigma of its logarithm. Raises UsageError."""
    words = text.removeprefix("lognormal:").split(":")
    numbers = _numbers(words)
    if numbers is None or len(words) != (2 if text.startswith("lognormal:") else 1) or numbers[-1] > 1e6:
        raise UsageError(f"--network-delay {text!r}: give milliseconds, or lognormal:MEDIAN_MS:SIGMA, of 0 or more")
    return Delay(numbers[0] / 1e3, numbers[1] if len(numbers) > 1 else 0.0)


def parse_failures(text: str) -> tuple[Failure, ...]:
    """3@10:5,0@60:1 is: server 3 dies after 10 s, for 5 s. Raises UsageError."""
    found = []
    for entry in text.split(","):
        server, _, when = entry.strip().partition("@")
        numbers = _numbers(when.split(":"))
        if not server.isdecimal() or numbers is None or len(numbers) != 2 or numbers[1] == 0:
            raise UsageError(f"--failure {entry!r}: give SERVER@AT_S:FOR_S, 3@10:5 say, or several by comma")
        found.append(Failure(int(server), *numbers))
    return tuple(found)


def parse_autoscale(text: str) -> Autoscale:
    """2:8:30:60 is: at least 2 servers, 8 requests each, 30 s to start, 60 s of cool-down. Raises UsageError."""
    words = text.split(":")
    numbers = _numbers(words)
    if numbers is None or len(numbers) != 4 or not words[0].isdecimal() or numbers[1] == 0:
        raise UsageError(f"--autoscale {text!r}: give LEAST:TARGET:START_S:COOLDOWN_S, 2:8:30:60 say")
    return Autoscale(int(words[0]), *numbers[1:])


def _numbers(words: list[str]) -> list[float] | None:
    """None unless all are numbers of 0 or more."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return None
    return numbers if all(0 <= number < math.inf for number in numbers) else None


@settings()
class FleetSettings:
    """Settings of a fleet of equal simulated servers behind a router, as the command line has them."""

    servers: int = setting(default=1, help="How many equal servers, each with its policy.", ge=1, le=MAX)
    router: str = setting(
        default="least-outstanding", help=f"How the router chooses a server: {', '.join(ROUTERS)}, or module:Class."
    )
    network_delay: str | None = setting(
        default=None,
        help="Delay between router and server, each way: milliseconds, or lognormal:MEDIAN_MS:SIGMA.",
        advanced=True,
    )
    failure: str | None = setting(
        default=None,
        help="Planned failures, by comma: SERVER@AT_S:FOR_S dies after AT_S, and is back FOR_S later.",
        advanced=True,
    )
    mtbf_s: float | None = setting(
        default=None, help="Mean time from a server's start to its failure.", gt=0, advanced=True
    )
    mttr_s: float | None = setting(default=None, help="Mean time until a server is back.", gt=0, advanced=True)
    lost: str = setting(
        default="reroute", help="What happens to the requests of a server that fails.", choices=LOST, advanced=True
    )
    autoscale: str | None = setting(
        default=None,
        help="LEAST:TARGET:START_S:COOLDOWN_S; TARGET is the number of requests in flight for each server.",
        advanced=True,
    )

    def fleet(self) -> Fleet:
        """Return the fleet that these settings describe. Raises UsageError."""
        return Fleet(
            self.servers,
            self.router,
            Delay() if self.network_delay is None else parse_delay(self.network_delay),
            () if self.failure is None else parse_failures(self.failure),
            self.mtbf_s,
            self.mttr_s,
            self.lost,
            None if self.autoscale is None else parse_autoscale(self.autoscale),
        )

    def check(self) -> None:
        """Refuse values that contradict each other."""
        self.fleet()
