"""What the cocotb tests of the compute units share: registers, memory behind the masters, tests that every unit passes.

One memory lies behind all masters, from BASE to BASE + SIZE; what is beyond it answers with SLVERR. It also answers
with random errors if a test asks for them. The slaves of cocotbext-axi check that bursts stay within 4 KiB and `wlast`;
the assertions in the RTL check the rest.
"""

import itertools
import os
import random
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiResp, AxiSlaveRead, AxiSlaveWrite, AxiWriteBus

from headrace.bitstreams.kernel import KernelSpec, parse_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.host.dpu.units.status import Status

CONTROL, GIE, IER, ISR = 0x00, 0x04, 0x08, 0x0C
START, DONE, IDLE, READY, CONTINUE = 1, 2, 4, 8, 16

CLOCK_NS = 4
BOUND = 60_000  # clocks of a run, stalls and all
BASE = 0xF_FFFE_0000
SIZE = 0x4_0000  # the upper half of an address changes within


Case = TypeVar("Case")


def some(cases: Sequence[Case], first: int = 0) -> Sequence[Case]:
    """Return every second of the cases in `make test`, and all of them in the slow tests."""
    return cases if os.environ.get("HEADRACE_EVERY_CASE") else cases[first::2]


def kernel(name: str) -> KernelSpec:
    return parse_kernels((hls_folder() / name / "kernel.xml").read_bytes())[0]


class Memory:
    """What all masters see; an exception becomes SLVERR."""

    def __init__(self) -> None:
        self.bytes = np.full(SIZE, 0xA5, np.uint8)

    def at(self, address: int, length: int):
        """A view of `length` bytes. Raises IndexError beyond the memory."""
        if not BASE <= address <= BASE + SIZE - length:
            raise IndexError(hex(address))
        return self.bytes[address - BASE : address - BASE + length]

    async def read(self, address: int, length: int) -> bytes:
        return self.at(address, length).tobytes()

    async def write(self, address: int, data: bytes) -> None:
        self.at(address, len(data))[:] = np.frombuffer(bytes(data), np.uint8)


class Errors:
    """Random SLVERR and DECERR in the answers of a channel, R or B, of which a read also has random data."""

    def __init__(self, channel, name: str) -> None:
        self.count = 0
        self._source, self._chance = random.Random(), 0.0
        send = channel.send

        async def answer(beat) -> None:
            if self._source.random() < self._chance:
                self.count += 1
                setattr(beat, f"{name}resp", self._source.choice((AxiResp.SLVERR, AxiResp.DECERR)))
                if name == "r":
                    beat.rdata = self._source.getrandbits(128)
            await send(beat)

        channel.send = answer

    def begin(self, seed: str, chance: float) -> None:
        self._source.seed(seed)
        self.count, self._chance = 0, chance


class Bench:
    """A unit, by its kernel.xml, with memory behind its masters: `reads` and `writes` are the numbers of the ports
    gmem that read and write."""

    def __init__(self, dut, spec: KernelSpec, reads: Sequence[int], writes: Sequence[int]) -> None:
        self.dut = dut
        self.arguments = spec.args
        self.output_registers = spec.outputs
        self.counter_registers = dict(spec.counters)
        self.memory = Memory()
        clock, reset = dut.ap_clk, dut.ap_rst_n
        cocotb.start_soon(Clock(clock, CLOCK_NS, unit="ns").start())
        reset.value = 1
        self.control = AxiLiteMaster(
            AxiLiteBus.from_prefix(dut, "s_axi_control"), clock, reset, reset_active_level=False
        )
        options = {"target": self.memory, "reset_active_level": False}
        self.addresses = [f"m_axi_gmem{index}_ar" for index in reads] + [f"m_axi_gmem{index}_aw" for index in writes]
        self.readers = [
            AxiSlaveRead(AxiReadBus.from_prefix(dut, f"m_axi_gmem{index}"), clock, reset, **options) for index in reads
        ]
        self.writers = [
            AxiSlaveWrite(AxiWriteBus.from_prefix(dut, f"m_axi_gmem{index}"), clock, reset, **options)
            for index in writes
        ]
        for slave in (*self.readers, *self.writers):
            slave.log.setLevel("ERROR")  # else a warning for each word beyond the memory
        self.read_errors = [Errors(reader.r_channel, "r") for reader in self.readers]
        self.write_errors = [Errors(writer.b_channel, "b") for writer in self.writers]

    async def reset(self) -> None:
        self.dut.ap_rst_n.value = 0
        await ClockCycles(self.dut.ap_clk, 5)
        self.dut.ap_rst_n.value = 1
        await ClockCycles(self.dut.ap_clk, 3)

    def stall(self, seed: int) -> None:
        """Random pauses on every channel, seldom on some and often on others."""
        control = self.control
        channels = [
            control.write_if.aw_channel,
            control.write_if.w_channel,
            control.write_if.b_channel,
            control.read_if.ar_channel,
            control.read_if.r_channel,
        ]
        for reader in self.readers:
            channels += [reader.ar_channel, reader.r_channel]
        for writer in self.writers:
            channels += [writer.aw_channel, writer.w_channel, writer.b_channel]
        for index, channel in enumerate(channels):
            channel.set_pause_generator(pauses(f"{seed} {index}"))

    def fail(self, seed: int, chance: float) -> None:
        """From now on beats that are read and responses to writes are errors with this chance; counts begin anew."""
        for index, errors in enumerate((*self.read_errors, *self.write_errors)):
            errors.begin(f"{seed} {index}", chance)

    async def read(self, offset: int) -> int:
        answer = await self.control.read(offset, 4)
        assert answer.resp == AxiResp.OKAY
        return int.from_bytes(answer.data, "little")

    async def write(self, offset: int, value: int, size: int = 4) -> None:
        answer = await self.control.write(offset, value.to_bytes(size, "little"))
        assert answer.resp == AxiResp.OKAY

    async def set(self, **arguments: int) -> None:
        for arg in self.arguments:
            if arg.name in arguments:
                await self.write(arg.offset, arguments[arg.name], arg.size)

    async def done(self) -> None:
        """Poll until ap_done."""
        for _ in range(BOUND // 100):
            await ClockCycles(self.dut.ap_clk, 100)
            for channel in self.addresses:  # normal memory; data
                assert getattr(self.dut, f"{channel}cache").value == 0b0011, channel
                assert getattr(self.dut, f"{channel}prot").value == 0b000, channel
            if await self.read(CONTROL) & DONE:
                return
        raise AssertionError(f"not done within {BOUND} clocks")

    async def outputs(self) -> list[int]:
        return [await self.read(offset) for offset in self.output_registers.values()]

    async def counters(self) -> dict[str, int]:
        return {name: await self.read(offset) for name, offset in self.counter_registers.items()}

    def record(self, address: int) -> list[int]:
        return [int(word) for word in self.memory.at(address, 32).view("<u4")]


def pauses(seed: str) -> Iterator[bool]:
    source = random.Random(seed)
    often = source.choice((0.05, 0.3, 0.7))
    while True:
        yield source.random() < often


class Job(Protocol):
    """A request in memory, where its outputs go, and what they must be."""

    async def start(self, **changed: int) -> None: ...

    async def run(self, **changed: int) -> Status:
        """Start, wait, take the status, continue."""
        ...

    async def check(self) -> None:
        """The run that is done made the right output and nothing else, and told so in registers and record."""
        ...

    async def sound(self) -> None:
        """The same, from the start."""
        ...


async def started(bench: Bench) -> Bench:
    await bench.reset()
    return bench


# ---- What holds of every unit ----


async def registers_hold_what_was_written_byte_by_byte(bench: Bench) -> None:
    source = random.Random(1)
    for stalls in (False, True):
        if stalls:
            bench.stall(1)
        values = {arg.name: source.randrange(1 << 8 * arg.size) for arg in bench.arguments}
        await bench.set(**values)
        for arg in bench.arguments:
            changed = source.randrange(arg.size)
            answer = await bench.control.write(arg.offset + changed, b"\x5a")  # one strobe
            assert answer.resp == AxiResp.OKAY
            expected = bytearray(values[arg.name].to_bytes(arg.size, "little"))
            expected[changed] = 0x5A
            assert (await bench.control.read(arg.offset, arg.size)).data == bytes(expected), arg.name


async def registers_that_are_not_there_read_as_zero_and_take_writes(bench: Bench) -> None:
    await bench.set(**{arg.name: (1 << 8 * arg.size) - 1 for arg in bench.arguments})
    taken = {arg.offset + byte for arg in bench.arguments for byte in range(0, arg.size, 4)} | {CONTROL, GIE, IER, ISR}
    for offset in [0x7FC, 0xFFC, *range(0, 0x180, 4)]:
        if offset not in taken:
            await bench.write(offset, 0xFFFFFFFF)
            assert await bench.read(offset) == 0, hex(offset)
    for offset in sorted(taken - {CONTROL, GIE, IER, ISR}):
        assert await bench.read(offset) == 0xFFFFFFFF, hex(offset)
    assert await bench.read(CONTROL) == IDLE


async def writes_take_address_and_data_in_either_order_and_reads_do_not_wait(bench: Bench) -> None:
    interface = bench.control.write_if
    offset = bench.arguments[-1].offset
    await bench.write(offset, 0)
    for late in (interface.aw_channel, interface.w_channel):
        late.pause = True
        writing = cocotb.start_soon(bench.write(offset, 0x1234_5678))
        await ClockCycles(bench.dut.ap_clk, 10)
        assert await bench.read(offset) == 0, "a write without its other half"
        late.pause = False
        await writing
        assert await bench.read(offset) == 0x1234_5678
        await bench.write(offset, 0)


async def a_start_during_a_run_is_kept_until_after_continue(bench: Bench, jobs: Sequence[Job]) -> None:
    await jobs[0].start()
    while not await bench.read(CONTROL) & READY:
        pass
    assert not await bench.read(CONTROL) & (READY | IDLE), "reading clears ap_ready"
    for job, following in itertools.zip_longest(jobs, jobs[1:]):
        if following:
            await following.start()  # while `job` runs
            assert await bench.read(CONTROL) & START
        await bench.done()
        await ClockCycles(bench.dut.ap_clk, 50)
        control = await bench.read(CONTROL)
        assert control & DONE and bool(control & START) == (following is not None)
        await job.check()
        await bench.write(CONTROL, CONTINUE)
        if following:
            assert not await bench.read(CONTROL) & DONE
    assert await bench.read(CONTROL) & (START | DONE | IDLE) == IDLE


async def done_stands_until_continue(bench: Bench, job: Job) -> None:
    await bench.write(CONTROL, CONTINUE)  # nothing is done: no effect
    await job.start()
    await bench.done()
    await bench.write(CONTROL, 0)
    await ClockCycles(bench.dut.ap_clk, 100)
    assert await bench.read(CONTROL) & DONE
    await job.check()
    await bench.write(CONTROL, CONTINUE)
    assert await bench.read(CONTROL) == IDLE
    await job.check()  # the outputs stay


async def the_interrupt_rises_once_a_run_and_falls_when_acknowledged(bench: Bench, job: Job) -> None:
    dut = bench.dut
    assert await job.run() == Status.OK and not dut.interrupt.value  # not enabled
    assert await bench.read(ISR) == 0
    await bench.write(GIE, 1)
    await bench.write(IER, 1)
    assert (await bench.read(GIE), await bench.read(IER)) == (1, 1)
    for _ in range(2):
        await job.start()
        await with_timeout(RisingEdge(dut.interrupt), BOUND * CLOCK_NS, "ns")
        assert await bench.read(ISR) == 1 and await bench.read(CONTROL) & DONE
        await bench.write(ISR, 1)  # toggles
        await ClockCycles(dut.ap_clk, 4)
        assert not dut.interrupt.value and await bench.read(ISR) == 0
        await bench.write(CONTROL, CONTINUE)
        await job.check()
    await bench.write(IER, 2)  # ap_ready
    await job.start()
    await with_timeout(RisingEdge(dut.interrupt), 100 * CLOCK_NS, "ns")
    assert await bench.read(ISR) == 2
    await bench.write(GIE, 0)
    await ClockCycles(dut.ap_clk, 4)
    assert not dut.interrupt.value
    await bench.write(ISR, 2)
    await bench.write(IER, 0)
    assert (await bench.read(ISR), await bench.read(IER)) == (0, 0)
    await bench.done()


async def a_reset_in_mid_run_leaves_nothing_behind(bench: Bench, job: Job) -> None:
    await job.sound()
    cycles = (await bench.counters())["cycles"]
    for part in some((0.02, 0.2, 0.5, 0.8, 0.97)):
        bench.stall(int(100 * part))
        await job.start()
        await ClockCycles(bench.dut.ap_clk, int(cycles * part))
        await bench.reset()
        assert await bench.read(CONTROL) == IDLE
        assert await bench.outputs() == [0] * len(bench.output_registers)
        await job.sound()


async def random_errors_end_in_bus_error_and_the_next_run_is_sound(bench: Bench, job: Job, seeds: int) -> None:
    found = 0
    for seed in range(seeds):
        bench.fail(seed, (0.002, 0.02, 0.4)[seed % 3])
        if seed % 4 == 3:
            bench.stall(seed)
        status = await job.run()
        reads = sum(errors.count for errors in bench.read_errors)
        writes = sum(errors.count for errors in bench.write_errors)
        bench.fail(seed, 0)
        if writes or status == Status.BUS_ERROR:
            assert status == Status.BUS_ERROR and reads + writes, seed
            found += 1
        else:  # errors only in words that were not needed
            assert status == Status.OK, seed
            await job.check()
        await job.sound()
    assert found > seeds / 3


async def the_counters_tell_of_the_last_run(bench: Bench, job: Job) -> dict[str, int]:
    dut = bench.dut
    await bench.write(GIE, 1)
    await bench.write(IER, 1)
    await job.start()
    begin = get_sim_time("ns")
    await RisingEdge(dut.m_axi_gmem1_wvalid)
    first = (get_sim_time("ns") - begin) / CLOCK_NS
    await RisingEdge(dut.interrupt)
    whole = (get_sim_time("ns") - begin) / CLOCK_NS
    counters = await bench.counters()
    assert abs(counters["first_output"] - first) < 20 and abs(counters["cycles"] - whole) < 20
    assert 0 < counters["first_output"] < counters["last_output"] < counters["cycles"]
    await bench.write(CONTROL, CONTINUE)
    await job.check()
    return counters
