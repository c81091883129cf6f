"""CUs that were lost come back when they work again, and stay out of service while they do not."""

import asyncio
import gc
import math
import threading
import weakref

import numpy as np
import pytest

from headrace.bitstreams.build import build_sw_emu
from headrace.host.demo.inputs.audio import pcm_file
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Launch
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.dpu.units.cu import Cu
from headrace.host.dpu.units.image_cu import ImageCu
from headrace.host.xrt import emulation
from headrace.host.xrt.faults import Fault, FaultKind

PHOTOS = demo_images()[:4]
SOON = 0.01


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("probing") / "dpu.xclbin"
    build_sw_emu(path, image_cus=1, mel_cus=1, norm_cus=1)
    return path


@pytest.fixture(scope="module")
def two_units(tmp_path_factory):
    path = tmp_path_factory.mktemp("probing") / "two.xclbin"
    build_sw_emu(path, image_cus=2)
    return path


@pytest.fixture
def begun(monkeypatch):
    """Return the names of the CUs that got a run."""
    names = []
    begin = Cu._begin

    def counted(cu, *arguments):
        names.append(cu.name)
        return begin(cu, *arguments)

    monkeypatch.setattr(Cu, "_begin", counted)
    return names


def with_dpu(xclbin, body, spec=None, faults=(), **settings):

    async def run():
        async with Dpu(xclbin, spec or ImageSpec(), **{"probe_after_s": SOON, **settings}) as dpu:
            for fault in faults:
                emulation.inject(emulation.device(0), fault)
            await body(dpu)

    asyncio.run(run())


async def all_back(dpu):
    async with asyncio.timeout(15):
        while dpu.out_of_service:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("launch", Launch)
def test_an_image_unit_that_fails_for_some_runs_comes_back_by_itself(xclbin, launch):
    async def body(dpu):
        assert (await dpu.process(PHOTOS[0].jpeg)).unit == "cpu"
        await all_back(dpu)
        for done, photo in zip(
            await asyncio.gather(*(dpu.process(photo.jpeg) for photo in PHOTOS)), PHOTOS, strict=True
        ):
            assert done.unit != "cpu" and np.array_equal(done.tensor, preprocess(photo.jpeg, ImageSpec()))
        assert {(state.lost, state.returned) for state in dpu.states()} == {("", 1)}

    with_dpu(xclbin, body, faults=[Fault(FaultKind.ERROR, times=3)], launch=launch)


@pytest.mark.parametrize("kind", ["mel", "norm"])
def test_an_audio_unit_comes_back_by_itself(xclbin, kind):
    wav = _sound()

    async def body(dpu):
        right = (await dpu.process(wav)).tensor
        emulation.inject(emulation.device(0), Fault(FaultKind.ERROR, cu=f"audio_{kind}_cu_1", times=2))
        assert (await dpu.process(wav)).unit == "cpu"
        await all_back(dpu)
        done = await dpu.process(wav)
        assert done.unit != "cpu" and np.array_equal(done.tensor, right)

    with_dpu(xclbin, body, AudioSpec())


@pytest.mark.parametrize("launch", Launch)
def test_nothing_is_started_behind_a_run_that_hangs(xclbin, launch, begun, monkeypatch):
    asked = threading.Semaphore(0)
    hangs = Cu.hangs

    def counted(cu):
        asked.release()
        return hangs(cu)

    monkeypatch.setattr(Cu, "hangs", counted)

    async def body(dpu):
        await dpu.process(PHOTOS[0].jpeg)
        assert await asyncio.to_thread(asked.acquire, timeout=15) and await asyncio.to_thread(asked.acquire, timeout=15)
        assert dpu.out_of_service and begun == ["image_cu_1"]
        for unit in emulation.device(0)._card.cus:
            unit._reset.set()  # the run is aborted, and the unit takes others
        await all_back(dpu)
        assert (await dpu.process(PHOTOS[0].jpeg)).unit != "cpu"

    with_dpu(xclbin, body, faults=[Fault(FaultKind.HANG)], launch=launch, timeout_s=2)


@pytest.mark.parametrize("launch", Launch)
def test_a_unit_that_was_only_slow_is_back_at_the_first_look_after_its_run(xclbin, launch, monkeypatch):
    """Probes during a run that goes on do not make the intervals longer."""
    looks = []
    monkeypatch.setattr(Cu, "hangs", lambda cu: looks.append(cu.name) or len(looks) < 12)

    async def body(dpu):
        assert (await dpu.process(PHOTOS[0].jpeg)).unit == "cpu"
        (probing,) = dpu._cus.pools[0]._probing.values()
        await all_back(dpu)
        assert probing.interval_s == SOON and len(looks) == 12
        assert {state.returned for state in dpu.states()} == {1}

    with_dpu(xclbin, body, faults=[Fault(FaultKind.ERROR)], launch=launch)


def test_a_wrong_answer_keeps_a_unit_out(xclbin, monkeypatch):
    probed = threading.Semaphore(0)

    def wrong(cu, timeout_s):
        probed.release()
        return False

    monkeypatch.setattr("headrace.host.dpu.units.image_cu.ImageCu.probe", wrong)

    async def body(dpu):
        await dpu.process(PHOTOS[0].jpeg)
        for _ in range(3):
            assert await asyncio.to_thread(probed.acquire, timeout=15)
        assert list(dpu.out_of_service) == ["image_cu_1"]

    with_dpu(xclbin, body, faults=[Fault(FaultKind.ERROR)])


@pytest.mark.parametrize("where", ["hangs", "probe"])
def test_whatever_a_probe_raises_there_is_another_one_and_the_reason_is_kept(xclbin, where, monkeypatch):
    real = getattr(ImageCu, where)
    raised = []

    def fails_twice(cu, *arguments):
        if len(raised) < 2:
            raised.append(where)
            raise OSError(f"no memory {len(raised)}")
        return real(cu, *arguments)

    monkeypatch.setattr(ImageCu, where, fails_twice)

    async def body(dpu):
        await dpu.process(PHOTOS[0].jpeg)
        (why,) = dpu.out_of_service.values()
        for number in (1, 2):
            assert await dpu.reset() == ["image_cu_1"]
            assert dpu.out_of_service == {"image_cu_1": f"{why}; its last probe: OSError: no memory {number}"}
        await dpu.reset()
        assert not dpu.out_of_service and (await dpu.process(PHOTOS[0].jpeg)).unit != "cpu"

    with_dpu(xclbin, body, faults=[Fault(FaultKind.ERROR)], probe_after_s=math.inf)
    raised.clear()

    async def by_itself(dpu):
        await dpu.process(PHOTOS[0].jpeg)
        await all_back(dpu)

    with_dpu(xclbin, by_itself, faults=[Fault(FaultKind.ERROR)])
    assert len(raised) == 2


def test_a_close_ends_a_probe_that_hangs(xclbin, begun):
    """The run of the request fails, and that of the probe never ends."""

    async def body(dpu):
        await dpu.process(PHOTOS[0].jpeg)
        async with asyncio.timeout(15):
            while len(begun) < 2:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(dpu.close)  # its limit is an hour

    with_dpu(xclbin, body, faults=[Fault(FaultKind.ERROR), Fault(FaultKind.HANG, after=1)], timeout_s=3600)
    assert not [one for one in threading.enumerate() if one.name.startswith("dpu")]


def test_without_probing_a_unit_stays_out(xclbin, begun):
    async def body(dpu):
        await dpu.process(PHOTOS[0].jpeg)
        await asyncio.sleep(20 * SOON)
        assert begun == ["image_cu_1"] and dpu.out_of_service

    with_dpu(xclbin, body, faults=[Fault(FaultKind.ERROR)], probe_after_s=math.inf)


@pytest.mark.parametrize("launch", Launch)
def test_a_reset_looks_at_once(xclbin, launch):
    async def body(dpu):
        await dpu.process(PHOTOS[0].jpeg)
        out = list(dpu.out_of_service)
        assert out and await dpu.reset() == out  # it fails still
        assert await dpu.reset() == [] == list(dpu.out_of_service)
        assert (await dpu.process(PHOTOS[0].jpeg)).unit != "cpu"
        assert await dpu.reset() == []

    with_dpu(xclbin, body, faults=[Fault(FaultKind.ERROR, times=2)], probe_after_s=math.inf, launch=launch)


@pytest.mark.parametrize("first", [0, 1])
def test_a_reset_takes_no_notice_of_a_unit_that_another_probe_has_brought_back(two_units, first):
    """The probe of one unit is under way, and so comes before that of the other unit, for which the reset waits."""

    async def body(dpu):
        assert (await dpu.process(PHOTOS[0].jpeg)).unit == "cpu"
        out = sorted(dpu.out_of_service)
        assert out == ["image_cu_1", "image_cu_2"]
        dpu._cus.pools[0]._begin_probe(out[first])
        assert await dpu.reset() == []
        assert {state.returned for state in dpu.states()} == {1}

    with_dpu(two_units, body, faults=[Fault(FaultKind.ERROR, times=2)], probe_after_s=3600)


@pytest.mark.parametrize("spec", [ImageSpec(), AudioSpec()])
def test_a_driver_that_is_gone_holds_no_device(xclbin, spec):
    """There is no reference cycle, which would keep the device until the garbage collector runs and block another
    container."""
    gc.collect()
    gc.disable()
    try:

        async def run():
            async with Dpu(xclbin, spec) as dpu:
                await dpu.process(PHOTOS[0].jpeg if isinstance(spec, ImageSpec) else _sound())
                return weakref.ref(dpu)

        assert asyncio.run(run())() is None
    finally:
        gc.enable()


def _sound() -> bytes:
    return pcm_file(0.1 * np.sin(np.arange(16000) / 20), 16000)
