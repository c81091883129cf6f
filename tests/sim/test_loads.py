"""Test loads of a simulated server: shares of models, sizes of images, traces in part and faster, and their plans."""

import json
import math
import shlex

import numpy as np
import pytest
from command import headrace_here

from headrace.batching import UsageError
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.machine import server_of
from headrace.sim.planner import bounds, commands, space
from headrace.sim.planner import target as target_module
from headrace.sim.planner.search import cheapest, plan
from headrace.sim.planner.target import CYCLES, FEW_CYCLES, Candidate, Hardware, Target
from headrace.sim.planner.trials import Trial, measure
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario, scenario_of
from headrace.sim.workload.traffic import burst_rates, mmpp2, poisson

SERVER = {"accelerator": "a100-40gb", "partition": "3g.20gb:2", "preprocess": "cpu:32", "policy": "preba"}
TWO = "resnet50,mobilenet_v3_small"


def run(text, trials):
    return [measure(trial) for trial in trials]


@pytest.fixture
def small(monkeypatch):
    """A space of two partitions, two policies and one way of preprocessing."""
    few = [
        parts
        for number, parts in enumerate(space.partitions(space.gpu_named("a100-40gb"), full=True))
        if number in (0, 41)
    ]
    monkeypatch.setattr(space, "partitions", lambda gpu, full: few)
    monkeypatch.setattr(space, "preprocessings", lambda target: ["cpu:32"])
    monkeypatch.setattr(space, "WINDOWS", (1 / 4,))
    monkeypatch.setattr(bounds, "BATCHES", (4,))
    monkeypatch.setattr(target_module, "SHORTEST", 4000)
    bounds.bounds.cache_clear()
    yield
    bounds.bounds.cache_clear()


def write_trace(path, times, models=("resnet50",)):
    rows = [f"{time!r},{models[number % len(models)]},1,1" for number, time in enumerate(times.tolist())]
    path.write_text("\n".join(["arrival_s,model,input_len,output_len", *rows]) + "\n")
    return str(path)


def write_images(path, sizes):
    path.write_text("width,height\n" + "".join(f"{width},{height}\n" for width, height in sizes))
    return str(path)


def test_more_requests_for_a_slow_model_are_more_work():
    busy = {}
    for shares in (None, "1,9", "9,1"):
        done, _ = run_scenario(
            Scenario.of(**SERVER | {"policy": "serial"}, model=TWO, shares=shares, rate_rps=100.0, requests=3000)
        )
        busy[shares] = done.outcome.busy_s
        wanted = {None: 0.5, "1,9": 0.1, "9,1": 0.9}[shares]
        assert done.arrivals.models.count("resnet50") / 3000 == pytest.approx(wanted, abs=0.04)
    assert busy["1,9"] < busy[None] < busy["9,1"]


def test_what_a_server_can_do_goes_by_the_shares():
    def slices_rps(shares):
        system, lengths = server_of(Scenario.of(model=TWO, **SERVER))
        typical = dict.fromkeys(lengths, (1.0, 1))
        return system.capacity_rps(typical, dict(zip(lengths, shares, strict=True)))["2 slices"]

    first, second, half, tenth = (slices_rps(each) for each in ((1, 0), (0, 1), (0.5, 0.5), (0.1, 0.9)))
    assert 1 / half == pytest.approx((1 / first + 1 / second) / 2)
    assert 1 / tenth == pytest.approx(0.1 / first + 0.9 / second)


def test_photos_are_the_same_streamed_or_not_and_take_their_time_on_average(tmp_path):
    photos = write_images(tmp_path / "photos.csv", [(100, 100), (500, 375), (3000, 2000)])
    given = {"photos": photos, "rate_rps": 5.0, "requests": 2000, **SERVER}  # nobody waits
    whole, streamed = (run_scenario(Scenario.of(stream=stream, **given))[0].result for stream in (False, True))
    assert streamed["preprocess_ms"]["mean"] == pytest.approx(whole["preprocess_ms"]["mean"])
    system, _ = server_of(Scenario.of(photos=photos, **SERVER))
    mean_s = sum(float(np.mean(step.service_s(system.images))) for step in system.preprocessor.steps)
    assert whole["preprocess_ms"]["mean"] == pytest.approx(1e3 * mean_s, rel=0.1)
    typical = server_of(Scenario.of(**SERVER))[0].capacity_rps({"resnet50": (1.0, 1)}, {"resnet50": 1.0})
    drawn = system.capacity_rps({"resnet50": (1.0, 1)}, {"resnet50": 1.0})
    cpu = next(part for part in drawn if part.startswith("'cpu'"))
    assert drawn[cpu] < typical[cpu] / 3


def test_a_replayed_trace_tells_its_lengths_and_its_mix_of_models(tmp_path):
    trace = write_trace(tmp_path / "t.csv", np.arange(8) / 10, ["resnet50", "resnet50", "resnet50", TWO.split(",")[1]])
    target = Target.of_trace(TWO, 5, "a100-40gb", trace)
    known = bounds.bounds_of(target, Hardware(1, "7g.40gb:1", "cpu:32"))
    assert known.shares == {"resnet50": 0.75, "mobilenet_v3_small": 0.25}
    texts = tmp_path / "texts.csv"
    texts.write_text("arrival_s,model,input_len,output_len\n0,bert_base,30,1\n1,bert_base,50,1\n")
    _, lengths = server_of(Scenario.of(model="bert_base", accelerator="h100", replay=str(texts)))
    assert sorted(lengths["bert_base"].inputs) == [30, 50]


def test_equal_servers_serve_a_trace_in_turns(tmp_path):
    trace = write_trace(tmp_path / "t.csv", poisson(300.0, 301, seed=1))
    served = []
    for seed in range(4):
        given = {"replay": trace, "replay_every": 4, "replay_speed": 2.0, "seed": seed, **SERVER}
        done, _ = run_scenario(Scenario.of(**given))
        served += done.arrivals.arrival
    assert sorted(served) == [time / 2 for time in poisson(300.0, 301, seed=1).tolist()]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shares": "1"}, "--shares '1': give a number above 0 for each of --model resnet50,mobilenet_v3_small"),
        ({"shares": "1,0"}, "--shares '1,0'"),
        ({"shares": "1,inf"}, "--shares"),
        ({"shares": "1,1", "replay": "x"}, "--replay brings its own models; leave out --shares"),
        ({"replay_every": 2}, "--replay-every is for --replay; leave it out"),
        ({"replay_speed": 2.0}, "--replay-speed is for --replay; leave it out"),
        ({"replay_every": 0, "replay": "x"}, "--replay-every 0: give 1 to 1024"),
        ({"replay_speed": 0.0, "replay": "x"}, "--replay-speed 0: give a number above 0"),
        ({"images": "/no/such/file"}, "/no/such/file"),
        ({"images": "x", "model": "citrinet"}, "--images: citrinet takes inputs of other kinds"),
    ],
)
def test_loads_that_cannot_be_are_refused_by_name(settings, message):
    with pytest.raises(UsageError, match=message):
        run_scenario(Scenario.of(**{"model": TWO, **SERVER, **settings}))


def test_sizes_of_photos_that_nothing_prepares_have_no_effect():
    _, notes = scenario_of({"images": "x", "accelerator": "a100-40gb"})
    assert len(notes) == 1 and notes[0].startswith("--images has no effect") and "--preprocess ideal" in notes[0]
    assert scenario_of({"images": "x", **SERVER})[1] == []
    with pytest.raises(UsageError, match="--images and --image-pixels both tell sizes"):
        scenario_of({"images": "x", "image_pixels": TYPICAL_PIXELS, "accelerator": "a100-40gb"})


def test_bursts_need_more_than_as_many_requests_without(small):
    smooth = Target("resnet50", 1500, 40, "a100-40gb", gpus=2, quantile=0.9)
    bursty = Target("resnet50", 1500, 40, "a100-40gb", gpus=2, quantile=0.9, traffic="mmpp", burst_s=0.05)
    one, two = (cheapest(target, run) for target in (smooth, bursty))
    assert (one.candidate.hardware.servers, two.candidate.hardware.servers) == (1, 2)
    assert two.measured.cost_usd > 1.9 * one.measured.cost_usd
    steady = Trial(one.candidate.scenario(bursty, bursty.requests(1)), 0.9, 1)
    assert measure(steady).late > 0.2


@pytest.mark.parametrize("rate", [50.0, 5000.0])
def test_every_round_has_bursts_enough(rate):
    target = Target("resnet50", rate, 40, "a100-40gb", traffic="mmpp", burst_s=0.2)
    rounds = target.rounds(3)
    assert rounds == sorted(set(rounds))
    for requests, cycles in zip(rounds, [FEW_CYCLES] * (len(rounds) - 1) + [CYCLES], strict=True):
        arrival = mmpp2(burst_rates(rate / 3), (0.2, 0.2), requests, seed=0)
        assert arrival[-1] > 0.8 * cycles * 2 * 0.2
    with pytest.raises(UsageError, match=r"--burst-s 20: the 50 bursts and lulls .* are 2000000 requests"):
        Target("resnet50", 1000, 40, "a100-40gb", traffic="mmpp", burst_s=20.0)


def test_doubt_of_bursts_covers_what_an_endless_run_has():
    """The share of late requests of a short run, plus or minus its doubt, is compared with that of a run 30 times as
    long."""
    target = Target("resnet50", 1150, 25, "a100-40gb", traffic="mmpp", burst_s=0.05)
    candidate = Candidate(Hardware(1, "3g.20gb:2", "cpu:32"), "graph", (("max_batch", 32), ("window_ms", 5.0)))
    short = target.rounds(1)[0]
    endless = measure(Trial(candidate.scenario(target, 30 * short, seed=99), 0.99, 1)).late
    runs = [measure(Trial(candidate.scenario(target, short, seed), 0.99, 1)) for seed in range(12)]
    assert 0.005 < endless < 0.2
    assert sum(abs(each.late - endless) <= each.doubt for each in runs) >= 11


def test_smdp_by_phase_is_tried_for_bursts_and_none_where_it_would_be_unstable(small):
    hardware = Hardware(1, "3g.20gb:2", "cpu:32")
    bursty = Target("resnet50", 700, 25, "a100-40gb", traffic="mmpp", burst_s=0.1)
    by_phase = [each for each in space.settings_of(bursty, hardware) if ("by_phase", True) in each.parameters]
    assert by_phase
    assert "--by-phase" in shlex.split(commands.command(by_phase[0].scenario(bursty, 100)))
    assert not any(
        dict(each.parameters).get("by_phase")
        for each in space.settings_of(Target("resnet50", 700, 25, "a100-40gb"), hardware)
    )
    too_fast = Trial(by_phase[0].scenario(bursty.at(1e5), 100), 0.99, 1)
    assert measure(too_fast).late == 1.0 and measure(too_fast).quantile_ms == math.inf


@pytest.mark.slow
def test_a_plan_for_a_trace_is_what_simulate_gives_of_it(small, tmp_path):
    times = mmpp2((3200.0, 300.0), (0.3, 0.3), 12_000, seed=4)
    trace = write_trace(tmp_path / "t.csv", times)
    target = Target.of_trace("resnet50", 40, "a100-40gb", trace, quantile=0.9, gpus=3)
    assert target.rate_rps == pytest.approx(12_000 / (times[-1] - times[0]), rel=1e-3)
    answer = plan(target, run)
    best, servers = answer.best, answer.best.candidate.hardware.servers
    assert servers > 1  # so that each has a share
    mean, low, high = answer.quantile_ms
    assert low <= mean <= high <= 40
    quantiles = []
    for seed in range(servers):
        scenario = best.candidate.scenario(target, best.measured.requests, seed)
        command, *words = shlex.split(commands.command(scenario))
        done = headrace_here(*words, "--json")
        body = json.loads(done.stdout)
        assert command == "headrace" and body["warnings"] == []
        if seed == 0:
            assert body["latency_ms"] == best.measured.latency_ms
        quantiles.append(np.quantile(run_scenario(scenario)[0].latencies(), 0.9) * 1e3)
    assert (min(quantiles), max(quantiles)) == (low, high)
    assert best.measured.requests == 12_000 // servers


def test_a_trace_that_is_too_short_for_its_slo_is_refused(tmp_path):
    trace = write_trace(tmp_path / "t.csv", np.arange(30) / 10)
    with pytest.raises(UsageError, match=r"lasts 3 s; give one of 100 times --slo-ms 40 at least"):
        Target.of_trace("resnet50", 40, "a100-40gb", trace)
