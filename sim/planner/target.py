"""What is asked of a plan, and what a plan is."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.machine import trace_of
from headrace.sim.scenario import Scenario
from headrace.sim.workload.replay import mean_rps

LEAST: Final = ("cost", "power", "gpus")
TRAFFICS: Final = ("poisson", "mmpp")
MAX_GPUS: Final = 64
QUANTILES: Final = (0.5, 0.999)  # beyond them runs of LONGEST requests say too little

ROUNDS: Final = 4
FACTOR: Final = 3  # from one round to the next
SHORTEST, LONGEST = 20_000, 100_000  # requests of the last round
SPANS: Final = 100  # of the SLO that it lasts at least, up to LONGEST
# Of mmpp, a burst and a lull each, that a round lasts at least: each of the fewest parts that doubt is told from (5 in
# trials.py, the most doubt of all) has two and a half then, over which what the process remembers (exp(-2 t / burst_s))
# is gone, and the means of neighbours correlate by 0.06. Of the last round so have each of 20 parts, and three times
# that if it is not too long.
FEW_CYCLES: Final = 13
CYCLES: Final = 50
LONGEST_OF_BURSTS: Final = 1_000_000  # requests; as many cycles as in other last rounds, if these are enough for them


def least_requests(slo_ms: float, rate_rps: float, late: float) -> int:
    """Of a server's last round, if the share `late` may be."""
    return round(min(LONGEST, max(SHORTEST, SPANS * slo_ms / 1e3 * rate_rps, 200 / late)))


@dataclass(frozen=True, slots=True)
class Target:
    """Of all requests, `model` being as in `Scenario`, the share `quantile` within `slo_ms`, with at most `gpus` GPUs
    and, if given, `budget_usd`. `least` is one of LEAST: dollars over the servers' time (cost.py), watts, or GPUs and
    then dollars. The others as in `Scenario`; `traffic` is "poisson" or "mmpp". Raises UsageError.

    The requests of a `replay` are all that there are: no seed draws others. So the trace is played whole, in one round,
    each of some equal servers taking turns; there is no doubt of its share of late ones. `of_trace` makes such a
    target, whose rate is the trace's mean; another rate is the same trace, played faster."""

    model: str
    rate_rps: float
    slo_ms: float
    gpu: str
    quantile: float = 0.99
    gpus: int = 1
    least: str = "cost"
    budget_usd: float | None = None
    lengths: str | None = None
    cpu_costs: str | None = None
    shares: str | None = None
    traffic: str = "poisson"
    burst_s: float = 1.0
    replay: str | None = None
    replay_speed: float = 1.0
    image_pixels: int = TYPICAL_PIXELS
    images: str | None = None
    overhead_ms: float = 0.0
    prices: str | None = None

    def __post_init__(self) -> None:
        gpu_named(self.gpu)
        if self.least not in LEAST:
            raise UsageError(f"--least {self.least!r}: choose from {', '.join(LEAST)}")
        if self.traffic not in TRAFFICS:
            raise UsageError(f"--traffic {self.traffic!r}: choose from {', '.join(TRAFFICS)}")
        if not 1 <= self.gpus <= MAX_GPUS:
            raise UsageError(f"--gpus {self.gpus}: give 1 to {MAX_GPUS}")
        low, high = QUANTILES
        if not low <= self.quantile <= high:
            raise UsageError(f"--slo-quantile {self.quantile:g}: give {low:g} to {high:g}")
        for option, value in (
            ("rate-rps", self.rate_rps),
            ("slo-ms", self.slo_ms),
            ("budget-usd", self.budget_usd),
            ("burst-s", self.burst_s),
        ):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"--{option} {value:g}: give a number above 0")
        if self.traffic == "mmpp" and self._cycles(CYCLES, 1) > LONGEST_OF_BURSTS:
            raise UsageError(
                f"--burst-s {self.burst_s:g}: the {CYCLES} bursts and lulls that a share of late requests is told from "
                f"are {self._cycles(CYCLES, 1)} requests, and {LONGEST_OF_BURSTS} are simulated at most; give shorter "
                "bursts, or --replay with a trace"
            )

    @classmethod
    def of_trace(cls, model: str, slo_ms: float, gpu: str, trace: str, **others: Any) -> "Target":
        """Of the requests in the file `trace`, and `others` as they are above. Raises UsageError."""
        arrivals = trace_of(Scenario.of(model=model, accelerator=gpu, replay=trace))
        rate_rps = mean_rps(arrivals)
        lasts_s = len(arrivals.arrival) / rate_rps
        if lasts_s < SPANS * slo_ms / 1e3:
            raise UsageError(
                f"--replay {trace} lasts {lasts_s:.3g} s; give one of {SPANS} times --slo-ms {slo_ms:g} at least"
            )
        return cls(model, rate_rps, slo_ms, gpu, replay=trace, **others)

    def at(self, rate_rps: float) -> "Target":
        """The same at another rate."""
        return replace(self, rate_rps=rate_rps, replay_speed=self.replay_speed * (rate_rps / self.rate_rps))

    def rounds(self, servers: int) -> list[int]:
        """How many requests one of the servers gets in each round, rising."""
        if self.replay is not None:
            return [len(trace_of(self._load()).arrival) // servers]
        least, last = 1, least_requests(self.slo_ms, self.rate_rps / servers, self.late)
        if self.traffic == "mmpp":
            least = self._cycles(FEW_CYCLES, servers)
            most = min(LONGEST_OF_BURSTS, self._cycles(FACTOR * CYCLES, servers))
            last = max(last, self._cycles(CYCLES, servers), most)
        lengths = [math.ceil(last / FACTOR**left) for left in reversed(range(ROUNDS))]
        return [least, *(each for each in lengths if each > FACTOR / 2 * least)] if lengths[0] < least else lengths

    def requests(self, servers: int) -> int:
        """Of the last round."""
        return self.rounds(servers)[-1]

    def _cycles(self, count: int, servers: int) -> int:
        """Requests in so many bursts and lulls."""
        return math.ceil(count * 2 * self.burst_s * self.rate_rps / servers)

    @property
    def late(self) -> float:
        """The share of requests that may be."""
        return 1 - self.quantile

    @property
    def asked(self) -> str:
        """The rate, as it was asked for."""
        return f"--rate-rps {self.rate_rps:g}" if self.replay is None else f"--replay's mean of {self.rate_rps:.4g}/s"

    def _load(self) -> Scenario:
        """What is true of the requests at any rate."""
        return Scenario.of(
            model=self.model,
            accelerator=self.gpu,
            lengths=self.lengths,
            shares=self.shares,
            replay=self.replay,
            image_pixels=self.image_pixels,
            images=self.images,
            overhead_ms=self.overhead_ms,
        )

    def on(self, hardware: "Hardware") -> Scenario:
        """And of the server."""
        return self._load().having(
            partition=hardware.partition,
            preprocess=hardware.preprocess,
            cpu_costs=self.cpu_costs,
            prices=self.prices,
        )


@dataclass(frozen=True, slots=True)
class Hardware:
    """`servers` of one GPU each."""

    servers: int
    partition: str
    preprocess: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """`parameters` of the policy by their names in `Scenario`."""

    hardware: Hardware
    policy: str
    parameters: tuple[tuple[str, float], ...] = ()

    def scenario(self, target: Target, requests: int, seed: int = 0) -> Scenario:
        """Of one of the servers. Of a trace it gets a share, and not a number of requests."""
        servers = self.hardware.servers
        load: dict[str, Any] = {"rate_rps": target.rate_rps / servers, "requests": requests, "traffic": target.traffic}
        if target.replay is not None:
            load = {"replay_every": servers, "replay_speed": target.replay_speed}
        elif target.traffic == "mmpp":
            load["burst_s"] = target.burst_s
        settings: dict[str, Any] = load | dict(self.parameters)
        return target.on(self.hardware).having(policy=self.policy, slo_ms=target.slo_ms, seed=seed, **settings)
