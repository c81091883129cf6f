"""Plans of models that decode: what they answer is simulated again, and one server fewer does not do."""

import json
import math
import random
from dataclasses import replace

import pytest
from command import headrace_here
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.decoding.front_end import PreprocessStage
from headrace.sim.decoding.simulation import simulate_decoding
from headrace.sim.planner.decoders import server
from headrace.sim.planner.decoders.planning import answer_body
from headrace.sim.planner.decoders.search import BEYOND, fewest, plan_decoder
from headrace.sim.planner.decoders.server import (
    DecodingCandidate,
    DecodingTrial,
    FrontEndChoice,
    measure,
    nodes_of,
    simulated,
)
from headrace.sim.planner.decoders.target import DecodingTarget, parse_images
from headrace.sim.system import cost

VISION = {"model": "qwen2-vl-7b", "gpu": "h100", "slo_ttft_ms": 1500.0, "slo_tpot_ms": 60.0}
PLAN = ("plan", "--model", "qwen2-vl-7b", "--gpu", "h100", "--slo-ttft-ms", "1500", "--slo-tpot-ms", "60")
FEW = {"trial_requests": 300, "output_tokens": 32, "quantile": 0.95}
AUDIO = {"model": "qwen2-audio-7b", "gpu": "h100", "kernels": "sglang", "audio_s": 10.0}


def run(text, trials):
    return [measure(trial) for trial in trials]


@pytest.fixture(scope="module")
def large():
    """Return the plan for images of 2048x2048: two servers or more."""
    return plan_decoder(DecodingTarget(**VISION, **FEW, images="1:2048x2048", rate_rps=5.0), run)


def holds(answer, candidate, rate_rps=None, seed=0):
    rate = answer.target.rate_rps if rate_rps is None else rate_rps
    result = simulated(DecodingTrial(answer.target, candidate, rate, seed))
    return result.sla_violation_rate <= answer.target.late


def test_the_plan_holds_and_one_server_fewer_does_not(large):
    best = large.best.candidate
    assert best.replicas >= 2
    for seed in range(6):
        assert holds(large, best, seed=seed)
    fewer = replace(best, replicas=best.replicas - 1)
    shares = [measure(DecodingTrial(large.target, fewer, 5.0, seed)).late for seed in range(1, 6)]
    low = sum(shares) / len(shares)
    assert not holds(large, fewer) or low + 2.776 * _spread(shares) > large.target.late


def _spread(shares):
    mean = sum(shares) / len(shares)
    return math.sqrt(sum((each - mean) ** 2 for each in shares) / (len(shares) - 1) / len(shares))


def test_the_plan_holds_up_to_its_greatest_rate_and_not_beyond(large):
    best = large.best.candidate
    assert large.max_rps >= 5.0
    assert holds(large, best, large.max_rps)
    assert not holds(large, best, BEYOND * large.max_rps)
    assert large.binds in ("gpu", "ttft", "tpot")  # a core works for a tenth of a second for each image


def test_the_fewest_cores_hold_and_fewer_do_not():
    """Pillow takes 49 ms for an image of 1024x768. At 24 images a second one core of a server is not enough."""
    target = DecodingTarget(**VISION, **FEW, images="1:1024x768", rate_rps=24.0, library="pillow")
    target = replace(target, output_tokens=4, slo_tpot_ms=1e3)
    answer = plan_decoder(target, run)
    cores = next(each for each in (answer.best, *answer.others) if each.candidate.front_end.device == "cpu")
    per_server = target.rate_rps * 0.0488 / cores.candidate.replicas
    assert cores.fewest > per_server > 1  # cores of work a second
    front_end = cores.candidate.front_end

    def with_cores(count):
        return replace(cores.candidate, front_end=replace(front_end, count=count))

    assert holds(answer, with_cores(cores.fewest))
    assert not holds(answer, with_cores(cores.fewest - 1))
    spent = cores.candidate.replicas * cost.PRICES_USD["cpu"] * cores.fewest / 32
    assert cores.front_end_usd == pytest.approx(spent)


def test_a_target_that_only_a_dpu_meets_gets_a_dpu():
    """A core takes 160 ms for an image of 2048x2048 and a compute unit 24 ms. Alone, the rest takes 300 ms."""
    target = DecodingTarget(**{**VISION, "slo_ttft_ms": 400.0}, **FEW, images="1:2048x2048", rate_rps=0.5)
    answer = plan_decoder(target, run)
    assert answer.best.candidate.front_end.device == "dpu"
    assert not answer.others
    on_cores = DecodingCandidate(64, FrontEndChoice("cpu", 31, "torchvision"), "continuous")
    assert not holds(answer, on_cores)
    assert answer.best.front_end_usd == answer.best.candidate.replicas * cost.PRICES_USD["fpga"]


def test_time_to_first_token_has_the_wait_for_a_core():
    """Pillow takes 49 ms for an image of 1024x768, and the GPU some 35 ms. So one core is the slowest part."""
    target = DecodingTarget(**VISION, **FEW, images="1:1024x768", rate_rps=15.0)
    one, many = (
        measure(DecodingTrial(target, DecodingCandidate(1, FrontEndChoice("cpu", n, "pillow"), "continuous"), 15.0))
        for n in (1, 8)
    )
    assert one.preprocess_wait_ms > 10 > many.preprocess_wait_ms
    assert one.ttft_ms["mean"] > many.ttft_ms["mean"] + 5
    assert one.used["cores"] == pytest.approx(8 * many.used["cores"], rel=0.05)
    assert one.cost_usd == pytest.approx(many.cost_usd, rel=0.01)  # cores come with their CPU


def test_a_queue_of_one_core_before_a_slower_gpu_adds_no_wait():
    """A line of single servers with fixed times takes its slowest time for each, and the others once (Friedman 1965).

    An image of 2048x2048 takes 160 ms on a core, and 300 ms on a GPU, which has one token to make of it."""
    target = DecodingTarget(**{**VISION, "slo_ttft_ms": 9e3}, trial_requests=300, output_tokens=1, images="1:2048x2048")
    one, many = (
        measure(DecodingTrial(target, DecodingCandidate(1, FrontEndChoice("cpu", n, "torchvision"), "continuous"), 2.0))
        for n in (1, 31)
    )
    assert one.preprocess_wait_ms > 10 > many.preprocess_wait_ms
    assert one.ttft_ms["mean"] == pytest.approx(many.ttft_ms["mean"], rel=1e-6)


def test_the_cost_is_that_of_the_parts_and_of_their_energy():
    target = DecodingTarget(**VISION, **FEW, images="1:640x427", rate_rps=1.0, prices="node=1000,h100=20000,kwh=0")
    card = DecodingCandidate(3, FrontEndChoice("dpu", 4), "continuous")
    assert measure(DecodingTrial(target, card, 1.0)).cost_usd == pytest.approx(3 * (1000 + 20000 + 4395))
    two_cpus = DecodingCandidate(1, FrontEndChoice("cpu", 63, "ours"), "continuous")
    assert measure(DecodingTrial(target, two_cpus, 1.0)).cost_usd == pytest.approx(1000 + 20000 + 2600)
    shared = replace(target, tp=2)
    assert server.parts_of(shared, FrontEndChoice("cpu", 31, "ours")) == ["node", "cpu", "h100", "h100"]


def test_python_plans_speech_and_text():
    speech = headrace.plan_decoding(rate_rps=20, slo_ttft_ms=300, slo_tpot_ms=30, **AUDIO, **FEW)
    assert speech.best["preprocess"] == "cpu:31:ours"  # the least measured time for 10 s of sound
    assert speech.best["gpus"] == 1 and speech.best["cores_needed"] == 1
    assert speech.to_dict()["others"][0]["preprocess"].startswith("dpu:")
    text = headrace.plan_decoding("llama-3.1-8b", gpu="h100", rate_rps=5, slo_ttft_ms=300, slo_tpot_ms=30, **FEW)
    assert text.best["preprocess"] == "ideal" and text.best["preprocess_ms"] is None
    assert text.answer.best.front_end_usd == 0.0
    assert "cores_needed" not in text.best


def test_the_command_prints_the_plan_and_its_json():
    words = (*PLAN, "--images", "1:640x427", "--rate-rps", "10", "--trial-requests", "200", "--output-tokens", "16")
    told = headrace_here(*words)
    assert told.returncode == 0, told.stderr
    assert "cpu:31:torchvision" in told.stdout and "1 core a node" in told.stdout
    assert "binds." in told.stdout and "it costs" in told.stdout
    body = json.loads(headrace_here(*words, "--json").stdout)
    assert body["best"]["gpus"] == 1
    assert body["best"]["cores_needed"] == 1
    assert {"late", "ttft_ms", "tpot_ms", "used", "cost_usd", "front_end_usd", "binds", "max_rps"} <= set(body["best"])


def test_targets_that_are_not_given_have_their_defaults():
    plan = headrace.plan_decoding("llama-3.1-8b", gpu="h100", rate_rps=1, **FEW)
    assert (plan.answer.target.slo_ttft_ms, plan.answer.target.slo_tpot_ms) == (1000, 50)
    few = ("--trial-requests", "200", "--output-tokens", "16")
    told = headrace_here("plan", "--model", "llama-3.1-8b", "--gpu", "h100", "--rate-rps", "1", *few)
    assert "99 % within 1000 ms and 50 ms a token" in " ".join(told.stdout.split())


IMAGES = ("--images", "1:640x427", "--rate-rps", "1")
REFUSED = {
    "no images": (("--rate-rps", "1"), "--images is missing: qwen2-vl-7b takes images"),
    "a size": (("--images", "2048x2048", "--rate-rps", "1"), "--images 2048x2048: give COUNT:WIDTHxHEIGHT"),
    "no size": (("--images", "1:big", "--rate-rps", "1"), "--images 1:big: 'big' is no size of an image"),
    "too many": (("--images", "99:28x28", "--rate-rps", "1"), "give COUNT:WIDTHxHEIGHT with 1 to 64 images"),
    "no rate": (("--images", "1:640x427"), "--rate-rps is missing: qwen2-vl-7b decodes"),
    "sound": ((*IMAGES, "--audio-s", "3"), "--audio-s: qwen2-vl-7b takes images; leave it out"),
    "latency": ((*IMAGES, "--slo-ms", "10"), "--slo-ms is for networks that do not decode: leave it out"),
    "lengths": ((*IMAGES, "--lengths", "librispeech"), "--lengths is for networks that do not decode"),
    "power": ((*IMAGES, "--least", "power"), "--least is for networks that do not decode"),
    "library": ((*IMAGES, "--library", "opencv"), "--library opencv: its time for qwen2-vl was not measured; choose"),
    "gpu": ((*IMAGES, "--gpu", "b200"), "--gpu 'b200': choose from a100-80gb, h100, h200"),
    "tp": ((*IMAGES, "--tp", "3"), "tp: 3 GPUs cannot share a model; choose from 1, 2, 4, 8"),
    "node": ((*IMAGES, "--tp", "2", "--node-gpus", "3"), "--node-gpus 3 does not hold whole replicas of --tp 2 GPUs"),
    "gpus": ((*IMAGES, "--tp", "4", "--gpus", "2"), "--tp 4 needs 4 GPUs, and --gpus allows 2; allow more"),
    "whisper": ((*IMAGES, "--model", "whisper-large-v3"), "whisper-large-v3: each layer of its decoder also attends"),
    "text": ((*IMAGES, "--model", "llama-3.1-8b"), "--images: llama-3.1-8b takes text alone; leave it out"),
    "no file": ((*IMAGES, "--model", "none.json"), "none.json: cannot be read as JSON"),
    "network": ((*IMAGES, "--model", "resnet50"), "--slo-ttft-ms is for models that decode, and --model resnet50"),
    "no decoder": ((*IMAGES, "--model", "qwen9-vl"), "is none of them; choose from qwen2-vl-7b,"),
    "too tight": ((*IMAGES, "--slo-ttft-ms", "5"), "--slo-ttft-ms 5 is below"),
    "too tight a token": ((*IMAGES, "--slo-tpot-ms", "2"), "--slo-tpot-ms 2 is below"),
    "a price": ((*IMAGES, "--prices", "gold=3"), "--prices: no price 'gold'"),
}


@pytest.mark.parametrize("words, message", REFUSED.values(), ids=REFUSED)
def test_bad_usage_says_what_to_change(words, message):
    done = headrace_here(*PLAN, *words)
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")
    assert not done.stdout


def test_too_few_gpus_or_dollars_are_an_error_that_says_how_late():
    target = DecodingTarget(**VISION, **FEW, images="1:2048x2048", rate_rps=50.0, gpus=2)
    with pytest.raises(HeadraceError, match=r"no plan within --gpus 2 serves --rate-rps 50: 2 x 1 h100 with cpu:31"):
        plan_decoder(target, run)
    with pytest.raises(HeadraceError, match="--budget-usd 50,000 serves --rate-rps 5: 1 x 1 h100"):
        plan_decoder(replace(target, gpus=64, rate_rps=5.0, budget_usd=50_000.0), run)
    with pytest.raises(UsageError, match=r"--tp 1: the weights of llama-3\.1-70b take 141 GB on each GPU"):
        plan_decoder(DecodingTarget(**{**VISION, "model": "llama-3.1-70b"}, **FEW), run)


def test_images_are_drawn_by_their_weights():
    images = parse_images("2:640x427,1024x768:3")
    assert images.count == 2
    assert images.sizes.weight.tolist() == [1.0, 3.0]
    target = DecodingTarget(**VISION, images="2:640x427,1024x768:3", rate_rps=1.0, trial_requests=1000)
    requests, sizes = server.requests_of(target, 1.0, 0)
    tokens = {0: 345, 1: 999}
    assert all(each.items == tuple(tokens[kind] for kind in own) for each, own in zip(requests, sizes, strict=True))
    assert all(each.prompt_tokens == 64 + sum(each.items) for each in requests)
    large = sum(own.count(1) for own in sizes) / 2000
    assert large == pytest.approx(0.75, abs=0.05)


# Nodes of several replicas


@given(replicas=st.integers(1, 200), tp=st.sampled_from([1, 2, 4]), room=st.integers(1, 8))
def test_replicas_are_spread_evenly_over_as_few_nodes_as_hold_them(replicas, tp, room):
    target = DecodingTarget(**VISION, images="1:28x28", tp=tp, node_gpus=None if room * tp > 16 else room * tp)
    nodes = nodes_of(target, replicas)
    assert sum(each * number for each, number in nodes.items()) == replicas
    assert max(nodes) - min(nodes) <= 1 and max(nodes) <= target.node_replicas
    assert sum(nodes.values()) == math.ceil(replicas / target.node_replicas)
    assert min(nodes.values()) >= 1


def test_a_node_of_several_replicas_shares_its_cores():
    """One core takes 49 ms for an image. Four replicas of 2.5 images a second keep it at work for 0.49 of the time."""
    target = DecodingTarget(**VISION, **FEW, images="1:1024x768", rate_rps=10.0)
    target = replace(target, trial_requests=1000)
    one_core = FrontEndChoice("cpu", 1, "pillow")
    alone, shared = (
        measure(DecodingTrial(replace(target, node_gpus=gpus), DecodingCandidate(4, one_core, "continuous"), 10.0))
        for gpus in (1, 4)
    )
    assert shared.used["cores"] == pytest.approx(10 * 0.0488, rel=0.1)
    assert alone.used["cores"] == pytest.approx(shared.used["cores"] / 4, rel=0.1)
    assert shared.used["gpu"] == pytest.approx(alone.used["gpu"], rel=0.1)
    # A queue with one server and fixed times: rho / (2 (1 - rho)) service times, by Pollaczek and Khinchine.
    rho = shared.used["cores"]
    assert shared.preprocess_wait_ms == pytest.approx(48.8 * rho / 2 / (1 - rho), rel=0.2)
    assert alone.preprocess_wait_ms < shared.preprocess_wait_ms / 3
    assert shared.ttft_ms["mean"] > alone.ttft_ms["mean"] + 10


def test_the_simulated_replica_stands_for_all_replicas_of_its_node():
    target = DecodingTarget(**VISION, **FEW, images="1:1024x768", rate_rps=60.0, node_gpus=4)
    target = replace(target, trial_requests=1500)
    candidate = DecodingCandidate(4, FrontEndChoice("cpu", 4, "pillow"), "continuous")
    chosen = simulated(DecodingTrial(target, candidate, 60.0))
    requests, sizes = server.requests_of(target, 60.0, 1, 4)
    latency, encoder, blocks = server.replica(target)
    device = server.device(target, candidate.front_end)
    means = []
    owner = [random.Random(number).randrange(4) for number in range(len(requests))]
    for place in range(4):
        stage = PreprocessStage(device, lambda each: sizes[each.id], lambda each, place=place: owner[each.id] != place)
        found = simulate_decoding(requests, latency, kv_blocks=blocks, preprocess=stage, encoder=encoder)
        assert found.requests == owner.count(place)
        means.append(found.ttft_ms["mean"])
    assert chosen.requests == pytest.approx(1500, rel=0.1)
    assert chosen.ttft_ms["mean"] == pytest.approx(sum(means) / 4, rel=0.2)


def test_the_cost_of_nodes_is_that_of_their_parts():
    """Nine replicas on nodes of eight GPUs are one node of five and one of four, with 24 cores for inputs."""
    prices = "node=1000,h100=20000,fpga=500,cpu=300,kwh=0"
    target = DecodingTarget(**VISION, **FEW, images="1:640x427", rate_rps=9.0, prices=prices, node_gpus=8)

    def usd(front_end):
        return measure(DecodingTrial(target, DecodingCandidate(9, front_end, "continuous"), 9.0)).cost_usd

    assert usd(FrontEndChoice("cpu", 24, "ours")) == pytest.approx(2 * 1000 + 9 * 20000)
    assert usd(FrontEndChoice("cpu", 56, "ours")) == pytest.approx(2 * (1000 + 300) + 9 * 20000)
    assert usd(FrontEndChoice("dpu", 4, cards=2)) == pytest.approx(2 * (1000 + 2 * 500) + 9 * 20000)
    both = DecodingCandidate(9, FrontEndChoice("dpu", 4, cards=2), "continuous")
    assert server.front_end_usd(target, both, 1) == 2 * 2 * 500
    assert server.idle_usd(target, both) == pytest.approx(2 * (1000 + 2 * 500) + 9 * 20000)


def test_a_second_card_halves_the_wait_of_a_node():
    target = DecodingTarget(**VISION, **FEW, images="1:2048x2048", rate_rps=16.0, node_gpus=8)
    one, two = (
        measure(DecodingTrial(target, DecodingCandidate(8, FrontEndChoice("dpu", 1, cards=n), "continuous"), 16.0))
        for n in (1, 2)
    )
    assert one.used["cus"] == pytest.approx(2 * two.used["cus"], rel=0.05)
    assert one.preprocess_wait_ms > 2 * two.preprocess_wait_ms


def test_a_plan_of_nodes_of_eight_shares_their_price_and_holds():
    target = DecodingTarget(**VISION, **FEW, images="1:1024x768", rate_rps=100.0, node_gpus=8)
    answer = plan_decoder(target, run)
    best = answer.best.candidate
    alone = plan_decoder(replace(target, node_gpus=None), run)
    assert 2 <= best.replicas <= 8 and best.front_end.count in (24, 56)
    assert answer.best.measured.cost_usd < alone.best.measured.cost_usd
    assert holds(answer, best)
    shares = [
        measure(DecodingTrial(target, replace(best, replicas=best.replicas - 1), 100.0, n)).late for n in range(1, 6)
    ]
    assert sum(shares) / len(shares) + 2.776 * _spread(shares) > target.late
    fewer = replace(best, front_end=replace(best.front_end, count=answer.best.fewest - 1))
    assert answer.best.fewest == 1 or not holds(answer, fewer)
    body = answer_body(answer)["best"]
    assert (body["nodes"], body["node_gpus"], body["replicas"]) == (1, best.replicas, best.replicas)
    told = headrace_here(
        *PLAN, "--images", "1:640x427", "--rate-rps", "10", "--trial-requests", "200", "--output-tokens", "16",
        "--node-gpus", "8",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "1 of 1" in told.stdout and "a node" in told.stdout


@given(least=st.integers(1, 70), most=st.integers(0, 64))
def test_the_fewest_that_hold_are_found_with_few_questions(least, most):
    asked = []

    def holds(count):
        asked.append(count)
        return count >= least

    found = fewest(holds, most)
    assert found == (least if least <= most else None)
    assert len(asked) <= 2 * math.log2(max(2, most)) + 2
    assert all(1 <= each <= most for each in asked)


def test_a_system_prompt_that_the_cache_keeps_costs_less():
    """Prompts of 2000 + 100 tokens: with prefix caching, all but the first request prefill about 100 of them."""
    target = DecodingTarget(model="llama-3.1-8b", system_tokens=2000, prompt_tokens=100, trial_requests=200)
    trial = DecodingTrial(target, DecodingCandidate(1, FrontEndChoice(server.IDEAL), "continuous"), 10.0)
    kept = simulated(trial)
    whole = simulated(replace(trial, target=replace(target, prefix_caching=False)))
    assert kept.prefix_cache["tokens_not_computed"] == (kept.requests - 1) * 2000
    assert whole.prefix_cache is None
    assert kept.ttft_ms["p50"] < 0.5 * whole.ttft_ms["p50"]


@pytest.mark.parametrize("kernels", ["vllm", "sglang", "trtllm"])
def test_the_cache_of_a_plan_is_what_the_server_takes_by_default(kernels):
    latency, _, blocks = server.replica(DecodingTarget(model="llama-3.1-8b", kernels=kernels))
    assert blocks == latency.kv_tokens() // server.BLOCK_SIZE
    vision, encoder, fewer = server.replica(DecodingTarget(**VISION, images="1:640x480", kernels=kernels))
    assert encoder is not None
    assert 0 < fewer < vision.kv_tokens() // server.BLOCK_SIZE  # the encoder's weights take room
