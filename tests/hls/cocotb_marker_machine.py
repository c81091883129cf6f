"""The states of marker_machine, run by cocotb inside the simulator; test_marker_machine.py builds and starts it."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from headrace.host.dpu.units.status import Status

CLOCK_NS = 4
CODE_BITS, TURN_BITS = 5, 7  # of state_t, with four bits between them
BOUND = 40  # clocks from any state to the rest
TRIES = 12  # of each code


def states(source: random.Random) -> list[int]:
    """States of every code. Their other bits are random, but no single reader has its turn: none is there to answer."""
    turns = [turn for turn in range(1 << TURN_BITS) if turn.bit_count() != 1]
    return [
        (source.choice(turns) << 4 | source.randrange(16)) << CODE_BITS | code
        for code in range(1 << CODE_BITS)
        for _ in range(TRIES)
    ]


async def started(dut) -> None:
    """Bring the machine to its rest, at the end of an empty file; all that it waits for outside is there."""
    cocotb.start_soon(Clock(dut.clk_i, CLOCK_NS, unit="ns").start())
    for name in ("start", "stop", "workspace", "have_byte", "request", "frame_unfit", "huffman_bad", "data_valid"):
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
        assert dut.busy_o.value == 0, f"{state:016b} stays"
    dut.start_i.value = 1
    await RisingEdge(dut.clk_i)
    dut.start_i.value = 0
    await ClockCycles(dut.clk_i, 2)
    assert dut.busy_o.value == 1
    await ClockCycles(dut.clk_i, BOUND)
    assert dut.busy_o.value == 0 and int(dut.status_o.value) == Status.NOT_JPEG
