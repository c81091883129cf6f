"""`headrace plan`: what it prints and writes, and that what it predicts is what `headrace simulate` gives."""

import json
import shlex

import cv2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from command import headrace, headrace_here
from few_slices import few_slices

from headrace.host.cli.console import Stages
from headrace.host.cli.main import app
from headrace.host.cli.plan.search import draw
from headrace.sim.machine import max_batch_of
from headrace.sim.planner import commands
from headrace.sim.planner.target import Candidate, Hardware, Target
from headrace.sim.scenario import Scenario

# Alone on less than all of the GPU, or prepared on the CPU, a request takes longer: what is left is quickly simulated.
VGG16 = ("plan", "--model", "vgg16", "--gpu", "a100-40gb", "--slo-ms", "2.5", "--slo-quantile", "0.9")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("planned")


def plan(folder, *options):
    with few_slices():
        return headrace_here(*VGG16, "--rate-rps", "60", "--out", folder, *options)


@pytest.fixture(scope="module")
def planned(folder):
    done = plan(folder, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_best_and_those_behind_it_are_told_as_simulate_takes_them(planned):
    body = planned
    assert body["runners_up"]
    for plan in (body["best"], *body["runners_up"]):
        assert {"partition", "preprocess", "policy", "latency_ms", "cost_usd", "power_w", "binds"} <= set(plan)
    prices = [plan["cost_usd"] for plan in (body["best"], *body["runners_up"])]
    assert prices == sorted(prices)
    confirmed = body["best"]["confirmed_ms"]
    assert confirmed["low"] <= confirmed["mean"] <= confirmed["high"] <= 2.5


def test_the_command_of_a_plan_gives_the_latency_that_it_predicts(planned):
    body = planned
    for plan in (body["best"], body["runners_up"][-1]):
        command, *words = shlex.split(plan["simulate"])
        assert command == "headrace"
        done = headrace_here(*words, "--json")
        assert done.returncode == 0 and not json.loads(done.stdout)["warnings"], done.stderr
        result = json.loads(done.stdout)
        assert result["latency_ms"] == plan["latency_ms"]
        assert result["power_w"]["total"] == pytest.approx(plan["power_w"])
        assert sum(result["cost"][part] for part in ("capex_usd", "opex_usd")) == pytest.approx(plan["cost_usd"])
        assert plan["gpus"] == 1


def test_cost_by_rate_and_its_plot_are_written(planned, folder):
    assert json.loads((folder / "plan.json").read_text()) == planned
    rates = [point["rate_rps"] for point in planned["by_rate"]]
    assert rates == sorted(rates) and 60 in rates and len(rates) > 1
    assert cv2.imread(str(folder / "plan.png")).std() > 10


@pytest.mark.parametrize(
    ("model", "preprocess", "policy"),
    [
        ("resnet50", "cpu:32", dict(policy="graph", window_ms=12.5, max_batch=16)),
        ("mobilenet_v3_small", "dpu:4", dict(policy="smdp", max_batch=32)),
        ("conformer", "cpu:64", dict(policy="preba-lazy", bucket_s=5.0)),
        ("conformer_small,citrinet", "dpu:2", dict(policy="preba")),
        ("swin_t,vgg16", "cpu:32", dict(policy="lazy", max_batch=4)),
    ],
)
def test_serve_takes_the_command_of_a_plan(model, preprocess, policy, served):
    scenario = Scenario.of(
        model=model, accelerator="a100-40gb", partition="3g.20gb:2", preprocess=preprocess, slo_ms=50, **policy
    )
    command, note = commands.serve(scenario)
    program, name, *words = shlex.split(command)
    assert (program, name) == ("headrace", "serve") and (note is not None) == preprocess.startswith("dpu")
    serve = typer.main.get_command(app).get_command(None, "serve")
    given = serve.make_context("serve", [*words]).params  # it takes words away
    kinds = {"dpu:4": {"image_cus": 4}, "dpu:2": {"mel_cus": 2, "norm_cus": 2}}.get(preprocess, {})
    assert {name: given[name] for name in kinds} == kinds
    settings = served(*words)
    assert len(settings) == len(model.split(","))
    for own in settings:
        assert (own.policy, own.workers, own.slo_ms) == (policy["policy"], "2", 50.0)
        assert own.max_batch == max_batch_of(scenario) and own.preprocess == ("dpu" if kinds else "cpu")
        for name in {"window_ms", "bucket_s"} & policy.keys():
            assert getattr(own.chosen, name) == policy[name]


def test_what_serve_has_not_is_said():
    scenario = Scenario.of(model="resnet50", accelerator="a100-40gb", partition="7g.40gb:1", preprocess="nvjpg")
    command, note = commands.serve(scenario)
    assert command is None and "nvjpg" in note


def test_the_gpu_is_cut_largest_instances_first():
    scenario = Scenario.of(model="resnet50", accelerator="a100-40gb", partition="1g.5gb:2,1g.10gb:1,3g.20gb:1")
    assert commands.mig(scenario) == "nvidia-smi mig -cgi 3g.20gb,1g.10gb,1g.5gb,1g.5gb -C"


def test_cost_by_rate_is_drawn(tmp_path):
    target = Target("resnet50", 1000, 50, "a100-40gb")
    one, two = (Candidate(Hardware(servers, "7g.40gb:1", "cpu:32"), "preba") for servers in (1, 2))
    draw(tmp_path / "plan.png", target, [(500, one, 1.4e4, 300), (1000, one, 1.5e4, 310), (2000, two, 3e4, 600)])
    assert cv2.imread(str(tmp_path / "plan.png")).std() > 10


@pytest.mark.slow
def test_a_second_start_with_the_same_folder_goes_on_from_what_was_simulated(planned, folder, monkeypatch):
    trials = folder / "trials.parquet"
    rows = pq.read_table(trials)
    left = rows.filter(pa.array([number % 4 != 0 for number in range(len(rows))]))
    pq.write_table(left.replace_schema_metadata(), trials)  # as other programs write it, without the digest of all rows
    skipped, skip = [], Stages.skip
    monkeypatch.setattr(Stages, "skip", lambda self, count: (skipped.append(count), skip(self, count)))
    done = plan(folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == planned
    assert f"{len(left)} simulations are in" in " ".join(done.stderr.split())
    assert sum(skipped) >= len(left), "the time left is that of the others"
    again = pq.read_table(trials)
    assert sorted(again["record"].to_pylist()) == sorted(rows["record"].to_pylist())  # each run once


def test_in_words_it_says_the_winner_its_margin_and_the_command(planned, folder):
    done = plan(folder)
    assert done.returncode == 0
    for words in (
        "best",
        "95 % interval",
        "a margin of",
        "Use of each part: ",
        "a tenth more",
        "\nheadrace simulate --model vgg16",
        "\nnvidia-smi mig -cgi 7g.40gb -C",
        "\nthere is no command that serves it: headrace serve has no nvjpg",
    ):
        assert words in done.stdout
    assert "requests" in done.stderr  # progress


def test_a_plan_with_a_processor_is_simulated_and_served_with_it(served):
    with few_slices():
        done = headrace_here(*VGG16, "--rate-rps", "20", "--processor", "clip-vit-base-patch32", "--json")
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)["best"]
    simulated = headrace_here(*shlex.split(best["simulate"])[1:], "--json")
    assert json.loads(simulated.stdout)["latency_ms"] == best["latency_ms"]
    assert "--processor clip-vit-base-patch32" in best["simulate"]
    (settings,) = served(*shlex.split(best["serve"])[2:])
    assert settings.processor == "clip-vit-base-patch32"


def test_what_was_searched_in_vain_is_a_failure_of_the_run():
    done = headrace(*VGG16, "--rate-rps", "400")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("headrace: no plan found for 400/s within 2.5 ms: ")
