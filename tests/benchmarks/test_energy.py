"""The estimate of energy: toggles of a SAIF file, cells of units, and the figures of docs/results/energy.md."""

import json
import subprocess
import sys

import pytest

from benchmarks import energy, energy_model
from benchmarks.energy_model import Activity, Range, dynamic_joules
from headrace.batching import HeadraceError
from headrace.sim.system.card import U55C, reported_cells

FIGURES = json.loads((energy.ROOT / "docs" / "results" / "measured" / "energy.json").read_text())
SAIF = r"""(SAIFILE
(DIVIDER / )
(TIMESCALE 1ps)
(DURATION 4000)
  (INSTANCE kernel
    (NET
      (ap_clk (T0 2000) (T1 2000) (TZ 0) (TX 0) (TB 0) (TC 80))
    )
    (INSTANCE image_cu
      (NET
        (ap_clk (T0 2000) (T1 2000) (TZ 0) (TX 0) (TB 0) (TC 80))
        (ap_rst_n (T0 0) (T1 4000) (TZ 0) (TX 0) (TB 0) (TC 1))
        (busy (T0 1) (T1 3999) (TZ 0) (TX 0) (TB 0) (TC 4))
      )
      (INSTANCE u_decode
        (NET
          (state_q\[0\] (T0 1) (T1 3999) (TZ 0) (TX 0) (TB 0) (TC 10))
          (state_q\[1\] (T0 1) (T1 3999) (TZ 0) (TX 0) (TB 0) (TC 30))
          (wire_d (T0 1) (T1 3999) (TZ 0) (TX 0) (TB 0) (TC 8))
        )
        (INSTANCE gen_progressive
          (NET
            (room (T0 1) (T1 3999) (TZ 0) (TX 0) (TB 0) (TC 2))
          )
          (INSTANCE u_bands
            (NET
              (memory[3]\[7\] (T0 1) (T1 3999) (TZ 0) (TX 0) (TB 0) (TC 99))
              (row_q2[1]\[0\] (T0 1) (T1 3999) (TZ 0) (TX 0) (TB 0) (TC 6))
            )
          )
        )
      )
    )
  )
)
"""


def test_toggles_belong_to_the_innermost_unit_and_memories_do_not_count():
    clocks, toggles = energy.read_saif(SAIF.splitlines(), "image_cu")
    assert clocks == 40
    assert {name: (each.bits, each.counts) for name, each in toggles.items()} == {
        "rest": ({True: 0, False: 1}, {True: 0, False: 4}),
        "decode": ({True: 2, False: 2}, {True: 40, False: 10}),
        "progressive_decoder": ({True: 1, False: 0}, {True: 6, False: 0}),
    }
    assert toggles["decode"].activity(clocks) == Activity(registers=0.5, nets=0.125)
    assert toggles["rest"].activity(clocks) == Activity(registers=0.0, nets=0.1)


def test_a_unit_that_the_simulation_lacks_is_an_error_and_not_a_unit_at_rest():
    with pytest.raises(HeadraceError, match=r"of image_cu has no instance of unit 'resize'"):
        given = energy.Input("a", "image", "4:2:0", 1.0, b"")
        energy.row_of(given, "image_cu", *energy.read_saif(SAIF.splitlines(), "image_cu"))


@pytest.mark.parametrize("kernel", energy.UNITS)
def test_each_cell_of_a_compute_unit_is_in_one_unit(kernel):
    for kind in U55C:
        counts = [cells[kind] for cells in energy.CELLS[kernel].values()]
        assert min(counts) >= 0 and sum(counts) == pytest.approx(reported_cells()[kernel][kind])


def test_a_unit_at_rest_takes_the_energy_of_its_clocks_and_memories():
    cells = {"lut": 10, "ff": 20, "dsp": 2, "bram36": 3, "uram": 4}
    at_rest = dynamic_joules(cells, Activity(0.0, 0.0), 100)
    assert {name for name, joules in at_rest.items() if joules.high} == {"clocks", "block RAM", "UltraRAM"}
    at_work = dynamic_joules(cells, Activity(0.25, 0.5), 100)
    assert all(0 < each.low <= each.high for each in at_work.values())
    lut, net = (energy_model.JOULES[kind] for kind in ("lut", "net"))
    assert at_work["luts"].low == pytest.approx(lut.low * 10 * 0.5 * 100)
    assert at_work["luts"].high == pytest.approx(2 * lut.high * 10 * 0.5 * 100)  # glitches
    assert at_work["nets"].low == pytest.approx(net.low * (10 * 0.5 + 20 * 0.25) * 100)


def test_the_energy_of_a_cell_is_that_of_the_reports():
    """One of each kind, by hand."""
    clocks = energy_model.JOULES["clocks"]
    assert clocks.low == pytest.approx(0.926 / 155271 / 250e6) and clocks.high == pytest.approx(0.261 / 45588 / 200e6)
    assert energy_model.JOULES["net"].high == pytest.approx(2.626 / 530296 / 250e6 / 0.125)
    assert energy_model.JOULES["uram"] == Range(
        pytest.approx(0.708 / 624 / (1e9 / 5.6)), pytest.approx(0.054 / 6 / 200e6)
    )


def test_the_figures_of_the_page_follow_from_its_toggles_and_cells():
    assert FIGURES["cell_joules"] == energy.plain(energy_model.JOULES)
    assert FIGURES["reports"] == energy.plain(energy_model.REPORTS)
    for kept, computed in zip(
        FIGURES["summary"], energy.plain(energy.summarise(FIGURES["files"], FIGURES["cells"])), strict=True
    ):
        assert kept.keys() == computed.keys()
        for name in ("amount", "clocks", "joules", "watts", "static_joules", "cpu_ms", "cpu_joules"):
            assert kept[name] == pytest.approx(computed[name], rel=1e-3), name
        for part in ("cells", "units", "toggles"):
            for name, pair in computed[part].items():
                assert kept[part][name] == pytest.approx(pair, rel=1e-3), name


@pytest.mark.parametrize("option", ["--images", "--audio"])
def test_a_folder_without_files_is_refused(option, tmp_path):
    command = [sys.executable, "-m", "benchmarks.energy", option, str(tmp_path)]
    done = subprocess.run(command, cwd=energy.ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and option in done.stderr
