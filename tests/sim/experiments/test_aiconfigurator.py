"""Test the study of measured servers: loads and rules of servers, the rows of the file, and the published errors."""

import csv
import random
from dataclasses import replace
from pathlib import Path

import pytest
from progress_counter import Counter

from headrace.batching.steps.cellular import CellularSteps
from headrace.batching.steps.continuous import Continuous
from headrace.batching.steps.prefill_first import PrefillFirst
from headrace.sim.decoding.architecture import named
from headrace.sim.decoding.latency import HOST_REQUEST_S, StepLatency
from headrace.sim.experiments.aiconfigurator.host_time import GRID_US, folds, stable
from headrace.sim.experiments.aiconfigurator.rows import Errors, Predicted
from headrace.sim.experiments.aiconfigurator.runs import (
    EXPERIMENT,
    ROUNDS,
    CachedPrompts,
    Scale,
    by_class,
    by_server,
    errors,
    jobs_for,
    predicted,
    requests_of,
    run_job,
    samples,
)
from headrace.sim.experiments.aiconfigurator.samples import DYNAMO, INFERENCEMAX, Setting, policy_of, setting_of
from headrace.sim.experiments.reproduce import reproduce

RESULTS = Path(__file__).parents[3] / "sim" / "experiments" / "aiconfigurator" / "results"


# The loads and the rules of servers


def sample_of(backend, model="llama-3.1-8b", **wanted):
    return next(
        row
        for row in samples().rows
        if (row.backend, row.model) == (backend, model)
        and all(getattr(row, name) == value for name, value in wanted.items())
    )


def test_lengths_are_those_of_the_seed_and_between_their_ends():
    sample = sample_of("trtllm", "llama-3.1-70b", source=INFERENCEMAX)
    setting = setting_of(sample)
    one, same = (list(requests_of(sample, setting)) for _ in range(2))
    lengths = [(request.prompt_tokens, request.output_len) for request in one]
    assert lengths == [(request.prompt_tokens, request.output_len) for request in same]
    assert all(int(0.8 * sample.prompt) <= prompt <= sample.prompt for prompt, _ in lengths)
    assert all(int(0.8 * sample.output) <= output <= sample.output for _, output in lengths)
    assert len(one) == ROUNDS * sample.requests
    assert {request.arrival for request in one} == {0.0}


def test_each_server_has_its_own_rule():
    row = sample_of("trtllm", "gpt-oss-120b", source=INFERENCEMAX)
    assert policy_of(row) == CellularSteps(20000, row.requests, reserved_output=1.0)
    row = sample_of("trtllm")
    assert policy_of(row) == CellularSteps(8192, row.requests, reserved_output=1.0)
    row = sample_of("vllm")
    assert policy_of(row) == Continuous(8192, row.requests)
    row = sample_of("sglang", prompt=2000)
    assert policy_of(row) == PrefillFirst(8192, row.requests, 3500, mixed_chunk=True)  # SGLang 0.5.6
    row = sample_of("sglang", "qwen3-32b", prompt=1024, tp=2)
    assert policy_of(row) == PrefillFirst(8192, row.requests, 2524, mixed_chunk=False)  # SGLang 0.5.1


@pytest.mark.parametrize("backend", ["trtllm", "sglang"])
def test_users_of_equal_requests_decode_for_as_long_as_their_steps(backend):
    """All prompts fit into one step, so all users decode together, and nothing waits."""
    sample = sample_of(backend, "qwen3-32b", prompt=1024, output=512, tp=2)
    few = replace(sample, requests=2)
    products = setting_of(few).products
    steps = StepLatency(named("qwen3-32b"), few.gpu, backend, tp=2, products=products, host_request_s=0.0)
    found = predicted(few)
    alone = [steps.seconds([], 2, 2 * (1025 + step)) for step in range(511)]
    assert found.predicted_ttft_ms == pytest.approx(1e3 * steps.seconds([(1024, 0)] * 2, 0, 0))
    assert found.predicted_tpot_ms == pytest.approx(1e3 * sum(alone) / 511)


def test_cached_prompts_take_the_time_of_their_last_token():
    steps = StepLatency(named("llama-3.1-8b"), "h100", "vllm")
    cached = CachedPrompts(steps)
    assert cached.seconds([(500, 0), (20, 480)], 3, 900) == steps.seconds([(1, 499), (1, 499)], 3, 900)


def test_a_row_whose_requests_do_not_fit_says_so():
    found = predicted(replace(sample_of("trtllm"), prompt=10**7))
    assert "the KV cache holds" in found.failure and found.predicted_tpot_ms == 0


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

    assert of(backend="trtllm", model="llama-3.1-70b", gpu="h200") == {Setting("fp8_static", None, "fp8", 0.8)}
    assert of(backend="trtllm", model="llama-3.1-8b") == {Setting("bf16", None, "bf16", 1.0)}
    assert of(backend="vllm", model="gpt-oss-120b", gpu="h100") == {Setting("bf16", "mxfp4", "bf16", 0.8)}
    assert of(model="qwen3-235b-a22b") == {Setting("fp8_block", None, "bf16", 1.0)}
    assert {row.source for row in samples().rows if row.model == "minimax-m2.5"} == {INFERENCEMAX}
    assert {row.gpu for row in samples().rows if row.source == DYNAMO} == {"h100", "b200", "gb200"}


# The host's time


def row_of(model, gpu, host_us, ratio, failure=""):
    return Predicted(
        "NVIDIA", "sglang", model, gpu, "bf16", 1, 2, 1, 1, 1, 1.0, 1.0, 1.0, ratio, failure, "", float(host_us)
    )


def rows_whose_best_is(best, gpu="h100"):
    """Return a row of each model with each time of the grid: the error is least at the model's own time."""
    return [row_of(model, gpu, us, 1 + abs(us - own) / 100) for model, own in best.items() for us in GRID_US]


def test_a_time_is_chosen_on_all_models_but_the_one_that_is_held_out():
    found = folds(rows_whose_best_is({"a": 10.0, "b": 10.0, "c": 30.0}))
    assert [(fold.rotation, fold.held_out, fold.chosen_us) for fold in found[:2]] == [
        ("model", "a", 10.0),  # of b and c, all times from 10 to 30 are equal, and the smallest counts
        ("model", "b", 10.0),
    ]
    assert found[2].held_out == "c" and found[2].chosen_us == 10.0
    assert [row.host_request_us for row in found[2].held] == [10.0]
    assert found[2].held[0].tpot_ratio == pytest.approx(1.2)
    assert len(found) == 3  # one GPU alone has no rotation


def test_held_out_rows_have_no_say_and_neither_have_failures():
    rows = rows_whose_best_is({"a": 20.0, "b": 20.0})
    far = [replace(row, predicted_tpot_ms=9.0 + row.host_request_us) if row.model == "a" else row for row in rows]
    failed = [row_of("b", "h100", us, 0.0, "no table") for us in GRID_US]
    assert folds([*far, *failed])[0].chosen_us == folds(rows)[0].chosen_us == 20.0
    by_gpu = folds([*rows_whose_best_is({"a": 5.0}), *rows_whose_best_is({"a": 25.0}, "h200")])
    assert [(fold.rotation, fold.held_out, fold.chosen_us) for fold in by_gpu] == [
        ("GPU", "h100", 25.0),
        ("GPU", "h200", 5.0),
    ]


@pytest.mark.parametrize(
    ("numbers", "agree"),
    [((15.0, 20.0), True), ((10.0, 20.0), True), ((10.0, 25.0), False), ((0.0, 0.0), False), ((35.0, 40.0), False)],
)
def test_times_agree_within_a_factor_of_two_and_inside_the_grid(numbers, agree):
    assert stable(numbers) is agree


def test_the_time_of_sglang_is_the_one_that_its_rows_choose_and_other_servers_have_none():
    of = {(row["rotation"], row["held_out"]): row for row in published("held_out") if row["backend"] == "sglang"}
    assert {row["stable"] for row in of.values()} == {"True"}
    assert float(of["model", "all"]["tpot"]) < 0.1 and float(of["GPU", "all"]["tpot"]) < 0.1
    assert float(of["model", "qwen3-235b-a22b"]["tpot"]) > 0.18  # stands beside the means
    assert {row["stable"] for row in published("held_out") if row["backend"] == "trtllm"} == {"False"}
    grid = {
        float(row["host_request_us"]): float(row["tpot"]) for row in published("grid") if row["backend"] == "sglang"
    }
    assert {"sglang": min(grid, key=grid.get) / 1e6} == HOST_REQUEST_S


def test_a_held_out_model_has_its_published_errors():
    (kept,) = (
        row for row in published("held_out") if row["held_out"] == "qwen3-235b-a22b" and row["backend"] == "sglang"
    )
    rows = [row for row in samples().rows if (row.backend, row.model) == ("sglang", "qwen3-235b-a22b")]
    held = errors([predicted(row, host_request_us=float(kept["chosen_us"])) for row in rows])
    assert held.rows == int(kept["rows"]) and held.failed == 0
    for name in ("tpot", "ratio", "p10", "p90"):
        assert getattr(held, name) == pytest.approx(float(kept[name]), rel=1e-6)


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
    assert 0.13 < of["sglang", "all"] < 0.14
    assert of["vllm", "all"] > 0.3
    by_rate = {row["cause"]: float(row["tpot"]) for row in published("rates") if row["backend"] == "sglang"}
    assert by_rate["0 to 5,000"] < 0.105 < 0.3 < by_rate["12,000 and more"]
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
    titles = ("By server", "By class", "Left out", "With one change", "Held out", "By time of the host")
    assert all(f"## {title}" in text for title in titles)
    assert (tmp_path / "classes.png").read_bytes()[:4] == b"\x89PNG"
