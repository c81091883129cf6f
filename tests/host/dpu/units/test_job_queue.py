"""The driver with launch="queue" gives the same tensors and statuses as single starts, with one start for many
images."""

import asyncio
import gc
import math
import random
import time

import containers
import cv2
import numpy as np
import pytest
from stopped_clock import StoppedClock

from headrace.batching import UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu import driver
from headrace.host.dpu.driver import Dpu, DpuUnavailable
from headrace.host.dpu.preprocessor import Fallback, Launch, PreprocessorUnavailable
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import AudioSpec, ImageSpec, ImageStage
from headrace.host.dpu.units import job_queue
from headrace.host.dpu.units.status import Status
from headrace.host.xrt import emulation
from headrace.host.xrt.faults import Fault, FaultKind

PHOTOS = demo_images()[:8]


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("queue") / "dpu.xclbin"
    build_sw_emu(path, image_cus=2)
    return path


@pytest.fixture
def starts(monkeypatch):
    """Count the starts of CUs from their queues."""
    counted = []
    start = job_queue.JobQueue._start_run

    def counting(queue):
        counted.append(queue.name)
        start(queue)

    monkeypatch.setattr(job_queue.JobQueue, "_start_run", counting)
    return counted


@pytest.fixture
def patient(monkeypatch):
    """Keep runs from ending by themselves within a test, however slow the machine is."""
    monkeypatch.setattr(driver, "POLLS", dict.fromkeys(driver.POLLS, 1 << 24))


class PausedClock(StoppedClock):
    """A clock that moves by pauses only. They take no real time."""

    def sleep(self, pause_s: float) -> None:
        self.now += pause_s


def with_dpu(xclbin, body, spec=None, faults=(), **settings):
    settings.setdefault("probe_after_s", math.inf)

    async def run():
        async with Dpu(xclbin, spec or ImageSpec(), launch=Launch.QUEUE, **settings) as dpu:
            for fault in faults:
                emulation.inject(emulation.device(0), fault)
            return await body(dpu)

    return asyncio.run(run())


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_concurrent_requests_get_their_own_tensors_from_one_start_of_each_unit(xclbin, starts, patient, dtype):
    spec = ImageSpec(dtype=dtype)

    async def body(dpu):
        done = await asyncio.gather(*(dpu.process(photo.jpeg) for photo in PHOTOS * 5))
        for photo, one in zip(PHOTOS * 5, done, strict=True):
            assert np.array_equal(one.tensor, preprocess(photo.jpeg, spec)) and one.dpu_status == "OK"
        assert {one.unit.split(".")[0] for one in done} == {"image_cu_1", "image_cu_2"}
        assert dpu.counters.done == 40 and dpu.counters.on_cpu == 0

    with_dpu(xclbin, body, spec)
    assert sorted(starts) == ["image_cu_1", "image_cu_2"]


def test_a_run_that_found_no_job_ends_and_is_started_again(xclbin, starts, monkeypatch):
    monkeypatch.setattr(driver, "POLLS", dict.fromkeys(driver.POLLS, 1))

    async def body(dpu):
        for photo in PHOTOS:
            assert np.array_equal(await dpu.preprocess(photo.jpeg), preprocess(photo.jpeg, ImageSpec()))

    with_dpu(xclbin, body)
    assert len(starts) >= 2


def test_damaged_files_end_as_with_single_starts_and_hold_up_nobody(xclbin, starts, patient):
    source = random.Random(1)
    files = []
    for photo in PHOTOS:
        data = bytearray(photo.jpeg)
        for _ in range(3):
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        files += [bytes(data), photo.jpeg[: len(photo.jpeg) // 2], photo.jpeg, b""]

    async def outcomes(dpu):
        return await asyncio.gather(*(dpu.process(data) for data in files), return_exceptions=True)

    async def single():
        gc.collect()
        async with Dpu(xclbin, ImageSpec()) as dpu:
            return await outcomes(dpu)

    queued = with_dpu(xclbin, outcomes)
    for one, other in zip(queued, asyncio.run(single()), strict=True):
        if isinstance(one, Exception):
            assert (type(one), str(one)) == (type(other), str(other))
        else:
            assert one.dpu_status == other.dpu_status and np.array_equal(one.tensor, other.tensor)
    assert len(starts) == 2


def test_larger_files_and_tensors_get_larger_buffers_between_other_requests(xclbin):
    noise = np.random.default_rng(0).integers(0, 256, (1200, 1600, 3), np.uint8)
    large = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()
    assert len(large) > 1 << 20

    async def body(dpu):
        others = [dpu.preprocess(photo.jpeg) for photo in PHOTOS * 2]
        done = await asyncio.gather(dpu.process(large, ImageStage.DECODE), dpu.process(large), *others)
        assert np.array_equal(done[0].tensor, preprocess(large, ImageSpec(), ImageStage.DECODE))
        assert np.array_equal(done[1].tensor, preprocess(large, ImageSpec()))
        for photo, tensor in zip(PHOTOS * 2, done[2:], strict=True):
            assert np.array_equal(tensor, preprocess(photo.jpeg, ImageSpec()))
        assert dpu.counters.on_cpu == 0

    with_dpu(xclbin, body)


def test_a_unit_that_hangs_is_lost_to_all_and_its_jobs_go_to_the_other(xclbin):
    async def body(dpu):
        tensors = await asyncio.gather(*(dpu.preprocess(photo.jpeg) for photo in PHOTOS * 3))
        for photo, tensor in zip(PHOTOS * 3, tensors, strict=True):
            assert np.array_equal(tensor, preprocess(photo.jpeg, ImageSpec()))
        lost = {name.split(".")[0] for name in dpu.out_of_service}
        assert lost == {"image_cu_1"} and dpu.counters.retried >= 1 and dpu.counters.on_cpu == 0

    with_dpu(xclbin, body, faults=[Fault(FaultKind.HANG, cu="image_cu_1")], timeout_s=5)


def test_with_no_unit_left_requests_are_refused(xclbin):
    async def body(dpu):
        refused = await asyncio.gather(*(dpu.preprocess(photo.jpeg) for photo in PHOTOS * 2), return_exceptions=True)
        assert {type(one) for one in refused} == {DpuUnavailable}
        with pytest.raises(DpuUnavailable, match="no CU is in service"):
            await dpu.preprocess(PHOTOS[0].jpeg)

    faults = [Fault(FaultKind.ERROR, cu=f"image_cu_{number}") for number in (1, 2)]
    with_dpu(xclbin, body, faults=faults, fallback=Fallback.RAISE)


def test_what_is_closed_ends_its_runs_and_refuses(xclbin, starts, patient):
    """The run would go on for minutes by itself. The next container is loaded at once."""

    async def body(dpu):
        await dpu.preprocess(PHOTOS[0].jpeg)
        return dpu

    begun = time.monotonic()
    dpu = with_dpu(xclbin, body)
    with pytest.raises(PreprocessorUnavailable):
        asyncio.run(dpu.preprocess(PHOTOS[0].jpeg))
    del dpu
    with_dpu(xclbin, body)
    assert time.monotonic() - begun < 60 and len(starts) == 2


def test_closing_waits_once_for_all_units_that_do_not_stop(xclbin, patient, monkeypatch):
    async def body(dpu):
        await asyncio.gather(*(dpu.preprocess(photo.jpeg) for photo in PHOTOS * 3))
        assert all(cu._run for cu in dpu._opened)
        clock = PausedClock()
        with monkeypatch.context() as deaf:
            deaf.setattr(job_queue.JobQueue, "_ended", lambda queue: False)
            for module in (driver, job_queue):
                deaf.setattr(module, "time", clock)
            dpu.close()
        assert driver.CLOSING_S <= clock.now <= driver.CLOSING_S + 2 * job_queue.SLICE_S

    with_dpu(xclbin, body)


def test_sounds_have_no_queue(tmp_path):
    build_sw_emu(tmp_path / "audio.xclbin", image_cus=0, mel_cus=1, norm_cus=1)
    with pytest.raises(UsageError, match="single starts"):
        Dpu(tmp_path / "audio.xclbin", AudioSpec(), launch=Launch.QUEUE)


def test_the_rtl_serves_photos_beside_the_host(tmp_path, starts):
    containers.hw_emu(tmp_path / "hw.xclbin", image_cus=1)
    small = [
        cv2.imencode(".jpg", np.full((30 + number, 40, 3), 9 * number, np.uint8))[1].tobytes() for number in range(9)
    ]
    spec = ImageSpec(resize_short=24, crop_width=20, crop_height=20)

    async def body(dpu):
        done = await asyncio.gather(
            *(dpu.process(data) for data in [*small, b"no photo", *small]), return_exceptions=True
        )
        tensors = [one.tensor for one in done if not isinstance(one, Exception)]
        assert len(tensors) == 18 and dpu.counters.unsupported == {Status.NOT_JPEG: 1}
        for data, tensor in zip(small * 2, tensors, strict=True):
            assert np.array_equal(tensor, preprocess(data, spec))

    with_dpu(tmp_path / "hw.xclbin", body, spec)
