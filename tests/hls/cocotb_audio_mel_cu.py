"""The bus protocol of audio_mel_cu, run by cocotb in the simulator; test_audio_mel_cu_protocol.py builds it.

What a run must give is the C++'s, byte for byte."""

import io
import wave

import cocotb
import cocotb_bench
import numpy as np
from cocotb.triggers import ClockCycles
from cocotb_bench import BASE, SIZE, Bench
from mel_cu import MEL, RESAMPLE, SPEC, UNTOUCHED, mel_csim

from headrace.host.dpu.units.audio_cu import registers, tables
from headrace.host.dpu.units.status import Status

FILE, TABLES, OUTPUT, RESULT = BASE, BASE + 0x4000, BASE + 0x1_8000, BASE + 0x3_C000
ROOM = 0x2_0000  # for the output


def noise(samples: int, rate: int, seed: int) -> bytes:
    """A WAV file in mono."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, rate, 0, "NONE", ""))
        out.writeframes(np.random.default_rng(seed).integers(-20000, 20000, samples).astype("<i2").tobytes())
    return file.getvalue()


class Job:
    """A sound and tables in the CU's memory, where its outputs go, and what they must be."""

    def __init__(
        self,
        bench: Bench,
        *,
        samples=700,
        rate=24000,
        stage=MEL,
        at_file=FILE,
        at_tables=TABLES,
        at_output=OUTPUT,
        at_result=RESULT,
    ) -> None:
        self.bench = bench
        self.at_output, self.at_result = at_output, at_result
        data, table = noise(samples, rate, samples), tables(SPEC, rate)
        bench.memory.at(at_file, len(data))[:] = np.frombuffer(data, np.uint8)
        bench.memory.at(at_tables, len(table))[:] = table
        self.data = np.frombuffer(data, np.uint8)
        self.expected = mel_csim(data, stage, taps_rate=rate, memory=ROOM)
        self.size = -(-self.expected.bytes // 16) * 16
        outputs = (self.expected.count, SPEC.n_mels * stage, rate, samples, self.expected.bytes, 0)
        self.record = [Status.OK, *outputs, self.expected.greatest % 2**32]
        self.arguments = {
            "wav": at_file,
            "mel": at_output,
            "tables": at_tables,
            "result": at_result,
            "wav_bytes": len(data),
            "mel_capacity": ROOM,
            "stage": stage,
            **registers(SPEC),
            "taps_rate": rate,
        }

    async def start(self, **changed: int) -> None:
        await self.bench.set(**{**self.arguments, **changed})
        await self.bench.write(cocotb_bench.CONTROL, cocotb_bench.START)

    async def run(self, **changed: int) -> Status:
        await self.start(**changed)
        await self.bench.done()
        status, *_ = await self.bench.outputs()
        await self.bench.write(cocotb_bench.CONTROL, cocotb_bench.CONTINUE)
        return Status(status)

    async def check(self) -> None:
        status, count, _, rate, samples, *_ = self.record
        assert await self.bench.outputs() == [status, count, samples, rate]
        assert self.bench.record(self.at_result) == self.record
        assert np.array_equal(self.bench.memory.at(self.at_output, self.size), self.expected.memory[: self.size])
        for edge in (self.at_output - 64, self.at_output + self.size):
            assert (self.bench.memory.at(edge, 64) == UNTOUCHED).all(), "bytes beside the output were written"

    async def sound(self) -> None:
        self.bench.memory.at(self.at_output - 64, self.size + 128)[:] = UNTOUCHED
        self.bench.memory.at(self.at_result, 32)[:] = UNTOUCHED
        assert await self.run() == Status.OK
        await self.check()


async def bench_of(dut) -> Bench:
    return await cocotb_bench.started(Bench(dut, cocotb_bench.kernel("audio_mel_cu"), reads=(0,), writes=(1,)))


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
            samples=samples,
            rate=rate,
            at_file=FILE + 0x1000 * index,
            at_tables=TABLES + 0x2000 * index,
            at_output=OUTPUT + 0x8000 * index + 0x40,
            at_result=RESULT + 0x40 * index,
        )
        for index, (samples, rate) in enumerate([(700, 24000), (300, 16000), (200, 8000)])
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


@cocotb.test(timeout_time=6, timeout_unit="ms")
async def a_reset_in_mid_run_leaves_nothing_behind(dut):
    """Not the taps either, of which a reset may come in the middle."""
    bench = await bench_of(dut)
    await cocotb_bench.a_reset_in_mid_run_leaves_nothing_behind(bench, Job(bench))


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def the_counters_tell_of_the_last_run(dut):
    bench = await bench_of(dut)
    counters = await cocotb_bench.the_counters_tell_of_the_last_run(bench, Job(bench))
    assert 384 < counters["tables"] < counters["first_output"]
    assert 0 < counters["wait_pcm"] < counters["cycles"] and counters["wait_write"] < counters["cycles"]


# ---- Runs ----


@cocotb.test(timeout_time=6, timeout_unit="ms")
async def random_stalls_on_every_channel_change_nothing(dut):
    bench = await bench_of(dut)
    cases = [(700, 24000, MEL), (0, 16000, MEL), (513, 48000, RESAMPLE), (161, 8000, MEL), (3, 32000, RESAMPLE)]
    for seed, (samples, rate, stage) in enumerate(cases):
        bench.stall(seed)
        await Job(bench, samples=samples, rate=rate, stage=stage).sound()


@cocotb.test(timeout_time=6, timeout_unit="ms")
async def buffers_may_lie_across_4_kib_and_4_gib(dut):
    bench = await bench_of(dut)
    border = 0x10_0000_0000  # 4 GiB
    assert BASE + 0x1000 < border - 0x1000 < BASE + SIZE
    for number, back in enumerate((0x10, 0x20, 0x1F0, 0x3F0, 0x5A0)):
        rate = (24000, 48000)[number % 2]  # another one each time, so that the taps are read
        await Job(bench, rate=rate, at_output=border - back, at_result=RESULT + 0xFF0).sound()
        await Job(bench, rate=72000 - rate, at_file=border - back, at_tables=border + 0x2000 - back).sound()
        await Job(bench, rate=rate, at_tables=border - back, at_output=BASE + 0x9000 - back).sound()


# ---- What is wrong ----


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def a_bad_pointer_ends_in_bus_error_and_the_next_run_is_sound(dut):
    bench = await bench_of(dut)
    end = BASE + SIZE
    for stalls in (False, True):
        if stalls:
            bench.stall(3)
        for bad in (
            {"wav": 0},
            {"wav": end},
            {"wav": end - 512},
            {"mel": 1 << 63},
            {"mel": end - 512},
            {"tables": end},
            {"tables": end - 4096},
            {"result": end},
            {"result": end - 16},
        ):
            await Job(bench, samples=50, rate=48000).sound()  # so that taps are read
            job = Job(bench)
            saved = bench.memory.bytes.copy()
            bench.memory.at(end - 512, 512)[:] = job.data[:512]  # a file that goes on behind the memory
            assert await job.run(**bad) == Status.BUS_ERROR, bad
            if "result" not in bad and "mel" not in bad:
                assert bench.record(RESULT)[0] == Status.BUS_ERROR
            bench.memory.bytes[:] = saved
            await job.sound()  # with taps that the run before may have left half loaded


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def random_errors_end_in_bus_error_and_the_next_run_is_sound(dut):
    bench = await bench_of(dut)
    seeds = len(cocotb_bench.some(range(8)))
    await cocotb_bench.random_errors_end_in_bus_error_and_the_next_run_is_sound(bench, Job(bench, samples=300), seeds)


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def bad_arguments_and_too_little_room_touch_nothing_but_the_record(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    for bad in (
        {"stage": 2},
        {"mels": 0},
        {"mels": 14},
        {"mels": 132},
        {"preemphasis": 1 << 24},
        {"left_out": 2},
        {"plan": 6},
        {"min_samples": 2, "max_samples": 1},
        {"taps_rate": 24001},
        {"wav": FILE + 8},
        {"mel": OUTPUT + 4},
        {"tables": TABLES + 2},
        {"result": RESULT + 8},
        {"mel_capacity": job.expected.bytes - 1},
    ):
        bench.memory.at(RESULT, 64)[:] = UNTOUCHED
        saved = bench.memory.bytes.copy()
        small = "mel_capacity" in bad
        assert await job.run(**bad) == (Status.BUFFER_TOO_SMALL if small else Status.BAD_ARGUMENT), bad
        if not small:
            assert (await bench.counters())["cycles"] < 200, "a record and nothing else"
        if "result" not in bad:
            told = [Status.BUFFER_TOO_SMALL, *job.record[1:]] if small else [Status.BAD_ARGUMENT, *(0,) * 7]
            assert bench.record(RESULT) == told
            bench.memory.at(RESULT, 32)[:] = UNTOUCHED
        assert np.array_equal(bench.memory.bytes, saved)
    await ClockCycles(dut.ap_clk, 10)
    await job.sound()
