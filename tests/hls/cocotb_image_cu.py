"""The image CU's bus protocol, run by cocotb inside the simulator; test_image_cu_protocol.py builds and starts it.

One memory lies behind all four masters, from BASE to BASE + SIZE; what is beyond it answers with SLVERR. The slaves of
cocotbext-axi check that bursts stay within 4 KiB and `wlast`; the assertions in the RTL check the rest.
"""

import itertools
import random
from collections.abc import Iterator

import cocotb
import cv2
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiResp, AxiSlaveRead, AxiSlaveWrite, AxiWriteBus

from headrace.bitstreams.kernel import parse_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.host.dpu.image import FORMATS, ImageSpec, Stage, preprocess
from headrace.host.dpu.status import Status

(KERNEL,) = parse_kernels((hls_folder() / "image_cu/kernel.xml").read_bytes())
OFFSET = {arg.name: arg.offset for arg in KERNEL.args}
ARGUMENTS = [arg for arg in KERNEL.args if not arg.is_output_register]
OUTPUTS = [arg for arg in KERNEL.args if arg.is_output_register]
COUNTERS = {
    name: 0x100 + 4 * index
    for index, name in enumerate(
        (
            "cycles", "symbols", "first_output", "last_output", "header", "wait_data", "wait_transform", "wait_rows",
            "wait_output", "wait_write",
        )
    )
}  # fmt: skip
CONTROL, GIE, IER, ISR = 0x00, 0x04, 0x08, 0x0C
START, DONE, IDLE, READY, CONTINUE = 1, 2, 4, 8, 16

CLOCK_NS = 4
BOUND = 60_000  # clocks of a run, stalls and all
BASE = 0xF_FFFE_0000
SIZE = 0x4_0000  # the upper half of an address changes within
JPEG, TENSOR, TABLES, RESULT = BASE, BASE + 0x1_0000, BASE + 0x3_8000, BASE + 0x3_C000
CENTRED = 0xFFFFFFFF


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


class Bench:
    def __init__(self, dut) -> None:
        self.dut = dut
        self.memory = Memory()
        clock, reset = dut.ap_clk, dut.ap_rst_n
        cocotb.start_soon(Clock(clock, CLOCK_NS, unit="ns").start())
        reset.value = 1
        self.control = AxiLiteMaster(
            AxiLiteBus.from_prefix(dut, "s_axi_control"), clock, reset, reset_active_level=False
        )
        options = {"target": self.memory, "reset_active_level": False}
        self.readers = [
            AxiSlaveRead(AxiReadBus.from_prefix(dut, f"m_axi_gmem{index}"), clock, reset, **options) for index in (0, 2)
        ]
        self.writers = [
            AxiSlaveWrite(AxiWriteBus.from_prefix(dut, f"m_axi_gmem{index}"), clock, reset, **options)
            for index in (1, 3)
        ]
        for slave in (*self.readers, *self.writers):
            slave.log.setLevel("ERROR")  # else a warning for each word beyond the memory

    async def reset(self) -> None:
        self.dut.ap_rst_n.value = 0
        await ClockCycles(self.dut.ap_clk, 5)
        self.dut.ap_rst_n.value = 1
        await ClockCycles(self.dut.ap_clk, 3)

    def stall(self, seed: int) -> None:
        """Random pauses on every channel, seldom on some and often on others."""
        control = self.control
        channels = [
            control.write_if.aw_channel, control.write_if.w_channel, control.write_if.b_channel,
            control.read_if.ar_channel, control.read_if.r_channel,
        ]  # fmt: skip
        for reader in self.readers:
            channels += [reader.ar_channel, reader.r_channel]
        for writer in self.writers:
            channels += [writer.aw_channel, writer.w_channel, writer.b_channel]
        for index, channel in enumerate(channels):
            channel.set_pause_generator(pauses(f"{seed} {index}"))

    async def read(self, offset: int) -> int:
        answer = await self.control.read(offset, 4)
        assert answer.resp == AxiResp.OKAY
        return int.from_bytes(answer.data, "little")

    async def write(self, offset: int, value: int, size: int = 4) -> None:
        answer = await self.control.write(offset, value.to_bytes(size, "little"))
        assert answer.resp == AxiResp.OKAY

    async def set(self, **arguments: int) -> None:
        for arg in ARGUMENTS:
            if arg.name in arguments:
                await self.write(arg.offset, arguments[arg.name], arg.size)

    async def done(self) -> None:
        """Poll until ap_done."""
        for _ in range(BOUND // 100):
            await ClockCycles(self.dut.ap_clk, 100)
            if await self.read(CONTROL) & DONE:
                return
        raise AssertionError(f"not done within {BOUND} clocks")

    async def outputs(self) -> list[int]:
        return [await self.read(arg.offset) for arg in OUTPUTS]

    async def counters(self) -> dict[str, int]:
        return {name: await self.read(offset) for name, offset in COUNTERS.items()}

    def record(self, address: int = RESULT) -> list[int]:
        return [int(word) for word in self.memory.at(address, 32).view("<u4")]


def pauses(seed: str) -> Iterator[bool]:
    source = random.Random(seed)
    often = source.choice((0.05, 0.3, 0.7))
    while True:
        yield source.random() < often


def jpeg(width: int, height: int, subsampling: str = "420", quality: int = 90) -> bytes:
    pixels = np.random.default_rng([width, height]).integers(0, 256, (height, width, 3), np.uint8)
    factor = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{subsampling}")
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor]
    return cv2.imencode(".jpg", cv2.GaussianBlur(pixels, (5, 5), 0), options)[1].tobytes()


class Job:
    """An image in the CU's memory, where its outputs go, and what they must be."""

    def __init__(
        self, bench: Bench, *, size=(64, 48), stage=Stage.NORMALIZE, dtype="float32", data: bytes | None = None,
        at_jpeg=JPEG, at_tensor=TENSOR, at_tables=TABLES, at_result=RESULT, trailer=0,
    ) -> None:  # fmt: skip
        self.bench = bench
        self.source_size = size
        self.data = (jpeg(*size) if data is None else data) + bytes(trailer)
        self.stage = stage
        self.at_tensor, self.at_result = at_tensor, at_result
        self.spec = ImageSpec(resize_short=40, crop_width=33, crop_height=31, dtype=dtype)
        bench.memory.at(at_jpeg, len(self.data))[:] = np.frombuffer(self.data, np.uint8)
        tables = self.spec.tables()
        words = tables.view(f"u{tables.itemsize}").astype("<u4").reshape(-1).view(np.uint8)
        bench.memory.at(at_tables, words.size)[:] = words
        self.arguments = {
            "jpeg": at_jpeg, "jpeg_bytes": len(self.data), "tensor": at_tensor, "tensor_capacity": 0x2_8000,
            "tables": at_tables, "result": at_result, "stage": int(stage), "format": FORMATS.index(dtype),
            "resize_short": self.spec.resize_short, "crop_width": self.spec.crop_width,
            "crop_height": self.spec.crop_height, "crop_x": CENTRED, "crop_y": CENTRED,
        }  # fmt: skip

    async def start(self, **changed: int) -> None:
        await self.bench.set(**{**self.arguments, **changed})
        await self.bench.write(CONTROL, START)

    async def run(self, **changed: int) -> Status:
        """Start, wait, take the status from registers and record, continue."""
        await self.start(**changed)
        await self.bench.done()
        status, *_ = await self.bench.outputs()
        await self.bench.write(CONTROL, CONTINUE)
        return Status(status)

    def expected(self):
        return preprocess(self.data, self.spec, self.stage)

    async def check(self) -> None:
        """The run that is done made OpenCV's tensor and nothing else, and told so in registers and record."""
        tensor = self.expected()
        height, width = tensor.shape[1:] if self.stage == Stage.NORMALIZE else tensor.shape[:2]
        outputs = [Status.OK, width, height, *self.source_size]
        assert await self.bench.outputs() == outputs
        assert self.bench.record(self.at_result) == [*outputs, tensor.nbytes, 0, 0]
        got = self.bench.memory.at(self.at_tensor, tensor.nbytes)
        assert np.array_equal(got, tensor.reshape(-1).view(np.uint8))
        for edge in (self.at_tensor - 64, self.at_tensor + tensor.nbytes):
            assert (self.bench.memory.at(edge, 64) == 0xA5).all(), "bytes beside the tensor were written"

    async def sound(self) -> None:
        """The same, from the start."""
        self.bench.memory.at(self.at_tensor - 64, self.expected().nbytes + 128)[:] = 0xA5
        self.bench.memory.at(self.at_result, 32)[:] = 0xA5
        assert await self.run() == Status.OK
        await self.check()


async def bench_of(dut) -> Bench:
    bench = Bench(dut)
    await bench.reset()
    return bench


# ---- Registers ----


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def registers_hold_what_was_written_byte_by_byte(dut):
    bench = await bench_of(dut)
    source = random.Random(1)
    for stalls in (False, True):
        if stalls:
            bench.stall(1)
        values = {arg.name: source.randrange(1 << 8 * arg.size) for arg in ARGUMENTS}
        await bench.set(**values)
        for arg in ARGUMENTS:
            changed = source.randrange(arg.size)
            answer = await bench.control.write(arg.offset + changed, b"\x5a")  # one strobe
            assert answer.resp == AxiResp.OKAY
            expected = bytearray(values[arg.name].to_bytes(arg.size, "little"))
            expected[changed] = 0x5A
            assert (await bench.control.read(arg.offset, arg.size)).data == bytes(expected), arg.name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def registers_that_are_not_there_read_as_zero_and_take_writes(dut):
    bench = await bench_of(dut)
    await bench.set(**{arg.name: (1 << 8 * arg.size) - 1 for arg in ARGUMENTS})
    taken = {arg.offset + byte for arg in ARGUMENTS for byte in range(0, arg.size, 4)} | {CONTROL, GIE, IER, ISR}
    for offset in [0x7FC, 0xFFC, *range(0, 0x140, 4)]:
        if offset not in taken:
            await bench.write(offset, 0xFFFFFFFF)
            assert await bench.read(offset) == 0, hex(offset)
    for offset in sorted(taken - {CONTROL, GIE, IER, ISR}):
        assert await bench.read(offset) == 0xFFFFFFFF, hex(offset)
    assert await bench.read(CONTROL) == IDLE


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def writes_take_address_and_data_in_either_order_and_reads_do_not_wait(dut):
    bench = await bench_of(dut)
    interface = bench.control.write_if
    await bench.write(OFFSET["crop_x"], 0)
    for late in (interface.aw_channel, interface.w_channel):
        late.pause = True
        writing = cocotb.start_soon(bench.write(OFFSET["crop_x"], 0x1234_5678))
        await ClockCycles(dut.ap_clk, 10)
        assert await bench.read(OFFSET["crop_x"]) == 0, "a write without its other half"
        late.pause = False
        await writing
        assert await bench.read(OFFSET["crop_x"]) == 0x1234_5678
        await bench.write(OFFSET["crop_x"], 0)


# ---- Runs ----


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def every_stage_and_format_gives_opencvs_bytes(dut):
    bench = await bench_of(dut)
    for stage in Stage:
        for dtype in FORMATS if stage == Stage.NORMALIZE else FORMATS[:1]:
            await Job(bench, stage=stage, dtype=dtype).sound()


@cocotb.test(timeout_time=6, timeout_unit="ms")
async def random_stalls_on_every_channel_change_nothing(dut):
    bench = await bench_of(dut)
    for seed, stage in enumerate((Stage.NORMALIZE, Stage.DECODE, Stage.NORMALIZE, Stage.CROP)):
        bench.stall(seed)
        size = (64, 48) if seed % 2 else (50, 45)
        await Job(bench, size=size, stage=stage, dtype=FORMATS[seed % 3]).sound()


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def buffers_may_lie_across_4_kib_and_4_gib(dut):
    bench = await bench_of(dut)
    border = 0x10_0000_0000  # 4 GiB
    assert BASE + 0x1000 < border - 0x1000 < BASE + SIZE
    for back in (0x10, 0x20, 0x1F0, 0x3F0):
        await Job(
            bench, at_tensor=border - back, at_jpeg=JPEG + 0x1000 - back, at_tables=TABLES + 0x1000 - back,
            at_result=RESULT + 0xFF0,
        ).sound()  # fmt: skip
    await Job(bench, at_jpeg=border - 0x210, at_tensor=TENSOR + 0x1_1FE0, stage=Stage.DECODE).sound()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def a_start_during_a_run_is_kept_until_after_continue(dut):
    bench = await bench_of(dut)
    bench.stall(7)
    sizes = [(64, 48), (40, 41), (57, 44)]
    jobs = [
        Job(bench, size=size, at_jpeg=JPEG + 0x4000 * index, at_tensor=TENSOR + 0x8000 * index + 0x40,
            at_result=RESULT + 0x40 * index)
        for index, size in enumerate(sizes)
    ]  # fmt: skip
    await jobs[0].start()
    while not await bench.read(CONTROL) & READY:
        pass
    assert not await bench.read(CONTROL) & (READY | IDLE), "reading clears ap_ready"
    for job, following in itertools.zip_longest(jobs, jobs[1:]):
        if following:
            await following.start()  # while `job` runs
            assert await bench.read(CONTROL) & START
        await bench.done()
        await ClockCycles(dut.ap_clk, 50)
        control = await bench.read(CONTROL)
        assert control & DONE and bool(control & START) == (following is not None)
        await job.check()
        await bench.write(CONTROL, CONTINUE)
        if following:
            assert not await bench.read(CONTROL) & DONE
    assert await bench.read(CONTROL) & (START | DONE | IDLE) == IDLE


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def done_stands_until_continue(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    await bench.write(CONTROL, CONTINUE)  # nothing is done: no effect
    await job.start()
    await bench.done()
    await bench.write(CONTROL, 0)
    await ClockCycles(dut.ap_clk, 100)
    assert await bench.read(CONTROL) & DONE
    await job.check()
    await bench.write(CONTROL, CONTINUE)
    assert await bench.read(CONTROL) == IDLE
    await job.check()  # the outputs stay


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def the_interrupt_rises_once_a_run_and_falls_when_acknowledged(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    assert await job.run() == Status.OK and not dut.interrupt_o.value  # not enabled
    assert await bench.read(ISR) == 0
    await bench.write(GIE, 1)
    await bench.write(IER, 1)
    assert (await bench.read(GIE), await bench.read(IER)) == (1, 1)
    for _ in range(2):
        await job.start()
        await with_timeout(RisingEdge(dut.interrupt_o), BOUND * CLOCK_NS, "ns")
        assert await bench.read(ISR) == 1 and await bench.read(CONTROL) & DONE
        await bench.write(ISR, 1)  # toggles
        await ClockCycles(dut.ap_clk, 4)
        assert not dut.interrupt_o.value and await bench.read(ISR) == 0
        await bench.write(CONTROL, CONTINUE)
        await job.check()
    await bench.write(IER, 2)  # ap_ready
    await job.start()
    await with_timeout(RisingEdge(dut.interrupt_o), 100 * CLOCK_NS, "ns")
    assert await bench.read(ISR) == 2
    await bench.write(GIE, 0)
    await ClockCycles(dut.ap_clk, 4)
    assert not dut.interrupt_o.value
    await bench.write(ISR, 2)
    await bench.write(IER, 0)
    assert (await bench.read(ISR), await bench.read(IER)) == (0, 0)
    await bench.done()


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def a_reset_in_mid_image_leaves_nothing_behind(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    await job.sound()
    cycles = (await bench.counters())["cycles"]
    for part in (0.02, 0.2, 0.5, 0.8, 0.97):
        bench.stall(int(100 * part))
        await job.start()
        await ClockCycles(dut.ap_clk, int(cycles * part))
        await bench.reset()
        assert await bench.read(CONTROL) == IDLE
        assert await bench.outputs() == [0] * len(OUTPUTS)
        await job.sound()


# ---- What is wrong ----


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def a_bad_pointer_ends_in_bus_error_and_the_next_run_is_sound(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    end = BASE + SIZE
    for stalls in (False, True):
        if stalls:
            bench.stall(3)
        for bad in (
            {"jpeg": 0}, {"jpeg": end}, {"tensor": 1 << 63}, {"tensor": end - 4096}, {"tables": end - 512},
            {"result": end}, {"result": end - 16},
        ):  # fmt: skip
            assert await job.run(**bad) == Status.BUS_ERROR, bad
            if "result" not in bad:
                assert bench.record()[0] == Status.BUS_ERROR
        await job.sound()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def a_file_that_runs_out_of_memory_ends_in_bus_error(dut):
    bench = await bench_of(dut)
    data = jpeg(64, 48)
    whole = Job(bench, data=data)
    for kept in (16, 256, len(data) // 2 & -16):
        start = BASE + SIZE - kept
        saved = bench.memory.at(start, kept).copy()
        bench.memory.at(start, kept)[:] = np.frombuffer(data[:kept], np.uint8)
        assert await whole.run(jpeg=start, result=TABLES - 0x40) == Status.BUS_ERROR
        bench.memory.at(start, kept)[:] = saved
    await whole.sound()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def bad_arguments_run_nothing(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    for bad in (
        {"stage": 4}, {"stage": 1 << 31}, {"format": 3}, {"jpeg": JPEG + 8}, {"tensor": TENSOR + 1},
        {"tables": TABLES + 4}, {"result": RESULT + 8},
    ):  # fmt: skip
        bench.memory.at(RESULT, 64)[:] = 0xA5
        assert await job.run(**bad) == Status.BAD_ARGUMENT, bad
        assert await bench.outputs() == [Status.BAD_ARGUMENT, 0, 0, 0, 0]
        if "result" in bad:
            assert (bench.memory.at(RESULT, 64) == 0xA5).all()
        else:
            assert bench.record() == [Status.BAD_ARGUMENT, 0, 0, 0, 0, 0, 0, 0]
    assert (bench.memory.at(TENSOR, 0x8000) == 0xA5).all()
    await job.sound()
    ignored = Job(bench, stage=Stage.CROP)  # which reads no tables
    bench.memory.at(TENSOR, 0x8000)[:] = 0xA5
    assert await ignored.run(tables=TABLES + 4) == Status.OK
    await ignored.check()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def bad_files_end_in_their_status_and_write_nothing(dut):
    bench = await bench_of(dut)
    good = Job(bench)
    for data, status in (
        (b"", Status.NOT_JPEG), (b"\xff", Status.NOT_JPEG), (bytes(5000), Status.NOT_JPEG),
        (jpeg(64, 48)[:300], Status.TRUNCATED),
    ):  # fmt: skip
        for stage in (Stage.DECODE, Stage.NORMALIZE):
            bench.memory.at(TENSOR, 0x8000)[:] = 0xA5
            assert await Job(bench, data=data, stage=stage).run() == status
            assert bench.record()[0] == status and bench.record()[5:] == [0, 0, 0]
            assert (bench.memory.at(TENSOR, 0x8000) == 0xA5).all()
    good = Job(bench)
    await good.sound()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def what_lies_behind_the_image_is_not_waited_for(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    await job.sound()
    cycles = (await bench.counters())["cycles"]
    long = Job(bench, trailer=0x8000)
    await long.sound()
    assert (await bench.counters())["cycles"] < cycles + 700  # of the trailer's 2048 words, what was under way


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def a_buffer_that_is_too_small_is_left_alone_and_the_size_is_told(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    needed = job.expected().nbytes
    assert await job.run(tensor_capacity=needed - 1) == Status.BUFFER_TOO_SMALL
    assert bench.record() == [Status.BUFFER_TOO_SMALL, 33, 31, 64, 48, needed, 0, 0]
    assert (bench.memory.at(TENSOR, needed) == 0xA5).all()
    assert await job.run(tensor_capacity=needed) == Status.OK
    await job.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def the_counters_tell_of_the_last_run(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    await bench.write(GIE, 1)
    await bench.write(IER, 1)
    await job.start()
    begin = get_sim_time("ns")
    await RisingEdge(dut.m_axi_gmem1_wvalid)
    first = (get_sim_time("ns") - begin) / CLOCK_NS
    await RisingEdge(dut.interrupt_o)
    whole = (get_sim_time("ns") - begin) / CLOCK_NS
    counters = await bench.counters()
    assert abs(counters["first_output"] - first) < 20 and abs(counters["cycles"] - whole) < 20
    assert 0 < counters["first_output"] < counters["last_output"] < counters["cycles"]
    assert 0 < counters["header"] < counters["first_output"]
    assert 0 < counters["symbols"] < counters["cycles"]
    assert counters["wait_write"] < counters["cycles"]
    await bench.write(CONTROL, CONTINUE)
    await job.check()
    assert await bench.counters() == counters
    assert await job.run(stage=9) == Status.BAD_ARGUMENT
    after = await bench.counters()
    assert after.pop("cycles") < 50 and not any(after.values())
