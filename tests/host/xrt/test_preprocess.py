"""Test `headrace xrt-env` and then `preprocess image --xrt real`: its tensors equal those of the emulated device,
byte for byte."""

import os
import signal
import subprocess

import pytest
from backends import ROOT
from command import COMMAND, headrace

from headrace.host.demo.inputs.images import demo_images

CHELSEA = ROOT / "examples" / "chelsea.jpg"
LIMIT_S = 280
SMALL = 30_000  # bytes; RTL needs a second or more for each


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("target", ["sw_emu", pytest.param("hw_emu", marks=pytest.mark.slow)])
def test_tensors_are_those_of_the_emulated_device(target, dtype, newer_xrt, image_container, tmp_path):
    container, image_files = image_container(target), [CHELSEA]
    for number, image_file in enumerate(demo_images()):
        if target == "sw_emu" or (len(image_file.jpeg) < SMALL and len(image_files) < 3):
            image_files.append(tmp_path / f"{number}.jpg")
            image_files[-1].write_bytes(image_file.jpeg)
    line = ["preprocess", "image", *image_files, "--xclbin", container, "--dtype", dtype, "--fallback", "raise"]
    emulated = headrace(*line, "--xrt", "emulation", "--out", tmp_path / "emulated", timeout=LIMIT_S)
    assert emulated.returncode == 0, emulated.stderr
    written = headrace("xrt-env", container, "-o", tmp_path / "env")
    assert written.returncode == 0, written.stderr
    real = [*COMMAND, *map(str, line), "--xrt", "real", "--out", str(tmp_path / "real")]
    process = subprocess.Popen(
        ["sh", "-c", '. "$0"; exec "$@"', tmp_path / "env/setup.sh", *real],
        cwd=tmp_path,
        start_new_session=True,  # the shims write logs there and signal their group
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, told = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, told
    tensors = [
        {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in ("emulated", "real")
    ]
    assert len(tensors[0]) == len(image_files) and tensors[0] == tensors[1]
