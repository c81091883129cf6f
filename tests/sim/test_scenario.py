import math
import re

import numpy as np
import pytest
import soundfile

from headrace.batching import (
    POLICIES,
    NodeKind,
    NodeLatencies,
    Profile,
    ProfilePoint,
    UnknownModel,
    UsageError,
    find_policy,
)
from headrace.sim.hardware.npu import npu_times
from headrace.sim.machine import curves, usual_lengths
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario, scenario_of
from headrace.sim.scenario_files import read_settings
from headrace.sim.trace import of_simulation, write
from headrace.sim.workload.lengths import SPEECH
from headrace.sim.zoo import model_graph
from headrace.sim.zoo.cells import CELL_NETWORKS

SMALL = {"requests": 300, "rate_rps": 300.0}


@pytest.mark.parametrize("policy", [name for name in POLICIES if find_policy(name).tasks != "cells"])
@pytest.mark.parametrize("model", ["resnet50", "gnmt", "transformer", "las", "bert_base,vgg16"])
def test_every_policy_serves_every_network(policy, model):
    done, _ = run_scenario(Scenario.of(model=model, policy=policy, npus=2, **SMALL))
    result = done.result
    assert result["requests"] == result["finished"] == 300 and result["failed"] == result["shed"] == 0
    assert 0 < result["utilization"] <= 1 and result["batch_size_mean"] >= 1
    assert done.latencies().min() > 0


@pytest.mark.parametrize("network", CELL_NETWORKS)
@pytest.mark.parametrize("policy", ["cellular", "dynamic-graph", "bucketed-graph", "graph"])
def test_scenarios_on_cells(network, policy):
    scenario = Scenario.of(
        model=network,
        accelerator="v100",
        policy=policy,
        rate_rps=500,
        requests=600,
        max_batch=64,
        npus=2,
        window_ms=0,
        slo_ms=1e4,
    )
    if network == "treelstm" and policy in ("bucketed-graph", "graph"):
        with pytest.raises(UsageError, match="no padded graph"):
            run_scenario(scenario)
        return
    done, warnings = run_scenario(scenario)
    assert done.result["finished"] == 600 and not warnings
    assert done.result["batch_size_mean"] <= 64


@pytest.mark.parametrize("traffic", ["poisson", "deterministic", "mmpp"])
def test_every_traffic_has_the_rate_asked_for(traffic):
    done, _ = run_scenario(Scenario.of(traffic=traffic, policy="graph", requests=20_000, rate_rps=500, burst_s=0.1))
    assert done.result["throughput_rps"] == pytest.approx(500, rel=0.05)


def test_a_measured_profile_is_hardware_too(tmp_path):
    file = tmp_path / "net.json"
    file.write_text(Profile("net", 2, (ProfilePoint(1, 0.01, 200.0), ProfilePoint(4, 0.02, 400.0))).to_json())
    settings = {"model": "net", "accelerator": "profile", "profile": str(file)}
    done, _ = run_scenario(Scenario.of(policy="serial", rate_rps=1.0, requests=50, **settings))
    assert done.result["latency_ms"]["p50"] == pytest.approx(10)
    with pytest.raises(UsageError, match="is of 'net'"):
        run_scenario(Scenario.of(**{**settings, "model": "resnet50"}))


@pytest.fixture(scope="module", params=[("resnet50", 64, 1), ("gnmt", 64, 80)], ids=lambda param: param[0])
def measured_npu(request, tmp_path_factory):
    """Settings of a network on a profile of the NPU's own node latencies, at every batch size and length up to these.
    The largest batch is beyond the knee. The NPU model's embeddings
    take no time, which no measurement finds."""
    model, max_batch, longest = request.param
    times = npu_times(model_graph(model))
    lengths = range(1, longest + 1)
    sums = [[times.sums(batch, length) for batch in range(1, max_batch + 1)] for length in lengths]
    nodes = NodeLatencies(
        tuple(node.name for node in times.graph.nodes),
        tuple(node.kind for node in times.graph.nodes),
        tuple(range(1, max_batch + 1)),
        tuple(map(float, lengths)),
        tuple(
            tuple(tuple(max(1e-12, until[node + 1] - until[node]) for until in row) for row in sums)
            for node in range(len(times.graph.nodes))
        ),
    )
    points = curves(model, times, 1, usual_lengths(model)).points
    file = tmp_path_factory.mktemp("measured") / "net.json"
    file.write_text(Profile(model, 1, points, nodes=nodes).to_json())
    return {"model": model, "accelerator": "profile", "profile": str(file)}


@pytest.mark.parametrize("policy", [name for name in POLICIES if find_policy(name).tasks != "cells"])
def test_measured_nodes_of_the_npu_serve_as_the_npu_does(policy, measured_npu):
    """Preemption at nodes, encoder and decoder steps, the length distribution and dec_timesteps: all are the same."""
    model = measured_npu["model"]
    settings = {**SMALL, "policy": policy, "max_batch": 16, "rate_rps": 900.0 if model == "resnet50" else 300.0}
    expected, _ = run_scenario(Scenario.of(model=model, **settings))
    done, _ = run_scenario(Scenario.of(**measured_npu, **settings))
    assert done.arrivals.input_len == expected.arrivals.input_len
    assert done.outcome.finished == pytest.approx(expected.outcome.finished, rel=1e-6)


@pytest.mark.parametrize(
    ("kinds", "lengths", "sentences"),
    [
        ((NodeKind.STATIC, NodeKind.STATIC), (1.0,), False),
        ((NodeKind.STATIC, NodeKind.STATIC), (1.0, 40.0), True),
        ((NodeKind.ENCODER, NodeKind.DECODER), (1.0,), True),
    ],
)
def test_a_measured_network_gets_sentences_if_it_takes_inputs_of_many_lengths(kinds, lengths, sentences, tmp_path):
    file, corpus = tmp_path / "net.json", tmp_path / "corpus.tsv"
    nodes = NodeLatencies(("a", "b"), kinds, (1, 2), lengths, (((0.001, 0.002),) * len(lengths),) * 2)
    file.write_text(Profile("net", 1, (ProfilePoint(1, 0.01, 100.0),), nodes=nodes).to_json())
    settings = {"model": "net", "accelerator": "profile", "profile": str(file), "requests": 50, "rate_rps": 5.0}
    done, _ = run_scenario(Scenario.of(**settings))
    assert (len(set(done.arrivals.input_len)) > 1) == sentences
    corpus.write_text("7\t9\n")
    done, _ = run_scenario(Scenario.of(**settings, corpus=str(corpus)))
    assert set(done.arrivals.input_len) == {7.0 if sentences else 1.0}


def test_preba_takes_its_knee_from_the_measured_curve(tmp_path):
    """Beyond the last point it is not known, even if throughput still grew there."""
    file = tmp_path / "net.json"
    file.write_text(Profile("net", 1, (ProfilePoint(1, 0.01, 100.0), ProfilePoint(2, 0.011, 180.0))).to_json())
    settings = {"model": "net", "accelerator": "profile", "profile": str(file), "requests": 500, "rate_rps": 150.0}
    for policy in ("preba", "preba-lazy"):
        done, _ = run_scenario(Scenario.of(**settings, policy=policy), record=True)
        assert max(ran.task.batch_size for ran in done.outcome.ran) == 2


def test_a_replayed_trace_and_a_corpus_decide_what_is_served(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,model,input_len,output_len\n1,gnmt,2,3\n5,gnmt,20,30\n")
    done, _ = run_scenario(Scenario.of(model="gnmt", replay=str(trace)))
    short, long = done.latencies()
    assert done.result["requests"] == 2 and long > 8 * short
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("7\t9\n")
    done, _ = run_scenario(Scenario.of(model="gnmt", corpus=str(corpus), **SMALL))
    assert set(zip(done.arrivals.input_len, done.arrivals.output_len, strict=True)) == {(7.0, 9)}


def test_lengths_can_be_named_or_measured_off_a_folder_of_audio(tmp_path):
    done, _ = run_scenario(Scenario.of(model="gnmt", lengths="librispeech", **SMALL))
    assert all(1 <= seconds <= 35 for seconds in done.arrivals.input_len) and set(done.arrivals.output_len) == {1}
    soundfile.write(tmp_path / "a.wav", np.zeros(24_000), 16_000)
    done, _ = run_scenario(Scenario.of(model="gnmt", lengths=str(tmp_path), **SMALL))
    assert set(done.arrivals.input_len) == {1.5}


def test_a_trace_of_the_run_can_be_read_back(tmp_path):
    done, _ = run_scenario(Scenario.of(requests=50), record=True)
    write(tmp_path / "t.pftrace", of_simulation(done.arrivals, done.outcome))
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    packets = Trace.FromString((tmp_path / "t.pftrace").read_bytes()).packet
    begins = [p for p in packets if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    ends = [p for p in packets if p.track_event.type == TrackEvent.TYPE_SLICE_END]
    assert all(
        re.fullmatch(r"resnet50: batch of \d+ \((idle|slack|merge|deadline|delay)\), nodes \d+ to \d+", name)
        for name in (p.track_event.name for p in begins)
    )
    assert len(begins) == len(ends) == len(done.outcome.ran)
    assert {flow for p in begins for flow in p.track_event.flow_ids} == set(range(1, 51))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate_rps": 0.0}, "--rate-rps 0"),
        ({"rate_rps": math.nan}, "--rate-rps nan"),
        ({"rate_rps": math.inf}, "--rate-rps inf"),
        ({"requests": 0}, "--requests 0"),
        ({"npus": 0}, "--npus 0"),
        ({"slo_ms": 0.0}, "--slo-ms 0"),
        ({"window_ms": -1.0, "policy": "graph"}, "--window-ms -1: give a number of 0 or more"),
        ({"max_batch": 0}, "--max-batch 0: give 1 to 4096"),
        ({"policy": "lasy"}, "--policy 'lasy'"),
        ({"traffic": "uniform"}, "--traffic 'uniform'"),
        ({"accelerator": "tpu"}, "--accelerator 'tpu'"),
        ({"accelerator": "profile"}, "needs --profile FILE"),
        ({"accelerator": "profile", "profile": "/no/such/file"}, "--profile /no/such/file"),
        ({"model": ""}, "--model is empty"),
        ({"model": "gnmt,gnmt"}, "names a model twice"),
        ({"model": "gnmt", "dec_timesteps": 0}, "--dec-timesteps 0"),
        ({"model": "gnmt", "coverage": 1.5}, "coverage"),
        ({"replay": "/no/such/file"}, "/no/such/file"),
        ({"model": "gnmt", "corpus": "/no/such/file"}, "/no/such/file"),
        ({"lengths": "nope"}, "--lengths 'nope': choose from translation"),
        ({"lengths": "speech", "corpus": "x"}, "--lengths and --corpus"),
        ({"model": "resnet50", "accelerator": "v100"}, "--model resnet50 is not for --accelerator v100"),
        ({"model": "lstm"}, "--model lstm is not for --accelerator npu"),
        ({"policy": "cellular"}, "give --accelerator v100"),
        ({"model": "lstm", "accelerator": "v100", "trees": "x"}, "--trees is for --model treelstm"),
        ({"model": "treelstm", "accelerator": "v100", "policy": "cellular", "trees": "/nowhere"}, "/nowhere"),
        ({"model": "lstm", "accelerator": "v100", "policy": "bucketed-graph", "bucket_width": 0}, "--bucket-width 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    with pytest.raises(UsageError, match=message):
        run_scenario(Scenario.of(**settings))


def test_an_unknown_model_is_refused_with_what_is_close():
    with pytest.raises(UnknownModel, match="did you mean resnet50"):
        run_scenario(Scenario.of(model="resnet"))


@pytest.mark.parametrize(
    "hardware", [{}, {"accelerator": "a100-40gb", "preprocess": "cpu:8", "policy": "preba"}, {"stream": True}], ids=str
)
def test_overhead_is_on_top_of_every_latency_and_no_worker_is_longer_busy(hardware):
    plain, more = (
        run_scenario(Scenario.of(**{"policy": "graph", **SMALL, **hardware}, overhead_ms=overhead_ms))[0].result
        for overhead_ms in (0.0, 3.0)
    )
    for key, value in plain["latency_ms"].items():
        assert more["latency_ms"][key] == pytest.approx(value + 3.0, rel=0.01 if "stream" in hardware else 1e-6)
    assert more["queue_ms"] == pytest.approx(plain["queue_ms"], rel=1e-6, abs=1e-9)
    assert more["preprocess_ms"]["mean"] >= 2.999999
    assert more["batch_size_mean"] == pytest.approx(plain["batch_size_mean"])


def test_what_is_too_late_is_dropped_by_option():
    overload = {"policy": "serial", "rate_rps": 6000.0, "requests": 600, "slo_ms": 20.0}
    late, _ = run_scenario(Scenario.of(**overload))
    done, _ = run_scenario(Scenario.of(**overload, drop_late=True))
    assert late.result["dropped"] == 0 and late.result["latency_ms"]["max"] > 100
    assert done.result["dropped"] > 200 and done.result["finished"] == 600 - done.result["dropped"]
    assert done.result["latency_ms"]["max"] < 25


def test_settings_that_are_hardly_meant_are_warned_about():
    _, notes = run_scenario(Scenario.of(slo_ms=0.25, **SMALL))
    assert len(notes) == 1 and "--slo-ms 0.25 is below the 0.90" in notes[0]
    _, notes = run_scenario(Scenario.of(slo_ms=0.5, overhead_ms=1.0, **SMALL))
    assert len(notes) == 1 and "--slo-ms 0.5 is below the 1.90" in notes[0]
    _, notes = run_scenario(Scenario.of(rate_rps=5000.0, requests=300))
    assert len(notes) == 1 and "more than 1 workers can serve" in notes[0]
    assert run_scenario(Scenario.of(**SMALL))[1] == []


def test_settings_without_effect_are_warned_about_and_contradictions_refused():
    _, notes = scenario_of({"policy": "serial", "window_ms": 5.0, "max_batch": 64, "coverage": 0.9})
    assert [note.split()[0] for note in notes] == ["--window-ms", "--max-batch", "--coverage"]
    assert scenario_of({"policy": "graph", "window_ms": 5.0, "max_batch": 64})[1] == []
    _, notes = scenario_of({"policy": "preba-lazy", "max_batch": 8, "defer_late": True, "coverage": 0.9})
    assert [note.split()[0] for note in notes] == ["--max-batch", "--defer-late"]
    with pytest.raises(UsageError, match=r"--replay brings its own arrivals.*--rate-rps, --requests"):
        scenario_of({"replay": "x", "rate_rps": 1000.0, "requests": 20_000})


def test_settings_from_a_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('model = "gnmt"\nrate-rps = 250\nmax_batch = 8\ndec_timesteps = 20\ndefer-late = true\n')
    assert read_settings(file) == {
        "model": "gnmt",
        "rate_rps": 250.0,
        "max_batch": 8,
        "dec_timesteps": 20,
        "defer_late": True,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed = 3", "no setting 'speed'"),
        ('max_batch = "many"', "max_batch is 'many': it must be of type int; give 1 to 4096"),
        ("max_batch = 3.5", "max_batch is 3.5"),
        ('dec_timesteps = "x"', "dec_timesteps is 'x'"),
        ("model = [1]", "model is"),
        ("rate_rps = ", "run.toml"),
    ],
)
def test_a_broken_settings_file_is_refused(tmp_path, text, message):
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_settings(file)


def test_sounds_are_seconds_to_who_draws_them_and_steps_to_the_graph():
    settings = {"policy": "preba", "requests": 300, "rate_rps": 50.0, "lengths": "librispeech"}
    las, _ = run_scenario(Scenario.of(model="las", **settings))
    conformer, _ = run_scenario(Scenario.of(model="conformer", **settings))
    assert all(length.is_integer() for length in conformer.arrivals.input_len)
    assert max(conformer.arrivals.input_len) == pytest.approx(2 * max(las.arrivals.input_len), abs=2)
    assert 15 / 0.04 < max(conformer.arrivals.input_len) <= 35 / 0.04 + 1
    with pytest.raises(UsageError, match="las takes audio; give librispeech"):
        run_scenario(Scenario.of(model="las", **{**settings, "lengths": "translation"}))


def test_a_measured_network_of_sounds_is_served_in_buckets_of_seconds(tmp_path):
    file = tmp_path / "net.json"
    points = [ProfilePoint(knee, 0.035, knee / 0.035, 100 * s + 1) for s, knee in ((2.5, 16), (35.0, 2))]
    file.write_text(Profile("net", 1, tuple(points), step_s=0.01).to_json())
    settings = {"model": "net", "accelerator": "profile", "profile": str(file), "requests": 2000, "rate_rps": 500.0}
    done, _ = run_scenario(Scenario.of(**settings, policy="preba", merge_buckets=False), record=True)
    assert 2000 < max(done.arrivals.input_len) <= 3501
    for ran in done.outcome.ran:
        assert len({request.input_len // 250 for request in ran.task.requests}) == 1
    one, _ = run_scenario(Scenario.of(**settings, policy="preba", bucket_s=100.0), record=True)
    assert {ran.task.batch_size for ran in one.outcome.ran} <= {1, 2}


def test_modelled_speech_waits_for_the_knee_of_its_own_length():
    """The knee of length 1, an output of 1 step, would have las wait a fortieth of the time."""
    profile = curves("las", npu_times(model_graph("las")), 7, SPEECH)
    assert len(profile.lengths) > 5 and profile.step_s == 0.08
    short = Profile.of("las", npu_times(model_graph("las")), 7, lengths=(1.0,)).knee()
    assert profile.knee().latency_s > 20 * short.latency_s
