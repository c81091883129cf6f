"""Test that random runs of the simulator give, bit for bit, what scripts/golden_scenarios.py recorded."""

import json
import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCENARIOS = json.loads((HERE / "golden_scenarios.json").read_text())
RESULT = runpy.run_path(str(HERE.parents[1] / "scripts" / "golden_scenarios.py"))["result"]
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_results_are_the_same_to_the_bit(part):
    for scenario in SCENARIOS[part::PARTS]:
        assert RESULT(scenario["options"]) == scenario["result"], " ".join(scenario["options"])


def test_every_policy_and_each_kind_of_hardware_is_among_them():
    words = {word for scenario in SCENARIOS for word in scenario["options"]}
    assert len(SCENARIOS) == 200
    assert {"npu", "v100", "a100-40gb", "h100", "--servers", "--drop-late", "--stream", "mmpp"} <= words
    policies = ("serial", "graph", "static", "work-conserving", "bucketed-graph", "dynamic-graph", "cellular", "lazy")
    assert {*policies, "oracle", "preba", "smdp", "preba-lazy", "deferred", "earliest-deadline"} <= words
