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
