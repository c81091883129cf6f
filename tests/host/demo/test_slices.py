"""The policies for speech on simulated slices."""

import pytest
from rich.console import Console

from headrace.host.demo.options import DemoOptions
from headrace.host.demo.report import simulated as report
from headrace.host.demo.runs.slices import REQUESTS, SpeechOnSlices, speech_on_slices


@pytest.fixture(scope="module")
def speech() -> SpeechOnSlices:
    return speech_on_slices(DemoOptions([]))


def test_at_equal_load_preba_serves_speech_in_time_and_policies_that_know_no_lengths_do_not(speech):
    assert list(speech.results) == ["serial", "graph", "preba"]
    late = {name: result["sla_violation_rate"] for name, result in speech.results.items()}
    assert late["preba"] < 0.01 < 0.5 < late["graph"] < late["serial"]
    assert all(result["finished"] == REQUESTS for result in speech.results.values())
    assert speech.results["preba"]["latency_ms"]["p99"] < 1e3 * speech.slo_s


def test_a_policy_with_limits_gets_those_of_the_mean_length(speech):
    assert speech.settings["graph"] == {"max_batch": 4, "window_ms": pytest.approx(8.4, abs=0.1)}
    assert speech.settings["serial"] == speech.settings["preba"] == {}


def test_the_report_has_the_numbers_of_the_simulation(speech):
    assert report.speech_line(speech).startswith("Speech, simulated: at 405 clips/s of all lengths on 7 slices, 98% of")
    strip = report.speech_strip(speech)
    assert strip.simulated and strip.panels[2].shown == {"serial": "98%", "graph": "80%", "preba": "0%"}
    console = Console(record=True, width=120)
    report.speech_table(speech).print(console)
    assert "Simulated, not run" in console.export_text()
    body = report.speech_json(speech)
    assert [run["policy"] for run in body["runs"]] == ["serial", "graph", "preba"] and "nothing" in body["note"]
