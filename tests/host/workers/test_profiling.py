"""Profiles measured on this machine's workers: a network with a known latency gives a known curve."""

import asyncio
import sys

import pytest

from headrace.batching import Profile, UsageError
from headrace.host.workers.profiling import machine, measure_curve

# 50 ms a batch up to 4 and then 15 ms a request: throughput doubles up to batch 4 and falls beyond.
KNEE_AT_4 = """
import time, torch

class Net(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.05 if len(x) <= 4 else 0.015 * len(x))
        return x.mean((2, 3))

def net():
    return Net()
"""


def test_the_knee_of_a_network_with_a_knee_is_found_and_later_points_are_not_measured(tmp_path, monkeypatch):
    (tmp_path / "kneenet.py").write_text(KNEE_AT_4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "kneenet", raising=False)
    profile = asyncio.run(measure_curve("kneenet:net", workers=2, max_batch=32))
    assert [point.batch for point in profile.points] == [1, 2, 4, 8]
    assert profile.knee().batch == 4
    assert profile.knee().latency_s == pytest.approx(0.05, rel=0.3)
    assert profile.knee().throughput_rps == pytest.approx(2 * 4 / 0.05, rel=0.3)
    assert profile.workers == 2 and profile.machine["cpu"] == machine()["cpu"] and profile.machine["threads"] >= 1
    assert Profile.from_json(profile.to_json()) == profile


def test_an_unknown_network_is_refused_before_a_worker_starts():
    with pytest.raises(UsageError):
        asyncio.run(measure_curve("no_such_net"))


# 20 ms for every second of the longest, up to 4 s of input in all; beyond, with the square of it.
BY_LENGTH = """
import time, torch
from typing import NamedTuple
from headrace.host.dpu.audio import AudioSpec

class Encoded(NamedTuple):
    log_probs: torch.Tensor
    lengths: torch.Tensor

class Net(torch.nn.Module):
    transform = AudioSpec(longest_s=8.0)
    input_shape = "features=80x1..801,lengths=scalar:int64"

    def forward(self, features, lengths):
        batch, _, frames = features.shape
        told = int(lengths.max())
        assert told in (0, frames), f"{told} frames of {frames}"  # 0: a first batch of zeros
        time.sleep(0.02 * frames / 100 * max(1.0, batch * frames / 400) ** 2)
        return Encoded(features[:, :2].transpose(1, 2), lengths)

def net():
    return Net()
"""


@pytest.fixture
def by_length(tmp_path, monkeypatch):
    (tmp_path / "bylength.py").write_text(BY_LENGTH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bylength", raising=False)
    return "bylength:net"


def test_a_network_of_sounds_is_measured_at_each_length_in_seconds(by_length):
    profile = asyncio.run(measure_curve(by_length, workers=1, max_batch=8, lengths=(1.0, 4.0)))
    assert profile.lengths == (101.0, 401.0) and profile.step_s == 0.01
    assert [profile.knee(length).batch for length in profile.lengths] == [4, 1]
    assert profile.knee(401.0).latency_s == pytest.approx(0.08, rel=0.3)
    assert Profile.from_json(profile.to_json()) == profile


def test_without_time_each_length_has_batch_1(by_length):
    profile = asyncio.run(measure_curve(by_length, workers=1, max_batch=8, lengths=(1.0, 2.0, 8.0), limit_s=0.1))
    assert [(point.length, point.batch) for point in profile.points] == [(101.0, 1), (201.0, 1), (801.0, 1)]


@pytest.mark.parametrize("lengths", [(9.0,), (0.0,), (1.0, 1.001)])
def test_lengths_that_the_network_does_not_take_are_refused(by_length, lengths):
    with pytest.raises(UsageError, match="up to 8 s, the longest input of 'bylength:net'"):
        asyncio.run(measure_curve(by_length, workers=1, lengths=lengths))


def test_lengths_of_a_network_of_one_length_are_refused(tmp_path, monkeypatch):
    (tmp_path / "kneenet.py").write_text(KNEE_AT_4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "kneenet", raising=False)
    with pytest.raises(UsageError, match="leave --lengths out"):
        asyncio.run(measure_curve("kneenet:net", workers=1, lengths=(1.0,)))
