"""Plan servers of models that decode from Python, and give a plan as plain values."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.batching.settings import read_settings
from headrace.sim.planner.decoders.search import DecodingAnswer, DecodingPlan, plan_decoder
from headrace.sim.planner.decoders.server import DecodingMeasured, DecodingRun, DecodingTrial, measure, nodes_of
from headrace.sim.planner.decoders.target import DecodingTarget
from headrace.sim.sweeps.sweep import worker_pool


@dataclass(frozen=True, slots=True)
class PlannedDecoder:
    """The answer of `plan_decoding`. `best` is the cheapest server, as plain values; `answer` is all that the search
    found."""

    answer: DecodingAnswer

    @property
    def best(self) -> dict[str, Any]:
        """Return the cheapest servers as plain values."""
        return of_plan(self.answer.target, self.answer.best)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole answer as plain values, as `headrace plan --json` prints it."""
        return answer_body(self.answer)


def plan_decoding(
    model: str,
    *,
    gpu: str,
    rate_rps: float,
    ray: str | None = None,
    **target: Any,
) -> PlannedDecoder:
    """Find the GPUs, the front end and the policy of a model that decodes that meet two targets at the least cost.

    Args:
        model: The model: qwen2-vl-7b, qwen2-audio-7b, a decoder of text, or the config.json of one.
        gpu: The kind of GPU, "h100" for instance.
        rate_rps: The mean arrival rate of all requests.
        ray: The Ray cluster to simulate on; this machine's cores if not given.
        target: Other fields of the target: slo_ttft_ms and slo_tpot_ms (ms), images, audio_s, prompt_tokens,
            output_tokens, quantile, gpus, node_gpus, budget_usd, prices, kernels, tp, weight_precision, kv_precision,
            library, trial_requests.

    Returns the plan. Raises UsageError, and HeadraceError where nothing meets the targets."""
    given = {"model": model, "gpu": gpu, "rate_rps": rate_rps}
    wanted = read_settings(DecodingTarget, {**target, **given}, what="plan of a model that decodes")
    with trial_runner(lambda text, count: None, lambda: None, ray) as run:
        return PlannedDecoder(plan_decoder(wanted, run))


@contextmanager
def trial_runner(
    stage: Callable[[str, int], None], step: Callable[[], None], ray: str | None = None
) -> Iterator[DecodingRun]:
    """Return a function that runs trials in this process, or on the Ray cluster at an address.

    A search asks for one trial at a time, which takes less than workers take to start.

    Args:
        stage: It is told what is simulated, and how many trials.
        step: It is called after each trial.
        ray: The address of the cluster, as `worker_pool` takes it."""

    def here(text: str, trials: Sequence[DecodingTrial]) -> list[DecodingMeasured]:
        stage(text, len(trials))
        done = []
        for trial in trials:
            done.append(measure(trial))
            step()
        return done

    if ray is None:
        yield here
        return
    with worker_pool(ray=ray) as workers:

        def there(text: str, trials: Sequence[DecodingTrial]) -> list[DecodingMeasured]:
            stage(text, len(trials))
            return workers.sweep(measure, trials, step)

        yield there


def of_plan(target: DecodingTarget, plan: DecodingPlan) -> dict[str, Any]:
    """Return a plan as plain values."""
    candidate, measured = plan.candidate, plan.measured
    front_end = candidate.front_end
    nodes = nodes_of(target, candidate.replicas)
    found: dict[str, Any] = {
        "gpus": candidate.replicas * target.tp,
        "replicas": candidate.replicas,
        "nodes": sum(nodes.values()),
        "node_gpus": max(nodes) * target.tp,
        "policy": candidate.policy,
        "preprocess": front_end.text,
    }
    if front_end.device == "cpu":
        found |= {"node_cores": front_end.count, "cores_needed": plan.fewest}
    if front_end.device == "dpu":
        found |= {"node_cards": front_end.cards, "card_cus": front_end.count, "cus_needed": plan.fewest}
    return {
        **found,
        "late": measured.late,
        "ttft_ms": measured.ttft_ms,
        "tpot_ms": measured.tpot_ms,
        "preprocess_ms": measured.preprocess_ms,
        "preprocess_wait_ms": measured.preprocess_wait_ms,
        "used": measured.used,
        "cost_usd": measured.cost_usd,
        "front_end_usd": plan.front_end_usd,
        "power_w": measured.power_w,
    }


def answer_body(answer: DecodingAnswer) -> dict[str, Any]:
    """Return the answer of a search as plain values, as `headrace plan --json` prints it."""
    target = answer.target
    mean, low, high = answer.late
    return {
        "best": {
            **of_plan(target, answer.best),
            "confirmed_late": {"mean": mean, "low": low, "high": high},
            "max_rps": answer.max_rps,
            "binds": answer.binds,
        },
        "others": [of_plan(target, plan) for plan in answer.others],
        "simulated": answer.simulated,
    }
