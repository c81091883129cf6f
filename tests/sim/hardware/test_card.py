"""Test that the cells of compute units are those of the report of the RTL."""

import json

import pytest

from headrace.bitstreams.cache_folder import cache_folder
from headrace.bitstreams.kernel import parse_kernels
from headrace.bitstreams.resources import report
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import rtl_sources
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.system.card import (
    CUS,
    DELAY,
    DELAY_PS,
    HBM_PORTS,
    MASTERS,
    PATH,
    U55C,
    USABLE,
    estimated_mhz,
    reported_cells,
    share_of_card,
)


def test_the_card_is_that_of_the_report():
    assert U55C == report.U55C


@pytest.mark.slow  # synthesis, if the cache does not have it
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("module", reported_cells())
def test_a_module_takes_what_the_report_says(module):
    measured = report.measure(module, rtl_sources(), cache_folder())
    cells = measured["resources"]
    assert reported_cells()[module] == {
        **{kind: cells[kind] for kind in U55C},
        DELAY: measured["abc9_delay_ps"],
        **dict(zip(PATH, (measured["path_ps"][end] for end in ("fast", "slow")), strict=True)),
    }, json.dumps(cells)


def test_units_together_run_at_the_clock_of_the_slowest(monkeypatch):
    monkeypatch.setitem(DELAY_PS, "mel cu", 4000)
    monkeypatch.setitem(DELAY_PS, "norm cu", 3000)
    assert (estimated_mhz("mel cu"), estimated_mhz("norm cu")) == (250, 333)
    assert estimated_mhz("norm cu", "mel cu") == 250


def test_the_fullest_resource_counts(monkeypatch):
    assert share_of_card({"image cu": 4}) == ("uram", 192 / 960)
    assert share_of_card({"mel cu": 2, "norm cu": 2}) == ("uram", 76 / 960)
    monkeypatch.setitem(CUS, "image cu", {**CUS["image cu"], "uram": 0})
    assert share_of_card({"image cu": 4}) == ("lut", 4 * CUS["image cu"]["lut"] / U55C["lut"])


@pytest.mark.parametrize(
    ("name", "module"), [("image cu", "image_cu"), ("mel cu", "audio_mel_cu"), ("norm cu", "audio_norm_cu")]
)
def test_a_unit_has_the_masters_of_its_kernel(name, module):
    spec = parse_kernels((hls_folder() / module / "kernel.xml").read_bytes())[0]
    assert MASTERS[name] == len({arg.port for arg in spec.args} - {"S_AXI_CONTROL"})


def test_more_units_than_fit_a_card_are_a_warning(monkeypatch):
    usual = Scenario.of(model="resnet50", accelerator="a100-40gb", requests=100, rate_rps=100)
    monkeypatch.setitem(CUS, "image cu", {**CUS["image cu"], "uram": 20})  # so that ports are fewer than cells
    for cus, warned in ((HBM_PORTS // 2, False), (HBM_PORTS // 2 + 1, True)):
        _, found = run_scenario(usual.having(preprocess=f"dpu:{cus}"))
        assert any("34 AXI masters, and the HBM of a U55C 32 ports" in warning for warning in found) == warned
    monkeypatch.setitem(CUS, "image cu", {**CUS["image cu"], "uram": 80})
    most = int(USABLE / share_of_card({"image cu": 1})[1])
    assert most < HBM_PORTS // 2
    for cus, warned in ((most, False), (most + 1, True), (4 * most, True)):
        _, found = run_scenario(usual.having(preprocess=f"dpu:{cus}"))
        assert any("of a U55C's URAM" in warning for warning in found) == warned
