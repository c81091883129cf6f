"""The requests of a simulation: when they come, for which models, how long their inputs are, and when answers are
due."""

import math
from dataclasses import is_dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import LONGEST_NAME, UsageError
from headrace.batching.named import installed, is_own, own
from headrace.batching.settings import setting, settings
from headrace.sim.workload import traffic

MAX_REQUESTS = 100_000_000

Times = NDArray[np.float64]


@settings()
class RandomTraffic:
    """Settings of traffic that is drawn at random, or at equal distances."""

    rate_rps: float = setting(default=1000.0, help="Requests per second, on average.", gt=0)
    requests: int = setting(default=20_000, help="How many requests come.", ge=1, le=MAX_REQUESTS)


@settings()
class Poisson(RandomTraffic):
    """Requests that come independently of each other, at a constant rate.

    With `stream` the arrivals are made in blocks and forgotten, as is each request when it has ended. Memory then does
    not grow with `requests`, and models and lengths differ from those of the same seed without it."""

    stream: bool = setting(
        default=False, help="Keep no list of requests, so that memory does not grow with them.", advanced=True
    )

    def times(self, seed: int) -> Times:
        """Return when requests come (s), rising."""
        return traffic.poisson(self.rate_rps, self.requests, seed)


@settings()
class Deterministic(RandomTraffic):
    """Requests that come at equal distances."""

    def times(self, seed: int) -> Times:
        """Return when requests come (s), rising."""
        return traffic.deterministic(self.rate_rps, self.requests)


@settings()
class Bursty(RandomTraffic):
    """Requests that come by a Poisson process at 1.8 and at 0.2 times the rate in turn (an MMPP of two phases)."""

    burst_s: float = setting(
        default=1.0, help="How long a phase of bursty traffic lasts on average.", gt=0, advanced=True
    )

    def times(self, seed: int) -> Times:
        """Return when requests come (s), rising."""
        dwell_s = (self.burst_s, self.burst_s)
        return traffic.mmpp2(traffic.burst_rates(self.rate_rps), dwell_s, self.requests, seed)


@settings()
class Replay:
    """Requests as a file has them (sim/workload/replay.py), with their models and lengths.

    Every `replay_every`-th request comes, from number `seed` modulo `replay_every` on, `replay_speed` times as fast."""

    replay: str = setting(default="", help="A CSV file with arrivals: arrival_s, model, input_len, output_len.")
    replay_every: int = setting(default=1, help="Take every N-th request of the trace.", ge=1, le=1024, advanced=True)
    replay_speed: float = setting(default=1.0, help="Play the trace so many times as fast.", gt=0, advanced=True)


class OwnTraffic(Protocol):
    """Traffic of a user's own: a dataclass of settings that says when requests come."""

    def times(self, seed: int) -> Times:
        """Return when requests come (s), rising."""
        ...


Traffic = Poisson | Deterministic | Bursty | Replay | OwnTraffic
GROUP = "headrace.traffic"  # the group of entry points
TRAFFICS: dict[str, type[RandomTraffic]] = {"poisson": Poisson, "deterministic": Deterministic, "mmpp": Bursty}


def traffic_class(name: str, where: str) -> type:
    """Return the class of traffic of a name, of an entry point, or of module:Class.

    `where` begins an error text. Raises UsageError."""
    if name not in TRAFFICS and is_own(name, GROUP):
        found = own(where, name, GROUP)
        if not isinstance(found, type) or not is_dataclass(found) or not hasattr(found, "times"):
            raise UsageError(f"{where} {name}: it must be a dataclass of settings with a method times(seed)")
        return found
    if name not in TRAFFICS:
        known = (*TRAFFICS, *installed(GROUP))
        raise UsageError(f"{where} {name[:LONGEST_NAME]!r}: choose from {', '.join(known)}, or give module:Class")
    return TRAFFICS[name]


def traffic_name(chosen: Traffic) -> str:
    """Return the name of traffic that is drawn, as the command line has it."""
    cls: type = type(chosen)
    for name, point in installed(GROUP).items():
        if point.value == f"{cls.__module__}:{cls.__qualname__}":
            return name
    return next((name for name, known in TRAFFICS.items() if known is cls), f"{cls.__module__}:{cls.__qualname__}")


@settings()
class Workload:
    """The requests that come, as far as the hardware does not matter.

    `model` may name several models, separated by commas. They share the workers and the arrivals, equally or by
    `shares`."""

    model: str = setting(default="resnet50", help="One or more models, by comma, that share the workers.")
    slo_ms: float = setting(
        default=100.0, help="Target latency: a request's deadline lies so long after its arrival.", gt=0, infinite=True
    )
    shares: str | None = setting(
        default=None, help="Share of each model in the requests, by comma; equal ones if not given.", advanced=True
    )
    lengths: str | None = setting(
        default=None,
        help="Lengths of inputs: a named distribution, a number, or a folder of WAV and FLAC files.",
    )
    corpus: str | None = setting(
        default=None, help="A file of sentence pairs, for the lengths of translation models.", advanced=True
    )
    trees: str | None = setting(default=None, help="A file of parse trees, for the model treelstm.", advanced=True)
    traffic: Traffic = Poisson()

    def check(self) -> None:
        """Refuse values that contradict each other."""
        if not self.models():
            raise UsageError("--model is empty; name one or more, separated by commas")
        if len(set(self.models())) < len(self.models()):
            raise UsageError(f"--model {self.model} names a model twice")
        if self.lengths is not None and self.corpus is not None:
            raise UsageError("--lengths and --corpus both tell lengths; give one of them")
        if self.trees is not None and "treelstm" not in self.models():
            raise UsageError("--trees is for --model treelstm")
        if self.shares is not None and isinstance(self.traffic, Replay):
            raise UsageError("--replay brings its own models; leave out --shares")
        self.given_shares()

    def models(self) -> list[str]:
        """Return the names of the models."""
        return [name.strip() for name in self.model.split(",") if name.strip()]

    def given_shares(self) -> dict[str, float]:
        """Return the share of each model in all requests, unless a trace has them."""
        models = self.models()
        if self.shares is None:
            return {model: 1 / len(models) for model in models}
        try:
            rates = [float(word) for word in self.shares.split(",")]
        except ValueError:
            rates = []
        if len(rates) != len(models) or not all(0 < rate < math.inf for rate in rates):
            raise UsageError(f"--shares {self.shares!r}: give a number above 0 for each of --model {self.model}")
        return {model: rate / sum(rates) for model, rate in zip(models, rates, strict=True)}

    @property
    def trace(self) -> Replay | None:
        """Return the trace that is replayed, if one is."""
        return self.traffic if isinstance(self.traffic, Replay) else None

    @property
    def drawn(self) -> Any:
        """Return the traffic that is drawn. There must be no trace."""
        assert not isinstance(self.traffic, Replay)
        return self.traffic
