"""Run one scenario of a model that decodes: make its latency, its KV cache and its requests, and simulate it.

Files that a scenario names (traces, step times, a config.json) are read here, and nowhere else."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.batching.errors import OutOfMemory, UsageError
from headrace.batching.steps.policy import StepContext, StepLatencyModel
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.encoder import EncoderStage
from headrace.sim.decoding.engine import StepRecord, run_steps
from headrace.sim.decoding.latency import StepLatency
from headrace.sim.decoding.results import DecodingResult, result_of
from headrace.sim.decoding.scenario import DecoderGpus, DecodingScenario, KvMemory, finite
from headrace.sim.decoding.step_models import find_step_model
from headrace.sim.trace import Slice
from headrace.sim.workload.lengths import Lengths, LogNormalPair
from headrace.sim.workload.settings import Replay
from headrace.sim.workload.token_requests import token_requests
from headrace.sim.workload.token_traces import TokenTrace, read_token_trace

# A warning tells a queue that grows: fewer requests are served than this share of those that come, and they wait for
# more than this share of their time.
_SERVED_SHARE, _WAITING_SHARE = 0.9, 0.5


class AffineEncoder:
    """An encoder that takes a time for each batch, and one for each token in it (s)."""

    def __init__(self, batch_s: float, token_s: float) -> None:
        self._batch_s = batch_s
        self._token_s = token_s

    def seconds(self, items: Sequence[int]) -> float:
        """Return the duration of a batch of items with so many tokens."""
        return self._batch_s + self._token_s * sum(items)


@dataclass(frozen=True, slots=True)
class DecodingOutcome:
    """A run: its result, the blocks of its KV cache, its steps if they were recorded, and warnings about what was
    hardly meant."""

    result: DecodingResult
    kv_blocks: int
    records: Sequence[StepRecord]
    warnings: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the result by its keys, with the blocks of the KV cache."""
        return {**self.result.as_dict(), "kv_blocks": self.kv_blocks}


def run_decoding(scenario: DecodingScenario, record: bool = False) -> DecodingOutcome:
    """Simulate a scenario, and with `record` keep its steps.

    Raises UsageError, and OutOfMemory if the weights leave no memory for the KV cache."""
    model, kv_blocks = _replica(scenario)
    hardware = scenario.hardware
    encoder = None if hardware.encoder_ms is None else _encoder(hardware)
    stage = EncoderStage(encoder) if encoder is not None and hardware.encoder_device else None
    trace, count, speed = _trace(scenario)
    rate_rps, requests = _requests(scenario, trace, count, speed)
    # Without contents, a run is that of a server without prefix caching: a trace cannot tell what it would find.
    caching = hardware.prefix_caching and trace.contents is not None
    context = StepContext(kv_blocks, model, hardware.block_size, None if stage else encoder, caching)
    began = time.perf_counter()
    policy = scenario.policy.build(context)
    tally = run_steps(policy, requests if stage is None else stage.encoded(requests), context, record)
    result = result_of(
        tally,
        wall_s=time.perf_counter() - began,
        seed=scenario.seed,
        busy_power_w=scenario.hardware.busy_w,
        prefix_caching=caching,
    )
    warnings = _warnings(result, rate_rps, kv_blocks * hardware.block_size)
    return DecodingOutcome(result, kv_blocks, tally.records, warnings)


def _replica(scenario: DecodingScenario) -> tuple[StepLatencyModel, int]:
    """Return the latency of steps, and the blocks of the KV cache."""
    hardware = scenario.hardware
    if not isinstance(hardware, DecoderGpus):
        assert hardware.kv_blocks is not None  # which the settings check
        return find_step_model(hardware.step_model), hardware.kv_blocks
    latency = StepLatency(
        scenario.workload.model,
        hardware.gpu,
        hardware.kernels,
        tp=hardware.tp,
        ep=hardware.ep,
        products=hardware.weight_precision,  # type: ignore[arg-type]  # a choice of the setting
        experts=hardware.expert_precision,  # type: ignore[arg-type]
        keys=hardware.kv_precision,
        host_s=hardware.host_us / 1e6,
        host_request_s=None if hardware.host_request_us is None else hardware.host_request_us / 1e6,
    )
    fits = latency.kv_tokens(hardware.memory_share) // hardware.block_size
    if hardware.kv_blocks is None and fits < 1:
        raise OutOfMemory(
            f"--model {scenario.workload.model} has {latency.weight_bytes / 1e9:.0f} GB of weights on each of "
            f"{hardware.tp} {hardware.gpu}, which leaves no memory for the KV cache; give more GPUs by --tp, or "
            "another --weight-precision"
        )
    return latency, fits if hardware.kv_blocks is None else hardware.kv_blocks


def _encoder(hardware: KvMemory) -> AffineEncoder:
    assert hardware.encoder_ms is not None
    return AffineEncoder(hardware.encoder_ms / 1e3, hardware.encoder_token_us / 1e6)


def _trace(scenario: DecodingScenario) -> tuple[TokenTrace, int | None, float]:
    """Return the trace of a scenario, how many of its requests are served, and its speed."""
    traffic = scenario.traffic
    if isinstance(traffic, Replay):
        whole = read_token_trace(traffic.replay)
        trace = _every(whole, traffic.replay_every, scenario.seed % traffic.replay_every)
        return trace, getattr(traffic, "requests", None), traffic.replay_speed
    times = np.asarray(traffic.times(scenario.seed), dtype=np.float64)
    if times.ndim != 1 or len(times) < 1 or not np.isfinite(times).all() or (np.diff(times, prepend=0.0) < 0).any():
        raise UsageError("--traffic: times(seed) must return a list of rising times of arrival, in seconds")
    trace = TokenTrace.drawn(times, _lengths(scenario), scenario.seed)
    return scenario.workload.with_history(trace) if scenario.workload.shares else trace, None, 1.0


def _requests(
    scenario: DecodingScenario, trace: TokenTrace, count: int | None, speed: float
) -> tuple[float, Iterator[StepRequest]]:
    """Return the rate (requests/s) of arrivals, and the requests."""
    workload = scenario.workload
    rate_rps = speed * trace.rate_rps if trace.requests > 1 and trace.arrival_s[-1] > trace.arrival_s[0] else 0.0
    return rate_rps, token_requests(
        trace,
        requests=count,
        speed=speed,
        ttft_s=finite(workload.slo_ttft_ms),
        tpot_s=finite(workload.slo_tpot_ms),
        images=workload.images(),
        seed=scenario.seed,
    )


def _lengths(scenario: DecodingScenario) -> Lengths:
    workload = scenario.workload
    return LogNormalPair(
        workload.prompt_tokens, workload.output_tokens, workload.tokens_sigma, 0.0, workload.longest_tokens
    )


def _every(trace: TokenTrace, n: int, first: int) -> TokenTrace:
    """Return each `n`-th request of a trace, from number `first` on. Raises UsageError if there is none."""
    if n == 1:
        return trace
    part = slice(first, None, n)
    arrival = trace.arrival_s[part]
    if not len(arrival):
        raise UsageError(f"--replay-every {n}: there are only {trace.requests} requests")
    images = None if trace.images is None else trace.images[part]
    contents = None if trace.contents is None else trace.contents.every(n, first)
    prompts, outputs = trace.prompt_tokens[part], trace.output_tokens[part]
    return TokenTrace(arrival - arrival[0], prompts, outputs, images, trace.failed, contents)


def _warnings(result: DecodingResult, rate_rps: float, kv_tokens: int) -> list[str]:
    found = []
    if result.failed:
        found.append(f"{result.failed} requests were refused, because the KV cache of {kv_tokens} tokens is too small")
    served, waits_ms, mean_ms = result.throughput_rps, result.queue_ms, result.latency_ms["mean"]
    if served is None or waits_ms is None or mean_ms is None:
        return found
    if (
        served < _SERVED_SHARE * rate_rps and waits_ms > _WAITING_SHARE * mean_ms
    ):  # the end alone makes short runs slower
        found.append(
            f"{rate_rps:.3g} requests/s come and {served:.3g} are served: the queue grows to the end of the run"
        )
    return found


def slices_of(records: Sequence[StepRecord]) -> Iterator[Slice]:
    """Yield the steps of a run for a Perfetto trace, each with the requests in it."""
    for record in records:
        step: Any = record.step
        chunks = sum(tokens for _, tokens in step.prefill)
        parts = [f"encode {sum(items for _, items in step.encoder)}"] if step.encoder else []
        parts += [f"prefill {chunks}"] if chunks else []
        parts += [f"decode {len(step.decoding)}"] if step.decoding else []
        times = f" x {step.repeats}" if step.repeats > 1 else ""
        requests = [request.id for request, _ in (*step.encoder, *step.prefill)] + [each.id for each in step.decoding]
        yield Slice(("replica", "steps"), record.started, record.ended, ", ".join(parts) + times, requests)
