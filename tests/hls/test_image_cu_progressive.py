"""image_cu x {csim, rtlsim} with a workspace: files of several scans through the whole compute unit."""

import random

import cu_rtlsim
import numpy as np
import pytest
import units
from scan_script import to_jpeg
from test_image_cu import CUS, SLOW, check
from test_image_cu import jpeg as baseline
from test_progressive import encode, picture, random_file

from headrace.host.dpu.specs import IMAGE_FORMATS, ImageSpec, ImageStage
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelFailed, MemoryModel

SMALL = ImageSpec(resize_short=40, crop_width=33, crop_height=31)


@pytest.fixture(params=list(CUS))
def cu(request):
    return CUS[request.param]


def progressive(seed: int, width: int, height: int, sampling: str = "4:2:0", restart: int = 0) -> bytes:
    return encode(picture(np.random.default_rng(seed), width, height), 80, sampling, restart)


@pytest.mark.quick(5)
@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize("dtype", IMAGE_FORMATS)
def test_a_progressive_file_becomes_opencvs_tensor(cu, sampling, dtype):
    spec = ImageSpec(resize_short=60, crop_width=50, crop_height=40, dtype=dtype)
    check(cu, progressive(1, 130, 90, sampling), spec, ImageStage.NORMALIZE)


@pytest.mark.quick(6)
@pytest.mark.parametrize("stage", list(ImageStage))
def test_every_stage_can_be_the_last(cu, stage):
    check(cu, progressive(2, 75, 115, restart=3), SMALL, stage)


def test_files_of_one_scan_and_of_several_follow_each_other(cu):
    for seed in range(3):
        check(cu, progressive(seed, 60 + seed, 50), SMALL, ImageStage.NORMALIZE)
        check(cu, baseline(64, 48), SMALL, ImageStage.NORMALIZE)
        assert cu(progressive(seed, 60, 50)[:400], stage=1).status == Status.TRUNCATED


def test_a_workspace_that_is_too_small_is_told_apart_from_a_tensor(cu):
    jpeg = progressive(3, 56, 56, "4:4:4")
    needed = 3 * 56 * 56 * 2
    for workspace_bytes in (128, needed - 128):
        small = cu(jpeg, stage=0, workspace_bytes=workspace_bytes)
        assert (small.status, small.out_size, small.bytes) == (Status.BUFFER_TOO_SMALL, (0, 0), needed)
        assert (small.memory == 0xA5).all()
    tensor = cu(jpeg, stage=0, capacity=1000, workspace_bytes=needed)
    assert (tensor.status, tensor.out_size, tensor.bytes) == (Status.BUFFER_TOO_SMALL, (56, 56), 3 * 56 * 56)
    check(cu, jpeg, SMALL, ImageStage.DECODE, workspace_bytes=needed)


def test_without_a_workspace_files_of_several_scans_are_refused_and_others_taken(cu):
    assert cu(progressive(4, 60, 50), stage=0, workspace_bytes=0).status == Status.PROGRESSIVE
    check(cu, baseline(60, 50), SMALL, ImageStage.DECODE, workspace_bytes=0)


# ---- C++ and RTL ----


@pytest.mark.parametrize(
    ("seed", "count"), [(4, 16), *(pytest.param(seed, 60, marks=SLOW, id=f"{seed}") for seed in range(1, 8))]
)
def test_cpp_and_rtl_agree_on_damaged_files_of_several_scans(seed, count):
    source = random.Random(seed)
    seen = set()
    for number in range(count):
        data = bytearray(to_jpeg(*random_file(1000 * seed + number, 60)))
        for _ in range(source.choice((0, 1, 1, 3))):
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        if source.random() < 0.15:
            del data[source.randrange(len(data)) :]
        settings = {
            "stage": source.choice(list(ImageStage)),
            "resize_short": 40,
            "crop": (33, 31),
            "workspace_bytes": source.choice((0, 4096, 1 << 16, 1 << 20, 1 << 20)),
            "memory": 1 << 18,
        }
        expected = units.image_cu(bytes(data), **settings)
        behind = MemoryModel(stall=0.3, seed=number) if number % 2 else None
        done = cu_rtlsim.image_cu(bytes(data), **settings, behind=behind, max_cycles=4_000_000)
        told = (expected.status, expected.out_size, expected.src_size, expected.bytes)
        assert (done.status, done.out_size, done.src_size, done.bytes) == told, number
        if expected.status == Status.OK:
            assert np.array_equal(done.memory[: done.bytes], expected.memory[: done.bytes]), number
            assert (done.memory[done.bytes :] == 0xA5).all(), number
        seen.add(expected.status)
    assert {Status.OK, Status.BUFFER_TOO_SMALL, Status.PROGRESSIVE} <= seen


# ---- rtlsim only ----


@pytest.mark.parametrize("behind", [MemoryModel(latency=1), MemoryModel(latency=1000), MemoryModel(bandwidth=0.05)])
def test_slow_memory_costs_time_and_nothing_else(behind):
    check(cu_rtlsim.image_cu, progressive(5, 90, 70), SMALL, ImageStage.NORMALIZE, behind=behind)


def test_the_workspace_may_begin_anywhere_in_64_bits():
    for high in (0x5555_5555_5555_5000, 0xAAAA_AAAA_AAAA_A000, 0):
        check(cu_rtlsim.image_cu, progressive(9, 60, 50), SMALL, ImageStage.NORMALIZE, high=high)


@pytest.mark.quick(4)
@pytest.mark.parametrize("clocks", [900, 1500, 2500, 4000, 6000, 9000, 14_000, 20_000])
@pytest.mark.parametrize("behind", [None, MemoryModel(latency=400, stall=0.2, seed=3)], ids=["fast", "slow"])
def test_a_reset_with_the_workspace_in_use_leaves_nothing_behind(clocks, behind):
    data = progressive(6, 150, 110)
    with pytest.raises(KernelFailed, match="did not finish within"):
        cu_rtlsim.image_cu(data, stage=1, max_cycles=clocks, behind=behind)
    check(cu_rtlsim.image_cu, data, SMALL, ImageStage.RESIZE)
