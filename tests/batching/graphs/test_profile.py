import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import Profile, ProfilePoint, UsageError


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


@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_any_other_text_is_refused_by_name(text):
    with pytest.raises(UsageError):
        Profile.from_json(text)


@given(st.data())
def test_a_damaged_profile_is_refused_or_read_as_a_sound_one(data):
    text = curve(100, 150, 155).to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    with contextlib.suppress(UsageError):
        assert Profile.from_json(damaged).knee().batch >= 1


@pytest.mark.parametrize(
    "points",
    [(), (ProfilePoint(2, 0.1, 1), ProfilePoint(1, 0.1, 1)), (ProfilePoint(1, 0.0, 1),), (ProfilePoint(0, 1.0, 1),)],
)
def test_a_curve_that_no_measurement_gives_is_refused(points):
    with pytest.raises(UsageError):
        Profile("net", 1, points)
