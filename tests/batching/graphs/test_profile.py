import contextlib
import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import (
    MatMul,
    Node,
    NodeKind,
    NodeLatencies,
    NodeTimes,
    Profile,
    ProfilePoint,
    Request,
    Task,
    UsageError,
)
from headrace.batching.graphs.model_graph import ModelGraph

STATIC, ENCODER, DECODER = NodeKind.STATIC, NodeKind.ENCODER, NodeKind.DECODER
EXAMPLE = Path(__file__).parents[3] / "examples" / "net.profile.json"  # of version 1


def curve(*throughputs: float) -> Profile:
    points = tuple(ProfilePoint(2**k, 2**k / rps, rps) for k, rps in enumerate(throughputs))
    return Profile("net", 1, points, {"cpu": "some"})


@pytest.mark.parametrize(
    ("throughputs", "knee"),
    [
        ((100,), 1),
        ((100, 104.9), 1),
        ((100, 105, 120, 125), 4),
        ((100, 150, 140, 300), 2),  # the first flat step ends the walk, whatever comes later
        ((100, 150, 200), 4),  # never flat: the largest profiled
    ],
)
def test_the_knee_is_the_last_batch_before_throughput_grows_by_less_than_5_percent(throughputs, knee):
    assert curve(*throughputs).knee().batch == knee


def test_latency_is_linear_between_points_and_beyond():
    profile = Profile("net", 1, (ProfilePoint(2, 0.2, 10), ProfilePoint(4, 0.3, 13), ProfilePoint(8, 0.7, 11)))
    assert [profile.latency(0, b, 1) for b in (1, 2, 3, 4, 6, 8, 10)] == pytest.approx(
        [0.2, 0.2, 0.25, 0.3, 0.5, 0.7, 0.9]
    )


def test_a_profile_survives_its_file():
    profile = curve(100, 150, 155)
    assert Profile.from_json(profile.to_json()) == profile
    assert json.loads(profile.to_json())["knee"]["batch"] == 2


def measured(**changes) -> NodeLatencies:
    """An encoder and a decoder node at batches 1, 2 and 4 and lengths 1 and 5."""
    sound = {
        "names": ("enc", "dec"),
        "kinds": (ENCODER, DECODER),
        "batches": (1, 2, 4),
        "lengths": (1.0, 5.0),
        "latency_s": (((1.0, 1.5, 3.5), (2.0, 3.5, 9.5)), ((0.25, 0.5, 0.5), (0.25, 0.5, 0.25))),
    }
    return NodeLatencies(**{**sound, **changes})


def with_nodes() -> Profile:
    return dataclasses.replace(curve(100, 150, 155), nodes=measured())


@given(batch=st.floats(1, 4), length=st.floats(1, 5))
def test_between_what_was_measured_node_latencies_are_bilinear_as_torch_interpolates(batch, length):
    nodes = measured(batches=(1, 4), latency_s=(((1.0, 3.5), (2.0, 9.5)), ((0.25, 0.5), (0.25, 0.5))))
    grid = torch.tensor(nodes.latency_s[0], dtype=torch.float64)[None, None]
    at = torch.tensor([[[[(batch - 1) / 1.5 - 1, (length - 1) / 2 - 1]]]], dtype=torch.float64)
    golden = torch.nn.functional.grid_sample(grid, at, align_corners=True).item()
    assert nodes.latency(0, batch, length) == pytest.approx(golden)


def test_node_latencies_go_on_beyond_the_last_and_stay_at_the_first_below():
    nodes = measured()
    assert [nodes.latency(0, batch, 1.0) for batch in (1, 2, 3, 4, 6)] == [1.0, 1.5, 2.5, 3.5, 5.5]
    assert [nodes.latency(0, 1, length) for length in (0.5, 1.0, 3.0, 5.0, 9.0)] == [1.0, 1.0, 1.5, 2.0, 3.0]
    assert nodes.latency(0, 6, 9.0) == 25.5  # 5.5 at length 1 and 15.5 at length 5
    assert nodes.latency(1, 9, 5.0) == 0.25, "a curve that falls at its end is flat beyond it"
    below = measured(batches=(2, 4), latency_s=(((1.5, 3.5), (3.5, 9.5)),) * 2)
    assert below.latency(0, 1, 1.0) == 1.5


def test_nodes_of_one_batch_size_take_time_in_proportion_and_of_one_length_the_same_at_all():
    nodes = measured(batches=(2,), lengths=(1.0,), latency_s=(((0.5,),),) * 2)
    assert [nodes.latency(0, batch, 7.0) for batch in (1, 2, 6)] == [0.5, 0.5, 1.5]


rising = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True).map(sorted)


@given(data=st.data(), batches=rising, lengths=rising, batch=st.integers(1, 300), length=st.floats(0, 300))
def test_whatever_was_measured_no_latency_is_below_the_least_of_it(data, batches, lengths, batch, length):
    seconds = st.floats(1e-9, 10.0)
    row = st.lists(seconds, min_size=len(batches), max_size=len(batches)).map(tuple)
    rows = data.draw(st.lists(row, min_size=len(lengths), max_size=len(lengths)).map(tuple))
    nodes = NodeLatencies(("net",), (STATIC,), tuple(batches), tuple(map(float, lengths)), (rows,))
    found = nodes.latency(0, batch, length)
    assert min(map(min, rows)) * (1 - 1e-9) <= found < math.inf
    if batch in batches and length in lengths:
        assert found == pytest.approx(rows[lengths.index(length)][batches.index(batch)])


def test_a_profile_tells_the_times_of_its_nodes_if_it_has_them_and_else_of_the_whole():
    whole = curve(100, 150, 155)
    assert whole.times().graph == ModelGraph.opaque("net")
    assert whole.times().whole(2, 1.0, 1) == whole.points[1].latency_s
    times = with_nodes().times()
    assert [(node.name, node.kind) for node in times.graph.nodes] == [("enc", ENCODER), ("dec", DECODER)]
    assert times.graph.name == "net"
    assert times.whole(1, 5.0, 3) == 5 * 2.0 + 3 * 0.25


def test_a_profile_with_nodes_survives_its_file():
    assert Profile.from_json(with_nodes().to_json()) == with_nodes()


def test_a_profile_of_version_1_is_still_read():
    profile = Profile.from_json(EXAMPLE.read_text())
    assert json.loads(EXAMPLE.read_text())["version"] == 1
    assert profile.nodes is None and profile.knee().batch == 4


def test_a_profile_of_a_later_version_is_refused():
    text = curve(100).to_json().replace('"version": 3', '"version": "4\\n"')
    with pytest.raises(UsageError, match=r"^profile version '4\\n' is none of \(1, 2, 3\); measure it again$"):
        Profile.from_json(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": (), "kinds": ()}, "0 names and 0 kinds"),
        ({"kinds": (STATIC,)}, "2 names and 1 kinds"),
        ({"kinds": (DECODER, ENCODER)}, "encoder before its decoder"),
        ({"batches": ()}, "no batch sizes"),
        ({"batches": (0, 1, 2)}, "batch sizes, or an impossible one"),
        ({"batches": (1, 2, 10**400)}, "batch sizes, or an impossible one"),
        ({"batches": (1, 4, 4)}, "batch sizes in rising order"),
        ({"lengths": (0.0, 1.0)}, "lengths, or an impossible one"),
        ({"lengths": (1.0, math.inf)}, "lengths, or an impossible one"),
        ({"lengths": (2.0, 1.0)}, "lengths in rising order"),
        ({"latency_s": (((1.0,) * 3,) * 2,)}, "2 nodes x 2 lengths x 3 batch sizes"),
        ({"latency_s": (((1.0,) * 3,),) * 2}, "2 nodes x 2 lengths x 3 batch sizes"),
        ({"latency_s": (((1.0,) * 2,) * 2,) * 2}, "2 nodes x 2 lengths x 3 batch sizes"),
        ({"latency_s": (((1.0, 0.0, 1.0),) * 2,) * 2}, "one that is not positive"),
        ({"latency_s": (((1.0, math.nan, 1.0),) * 2,) * 2}, "one that is not positive"),
    ],
)
def test_node_latencies_that_no_measurement_gives_are_refused(changes, message):
    with pytest.raises(UsageError, match=message) as caught:
        measured(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("step_s", [0.0, math.nan, math.inf])
def test_steps_that_take_no_time_are_refused(step_s):
    with pytest.raises(UsageError, match="give a time above 0"):
        dataclasses.replace(curve(100), step_s=step_s)


def surface(*shape: tuple[float, tuple[float, ...]], workers: int = 2, step_s: float | None = 0.01) -> Profile:
    """Curves of (length, seconds at batch 1, 2, 4 ...)."""
    points = [
        ProfilePoint(2**k, seconds, workers * 2**k / seconds, length)
        for length, latencies in shape
        for k, seconds in enumerate(latencies)
    ]
    return Profile("net", workers, tuple(points), step_s=step_s)


SPEECH = surface((100, (0.010, 0.012, 0.016, 0.032)), (300, (0.030, 0.036, 0.072)), (500, (0.060, 0.120)))


def test_each_length_has_a_knee_of_its_own():
    assert [SPEECH.knee(length).batch for length in (100, 300, 500)] == [4, 2, 1]
    assert [SPEECH.knee(length).latency_s for length in (100, 300, 500)] == [0.016, 0.036, 0.060]
    assert SPEECH.knee() == SPEECH.knee(300), "of the typical length, the middle one"


def test_below_the_first_length_the_knee_is_the_firsts_and_beyond_the_last_the_lasts():
    assert SPEECH.knee(1) == SPEECH.knee(100)
    assert SPEECH.knee(900).batch == 1 and SPEECH.knee(900).latency_s == pytest.approx(0.120)


def test_between_lengths_seconds_a_batch_and_seconds_a_request_are_linear():
    found = {point.batch: point for point in SPEECH.curve(200)}
    assert [found[batch].latency_s for batch in (1, 2, 4)] == pytest.approx([0.020, 0.024, 0.044])
    for point in found.values():
        assert point.throughput_rps == pytest.approx(2 * point.batch / point.latency_s)
        assert point.length == 200
    assert SPEECH.knee(200) == found[4]
    # The curve at 500 ends at batch 2 and goes on at 60 ms a request.
    assert [point.latency_s for point in SPEECH.curve(400)] == pytest.approx([0.045, 0.078, (0.072 + 0.240) / 2])


def test_the_whole_networks_latency_is_that_of_the_longest_input():
    times = SPEECH.times()
    requests = tuple(Request(number, "net", 0.0, input_len=length) for number, length in enumerate((100, 500, 240)))
    task = Task(0, "net", requests, 0, 1)
    assert times.whole_task(task) == pytest.approx(0.180)
    assert times.whole_task(Task(0, "net", requests[2:], 0, 1)) == pytest.approx(0.030 - 0.02 * 0.3)


def test_a_profile_over_lengths_survives_its_file():
    assert Profile.from_json(SPEECH.to_json()) == SPEECH
    assert json.loads(SPEECH.to_json())["step_s"] == 0.01


def test_a_profile_of_version_2_is_still_read_and_is_of_any_length():
    body = json.loads(with_nodes().to_json())
    body["version"] = 2
    del body["step_s"]
    for point in body["points"]:
        del point["length"]
    profile = Profile.from_json(json.dumps(body))
    assert profile == with_nodes() and profile.lengths == (1.0,)
    assert profile.knee(700.0) == profile.knee()


@given(data=st.data(), lengths=st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True).map(sorted))
def test_a_knee_at_any_length_is_a_batch_that_was_profiled_near_it(data, lengths):
    seconds = st.floats(1e-6, 10.0)
    shape = [(float(length), tuple(data.draw(st.lists(seconds, min_size=1, max_size=4)))) for length in lengths]
    profile = surface(*shape)
    at = data.draw(st.floats(0.1, 200))
    knee = profile.knee(at)
    assert 0 < knee.latency_s < math.inf and 0 < knee.throughput_rps < math.inf
    assert knee.batch in {point.batch for point in profile.points}
    if at in lengths:
        assert knee in profile.points


class ByLength:
    """A tenth of a second, and a thousandth more for each unit of length of all the batch: seconds."""

    def latency(self, node, batch, length):
        return 0.1 + 0.001 * batch * length


def test_the_curves_of_modelled_hardware_are_those_of_each_length():
    times = NodeTimes(ModelGraph.opaque("net"), ByLength())
    profile = Profile.of("net", times, 7, 64, (10.0, 100.0, 1000.0), step_s=0.5)
    assert profile.lengths == (10.0, 100.0, 1000.0) and profile.step_s == 0.5
    assert [profile.knee(length).batch for length in profile.lengths] == [64, 16, 1]
    assert all(point.throughput_rps == pytest.approx(7 * point.batch / point.latency_s) for point in profile.points)


def test_curves_of_a_decoder_are_for_outputs_as_long_as_its_inputs_make_them():
    graph = ModelGraph("net", (Node("enc", ENCODER), Node("dec", DECODER)))
    times = NodeTimes(graph, measured())
    profile = Profile.of("net", times, 1, 1, (1.0, 4.0), outputs=2.0)
    assert [point.latency_s for point in profile.points] == [times.whole(1, 1.0, 2), times.whole(1, 4.0, 8)]


def test_hardware_to_which_all_inputs_are_one_length_has_one_curve():
    image = ModelGraph("net", (Node("conv", operators=(MatMul(1, 1, 1),)),))
    assert Profile.of("net", NodeTimes(image, ByLength()), 1).lengths == (1.0,)


junk = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(key=st.sampled_from(["names", "kinds", "batches", "lengths", "latency_s", None]), value=junk)
def test_junk_in_place_of_nodes_is_refused_in_one_line_or_sound(key, value):
    body = json.loads(with_nodes().to_json())
    if key is None:
        body["nodes"] = value
    else:
        body["nodes"][key] = value
    try:
        profile = Profile.from_json(json.dumps(body))
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert profile.times().whole(3, 2.0, 2) > 0


@pytest.mark.usefixtures("full_stack")
def test_a_file_nested_beyond_all_bounds_is_refused():
    with pytest.raises(UsageError, match="not a profile"):
        Profile.from_json("[" * 100_000)


@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_any_other_text_is_refused_by_name(text):
    with pytest.raises(UsageError):
        Profile.from_json(text)


@given(st.data())
def test_a_damaged_profile_is_refused_or_read_as_a_sound_one(data):
    text = with_nodes().to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    with contextlib.suppress(UsageError):
        assert Profile.from_json(damaged).knee().batch >= 1


@pytest.mark.parametrize(
    "points",
    [
        (),
        (ProfilePoint(2, 0.1, 1), ProfilePoint(1, 0.1, 1)),
        (ProfilePoint(1, 0.0, 1),),
        (ProfilePoint(0, 1.0, 1),),
        (ProfilePoint(1, math.inf, 1),),
        (ProfilePoint(1, 1.0, 1, 0.0),),
        (ProfilePoint(1, 1.0, 1, math.nan),),
        (ProfilePoint(1, 1.0, 1, 2.0), ProfilePoint(1, 1.0, 1, 1.0)),
        (ProfilePoint(1, 1.0, 1, 2.0), ProfilePoint(1, 1.0, 1, 2.0)),
    ],
)
def test_a_curve_that_no_measurement_gives_is_refused(points):
    with pytest.raises(UsageError):
        Profile("net", 1, points)
