"""Test runs whose arrivals come in blocks and are forgotten: they are the same runs, in memory that does not grow."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from headrace.batching import LazyBatching, NodeTimes, SerialBatching, UsageError
from headrace.batching.graphs.cell_graph import seq2seq
from headrace.batching.policies.cellular import CellularBatching
from headrace.sim.engine import Arrivals
from headrace.sim.hardware.npu import npu_times
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import WMT15
from headrace.sim.workload.traffic import generate, poisson, poisson_blocks
from headrace.sim.zoo import model_graph


class Millisecond:
    def latency(self, node, batch, length):
        return 0.001


def blocks(arrivals, size):
    columns = (arrivals.models, arrivals.arrival, arrivals.deadline, arrivals.input_len, arrivals.output_len)
    for start in range(0, len(arrivals.arrival), size):
        yield Arrivals([], [], [], [], [])  # a block may be empty
        yield Arrivals(*(column[start : start + size] for column in columns))


@pytest.mark.parametrize("name", ["lazy", "serial, dropping the late", "cellular"])
def test_a_streamed_run_is_the_same_run(name):
    net = dataclasses.replace(model_graph("mobilenet_v1"), name="net")
    times, cells, rate = {"net": npu_times(net)}, None, 8000.0 if "drop" in name else 2500.0
    if name == "cellular":
        model = seq2seq("net", 16, 16)
        times, cells, rate = {"net": NodeTimes(model.graph, Millisecond())}, {"net": model}, 100.0
    kinds = {
        "lazy": lambda: LazyBatching(times, 1),
        "serial, dropping the late": lambda: SerialBatching([times["net"].graph]),
        "cellular": lambda: CellularBatching([cells["net"]], 1),
    }
    arrivals = generate(poisson(rate, 3000, 1), {"net": WMT15}, 0.02, 1)
    run = {"cell_models": cells, "drop_late": "drop" in name}
    whole = simulate(kinds[name](), arrivals, times, 1, **run).result
    streamed = simulate(kinds[name](), blocks(arrivals, 7), times, 1, **run)
    for key, value in whole.items():
        if key == "latency_ms":
            assert streamed.result[key].keys() == value.keys()
            for percentile, latency in value.items():
                assert streamed.result[key][percentile] == pytest.approx(latency, rel=4e-3), percentile
        elif key != "wall_s":
            assert streamed.result[key] == pytest.approx(value), key
    assert (whole["dropped"] > 0) == ("drop" in name)
    assert len(streamed.latencies()) == 0


def test_poisson_arrivals_in_blocks_are_those_of_one_piece():
    for count in (1, 7, 1000, 1001):
        assert np.array_equal(np.concatenate(list(poisson_blocks(300.0, count, 5, 7))), poisson(300.0, count, 5))


def test_a_streamed_scenario():
    given = {"model": "resnet50", "rate_rps": 300.0, "requests": 500}
    whole, streamed = (run_scenario(Scenario.of(stream=stream, **given))[0].result for stream in (False, True))
    assert streamed["requests"] == streamed["finished"] == 500
    assert streamed["latency_ms"]["mean"] == pytest.approx(whole["latency_ms"]["mean"])
    for refused in ({"traffic": "mmpp"}, {"traffic": "deterministic"}):
        with pytest.raises(UsageError, match="--stream is for --traffic poisson"):
            run_scenario(Scenario.of(stream=True, **refused))
    with pytest.raises(UsageError, match="--replay brings its own arrivals and lengths; leave out --stream"):
        run_scenario(Scenario.of(stream=True, replay="trace.csv"))
    with pytest.raises(UsageError, match="--stream keeps no tasks; leave out --trace"):
        run_scenario(Scenario.of(stream=True, **given), record=True)


def peak_mib(requests):
    program = f"""
import resource
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
done, _ = run_scenario(Scenario.of(policy="lazy", model="mobilenet_v1", stream=True, requests={requests}))
assert done.result["finished"] == {requests}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
def test_ten_million_requests_need_no_more_memory_than_one_million():
    few, many = peak_mib(1_000_000), peak_mib(10_000_000)
    assert many < few + 8
