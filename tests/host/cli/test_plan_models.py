"""`headrace plan` of several models: what it tells, and what it refuses."""

import json
import shlex

import cv2
import pytest
from command import headrace_here
from few_slices import few_slices

MODELS = (
    "plan",
    "--model",
    "bert_base,swin_t",
    "--rate-rps",
    "60,40",
    "--slo-ms",
    "60,150",
    "--gpu",
    "h200",
    "--slo-quantile",
    "0.9",
)


TWO = (
    "plan",
    "--model",
    "swin_t,resnet50",
    "--rate-rps",
    "700,500",
    "--slo-ms",
    "40,60",
    "--gpu",
    "a100-40gb",
    "--slo-quantile",
    "0.9",
)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Its folder, in which trials.parquet makes a second start short, and what it told."""
    folder = tmp_path_factory.mktemp("plan")
    with few_slices():
        done = headrace_here(*TWO, "--json", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.slow
def test_pieces_are_told_by_model_with_their_commands(planned):
    _, body = planned
    own = [each for each in (body["best"], *body["runners_up"]) if each["slices"] == "own"]
    assert own and {each["slices"] for each in (body["best"], *body["runners_up"])} == {"own", "shared"}
    for placement in own:
        assert set(placement["models"]) == {"swin_t", "resnet50"}
        assert len(placement["partition"]) == placement["gpus"] == len(placement["servers"]) == 1
        for model, rate in (("swin_t", 700), ("resnet50", 500)):
            pieces = placement["models"][model]
            assert sum(piece["rate_rps"] for piece in pieces) == pytest.approx(rate)
            assert all(piece["confirmed_ms"]["high"] <= piece["slo_ms"] for piece in pieces)
            for piece in pieces:
                assert piece["serve"].startswith(f"headrace serve --model {model} ") or "nvjpg" in piece["serve_note"]
    prices = [each["cost_usd"] for each in (body["best"], *body["runners_up"])]
    assert prices[0] == min(prices) and body["best"]["power_w"] > 0


def test_the_command_of_a_piece_gives_the_latency_that_is_told(planned):
    _, body = planned
    own = next(each for each in (body["best"], *body["runners_up"]) if each["slices"] == "own")
    for (piece,) in own["models"].values():
        done = headrace_here(*shlex.split(piece["simulate"])[1:], "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["latency_ms"] == piece["latency_ms"]


def test_how_far_rates_may_grow_is_told(planned):
    _, body = planned
    own = next(each for each in (body["best"], *body["runners_up"]) if each["slices"] == "own")
    room = own["headroom"]
    pieces = [piece for of in own["models"].values() for piece in of]
    assert 1 < room["factor"] == pytest.approx(min(piece["most_rps"] / piece["rate_rps"] for piece in pieces))
    assert room["part"] == "slices" and own["binds"] in {piece["binds"] for piece in own["models"][room["model"]]}


def test_servers_are_drawn(planned):
    folder, body = planned
    assert json.loads((folder / "plan.json").read_text()) == body
    assert cv2.imread(str(folder / "plan.png")).std() > 10


def test_in_words_it_tells_both_ways_and_the_commands(planned):
    folder, body = planned
    with few_slices():
        done = headrace_here(*TWO, "--out", folder)
    assert done.returncode == 0
    told = " ".join(done.stdout.split())
    for words in (
        "On the same slices all rates may grow",
        "All models on all slices: 1 x",
        "With every rate a tenth higher",
        "nvidia-smi mig -cgi ",
        "headrace serve --model ",
    ):
        assert words in told
    best = body["best"]
    pieces = [piece for of in best["models"].values() for piece in of] if best["slices"] == "own" else [best]
    assert all(piece["simulate"] in told for piece in pieces)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rate-rps", "60,x"), "--rate-rps 60,x: give a number above 0, or one for each of --model bert_base,swin_t"),
        (("--rate-rps", "1,2,3"), "--rate-rps 1,2,3: give a number above 0, or one for each of"),
        (("--slo-ms", "1,2,3"), "--slo-ms 1,2,3: give a number above 0, or one for each of"),
        (("--rate-rps", "0,5"), "--rate-rps 0,5: give a number above 0"),
        (
            ("--model", "swin_t", "--slo-ms", "60", "--rate-rps", "100,5"),
            "--rate-rps 100,5: give a number above 0; there is one model, so one number",
        ),
        (("--slo-ms", "60,0.01"), "--slo-ms 0.01 of swin_t: no slice of h200 holds a rate within it; a request alone"),
        (
            ("--model", "swin_t,bert_large", "--gpu", "a100-40gb", "--lengths", "999999"),
            "--model bert_large on a100-40gb: bert_large takes 108.7 GiB at batch 1, more than the 38.0 GiB of",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused(options, words):
    done = headrace_here(*MODELS, *options)
    assert done.returncode == 2 and words in " ".join(done.stderr.split())


@pytest.mark.slow
def test_rates_beyond_the_gpus_are_refused_with_what_binds():
    with few_slices():
        done = headrace_here(*TWO, "--rate-rps", "9000,9000")
    assert done.returncode == 2 and done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("headrace: --gpus 1: 1 x a100-40gb hold ") and "the slices bind" in last
