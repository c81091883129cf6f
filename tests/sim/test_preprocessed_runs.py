"""Test whole runs with a stage before the policy, and on workers that differ."""

import math

import numpy as np
import pytest

from headrace.batching import (
    GraphBatching,
    LazyBatching,
    ModelGraph,
    Node,
    NodeTimes,
    PrebaBatching,
    Profile,
    SerialBatching,
    UsageError,
)
from headrace.sim.engine import Arrivals, run
from headrace.sim.preprocessing import Preprocessor, Step
from headrace.sim.simulation import simulate
from headrace.sim.trace import of_simulation
from headrace.sim.workload.lengths import Fixed
from headrace.sim.workload.traffic import generate, poisson

GRAPH = ModelGraph("net", (Node("a"), Node("b"), Node("c")))
PREPROCESS_KEYS = {"preprocess_ms", "preprocess_utilization"}


class Affine:
    """A latency model of seconds a node: `base`, and `slope` for each request."""

    def __init__(self, base, slope):
        self.base, self.slope = base, slope

    def latency(self, node, batch, length):
        return self.base + self.slope * batch


def times(base, slope=0.0):
    return {"net": NodeTimes(GRAPH, Affine(base, slope))}


def load(at, sizes, sla=math.inf):
    """Return arrivals whose sizes are their input lengths, on which no latency here depends."""
    count = len(at)
    return Arrivals(
        ["net"] * count, [float(t) for t in at], [t + sla for t in at], [float(s) for s in sizes], [1] * count
    )


def per_size(name, servers, seconds):
    return Step(name, servers, lambda sizes: seconds * sizes)


def in_blocks(arrivals, size):
    columns = (arrivals.models, arrivals.arrival, arrivals.deadline, arrivals.input_len, arrivals.output_len)
    for start in range(0, len(arrivals.arrival), size):
        yield Arrivals([], [], [], [], [])
        yield Arrivals(*(column[start : start + size] for column in columns))


def test_latency_counts_from_the_arrival_and_the_queue_from_when_a_request_is_ready():
    """Two cores take 4, 1 and 2: ready at 4, 1 and 3. One worker takes 3 each: at 1 to 4, 4 to 7, 7 to 10."""
    done = simulate(
        SerialBatching([GRAPH]),
        load([0, 0, 1], [4, 1, 2]),
        times(1.0),
        1,
        record=True,
        preprocessor=Preprocessor("cpu:2", (per_size("cpu", 2, 1.0),)),
    )
    assert [(ran.started, ran.ended) for ran in done.outcome.ran] == [(1, 4), (4, 7), (7, 10)]
    assert done.arrivals.arrival == [0, 1, 0] and done.arrivals.ready == [1, 3, 4]
    assert done.latencies().tolist() == [4, 6, 10]
    assert done.result["latency_ms"]["mean"] == pytest.approx(1e3 * 20 / 3)
    assert done.result["queue_ms"] == pytest.approx(1e3 * (0 + 1 + 3) / 3)
    assert done.result["preprocess_ms"]["mean"] == pytest.approx(1e3 * (4 + 1 + 2) / 3)
    assert done.result["preprocess_ms"]["max"] == 4000
    assert done.result["preprocess_utilization"] == {"cpu": 7 / (2 * 10)}
    assert done.result["utilization"] == 0.9 and done.result["throughput_rps"] == 0.3
    keys = list(done.result)
    assert keys[keys.index("latency_ms") + 1 : keys.index("utilization") + 1] == [
        "preprocess_ms",
        "queue_ms",
        "sla_violation_rate",
        "batch_size_mean",
        "preprocess_utilization",
        "utilization",
    ]


def test_a_trace_shows_each_request_from_its_arrival_until_it_was_ready():
    done = simulate(
        SerialBatching([GRAPH]),
        load([0, 0, 1, 2], [4, 1, 1, 2]),
        times(1.0),
        1,
        record=True,
        preprocessor=Preprocessor("cpu:2", (per_size("cpu", 2, 1.0),)),
    )
    stage = [each for each in of_simulation(done.arrivals, done.outcome) if each.track[0] == "preprocessing"]
    assert {(each.start, each.end) for each in stage} == {(0, 4), (0, 1), (1, 2), (2, 4)}
    assert {each.track for each in stage} == {("preprocessing", "0"), ("preprocessing", "1")}
    ran = {request.id: ran.started for ran in done.outcome.ran for request in ran.task.requests}
    assert all(ran[number] >= each.end for each in stage for number in each.flows)
    for none in (None, Preprocessor("ideal", ())):
        plain = simulate(SerialBatching([GRAPH]), load([0], [1]), times(1.0), 1, record=True, preprocessor=none)
        assert [each.track for each in of_simulation(plain.arrivals, plain.outcome)] == [("worker 0",)]


def test_a_run_without_preprocessing_reports_none():
    assert not PREPROCESS_KEYS & set(simulate(SerialBatching([GRAPH]), load([0], [1]), times(1.0), 1).result)


def test_ideal_preprocessing_changes_nothing():
    work = generate(poisson(100.0, 2000, 3), {"net": Fixed()}, 0.1, 3)
    ideal = Preprocessor("ideal", ())
    plain, passed = (
        simulate(GraphBatching([GRAPH], 0.005, 8), work, times(0.002, 0.001), 1, preprocessor=stage)
        for stage in (None, ideal)
    )
    assert passed.outcome.finished == plain.outcome.finished
    left = {key: value for key, value in passed.result.items() if key not in PREPROCESS_KEYS}
    assert {**left, "wall_s": 0} == {**plain.result, "wall_s": 0}
    assert passed.result["preprocess_ms"]["max"] == 0 and passed.result["preprocess_utilization"] == {}


def test_what_is_late_when_it_is_ready_is_dropped_then():
    """The first is ready in time and served; the second is ready at 5, after its deadline at 3."""
    done = simulate(
        SerialBatching([GRAPH]),
        load([0, 0], [1, 4], 3.0),
        times(0.5),
        1,
        drop_late=True,
        preprocessor=Preprocessor("cpu:1", (per_size("cpu", 1, 1.0),)),
    )
    assert done.outcome.finished == [2.5, -1]
    assert (done.result["finished"], done.result["dropped"], done.result["sla_violation_rate"]) == (1, 1, 0.5)
    assert done.result["preprocess_ms"]["mean"] == 3000
    assert done.result["preprocess_utilization"] == {"cpu": 1.0}  # until the last one left it


CHAIN = Preprocessor(
    "chain",
    (
        per_size("decode", 4, 0.0015),
        Step("link", 1, lambda sizes: np.full(len(sizes), 0.0003)),
        per_size("mel", 4, 0.001),
    ),
)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("kind", ["lazy", "serial", "graph"])
def test_a_streamed_run_with_preprocessing_is_the_same_run(kind, drop):
    known = times(0.0002, 0.0001)
    make = {
        "lazy": lambda: LazyBatching(known, 2),
        "serial": lambda: SerialBatching([GRAPH]),
        "graph": lambda: GraphBatching([GRAPH], 0.003, 16),
    }[kind]
    count = 4000
    sizes = np.random.default_rng(5).exponential(1.0, count)
    work = load(poisson(2200.0, count, 4), sizes, 0.012 if drop else 0.05)
    whole = simulate(make(), work, known, 2, drop_late=drop, preprocessor=CHAIN)
    assert np.count_nonzero(np.diff(whole.arrivals.arrival) < 0) > 100  # they overtake
    for size in (7, 1000):
        streamed = simulate(make(), in_blocks(work, size), known, 2, drop_late=drop, preprocessor=CHAIN).result
        for key, value in whole.result.items():
            if key in ("latency_ms", "preprocess_ms"):
                assert streamed[key] == pytest.approx(value, rel=4e-3), key
            elif key != "wall_s":
                assert streamed[key] == pytest.approx(value), key
    assert (whole.result["dropped"] > 0) == drop


def test_littles_law_holds_over_the_stage_and_the_policy():
    work = load(poisson(1500.0, 5000, 1), np.random.default_rng(2).exponential(1.0, 5000))
    done = simulate(GraphBatching([GRAPH], 0.004, 8), work, times(0.0005, 0.0002), 2, preprocessor=CHAIN)
    arrival, ready, _ = done.arrivals.arrays()
    assert done.outcome.in_system_s == pytest.approx((np.array(done.outcome.finished) - ready).sum())
    assert done.latencies().sum() == pytest.approx(done.outcome.in_system_s + (ready - arrival).sum())
    assert max(done.result["preprocess_utilization"].values()) <= 1 and done.result["utilization"] <= 1


def curve(known, workers):
    return {"net": Profile.of("net", known["net"], workers)}


def test_with_ideal_preprocessing_a_server_saturates_at_what_its_slices_can_do():
    known = times(0.001, 0.0002)
    knee = curve(known, 7)["net"].knee()
    work = generate(poisson(3 * knee.throughput_rps, 60_000, 0), {"net": Fixed()}, math.inf, 0)
    policy = PrebaBatching([GRAPH], curve(known, 7), 7)
    done = simulate(policy, work, known, 7, preprocessor=Preprocessor("ideal", ())).result
    assert done["throughput_rps"] == pytest.approx(knee.throughput_rps, rel=0.02)
    assert 0.98 < done["utilization"] <= 1


def test_with_one_slow_step_a_server_saturates_at_that_step():
    known = times(0.001, 0.0002)
    slices = curve(known, 7)["net"].knee().throughput_rps
    slow = Step("slow", 4, lambda sizes: np.full(len(sizes), 8 / slices))  # half of what the slices can do
    chain = Preprocessor("dpu", (Step("fast", 4, lambda sizes: np.full(len(sizes), 1 / slices)), slow))
    work = generate(poisson(2 * slices, 60_000, 0), {"net": Fixed()}, math.inf, 0)
    done = simulate(PrebaBatching([GRAPH], curve(known, 7), 7), work, known, 7, preprocessor=chain).result
    assert done["throughput_rps"] == pytest.approx(slices / 2, rel=0.02)
    assert done["preprocess_utilization"]["slow"] == pytest.approx(1.0, rel=0.02)
    assert done["preprocess_utilization"]["slow"] <= 1


def test_each_worker_takes_its_own_time():
    """Worker 0 takes 3 for a request, worker 1 takes 6."""
    unlike = [times(1.0), times(2.0)]
    outcome = run(SerialBatching([GRAPH]), load([0, 0, 0, 0], [1] * 4), unlike, 2, True)
    assert [(ran.worker, ran.started, ran.ended) for ran in outcome.ran] == [(0, 0, 3), (0, 3, 6), (1, 0, 6), (0, 6, 9)]
    assert outcome.worker_busy_s == [9, 6] and outcome.busy_s == 15
    done = simulate(SerialBatching([GRAPH]), load([0, 0, 0, 0], [1] * 4), unlike, 2)
    assert done.outcome.finished == outcome.finished and done.result["utilization"] == 15 / 18


def test_a_preemptible_task_ends_at_its_own_workers_boundaries():
    """Worker 0 reaches a boundary at 2, 4, 6, worker 1 at 3, 6, 9: the arrival at 1 ends both, each at its first."""
    unlike = [times(2.0), times(3.0)]
    policy = LazyBatching(times(3.0), 2, 2)
    outcome = run(policy, load([0, 0, 0, 0, 1], [1] * 5), unlike, 2, True)
    assert [(ran.worker, ran.started, ran.ended) for ran in outcome.ran][:2] == [(0, 0, 2), (1, 0, 3)]


def test_times_of_another_number_of_workers_are_refused():
    with pytest.raises(UsageError, match="node times of 2 workers for 3; give one mapping for each, or one for all"):
        simulate(SerialBatching([GRAPH]), load([0], [1]), [times(1.0)] * 2, 3)
