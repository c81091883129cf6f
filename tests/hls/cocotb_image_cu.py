"""The image CU's bus protocol, run by cocotb inside the simulator; test_image_cu_protocol.py builds and starts it."""

import cocotb
import cocotb_bench
import cv2
import numpy as np
from cocotb_bench import BASE, CONTINUE, CONTROL, SIZE, START, Bench

from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import IMAGE_FORMATS, ImageSpec, ImageStage
from headrace.host.dpu.units.status import Status

JPEG, TENSOR, TABLES, RESULT = BASE, BASE + 0x1_0000, BASE + 0x3_8000, BASE + 0x3_C000
CENTRED = 0xFFFFFFFF


def jpeg(width: int, height: int, subsampling: str = "420", quality: int = 90) -> bytes:
    pixels = np.random.default_rng([width, height]).integers(0, 256, (height, width, 3), np.uint8)
    factor = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{subsampling}")
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor]
    return cv2.imencode(".jpg", cv2.GaussianBlur(pixels, (5, 5), 0), options)[1].tobytes()


class Job:
    """An image in the CU's memory, where its outputs go, and what they must be."""

    def __init__(
        self,
        bench: Bench,
        *,
        size=(64, 48),
        stage=ImageStage.NORMALIZE,
        dtype="float32",
        data: bytes | None = None,
        at_jpeg=JPEG,
        at_tensor=TENSOR,
        at_tables=TABLES,
        at_result=RESULT,
        trailer=0,
    ) -> None:
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
            "jpeg": at_jpeg,
            "jpeg_bytes": len(self.data),
            "tensor": at_tensor,
            "tensor_capacity": 0x2_8000,
            "tables": at_tables,
            "result": at_result,
            "stage": int(stage),
            "format": IMAGE_FORMATS.index(dtype),
            "resize_short": self.spec.resize_short,
            "crop_width": self.spec.crop_width,
            "crop_height": self.spec.crop_height,
            "crop_x": CENTRED,
            "crop_y": CENTRED,
            "workspace": 0,
            "workspace_bytes": 0,
            "ring": 0,
            "ring_entries": 0,
            "ring_first": 0,
            "polls": 0,
            "program": 0,
            "program_bytes": 0,
        }

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
        height, width = tensor.shape[1:] if self.stage == ImageStage.NORMALIZE else tensor.shape[:2]
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
    return await cocotb_bench.started(Bench(dut, cocotb_bench.kernel("image_cu"), reads=(0, 1), writes=(1,)))


# ---- Registers ----


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def registers_hold_what_was_written_byte_by_byte(dut):
    await cocotb_bench.registers_hold_what_was_written_byte_by_byte(await bench_of(dut))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def registers_that_are_not_there_read_as_zero_and_take_writes(dut):
    await cocotb_bench.registers_that_are_not_there_read_as_zero_and_take_writes(await bench_of(dut))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def writes_take_address_and_data_in_either_order_and_reads_do_not_wait(dut):
    await cocotb_bench.writes_take_address_and_data_in_either_order_and_reads_do_not_wait(await bench_of(dut))


# ---- Runs ----


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def every_stage_and_format_gives_opencvs_bytes(dut):
    bench = await bench_of(dut)
    for stage in ImageStage:
        for dtype in IMAGE_FORMATS if stage == ImageStage.NORMALIZE else IMAGE_FORMATS[:1]:
            await Job(bench, stage=stage, dtype=dtype).sound()


@cocotb.test(timeout_time=6, timeout_unit="ms")
async def random_stalls_on_every_channel_change_nothing(dut):
    bench = await bench_of(dut)
    for seed, stage in enumerate((ImageStage.NORMALIZE, ImageStage.DECODE, ImageStage.NORMALIZE, ImageStage.CROP)):
        bench.stall(seed)
        size = (64, 48) if seed % 2 else (50, 45)
        await Job(bench, size=size, stage=stage, dtype=IMAGE_FORMATS[seed % 3]).sound()


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def buffers_may_lie_across_4_kib_and_4_gib(dut):
    bench = await bench_of(dut)
    border = 0x10_0000_0000  # 4 GiB
    assert BASE + 0x1000 < border - 0x1000 < BASE + SIZE
    for back in (0x10, 0x20, 0x1F0, 0x3F0):
        await Job(
            bench,
            at_tensor=border - back,
            at_jpeg=JPEG + 0x1000 - back,
            at_tables=TABLES + 0x1000 - back,
            at_result=RESULT + 0xFF0,
        ).sound()
    await Job(bench, at_jpeg=border - 0x210, at_tensor=TENSOR + 0x1_1FE0, stage=ImageStage.DECODE).sound()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def a_start_during_a_run_is_kept_until_after_continue(dut):
    bench = await bench_of(dut)
    bench.stall(7)
    sizes = [(64, 48), (40, 41), (57, 44)]
    jobs = [
        Job(
            bench,
            size=size,
            at_jpeg=JPEG + 0x4000 * index,
            at_tensor=TENSOR + 0x8000 * index + 0x40,
            at_result=RESULT + 0x40 * index,
        )
        for index, size in enumerate(sizes)
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
async def a_reset_in_mid_image_leaves_nothing_behind(dut):
    bench = await bench_of(dut)
    await cocotb_bench.a_reset_in_mid_run_leaves_nothing_behind(bench, Job(bench))


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
            {"jpeg": 0},
            {"jpeg": end},
            {"tensor": 1 << 63},
            {"tensor": end - 4096},
            {"tables": end - 512},
            {"result": end},
            {"result": end - 16},
        )
        for bad in cocotb_bench.some(cases, int(stalls)):
            assert await job.run(**bad) == Status.BUS_ERROR, bad
            if "result" not in bad:
                assert bench.record(RESULT)[0] == Status.BUS_ERROR
        await job.sound()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def random_errors_end_in_bus_error_and_the_next_run_is_sound(dut):
    bench = await bench_of(dut)
    seeds = len(cocotb_bench.some(range(16)))
    await cocotb_bench.random_errors_end_in_bus_error_and_the_next_run_is_sound(bench, Job(bench), seeds)


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
        {"stage": 5},
        {"stage": 1 << 31},
        {"stage": 4, "program": TABLES + 8},
        {"format": 3},
        {"jpeg": JPEG + 8},
        {"tensor": TENSOR + 1},
        {"tables": TABLES + 4},
        {"result": RESULT + 8},
    ):
        bench.memory.at(RESULT, 64)[:] = 0xA5
        assert await job.run(**bad) == Status.BAD_ARGUMENT, bad
        assert await bench.outputs() == [Status.BAD_ARGUMENT, 0, 0, 0, 0]
        if "result" in bad:
            assert (bench.memory.at(RESULT, 64) == 0xA5).all()
        else:
            assert bench.record(RESULT) == [Status.BAD_ARGUMENT, 0, 0, 0, 0, 0, 0, 0]
    assert (bench.memory.at(TENSOR, 0x8000) == 0xA5).all()
    await job.sound()
    ignored = Job(bench, stage=ImageStage.CROP)  # which reads no tables
    bench.memory.at(TENSOR, 0x8000)[:] = 0xA5
    assert await ignored.run(tables=TABLES + 4) == Status.OK
    await ignored.check()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def bad_files_end_in_their_status_and_write_nothing(dut):
    bench = await bench_of(dut)
    good = Job(bench)
    for data, status in (
        (b"", Status.NOT_JPEG),
        (b"\xff", Status.NOT_JPEG),
        (bytes(5000), Status.NOT_JPEG),
        (jpeg(64, 48)[:300], Status.TRUNCATED),
    ):
        for stage in (ImageStage.DECODE, ImageStage.NORMALIZE):
            bench.memory.at(TENSOR, 0x8000)[:] = 0xA5
            assert await Job(bench, data=data, stage=stage).run() == status
            assert bench.record(RESULT)[0] == status and bench.record(RESULT)[5:] == [0, 0, 0]
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
    assert bench.record(RESULT) == [Status.BUFFER_TOO_SMALL, 33, 31, 64, 48, needed, 0, 0]
    assert (bench.memory.at(TENSOR, needed) == 0xA5).all()
    assert await job.run(tensor_capacity=needed) == Status.OK
    await job.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def the_counters_tell_of_the_last_run(dut):
    bench = await bench_of(dut)
    job = Job(bench)
    counters = await cocotb_bench.the_counters_tell_of_the_last_run(bench, job)
    assert 0 < counters["header"] < counters["first_output"]
    assert 0 < counters["symbols"] < counters["cycles"]
    assert counters["wait_write"] < counters["cycles"]
    assert await bench.counters() == counters
    assert await job.run(stage=9) == Status.BAD_ARGUMENT
    after = await bench.counters()
    assert after.pop("cycles") < 50 and not any(after.values())
