"""Simulate one replica of a model that decodes: take requests, latencies and a policy, and return the results."""

import gc
import time
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.batching.errors import UsageError
from headrace.batching.steps.policy import EncoderLatencyModel, StepContext, StepLatencyModel
from headrace.batching.steps.registry import StepPolicySettings, step_policy_settings
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.encoder import EncoderStage
from headrace.sim.decoding.engine import run_steps
from headrace.sim.decoding.front_end import FrontEnd, PreprocessStage
from headrace.sim.decoding.results import DecodingResult, result_of
from headrace.sim.decoding.step_models import find_step_model


def simulate_decoding(
    requests: Iterable[StepRequest],
    latency: StepLatencyModel | str,
    *,
    kv_blocks: int,
    block_size: int = 16,
    prefix_caching: bool = False,
    preprocess: PreprocessStage | None = None,
    encoder: EncoderLatencyModel | EncoderStage | None = None,
    policy: str | StepPolicySettings = "continuous",
    settings: Mapping[str, Any] | None = None,
    busy_power_w: float | None = None,
    seed: int | None = None,
    users: int | None = None,
) -> DecodingResult:
    """Serve requests on one replica of a model that decodes, in virtual time.

    Args:
        requests: The requests, in the order of their arrivals. They are read as they come, and then forgotten.
        latency: The duration of steps, as an object with a method `seconds`, or the name of one. A name is a CSV file
            of measured step times, `module:name`, or an entry point of the group `headrace.step_models`.
        kv_blocks: The number of blocks of the KV cache.
        block_size: The tokens of one block.
        prefix_caching: Whether blocks with equal contents are shared, and found again after their requests have ended.
            Requests tell their contents (`StepRequest`).
        preprocess: What makes tensors of images or audio before they are encoded; None if that takes no time.
        encoder: How images or audio are encoded; None for a model without encoder. A duration stands for the replica,
            which encodes them in its steps. An EncoderStage is a device of its own.
        policy: The name of a step policy, or its settings. The names are continuous, token-deadline, lazy,
            cellular and prefill-first, those of installed packages, and `module:Class`.
        settings: Values by the settings' names, for a policy that is named. All policies have max_num_batched_tokens,
            max_num_seqs, max_encoder_tokens and reserved_output.
        busy_power_w: The power (W) of the replica while a step runs. With it, the result has an energy.
        seed: The seed that the result reports. Nothing here draws from it.
        users: The largest number of requests in flight; None for no limit. With it, the run is a closed loop of so many
            users, as benchmarks with a fixed concurrency measure it. Each user waits for all tokens of its request, and
            then sends the next one, but not before its arrival. Times count from when a request is sent.

    Raises:
        UsageError: An argument or a request is wrong.
        PolicyError: The policy breaks a rule.
    """
    model = find_step_model(latency, "latency") if isinstance(latency, str) else latency
    stage = encoder if isinstance(encoder, EncoderStage) else None
    if users is not None and (stage is not None or preprocess is not None):
        raise UsageError("users cannot wait for a stage; leave out users, or preprocess and EncoderStage")
    in_steps = None if isinstance(encoder, EncoderStage) else encoder
    context = StepContext(kv_blocks, model, block_size, in_steps, prefix_caching)
    made = step_policy_settings(policy, settings).build(context)
    front_end = None if preprocess is None else FrontEnd(preprocess)
    coming = iter(requests) if front_end is None else front_end.preprocessed(requests)
    began = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()  # the engine leaves no circles of references
    try:
        tally = run_steps(made, coming if stage is None else stage.encoded(coming), context, users=users)
    finally:
        if collecting:
            gc.enable()
    wall_s = time.perf_counter() - began
    return result_of(
        tally, wall_s=wall_s, seed=seed, busy_power_w=busy_power_w, front_end=front_end, prefix_caching=prefix_caching
    )
