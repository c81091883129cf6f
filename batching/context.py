"""The context of a run: the models, their latencies and the workers, as a policy knows them before the first request.

The settings of a policy make the policy from this context, by their method `build(context)`. The simulator and the live
server make the same kind of context, so the same policy serves both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.batching.action_tables import MixedTables, PhaseTables, RateTables
from headrace.batching.errors import UsageError
from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.graphs.profile import KNEE_GROWTH, Profile

# Profiles by model: one mapping for all workers, or one mapping for each worker.
Profiles = Mapping[str, Profile] | Sequence[Mapping[str, Profile]]
Tables = Mapping[str, RateTables | PhaseTables | MixedTables]


@dataclass(frozen=True, slots=True)
class Bursts:
    """Arrivals that follow a two-phase Markov-modulated Poisson process. The policy `smdp` can use them.

    Args:
        rates_rps: By model, the arrival rate (1/s) in each of the two phases.
        dwell_s: Mean duration (s) of each phase.
    """

    rates_rps: Mapping[str, tuple[float, float]]
    dwell_s: tuple[float, float]


@dataclass(frozen=True)
class PolicyContext:
    """The models and the machine, as a policy knows them.

    Args:
        times: Node latencies (s) by model: one mapping for all workers, or one for each worker where they differ.
        workers: The number of workers.
        known_profiles: Measured or modelled curves of latency by batch size, or a function that makes them. If None,
            the curves are computed from `times`.
        cells: Networks of cells by model, for policies whose tasks consist of cells.
        typical: By model, the mean input length and the mean number of output steps; (1, 1) where a model is missing.
        steps_of: Returns, by model, the number of decoder steps that covers a given share of the outputs, above 0 and
            at most 1.
        busy_w: The power (W) that a busy worker draws, if it is known.
        bursts: The arrival process, if arrivals are known to come in bursts.
        tables: Tables for `smdp` that were solved before. An empty mapping means that they are installed later.
        slo_s: The target latency (s) for policies that choose by it although their requests have no deadlines.

    Raises:
        UsageError: The number of node-latency mappings is not the number of workers.
    """

    times: Mapping[str, NodeTimes] | Sequence[Mapping[str, NodeTimes]]
    workers: int
    known_profiles: Profiles | Callable[[], Profiles] | None = None
    cells: Mapping[str, CellModel] | None = None
    typical: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    steps_of: Callable[[float], Mapping[str, int]] | None = None
    busy_w: float | None = None
    bursts: Bursts | None = None
    tables: Tables | None = None
    slo_s: float = float("inf")

    def __post_init__(self) -> None:
        if not isinstance(self.times, Mapping) and len(self.times) != self.workers:
            raise UsageError(
                f"node times of {len(self.times)} workers for {self.workers}; give one mapping for each, or one for all"
            )

    @property
    def times_by_worker(self) -> list[Mapping[str, NodeTimes]]:
        """Return the node latencies of each worker. Workers with equal hardware share a mapping."""
        return [self.times] * self.workers if isinstance(self.times, Mapping) else list(self.times)

    @property
    def graphs(self) -> list[ModelGraph]:
        """Return the graph of each model."""
        return [known.graph for known in self.slowest().values()]

    def slowest(self, batch: int = 1) -> Mapping[str, NodeTimes]:
        """Return, by model, the node latencies of the worker that takes longest for a batch of this size.

        A policy that predicts uses these latencies, so that it promises nothing that the slowest worker cannot keep."""
        if isinstance(self.times, Mapping):
            return self.times

        def seconds(known: NodeTimes) -> float:
            return known.whole(batch, 1.0, 1)

        return {model: max((times[model] for times in self.times), key=seconds) for model in self.times[0]}

    def profiles(self, knee_growth: float = KNEE_GROWTH) -> Profiles:
        """Return the curves of latency by batch size for each model.

        A `knee_growth` other than the default replaces the one that is stored in the profiles."""
        made = self.known_profiles() if callable(self.known_profiles) else self.known_profiles
        curves = made or self._computed_profiles()
        if knee_growth == KNEE_GROWTH:
            return curves
        if isinstance(curves, Mapping):
            return _with_growth(curves, knee_growth)
        return [_with_growth(of_one, knee_growth) for of_one in curves]

    def _computed_profiles(self) -> list[dict[str, Profile]]:
        """Return one mapping of curves per worker. Workers with equal hardware share a mapping."""
        by_worker = self.times_by_worker
        made = {
            id(times): {model: Profile.of(model, nodes, self.workers) for model, nodes in times.items()}
            for times in by_worker
        }
        return [made[id(times)] for times in by_worker]

    def decoder_steps(self, given: int | None, coverage: float) -> dict[str, int]:
        """Return, by model, the number of decoder steps that a policy assumes.

        Args:
            given: The number of steps for every model with a decoder; None to derive it from `coverage`.
            coverage: The share of the outputs, above 0 and at most 1, that the number of steps must cover.

        Returns:
            Steps by model. Models without a decoder are left out.
        """
        decoders = [model for model, known in self.slowest().items() if len(known.sections.decoder) > 0]
        if given is not None or self.steps_of is None:
            return dict.fromkeys(decoders, given) if given is not None else {}
        covering = self.steps_of(coverage)
        return {model: covering[model] for model in decoders if model in covering}

    def cell_models(self, policy: str) -> list[CellModel]:
        """Return the networks of cells. Raise UsageError if there are none."""
        if self.cells is None:
            models = ", ".join(self.slowest())
            raise UsageError(f"{policy} serves networks of cells; choose another policy for {models}")
        return list(self.cells.values())


def _with_growth(profiles: Mapping[str, Profile], growth: float) -> dict[str, Profile]:
    return {model: replace(known, knee_growth=growth) for model, known in profiles.items()}
