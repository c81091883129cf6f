"""vLLM beside the simulator: what requests with common prefixes find in the KV cache, token by token.

    scripts/setup_vllm
    .venv/bin/python -m benchmarks.vllm_prefixes [--requests 60] [--rounds 2] [--json [FILE]]

A small Qwen2 with random weights runs on one thread. Requests begin with a system prompt and go on with conversations,
whose prompts have the outputs that the engine has generated. Some prompts come twice. They come at numbers of steps and
not at times, so that both serve the same steps whatever these take. The KV cache is too small for the highest load.

Compared are the tokens that each request found at each of its admissions, in the order of admissions, and the numbers
of preemptions, evicted blocks and steps. They must be equal.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Report, arguments, main, progress, table
from benchmarks.vllm_servers import PYTHON
from benchmarks.vllm_steps import BLOCK, BLOCKS, BUDGET, SEQUENCES, engine_runs
from headrace import Conversations, StepRequest
from headrace.batching import UsageError
from headrace.batching.steps.continuous import Continuous
from headrace.batching.steps.policy import StepContext
from headrace.sim.decoding.engine import run_steps
from headrace.sim.workload.lengths import LogNormalPair
from headrace.sim.workload.token_traces import TokenTrace

PROGRAM = Path(__file__).with_name("vllm_programs") / "prefixes.py"
SYSTEM = 100  # tokens
SHAPE = Conversations(system_tokens=SYSTEM, turns=4, turn_gap_s=400.0, longest_prompt=1000)  # s are steps
LENGTHS = LogNormalPair(input_median=100.0, output_median=80.0, sigma=0.7, correlation=0.0, longest=400)
LOADS = (0.02, 0.1, 0.2)  # requests that come in a step
AGAIN = 0.1  # the share of requests after which two with one prompt of whole blocks come

Requests = list[tuple[int, list[tuple[int, int]], int, int]]  # step, contents, prompt and output


class OneStep:
    """A step takes 1."""

    def seconds(self, prefill: Sequence[tuple[int, int]], decode_requests: int, decode_context_tokens: int) -> float:
        return 1.0


def requests_of(load: float, count: int, seed: int) -> Requests:
    """Return requests that are drawn."""
    rng = np.random.default_rng((seed, round(1000 * load)))
    trace = SHAPE.with_history(TokenTrace.drawn(np.floor(np.cumsum(rng.exponential(1 / load, count))), LENGTHS, seed))
    assert trace.contents is not None
    rows = zip(
        trace.arrival_s.tolist(),
        trace.contents.of(0, count, 0),
        trace.prompt_tokens.tolist(),
        trace.output_tokens.tolist(),
        strict=True,
    )
    made: Requests = []
    for number, (at, contents, prompt, output) in enumerate(rows):
        made.append((int(at), list(contents), prompt, output))
        if rng.random() < AGAIN:
            whole = SYSTEM + BLOCK * int(rng.integers(1, 10))
            same = [(0, SYSTEM), (10**6 + number, whole)]
            made += [(int(at) + later, same, whole, 5) for later in (40, 80)]
    return sorted(made, key=lambda each: each[0])


def served(runs: Sequence[Requests]) -> list[dict[str, Any]]:
    """Serve each list of requests on one vLLM engine, and return what it found. Raises RuntimeError."""
    return engine_runs(PROGRAM, runs)


def simulated(requests: Requests) -> dict[str, Any]:
    """Return the same of the simulator."""
    context = StepContext(BLOCKS, OneStep(), BLOCK, prefix_caching=True)
    policy = Continuous(max_num_batched_tokens=BUDGET, max_num_seqs=SEQUENCES).build(context)
    coming = [
        StepRequest(number, float(at), prompt, output, contents=tuple(map(tuple, contents)))
        for number, (at, contents, prompt, output) in enumerate(requests)
    ]
    tally = run_steps(policy, iter(coming), context, record=True)
    found = [[request.id, tokens] for each in tally.records for request, tokens in each.step.found]
    return {
        "found": found,
        "preemptions": tally.preemptions,
        "evicted": tally.evicted_blocks,
        "steps": round(tally.last),
    }


def run(options: argparse.Namespace) -> Report:
    if not PYTHON.exists():
        raise UsageError("there is no vLLM; run scripts/setup_vllm")
    drawn = {
        (load, seed): requests_of(load, options.requests, seed) for load in LOADS for seed in range(options.rounds)
    }
    progress(f"{len(drawn)} runs on vLLM")
    real = dict(zip(drawn, served(list(drawn.values())), strict=True))
    made = {key: simulated(requests) for key, requests in drawn.items()}
    rows, figures = [], []
    for (load, seed), requests in drawn.items():
        theirs, ours = real[load, seed], made[load, seed]
        equal = sum(a == b for a, b in zip(theirs["found"], ours["found"], strict=False))
        figures.append({"load": load, "seed": seed, "requests": len(requests), "vllm": theirs, "simulated": ours})
        tokens = sum(tokens for _, tokens in theirs["found"])
        whole = sum(prompt for _, _, prompt, _ in requests)
        counts = " | ".join(
            f"{theirs[name]:,}" if theirs[name] == ours[name] else f"{theirs[name]:,} ({ours[name]:,})"
            for name in ("preemptions", "evicted", "steps")
        )
        admissions = f"{equal} of {max(len(theirs['found']), len(ours['found']))}"
        rows.append(f"{load:g} | {len(requests)} | {tokens:,} of {whole:,} | {admissions} | {counts}")
    head = "requests a step | requests | tokens found | admissions with equal tokens | preemptions | evicted | steps"
    equal = all(each["vllm"] == each["simulated"] for each in figures)
    text = table(head, rows)
    text += f"\n\nall counts are equal: {'yes' if equal else 'no; those of the simulator stand in brackets'}"
    return Report({"runs": figures, "equal": equal}, text, failed=not equal)


if __name__ == "__main__":
    main(arguments(__doc__, rounds=2, requests=60), run)
