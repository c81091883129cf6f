"""Profiles of networks. Stand-ins for workers, in virtual time, have a known latency and so a known curve.

Real workers run the same networks without looking at the clock.
"""

import asyncio
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from virtual_time import run

from headrace.batching import Profile, UsageError
from headrace.host.workers.messages import read_whole
from headrace.host.workers.process import RunTimes
from headrace.host.workers.profiling import batches
from headrace.host.workers.profiling.batches import machine, measure_curve

ONE_LENGTH = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x.mean((2, 3))

def net():
    return Net()
"""


class StandIn:
    """A worker whose batches take `latency_s(batch, length)` of the loop's time; length 1 if inputs have one length."""

    def __init__(self, latency_s: Callable[[int, int], float]) -> None:
        self._latency_s = latency_s

    async def start(self) -> None:
        pass

    async def stop(self) -> str:
        return ""

    async def run(self, message: bytes, timeout_s: float) -> RunTimes:
        _, slots, lengths = read_whole(memoryview(message))
        latency_s = self._latency_s(len(slots), max(lengths[0]) if lengths else 1)
        assert latency_s < timeout_s
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(latency_s)
        return RunTimes(began, began, began + latency_s, b"")


@pytest.fixture
def stand_ins(monkeypatch):
    """Replace all processes by workers of a given latency, and the clock by the loop's time."""

    def put(latency_s: Callable[[int, int], float]) -> None:
        monkeypatch.setattr(batches, "processes", lambda program, devices: [StandIn(latency_s) for _ in devices])
        clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
        monkeypatch.setattr(batches, "time", clock)

    return put


@pytest.fixture
def one_length(tmp_path, monkeypatch):
    (tmp_path / "onelength.py").write_text(ONE_LENGTH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "onelength", raising=False)
    return "onelength:net"


def test_the_knee_of_a_network_with_a_knee_is_found_and_later_points_are_not_measured(one_length, stand_ins):
    # 50 ms a batch up to 4 and then 15 ms a request: throughput doubles up to batch 4 and falls beyond.
    stand_ins(lambda batch, _: 0.05 if batch <= 4 else 0.015 * batch)
    profile = run(measure_curve(one_length, workers=2, max_batch=32))
    assert [point.batch for point in profile.points] == [1, 2, 4, 8]
    assert profile.knee().batch == 4
    assert profile.knee().latency_s == pytest.approx(0.05)
    assert profile.knee().throughput_rps == pytest.approx(2 * 4 / 0.05)
    assert profile.workers == 2 and profile.machine["cpu"] == machine()["cpu"] and profile.machine["threads"] >= 1
    assert Profile.from_json(profile.to_json()) == profile


def test_worker_processes_are_measured(one_length, monkeypatch):
    monkeypatch.setattr(batches, "TIME_PER_POINT_S", 0.01)
    profile = asyncio.run(measure_curve(one_length, workers=2, max_batch=1))
    (point,) = profile.points
    assert point.batch == 1 and 0 < point.latency_s < 30
    assert point.throughput_rps > 0 and profile.workers == 2


def test_an_unknown_network_is_refused_before_a_worker_starts():
    with pytest.raises(UsageError):
        asyncio.run(measure_curve("no_such_net"))


BY_LENGTH = """
import torch
from typing import NamedTuple
from headrace.host.dpu.specs import AudioSpec

class Encoded(NamedTuple):
    log_probs: torch.Tensor
    lengths: torch.Tensor

class Net(torch.nn.Module):
    transform = AudioSpec(longest_s=8.0)
    input_shape = "features=80x1..801,lengths=scalar:int64"

    def forward(self, features, lengths):
        frames = features.shape[2]
        told = int(lengths.max())
        assert told in (0, frames), f"{told} frames of {frames}"  # 0: a first batch of zeros
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


def test_a_network_of_sounds_is_measured_at_each_length_in_seconds(by_length, stand_ins):
    # 20 ms for every second of the longest, up to 4 s of input in all; beyond, with the square of it.
    stand_ins(lambda batch, frames: 0.02 * frames / 100 * max(1.0, batch * frames / 400) ** 2)
    profile = run(measure_curve(by_length, workers=1, max_batch=8, lengths=(1.0, 4.0)))
    assert profile.lengths == (101.0, 401.0) and profile.step_s == 0.01
    assert [profile.knee(length).batch for length in profile.lengths] == [4, 1]
    assert profile.knee(401.0).latency_s == pytest.approx(0.08, rel=0.02)
    assert Profile.from_json(profile.to_json()) == profile


def test_batches_that_would_end_after_the_limit_are_not_begun(by_length, stand_ins):
    stand_ins(lambda _, frames: 0.001 * frames)  # the first length has half the time; a batch of the second needs 3.2 s
    profile = run(measure_curve(by_length, workers=1, max_batch=8, lengths=(1.0, 8.0), limit_s=8.0))
    short = [(101.0, batch) for batch in (1, 2, 4, 8)]
    assert [(point.length, point.batch) for point in profile.points] == [*short, (801.0, 1)]


def test_without_time_each_length_has_batch_1(by_length, monkeypatch):
    monkeypatch.setattr(batches, "TIME_PER_POINT_S", 0.01)
    profile = asyncio.run(measure_curve(by_length, workers=1, max_batch=8, lengths=(1.0, 2.0, 8.0), limit_s=0.0))
    assert [(point.length, point.batch) for point in profile.points] == [(101.0, 1), (201.0, 1), (801.0, 1)]


@pytest.mark.parametrize("lengths", [(9.0,), (0.0,), (1.0, 1.001)])
def test_lengths_that_the_network_does_not_take_are_refused(by_length, lengths):
    with pytest.raises(UsageError, match="up to 8 s, the longest input of 'bylength:net'"):
        asyncio.run(measure_curve(by_length, workers=1, lengths=lengths))


def test_lengths_of_a_network_of_one_length_are_refused(one_length):
    with pytest.raises(UsageError, match="leave --lengths out"):
        asyncio.run(measure_curve(one_length, workers=1, lengths=(1.0,)))


JOINED = """
import torch

class Net(torch.nn.Module):
    input_shape = {"pixel_values": "1..256+x12", "image_grid_thw": "3:int64"}

    def forward(self, pixel_values, image_grid_thw):
        assert image_grid_thw.prod(1).sum() == len(pixel_values), "grids of other patches"
        return torch.stack([each.mean(0) for each in pixel_values.split(image_grid_thw.prod(1).tolist())])

def net():
    return Net()
"""


@pytest.fixture
def joined(tmp_path, monkeypatch):
    (tmp_path / "joined.py").write_text(JOINED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "joined", raising=False)
    return "joined:net"


def test_a_network_with_joined_inputs_is_measured_up_to_the_tokens_of_a_batch(joined, stand_ins):
    stand_ins(lambda batch, tokens: 0.01 + 0.0001 * batch * tokens)
    profile = run(measure_curve(joined, workers=1, max_batch=16, max_batch_tokens=300))
    assert profile.joined and profile.lengths == (16.0, 64.0, 256.0)
    assert max(point.batch * point.length for point in profile.points) == 256
    assert [len(profile.curve(length)) for length in profile.lengths] == [5, 3, 1]
    assert Profile.from_json(profile.to_json()) == profile
    short = run(measure_curve(joined, workers=1, max_batch=16, max_batch_tokens=50))
    assert short.lengths == (16.0, 48.0)


def test_workers_run_joined_batches_with_their_grids(joined, monkeypatch):
    monkeypatch.setattr(batches, "TIME_PER_POINT_S", 0.01)
    profile = asyncio.run(measure_curve(joined, workers=1, max_batch=4, max_batch_tokens=64))
    assert profile.lengths == (16.0, 64.0) and all(point.latency_s > 0 for point in profile.points)
