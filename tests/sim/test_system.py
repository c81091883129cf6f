"""Test a whole server, simulated: limits that theory knows, conservation, and bad settings."""

import re
from dataclasses import replace

import numpy as np
import pytest

from headrace.batching import POLICIES, UsageError, find_policy
from headrace.batching.settings import option
from headrace.sim.hardware.cpu import MEASURED
from headrace.sim.hardware.gpu.slice import PREBA, slice_of, slice_times
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, Images
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario, scenario_of
from headrace.sim.system.system import System
from headrace.sim.zoo.traced import traced

SERVER = Scenario.of(
    accelerator="a100-40gb",
    partition="1g.5gb:7",
    preprocess="ideal",
    model="mobilenet_v3_small",
    policy="preba",
    requests=4000,
    rate_rps=1000.0,
)
SPEECH = SERVER.having(model="citrinet", rate_rps=200.0, requests=1000)


@pytest.mark.parametrize("policy", [name for name in POLICIES if find_policy(name).tasks != "cells"])
@pytest.mark.parametrize("partition", ["1g.5gb:7", "1g.5gb:3,4g.20gb"])
@pytest.mark.parametrize("scenario", [SERVER, SPEECH], ids=["photos", "speech"])
def test_every_policy_serves_every_partition(scenario, partition, policy):
    given = scenario.having(partition=partition, preprocess="dpu:2", policy=policy, max_batch=4, requests=500)
    result = run_scenario(given)[0].result
    assert result["finished"] == result["requests"] == 500
    shares = [result["utilization"], *result["preprocess_utilization"].values(), *result["part_utilization"].values()]
    assert all(0 < share <= 1 for share in shares)


@pytest.mark.parametrize("partition", ["1g.5gb:7", "2g.10gb:3", "7g.40gb", "1g.5gb:3,4g.20gb"])
def test_saturated_slices_serve_what_their_profiles_say(partition):
    scenario = SERVER.having(partition=partition, rate_rps=60_000.0, requests=60_000)
    done, warnings = run_scenario(scenario)
    slices = System.of("a100-40gb", ["mobilenet_v3_small"], parts=partition, image_sizes=1, precision="tf32")
    profiles = slices.profiles()
    known = [profiles] if isinstance(profiles, dict) else profiles
    knees = sum(each["mobilenet_v3_small"].knee().throughput_rps for each in known)
    assert done.result["throughput_rps"] == pytest.approx(knees, rel=0.02)
    assert done.result["utilization"] == pytest.approx(1.0, abs=0.02)
    assert any("the queue will grow" in warning for warning in warnings)


def test_one_core_serves_what_one_core_prepares():
    scenario = SERVER.having(preprocess="cpu:2", active_slices=1, rate_rps=5000.0)  # the other core launches kernels
    result = run_scenario(scenario)[0].result
    second_s = MEASURED.seconds(Images(), np.array([float(TYPICAL_PIXELS)]))[0]
    assert result["throughput_rps"] == pytest.approx(1 / second_s, rel=0.02)
    assert result["preprocess_utilization"]["cpu"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("scenario", [SERVER, SPEECH], ids=["photos", "speech"])
def test_littles_law(scenario):
    done, _ = run_scenario(scenario.having(preprocess="dpu:4"))
    arrival, ready, _ = done.arrivals.arrays()
    finished = np.array(done.outcome.finished)
    assert done.outcome.in_system_s == pytest.approx((finished - ready).sum())
    latency_ms = done.result["latency_ms"]["mean"]
    assert latency_ms == pytest.approx(1e3 * (finished - arrival).mean())


def test_energy_is_the_integral_of_power_and_parts_that_do_nothing_idle():
    result = run_scenario(SERVER.having(preprocess="dpu:4"))[0].result
    power = result["power_w"]
    assert power["total"] == pytest.approx(sum(power[part] for part in ("cpu", "gpu", "fpga", "node")))
    span_s = result["finished"] / result["throughput_rps"]
    assert result["energy_j"] == pytest.approx(power["total"] * span_s)
    assert result["energy_per_request_j"] == pytest.approx(result["energy_j"] / result["finished"])
    without = run_scenario(SERVER)[0].result
    assert "fpga" not in without["power_w"]
    assert without["cost"]["capex_usd"] < result["cost"]["capex_usd"]


def test_prices_are_inputs():
    usual, dear = (
        run_scenario(SERVER.having(prices=prices))[0].result["cost"] for prices in (None, "node=25500,kwh=0.278")
    )
    assert dear["capex_usd"] == pytest.approx(usual["capex_usd"] + 20_000)
    assert dear["opex_usd"] == pytest.approx(2 * usual["opex_usd"])
    assert dear["requests_per_usd"] < usual["requests_per_usd"]


def test_fewer_active_slices_serve_less_and_leave_the_others_idle():
    rates = [
        run_scenario(SERVER.having(active_slices=active, rate_rps=60_000.0, requests=30_000))[0].result
        for active in (1, 4, 7)
    ]
    throughput = [result["throughput_rps"] for result in rates]
    assert throughput[1] == pytest.approx(4 * throughput[0], rel=0.03)
    assert throughput[2] == pytest.approx(7 * throughput[0], rel=0.03)
    gpu = [result["part_utilization"]["gpu"] for result in rates]
    assert gpu[1] == pytest.approx(4 * gpu[0], rel=0.03)


def mixed(model: str = "swin_t") -> System:
    return System.of("a100-40gb", [model], parts="1g.5gb:3,4g.20gb", image_sizes=1, precision="tf32")


def test_an_idle_large_slice_is_offered_work_before_small_ones():
    assert [each.profile.name for each in mixed().slices] == ["4g.20gb", "1g.5gb", "1g.5gb", "1g.5gb"]
    scenario = SERVER.having(model="swin_t", partition="1g.5gb:3,4g.20gb", rate_rps=20.0, requests=200)
    large, *small = run_scenario(scenario)[0].outcome.worker_busy_s
    assert large > 2 * sum(small)


def test_a_policy_that_knows_one_set_of_times_is_promised_what_the_slowest_slice_keeps():
    system = mixed()
    slowest = system.slowest_times()["swin_t"]
    seconds = [times["swin_t"].whole(4, 1.0, 1) for times in system.times()]
    assert slowest.whole(4, 1.0, 1) == max(seconds) > min(seconds)


def test_inputs_go_to_the_gpu_once():
    """They go there in the preprocessor's last step, and not in the slice's time as well."""
    system, batch = mixed(), 8
    network = traced("swin_t")
    with_copy = slice_times(network, slice_of(system.gpu, system.slices[0].profile)).whole(batch, 1.0, 1)
    copy_s = batch * 4 * network.input_elements[1.0] / PREBA.copy_bytes_s
    assert system.times()[0]["swin_t"].whole(batch, 1.0, 1) == pytest.approx(with_copy - copy_s)


def test_sounds_are_prepared_by_their_seconds():
    short, long = (
        run_scenario(SPEECH.having(preprocess="dpu:1", lengths=seconds))[0].result for seconds in ("1", "30")
    )
    assert long["preprocess_ms"]["mean"] > 3 * short["preprocess_ms"]["mean"]
    assert long["latency_ms"]["mean"] > short["latency_ms"]["mean"]


def test_larger_photos_take_longer_to_prepare():
    small, large = (
        run_scenario(SERVER.having(preprocess="cpu:32", image_pixels=pixels))[0].result["preprocess_ms"]["mean"]
        for pixels in (100_000, 2_000_000)
    )
    assert large > 5 * small


def test_costs_of_a_file_replace_those_measured_here(tmp_path):
    file = tmp_path / "costs.json"
    slow = replace(MEASURED, image=replace(MEASURED.image, image_s=20e-3))
    file.write_text(slow.to_json())
    scenario = SERVER.having(preprocess="cpu:32", rate_rps=100.0, requests=500)
    assert run_scenario(scenario)[0].result["preprocess_ms"]["mean"] < 10
    assert run_scenario(scenario.having(cpu_costs=str(file)))[0].result["preprocess_ms"]["mean"] > 20


def test_a_stream_gives_what_a_run_gives():
    scenario = SERVER.having(preprocess="dpu:4", requests=20_000)
    whole, stream = (run_scenario(scenario.having(stream=stream))[0].result for stream in (False, True))
    assert stream["finished"] == 20_000
    for key in ("latency_ms", "preprocess_ms"):
        assert stream[key]["mean"] == pytest.approx(whole[key]["mean"], rel=0.05)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"partition": "1g.5gb:8"}, "room for 7"),
        ({"partition": "4g.20gb,3g.20gb,1g.5gb"}, "do not fit one a100-40gb"),
        ({"partition": "1g.9gb"}, "no profile '1g.9gb'"),
        ({"partition": ""}, "no profile ''"),
        ({"active_slices": 8}, "--active-slices 8: give 1 to 7"),
        ({"active_slices": 0}, "--active-slices 0"),
        ({"preprocess": "gpu"}, "--preprocess: preprocessing 'gpu'"),
        ({"preprocess": "cpu:7"}, "leave at least 1"),
        ({"preprocess": "nvjpg"}, "no JPEG engine"),
        ({"preprocess": "dpu:0"}, "no number of CUs"),
        ({"prices": "house=1"}, "--prices: no price 'house'"),
        ({"prices": "node=-1"}, "--prices: price 'node=-1'"),
        ({"precision": "fp8"}, "--precision 'fp8': choose from fp32, tf32, fp16"),
        ({"model": "resnet51"}, "did you mean"),
        ({"model": "citrinet,swin_t"}, "but not both"),
        ({"model": "bert_base", "preprocess": "dpu:4"}, "bert_base takes text"),
        ({"model": "vgg19", "policy": "graph", "max_batch": 512}, "--partition, --max-batch: vgg19 takes"),
        ({"image_pixels": 0}, "--image-pixels 0"),
        ({"policy": "cellular"}, "--policy cellular serves cells"),
        ({"lengths": "nan", "model": "citrinet"}, "--lengths nan"),
        ({"lengths": "-1", "model": "citrinet"}, "--lengths -1"),
        ({"lengths": "translation", "model": "citrinet"}, "citrinet takes audio"),
        ({"cpu_costs": "/nowhere.json", "preprocess": "cpu:32"}, "/nowhere.json"),
    ],
)
def test_bad_settings_say_what_to_change(changes, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        run_scenario(SERVER.having(**changes))


def test_settings_without_effect_are_told():
    useless = {
        "partition": "1g.5gb:7",
        "active_slices": 1,
        "preprocess": "cpu:32",
        "image_pixels": 1000,
        "precision": "tf32",
        "cpu_costs": "costs.json",
    }
    _, notes = scenario_of(useless)
    assert [note.split()[0] for note in notes] == [option(name) for name in useless]
    assert scenario_of({**SERVER.given(), "partition": "1g.5gb:7", "preprocess": "ideal"})[1] == []
    _, notes = scenario_of({**SERVER.given(), "npus": 1, "busy_w": 100.0, "cpu_costs": "costs.json"})
    assert [note.split()[0] for note in notes] == ["--npus", "--busy-w", "--cpu-costs"]
