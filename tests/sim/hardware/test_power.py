"""Test power by utilization, energy as its integral, and the cost of requests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.hardware.gpu.mig import gpu_named, partition
from headrace.sim.hardware.gpu.power import (
    CPU,
    GPU_PARTS,
    NODE,
    Part,
    Server,
    energy_a_request_j,
    gpu_utilization,
    server,
)
from headrace.sim.system.cost import cost

SHARE = st.floats(0, 1)


@given(st.lists(st.tuples(st.floats(0.001, 100), SHARE, SHARE), min_size=1, max_size=20), st.sampled_from([*GPU_PARTS]))
def test_energy_is_the_integral_of_power(stretches, gpu):
    """A run has stretches (seconds, utilization of CPU and of GPU). Their averages give the energy."""
    machine = server(gpu, fpga=True)
    seconds, cpu, of_gpu = (np.array(column) for column in zip(*stretches, strict=True))
    integral = sum(
        sum(machine.power_w({"cpu": a, "gpu": b}).values()) * time
        for time, a, b in zip(seconds.tolist(), cpu.tolist(), of_gpu.tolist(), strict=True)
    )
    total = float(seconds.sum())
    average = {"cpu": min(1.0, float(cpu @ seconds) / total), "gpu": min(1.0, float(of_gpu @ seconds) / total)}
    assert sum(machine.energy_j(average, total).values()) == pytest.approx(integral)


@given(st.floats(0, 1000), st.floats(0, 1000), SHARE, SHARE)
def test_more_use_never_takes_less_power(idle, more, low, high):
    part = Part("part", idle, idle + more)
    low, high = sorted((low, high))
    assert idle <= part.power_w(low) <= part.power_w(high) <= idle + more


def test_a_server_without_a_dpu_pays_nothing_for_it():
    with_it, without = (server("a100-40gb", fpga=fpga).power_w({"cpu": 0.9}) for fpga in (True, False))
    assert set(with_it) - set(without) == {"fpga"}
    assert without == {"cpu": 65 + 0.9 * 115, "gpu": 57, "node": 80}


def test_a_gpu_is_used_by_the_sms_of_its_instances():
    gpu = gpu_named("a100-40gb")
    assert gpu_utilization(gpu, partition(gpu, "1g.5gb:7"), [1.0] * 7) == pytest.approx(98 / 108)
    assert gpu_utilization(gpu, partition(gpu, "3g.20gb,4g.20gb"), [1.0, 0.5]) == pytest.approx(70 / 108)
    with pytest.raises(UsageError, match="share of the time"):
        gpu_utilization(gpu, partition(gpu, "1g.5gb:7"), [1.0] * 6)


def test_energy_a_request_is_power_by_throughput():
    assert energy_a_request_j({"cpu": 100.0, "gpu": 200.0}, 600.0) == 0.5
    with pytest.raises(UsageError, match="nothing was served"):
        energy_a_request_j({"cpu": 100.0}, 0.0)


def test_cost_is_the_papers_formula():
    """1 kW for three years at 0.139 $ are 3,653 $."""
    found = cost(100.0, 1000.0, ["node", "fpga"], prices_usd={"node": 1000.0, "fpga": 500.0})
    assert (found.capex_usd, found.opex_usd) == (1500.0, pytest.approx(3652.92))
    assert found.requests_a_usd == pytest.approx(100 * 3 * 365 * 86400 / (1500 + 3652.92))


def test_the_papers_cost_ratio_wants_a_server_of_19_000_dollars():
    """The paper has 3.7 times the throughput at 3.0 times as much a dollar. For a card of 4,395 $ all other parts cost
    4,395 / (3.7 / 3.0 - 1)."""
    base = {"base": 18_835.0, "fpga": 4395.0}
    alone = cost(1.0, 0.0, ["base"], prices_usd=base)
    both = cost(3.7, 0.0, ["base", "fpga"], prices_usd=base)
    assert both.requests_a_usd / alone.requests_a_usd == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Part("x", 10, 5), "give 0 <= idle <= busy"),
        (lambda: Part("x", float("nan"), 5), "give 0 <= idle <= busy"),
        (lambda: CPU.power_w(1.1), "utilization is 0 to 1"),
        (lambda: Server((CPU, CPU)), "each with a different name"),
        (lambda: Server((CPU, NODE)).power_w({"gpu": 0.5}), "no part gpu"),
        (lambda: Server((CPU,)).energy_j({}, -1.0), "give 0 or more"),
        (lambda: server("v100", fpga=False), "choose from a100-40gb"),
        (lambda: cost(1.0, 1.0, ["abacus"]), "no price of abacus"),
        (lambda: cost(-1.0, 1.0, ["node"]), "throughput is -1"),
        (lambda: cost(1.0, float("inf"), ["node"]), "power is inf"),
        (lambda: cost(1.0, 1.0, ["node"], years=0), "give above 0"),
        (lambda: cost(1.0, 0.0, []), "give prices"),
    ],
)
def test_what_cannot_be_is_refused(call, says):
    with pytest.raises(UsageError, match=says):
        call()
