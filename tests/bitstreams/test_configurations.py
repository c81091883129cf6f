"""The configurations of the image units: one choice for RTL, C++, container and folder."""

import asyncio
import json
import os
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.bitstreams.build import build_hw_emu, build_sw_emu, describe
from headrace.bitstreams.cache import build as build_cached
from headrace.bitstreams.configurations import (
    FULL,
    configuration,
    configuration_names,
    headers_of,
    kernel_xml,
    package_of,
)
from headrace.bitstreams.hw.folder import own_design, write_folder
from headrace.bitstreams.kernel import parse_kernels
from headrace.bitstreams.platforms import platform
from headrace.bitstreams.sources import hls_folder, include_folders
from headrace.bitstreams.verilate import needed_files, rtl_sources
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Launch
from headrace.host.dpu.processors import Engine, Filter, FixedSize, ProcessorSpec
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageSpec, ImageStage
from headrace.sim.hardware.dpu.jpeg import MAX_WIDTH

of_every_configuration = pytest.mark.parametrize("name", configuration_names())


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.xclbin"
    build_sw_emu(path, image_cus=1, configuration="small")
    return path


def test_there_is_a_full_and_a_small_one():
    assert configuration_names() == ["full", "small"]
    assert configuration(FULL).constants["max_width"] == MAX_WIDTH
    assert configuration("small").constants["max_width"] == 2048


@of_every_configuration
def test_the_cpp_has_the_constants_of_the_rtl(name):
    header = (headers_of(name) or hls_folder() / "include") / "headrace/config.hpp"
    found = dict(re.findall(r"constexpr \w+ (\w+) = (\w+);", header.read_text()))
    values = {each.lower(): {"true": 1, "false": 0}.get(value) for each, value in found.items()}
    values |= {each.lower(): int(value) for each, value in found.items() if value.isdigit()}
    # Clocks are the RTL's own matter: it may have constants of which the C++ knows nothing.
    constants = configuration(name).constants
    assert {each: constants[each] for each in values} == values
    assert set(values) >= {"max_width", "progressive", "samplings", "programs", "queue"}


@pytest.mark.parametrize(("name", "bits"), [(FULL, 256), ("small", 128)])
def test_the_port_that_image_cu_writes_has_the_width_of_the_configuration(name, bits):
    (spec,) = parse_kernels(kernel_xml("image_cu", name))
    assert {port.name: port.data_width for port in spec.ports if port.is_master} == {
        "M_AXI_GMEM0": 128,
        "M_AXI_GMEM1": bits,
    }


def test_kernel_xml_is_that_of_full():
    assert kernel_xml("image_cu") == (hls_folder() / "image_cu" / "kernel.xml").read_bytes()


@of_every_configuration
def test_every_configuration_has_all_constants(name):
    assert configuration(name).constants.keys() == configuration(FULL).constants.keys()


@of_every_configuration
def test_the_rtl_has_one_package_of_constants_in_front_of_what_imports_it(name):
    sources = rtl_sources(configuration=name)
    assert [path for path in sources if path.stem == "config_pkg"] == [package_of(name)]
    needed = needed_files("image_cu", sources)
    assert needed.index(package_of(name)) < [path.stem for path in needed].index("headrace_pkg")


def test_the_cpp_finds_the_constants_of_the_configuration_first():
    first = next(folder for folder in include_folders(headers_of("small")) if (folder / "headrace/config.hpp").exists())
    assert first == headers_of("small")
    assert include_folders() == include_folders(headers_of("small"))[1:]


def test_a_name_that_is_none_is_refused_with_those_that_are():
    for call in (configuration, package_of, headers_of, lambda name: rtl_sources(configuration=name)):
        with pytest.raises(UsageError, match=r"configuration '../full': choose from full, small"):
            call("../full")


def test_the_container_names_its_configuration(small, tmp_path):
    build = describe(build_sw_emu(small, image_cus=1, configuration="small"))["build"]
    constants = dict(configuration("small").constants)
    assert build["configuration"] == {"name": "small", "constants": constants}
    full = build_sw_emu(tmp_path / "full.xclbin", image_cus=1)
    assert describe(full)["build"]["configuration"]["name"] == "full"


def test_containers_of_two_configurations_lie_side_by_side_in_the_cache(tmp_path, monkeypatch):
    ccache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ccache"
    monkeypatch.setenv("CCACHE_DIR", os.environ.get("CCACHE_DIR", str(ccache)))  # else it compiles all again
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = {build_cached(image_cus=1, mel_cus=0, norm_cus=0, configuration=name) for name in configuration_names()}
    assert len(paths) == 2


def test_a_spec_or_a_launch_that_the_configuration_lacks_is_refused_at_once(small):
    processor = ProcessorSpec("P", Filter.BILINEAR, Engine.PILLOW13, sizes=(FixedSize(32, 32),))
    with pytest.raises(UsageError, match=r"small\.xclbin: its image CUs were built without programs; .*full"):
        Dpu(small, processor)
    with pytest.raises(UsageError, match=r"without a queue; launch them by single starts"):
        Dpu(small, ImageSpec(), launch=Launch.QUEUE)


def encoded(width, height, sampling=cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, progressive=0):
    noise = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive]
    return cv2.imencode(".jpg", cv2.GaussianBlur(noise, (5, 5), 0), options)[1].tobytes()


FILES = {
    "4:2:0": (encoded(150, 110), None),
    "4:4:4": (encoded(150, 110, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444), None),
    "the widest": (encoded(2048, 40), None),
    "wider": (encoded(2049, 40), "TOO_LARGE"),
    "4:1:1": (encoded(150, 110, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411), "SAMPLING"),
    "progressive": (encoded(150, 110, progressive=1), "PROGRESSIVE"),
}


def check_files(xclbin, spec):
    """Check that the CU takes what its configuration has, and that the CPU makes the rest."""

    async def run():
        async with Dpu(xclbin, spec) as dpu:
            return {name: await dpu.process(jpeg) for name, (jpeg, _) in FILES.items()}

    for name, done in asyncio.run(run()).items():
        jpeg, status = FILES[name]
        assert np.array_equal(done.tensor, preprocess(jpeg, spec, ImageStage.NORMALIZE)), name
        assert done.dpu_status in (None, "OK") if status is None else done.dpu_status == status, name


def test_files_that_the_configuration_does_not_take_go_to_the_cpu(small):
    check_files(small, ImageSpec(resize_short=36, crop_width=33, crop_height=31))


@pytest.mark.slow
def test_the_rtl_of_the_configuration_does_the_same(tmp_path):
    path = tmp_path / "rtl.xclbin"
    build_hw_emu(path, image_cus=1, configuration="small")
    check_files(path, ImageSpec(resize_short=36, crop_width=33, crop_height=31))


@pytest.mark.parametrize("kernel", ["rtl", "hls"])
def test_a_folder_for_a_card_has_the_configuration(kernel, tmp_path):
    folder = tmp_path / "d"
    write_folder(folder, own_design(platform("u55c"), kernel, (1, 0, 0), 250.0, {}, "small"))
    assert json.loads((folder / "manifest.json").read_text())["configuration"] == "small"
    if kernel == "rtl":
        script = (folder / "kernels/image_cu.tcl").read_text()
        assert "src/configurations/small/config_pkg.sv" in script and "src/rtl/config_pkg.sv" not in script
    else:
        assert "INCLUDES = -Isrc/configurations/small -Isrc/include -Isrc" in (folder / "config.mk").read_text()
        assert (folder / "src/configurations/small/headrace/config.hpp").is_file()
