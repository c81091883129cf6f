"""Test the first limit of a card, by hand from the cells, ports and rates that the module names."""

import math

import pytest

from headrace.batching.errors import UsageError
from headrace.sim.system.card import HBM_PORTS, U55C, USABLE
from headrace.sim.system.limits import TENSOR_BYTES, Cu, cus_for, limits

SMALL = Cu({"lut": 19_477, "ff": 15_900, "dsp": 47, "bram36": 13, "uram": 12}, 2, 70_000, 250e6)


def by_name(*arguments):
    return {limit.name: limit for limit in limits(*arguments)}


def test_a_launch_holds_the_unit():
    assert SMALL.images_s(0) == pytest.approx(250e6 / 70_000)
    assert SMALL.images_s(100e-6) == pytest.approx(1 / (280e-6 + 100e-6))
    assert cus_for(8600, SMALL, 0) == math.ceil(8600 * 280e-6) == 3
    assert cus_for(8600, SMALL, 100e-6) == math.ceil(8600 * 380e-6) == 4


def test_a_rate_that_is_met_exactly_takes_no_further_unit():
    for cus in range(1, 200):
        assert cus_for(cus * SMALL.images_s(50e-6), SMALL, 50e-6) == cus


def test_units_end_at_cells_and_ports():
    found = by_name(SMALL, 0, 45_000, 600_000)
    for kind, have in U55C.items():
        assert found[kind.upper()].cus == int(USABLE * have / SMALL.cells[kind])
        assert found[kind.upper()].images_s == pytest.approx(found[kind.upper()].cus * SMALL.images_s(0))
    assert found["HBM ports"].cus == HBM_PORTS // 2 == 16
    four = Cu(SMALL.cells, 4, SMALL.cycles, SMALL.clock_hz)
    assert by_name(four, 0, 45_000, 600_000)["HBM ports"].cus == 8


def test_pcie_is_a_limit_of_bytes_and_the_least_limit_is_in_front():
    found = limits(SMALL, 0, 45_160, TENSOR_BYTES["float32"])
    assert [limit.images_s for limit in found] == sorted(limit.images_s for limit in found)
    assert found[0].name == "PCIe out"
    assert found[0].images_s == pytest.approx(1 / (10e-6 + 602_112 / 12e9))
    assert found[0].cus is None
    # A tensor of a quarter of the bytes leaves more: then memory ports end a card whose launches take long.
    assert limits(SMALL, 100e-6, 45_160, TENSOR_BYTES["int8"])[0].name == "HBM ports"


def test_cells_that_a_unit_does_not_have_limit_nothing():
    assert "DSP" not in by_name(Cu({**SMALL.cells, "dsp": 0}, 2, 70_000, 250e6), 0, 1, 1)


@pytest.mark.parametrize(("rate", "launch_s"), [(0, 0), (-1, 0), (float("inf"), 0), (float("nan"), 0), (1, -1e-6)])
def test_a_rate_or_launch_that_is_none_is_refused(rate, launch_s):
    with pytest.raises(UsageError, match="above 0"):
        cus_for(rate, SMALL, launch_s)
