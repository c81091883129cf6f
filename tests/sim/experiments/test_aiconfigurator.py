"""Test the study of measured servers: the closed loop by hand, the rows of the file, and the published errors."""

import csv
import random
from pathlib import Path

import pytest
from progress_counter import Counter

from headrace.batching.errors import UsageError
from headrace.sim.decoding.architecture import named
from headrace.sim.decoding.latency import StepLatency
from headrace.sim.experiments.aiconfigurator.closed_loop import ClosedLoop, Load, Times
from headrace.sim.experiments.aiconfigurator.rows import Errors, Predicted
from headrace.sim.experiments.aiconfigurator.runs import (
    EXPERIMENT,
    Scale,
    by_class,
    by_server,
    jobs_for,
    run_job,
    samples,
)
from headrace.sim.experiments.aiconfigurator.samples import DYNAMO, INFERENCEMAX, Setting, setting_of
from headrace.sim.experiments.reproduce import reproduce

RESULTS = Path(__file__).parents[3] / "sim" / "experiments" / "aiconfigurator" / "results"


def steps_of(taken):
    """Return the latency of steps that take a second each, and keep what they have in `taken`."""

    def seconds(prefill, requests, context):
        taken.append((list(prefill), requests, context))
        return 1.0

    return seconds


def loop(backend, load, budget, kv_tokens=1000):
    taken = []
    return ClosedLoop(steps_of(taken), backend, load, budget, kv_tokens).run(), taken


# The closed loop, by hand


def test_prompts_of_one_step_have_their_first_token_together():
    times, taken = loop("trtllm", Load(2, 4, 3, rounds=2), budget=8)
    assert times == Times(1, 1)
    assert taken[0] == ([(4, 0), (4, 0)], 0, 0)
    assert taken[1] == ([], 2, 10)  # two prompts with a token each


def test_a_step_of_tensorrt_llm_takes_whole_prompts_and_all_decoding_requests():
    """A starts at 0 and B at 1. Both decode while the other's prompt runs."""
    times, taken = loop("trtllm", Load(2, 4, 3, rounds=1), budget=4)
    assert taken[:3] == [([(4, 0)], 0, 0), ([(4, 0)], 1, 5), ([], 2, 11)]
    assert times == Times((1 + 2) / 2, 1)


def test_sglang_prefers_prompts_to_decoding_requests():
    """A has its first token at 1, waits while B's prompt runs until 2, and ends at 4, as B does."""
    times, taken = loop("sglang", Load(2, 4, 3, rounds=1), budget=4)
    assert taken[:2] == [([(4, 0)], 0, 0), ([(4, 0)], 0, 0)]
    assert times == Times((1 + 2) / 2, (1.5 + 1) / 2)


def test_vllm_fills_what_decoding_requests_leave_with_chunks():
    times, taken = loop("vllm", Load(2, 6, 2, rounds=1), budget=4)
    assert [step[:2] for step in taken] == [
        ([(4, 0)], 0),
        ([(2, 4), (2, 0)], 0),
        ([(3, 2)], 1),
        ([(1, 5)], 0),
        ([], 1),
    ]
    assert times == Times((2 + 4) / 2, 1)


def test_a_request_waits_until_the_cache_has_room_for_all_its_tokens():
    times, taken = loop("trtllm", Load(2, 4, 3, rounds=1), budget=100, kv_tokens=13)
    assert all(requests <= 1 for _, requests, _ in taken)
    assert times == Times((1 + 4) / 2, 1)


def test_a_request_that_never_fits_is_refused():
    with pytest.raises(UsageError, match="a request has 7 tokens, and the KV cache holds 6; choose more GPUs"):
        loop("trtllm", Load(1, 4, 3), budget=8, kv_tokens=6)


def test_cached_prompts_have_one_token_to_compute():
    _, taken = loop("vllm", Load(1, 6, 2, rounds=1, cached=True), budget=4)
    assert taken == [([(1, 5)], 0, 0), ([], 1, 7)]


def test_first_outputs_that_are_cut_do_not_count():
    times, taken = loop("trtllm", Load(4, 4, 100, rounds=3, spread=True), budget=100)
    assert times.ttft_s <= 2
    assert len({step for step, (prefill, _, _) in enumerate(taken) if prefill}) > 4  # not in rounds


@pytest.mark.parametrize("backend", ["trtllm", "sglang", "vllm"])
def test_a_jump_over_steps_takes_what_the_steps_take_one_by_one(backend):
    steps = StepLatency(named("llama-3.1-8b"), "h100", "trtllm")
    times = ClosedLoop(steps.seconds, backend, Load(4, 500, 3000, rounds=1), 8192, steps.kv_tokens()).run()
    alone = [steps.seconds([], 4, 4 * (501 + step)) for step in range(2999)]
    assert times.ttft_s == pytest.approx(steps.seconds([(500, 0)] * 4, 0, 0))
    assert times.tpot_s == pytest.approx(sum(alone) / 2999, rel=2e-3)


def test_lengths_are_those_of_the_seed_and_between_their_ends():
    one, same, other = (list(Load(8, 1000, 500, 0.8, seed=seed).lengths()) for seed in (1, 1, 2))
    assert one == same != other
    assert all(800 <= prompt <= 1000 and 400 <= output <= 500 for prompt, output in one)
    assert len(one) == 80


# The rows of the file


def test_every_row_of_the_file_is_predicted_or_left_out_for_a_reason():
    found = samples()
    assert len(found.rows) + sum(found.left_out.values()) == 5221
    assert len(set(found.rows)) == len(found.rows)


def test_settings_come_from_checkpoints_and_scripts():
    def of(**wanted):
        return {
            setting_of(row)
            for row in samples().rows
            if all(getattr(row, name) == value for name, value in wanted.items())
        }

    assert of(backend="trtllm", model="llama-3.1-70b", gpu="h200") == {Setting("fp8_static", None, "fp8", 16384, 0.8)}
    assert of(backend="trtllm", model="llama-3.1-8b") == {Setting("bf16", None, "bf16", 8192, 1.0)}
    assert of(backend="vllm", model="gpt-oss-120b", gpu="h100") == {Setting("bf16", "mxfp4", "bf16", 8192, 0.8)}
    assert of(model="qwen3-235b-a22b") == {Setting("fp8_block", None, "bf16", 8192, 1.0)}
    assert {row.source for row in samples().rows if row.model == "minimax-m2.5"} == {INFERENCEMAX}
    assert {row.gpu for row in samples().rows if row.source == DYNAMO} == {"h100", "b200", "gb200"}


# The published errors


def published(name):
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def as_text(row):
    return {name: str(getattr(row, name)) for name in Errors.__dataclass_fields__}


def recomputed(jobs):
    return by_class([row for job in jobs for row in run_job(job) if isinstance(row, Predicted)])


def close(found, kept):
    assert {name: found[name] for name in ("backend", "model", "gpu", "precision", "source", "rows")} == {
        name: kept[name] for name in ("backend", "model", "gpu", "precision", "source", "rows")
    }
    for name in ("tpot", "ratio", "p10", "p90", "ttft"):
        assert float(found[name]) == pytest.approx(float(kept[name]), rel=1e-6)


def test_a_class_has_its_published_errors_and_llama_70b_is_met_within_six_percent():
    wanted = ("trtllm", "llama-3.1-70b", "h200")
    (job,) = (job for job in jobs_for("classes", Scale()) if (job.backend, job.model, job.gpu) == wanted)
    (found,) = recomputed([job])
    (kept,) = (row for row in published("classes") if (row["backend"], row["model"], row["gpu"]) == wanted)
    close(as_text(found), kept)
    assert found.rows == 72
    assert found.tpot < 0.06


def test_the_published_mean_over_tensorrt_llm_is_near_ten_percent_and_failures_stand_beside_it():
    of = {(row["backend"], row["source"]): float(row["tpot"]) for row in published("servers")}
    assert of["trtllm", "all but Dynamo"] < 0.101
    assert of["trtllm", "all"] < 0.12
    assert of["sglang", "all"] > 0.15
    assert of["vllm", "all"] > 0.3
    classes = published("classes")
    assert sum(int(row["rows"]) + int(row["failed"]) for row in classes) == len(samples().rows)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_classes_have_their_published_errors():
    seed = random.SystemRandom().randrange(10**9)
    jobs = [job for job in jobs_for("classes", Scale()) if job.source]
    chosen = random.Random(seed).sample(jobs, 8)
    print(f"seed {seed}")
    kept = {
        (row["backend"], row["model"], row["gpu"], row["precision"], row["source"]): row for row in published("classes")
    }
    for found in recomputed(chosen):
        close(as_text(found), kept[found.backend, found.model, found.gpu, found.precision, found.source])


@pytest.mark.slow
def test_few_rows_of_each_class_give_all_tables(tmp_path):
    report = reproduce(EXPERIMENT, out=tmp_path, scale="quick", progress=Counter())
    assert {row.backend for row in report.rows["classes"]} == {"trtllm", "sglang", "vllm"}
    assert len(report.rows["causes"]) == len(published("causes"))
    assert [row.source for row in by_server(report.rows["predicted"])] == [
        row["source"] for row in published("servers")
    ]
    text = (tmp_path / "tables.md").read_text()
    assert all(f"## {title}" in text for title in ("By server", "By class", "Left out", "With one change"))
    assert (tmp_path / "classes.png").read_bytes()[:4] == b"\x89PNG"
