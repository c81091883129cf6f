"""Plans from Python, and what a plan is as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sim.planner import commands, search
from headrace.sim.planner.search import Answer, Plan
from headrace.sim.planner.target import Candidate, Target
from headrace.sim.planner.trials import Measured, Trial, measure
from headrace.sim.sweeps.sweep import worker_pool


@dataclass(frozen=True, slots=True)
class Planned:
    """The answer of `plan`. `best` is the cheapest server, as plain values, with the commands that simulate and serve
    it; `answer` is all that the search found."""

    answer: Answer

    @property
    def best(self) -> dict[str, Any]:
        """Return the cheapest server as plain values."""
        return of_plan(self.answer.target, self.answer.best)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole answer as plain values, as `headrace plan --json` prints it."""
        return answer_body(self.answer)


def plan(
    model: str,
    *,
    gpu: str,
    slo_ms: float,
    rate_rps: float | None = None,
    replay: str | None = None,
    ray: str | None = None,
    **target: Any,
) -> Planned:
    """Find the partition, preprocessing and policy that meet a target at the least cost.

    Args:
        model: A network of the zoo that runs on GPU slices, or several by comma that share them.
        gpu: The GPU to plan with, "a100-40gb" for instance.
        slo_ms: The target latency of the share `quantile` (0.99) of the requests.
        rate_rps: The mean arrival rate; or `replay`, a file with arrivals.
        ray: The Ray cluster to simulate on; this machine's cores if not given.
        target: Other fields of the target: quantile, gpus, least, budget_usd, lengths, processor, traffic ...

    Returns the plan. Raises UsageError, and HeadraceError where nothing meets the target."""
    if (rate_rps is None) == (replay is None):
        raise TypeError("give one of rate_rps and replay")
    if replay is not None:
        wanted = Target.of_trace(model, slo_ms, gpu, replay, **target)
    else:
        assert rate_rps is not None
        wanted = Target(model, rate_rps, slo_ms, gpu, **target)
    with worker_pool(ray=ray) as workers:

        def run(text: str, trials: Sequence[Trial]) -> list[Measured]:
            return workers.sweep(measure, trials, lambda: None)

        return Planned(search.plan(wanted, run))


def settings(candidate: Candidate) -> dict[str, Any]:
    """Return hardware and policy of a candidate, as `headrace simulate` takes them."""
    hardware = candidate.hardware
    return {
        "partition": hardware.partition,
        "preprocess": hardware.preprocess,
        "policy": candidate.policy,
        **dict(candidate.parameters),
    }


def commands_of(target: Target, plan: Plan) -> dict[str, str | None]:
    """Return the commands that simulate, partition and serve one of the servers of a plan."""
    scenario = plan.candidate.scenario(target, plan.measured.requests)
    serve, note = commands.serve(scenario)
    return {"simulate": commands.command(scenario), "mig": commands.mig(scenario), "serve": serve, "serve_note": note}


def of_plan(target: Target, plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values."""
    measured = plan.measured
    return {
        "gpus": plan.candidate.hardware.servers,
        **settings(plan.candidate),
        "latency_ms": measured.latency_ms,
        "quantile_ms": measured.quantile_ms,
        "cost_usd": measured.cost_usd,
        "power_w": measured.power_w,
        "binds": plan.binds,
        "used": plan.used,
        "most_rps": plan.max_rps,
        **commands_of(target, plan),
    }


def answer_body(answer: Answer) -> dict[str, Any]:
    """Return the answer of a search as plain values, as `headrace plan --json` prints it."""
    target = answer.target
    value, low, high = answer.quantile_ms
    following = answer.next_plan
    return {
        "best": {
            **of_plan(target, answer.best),
            "confirmed_ms": {"quantile": target.quantile, "mean": value, "low": low, "high": high},
        },
        "runners_up": [of_plan(target, plan) for plan in answer.runners_up],
        "next": None
        if following is None
        else {
            "rate_rps": search.NEXT * target.rate_rps,
            "more_usd": answer.next_usd,
            "gpus": following.hardware.servers,
            **settings(following),
        },
        "simulated": answer.simulated,
        "struck_out": answer.struck,
    }
