"""image_cu x {csim, rtlsim} with a ring of jobs: each job as a single start does it, in order, whatever its neighbours
are, and C++ and RTL equal in every record and tensor."""

import random
from functools import cache, partial

import cu_rtlsim
import cv2
import job_ring
import numpy as np
import pytest
import units
from job_ring import CUS, JOB, SLOT, SPEC, STOP, Memory, descriptor, live

from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import IMAGE_FORMATS, ImageStage
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelFailed

SLOW = pytest.mark.slow


@cache
def jpeg(width: int, height: int) -> bytes:
    pixels = np.random.default_rng([width, height]).integers(0, 256, (height, width, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.GaussianBlur(pixels, (5, 5), 0), [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()


FILES = [jpeg(40, 41), jpeg(64, 48), jpeg(57, 44), jpeg(40, 41)[:400], b"not a jpeg at all"]
GOOD, CUT, STRANGE = range(3), 3, 4


@pytest.fixture(params=list(CUS))
def cu(request):
    return CUS[request.param]


def expected_record(job: list[int], memory: Memory, number: int) -> list[int]:
    """What a single start of the C++ makes of the job."""
    at, size, tensor, capacity, stage, form, short, width, height, x, y, command, program, program_bytes, zero = job
    bad = (
        command != JOB
        or zero
        or program % 16
        or program > memory.program.nbytes
        or program_bytes  # what lies there is none
        or at % 16
        or tensor % 16
        or at + size > memory.jpeg.nbytes
        or tensor + capacity > memory.tensor.nbytes
    )
    if bad:
        return [Status.BAD_ARGUMENT, 0, 0, 0, 0, 0, 0, number & 0xFFFFFFFF]
    done = units.image_cu(
        memory.jpeg[at : at + size].tobytes(),
        stage=stage,
        format=form,
        resize_short=short,
        crop=(width, height),
        at=(x, y),
        capacity=capacity,
        memory=max(16, -(-capacity // 16) * 16),
    )
    return [done.status, *done.out_size, *done.src_size, done.bytes & 0xFFFFFFFF, done.bytes >> 32, number & 0xFFFFFFFF]


def check_tensor(memory: Memory, job: list[int], record: list[int]) -> None:
    expected = preprocess(memory.jpeg[job[0] : job[0] + job[1]].tobytes(), SPEC, ImageStage(job[4]))
    if job[4] == ImageStage.NORMALIZE:
        tables = SPEC.tables().view(np.uint32).astype((np.uint32, np.uint16, np.uint8)[job[5]])
        pixels = np.moveaxis(preprocess(memory.jpeg[job[0] : job[0] + job[1]].tobytes(), SPEC, ImageStage.CROP), -1, 0)
        expected = np.stack([table[plane] for table, plane in zip(tables, pixels, strict=True)])
    got = memory.tensor[job[2] : job[2] + record[5]]
    assert np.array_equal(got, expected.reshape(-1).view(np.uint8))


def run_and_stop(cu, memory: Memory, jobs, first=1) -> None:
    """All at once, with a stop behind them."""
    memory.begin(first)
    for number, job in enumerate([*jobs, descriptor(0, 0, 0, command=STOP)], first):
        memory.put(number, job)
    assert cu(memory, first, 1) == [Status.OK, len(jobs), (first + len(jobs) + 1) & 0xFFFFFFFF, 1, 0]


def test_jobs_of_every_stage_and_format_are_done_as_single_starts_do_them(cu):
    memory = Memory(FILES, 8, 16)
    jobs = [memory.job(file, file, stage=stage) for file, stage in zip((0, 1, 2, 0), ImageStage, strict=True)]
    jobs = [[*job[:2], number * SLOT, *job[3:]] for number, job in enumerate(jobs)]
    jobs += [memory.job(1, 4 + number, dtype=dtype) for number, dtype in enumerate(IMAGE_FORMATS)]
    run_and_stop(cu, memory, jobs)
    for number, job in enumerate(jobs, 1):
        assert memory.record(number) == expected_record(job, memory, number)
        check_tensor(memory, job, memory.record(number))
    assert memory.records()[-1].tolist() == [Status.OK, len(jobs), len(jobs) + 2, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("polls", [0, 1, 2, 7])
def test_an_empty_ring_ends_the_run_and_the_next_one_goes_on_there(cu, polls):
    memory = Memory(FILES, 4, 8)
    assert cu(memory, 1, polls) == [Status.OK, 0, 1, 0, 0]
    memory.put(1, memory.job(0, 0))
    memory.put(2, memory.job(1, 1))
    assert cu(memory, 1, polls) == [Status.OK, 2, 3, 0, 0]
    assert [memory.record(number)[7] for number in (1, 2, 3)] == [1, 2, 0]
    memory.put(3, memory.job(2, 2))
    assert cu(memory, 3, polls) == [Status.OK, 1, 4, 0, 0]
    for number in range(3):
        check_tensor(memory, memory.job(number, number), memory.record(number + 1))


def test_what_is_behind_a_stop_is_for_the_next_run(cu):
    memory = Memory(FILES, 4, 8)
    jobs = [memory.job(0, 0), descriptor(0, 0, 0, command=STOP), memory.job(1, 1)]
    for number, job in enumerate(jobs, 5):
        memory.put(number, job)
    assert cu(memory, 5, 3) == [Status.OK, 1, 7, 1, 0]
    assert memory.record(7)[7] == 0 and (memory.tensor[SLOT:] == 0xA5).all()
    assert cu(memory, 7, 3) == [Status.OK, 1, 8, 0, 0]
    check_tensor(memory, jobs[2], memory.record(7))


def test_a_range_may_end_with_what_the_run_was_given_and_not_a_byte_behind(cu):
    memory = Memory([FILES[0], FILES[0] + bytes(-len(FILES[0]) % 16)], 6, 8)
    jobs = [memory.job(1, 0), memory.job(1, 1), memory.job(0, 5), memory.job(0, 5)]
    assert jobs[0][0] + jobs[0][1] == memory.jpeg.nbytes and jobs[2][2] + jobs[2][3] == memory.tensor.nbytes
    jobs[1][1] += 1
    jobs[3][3] += 1
    run_and_stop(cu, memory, jobs)
    statuses = [memory.record(number)[0] for number in range(1, 5)]
    assert statuses == [Status.OK, Status.BAD_ARGUMENT, Status.OK, Status.BAD_ARGUMENT]
    for number, job in enumerate(jobs, 1):
        assert memory.record(number) == expected_record(job, memory, number)


def spoilt(memory: Memory, source: random.Random, slot: int) -> list[int]:
    """A job with something wrong, or whose file is damaged, or that is only odd."""
    job = memory.job(source.choice([*GOOD, CUT, STRANGE]), slot)
    kind = source.randrange(12)
    if kind == 0:
        job[0] += source.choice((1, 8, 15, memory.jpeg.nbytes, 0x8000_0000))
    elif kind == 1:
        job[1] = source.choice((0, 1, memory.jpeg.nbytes - job[0], memory.jpeg.nbytes - job[0] + 1, 0xFFFF_FFFF))
    elif kind == 2:
        job[2] += source.choice((4, memory.tensor.nbytes, 0xFFFF_0000))
    elif kind == 3:
        job[3] = source.choice((0, 100, memory.tensor.nbytes, 0xFFFF_FFFF))
    elif kind == 4:
        job[4] = source.choice((4, 1 << 31))
    elif kind == 5:
        job[5] = source.choice((3, 1 << 31))
    elif kind == 6:
        job[source.randrange(6, 11)] = source.choice((0, 1, 65536, 0xFFFF_FFFF))
    elif kind == 7:
        job[11] = source.choice((2, 0x101, 0xFFFF_FFFF))
    elif kind == 8:
        job[source.randrange(12, 15)] = 1 << source.randrange(32)
    elif kind == 9:
        word = source.randrange(12)
        job[word] ^= 1 << source.randrange(32)
        if job[11] == STOP:
            job[12] = 1  # a stop with words behind it is none
    job = [word & 0xFFFFFFFF for word in job]
    if job[3] > SLOT and job[2] + job[3] <= memory.tensor.nbytes:
        job[3] = SLOT  # or it would write over other jobs' tensors
    return job


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=SLOW) for seed in range(2, 12))])
def test_bad_jobs_between_good_ones_end_in_their_status_alone(cu, seed):
    source = random.Random(seed)
    memory = Memory(FILES, 64, 64)
    jobs = [spoilt(memory, source, slot) if slot % 2 else memory.job(slot % 3, slot) for slot in range(63)]
    run_and_stop(cu, memory, jobs, first=source.randrange(1 << 32))
    seen = set()
    for number, job in enumerate(jobs):
        record = memory.record(memory_first(memory, len(jobs)) + number)
        assert record == expected_record(job, memory, record[7]), (number, job)
        if record[0] == Status.OK:
            check_tensor_of(memory, job, record)
        seen.add(Status(record[0]))
    assert {Status.OK, Status.BAD_ARGUMENT, Status.NOT_JPEG, Status.TRUNCATED} <= seen


def memory_first(memory: Memory, jobs: int) -> int:
    """The first job's number, by the run's record."""
    return (int(memory.records()[-1][2]) - jobs - 1) & 0xFFFFFFFF


def check_tensor_of(memory: Memory, job: list[int], record: list[int]) -> None:
    """Of a job with any settings, by a single start."""
    done = units.image_cu(
        memory.jpeg[job[0] : job[0] + job[1]].tobytes(),
        stage=job[4],
        format=job[5],
        resize_short=job[6],
        crop=(job[7], job[8]),
        at=(job[9], job[10]),
        capacity=job[3],
        tables=SPEC.tables(),
    )
    assert np.array_equal(memory.tensor[job[2] : job[2] + record[5]], done.memory[: record[5]])


@pytest.mark.quick(5)
@pytest.mark.parametrize("count", [20, pytest.param(150, marks=SLOW)])
@pytest.mark.parametrize("entries", [1, 2, 8, 64])
def test_a_ring_of_any_size_serves_a_host_that_works_beside_it(cu, entries, count):
    """Across the numbers' wrap-around, with slots used again and again."""
    memory = Memory(FILES, 64, entries)
    source = random.Random(entries)
    jobs = [memory.job(source.choice([*GOOD, *GOOD, CUT]), number % 64) for number in range(count)]
    first = (1 << 32) - count // 2
    records, registers = live(cu, memory, jobs, first=first, ahead=lambda: source.randrange(1, 70))
    assert registers == [Status.OK, count, (first + count + 1) & 0xFFFFFFFF, 1, 0]
    for number, (job, record) in enumerate(zip(jobs, records, strict=True), first):
        assert record == expected_record(job, memory, number)
    for job in jobs[-entries:]:
        if job[0] != memory.at[CUT]:
            check_tensor(memory, job, records[-1] if job is jobs[-1] else [0] * 5 + [33 * 31 * 12])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["csim", "rtlsim"])
def test_thousands_of_jobs_take_one_start(name):
    memory = Memory([jpeg(16, 16)], 64, 8)
    job = descriptor(0, len(memory.files[0]), 0, stage=ImageStage.DECODE)
    records, registers = live(CUS[name], memory, [job] * 4000, first=0xFFFF_F800)
    assert registers[:2] == [Status.OK, 4000]
    assert [record[0] for record in records] == [Status.OK] * 4000


@pytest.mark.parametrize("entries", [3, 65537, 131072, 0x8000_0001, 0xFFFF_FFFF])
@pytest.mark.parametrize("name", ["csim", "rtlsim"])
def test_a_ring_that_is_no_power_of_two_is_a_bad_argument_of_the_run(name, entries):
    memory = Memory(FILES, 1, 4)
    memory.put(1, memory.job(0, 0))
    memory.entries = entries
    assert CUS[name](memory, 1, 1) == [Status.BAD_ARGUMENT, 0, 0, 0, 0]
    assert memory.records()[0].tolist() == [Status.BAD_ARGUMENT, *(0,) * 7] and not memory.records()[1:].any()
    assert (memory.tensor == 0xA5).all()


# ---- rtlsim only ----


@pytest.mark.parametrize("name", ["ring", "result"])
def test_a_ring_or_records_off_their_bytes_are_a_bad_argument_of_the_run(name):
    memory = Memory(FILES, 1, 4)
    memory.put(1, memory.job(0, 0))
    off = {"addresses": {name: cu_rtlsim.BANK * 8 + (32 if name == "ring" else 8)}}
    assert job_ring.rtlsim(memory, 1, 1, **off) == [Status.BAD_ARGUMENT, 0, 0, 0, 0]
    assert (memory.tensor == 0xA5).all()


@pytest.mark.parametrize("name", ["ring", "result"])
def test_a_ring_or_records_that_cannot_be_reached_end_the_run_in_bus_error(name):
    memory = Memory(FILES, 4, 4)
    for number in range(1, 4):
        memory.put(number, memory.job(0, number))
    registers = job_ring.rtlsim(memory, 1, 1 << 20, addresses={name: 0xDEAD_0000_0000})
    assert registers[0] == Status.BUS_ERROR and registers[1] <= 2
    memory.put(4, descriptor(0, 0, 0, command=STOP))
    assert job_ring.rtlsim(memory, 1, 1 << 20) == [Status.OK, 3, 5, 1, 0]


def check_three_jobs(**where: int) -> None:
    """Buffers lie at `where`."""
    memory = Memory(FILES, 3, 4)
    jobs = [memory.job(file, file) for file in GOOD]
    for number, job in enumerate([*jobs, descriptor(0, 0, 0, command=STOP)], 1):
        memory.put(number, job)
    assert job_ring.rtlsim(memory, 1, 1, **where) == [Status.OK, 3, 5, 1, 0]
    for number, job in enumerate(jobs, 1):
        assert memory.record(number) == expected_record(job, memory, number)
        check_tensor(memory, job, memory.record(number))


def test_buffers_may_begin_anywhere_in_64_bits():
    for high in (0x5555_5555_5555_5000, 0xAAAA_AAAA_AAAA_A000, 0):
        check_three_jobs(high=high)


@pytest.mark.parametrize("buffer", ["jpeg", "tensor", "result", "ring"])
def test_a_buffer_may_lie_across_4_gib(buffer):
    """The upper half of an address is another one from the second file, tensor, descriptor or third record on."""
    place = ("jpeg", "tensor", "tables", "result", "workspace", "ring").index(buffer) + 1
    check_three_jobs(high=0xFFFF_F000 - place * cu_rtlsim.BANK)


def test_a_descriptor_that_cannot_be_reached_behind_its_number_ends_the_run_in_bus_error():
    """The word with the number is all there is of it, where a buffer begins 48 bytes into a descriptor."""
    memory = Memory(FILES, 1, 1)
    memory.put(1, memory.job(0, 0))
    begin = 6 * cu_rtlsim.BANK + 0xFF0
    memory.ring = memory.ring[48:]
    done = job_ring.rtl_run(memory, 1, 1 << 20, stagger=0xFF0, addresses={"ring": begin - 48})
    assert list(done.registers.values())[:5] == [Status.BUS_ERROR, 0, 1, 0, 0]
    assert done.traffic["m_axi_gmem0"].read_beats == 1 + 4
    assert memory.record(1)[7] == 0 and (memory.tensor == 0xA5).all()
    memory.ring = units._aligned(64, 0)
    memory.put(1, memory.job(0, 0))
    assert job_ring.rtlsim(memory, 1, 1) == [Status.OK, 1, 2, 0, 0]


def test_a_job_whose_file_cannot_be_reached_ends_in_bus_error_alone():
    memory = Memory(FILES, 4, 4)
    run_and_stop(partial(job_ring.rtlsim, addresses={"tensor": 0xDEAD_0000_0000}), memory, [memory.job(0, 0)] * 3)
    assert [memory.record(number)[0] for number in (1, 2, 3)] == [Status.BUS_ERROR] * 3


@pytest.mark.parametrize("clocks", [30, 150, 300, 700, 3000, 9000])
def test_a_reset_in_mid_run_leaves_nothing_behind(clocks):
    memory = Memory(FILES, 4, 4)
    for number in range(1, 4):
        memory.put(number, memory.job(number % 3, number))
    with pytest.raises(KernelFailed, match="did not finish within"):
        job_ring.rtlsim(memory, 1, 1 << 20, max_cycles=clocks)
    memory.result[:] = 0
    assert job_ring.rtlsim(memory, 1, 1) == [Status.OK, 3, 4, 0, 0]
    done = cu_rtlsim.image_cu(FILES[0], stage=ImageStage.CROP, resize_short=40, crop=(33, 31))
    assert done.status == Status.OK


def test_jobs_of_a_ring_follow_each_other_faster_than_single_starts():
    data = jpeg(110, 80)
    memory = Memory([data], 8, 16)
    for number in range(8):
        memory.put(number + 1, memory.job(0, number))
    memory.put(9, descriptor(0, 0, 0, command=STOP))
    single = cu_rtlsim.image_cu(data, resize_short=40, crop=(33, 31), tables=SPEC.tables()).run.cycles
    assert job_ring.rtl_run(memory, 1, 1).cycles <= 8 * single + 500
    assert memory.records()[-1][1] == 8


@pytest.mark.parametrize(("polls", "looks"), [(0, 1), (1, 1), (2, 2), (7, 7), (100, 100)])
def test_an_empty_ring_is_looked_at_as_often_as_was_said(polls, looks):
    memory = Memory(FILES, 1, 4)
    done = job_ring.rtl_run(memory, 1, polls)
    assert done.traffic["m_axi_gmem0"].read_bursts == looks
    assert 64 * (looks - 1) < done.cycles < 1000 + 250 * looks  # not more often than every 64 clocks
