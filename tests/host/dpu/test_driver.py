"""The DPU driver on the emulated device: right tensors, unsupported input, and faults of the hardware."""

import asyncio
import math
import os
import random
import threading
import time
from dataclasses import replace
from xml.etree import ElementTree

import containers
import cv2
import numpy as np
import pytest
from scan_script import Scan, photo_image, to_jpeg
from stopped_clock import PATIENCE_S, StoppedClock, turns_until

from headrace.batching import CorruptInput, UnsupportedInput, UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.bitstreams.kernel import parse_xml
from headrace.bitstreams.xclbin import read_xclbin, sealed, write_xclbin
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu import driver
from headrace.host.dpu.driver import Dpu, DpuUnavailable
from headrace.host.dpu.preprocessor import Fallback, Launch, PreprocessorUnavailable
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.reference.image import process as process_image
from headrace.host.dpu.specs import Damaged, ImageSpec, ImageStage
from headrace.host.dpu.units import cu, job_queue
from headrace.host.dpu.units.image_cu import FIRST_WORKSPACE, WORKSPACE, known_image
from headrace.host.dpu.units.status import Status
from headrace.host.xrt import emulation
from headrace.host.xrt.faults import Fault, FaultKind

PHOTOS = demo_images()[:8]
# Bits of `known_photo`, by byte, whose change a unit finds and libjpeg does not: a block of more than 64
# coefficients, for example.
FLIPS = [
    (790, 6, Status.CORRUPT_HUFFMAN),
    (665, 2, Status.CORRUPT_HUFFMAN),
    (466, 5, Status.CORRUPT_HUFFMAN),
]


@pytest.fixture(scope="session")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "dpu.xclbin"
    build_sw_emu(path, image_cus=2)
    return path


@pytest.fixture(scope="session")
def hw_xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "dpu.hw_emu.xclbin"
    containers.hw_emu(path, image_cus=2)
    return path


@pytest.fixture
def clock(monkeypatch):
    """Return the clock of the driver's time-outs. It stands still."""
    clock = StoppedClock()
    for module in (cu, driver):
        monkeypatch.setattr(module, "time", clock)
    return clock


def with_dpu(xclbin, body, spec=None, fault=None, **settings):
    settings.setdefault("probe_after_s", math.inf)

    async def run():
        async with Dpu(xclbin, spec or ImageSpec(), **settings) as dpu:
            if fault is not None:
                emulation.inject(emulation.device(0), fault)
            return await body(dpu)

    return asyncio.run(run())


def test_a_bitstream_whose_kernel_lacks_an_argument_is_refused_by_name(xclbin, tmp_path):
    """A container from an earlier release, without a workspace and texts of registers, has such a kernel."""
    content = read_xclbin(xclbin)
    description = parse_xml(content.metadata_xml)
    for parent in list(description.iter()):
        for arg in parent.findall("arg"):
            if int(arg.attrib["id"]) >= WORKSPACE:
                parent.remove(arg)
        for child in list(parent):
            if child.tag is ElementTree.ProcessingInstruction:  # an earlier release has no texts of registers
                parent.remove(child)
    kept = tuple(connection for connection in content.connections if connection.arg_index < WORKSPACE)
    assert len(kept) < len(content.connections)
    older = sealed(replace(content, metadata_xml=ElementTree.tostring(description), connections=kept))
    write_xclbin(tmp_path / "older.xclbin", older)
    told = r"older\.xclbin: image_cu has no argument workspace, .*, ring, .*, program_bytes; `headrace build`"
    with pytest.raises(UsageError, match=told):
        Dpu(tmp_path / "older.xclbin", ImageSpec())


def resized(width: int, height: int, *options: int) -> bytes:
    image = cv2.imdecode(np.frombuffer(PHOTOS[0].jpeg, np.uint8), cv2.IMREAD_COLOR)
    return cv2.imencode(".jpg", cv2.resize(image, (width, height)), options)[1].tobytes()


def too_wide() -> bytes:
    return resized(8193, 300)


def progressive(width: int, height: int) -> bytes:
    return resized(width, height, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_concurrent_requests_get_their_own_tensors(xclbin, dtype):
    spec = ImageSpec(dtype=dtype)

    async def body(dpu):
        tensors = await asyncio.gather(*(dpu.preprocess(photo.jpeg) for photo in PHOTOS * 2))
        for photo, tensor in zip(PHOTOS * 2, tensors, strict=True):
            assert np.array_equal(tensor, preprocess(photo.jpeg, spec))
        assert dpu.counters.done == 16 and dpu.counters.on_cpu == 0

    with_dpu(xclbin, body, spec)


def test_both_units_work_at_the_same_time(xclbin):
    async def body(dpu):
        done = await asyncio.gather(*(dpu.process(photo.jpeg) for photo in PHOTOS))
        assert {one.unit for one in done} == {"image_cu_1", "image_cu_2"}

    with_dpu(xclbin, body)


def test_an_output_larger_than_the_buffer_gets_a_larger_one(xclbin):
    large = cv2.imencode(".jpg", np.zeros((1500, 2000, 3), np.uint8))[1].tobytes()

    async def body(dpu):
        done = await dpu.process(large, ImageStage.DECODE)
        assert done.tensor.shape == (1500, 2000, 3) and not done.tensor.any() and done.dpu_status == "OK"
        assert np.array_equal(await dpu.preprocess(PHOTOS[0].jpeg), preprocess(PHOTOS[0].jpeg, ImageSpec()))

    with_dpu(xclbin, body)


def test_a_file_larger_than_the_buffer_gets_a_larger_one(xclbin):
    noise = np.random.default_rng(0).integers(0, 256, (1200, 1600, 3), np.uint8)
    large = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()
    assert len(large) > 1 << 20

    async def body(dpu):
        assert np.array_equal(await dpu.preprocess(large), preprocess(large, ImageSpec()))
        assert dpu.counters.on_cpu == 0

    with_dpu(xclbin, body)


@pytest.mark.quick(1)
@pytest.mark.parametrize("launch", list(Launch))
def test_a_progressive_file_is_done_on_the_dpu_with_a_workspace_as_large_as_it_needs(xclbin, launch):
    small, large, plain = progressive(400, 300), progressive(3000, 2100), PHOTOS[0].jpeg
    assert FIRST_WORKSPACE < 3000 * 2100 * 3  # 2 bytes a coefficient, of which 4:2:0 has 1.5 a pixel

    async def body(dpu):
        files = [plain, small, large, plain, large, small]
        every = await asyncio.gather(*map(dpu.process, files))
        for data, done in zip(files, every, strict=True):
            assert done.unit != "cpu" and np.array_equal(done.tensor, preprocess(data, ImageSpec()))
        assert dpu.counters.on_cpu == dpu.counters.retried == 0

    with_dpu(xclbin, body, launch=launch)


@pytest.mark.parametrize("launch", list(Launch))
@pytest.mark.parametrize(
    ("megapixels", "rows"), [(2, 10_000), (1000, 65_000)]
)  # more than the spec allows; than a bank has
def test_a_file_that_only_claims_to_be_large_gets_no_workspace_and_costs_no_unit(xclbin, launch, megapixels, rows):
    data = bytearray(progressive(400, 300))
    frame = data.index(b"\xff\xc2")
    data[frame + 5 : frame + 9] = rows.to_bytes(2, "big") + (4000).to_bytes(2, "big")

    async def body(dpu):
        with pytest.raises(UnsupportedInput, match="TOO_LARGE"):
            await dpu.preprocess(bytes(data))
        assert np.array_equal(await dpu.preprocess(PHOTOS[0].jpeg), preprocess(PHOTOS[0].jpeg, dpu.spec))
        assert not dpu.out_of_service

    with_dpu(xclbin, body, ImageSpec(max_megapixels=megapixels), fallback=Fallback.RAISE, launch=launch)


def test_what_the_dpu_cannot_take_is_done_on_the_cpu_and_counted(xclbin):
    data = too_wide()

    async def body(dpu):
        done = await dpu.process(data)
        assert done.unit == "cpu" and done.dpu_status == "TOO_LARGE"
        assert np.array_equal(done.tensor, preprocess(data, ImageSpec()))
        assert dpu.counters.unsupported == {Status.TOO_LARGE: 1} and dpu.counters.on_cpu == 1

    with_dpu(xclbin, body)


def damaged() -> bytes:
    """Return an image file with half of its data, and an end marker."""
    photo = PHOTOS[0].jpeg
    return photo[: len(photo) // 2] + b"\xff\xd9"


def test_a_damaged_photo_is_corrupt_with_both_reasons(xclbin):
    async def body(dpu):
        with pytest.raises(CorruptInput, match=r"TRUNCATED: .*; it is damaged: .*premature end"):
            await dpu.process(damaged())
        assert dpu.damaged == 0

    with_dpu(xclbin, body)


def test_a_damaged_photo_can_be_taken_and_is_marked(xclbin):
    spec = ImageSpec(damaged=Damaged.LENIENT)

    async def body(dpu):
        done = await dpu.process(damaged())
        assert (done.unit, done.dpu_status) == ("cpu", "TRUNCATED") and "premature end" in done.damage
        assert np.array_equal(done.tensor, preprocess(damaged(), spec))
        assert (await dpu.process(PHOTOS[0].jpeg)).damage is None and dpu.damaged == 1

    with_dpu(xclbin, body, spec)


@pytest.mark.parametrize("policy", Damaged)
@pytest.mark.parametrize(("at", "bit", "status"), FLIPS)
def test_damage_that_only_the_unit_finds_is_told_with_both_opinions(xclbin, at, bit, status, policy):
    photo = bytearray(known_image()[0])
    photo[at] ^= 1 << bit
    spec = ImageSpec(damaged=policy)

    async def body(dpu):
        done = await dpu.process(bytes(photo), ImageStage.DECODE)
        assert (done.unit, done.dpu_status, dpu.damaged) == ("cpu", status.name, 1)
        assert done.damage == f"a CU finds {status.name} ({status.reason}), the CPU path finds nothing wrong"
        assert process_image(bytes(photo), spec, ImageStage.DECODE)[1] is None

    with_dpu(xclbin, body, spec)


def test_what_has_no_part_in_the_pixels_is_no_damage(xclbin):
    async def body(dpu):
        garbage = PHOTOS[0].jpeg[:2] + b"\x00garbage" + PHOTOS[0].jpeg[2:]
        for photo, status in ((too_wide(), "TOO_LARGE"), (garbage, "CORRUPT_HEADER")):
            done = await dpu.process(photo)
            assert (done.dpu_status, done.damage, dpu.damaged) == (status, None, 0)

    with_dpu(xclbin, body)


def with_factors(sampling):
    """Return a photo with factors that no CU takes."""
    pixels = cv2.imdecode(np.frombuffer(PHOTOS[0].jpeg, np.uint8), cv2.IMREAD_COLOR)
    return to_jpeg(photo_image(cv2.resize(pixels, (90, 70)), sampling, 2), [Scan((0, 1, 2))], progressive=False)


@pytest.mark.quick(3)
@pytest.mark.parametrize("sampling", ["3x1 1x1 1x1", "1x3 1x1 1x1", "3x1 3x1 1x1", "1x1 2x2 2x2", "2x1 1x2 1x1"])
def test_sampling_factors_that_no_unit_takes_go_to_the_cpu(xclbin, sampling):
    jpeg = with_factors(sampling)

    async def body(dpu):
        done = await dpu.process(jpeg, ImageStage.DECODE)
        assert (done.unit, done.dpu_status, done.damage) == ("cpu", "SAMPLING", None)
        decoded = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        assert np.array_equal(done.tensor, decoded[..., ::-1])
        assert dpu.counters.unsupported == {Status.SAMPLING: 1}
        assert np.array_equal(await dpu.preprocess(jpeg), preprocess(jpeg, dpu.spec))

    async def refused(dpu):
        with pytest.raises(
            UnsupportedInput, match="SAMPLING: unusual subsampling; the DPU takes factors of 1, 2 and 4"
        ):
            await dpu.preprocess(jpeg)

    with_dpu(xclbin, body)
    with_dpu(xclbin, refused, fallback=Fallback.RAISE)


def test_sampling_factors_that_opencv_does_not_take_either_are_a_corrupt_file(xclbin):
    async def body(dpu):
        with pytest.raises(CorruptInput, match=r"SAMPLING: .*OpenCV cannot decode it"):
            await dpu.preprocess(with_factors("3x1 2x1 1x1"))

    with_dpu(xclbin, body)


def test_without_fallback_it_is_refused_with_the_reason(xclbin):
    async def body(dpu):
        with pytest.raises(UnsupportedInput, match="TOO_LARGE: wider"):
            await dpu.preprocess(too_wide())

    with_dpu(xclbin, body, fallback=Fallback.RAISE)


def test_what_nobody_can_decode_is_corrupt(xclbin):
    async def body(dpu):
        for data, status in ((b"", "NOT_JPEG"), (b"text", "NOT_JPEG"), (PHOTOS[0].jpeg[:100], "TRUNCATED")):
            with pytest.raises(CorruptInput, match=status):
                await dpu.preprocess(data)

    with_dpu(xclbin, body)


@pytest.mark.parametrize("kind", [FaultKind.HANG, FaultKind.ERROR])
def test_a_failing_unit_goes_out_of_service_and_its_request_to_another(xclbin, kind):
    """The second run fails. On a busy machine either unit may get it."""

    async def body(dpu):
        tensors = await asyncio.gather(*(dpu.preprocess(photo.jpeg) for photo in PHOTOS))
        for photo, tensor in zip(PHOTOS, tensors, strict=True):
            assert np.array_equal(tensor, preprocess(photo.jpeg, ImageSpec()))
        ((unit, reason),) = dpu.out_of_service.items()
        assert unit in ("image_cu_1", "image_cu_2") and reason.startswith(unit) and dpu.counters.retried == 1
        assert dpu.counters.done == 8 and dpu.counters.on_cpu == 0

    with_dpu(xclbin, body, fault=Fault(kind, after=1), timeout_s=2.0)


def test_a_failing_transfer_takes_its_unit_out_of_service(xclbin):
    async def body(dpu):
        await dpu.preprocess(PHOTOS[0].jpeg)
        assert len(dpu.out_of_service) == 1 and "Input/output error" in next(iter(dpu.out_of_service.values()))

    with_dpu(xclbin, body, fault=Fault(FaultKind.SYNC))


def test_with_no_unit_left_requests_go_to_the_cpu_after_one_time_out(xclbin, clock):
    """The clock moves once, so a second time-out would never pass."""

    async def body(dpu):
        calls = [asyncio.create_task(dpu.preprocess(photo.jpeg)) for photo in PHOTOS]
        await clock.waited_for(threads=2)
        assert not dpu.out_of_service and not any(call.done() for call in calls)
        clock.now += 6
        async with asyncio.timeout(PATIENCE_S):
            tensors = await asyncio.gather(*calls)
        assert len(dpu.out_of_service) == 2 and dpu.counters.on_cpu == 8
        assert np.array_equal(tensors[3], preprocess(PHOTOS[3].jpeg, ImageSpec()))

    with_dpu(xclbin, body, fault=Fault(FaultKind.HANG, times=2), timeout_s=0.5)


def test_a_result_tells_that_no_unit_was_in_service(xclbin):
    async def body(dpu):
        for photo in PHOTOS[:2]:  # the first finds it out, the second is told
            done = await dpu.process(photo.jpeg)
            assert (done.unit, done.dpu_status) == ("cpu", None) and "image_cu" in done.out_of_service
        assert len(dpu.out_of_service) == 2

    with_dpu(xclbin, body, fault=Fault(FaultKind.ERROR, times=2))
    with_dpu(xclbin, lambda dpu: in_service(dpu))


async def in_service(dpu):
    assert (await dpu.process(PHOTOS[0].jpeg)).out_of_service is None


@pytest.mark.parametrize("launch", Launch)
def test_a_busy_machine_is_no_fault_of_an_emulated_unit(xclbin, launch, clock, monkeypatch):
    """The unit's thread waits for a core during all the time that the clock shows."""
    clock.sleep = time.sleep
    monkeypatch.setattr(job_queue, "time", clock)
    monkeypatch.setattr(emulation.kernel, "get_waited_s", lambda _: clock.now)
    emulated_s = 0.2

    async def body(dpu):
        emulation.set_launch_cost(emulation.device(0), emulated_s * 1e6)
        run = asyncio.ensure_future(dpu.process(PHOTOS[0].jpeg))
        for _ in range(20):
            clock.now += 1000
            await asyncio.sleep(emulated_s / 40)
        assert (await run).unit != "cpu" and not dpu.out_of_service

    with_dpu(xclbin, body, timeout_s=0.5, launch=launch)


def test_an_emulated_unit_counts_the_time_without_a_core(xclbin):
    async def body(dpu):
        kernel = dpu._opened[0]._kernel
        before, (unit,) = kernel.get_waited_s(), kernel._cus
        threads = [unit._thread.native_id, threading.get_native_id()]
        cores = os.sched_getaffinity(0)
        for thread in threads:
            os.sched_setaffinity(thread, {min(cores)})
        try:
            async with asyncio.timeout(60):
                while kernel.get_waited_s() < before + 0.01:
                    run = asyncio.ensure_future(dpu.process(PHOTOS[0].jpeg))
                    while not run.done():  # this thread wants the same core
                        await asyncio.sleep(0)
        finally:
            for thread in threads:
                os.sched_setaffinity(thread, cores)

    with_dpu(xclbin, body)


def test_with_no_unit_left_and_no_fallback_requests_are_refused(xclbin):
    async def body(dpu):
        with pytest.raises(DpuUnavailable, match=r"2 CUs did not do it; .* did not answer within 0\.\d+ s"):
            await dpu.preprocess(PHOTOS[0].jpeg)
        with pytest.raises(DpuUnavailable, match=r"no CU is in service .* load the bitstream again"):
            await dpu.preprocess(PHOTOS[0].jpeg)

    with_dpu(xclbin, body, fault=Fault(FaultKind.HANG, times=2), timeout_s=0.3, fallback=Fallback.RAISE)


def test_only_the_bytes_of_a_photo_and_its_tensor_are_moved(xclbin, monkeypatch):
    moved = []
    sync = emulation.bo.sync

    def counted(buffer, direction, *where):
        moved.append(where[0] if where else buffer.size())
        return sync(buffer, direction, *where)

    monkeypatch.setattr(emulation.bo, "sync", counted)

    async def body(dpu):
        await dpu.preprocess(resized(1200, 900))  # leaves buffers larger than the next one needs
        moved.clear()
        await dpu.preprocess(PHOTOS[0].jpeg)
        assert moved == [len(PHOTOS[0].jpeg), 4096, 3 * 224 * 224 * 4]  # the file, the record's page, the tensor

    with_dpu(xclbin, body)


def test_a_run_that_no_unit_does_takes_two_of_them_at_most(tmp_path):
    build_sw_emu(tmp_path / "four.xclbin", image_cus=4)

    async def body(dpu):
        with pytest.raises(DpuUnavailable, match="given up"):
            await dpu.preprocess(PHOTOS[0].jpeg)
        assert len(dpu.out_of_service) == 2 and dpu.counters.retried == 1
        assert np.array_equal(await dpu.preprocess(PHOTOS[1].jpeg), preprocess(PHOTOS[1].jpeg, ImageSpec()))

    fault = Fault(FaultKind.HANG, times=2)
    with_dpu(tmp_path / "four.xclbin", body, fault=fault, timeout_s=0.3, fallback=Fallback.RAISE)


@pytest.mark.parametrize("launch", Launch)
def test_a_slow_input_that_is_legal_keeps_its_unit(xclbin, launch):
    """The 12 KB take a second or two of work, and the time-out is much shorter."""
    flat = cv2.imencode(".jpg", np.full((1500, 1500, 3), 77, np.uint8), [cv2.IMWRITE_JPEG_OPTIMIZE, 1])[1].tobytes()
    assert len(flat) < 20_000
    spec = ImageSpec(resize_short=6000)

    async def body(dpu):
        assert np.array_equal(await dpu.preprocess(flat), preprocess(flat, spec))
        assert not dpu.out_of_service and dpu.counters.done == 1 and dpu.counters.retried == 0

    with_dpu(xclbin, body, spec, timeout_s=0.001, launch=launch)


def test_a_caller_that_gives_up_does_not_free_a_unit_that_still_works(xclbin):
    async def body(dpu):
        callers = [asyncio.create_task(dpu.preprocess(photo.jpeg)) for photo in PHOTOS[:2]]
        await asyncio.sleep(0.005)
        for caller in callers:
            caller.cancel()
        tensors = await asyncio.gather(*(dpu.preprocess(photo.jpeg) for photo in PHOTOS))
        for photo, tensor in zip(PHOTOS, tensors, strict=True):
            assert np.array_equal(tensor, preprocess(photo.jpeg, ImageSpec()))
        assert not dpu.out_of_service

    with_dpu(xclbin, body)


def test_a_unit_that_hangs_is_given_to_nobody_else_when_its_caller_gives_up(xclbin):
    async def body(dpu):
        hanging = asyncio.create_task(dpu.preprocess(PHOTOS[0].jpeg))
        async with asyncio.timeout(PATIENCE_S):
            while not any(cu.hangs() for cu in dpu._opened):
                await asyncio.sleep(0.001)
        hanging.cancel()
        done = await asyncio.gather(*(dpu.process(photo.jpeg) for photo in PHOTOS))
        assert {one.unit for one in done} == {"image_cu_2"} and dpu.counters.retried == 0
        async with asyncio.timeout(PATIENCE_S):
            while not dpu.out_of_service:
                await asyncio.sleep(0.05)
        assert list(dpu.out_of_service) == ["image_cu_1"] and hanging.cancelled()

    with_dpu(xclbin, body, fault=Fault(FaultKind.HANG, cu="image_cu_1"), timeout_s=2.0)


def test_units_take_requests_in_the_order_in_which_they_came(xclbin):
    asked, started = [], []

    async def client(dpu, choose):
        for photo in PHOTOS:
            ticket = len(asked)
            asked.append(ticket)
            call = dpu.process(photo.jpeg)
            if choose.random() < 0.2:  # the caller gives up soon
                try:
                    async with asyncio.timeout(choose.random() * 0.01):
                        started.append(((await call).started, ticket))
                except TimeoutError:
                    pass
            else:
                started.append(((await call).started, ticket))

    async def body(dpu):
        choose = random.Random(3)
        await asyncio.gather(*(client(dpu, choose) for _ in range(12)))
        order = [ticket for _, ticket in sorted(started)]
        assert len(order) > 50 and order == sorted(order)
        assert dpu.counters.done == len(order) and not dpu.counters.on_cpu

    with_dpu(xclbin, body)


def test_a_request_moved_off_a_failing_unit_is_next(xclbin):
    slow = cv2.imencode(".jpg", np.zeros((3000, 4000, 3), np.uint8))[1].tobytes()

    async def body(dpu):
        done = await asyncio.gather(*(dpu.process(data) for data in (slow, *(photo.jpeg for photo in PHOTOS))))
        assert dpu.counters.retried == 1 and {one.unit for one in done} == {"image_cu_1"}
        assert [one.started for one in done] == sorted(one.started for one in done)

    with_dpu(xclbin, body, fault=Fault(FaultKind.ERROR, cu="image_cu_2"))


def test_when_the_last_unit_goes_all_who_wait_are_told_at_once(xclbin, clock):
    async def body(dpu):
        calls = [asyncio.create_task(dpu.preprocess(photo.jpeg)) for photo in PHOTOS]
        await clock.waited_for(threads=2)
        clock.now += 6
        ended = await turns_until(*calls)
        assert max(ended) - min(ended) <= 10
        assert {type(call.exception()) for call in calls} == {DpuUnavailable}
        assert dpu.counters.on_cpu == 0

    fault = Fault(FaultKind.HANG, times=2)
    with_dpu(xclbin, body, fault=fault, timeout_s=0.4, fallback=Fallback.RAISE)


def test_a_tensor_stays_what_it_is_when_its_unit_takes_the_next_request(xclbin):
    async def body(dpu):
        first = [await dpu.preprocess(PHOTOS[0].jpeg) for _ in dpu.cus]
        for photo in PHOTOS[1:]:
            await dpu.preprocess(photo.jpeg)
        for tensor in first:
            assert np.array_equal(tensor, preprocess(PHOTOS[0].jpeg, ImageSpec())) and tensor.flags.writeable

    with_dpu(xclbin, body)


@pytest.mark.parametrize("fallback", Fallback)
def test_a_close_ends_runs_and_waits_at_once(xclbin, fallback, clock):
    """The runs hang, so that only the close can end them. The CPU then does no request, whatever the fallback."""

    async def body(dpu):
        calls = [asyncio.create_task(dpu.preprocess(photo.jpeg)) for photo in PHOTOS[:5]]  # two run, three wait
        await clock.waited_for(threads=2)
        dpu.close()
        assert max(await turns_until(*calls)) <= 10
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [(type(error), str(error)) for error in ended] == [(DpuUnavailable, "the driver was closed")] * 5
        with pytest.raises(DpuUnavailable, match="the driver was closed"):
            await dpu.preprocess(PHOTOS[0].jpeg)
        assert not dpu.out_of_service and dpu.counters.retried == 0 and dpu.counters.on_cpu == 0

    with_dpu(xclbin, body, fault=Fault(FaultKind.HANG, times=2), timeout_s=30.0, fallback=fallback)


def test_a_close_after_all_units_have_gone_refuses_what_the_cpu_would_take(xclbin):
    async def body(dpu):
        await dpu.preprocess(PHOTOS[0].jpeg)
        assert len(dpu.out_of_service) == 2 and dpu.counters.on_cpu == 1
        dpu.close()
        with pytest.raises(PreprocessorUnavailable, match="closed"):
            await dpu.preprocess(PHOTOS[0].jpeg)
        assert dpu.counters.on_cpu == 1
        assert not [one for one in threading.enumerate() if one.name.startswith(("dpu", "cpu-preprocessor"))]

    with_dpu(xclbin, body, fault=Fault(FaultKind.ERROR, times=2))


def test_on_hw_emu_it_is_the_same_with_clocks_counted(hw_xclbin):
    spec = ImageSpec(dtype="float16")
    photos = [PHOTOS[1], PHOTOS[5]]

    async def body(dpu):
        done = await asyncio.gather(*(dpu.process(photo.jpeg) for photo in photos))
        for photo, one in zip(photos, done, strict=True):
            assert np.array_equal(one.tensor, preprocess(photo.jpeg, spec))
            assert 0.1 < one.counters["cycles"] / one.source_pixels < 2
            assert 0 < one.counters["symbols"] < 2 * one.counters["cycles"]
        refused = await dpu.process(too_wide())
        assert refused.unit == "cpu" and refused.dpu_status == "TOO_LARGE" and refused.counters is None
        assert dpu.counters.done == 2 and not dpu.out_of_service

    with_dpu(hw_xclbin, body, spec)


def test_cpp_counts_no_clocks(xclbin):
    async def body(dpu):
        done = await dpu.process(PHOTOS[0].jpeg)
        assert done.counters is None and done.source_pixels == 640 * 427

    with_dpu(xclbin, body)


def test_a_container_without_image_units_is_refused(vadd_xclbin):
    with pytest.raises(UsageError, match="no image_cu"):
        Dpu(vadd_xclbin, ImageSpec())
