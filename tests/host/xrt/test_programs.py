"""Test programs that use XRT's own libraries on Headrace's device: examples/xrt/, unchanged."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from backends import COMPILING_S

from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageSpec
from headrace.host.xrt.shim.environment import XrtMissing, find_xrt

EXAMPLES = Path(__file__).parents[3] / "examples"
PLAIN = ImageSpec(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
LIMIT_S = 240


def lacking() -> str | None:
    try:
        find_xrt()
    except XrtMissing as error:
        return str(error)
    if not any(
        (folder / "xrt/xrt_bo.h").exists() for folder in map(Path, ("/usr/include/xrt", "/opt/xilinx/xrt/include"))
    ):
        return "XRT's headers are not installed (libxrt-dev)"
    if not Path("/usr/include/CL/cl.h").exists():
        return "OpenCL's headers are not installed (ocl-icd-opencl-dev)"
    return next((f"no {tool}" for tool in ("make", "g++", "unzip") if shutil.which(tool) is None), None)


pytestmark = [
    pytest.mark.skipif(lacking() is not None, reason=lacking() or ""),
    pytest.mark.timeout(COMPILING_S + LIMIT_S),  # the first test's fixture compiles
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in ("Makefile", "preprocess.cpp", "preprocess_opencl.cpp"):
        shutil.copy(EXAMPLES / "xrt" / name, folder)
    subprocess.run(["make", "-C", folder, "all", "opencl", "CXXFLAGS=-Werror"], check=True, timeout=COMPILING_S)
    return folder


def run(program: Path, environment: Path, *arguments: Path, before: str = "") -> tuple[int, str]:
    """Run a program and return its exit status and its whole output.

    It runs in a session of its own. The shims signal their process group, and the children of a program that hangs end
    with it."""
    line = f". {environment}/setup.sh && {before} exec {program} {' '.join(map(str, arguments))}"
    process = subprocess.Popen(
        ["sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, said


# hw_emu's shim of 2.13 sleeps for twenty seconds in each program.
@pytest.mark.parametrize("target", ["sw_emu", pytest.param("hw_emu", marks=pytest.mark.slow)])
@pytest.mark.parametrize("program", ["preprocess", "preprocess_opencl"])
def test_a_program_gets_the_tensor_of_an_image(program, target, programs, image_container, image_environment, tmp_path):
    container, image_file, tensor = image_container(target), EXAMPLES / "chelsea.jpg", tmp_path / "tensor.bin"
    environment = image_environment(target)
    status, said = run(programs / program, environment, container, image_file, tensor)
    assert status == 0 and "451x300 to 224x224" in said, said
    assert tensor.read_bytes() == np.ascontiguousarray(preprocess(image_file.read_bytes(), PLAIN), "<f4").tobytes()


@pytest.mark.parametrize("program", ["preprocess", "preprocess_opencl"])
def test_what_a_program_cannot_do_is_told_and_leaves_no_file(
    program, programs, image_container, image_environment, tmp_path
):
    container, image_file, tensor = image_container("sw_emu"), EXAMPLES / "chelsea.jpg", tmp_path / "tensor.bin"
    environment = image_environment("sw_emu")
    (tmp_path / "text.jpg").write_text("no photo")
    for arguments, wording in (
        ((container, tmp_path / "text.jpg", tensor), "text.jpg: status 1, see docs/reference/registers.md"),
        ((container, tmp_path / "missing.jpg", tensor), "missing.jpg cannot be read"),
        ((container, image_file, tmp_path / "no_folder" / "tensor.bin"), "tensor.bin cannot be written"),
        ((container, image_file), "usage: "),
    ):
        status, said = run(programs / program, environment, *arguments)
        assert status == (2 if wording == "usage: " else 1) and wording in said, said
        assert not tensor.exists()


def test_without_its_environment_a_program_ends_with_xrts_message(
    programs, image_container, image_environment, tmp_path
):
    container, tensor = image_container("sw_emu"), tmp_path / "tensor.bin"
    environment = image_environment("sw_emu")
    status, said = run(
        programs / "preprocess", environment, container, EXAMPLES / "chelsea.jpg", tensor, before="unset XILINX_XRT;"
    )
    assert status == 1 and "XILINX_XRT" in said and not tensor.exists(), said


@pytest.mark.slow  # hw_emu's shim; PYNQ refuses sw_emu
def test_pynq_gets_the_tensor_of_an_image(image_container, image_environment, tmp_path):
    """PYNQ needs numpy before 2, so it has an environment of its own. PYNQ_PYTHON is its interpreter."""
    python = os.environ.get("PYNQ_PYTHON", sys.executable)
    # Without XRT it imports, with a warning.
    if subprocess.run([python, "-c", "import pynq"], capture_output=True, timeout=60).returncode:
        pytest.skip("PYNQ is not installed; see the extra `pynq`")
    container, image_file, tensor = image_container("hw_emu"), EXAMPLES / "chelsea.jpg", tmp_path / "tensor.bin"
    script = EXAMPLES / "xrt" / "preprocess_pynq.py"
    status, said = run(Path(python), image_environment("hw_emu"), script, container, image_file, tensor)
    assert status == 0 and "451x300 to 224x224" in said, said
    assert tensor.read_bytes() == np.ascontiguousarray(preprocess(image_file.read_bytes(), PLAIN), "<f4").tobytes()
