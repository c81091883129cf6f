"""The registers and streams of image_stream, run by cocotb inside the simulator; test_image_stream_protocol.py builds
and starts it."""

import random

import cocotb
import cv2
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb_bench import CONTINUE, CONTROL, DONE, GIE, IDLE, IER, ISR, START, pauses
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from headrace.host.dpu.units.status import Status

CLOCK_NS = 4
BOUND = 40_000  # clocks of a run, stalls and all
ARGUMENTS = {
    name: 0x10 + 8 * place
    for place, name in enumerate(("stage", "resize_short", "crop_width", "crop_height", "crop_x", "crop_y", "options"))
}
STATUS, OUT_WIDTH, OUT_HEIGHT, CYCLES = 0x50, 0x58, 0x60, 0x140


def jpeg(width: int, height: int, seed: int = 1) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.GaussianBlur(pixels, (5, 5), 0))[1].tobytes()


def decoded(data: bytes) -> bytes:
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), 1), cv2.COLOR_BGR2RGB).tobytes()


class Bench:
    """The unit with a processor at its registers, a source of files and a sink of pixels."""

    def __init__(self, dut) -> None:
        self.dut = dut
        clock, reset = dut.clk_i, dut.rst_ni
        cocotb.start_soon(Clock(clock, CLOCK_NS, unit="ns").start())
        reset.value = 1
        low = {"reset_active_level": False}
        self.control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_control"), clock, reset, **low)
        self.files = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis_jpeg"), clock, reset, **low)
        self.pixels = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis_pixels"), clock, reset, **low)
        for each in (self.files, self.pixels):
            each.log.setLevel("ERROR")

    async def reset(self) -> None:
        self.dut.rst_ni.value = 0
        await ClockCycles(self.dut.clk_i, 5)
        self.dut.rst_ni.value = 1
        await ClockCycles(self.dut.clk_i, 3)

    def stall(self, seed: int) -> None:
        self.files.set_pause_generator(pauses(f"{seed} files"))
        self.pixels.set_pause_generator(pauses(f"{seed} pixels"))
        self.control.write_if.b_channel.set_pause_generator(pauses(f"{seed} b"))
        self.control.read_if.r_channel.set_pause_generator(pauses(f"{seed} r"))

    async def read(self, offset: int) -> int:
        answer = await self.control.read(offset, 4)
        assert answer.resp == AxiResp.OKAY
        return int.from_bytes(answer.data, "little")

    async def write(self, offset: int, value: int) -> None:
        answer = await self.control.write(offset, value.to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY

    async def start(self, **arguments: int) -> None:
        for name, offset in ARGUMENTS.items():
            await self.write(offset, arguments.get(name, 0))
        await self.write(CONTROL, START)

    async def end(self) -> Status:
        """Wait for the end of the run, take its status, and give the unit free."""
        for _ in range(BOUND // 50):
            await ClockCycles(self.dut.clk_i, 50)
            if await self.read(CONTROL) & DONE:
                status = Status(await self.read(STATUS))
                await self.write(CONTROL, CONTINUE)
                return status
        raise AssertionError(f"not done within {BOUND} clocks")

    async def frame(self) -> tuple[bytes, bool]:
        """Return the bytes of an image, and whether it ended with an error. They must be there."""
        frame = self.pixels.recv_nowait(compact=False)
        kept = bytes(byte for byte, keep in zip(frame.tdata, frame.tkeep, strict=True) if keep)
        users = frame.tuser if isinstance(frame.tuser, list) else [frame.tuser] * len(frame.tdata)
        first, last = int(users[0]), int(users[-1])
        if kept:
            assert first & 1 and not any(int(user) & 1 for user in users[6:])
        return kept, bool(last & 2)


async def started(dut) -> Bench:
    bench = Bench(dut)
    await bench.reset()
    return bench


@cocotb.test()
async def files_come_out_as_pixels_whatever_pauses(dut):
    bench = await started(dut)
    for seed in range(3):
        if seed:
            bench.stall(seed)
        data = jpeg(50 + seed, 33, seed)
        await bench.files.send(data)
        await bench.start()
        assert await bench.end() == Status.OK
        assert (await bench.read(OUT_WIDTH), await bench.read(OUT_HEIGHT)) == (50 + seed, 33)
        assert await bench.frame() == (decoded(data), False)
        assert bench.pixels.empty()


@cocotb.test()
async def files_may_wait_in_front_of_their_start(dut):
    bench = await started(dut)
    bench.stall(7)
    files = [jpeg(40, 24, seed) for seed in range(3)]
    files[1] = files[1][:200]  # it ends early, and in front of the next
    for data in files:
        await bench.files.send(data)
    for data, expected in zip(files, (Status.OK, Status.TRUNCATED, Status.OK), strict=True):
        await bench.start()
        assert await bench.end() == expected
        pixels, bad = await bench.frame()
        assert bad == (expected != Status.OK) and (bad or pixels == decoded(data))


@cocotb.test()
async def a_start_during_a_run_is_kept_until_after_continue(dut):
    bench = await started(dut)
    data = jpeg(48, 32)
    await bench.files.send(data)
    await bench.start()
    while await bench.read(CONTROL) & START:
        pass
    await bench.write(CONTROL, START)
    assert await bench.read(CONTROL) & START
    assert await bench.end() == Status.OK
    await bench.files.send(data)
    assert await bench.end() == Status.OK
    assert await bench.frame() == await bench.frame() == (decoded(data), False)
    assert await bench.read(CONTROL) == IDLE


@cocotb.test()
async def the_interrupt_rises_at_the_end_and_falls_when_acknowledged(dut):
    bench = await started(dut)
    await bench.write(GIE, 1)
    await bench.write(IER, 1)
    await bench.files.send(jpeg(32, 16))
    await bench.start()
    await with_timeout(RisingEdge(dut.interrupt_o), BOUND * CLOCK_NS, "ns")
    assert await bench.read(CONTROL) & DONE and await bench.read(CYCLES) > 500
    await bench.write(ISR, 1)
    await ClockCycles(dut.clk_i, 4)
    assert not dut.interrupt_o.value


@cocotb.test()
async def a_reset_in_mid_file_leaves_nothing_behind(dut):
    bench = await started(dut)
    data = jpeg(64, 48)
    source = random.Random(1)
    for clocks in (100, 900, 1500, 2500, 4000):
        await bench.files.send(data)
        await bench.start()
        await ClockCycles(dut.clk_i, clocks + source.randrange(50))
        await bench.reset()
        bench.files.clear()
        bench.pixels.clear()
        assert await bench.read(CONTROL) == IDLE and await bench.read(STATUS) == 0
        await bench.files.send(data)
        await bench.start()
        assert await bench.end() == Status.OK
        assert await bench.frame() == (decoded(data), False)


@cocotb.test()
async def a_bad_file_ends_in_one_beat_and_is_taken_whole(dut):
    bench = await started(dut)
    bench.stall(3)
    for data, expected in (
        (bytes(900), Status.NOT_JPEG),
        (b"\xff\xd8\xff", Status.TRUNCATED),
        (jpeg(32, 16).replace(b"\xff\xc0", b"\xff\xc2"), Status.PROGRESSIVE),
    ):
        await bench.files.send(AxiStreamFrame(data))
        await bench.start()
        assert await bench.end() == expected
        assert await bench.frame() == (b"", True)
        assert bench.pixels.empty() and bench.files.empty()
    await bench.files.send(data := jpeg(33, 17))
    await bench.start()
    assert await bench.end() == Status.OK
    assert await bench.frame() == (decoded(data), False)
