"""`headrace plan --tune`: what it prints and writes, and that its commands do what it says."""

import json
import shlex
from pathlib import Path

import cv2
import pytest
from command import headrace, headrace_here

from headrace.batching import Profile, ProfilePoint
from headrace.host.cli.plan.tuning import serve_command
from headrace.sim.planner.tuning import Setting
from headrace.sim.scenario import Scenario

TUNE = ("plan", "--model", "net", "--accelerator", "profile", "--profile", "net.json", "--rate-rps", "60")


@pytest.fixture(scope="module", autouse=True)
def in_a_folder_with_a_profile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    points = [ProfilePoint(batch, 0.02 + 0.005 * batch, batch / (0.02 + 0.005 * batch)) for batch in (1, 2, 4, 8, 16)]
    (folder / "net.json").write_text(Profile("net", 1, tuple(points)).to_json())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def tuned():
    done = headrace(*TUNE, "--slo-ms", "250", "--tune", "graph,preba", "--out", "tuned", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_best_and_the_other_policies_are_told_beside_their_defaults(tuned):
    plans = [tuned["best"], *tuned["runners_up"]]
    assert {plan["policy"] for plan in plans} == {"graph", "preba"}
    for plan in plans:
        usual = plan["defaults"]
        assert plan["quantile_ms"] == plan["latency_ms"]["p99"] <= 1.01 * usual["quantile_ms"]
        assert plan["most_rps"] > 60 and usual["most_rps"] > 60
    graph = next(plan for plan in plans if plan["policy"] == "graph")
    assert {"window_ms", "max_batch"} <= set(graph) and graph["defaults"]["window_ms"] == 5.0
    confirmed = tuned["best"]["confirmed_ms"]
    assert confirmed["low"] <= confirmed["mean"] <= confirmed["high"] <= 250


def test_the_commands_simulate_what_is_told_and_serve_it(tuned):
    for plan in (tuned["best"], *tuned["runners_up"]):
        command, *words = shlex.split(plan["simulate"])
        done = headrace_here(*words, "--json")
        assert command == "headrace" and done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["latency_ms"] == plan["latency_ms"]
    graph = next(plan for plan in (tuned["best"], *tuned["runners_up"]) if plan["policy"] == "graph")
    words = shlex.split(graph["serve"])
    assert words[:2] == ["headrace", "serve"]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given == {
        "--model": "net",
        "--profile": "net.json",
        "--workers": "1",
        "--policy": "graph",
        "--slo-ms": "250",
        "--set": f"window_ms={graph['window_ms']:g}",
        "--max-batch": f"{graph['max_batch']:g}",
    }


def test_the_picture_shows_every_parameter_and_the_file_says_the_same(tuned):
    assert cv2.imread("tuned/plan.png").std() > 10
    with open("tuned/plan.json") as file:
        assert json.load(file) == tuned


def test_in_words_it_says_what_tuning_brings():
    done = headrace(*TUNE, "--slo-ms", "250", "--tune", "static")
    assert done.returncode == 0, done.stderr
    for words in (
        "best",
        "defaults: ms",
        "static (max_batch 4)",
        "95 % interval",
        "a margin of",
        "\nheadrace simulate",
    ):
        assert words in done.stdout
    assert "\nheadrace serve --model net --profile net.json --workers 1 --policy static" in done.stdout


def test_what_no_server_here_can_do_has_no_command_to_serve_it():
    done = headrace("plan", "--tune", "serial", "--model", "resnet50", "--rate-rps", "100", "--slo-ms", "50", "--json")
    best = json.loads(done.stdout)["best"]
    assert best["serve"] is None and "headrace profile" in best["serve_note"]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "load",
    [("--rate-rps", "30", "--traffic", "mmpp", "--burst-s", "2"), ("--replay", "trace.csv")],
    ids=lambda load: load[0],
)
def test_bursts_and_traces_are_tuned_for_and_simulated_again(load):
    rows = "".join(f"{0.025 * number},net,1,1\n" for number in range(1000))
    Path("trace.csv").write_text("arrival_s,model,input_len,output_len\n" + rows)
    done = headrace(*TUNE[:-2], *load, "--slo-ms", "250", "--tune", "work-conserving", "--json")
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)["best"]
    done = headrace_here(*shlex.split(best["simulate"])[1:], "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["latency_ms"] == best["latency_ms"]


def test_what_was_searched_in_vain_is_a_failure_of_the_run():
    done = headrace(*TUNE, "--slo-ms", "40", "--tune", "graph")
    assert done.returncode == 1 and done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("headrace: no parameters found that hold 40 ms") and "the SLO binds" in last


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        (("--gpu", "h100", "--tune", "graph"), "--gpu is for planning a server"),
        (("--budget-usd", "1", "--tune", "graph"), "--budget-usd is for planning a server"),
        ((), "--accelerator is for --tune"),
        (("--tune", "cellular"), "serves cells"),
        (("--tune", "graph", "--corpus", "net.json", "--lengths", "5"), "give one of them"),
    ],
)
def test_options_that_do_not_go_together(options, wording):
    done = headrace_here(*TUNE, "--slo-ms", "250", *options)
    assert done.returncode == 2 and wording in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_plan_without_a_gpu_or_policies_to_tune_says_what_to_give():
    done = headrace_here("plan", "--model", "resnet50", "--rate-rps", "60", "--slo-ms", "250")
    assert done.returncode == 2 and "--gpu" in done.stderr and "--tune" in done.stderr


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("preba", (("bucket_s", 5.0), ("bucket_width", 20), ("merge_buckets", False), ("knee_growth", 1.2))),
        ("graph", (("window_ms", 2.5), ("max_batch", 7))),
        ("lazy", (("defer_late", True),)),
    ],
)
def test_serve_takes_every_parameter_that_is_told_to_it(policy, parameters, tmp_path, served):
    profile = tmp_path / "net.json"
    profile.write_text(Path("net.json").read_text())
    scenario = Scenario.of(model="net", accelerator="profile", profile=str(profile))
    command, note = serve_command(Setting(policy, parameters, scenario))
    assert note is None
    (own,) = served(*shlex.split(command)[2:])
    assert own.policy == policy and {name: getattr(own.chosen, name) for name, _ in parameters} == dict(parameters)
