"""Simulated requests per second of CPU time of a model that decodes, by policy and load, and the peak of memory.

    .venv/bin/python -m benchmarks.decoding [--requests 20000] [--rounds 3] [--trace FILE] [--json [FILE]]

The requests are those of a trace, which is repeated. The duration of a step is a formula, so that only the simulator is
measured. Loads are shares of 20 requests/s, which the formula serves of Azure's conversations.

`conversations` are requests with a system prompt of 1,000 tokens and conversations of 4 turns, whose prompts are 200
new tokens in the median and all turns before. They are served with prefix caching and without, by `continuous`. If the
trace tells what its prompts share (Mooncake), its requests are served with and without it, too.
"""

import argparse
import resource
import time
from collections.abc import Sequence
from pathlib import Path

import headrace
from benchmarks.harness import Report, arguments, main, measure, spread, summary, table
from headrace.batching.steps.registry import STEP_POLICIES
from headrace.sim.workload.lengths import LogNormalPair
from headrace.sim.workload.traffic import poisson

TRACE = Path(__file__).parents[1] / "examples" / "llm_trace.csv"
LOADS = (0.25, 0.75, 1.25)
CAPACITY_RPS = 20.0
KV_BLOCKS = 25_000
CACHING = {"prefix caching": True, "none": False}
CONVERSATIONS = headrace.Conversations(system_tokens=1000, turns=4, turn_gap_s=30.0, longest_prompt=16_384)
LENGTHS = LogNormalPair(input_median=200.0, output_median=150.0, sigma=0.7, correlation=0.0, longest=4096)


class Formula:
    """A model of 8 billion parameters on a GPU of 2023, roughly."""

    def seconds(self, prefill: Sequence[tuple[int, int]], decode_requests: int, decode_context_tokens: int) -> float:
        duration = 6e-3 + 2e-5 * decode_requests + 4e-8 * decode_context_tokens
        for tokens, past in prefill:
            duration += tokens * (2e-5 + 1e-9 * past)
        return duration


def served(trace: headrace.TokenTrace, policy: str, load: float, requests: int, caching: bool = False) -> float:
    """Return the requests that are simulated in a second of CPU time."""
    speed = load * CAPACITY_RPS / trace.rate_rps
    stream = headrace.token_requests(trace, requests=requests, speed=speed, ttft_s=1.0, tpot_s=0.05)
    began = time.process_time()
    headrace.simulate_decoding(stream, Formula(), kv_blocks=KV_BLOCKS, policy=policy, prefix_caching=caching)
    return requests / (time.process_time() - began)


def conversations(load: float, requests: int, caching: bool) -> float:
    """Return the same for conversations. The time has the making of them, too."""
    began = time.process_time()
    drawn = headrace.TokenTrace.drawn(poisson(load * CAPACITY_RPS, requests, 0), LENGTHS, 0)
    served(CONVERSATIONS.with_history(drawn), "continuous", load, requests, caching)
    return requests / (time.process_time() - began)


def run(options: argparse.Namespace) -> Report:
    trace = headrace.read_token_trace(options.trace)
    count = options.requests
    cases = {
        f"{policy} at {load}": lambda _, policy=policy, load=load: served(trace, policy, load, count)
        for policy in STEP_POLICIES
        for load in LOADS
    }
    for name, caching in CACHING.items():
        for load in LOADS:
            cases[f"conversations at {load}, {name}"] = lambda _, caching=caching, load=load: conversations(
                load, count, caching
            )
            if trace.contents is not None:
                cases[f"continuous at {load}, {name}"] = lambda _, caching=caching, load=load: served(
                    trace, "continuous", load, count, caching
                )
    rates = measure(cases, options.rounds)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = [f"{name} | {spread(each)}" for name, each in rates.items()]
    text = table("policy and load | requests/s of CPU time", rows) + f"\npeak of memory: {peak_mib:.0f} MiB"
    return Report({"requests_per_s": summary(rates), "peak_mib": peak_mib}, text)


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=3, requests=20_000)
    parser.add_argument("--trace", default=str(TRACE), help="trace of requests [examples/llm_trace.csv]")
    main(parser, run)
