"""Test a device process that is killed during a run. XRT's shim reports it and signals the host's whole process
group."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from command import COMMAND

IMAGE_FILE = Path(__file__).parents[3] / "examples" / "chelsea.jpg"
MANY = 5000
LIMIT_S = 60


def child(process: subprocess.Popen) -> int:
    """Return the device process, which the shim starts."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and b"headrace\0device\0" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    (device,) = found
    return device


@pytest.fixture
def preprocess(newer_xrt, image_container, image_environment, tmp_path):
    """Start preprocessing of so many images, in a session of its own, because the shim signals its process group."""
    environment, container = image_environment("sw_emu", newer_xrt), image_container("sw_emu")
    started = []

    def start(count: int) -> subprocess.Popen:
        files = [str(IMAGE_FILE)] * count
        options = ["--xclbin", str(container), "--xrt", "real", "--out", str(tmp_path / "tensors")]
        line = [
            "sh",
            "-c",
            '. "$0"/setup.sh; exec "$@"',
            environment,
            *COMMAND,
            "preprocess",
            "image",
            *files,
            *options,
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(line, start_new_session=True, cwd=tmp_path, **pipes))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_preprocess_ends_at_once_with_one_message_and_whole_files(preprocess, tmp_path):
    tensors = tmp_path / "tensors"
    process = preprocess(MANY)
    end = time.monotonic() + LIMIT_S
    while len(list(tensors.glob("*.npy"))) < 5 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    os.kill(child(process), signal.SIGKILL)
    _, said = process.communicate(timeout=10)
    assert process.returncode == -signal.SIGTERM
    assert said.strip().splitlines()[-1] == "Software emulation of compute unit(s) exited unexpectedly"
    assert "Traceback" not in said
    files = list(tensors.iterdir())
    assert {np.load(file).shape for file in files} == {(3, 224, 224)} and 5 <= len(files) < MANY
    again = preprocess(2)
    _, said = again.communicate(timeout=LIMIT_S)
    assert again.returncode == 0, said
