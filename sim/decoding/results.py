"""The results of a run of a model that decodes: the keys of every run (batching/results.py), and those of tokens."""

from dataclasses import asdict, dataclass

from headrace.sim.decoding.engine import DecodingTally
from headrace.sim.decoding.front_end import FrontEnd


@dataclass(frozen=True, slots=True)
class DecodingResult:
    """The figures of one run. Times are milliseconds; a value is None where nothing ended that has it.

    Attributes:
        requests: The requests that came. They are as many as those that finished, failed, and so on.
        finished: The requests that ran to their end.
        failed: The requests that the replica refused, because it could never hold them.
        shed, dropped, cancelled: The requests that ended otherwise.
        throughput_rps: Finished requests per second, from the first arrival to the last end.
        latency_ms: Mean, percentiles and maximum of the time from arrival to the last token.
        ttft_ms: The same, of the time from arrival to the first token.
        tpot_ms: The same, of each request's mean time per output token after the first.
        goodput_rps: Requests per second that met both targets.
        queue_ms: The mean time from when a request is ready to the first step with it.
        preprocess_ms: The same as latency_ms, of the time in the preprocessing stage; None without a stage. Requests
            without items do not count.
        preprocess_wait_ms: The mean time that an image or a piece of audio waits in the stage.
        preprocess_utilization: The busy share of the servers of each step of the stage, by the step's name.
        sla_violation_rate: The share of the requests that missed a target or failed.
        batch_size_mean: The mean number of requests in a step.
        utilization: The share of the time in which a step ran.
        energy_j: The energy (J), or None if no power is known.
        preemptions: How often a request lost its blocks of the KV cache, and was recomputed.
        prefix_cache: `hit_rate`, the share of the tokens of prompts that were found in the KV cache;
            `tokens_not_computed`, those tokens with the ones that preempted requests found again; and `evicted_blocks`.
            None without prefix caching.
        wall_s: The duration (s) of the simulation itself.
        seed: The seed of the workload, or None.
    """

    requests: int
    finished: int
    failed: int
    shed: int
    dropped: int
    cancelled: int
    throughput_rps: float | None
    latency_ms: dict[str, float | None]
    ttft_ms: dict[str, float | None]
    tpot_ms: dict[str, float | None]
    goodput_rps: float | None
    queue_ms: float | None
    preprocess_ms: dict[str, float | None] | None
    preprocess_wait_ms: float | None
    preprocess_utilization: dict[str, float | None] | None
    sla_violation_rate: float | None
    batch_size_mean: float | None
    utilization: float | None
    energy_j: float | None
    preemptions: int
    prefix_cache: dict[str, float | None] | None
    wall_s: float
    seed: int | None

    def as_dict(self) -> dict[str, object]:
        """Return the values by their keys."""
        return asdict(self)


def result_of(
    tally: DecodingTally,
    *,
    wall_s: float,
    seed: int | None = None,
    busy_power_w: float | None = None,
    front_end: FrontEnd | None = None,
    prefix_caching: bool = False,
) -> DecodingResult:
    """Return the results of a run.

    Args:
        tally: The figures of the run.
        wall_s: The duration (s) of the run on the clock of the machine that ran it.
        seed: The seed of the workload.
        busy_power_w: The power (W) of a replica that runs a step.
        front_end: The preprocessing of the run, which has ended; None for a run without.
        prefix_caching: Whether blocks with equal contents were shared.
    """
    ledger = tally.ledger
    ledger.check()
    finished, ended = ledger.finished, ledger.finished + ledger.failed
    span_s = tally.last - tally.first if finished else 0.0
    return DecodingResult(
        ledger.submitted,
        finished,
        ledger.failed,
        ledger.shed,
        ledger.dropped,
        ledger.cancelled,
        finished / span_s if span_s > 0 else None,
        tally.latencies.percentiles_ms(),
        tally.first_tokens.percentiles_ms(),
        tally.per_token.percentiles_ms(),
        tally.in_time / span_s if span_s > 0 else None,
        1e3 * tally.queue_s / finished if finished else None,
        None if front_end is None else front_end.latency_ms(),
        None if front_end is None else front_end.wait_ms(),
        None if front_end is None else front_end.utilization(tally.first, tally.last),
        1.0 - tally.in_time / ended if ended else None,
        tally.step_requests / tally.steps if tally.steps else None,
        tally.busy_s / span_s if span_s > 0 else None,
        None if busy_power_w is None else busy_power_w * tally.busy_s,
        tally.preemptions,
        _prefix_cache(tally) if prefix_caching else None,
        wall_s,
        seed,
    )


def _prefix_cache(tally: DecodingTally) -> dict[str, float | None]:
    return {
        "hit_rate": tally.found_tokens / tally.prompt_tokens if tally.prompt_tokens else None,
        "tokens_not_computed": tally.found_tokens + tally.found_again,
        "evicted_blocks": tally.evicted_blocks,
    }
