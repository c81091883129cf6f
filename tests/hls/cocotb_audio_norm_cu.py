"""The bus protocol of audio_norm_cu, run by cocotb in the simulator; test_audio_norm_cu_protocol.py builds it.

What a run must give is the C++'s, byte for byte."""

import cocotb
import cocotb_bench
import numpy as np
from cocotb.triggers import ClockCycles
from cocotb_bench import BASE, SIZE, Bench
from norm_cu import STD_FLOOR, UNTOUCHED, contents, run_csim

from headrace.host.dpu.units.status import Status

MEL, TENSOR, RESULT = BASE, BASE + 0x1_8000, BASE + 0x3_C000
ROOM = 0x2_4000  # for the tensor


class Job:
    """Mel bands in the CU's memory, where its outputs go, and what they must be."""

    def __init__(
        self, bench: Bench, *, frames=141, mels=12, format=0, at_mel=MEL, at_tensor=TENSOR, at_result=RESULT
    ) -> None:
        self.bench = bench
        self.at_tensor, self.at_result = at_tensor, at_result
        rng = np.random.default_rng([frames, mels])
        mel = contents(rng.integers(-4_000_000, 1_000_000, (frames, mels)), counted=max(1, frames - 1))
        bench.memory.at(at_mel, len(mel))[:] = mel
        self.expected = run_csim(mel, frames, mels, counted=max(1, frames - 1), format=format)
        self.size = self.expected.record[3]
        self.arguments = {
            "mel": at_mel,
            "tensor": at_tensor,
            "result": at_result,
            "frames": frames,
            "counted": max(1, frames - 1),
            "mels": mels,
            "tensor_capacity": ROOM,
            "format": format,
            "std_floor": STD_FLOOR,
            "least": -(1 << 23) % 2**32,
            "mean": 0,
            "scale": 0,
        }

    async def start(self, **changed: int) -> None:
        await self.bench.set(**{**self.arguments, **changed})
        await self.bench.write(cocotb_bench.CONTROL, cocotb_bench.START)

    async def run(self, **changed: int) -> Status:
        await self.start(**changed)
        await self.bench.done()
        (status,) = await self.bench.outputs()
        await self.bench.write(cocotb_bench.CONTROL, cocotb_bench.CONTINUE)
        return Status(status)

    async def check(self) -> None:
        assert await self.bench.outputs() == [Status.OK]
        assert self.bench.record(self.at_result) == [Status.OK, *self.expected.record]
        assert np.array_equal(self.bench.memory.at(self.at_tensor, self.size), self.expected.memory[: self.size])
        for edge in (self.at_tensor - 64, self.at_tensor + self.size):
            assert (self.bench.memory.at(edge, 64) == UNTOUCHED).all(), "bytes beside the tensor were written"

    async def sound(self) -> None:
        self.bench.memory.at(self.at_tensor - 64, self.size + 128)[:] = UNTOUCHED
        self.bench.memory.at(self.at_result, 32)[:] = UNTOUCHED
        assert await self.run() == Status.OK
        await self.check()


async def bench_of(dut) -> Bench:
    return await cocotb_bench.started(Bench(dut, cocotb_bench.kernel("audio_norm_cu"), reads=(0,), writes=(1,)))


# ---- What holds of every unit ----


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def registers_hold_what_was_written_byte_by_byte(dut):
    await cocotb_bench.registers_hold_what_was_written_byte_by_byte(await bench_of(dut))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def registers_that_are_not_there_read_as_zero_and_take_writes(dut):
    await cocotb_bench.registers_that_are_not_there_read_as_zero_and_take_writes(await bench_of(dut))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def writes_take_address_and_data_in_either_order_and_reads_do_not_wait(dut):
    await cocotb_bench.writes_take_address_and_data_in_either_order_and_reads_do_not_wait(await bench_of(dut))


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def a_start_during_a_run_is_kept_until_after_continue(dut):
    bench = await bench_of(dut)
    bench.stall(7)
    jobs = [
        Job(
            bench,
            frames=frames,
            mels=mels,
            at_mel=MEL + 0x6000 * index,
            at_tensor=TENSOR + 0x8000 * index + 0x40,
            at_result=RESULT + 0x40 * index,
        )
        for index, (frames, mels) in enumerate([(141, 12), (2, 80), (60, 44)])
    ]
    await cocotb_bench.a_start_during_a_run_is_kept_until_after_continue(bench, jobs)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def done_stands_until_continue(dut):
    bench = await bench_of(dut)
    await cocotb_bench.done_stands_until_continue(bench, Job(bench))


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def the_interrupt_rises_once_a_run_and_falls_when_acknowledged(dut):
    bench = await bench_of(dut)
    await cocotb_bench.the_interrupt_rises_once_a_run_and_falls_when_acknowledged(bench, Job(bench))


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def a_reset_in_mid_run_leaves_nothing_behind(dut):
    bench = await bench_of(dut)
    await cocotb_bench.a_reset_in_mid_run_leaves_nothing_behind(bench, Job(bench))


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def the_counters_tell_of_the_last_run(dut):
    bench = await bench_of(dut)
    counters = await cocotb_bench.the_counters_tell_of_the_last_run(bench, Job(bench))
    assert 0 < counters["statistics"] < counters["first_output"]
    assert 0 < counters["wait_read"] < counters["cycles"] and counters["wait_write"] < counters["cycles"]


# ---- Runs ----


@cocotb.test(timeout_time=6, timeout_unit="ms")
async def random_stalls_on_every_channel_change_nothing(dut):
    bench = await bench_of(dut)
    for seed, (frames, mels) in enumerate([(141, 12), (1, 80), (257, 8), (40, 128), (3, 4)]):
        bench.stall(seed)
        await Job(bench, frames=frames, mels=mels, format=seed % 4).sound()


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def buffers_may_lie_across_4_kib_and_4_gib(dut):
    bench = await bench_of(dut)
    border = 0x10_0000_0000  # 4 GiB
    assert BASE + 0x1000 < border - 0x1000 < BASE + SIZE
    for back in (0x10, 0x20, 0x1F0, 0x3F0, 0x5A0):
        await Job(bench, at_tensor=border - back, at_mel=MEL + 0x1000 - back, at_result=RESULT + 0xFF0).sound()
        high = Job(bench, at_mel=border - 0x1900 - back, at_tensor=BASE + 0x3000 - back, format=1)
        await high.sound()  # the statistics, or the values, begin on the other side


# ---- What is wrong ----


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def a_bad_pointer_ends_in_bus_error_and_the_next_run_is_sound(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    end = BASE + SIZE
    for stalls in (False, True):
        if stalls:
            bench.stall(3)
        cases = (
            {"mel": 0},
            {"mel": end},
            {"mel": end - 4096},
            {"mel": BASE - 16},
            {"tensor": 1 << 63},
            {"tensor": end - 4096},
            {"result": end},
            {"result": end - 16},
        )
        for bad in cocotb_bench.some(cases, int(stalls)):
            saved = bench.memory.bytes.copy()
            assert await job.run(**bad) == Status.BUS_ERROR, bad
            if "result" not in bad and bad != {"tensor": end - 4096}:
                assert bench.record(RESULT) == [Status.BUS_ERROR, *job.expected.record]
            bench.memory.bytes[:] = saved
        await job.sound()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def random_errors_end_in_bus_error_and_the_next_run_is_sound(dut):
    bench = await bench_of(dut)
    seeds = len(cocotb_bench.some(range(16)))
    await cocotb_bench.random_errors_end_in_bus_error_and_the_next_run_is_sound(bench, Job(bench), seeds)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def bad_arguments_and_too_little_room_touch_nothing_but_the_record(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    small = job.size - 1
    for bad in (
        {"frames": 0},
        {"frames": 1 << 16},
        {"counted": 0},
        {"counted": 142},
        {"mels": 0},
        {"mels": 14},
        {"mels": 132},
        {"format": 4},
        {"mel": MEL + 8},
        {"tensor": TENSOR + 4},
        {"result": RESULT + 8},
        {"tensor_capacity": small},
    ):
        bench.memory.at(RESULT, 64)[:] = UNTOUCHED
        saved = bench.memory.bytes.copy()
        status = Status.BUFFER_TOO_SMALL if "tensor_capacity" in bad else Status.BAD_ARGUMENT
        assert await job.run(**bad) == status, bad
        assert (await bench.counters())["cycles"] < 200, "a record and nothing else"
        told = job.expected.record if "tensor_capacity" in bad else (0,) * 7
        if "result" not in bad:
            assert bench.record(RESULT) == [status, *told]
            bench.memory.at(RESULT, 32)[:] = UNTOUCHED
        assert np.array_equal(bench.memory.bytes, saved)
    await ClockCycles(dut.ap_clk, 10)
    await job.sound()
