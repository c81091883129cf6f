"""A model graph, traffic and a router of a user's own, named as module:name."""

import sys

import pytest

from headrace.batching import UsageError
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario, scenario_of
from headrace.sim.zoo import model_graph

OWN = """
from dataclasses import dataclass

import headrace


def net():
    static = headrace.NodeKind.STATIC
    return headrace.ModelGraph("any", (headrace.Node("a", static, (headrace.MatMul(1, 1024, 1000),)),))


def no_net():
    return 7


@dataclass(frozen=True)
class Pulse:
    every_ms: float = 10.0
    size: int = 5

    def times(self, seed):
        return [number * self.every_ms / 1e3 for number in range(10) for _ in range(self.size)]


@dataclass(frozen=True)
class Falling:
    def times(self, seed):
        return [2.0, 1.0]


class First:
    def __init__(self, servers, seed):
        self.picked = []

    def pick(self, up, outstanding):
        self.picked.append(min(up))
        return self.picked[-1]


class Nobody(First):
    def pick(self, up, outstanding):
        return len(outstanding)
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the folder is added to it
    yield
    sys.modules.pop("own_parts", None)
    model_graph.cache_clear()


def result(**settings):
    return run_scenario(Scenario.of(**settings))[0].result


def test_a_graph_of_ones_own_is_simulated_under_its_whole_name():
    done = result(model="own_parts:net", policy="graph", requests=200)
    assert done["finished"] == 200 and model_graph("own_parts:net").name == "own_parts:net"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"model": "own_parts:no_net"}, "it must return a headrace.ModelGraph"),
        ({"model": "own_parts:First"}, "calling it failed: TypeError"),
        ({"model": "own_parts:nothing"}, "module own_parts has no nothing"),
        ({"model": "no_such_module:net"}, "No module named 'no_such_module'"),
        ({"model": "own_parts:net", "accelerator": "a100-40gb"}, "a graph of your own runs on --accelerator npu"),
        ({"traffic": "own_parts:Falling"}, "must return a list of rising times"),
        ({"traffic": "own_parts:First"}, "a dataclass of settings with a method times"),
        ({"traffic": "own_parts:Pulse", "size": "many"}, "--size 'many': it must be of type int"),
        ({"servers": 2, "router": "own_parts:Nobody"}, "picked 2; the servers that are up are"),
        ({"servers": 2, "router": "own_parts:net"}, "it must take servers and seed"),
        ({"servers": 2, "router": "own_parts:Missing"}, "module own_parts has no Missing"),
    ],
)
def test_what_does_not_fit_is_refused(settings, text):
    with pytest.raises(UsageError, match=text):
        result(requests=50, **settings) if "traffic" not in settings else result(**settings)


def test_traffic_of_ones_own_has_its_settings_and_comes_when_it_says():
    scenario, notes = scenario_of({"traffic": "own_parts:Pulse", "every_ms": "20", "size": 3})
    assert not notes and scenario.flat()["traffic"] == "own_parts:Pulse" and scenario.flat()["size"] == 3
    done, _ = run_scenario(scenario)
    assert done.arrivals.arrival == pytest.approx([0.02 * number for number in range(10) for _ in range(3)])
    assert scenario.having(seed=3).flat() == {**scenario.flat(), "seed": 3}


def test_a_router_of_ones_own_sends_all_to_its_server():
    alone = result(requests=300, servers=1, rate_rps=200.0)
    first = result(requests=300, servers=3, rate_rps=200.0, router="own_parts:First")
    assert first["latency_ms"] == alone["latency_ms"]
