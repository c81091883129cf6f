"""Test the device process over a real socket. The test takes the role of XRT's shim."""

import json
import logging
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command import headrace_here

from headrace.bitstreams.xclbin import Mode, XclbinError, read_xclbin, sealed, write_xclbin
from headrace.host import xrt
from headrace.host.xrt.shim import messages, process
from headrace.host.xrt.shim.environment import XrtMissing, write_environment
from headrace.host.xrt.shim.memory import PAGE, BadAddress, SharedMemory
from headrace.host.xrt.shim.messages import ProtocolError, packed, receive
from headrace.host.xrt.shim.process import CONTINUE, DONE, IDLE, START, Device

COUNT = 1000
BASES = {"vadd_1": 0x80_0000, "vadd_2": 0x81_0000}
A, B, OUT = 0x1000_0000, 0x2000_0000, 0x3000_0000
REGISTERS = {"a": 0x10, "b": 0x1C, "out": 0x28, "count": 0x34, "scalar": 0x3C, "sleep_ms": 0x44, "sum": 0x50}


class Shim:
    """The other side of the socket."""

    hardware = False

    def __init__(self, device: Device) -> None:
        self.socket, other = socket.socketpair()
        self.socket.settimeout(60)
        self.thread = threading.Thread(target=device.serve, args=(other,), daemon=True)
        self.thread.start()

    def ask(self, name, **fields):
        self.socket.sendall(packed(f"{name}_request", fields, header=True))
        head = messages._exactly(self.socket, 9)
        size = messages._parsed("header", head)["size"]
        return messages._parsed(f"{name}_answer", messages._exactly(self.socket, size))

    def control(self, unit="vadd_1") -> int:
        return int.from_bytes(self.ask("read_registers", address=BASES[unit], size=4)["data"], "little")

    def start(self, unit="vadd_1", *, out=OUT, scalar=0, sleep_ms=0) -> None:
        """Write all registers at once, as sw_emu's scheduler does."""
        registers = bytearray(0x50)
        registers[0] = START
        for name, value in {"a": A, "b": B, "out": out}.items():
            registers[REGISTERS[name] : REGISTERS[name] + 8] = value.to_bytes(8, "little")
        for name, value in {"count": COUNT, "scalar": scalar, "sleep_ms": sleep_ms}.items():
            registers[REGISTERS[name] : REGISTERS[name] + 4] = value.to_bytes(4, "little")
        assert self.ask("write_registers", address=BASES[unit], data=bytes(registers))["ack"]

    def wait(self, unit="vadd_1") -> None:
        end = time.monotonic() + 60
        while not self.control(unit) & DONE:
            assert time.monotonic() < end
            time.sleep(0.002)
        assert self.ask("write_registers", address=BASES[unit], data=CONTINUE.to_bytes(4, "little"))["ack"]
        assert self.control(unit) == IDLE

    def buffers(self) -> None:
        for address, values in ((A, np.arange(COUNT)), (B, np.full(COUNT, 7)), (OUT, np.zeros(COUNT))):
            assert self.ask("allocate", address=address, size=4 * COUNT)["ack"]
            data = values.astype(np.int32).tobytes()
            assert self.ask("to_device", address=address, data=data, size=len(data))["size"] == len(data)

    def out(self) -> np.ndarray:
        return np.frombuffer(self.ask("to_host", address=OUT, size=4 * COUNT)["data"], np.int32)


def opened(container: Path, folder: Path, limit_s: float = 60) -> Shim:
    """Return a shim with the container loaded, as the shims load it: files for sw_emu, an unpacked archive for
    hw_emu."""
    content, device = read_xclbin(container), Device(limit_s)
    if content.bitstream.startswith(b"PK"):
        zipfile.ZipFile(BytesIO(content.bitstream)).extractall(folder)
        device.load_unpacked(folder)
        shim = Shim(device)
        shim.hardware = True
    else:
        (folder / "xmltmp").write_bytes(content.metadata_xml)
        (folder / "dltmp").write_bytes(content.bitstream)
        shim = Shim(device)
        assert shim.ask("close")["ack"]  # 2.13 says so before it loads
        files = {"kernels": os.fsencode(folder / "xmltmp"), "library": os.fsencode(folder / "dltmp")}
        assert shim.ask("load", **files)["ack"]
    shim.buffers()
    return shim


@pytest.fixture(params=["sw_emu", "hw_emu"])
def shim(request, tmp_path):
    return opened(request.getfixturevalue(f"vadd{'_hw' * (request.param == 'hw_emu')}_xclbin"), tmp_path)


@pytest.fixture
def cpp(vadd_xclbin, tmp_path):
    return opened(vadd_xclbin, tmp_path)


def test_a_run_computes_and_rtl_leaves_its_output_registers(shim, request):
    for scalar in (3, 4):
        shim.start(scalar=scalar)
        shim.wait()
        assert (shim.out() == np.arange(COUNT) + 7 + scalar).all()
        total = shim.ask("read_registers", address=BASES["vadd_1"] + REGISTERS["sum"], size=4)["data"]
        in_rtl = request.node.callspec.params["shim"] == "hw_emu"
        assert int.from_bytes(total, "little") == (shim.out().sum() if in_rtl else 0)  # the C++ has no registers
        base, offset = BASES["vadd_1"], REGISTERS["scalar"]
        assert int.from_bytes(shim.ask("read_register", base=base, offset=offset, size=4)["data"], "little") == scalar


def test_the_socket_is_answered_while_units_run_concurrently(shim):
    def ends_during(sleep_ms):
        shim.start("vadd_1", sleep_ms=sleep_ms)
        running = shim.control() == START
        shim.start("vadd_2", scalar=9)
        shim.wait("vadd_2")
        assert (shim.out() == np.arange(COUNT) + 16).all()
        running = running and shim.control("vadd_1") == START
        shim.wait("vadd_1")
        return running

    assert any(ends_during(sleep_ms) for sleep_ms in (300, 3000, 30_000))  # longer if the machine is busy


def test_a_run_that_takes_too_long_is_ended_and_the_log_says_so(vadd_xclbin, tmp_path, caplog):
    shim = opened(vadd_xclbin, tmp_path, limit_s=0.2)
    shim.start(sleep_ms=30_000)
    shim.wait()
    assert "vadd_1: run 1 took more than its limit of 0.2 s" in caplog.text
    shim.start()
    shim.wait()
    assert "run 2 does not start, because an earlier run has not ended" in caplog.text
    shim.start("vadd_2")
    shim.wait("vadd_2")
    assert (shim.out() == np.arange(COUNT) + 7).all()


def test_nothing_is_left_of_the_watch_over_runs_that_have_ended(cpp):
    for _ in range(20):
        cpp.start()
        cpp.wait()
    watches = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    end = time.monotonic() + 10
    for thread in watches:
        thread.join(max(0, end - time.monotonic()))
    assert not any(thread.is_alive() for thread in watches)


def test_a_run_on_no_memory_ends_and_the_next_one_is_fine(shim, caplog):
    shim.start(out=0x9000_0000)
    shim.wait()
    assert not shim.out().any()
    # The C++ is stopped before it writes there; RTL gets memory's error response, and vadd does not look at it.
    assert ("vadd_1: run 1 failed: no buffer holds" in caplog.text) == (not shim.hardware)
    shim.start()
    shim.wait()
    assert (shim.out() == np.arange(COUNT) + 7).all()


def test_a_buffer_that_is_freed_under_way_lasts_as_long_as_the_run(cpp):
    cpp.start(sleep_ms=200)
    for address in (A, B, OUT):
        assert cpp.ask("free", address=address)["ack"]
    cpp.wait()
    assert cpp.ask("to_host", address=OUT, size=4)["size"] == 0


def test_what_cannot_be_done_is_not_acknowledged_and_told(cpp, caplog):
    with caplog.at_level(logging.ERROR):
        assert not cpp.ask("write_registers", address=0x70_0000, data=b"\1\0\0\0")["ack"]
        assert not cpp.ask("write_registers", address=BASES["vadd_1"] + 0xFFFE, data=b"\1\0\0\0")["ack"]
        assert not cpp.ask("read_registers", address=BASES["vadd_1"] + 0xFFFE, size=4)["ack"]
        assert not cpp.ask("read_register", base=5, offset=0, size=4)["ack"]
        assert cpp.ask("to_device", address=OUT + 8000, data=bytes(100), size=100)["size"] == 0
        assert not cpp.ask("load", kernels=b"/no/file", library=b"/no/file")["ack"]
        assert not cpp.ask("copy_from_file", file=b"/no/file", address=OUT, size=1)["ack"]
    assert "no compute unit has registers at 0x700000" in caplog.text
    cpp.start()
    cpp.wait()
    assert (cpp.out() == np.arange(COUNT) + 7).all()


def test_parts_of_buffers_go_to_and_from_files(cpp, tmp_path):
    cpp.start()
    cpp.wait()
    expected = cpp.out().tobytes()
    file = tmp_path / "other"
    file.write_bytes(bytes(100))
    copy = {"file": os.fsencode(file), "address": OUT, "size": 40, "from": 8, "to": 60}
    assert cpp.ask("copy_to_file", **copy)["ack"]
    assert file.read_bytes() == bytes(60) + expected[8:48]
    assert cpp.ask("copy_from_file", file=os.fsencode(file), address=OUT, size=8, **{"from": 60, "to": 400})["ack"]
    assert cpp.out().tobytes() == expected[:400] + expected[8:16] + expected[408:]


def test_the_files_are_the_memory_one_a_buffer_or_all_in_one_at_their_addresses(cpp):
    file = Path(os.fsdecode(cpp.ask("allocate", address=0x4000_0000, size=5000)["file"]))
    assert cpp.ask("to_device", address=0x4000_0009, data=b"mine", size=4)["size"] == 4
    assert file.read_bytes()[9:13] == b"mine" and file.stat().st_size == 8192
    assert cpp.ask("version", version=b"2.0")["ack"]
    files = []
    for address in (0x5000_0000, 0x5000_2000):
        files.append(Path(os.fsdecode(cpp.ask("allocate", address=address, size=5000)["file"])))
        assert cpp.ask("to_device", address=address, data=b"%x" % address, size=8)["size"] == 8
    assert files[0] == files[1] != file
    with files[0].open("rb") as memory:
        assert os.pread(memory.fileno(), 8, 0x5000_0000) == b"50000000"
        assert os.pread(memory.fileno(), 8, 0x5000_2000) == b"50002000"
    assert cpp.ask("to_host", address=0x4000_0009, size=4)["data"] == b"mine"


def test_an_offset_is_added_by_sw_emus_shim_and_sent_separately_by_hw_emus(shim):
    at = OUT if shim.hardware else OUT + 40
    assert shim.ask("to_device", address=at, data=b"four", size=4, seek=40)["size"] == 4
    assert shim.ask("to_host", address=at, size=4, skip=40)["data"] == b"four"
    assert shim.out().tobytes()[40:44] == b"four"


def test_each_close_of_hw_emus_shim_ends_it_and_one_for_everything_of_sw_emus(shim):
    """Before another load hw_emu's shim waits for this process, and only then closes the socket."""
    if not shim.hardware:
        assert shim.ask("close")["ack"]
        assert shim.ask("allocate", address=A, size=1)["ack"]
    assert shim.ask("close", everything=not shim.hardware)["ack"]
    shim.thread.join(10)
    assert not shim.thread.is_alive()


def test_it_stays_until_the_answer_to_the_last_close_is_read(shim):
    """The hw_emu shim of XRT 2.16 reads nothing more once it has seen that the other side has gone."""
    shim.socket.sendall(packed("close_request", {"everything": not shim.hardware}, header=True))
    head = messages._exactly(shim.socket, 9)
    shim.thread.join(0.3)
    assert shim.thread.is_alive()
    assert messages._exactly(shim.socket, messages._parsed("header", head)["size"])
    shim.thread.join(10)
    assert not shim.thread.is_alive()


def test_freed_buffers_of_the_one_file_give_their_pages_back():
    memory = SharedMemory()
    memory.in_one_file()
    size, base = 1 << 20, 1 << 30
    file = memory.allocate(base, size)

    def taken() -> int:
        return os.stat(file).st_blocks * 512

    memory.write(base, bytes([7]) * size)
    assert taken() >= size
    run = memory.held()
    memory.free(base)
    assert taken() >= size and run[0].memory[:3] == b"\7\7\7"  # a run has it still
    run.clear()
    assert taken() < size
    memory.allocate(base, size)
    assert memory.read(base, size) == bytes(size)
    memory.write(base, b"new")
    run = memory.held()
    memory.free(base)
    memory.allocate(base, PAGE)  # the next one's
    memory.write(base, b"newer")
    run.clear()
    assert memory.read(base, 5) == b"newer"


def test_memory_knows_its_ends():
    memory = SharedMemory()
    memory.allocate(0x1000, 10)
    memory.write(0x1FFF, b"x")
    assert memory.read(0x1FFF, 1) == b"x"
    for address, size in ((0xFFF, 1), (0x1FFF, 2), (0x2000, 1)):
        with pytest.raises(BadAddress):
            memory.read(address, size)
    with pytest.raises(ValueError):
        memory.pointer(0x2000)
    memory.free(0x1000)
    memory.free(0x1000)
    with pytest.raises(BadAddress):
        memory.read(0x1000, 1)


def test_what_is_no_request_is_refused_and_never_waited_for():
    numbers = random.Random(7)
    good = packed("allocate_request", {"address": 5, "size": 6}, header=True)
    for case in range(3000):
        raw = bytearray(good)
        for _ in range(numbers.randrange(4)):
            raw[numbers.randrange(len(raw))] = numbers.randrange(256)
        raw = raw[: numbers.randrange(len(raw) + 1)] if case % 3 == 0 else raw
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.settimeout(5)
            ours.sendall(raw)
            ours.shutdown(socket.SHUT_WR)
            try:
                request = receive(theirs)
            except ProtocolError as error:
                assert str(error)
            else:
                assert request is None or request.name in messages._KINDS


def test_the_environment_is_for_one_container_and_spares_other_things(vadd_xclbin, vadd_hw_xclbin, tmp_path):
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libxrt_core.so.2.16.0").touch()
    (libraries / "libxrt_core.so.2").symlink_to("libxrt_core.so.2.16.0")
    (libraries / "libxilinxopencl.so.2").touch()
    for container, mode in ((vadd_xclbin, "sw_emu"), (vadd_hw_xclbin, "hw_emu")):
        setup = write_environment(read_xclbin(container), tmp_path / "env", libraries=libraries)
        shown = subprocess.run(["sh", "-c", f". {setup}; env"], capture_output=True, text=True, check=True).stdout
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        assert found["XCL_EMULATION_MODE"] == mode and "keep_buffers" not in shown
        assert (Path(found["XILINX_XRT"]) / "lib/libxrt_core.so.2").resolve().parent == libraries
        assert (Path(found["OCL_ICD_VENDORS"]) / "xilinx.icd").read_text() == f"{libraries}/libxilinxopencl.so.2\n"
        model = Path(found["XILINX_VITIS"]) / "data/emulation/unified/cpu_em/generic_pcie/model/genericpciemodel"
        assert os.access(model, os.X_OK)
        card = json.loads((Path(found["EMCONFIG_PATH"]) / "emconfig.json").read_text())
        (device,) = card["Platform"]["Boards"][0]["Devices"]
        assert device["DdrBanks"] == [{"Size": "512M"}] * 32 and device["DdrSize"] == "16G"
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    with pytest.raises(XrtMissing, match="holds other files"):
        write_environment(read_xclbin(vadd_xclbin), tmp_path / "full", libraries=libraries)
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine"]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", "from headrace.host.cli.main import main; main()", *arguments]
    kept = {name: value for name, value in os.environ.items() if name != "EMULATION_SOCKETID"}
    return subprocess.run(line, capture_output=True, text=True, timeout=100, env=kept | environment)


@pytest.fixture
def here(monkeypatch):
    """Return `command` for what ends before a device is opened: it runs in this process."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return headrace_here(*arguments)

    monkeypatch.delenv("EMULATION_SOCKETID", raising=False)
    return run


def test_without_a_shim_the_command_says_who_starts_it(tmp_path):
    done = command("device")
    assert done.returncode == 2 and "XRT's emulation starts this command itself" in done.stderr
    done = command("device", str(tmp_path), EMULATION_SOCKETID="x")
    assert done.returncode == 2 and "kernels.xml" in done.stderr


def test_the_socket_of_a_dead_host_is_waited_for_within_a_limit(tmp_path, monkeypatch):
    path = tmp_path / "stale"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    monkeypatch.setattr(process, "socket_path", lambda: path)
    monkeypatch.setattr(process, "CONNECT_TIMEOUT_S", 0.1)
    with pytest.raises(process.DeviceError, match=r"no process listened at .*stale for 0\.1 s"):
        process.main()


def test_the_environment_of_what_is_no_container_is_refused(tmp_path, vadd_xclbin, here):
    (tmp_path / "text").write_text("no container")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    intact, twisted, card = read_xclbin(vadd_xclbin), tmp_path / "twisted", tmp_path / "card"
    write_xclbin(twisted, sealed(replace(intact, metadata_xml=b"<project")))
    write_xclbin(card, replace(intact, mode=Mode.PR))
    for mode in (Mode.PR, Mode.HW_EMU_PR):
        with pytest.raises(XrtMissing, match=f"for {mode.name}"):
            write_environment(replace(intact, mode=mode), tmp_path / "env")
    for container, folder, wording in (
        (twisted, tmp_path / "env", "EMBEDDED_METADATA: the kernel description cannot be read"),
        (card, tmp_path / "env", "card is for a card (mode PR); give a container for sw_emu or hw_emu"),
        (tmp_path / "missing", tmp_path / "env", "No such file"),
        (tmp_path / "text", tmp_path / "env", "not an xclbin"),
        (vadd_xclbin, tmp_path / "full", "holds other files"),
    ):
        done = here("xrt-env", str(container), "-o", str(folder))
        assert done.returncode == 2 and wording in " ".join(done.stderr.split()) and not (tmp_path / "env").exists()
        assert "Traceback" not in done.stderr and done.stderr.count("headrace: ") == 1


@pytest.mark.parametrize(
    ("mode", "wording"), [(None, "XCL_EMULATION_MODE is not set"), ("hw_emu", "is hw_emu, not sw_emu")]
)
def test_the_real_xrt_wants_its_environment(mode, wording, vadd_xclbin, monkeypatch):
    monkeypatch.delenv("XCL_EMULATION_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("XCL_EMULATION_MODE", mode)
    with pytest.raises(xrt.NoDevice, match=wording):
        xrt.api_for(vadd_xclbin, xrt.Api.REAL)


def test_a_release_before_hardware_contexts_is_refused_by_its_number(vadd_xclbin, tmp_path, monkeypatch):
    """pyxrt has the class since 2.16, and the driver needs it."""
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libxrt_core.so.2").symlink_to("libxrt_core.so.2.13.466")
    opened = []
    old = SimpleNamespace(device=opened.append)
    monkeypatch.setitem(sys.modules, "pyxrt", old)
    monkeypatch.setenv("XCL_EMULATION_MODE", "sw_emu")
    monkeypatch.setenv("XILINX_XRT", str(tmp_path))
    with pytest.raises(
        xrt.NoDevice, match=r"the Python module of XRT 2\.13 has no hardware contexts; install XRT 2\.16 or later"
    ):
        xrt.api_for(vadd_xclbin, xrt.Api.REAL)
    (libraries / "libxrt_core.so.2").unlink()
    with pytest.raises(xrt.NoDevice, match=r"the Python module of XRT older than 2\.16 has no hardware contexts"):
        xrt.api_for(vadd_xclbin, xrt.Api.REAL)
    assert not opened
    old.hw_context = object
    assert xrt.api_for(vadd_xclbin, xrt.Api.REAL) is old and opened == [0]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_old_releases_get_the_interposer(vadd_xclbin, tmp_path):
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libxrt_core.so.2.13.0").touch()
    (libraries / "libxrt_core.so.2").symlink_to("libxrt_core.so.2.13.0")
    setup = write_environment(read_xclbin(vadd_xclbin), tmp_path / "env", libraries=libraries)
    done = subprocess.run(["sh", "-c", f". {setup}; ls / && echo $LD_PRELOAD"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip().endswith("keep_buffers.so") and not done.stderr


SHIM = """
#include <malloc.h>
#include <stdlib.h>
size_t room(void) {
    size_t least = -1;
    void *volatile block = malloc(0);
    for (size_t size = 100; size < 8000000; size *= 3) {
        if (malloc_usable_size(block) < least) least = malloc_usable_size(block);
        block = realloc(block, size);
        block = realloc(block, 10);
    }
    free(block);
    return least;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize(("name", "shim"), [("libxrt_swemu", True), ("libxrt_hwemu", True), ("libother", False)])
def test_the_interposer_keeps_the_room_of_a_shims_buffer(name, shim, vadd_xclbin, tmp_path):
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libxrt_core.so.2.13.0").touch()
    (libraries / "libxrt_core.so.2").symlink_to("libxrt_core.so.2.13.0")
    setup = write_environment(read_xclbin(vadd_xclbin), tmp_path / "env", libraries=libraries)
    library = tmp_path / f"{name}.so.2"
    compiled = ["gcc", "-O0", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(compiled, input=SHIM, text=True, check=True)
    call = f"{sys.executable} -c 'import ctypes; print(ctypes.CDLL(\"{library}\").room())'"
    done = subprocess.run(["sh", "-c", f". {setup}; {call}"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and (int(done.stdout) >= 8 << 20) == shim, done.stderr


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", [(), ("--audio",)])
def test_a_demo_on_the_real_xrt_that_is_not_set_up_is_refused_before_it_begins(kind, vadd_xclbin, tmp_path, here):
    line = ("demo", *kind, "--xrt", "real", "--xclbin", str(vadd_xclbin), "--out", str(tmp_path / "report"))
    done = here(*line, XCL_EMULATION_MODE="hw_emu")
    assert done.returncode == 1 and "XCL_EMULATION_MODE is hw_emu, not sw_emu" in done.stderr
    assert not (tmp_path / "report").exists()


@pytest.mark.quick(1)
@pytest.mark.parametrize("how", ["cut short", "metadata"])
def test_a_damaged_container_is_refused_before_the_real_xrt_is_asked(how, vadd_xclbin, tmp_path, monkeypatch, here):
    """XRT itself crashes on some of these containers."""
    monkeypatch.setenv("XCL_EMULATION_MODE", "sw_emu")
    damaged = tmp_path / "damaged.xclbin"
    if how == "cut short":
        damaged.write_bytes(vadd_xclbin.read_bytes()[:2000])
    else:
        write_xclbin(damaged, replace(read_xclbin(vadd_xclbin), metadata_xml=b"<project"))
    with pytest.raises(XclbinError, match=r"damaged\.xclbin: "):
        xrt.api_for(damaged, xrt.Api.REAL)
    image, out = tmp_path / "photo.jpg", tmp_path / "out"
    image.write_bytes(b"a photo")
    for name in ("preprocess image", "demo"):
        files = [str(image)] if name != "demo" else []
        line = (*name.split(), *files, "--xrt", "real", "--xclbin", str(damaged), "--out", str(out))
        done = here(*line, XCL_EMULATION_MODE="sw_emu")
        assert done.returncode == 2 and str(damaged) in done.stderr and "Traceback" not in done.stderr
        assert not out.exists()


def test_a_container_for_a_card_is_not_emulated(image_container, tmp_path, here):
    card, image, out = tmp_path / "card.xclbin", tmp_path / "photo.jpg", tmp_path / "out"
    image.write_bytes(b"a photo")
    write_xclbin(card, replace(read_xclbin(image_container("sw_emu")), mode=Mode.PR))
    with pytest.raises(xrt.NoDevice, match=r"card\.xclbin is for a card \(mode PR\); the emulation runs"):
        xrt.api_for(card, xrt.Api.EMULATION)
    for name in (("preprocess", "image", str(image)), ("demo",)):
        done = here(*name, "--xrt", "emulation", "--xclbin", str(card), "--out", str(out))
        said = " ".join(done.stderr.split())
        assert done.returncode == 1 and "card.xclbin is for a card (mode PR); the emulation runs containers" in said
        assert "Traceback" not in said and not list(out.glob("*.npy"))


def test_the_real_xrt_is_not_asked_without_its_folder(image_container, tmp_path):
    """A module with XRT's name stands in for it, and would report that it was opened."""
    (tmp_path / "pyxrt.py").write_text("def device(index):\n    raise SystemExit('asked')\nhw_context = None\n")
    image, out = tmp_path / "photo.jpg", tmp_path / "out"
    image.write_bytes(b"a photo")
    container = str(image_container("sw_emu"))
    line = ("preprocess", "image", str(image), "--xrt", "real", "--xclbin", container, "--out", str(out))
    done = command(*line, XCL_EMULATION_MODE="sw_emu", PYTHONPATH=str(tmp_path), XILINX_XRT="")
    assert done.returncode == 1 and "XILINX_XRT is not set, and XRT does nothing without it; source" in done.stderr
    assert "Traceback" not in done.stderr and "asked" not in done.stderr and not list(out.glob("*.npy"))
