import contextlib
import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import NodeKind, NodeLatencies, Profile, ProfilePoint, UsageError
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
        "names": ("enc", "dec"), "kinds": (ENCODER, DECODER), "batches": (1, 2, 4), "lengths": (1.0, 5.0),
        "latency_s": (((1.0, 1.5, 3.5), (2.0, 3.5, 9.5)), ((0.25, 0.5, 0.5), (0.25, 0.5, 0.25))),
    }  # fmt: skip
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
    text = curve(100).to_json().replace('"version": 2', '"version": "3\\n"')
    with pytest.raises(UsageError, match=r"^profile version '3\\n' is none of \(1, 2\); measure it again$"):
        Profile.from_json(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": (), "kinds": ()}, "0 names and 0 kinds"),
        ({"kinds": (STATIC,)}, "2 names and 1 kinds"),
        ({"kinds": (DECODER, ENCODER)}, "encoder before its decoder"),
        ({"batches": ()}, "no batch sizes"),
        ({"batches": (0, 1, 2)}, "batch sizes, or one that is impossible"),
        ({"batches": (1, 2, 10**400)}, "batch sizes, or one that is impossible"),
        ({"batches": (1, 4, 4)}, "batch sizes in rising order"),
        ({"lengths": (0.0, 1.0)}, "lengths, or one that is impossible"),
        ({"lengths": (1.0, math.inf)}, "lengths, or one that is impossible"),
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
    ],
)
def test_a_curve_that_no_measurement_gives_is_refused(points):
    with pytest.raises(UsageError):
        Profile("net", 1, points)
