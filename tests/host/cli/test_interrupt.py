"""Ctrl-C ends every command soon, with one line, status 130 and nothing left running."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from headrace.bitstreams.build import build_sw_emu

PHOTO = Path(__file__).parents[3] / "examples" / "chelsea.jpg"
timed = pytest.mark.timed  # a command has two seconds to end
SOON_S = 4.0  # two seconds, and as much again for a machine that is busy with other tests
CODE = "import sys; from headrace.host.cli.main import main; print('up', file=sys.stderr, flush=True); main()"


def start(command: list[str], **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
        # A shell's background job ignores interrupts, and what it starts inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def interrupted(process: "subprocess.Popen[str]", group: bool = True) -> str:
    """What it says on stderr once it has ended."""
    began = time.monotonic()
    (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert time.monotonic() - began < SOON_S
    assert process.returncode == 130 and out == ""
    return err


def alive(session: int) -> list[str]:
    """State and command line of each process of the session that has not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, NotADirectoryError):
            if folder.name.isdecimal():
                state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(its_session) == session and state not in "ZX":
                    found.append(f"{state} {(folder / 'cmdline').read_bytes().decode().replace(chr(0), ' ')}")
    return found


@timed
@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--npus", "1024", "--rate-rps", "200000", "--policy", "serial", "--requests", "3000000"),
        ("smdp", "--tau", "0.3051,1.052", "--bmax", "4096", "--rho", "0.9"),  # compiled, and does not let go
        ("smdp", "--tau", "0.3,1", "--rho", "0.9", "--method", "rvi", "--smax", "99999", "--overflow-cost", "9"),
        ("build", "-o", "new.xclbin"),
        ("build", "--target", "hw_emu", "-o", "new.xclbin"),
        ("profile", "--cell", "lstm"),
        ("profile",),
        ("profile", "--cpu-preprocessing", "ours"),
        ("plan", "--model", "citrinet", "--rate-rps", "300", "--slo-ms", "100", "--gpu", "a100-40gb"),
        ("simulate", "--grid", "grid.toml"),
    ],
    ids=lambda command: " ".join(command)[:40],
)
@pytest.mark.parametrize(
    "after_s", [pytest.param(0.5, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_ctrl_c(command, after_s, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text("requests = 20_000\nseeds = 1000\n")
    process = start([sys.executable, "-c", CODE, *command], XDG_CACHE_HOME=str(tmp_path), CCACHE_DISABLE="1")
    assert process.stderr.readline() == "up\n"
    time.sleep(after_s)
    assert process.poll() is None, "it has ended by itself"
    *progress, last = interrupted(process).splitlines()
    assert last == "headrace: interrupted"
    # What `profile` has measured by then, and what `plan` and the grid were at, and nothing else.
    assert [line for line in progress if not line.startswith(("batch ", "1 x a100-40gb", "1000 sim"))] == []
    # Those of a compiler have the signal, too, and die as soon as a busy machine lets them.
    deadline = time.monotonic() + 2
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(process.pid) == []
    assert not Path("new.xclbin").exists()


@timed
@pytest.mark.quick(1)
@pytest.mark.parametrize("launch", ["single", "queue"])
def test_ctrl_c_amidst_photos_ends_the_units_and_leaves_whole_tensors(launch, tmp_path):
    """From a queue, one run of a unit goes on until it is told to stop."""
    container, tensors = tmp_path / "dpu.xclbin", tmp_path / "tensors"
    build_sw_emu(container, image_cus=2)
    photos = [str(PHOTO)] * 5000
    command = [sys.executable, "-c", CODE, "preprocess", "image", *photos, "--out", str(tensors)]
    process = start([*command, "--xclbin", str(container), "--launch", launch])
    assert process.stderr.readline() == "up\n"
    deadline = time.monotonic() + 60
    while len(list(tensors.glob("*.npy"))) < 5 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "it has ended by itself"
    assert interrupted(process).splitlines()[-1] == "headrace: interrupted"
    assert alive(process.pid) == []
    found = [np.load(path).shape for path in tensors.iterdir()]
    assert 5 <= len(found) < len(photos) and set(found) == {(3, 224, 224)}


@timed
def test_ctrl_c_amidst_images_of_a_processor_leaves_whole_files(tmp_path):
    tensors = tmp_path / "tensors"
    photos = [str(PHOTO)] * 5000
    command = ["preprocess", "image", *photos, "--processor", "siglip-base-patch16-224", "--out", str(tensors)]
    process = start([sys.executable, "-c", CODE, *command])
    assert process.stderr.readline() == "up\n"
    deadline = time.monotonic() + 60
    while len(list(tensors.glob("*.npz"))) < 5 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "it has ended by itself"
    assert interrupted(process).splitlines()[-1] == "headrace: interrupted"
    found = [np.load(path)["pixel_values"].shape for path in tensors.iterdir()]
    assert 5 <= len(found) < len(photos) and set(found) == {(1, 3, 224, 224)}


STUBBORN = """
import subprocess, sys, time
from headrace.host.cli.interrupt import bounded
with bounded():
    subprocess.Popen(["sleep", "60"])
    said = False
    while True:
        try:
            if not said:
                said = True
                print("up", file=sys.stderr, flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass
"""
DONE_IN_TIME = """
import sys, time
from headrace.host.cli.interrupt import GRACE_S, bounded
with bounded():
    try:
        print("up", file=sys.stderr, flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        pass
time.sleep(GRACE_S + 1)
print("on it goes")
"""


@timed
def test_what_does_not_end_is_ended_with_its_children():
    process = start([sys.executable, "-c", STUBBORN])
    assert process.stderr.readline() == "up\n"
    assert interrupted(process, group=False) == "headrace: interrupted\n"
    assert alive(process.pid) == []


def test_what_has_ended_in_time_is_left_alone():
    process = start([sys.executable, "-c", DONE_IN_TIME])
    assert process.stderr.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "on it goes\n", "")


IMPORTS = """
import sys, time
from headrace.host.cli.interrupt import bounded
print("up", file=sys.stderr, flush=True)
with bounded():
    try:
        import slow
        time.sleep(60)
    except KeyboardInterrupt:
        print(*dir(sys.modules["slow"])[-2:])
"""


@timed
def test_an_import_is_not_interrupted_but_what_comes_after_it(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1)\ntotal = 1\nwhole = 2\n")
    process = start([sys.executable, "-c", IMPORTS], PYTHONPATH=str(tmp_path))
    assert process.stderr.readline() == "up\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("total whole\n", "") and process.returncode == 0


THREADS_COME_AND_GO = """
import subprocess, threading, time
from headrace.host.cli import interrupt
from headrace.host.live.machine.children import children

def come_and_go():
    while True:
        threads = [threading.Thread(target=time.sleep, args=(0.0002,)) for _ in range(20)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()

child = subprocess.Popen(["sleep", "60"])
for _ in range(3):
    threading.Thread(target=come_and_go, daemon=True).start()
for _ in range(800):
    assert children() == [child.pid]
interrupt.end(7)
"""


def test_the_end_does_not_mind_threads_that_end_at_that_moment():
    process = start([sys.executable, "-c", THREADS_COME_AND_GO])
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 7
    assert alive(process.pid) == []
