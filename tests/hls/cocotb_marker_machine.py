"""The states of marker_machine, run by cocotb inside the simulator; test_marker_machine.py builds and starts it."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from headrace.host.dpu.units.status import Status

CLOCK_NS = 4
# Bits of state_t: one for each state, of which those in front are the readers', and one that goes with the state.
STATE_BITS, TURN_BITS = 26, 7
BOUND = 40  # clocks from any state to the rest
TRIES = 200  # of random bits


def states(source: random.Random) -> list[int]:
    """No state, each state and each two, with and without what goes with them; and random bits.

    No single reader has its turn: none is there to answer."""
    bits = [0, *(1 << first | 1 << second for first in range(STATE_BITS) for second in range(first + 1))]
    bits += [source.getrandbits(STATE_BITS) for _ in range(TRIES)]
    turns = STATE_BITS - TURN_BITS
    return [state << 1 | takes for state in bits if (state >> turns).bit_count() != 1 for takes in (0, 1)]


async def started(dut) -> None:
    """Bring the machine to its rest, at the end of an empty file; all that it waits for outside is there."""
    cocotb.start_soon(Clock(dut.clk_i, CLOCK_NS, unit="ns").start())
    for name in (
        "start",
        "stop",
        "workspace",
        "have_byte",
        "request",
        "over",
        "frame_unfit",
        "tables_bad",
        "data_valid",
    ):
        getattr(dut, f"{name}_i").value = 0
    for name in ("ended", "scan_ready", "token_ready", "huffman_drained", "data_over", "progression_done"):
        getattr(dut, f"{name}_i").value = 1
    dut.rst_ni.value = 0
    await ClockCycles(dut.clk_i, 3)
    dut.rst_ni.value = 1
    await RisingEdge(dut.clk_i)


@cocotb.test()
async def a_state_that_is_none_leads_to_the_rest(dut):
    """An upset may leave any bits: the machine does not wait for ever, and reads the next file."""
    await started(dut)
    for state in states(random.Random(1)):
        dut.state_q.value = state
        await ClockCycles(dut.clk_i, BOUND)
        assert dut.busy_o.value == 0, f"{state:027b} stays"
    dut.start_i.value = 1
    await RisingEdge(dut.clk_i)
    dut.start_i.value = 0
    await ClockCycles(dut.clk_i, 2)
    assert dut.busy_o.value == 1
    await ClockCycles(dut.clk_i, BOUND)
    assert dut.busy_o.value == 0 and int(dut.status_o.value) == Status.NOT_JPEG
