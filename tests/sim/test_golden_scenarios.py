"""Test that random runs of the simulator give, bit for bit, what scripts/golden_scenarios.py recorded."""

import json
import runpy
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCENARIOS = json.loads((HERE / "golden_scenarios.json").read_text())
RESULT = runpy.run_path(str(HERE.parents[1] / "scripts" / "golden_scenarios.py"))["result"]
PARTS = 10


def rounded(value):
    """Return a result as it is, or, since Python 3.12, with 12 digits: there sum() rounds floats in another way."""
    if sys.version_info < (3, 12):
        return value
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


@pytest.mark.quick(4)
@pytest.mark.parametrize("part", range(PARTS))
def test_results_are_the_same_to_the_bit(part):
    for scenario in SCENARIOS[part::PARTS]:
        assert rounded(RESULT(scenario["options"])) == rounded(scenario["result"]), " ".join(scenario["options"])


def test_every_policy_and_each_kind_of_hardware_is_among_them():
    words = {word for scenario in SCENARIOS for word in scenario["options"]}
    assert len(SCENARIOS) == 200
    assert {"npu", "v100", "a100-40gb", "h100", "--servers", "--drop-late", "--stream", "mmpp"} <= words
    policies = ("serial", "graph", "static", "work-conserving", "bucketed-graph", "dynamic-graph", "cellular", "lazy")
    assert {*policies, "oracle", "preba", "smdp", "preba-lazy", "deferred", "earliest-deadline"} <= words
