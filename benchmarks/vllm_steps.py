"""vLLM beside the simulator: the same requests, on step times that were measured in other runs of the same engine.

    scripts/setup_vllm
    .venv/bin/python -m benchmarks.vllm_steps [--rounds 3] [--clock cpu] [--json [FILE]] [--steps FILE]

A small Qwen2 with random weights runs on one thread. Each round has two runs for each load, with requests of their own:
one whose steps are measured, and one that is compared. The measured steps of a round make one step model
(`headrace.MeasuredSteps`). The simulator then serves the requests of the compared runs of the round with the policy
`continuous` and vLLM's limits. Nothing is fitted to the compared runs.

Requests come by a Poisson process, and their lengths are log-normal. At the highest load the KV cache is too small, so
that vLLM preempts requests. With `--clock cpu` the clock counts the CPU time of the engine's process and jumps where it
has nothing to do, so that other processes do not matter. `--clock wall` takes the machine's clock.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Report, arguments, main, progress, table
from benchmarks.vllm_servers import PYTHON, SETTINGS
from headrace import MeasuredStep, MeasuredSteps, StepRequest, simulate_decoding
from headrace.batching import UsageError
from headrace.sim.decoding.measured_steps import write_steps
from headrace.sim.workload.lengths import LogNormalPair
from headrace.sim.workload.token_traces import TokenTrace
from headrace.sim.workload.traffic import poisson

PROGRAM = Path(__file__).with_name("vllm_programs") / "engine.py"
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 8192,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 1,
}
BUDGET, SEQUENCES, BLOCK, BLOCKS = 256, 16, 32, 64  # vLLM keeps one block more for itself
LENGTHS = LogNormalPair(input_median=100.0, output_median=25.0, sigma=0.7, correlation=0.0, longest=800)
LOADS_RPS = (4.0, 10.0, 30.0)
CLOCKS = ("cpu", "wall")
START_S = 600.0  # for the engine, in addition to RUN_S for each run
RUN_S = 300.0

Requests = list[tuple[float, int, int]]  # arrival, prompt and output
Run = tuple[int, float, int]  # the round, the load, and 1 if it is compared


def requests_of(rate_rps: float, count: int, seed: int) -> Requests:
    """Return requests that are drawn."""
    trace = TokenTrace.drawn(poisson(rate_rps, count, seed), LENGTHS, seed)
    return list(zip(trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


def served(runs: Sequence[Requests], clock: str) -> list[dict[str, Any]]:
    """Serve each list of requests on one vLLM engine, and return for each its steps and times. Raises RuntimeError."""
    return engine_runs(PROGRAM, runs, cpu_clock=clock == "cpu")


def engine_runs(program: Path, runs: Sequence[Any], **more: Any) -> list[dict[str, Any]]:
    """Run a program of vllm_programs/ on one vLLM engine of the limits above, and return its answer to each run.

    Args:
        program: The program.
        runs: What it gets for each run.
        more: What it also gets.

    Raises RuntimeError if vLLM does not run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(CONFIG))
        engine = {
            "model": str(model),
            "max_num_batched_tokens": BUDGET,
            "max_num_seqs": SEQUENCES,
            "block_size": BLOCK,
            "num_gpu_blocks_override": BLOCKS + 1,
            "max_model_len": BLOCKS * BLOCK,
        }
        order = {"engine": engine, "vocabulary": CONFIG["vocab_size"], "runs": runs, **more}
        (folder / "order.json").write_text(json.dumps(order))
        with (folder / "log").open("wb") as log:
            done = subprocess.run(
                [str(PYTHON), str(program), "order.json", "result.json"],
                cwd=folder,
                env={**os.environ, **SETTINGS, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
                stdout=log,
                stderr=log,
                timeout=START_S + RUN_S * len(runs),
            )
        if done.returncode:
            raise RuntimeError(f"vLLM does not run: {(folder / 'log').read_text()[-3000:]}")
        found = json.loads((folder / "result.json").read_text())
    assert found["blocks"] == BLOCKS + 1
    return list(found["runs"])


def steps_of(run: Mapping[str, Any]) -> list[MeasuredStep]:
    """Return the measured steps of a run."""
    return [
        MeasuredStep(tuple((new, cached) for new, cached in chunks), requests, context, seconds)
        for chunks, requests, context, seconds in run["steps"]
    ]


def measured_figures(requests: Requests, run: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a run of vLLM, by the names that the simulator's have."""
    pairs = list(zip(requests, run["first_s"], run["last_s"], strict=True))
    ttft = [1e3 * (first - arrival) for (arrival, _, _), first, _ in pairs]
    tpot = [1e3 * (last - first) / (output - 1) for (_, _, output), first, last in pairs if output > 1]
    return {
        "ttft_ms": statistics.fmean(ttft),
        "ttft_p90_ms": float(np.quantile(ttft, 0.9, method="inverted_cdf")),
        "tpot_ms": statistics.fmean(tpot),
        "tpot_p90_ms": float(np.quantile(tpot, 0.9, method="inverted_cdf")),
        "throughput_rps": len(requests) / (max(run["last_s"]) - requests[0][0]),
        "preemptions": run["preemptions"],
        "steps": len(run["steps"]),
    }


def simulated_figures(requests: Requests, model: MeasuredSteps) -> dict[str, float]:
    """Return the same figures of the simulator."""
    result = simulate_decoding(
        [StepRequest(number, *each) for number, each in enumerate(requests)],
        model,
        kv_blocks=BLOCKS,
        block_size=BLOCK,
        policy="continuous",
        settings={"max_num_batched_tokens": BUDGET, "max_num_seqs": SEQUENCES},
    )
    assert result.finished == len(requests) and result.throughput_rps is not None
    known = {
        "ttft_ms": result.ttft_ms["mean"],
        "ttft_p90_ms": result.ttft_ms["p90"],
        "tpot_ms": result.tpot_ms["mean"],
        "tpot_p90_ms": result.tpot_ms["p90"],
        "throughput_rps": result.throughput_rps,
    }
    return {**{name: float(value or 0.0) for name, value in known.items()}, "preemptions": result.preemptions}


def steps_in(found: Mapping[Run, Mapping[str, Any]], number: int, compared: int) -> list[MeasuredStep]:
    """Return the steps of the measured or the compared runs of a round."""
    keys = [(number, load, compared) for load in LOADS_RPS]
    return [step for key in keys for step in steps_of(found[key])]


def held_out(model: MeasuredSteps, steps: Sequence[MeasuredStep]) -> dict[str, float]:
    """Return how well a step model predicts other steps."""
    real = np.array([each.seconds for each in steps])
    made = np.array([model.seconds(each.prefill, each.decode_requests, each.decode_context_tokens) for each in steps])
    return {
        "compared_steps": len(steps),
        "compared_mean_error": float(np.mean(np.abs(made / real - 1))),
        "compared_total": float(made.sum() / real.sum()),
    }


COMPARED = {
    "ttft_ms": "mean ms to the first token",
    "ttft_p90_ms": "its 90th percentile",
    "tpot_ms": "mean ms per output token",
    "tpot_p90_ms": "its 90th percentile",
    "throughput_rps": "requests/s",
    "preemptions": "preemptions",
}


def run(options: argparse.Namespace) -> Report:
    if not PYTHON.exists():
        raise UsageError("there is no vLLM; run scripts/setup_vllm")
    count, rounds = options.requests, options.rounds
    drawn = {
        (number, load, compared): requests_of(load, count, 10 * number + compared)
        for number in range(rounds)
        for load in LOADS_RPS
        for compared in (0, 1)
    }
    progress(f"{2 * len(LOADS_RPS) * rounds} runs of {count} requests on vLLM")
    warm_up = requests_of(LOADS_RPS[0], 8, 1000)
    found = dict(zip(drawn, served([warm_up, *drawn.values()], options.clock)[1:], strict=True))
    models = [MeasuredSteps(steps_in(found, number, 0)) for number in range(rounds)]
    if options.steps:
        write_steps(Path(options.steps), steps_in(found, 0, 0))
    rows, figures = [], {}
    for load in LOADS_RPS:
        keys = [(number, load, 1) for number in range(rounds)]
        real = [measured_figures(drawn[key], found[key]) for key in keys]
        made = [simulated_figures(drawn[key], models[key[0]]) for key in keys]
        figures[f"{load:g}"] = {"vllm": real, "simulated": made}
        for name, what in COMPARED.items():
            ours, theirs = (statistics.fmean(each[name] for each in one) for one in (made, real))
            errors = [100 * (b[name] / a[name] - 1) for a, b in zip(real, made, strict=True) if a[name]]
            error = f"{statistics.fmean(errors):+.1f} % ({min(errors):+.1f} to {max(errors):+.1f})" if errors else "-"
            rows.append(f"{load:g} | {what} | {theirs:.3g} | {ours:.3g} | {error}")
    head = "requests/s that come | what | vLLM | simulated | error, mean of rounds (least to greatest)"
    fits = [
        {"steps": model.rows, "mean_error": model.mean_error, **held_out(model, steps_in(found, number, 1))}
        for number, model in enumerate(models)
    ]
    worst = max(
        abs(b[name] / a[name] - 1)
        for each in figures.values()
        for a, b in zip(each["vllm"], each["simulated"], strict=True)
        for name in ("ttft_ms", "tpot_ms", "throughput_rps")
    )
    text = table(head, rows)
    kinds = {"measured": ("steps", "mean_error"), "compared": ("compared_steps", "compared_mean_error")}
    said = [
        f"{sum(each[count] for each in fits):,} {kind} steps, whose mean error is "
        f"{100 * statistics.fmean(each[error] for each in fits):.0f} %"
        for kind, (count, error) in kinds.items()
    ]
    text += f"\n\n{'; '.join(said)}"
    text += f"\nlargest error of a mean time or rate in one run: {100 * worst:.1f} %"
    return Report({"loads": figures, "fits": fits, "worst": worst}, text)


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=3, requests=60)
    parser.add_argument("--clock", choices=CLOCKS, default=CLOCKS[0], help="default: cpu")
    parser.add_argument("--steps", metavar="FILE", help="also write the measured steps to this CSV file")
    main(parser, run)
