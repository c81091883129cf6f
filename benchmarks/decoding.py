"""Simulated requests per second of a model that decodes, by policy and load, and the peak of memory.

    .venv/bin/python -m benchmarks.decoding [--requests 20000] [--rounds 3] [--trace FILE] [--json [FILE]]

The requests are those of a trace, which is repeated. The duration of a step is a formula, so that only the simulator is
measured. Loads are shares of 20 requests/s, which the formula serves of Azure's conversations.
"""

import argparse
import resource
from collections.abc import Sequence
from pathlib import Path

import headrace
from benchmarks.harness import Report, arguments, main, measure, seconds, spread, summary, table
from headrace.batching.steps.registry import STEP_POLICIES

TRACE = Path(__file__).parents[1] / "examples" / "llm_trace.csv"
LOADS = (0.25, 0.75, 1.25)
CAPACITY_RPS = 20.0
KV_BLOCKS = 25_000


class Formula:
    """A model of 8 billion parameters on a GPU of 2023, roughly."""

    def seconds(self, prefill: Sequence[tuple[int, int]], decode_requests: int, decode_context_tokens: int) -> float:
        duration = 6e-3 + 2e-5 * decode_requests + 4e-8 * decode_context_tokens
        for tokens, past in prefill:
            duration += tokens * (2e-5 + 1e-9 * past)
        return duration


def served(trace: headrace.TokenTrace, policy: str, load: float, requests: int) -> None:
    speed = load * CAPACITY_RPS / trace.rate_rps
    stream = headrace.token_requests(trace, requests=requests, speed=speed, ttft_s=1.0, tpot_s=0.05)
    headrace.simulate_decoding(stream, Formula(), kv_blocks=KV_BLOCKS, policy=policy)


def run(options: argparse.Namespace) -> Report:
    trace = headrace.read_token_trace(options.trace)
    cases = {
        f"{policy} at {load}": lambda _, policy=policy, load=load: (
            options.requests / seconds(lambda: served(trace, policy, load, options.requests))
        )
        for policy in STEP_POLICIES
        for load in LOADS
    }
    rates = measure(cases, options.rounds)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = [f"{name} | {spread(each)}" for name, each in rates.items()]
    text = table("policy and load | requests/s", rows) + f"\npeak of memory: {peak_mib:.0f} MiB"
    return Report({"requests_per_s": summary(rates), "peak_mib": peak_mib}, text)


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=3, requests=20_000)
    parser.add_argument("--trace", default=str(TRACE), help="trace of requests [examples/llm_trace.csv]")
    main(parser, run)
