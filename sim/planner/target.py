"""The target of a plan, and the hardware and policies that a plan chooses from."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.machine import trace_of
from headrace.sim.scenario import Scenario
from headrace.sim.workload.replay import mean_rps

LEAST: Final = ("cost", "power", "gpus")
TRAFFICS: Final = ("poisson", "mmpp")
MAX_GPUS: Final = 64
QUANTILES: Final = (0.5, 0.999)  # outside of these, runs of LONGEST requests say too little

ROUNDS: Final = 4
FACTOR: Final = 3  # the growth of requests from one round to the next
SHORTEST, LONGEST = 20_000, 100_000  # the requests of the last round, at least and at most
SPANS: Final = 100  # the SLOs that the last round lasts at least, up to LONGEST
# The cycles of mmpp, each a burst and a lull, that a round lasts at least. Doubt is estimated from 5 parts or more
# (trials.py). With 5, each part has two and a half cycles. Over these the memory of the process (exp(-2 t / burst_s))
# is gone, and the means of neighbours correlate by 0.06. In the last round each of 20 parts has as many, and three
# times that if it is not too long.
FEW_CYCLES: Final = 13
CYCLES: Final = 50
LONGEST_OF_BURSTS: Final = 1_000_000  # the requests of a last round with bursts, at most


def least_requests(slo_ms: float, rate_rps: float, late: float) -> int:
    """Return the requests of a server's last round, if the share `late` may be late."""
    return round(min(LONGEST, max(SHORTEST, SPANS * slo_ms / 1e3 * rate_rps, 200 / late)))


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a plan.

    The share `quantile` of all requests for `model` must end within `slo_ms`, on at most `gpus` GPUs and, if given, for
    at most `budget_usd`. `least` says what the plan minimizes, one of LEAST: dollars over the servers' time (cost.py),
    watts, or GPUs and then dollars. `traffic` is "poisson" or "mmpp". The other fields are as in `Scenario`. Raises
    UsageError.

    The requests of a `replay` are all that there are: no seed draws others. So the trace is played whole, in one round,
    and equal servers take turns at its requests. The share of late requests is then exact. `of_trace` makes such a
    target. Its rate is the trace's mean, and another rate is the same trace, played faster."""

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
    image_pixels: int | None = None
    images: str | None = None
    image_sizes: str | None = None
    processor: str | None = None
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
        """Return the target for the requests in the file `trace`; `others` are further fields. Raises UsageError."""
        arrivals = trace_of(Scenario.of(model=model, accelerator=gpu, replay=trace))
        rate_rps = mean_rps(arrivals)
        lasts_s = len(arrivals.arrival) / rate_rps
        if lasts_s < SPANS * slo_ms / 1e3:
            raise UsageError(
                f"--replay {trace} lasts {lasts_s:.3g} s; give one of {SPANS} times --slo-ms {slo_ms:g} at least"
            )
        return cls(model, rate_rps, slo_ms, gpu, replay=trace, **others)

    def at(self, rate_rps: float) -> "Target":
        """Return the same target at another rate."""
        return replace(self, rate_rps=rate_rps, replay_speed=self.replay_speed * (rate_rps / self.rate_rps))

    def rounds(self, servers: int) -> list[int]:
        """Return the number of requests that one of the servers gets in each round, rising."""
        if self.replay is not None:
            return [len(trace_of(self._load()).arrival) // servers]
        least, last = 1, least_requests(self.slo_ms, self.rate_rps / servers, self.late)
        if self.traffic == "mmpp":
            least = self._cycles(FEW_CYCLES, servers)
            longest = min(LONGEST_OF_BURSTS, self._cycles(FACTOR * CYCLES, servers))
            last = max(last, self._cycles(CYCLES, servers), longest)
        lengths = [math.ceil(last / FACTOR**left) for left in reversed(range(ROUNDS))]
        return [least, *(each for each in lengths if each > FACTOR / 2 * least)] if lengths[0] < least else lengths

    def requests(self, servers: int) -> int:
        """Return the number of requests of the last round."""
        return self.rounds(servers)[-1]

    def _cycles(self, count: int, servers: int) -> int:
        """Return the number of requests in this many bursts and lulls."""
        return math.ceil(count * 2 * self.burst_s * self.rate_rps / servers)

    @property
    def late(self) -> float:
        """Return the share of requests that may be late."""
        return 1 - self.quantile

    @property
    def asked(self) -> str:
        """Return the rate in the user's words."""
        return f"--rate-rps {self.rate_rps:g}" if self.replay is None else f"--replay's mean of {self.rate_rps:.4g}/s"

    def _load(self) -> Scenario:
        """Return the part of the scenario that holds at any rate."""
        return Scenario.of(
            model=self.model,
            accelerator=self.gpu,
            lengths=self.lengths,
            shares=self.shares,
            replay=self.replay,
            images=self.images,
            image_sizes=self.image_sizes,
            processor=self.processor,
            overhead_ms=self.overhead_ms,
            **({} if self.image_pixels is None else {"image_pixels": self.image_pixels}),
        )

    def on(self, hardware: "Hardware") -> Scenario:
        """Return the part of the scenario that holds at any rate, with the server."""
        return self._load().having(
            partition=hardware.partition,
            preprocess=hardware.preprocess,
            cpu_costs=self.cpu_costs,
            prices=self.prices,
        )


@dataclass(frozen=True, slots=True)
class Hardware:
    """A number of equal `servers` with one GPU each."""

    servers: int
    partition: str
    preprocess: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """Hardware with a policy. `parameters` are those of the policy, by their names in `Scenario`."""

    hardware: Hardware
    policy: str
    parameters: tuple[tuple[str, float], ...] = ()

    def scenario(self, target: Target, requests: int, seed: int = 0) -> Scenario:
        """Return the scenario of one of the servers. For a trace it gets a share and not a number of requests."""
        servers = self.hardware.servers
        load: dict[str, Any] = {"rate_rps": target.rate_rps / servers, "requests": requests, "traffic": target.traffic}
        if target.replay is not None:
            load = {"replay_every": servers, "replay_speed": target.replay_speed}
        elif target.traffic == "mmpp":
            load["burst_s"] = target.burst_s
        settings: dict[str, Any] = load | dict(self.parameters)
        return target.on(self.hardware).having(policy=self.policy, slo_ms=target.slo_ms, seed=seed, **settings)
