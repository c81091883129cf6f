"""Test the emulated device: its own functions and rules, its messages and times, and injected faults. test_pyxrt.py
tests what all devices with pyxrt's names have in common."""

import gc
import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from headrace.bitstreams.build import build_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.xclbin import Mode, read_xclbin, sealed, write_xclbin
from headrace.host import xrt
from headrace.host.xrt import emulation as pyxrt
from headrace.host.xrt import engine
from headrace.host.xrt.faults import Fault, FaultKind
from headrace.host.xrt.hw_emu import KernelModel, MemoryModel

TO_DEVICE = pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
FROM_DEVICE = pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE
STATE = pyxrt.ert_cmd_state
COUNT = 1000
PATIENCE_S = 60.0  # only a test that fails waits for so long
PATIENCE_MS = int(1000 * PATIENCE_S)


class Board:
    """The device with the vadd container and, for one kernel object, buffers in the right banks."""

    def __init__(self, path, name="vadd:{vadd_1}") -> None:
        self.device = pyxrt.device(0)
        self.uuid = self.device.register_xclbin(pyxrt.xclbin(str(path)))
        self.context = pyxrt.hw_context(self.device, self.uuid)
        self.kernel = pyxrt.kernel(self.context, name)
        self.a, self.b, self.out = (self.buffer(argument) for argument in range(3))
        self.fill(self.a, np.arange(COUNT))
        self.fill(self.b, 7)

    def buffer(self, argument, size=4 * COUNT):
        return pyxrt.bo(self.device, size, pyxrt.bo.normal, self.kernel.group_id(argument))

    def fill(self, buffer, values):
        buffer.write(np.full(COUNT, values, np.int32), 0)
        buffer.sync(TO_DEVICE)

    def start(self, sleep_ms=0, scalar=0, out=None):
        return self.kernel(self.a, self.b, out or self.out, COUNT, scalar, sleep_ms)

    def result(self):
        self.out.sync(FROM_DEVICE)
        return np.frombuffer(self.out.map(), np.int32)


@pytest.fixture(params=["sw_emu", "hw_emu"])
def board(request):
    return Board(request.getfixturevalue("vadd_xclbin" if request.param == "sw_emu" else "vadd_hw_xclbin"))


@pytest.fixture
def cpp_board(vadd_xclbin):
    """Provide a board with a kernel whose milliseconds are real milliseconds."""
    return Board(vadd_xclbin)


@pytest.fixture
def rtl_board(vadd_hw_xclbin):
    return Board(vadd_hw_xclbin)


def test_cpp_has_no_clock_to_tell_of(cpp_board, tmp_path):
    run = cpp_board.start()
    run.wait(PATIENCE_MS)
    assert run.get_hw_emu_stats() is None
    with pytest.raises(RuntimeError, match="no hw_emu container is loaded; load one to use waveforms"):
        pyxrt.trace(cpp_board.device, tmp_path / "run.vcd")
    with pytest.raises(RuntimeError, match="load one to use clocked memory"):
        pyxrt.set_memory_model(cpp_board.device, MemoryModel())


def test_rtl_tells_the_clocks_of_a_completed_run(rtl_board):
    run = rtl_board.start(sleep_ms=100)
    assert run.get_hw_emu_stats() is None
    assert run.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
    assert 100 * 2048 < run.get_hw_emu_stats()["cycles"] < 100 * 2048 + 2000
    pyxrt.set_memory_model(rtl_board.device, MemoryModel(latency=100_000))
    run.start()
    run.wait(PATIENCE_MS)
    assert run.get_hw_emu_stats()["cycles"] > 300_000


def test_a_container_for_saif_writes_how_often_each_bit_toggled(tmp_path):
    vadd = Path(__file__).parents[2] / "bitstreams" / "vadd"
    sources = [hls_folder() / "rtl" / "stream_fifo.sv", vadd / "vadd.sv"]
    xml = (vadd / "kernel.xml").read_bytes()
    build_kernels(tmp_path / "v.xclbin", sources, [], [xml], {"vadd": 1}, Mode.HW_EMU, trace="saif")
    board, path = Board(tmp_path / "v.xclbin"), tmp_path / "run.saif"
    pyxrt.trace(board.device, path)
    run = board.start()
    run.wait(PATIENCE_MS)
    assert (board.result() == np.arange(COUNT) + 7).all()
    toggles = [int(count) for count in re.findall(r"\(ap_clk .*\(TC (\d+)\)\)", path.read_text())]
    clocks = run.get_hw_emu_stats()["cycles"]
    assert 2 * clocks <= max(toggles) < 2 * (clocks + 200)  # and the accesses to registers


def test_a_waveform_is_of_the_next_run_of_its_unit(rtl_board, vadd_hw_xclbin, tmp_path):
    path = tmp_path / "second.vcd"
    pyxrt.trace(rtl_board.device, path, "vadd_2")
    rtl_board.start().wait(PATIENCE_MS)
    assert not path.exists()
    second = Board(vadd_hw_xclbin, "vadd:{vadd_2}")
    for _ in range(2):
        second.start().wait(PATIENCE_MS)
        assert (second.result() == np.arange(COUNT) + 7).all()
        size = path.stat().st_size
    second.start().wait(PATIENCE_MS)
    assert path.stat().st_size == size and "m_axi_gmem0_wdata" in path.read_text()
    with pytest.raises(RuntimeError, match="no compute unit 'vadd_9'"):
        pyxrt.trace(rtl_board.device, path, "vadd_9")
    pyxrt.trace(rtl_board.device, tmp_path / "no" / "folder.vcd")
    assert rtl_board.start().wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_ERROR


def test_a_kernel_that_breaks_axis_rules_ends_in_an_error_state_that_says_so(rtl_board):
    run = rtl_board.start(scalar=0xBAD00002 - (1 << 32))
    assert run.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_ERROR
    with pytest.raises(RuntimeError, match=r"ERT_CMD_STATE_ERROR: m_axi_gmem0: wlast"):
        run.wait2()
    assert run.get_hw_emu_stats() is None
    rtl_board.start().wait(PATIENCE_MS)
    assert (rtl_board.result() == np.arange(COUNT) + 7).all()


def test_units_run_their_own_models_at_the_same_time(vadd_hw_xclbin):
    boards = [Board(vadd_hw_xclbin), Board(vadd_hw_xclbin, "vadd:{vadd_2}")]
    for sleep_ms in (300, 3000, 30_000):  # longer if the machine is busy
        long, short = boards[0].start(sleep_ms=sleep_ms), boards[1].start()
        assert short.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
        if long.state() not in (STATE.ERT_CMD_STATE_COMPLETED, STATE.ERT_CMD_STATE_ERROR):
            break
    else:
        pytest.fail("the short run never ended while the long one was under way")
    runs = [board.start(scalar=number) for number, board in enumerate(boards[1:] * 20)]
    assert all(run.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED for run in [*runs, long])
    assert {run.get_hw_emu_stats()["cycles"] for run in runs} == {short.get_hw_emu_stats()["cycles"]}
    assert (boards[0].result() == np.arange(COUNT) + 7).all()


def test_a_bitstream_of_another_target_is_refused(vadd_xclbin, vadd_hw_xclbin, tmp_path):
    for number, (path, mode) in enumerate(((vadd_xclbin, Mode.HW_EMU), (vadd_hw_xclbin, Mode.SW_EMU))):
        content = read_xclbin(path)
        write_xclbin(tmp_path / f"{number}.xclbin", sealed(replace(content, mode=mode)))
        device = pyxrt.device(0)
        identity = device.register_xclbin(pyxrt.xclbin(str(tmp_path / f"{number}.xclbin")))
        with pytest.raises(RuntimeError, match=f"its bitstream is not for {mode.name}"):
            pyxrt.hw_context(device, identity)


def test_a_buffer_in_another_bank_is_refused(board):
    wrong = pyxrt.bo(board.device, 4 * COUNT, pyxrt.bo.normal, board.kernel.group_id(1))
    with pytest.raises(RuntimeError, match=r"argument 0 \(a\).*HBM\[1\].*HBM\[0\]"):
        board.kernel(wrong, board.b, board.out, COUNT, 0, 0)


@pytest.mark.parametrize("value", [1.5, "7", 1 << 31, -(1 << 31) - 1, True, None])
def test_scalars_are_32_bit_integers(board, value):
    with pytest.raises(TypeError, match=r"count.*32-bit"):
        board.kernel(board.a, board.b, board.out, value, 0, 0)
    board.kernel(board.a, board.b, board.out, np.int32(4), 0, 0)


def test_a_number_is_no_buffer(board):
    with pytest.raises(TypeError, match="takes a bo"):
        board.kernel(4096, board.b, board.out, COUNT, 0, 0)


def test_unset_arguments_and_arguments_beyond_the_last_are_refused(board):
    run = pyxrt.run(board.kernel)
    run.set_arg(0, board.a)
    with pytest.raises(RuntimeError, match="not set: b, out, count, scalar, sleep_ms"):
        run.start()
    with pytest.raises(IndexError, match="no argument 9"):
        run.set_arg(9, 1)
    assert run.state() == STATE.ERT_CMD_STATE_NEW


@pytest.mark.parametrize("name", ["vmul", "vadd:{vadd_3}", "vadd:{vadd_1,vadd_9}", ""])
def test_unknown_kernels_and_units_are_refused(board, name):
    with pytest.raises(RuntimeError, match="no compute units"):
        pyxrt.kernel(board.context, name)


def test_scalars_have_no_bank(board):
    with pytest.raises(IndexError, match="not connected"):
        board.kernel.group_id(3)


def test_bytes_outside_a_buffer_are_refused(board):
    for action in (
        lambda: board.a.write(bytes(8), 4 * COUNT - 4),
        lambda: board.a.read(8, 4 * COUNT),
        lambda: board.a.sync(TO_DEVICE, 4 * COUNT, 4),
    ):
        with pytest.raises(RuntimeError, match="outside"):
            action()


def test_a_bank_holds_no_more_than_it_has_and_takes_back_what_is_freed(board):
    half = 260 << 20
    first = board.buffer(0, half)
    with pytest.raises(RuntimeError, match="Cannot allocate memory"):
        board.buffer(0, half)
    del first
    gc.collect()
    board.buffer(0, half)
    with pytest.raises(RuntimeError, match="Cannot allocate memory"):
        board.buffer(0, 513 << 20)


def test_a_sub_buffer_is_a_part_of_its_parent(board):
    parent = board.buffer(0, 8192)
    for offset in (4096, 4097, 13):
        part = pyxrt.bo(parent, 100, offset)
        part.write(b"x" * 100, 0)
        assert part.address() == parent.address() + offset and bytes(parent.map()[offset : offset + 100]) == b"x" * 100
    with pytest.raises(RuntimeError, match="sub-buffer"):
        pyxrt.bo(parent, 100, 8100)


@pytest.mark.parametrize("flags", [pyxrt.bo.host_only, pyxrt.bo.p2p, pyxrt.bo.svm])
def test_buffers_that_this_device_has_not_are_refused(board, flags):
    with pytest.raises(RuntimeError, match="not supported"):
        pyxrt.bo(board.device, 4096, flags, 0)


def test_wait_times_out_and_the_run_goes_on(cpp_board, monkeypatch):
    board = cpp_board
    may_end = threading.Event()
    execute = engine.SwEmuEngine.execute
    monkeypatch.setattr(engine.SwEmuEngine, "execute", lambda *given: may_end.wait(PATIENCE_S) and execute(*given))

    def wait_s():
        started = time.monotonic()
        assert run.wait(50) == STATE.ERT_CMD_STATE_TIMEOUT
        return time.monotonic() - started

    run = board.start()
    assert all(wait_s() > 0.04 for _ in range(2))
    assert any(wait_s() < 0.3 for _ in range(50)), "no wait is as short as it is to be"  # a busy machine delays some
    with pytest.raises(RuntimeError, match="has not ended"):
        run.start()
    may_end.set()
    assert run.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
    run.start()
    assert run.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED


def test_two_units_are_in_their_kernels_at_the_same_time(vadd_xclbin, monkeypatch):
    """No run passes the barrier before the other one has reached it."""
    barrier, execute = threading.Barrier(2), engine.SwEmuEngine.execute

    def meet(*given):
        barrier.wait(PATIENCE_S)
        return execute(*given)

    monkeypatch.setattr(engine.SwEmuEngine, "execute", meet)
    runs = [Board(vadd_xclbin, f"vadd:{{vadd_{number}}}").start() for number in (1, 2)]
    assert [run.wait(PATIENCE_MS) for run in runs] == 2 * [STATE.ERT_CMD_STATE_COMPLETED]


def test_a_kernel_lets_another_unit_work_but_not_its_own(vadd_xclbin):
    def ends_during(long_board, short_board, sleep_ms):
        """Return whether a short run ends while a long run, which started earlier, is still in progress."""
        long, short = long_board.start(sleep_ms), short_board.start(sleep_ms // 4)
        assert short.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
        overlap = long.state() != STATE.ERT_CMD_STATE_COMPLETED
        assert long.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
        return overlap

    first, second = Board(vadd_xclbin), Board(vadd_xclbin, "vadd:{vadd_2}")
    # A longer run where a busy machine delays the short one.
    assert any(ends_during(first, second, sleep_ms) for sleep_ms in (100, 1000, 10_000))
    assert not ends_during(first, first, 100)


def test_a_kernel_of_several_units_uses_those_that_can_reach_the_buffers(vadd_xclbin):
    board = Board(vadd_xclbin, "vadd")
    assert board.start().wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
    mixed = pyxrt.bo(board.device, 4 * COUNT, pyxrt.bo.normal, Board(vadd_xclbin, "vadd:{vadd_2}").kernel.group_id(2))
    with pytest.raises(RuntimeError, match="can reach all"):
        board.start(out=mixed)


def test_a_faithful_device_passes_over_what_pyxrt_passes_over(cpp_board):
    board = cpp_board
    wrong = pyxrt.bo(board.device, 4 * COUNT, pyxrt.bo.normal, board.kernel.group_id(1))
    pyxrt.set_faithful(board.device)
    run = board.kernel(board.a, board.b, wrong, COUNT, 0, 0, "no sum", "nor an eighth")
    assert run.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
    wrong.sync(FROM_DEVICE)
    assert not np.frombuffer(wrong.map(), np.int32).any() and not board.result().any()  # it went into a copy
    twisted = pyxrt.bo(board.device, 4 * COUNT, pyxrt.bo.normal, board.kernel.group_id(1))
    twisted.write(np.arange(COUNT, dtype=np.int32), 0)
    twisted.sync(TO_DEVICE)
    assert board.kernel(twisted, board.b, board.out, COUNT, 1, 0).wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
    assert (board.result() == np.arange(COUNT) + 8).all()  # a copy is as good to read from
    pyxrt.set_faithful(board.device, False)
    with pytest.raises(TypeError):
        board.kernel(board.a, board.b, board.out, "many", 0, 0)


def test_a_faithful_device_starts_a_run_whose_arguments_are_not_set(board):
    """The missing arguments are 0: a `count` of 0 computes nothing, and a `scalar` of 0 adds nothing."""
    pyxrt.set_faithful(board.device)
    board.fill(board.out, 5)
    for run in (board.kernel(board.a, board.b, board.out, "many", 0, 0), pyxrt.run(board.kernel)):
        if run.state() == STATE.ERT_CMD_STATE_NEW:
            run.start()
        assert run.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
        assert (board.result() == 5).all() and (board.a.read(8, 0) == [0, 0, 0, 0, 1, 0, 0, 0]).all()
    assert (
        board.kernel(board.a, board.b, board.out, COUNT, None, "long").wait(PATIENCE_MS)
        == STATE.ERT_CMD_STATE_COMPLETED
    )
    assert (board.result() == np.arange(COUNT) + 7).all()
    pyxrt.set_faithful(board.device, False)
    with pytest.raises(RuntimeError, match="not set: a, b, out"):
        pyxrt.run(board.kernel).start()


def test_empty_objects_are_made_and_do_nothing():
    for act in (
        lambda: pyxrt.device().get_xclbin_uuid(),
        lambda: pyxrt.hw_context().get_mode(),
        lambda: pyxrt.run().start(),
        lambda: pyxrt.xclbin().get_uuid(),
        lambda: pyxrt.xclbin.xclbinmem().get_tag(),
        lambda: pyxrt.runlist().execute(),
    ):
        with pytest.raises(RuntimeError):
            act()
    assert pyxrt.xclbin.xclbinip().get_name() == pyxrt.xclbin.xclbinkernel().get_name() == ""


def test_what_pybind11_would_not_convert_is_a_type_error(board, vadd_xclbin):
    for act in (
        lambda: pyxrt.device(1.5),
        lambda: pyxrt.device(-1),
        lambda: pyxrt.uuid(5),
        lambda: pyxrt.xclbin(5),
        lambda: pyxrt.hw_context(board.device, 5),
        lambda: pyxrt.hw_context(board.device, board.uuid, 1),
        lambda: pyxrt.kernel(board.context, 5),
        lambda: pyxrt.kernel(board.device, "uuid", "vadd"),
        lambda: pyxrt.bo(board.device, 4096, 0, 0),
        lambda: pyxrt.bo(board.device, -1, pyxrt.bo.normal, 0),
        lambda: pyxrt.bo(board.device, 4096, pyxrt.bo.normal, -1),
        lambda: board.a.sync(0),
        lambda: pyxrt.run(5),
        lambda: pyxrt.run(board.kernel).set_arg("count", 1),
        lambda: board.device.get_info(5),
        lambda: board.device.register_xclbin(str(vadd_xclbin)),
        lambda: pyxrt.log_message(3, "tag", "text"),
    ):
        with pytest.raises(TypeError):
            act()


def test_uuids_of_the_same_text_are_not_equal_as_pyxrts_are_not():
    text = "01234567-89ab-4def-8123-456789abcdef"
    assert pyxrt.uuid(text) != pyxrt.uuid(text) and pyxrt.uuid(text.upper()).to_string() == text
    assert pyxrt.uuid("none").to_string() == "00000000-0000-0000-0000-000000000000"


def test_the_card_tells_its_memory(board):
    told = json.loads(board.device.get_info(pyxrt.xrt_info_device.memory))["board"]["memory"]["memories"]
    assert [bank["tag"] for bank in told[:2]] == ["HBM[0]", "HBM[1]"]
    used = told[0]["extended_info"]["usage"]
    assert used == {"allocated_bytes": 8192, "buffer_objects_count": 2}  # a and out, a page each
    assert board.device.get_info(pyxrt.xrt_info_device.thermal) == "{}"


def test_messages_go_to_pythons_log(caplog):
    with caplog.at_level("DEBUG", logger="headrace.host.xrt.emulation"):
        pyxrt.log_message(pyxrt.error, "me", "so it is")
        pyxrt.log_message(pyxrt.xrt_msg_level.debug, "me", "quietly")
    told = [record for record in caplog.records if record.name == "headrace.host.xrt.emulation"]
    assert [record.levelname for record in told] == ["ERROR", "DEBUG"] and "me: so it is" in caplog.text


def test_the_device_runs_one_container_at_a_time(board, vadd_xclbin, tmp_path):
    content = read_xclbin(vadd_xclbin)
    write_xclbin(tmp_path / "other.xclbin", sealed(replace(content, platform="another")))
    other = board.device.register_xclbin(pyxrt.xclbin(str(tmp_path / "other.xclbin")))
    with pytest.raises(RuntimeError, match="busy"):
        pyxrt.hw_context(board.device, other)
    with pytest.raises(RuntimeError, match="registered"):
        pyxrt.hw_context(board.device, pyxrt.uuid(str(uuid4())))


def test_a_runlist_runs_all(board):
    runs = pyxrt.runlist(board.context)
    with pytest.raises(RuntimeError, match="empty"):
        runs.execute()
    outs = [board.buffer(2) for _ in range(3)]
    for number, out in enumerate(outs):
        run = pyxrt.run(board.kernel)
        for index, value in enumerate((board.a, board.b, out, COUNT, number, 0)):
            run.set_arg(index, value)
        runs.add(run)
    runs.execute()
    runs.wait()
    for number, out in enumerate(outs):
        out.sync(FROM_DEVICE)
        assert np.frombuffer(out.map(), np.int32)[0] == 7 + number


def test_a_runlist_tells_of_a_run_that_failed(board):
    pyxrt.inject(board.device, Fault(FaultKind.ERROR, after=1))
    runs = pyxrt.runlist(hwctx=board.context)
    for _ in range(3):
        run = pyxrt.run(board.kernel)
        for index, value in enumerate((board.a, board.b, board.out, COUNT, 0, 0)):
            run.set_arg(index, value)
        runs.add(run=run)
    runs.execute()
    with pytest.raises(RuntimeError, match="ERT_CMD_STATE_ERROR"):
        runs.wait()


def test_a_hanging_unit_hangs_alone(vadd_xclbin):
    first, second = Board(vadd_xclbin), Board(vadd_xclbin, "vadd:{vadd_2}")
    pyxrt.inject(first.device, Fault(FaultKind.HANG, cu="vadd_1", after=1))
    assert first.start().wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
    hung = first.start()
    assert hung.wait(100) == STATE.ERT_CMD_STATE_TIMEOUT
    assert first.start().wait(100) == STATE.ERT_CMD_STATE_TIMEOUT  # queued behind it
    assert second.start().wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED


def test_an_error_state_ends_the_run_and_not_the_unit(board):
    pyxrt.inject(board.device, Fault(FaultKind.ERROR))
    run = board.start()
    assert run.wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_ERROR
    with pytest.raises(RuntimeError, match="ERT_CMD_STATE_ERROR"):
        run.wait2()
    assert board.start().wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED


def test_a_failing_sync_raises_as_often_as_asked(board):
    pyxrt.inject(board.device, Fault(FaultKind.SYNC, after=1, times=2))
    board.a.sync(TO_DEVICE)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Input/output error"):
            board.a.sync(TO_DEVICE)
    board.a.sync(TO_DEVICE)


def test_a_probability_is_a_function_of_the_seed():
    def pattern(seed):
        fault = Fault(FaultKind.ERROR, probability=0.3, times=1000, seed=seed)
        return [fault.fires(FaultKind.ERROR) for _ in range(300)]

    assert pattern(1) == pattern(1) != pattern(2)
    assert 60 < sum(pattern(1)) < 120


def test_threads_end_with_the_device(vadd_xclbin):
    def threads():
        return {thread for thread in threading.enumerate() if thread.name.startswith("xrt vadd")}

    gc.collect()
    before = threads()
    board = Board(vadd_xclbin)
    pyxrt.inject(board.device, Fault(FaultKind.HANG))
    board.start()
    mine = threads() - before
    assert len(mine) == 2
    del board
    gc.collect()
    for thread in mine:
        thread.join(timeout=5)
        assert not thread.is_alive()


def test_only_device_0_exists():
    with pytest.raises(RuntimeError, match="No such device"):
        pyxrt.device(1)
    assert pyxrt.device("0000:00:00.0").get_info(pyxrt.xrt_info_device.bdf) == "0000:00:00.0"
    assert pyxrt.enumerate_devices() == 1


def test_a_container_for_a_card_is_never_emulated(vadd_xclbin, tmp_path):
    content = read_xclbin(vadd_xclbin)
    write_xclbin(tmp_path / "hw.xclbin", sealed(replace(content, mode=Mode.PR)))
    with pytest.raises(xrt.NoDevice, match="pyxrt"):
        xrt.api_for(tmp_path / "hw.xclbin")
    container = pyxrt.xclbin(str(tmp_path / "hw.xclbin"))
    gc.collect()
    device = pyxrt.device(0)
    device.register_xclbin(container)
    with pytest.raises(RuntimeError, match="mode PR"):
        pyxrt.hw_context(device, container.get_uuid())
    assert xrt.api_for(vadd_xclbin) is pyxrt


def test_a_launch_takes_what_it_was_said_to(cpp_board, monkeypatch):
    slept = []
    monkeypatch.setattr(engine, "sleep", slept.append)
    pyxrt.set_launch_cost(cpp_board.device, 75)
    assert cpp_board.start().wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
    assert slept == [75e-6] and (cpp_board.result() == np.arange(COUNT) + 7).all()


def test_a_launch_takes_clocks_where_there_are_any(rtl_board, monkeypatch):
    launched = []
    run = KernelModel.run

    def told(model, *arguments, launch, **more):
        launched.append(launch)
        return run(model, *arguments, launch=launch, **more)

    monkeypatch.setattr(KernelModel, "run", told)
    pyxrt.set_launch_cost(rtl_board.device, 75)
    assert rtl_board.start().wait(PATIENCE_MS) == STATE.ERT_CMD_STATE_COMPLETED
    assert launched == [75 * 300]
