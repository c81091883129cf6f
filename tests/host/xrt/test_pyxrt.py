"""One suite for all devices with pyxrt's names: the emulated device, Debian's XRT and any pyxrt that can be imported.

Tests here use the API of XRT 2.13 unless they say otherwise. Where XRT's emulation differs from the emulated device, a
test expects what the table in docs/reference/xrt_calls.md says. test_emulation.py has the tests of the emulated device
alone: faults, clocks, messages, strictness towards wrong arguments, and times."""

import gc
from itertools import pairwise

import numpy as np
import pytest

COUNT = 1000
NOT_SYNCED = "(lambda b: (b.write(b'abcd', 0), b.sync(FROM, 4, 0), bytes(b.map()[:4]))[2])(buffer())"
TIMES_OUT = "(lambda r: (r.start(), r.wait(50))[1])(ready(3, 1000))"
EXCLUSIVE = "x.kernel(d, u, 'vadd', x.kernel.exclusive).group_id(0)"
ANOTHER_BANK = "x.run(k).set_arg(0, buffer(4096, 1))"
STARTED_TWICE = "(lambda r: (r.start(), r.start()))(ready(3, 1000))"


class Board:
    """The device with its container and, for one kernel object, buffers in the right banks."""

    def __init__(self, backend, name="vadd:{vadd_1}", device=None) -> None:
        self.x = backend.pyxrt
        self.device = device or self.x.device(0)
        self.uuid = self.device.load_xclbin(str(backend.container))
        self.open(name)

    def open(self, name: str) -> None:
        self.kernel = self.x.kernel(self.device, self.uuid, name)
        self.a, self.b, self.out = (self.buffer(argument) for argument in range(3))
        self.fill(self.a, np.arange(COUNT))
        self.fill(self.b, np.full(COUNT, 7))

    def buffer(self, argument, size=4 * COUNT):
        return self.x.bo(self.device, size, self.x.bo.normal, self.kernel.group_id(argument))

    def fill(self, buffer, values) -> None:
        buffer.write(values.astype(np.int32), 0)
        self.sync(buffer, "TO")

    def sync(self, buffer, direction, size=None, offset=0) -> None:
        directions = self.x.xclBOSyncDirection
        way = {"TO": directions.XCL_BO_SYNC_BO_TO_DEVICE, "FROM": directions.XCL_BO_SYNC_BO_FROM_DEVICE}[direction]
        buffer.sync(way, buffer.size() if size is None else size, offset)

    def run(self, out=None, scalar=0, sleep_ms=0):
        """Return a run with its arguments set."""
        run = self.x.run(self.kernel)
        for index, value in enumerate((self.a, self.b, out or self.out, COUNT, scalar, sleep_ms)):
            run.set_arg(index, value)
        return run

    def result(self, out=None):
        out = out or self.out
        self.sync(out, "FROM")
        return np.frombuffer(out.map(), np.int32).copy()

    @property
    def completed(self):
        return self.x.ert_cmd_state.ERT_CMD_STATE_COMPLETED


def shares_memory(backend) -> bool:
    """Return whether host and device share the memory of a buffer, as in XRT's sw_emu."""
    return backend.listed[NOT_SYNCED] == repr(b"abcd")


def test_a_kernel_runs_on_what_was_synced(backend):
    board = Board(backend)
    run = board.run(scalar=-2)
    run.start()
    assert run.wait() == board.completed == run.state()
    assert (board.result() == np.arange(COUNT) + 5).all()


def test_a_run_starts_again_with_the_arguments_that_were_changed(backend):
    board = Board(backend)
    run, other = board.run(), board.buffer(2)
    for scalar, out in ((0, board.out), (3, board.out), (3, other)):
        run.set_arg(4, scalar)
        run.set_arg(2, out)
        run.start()
        assert run.wait(10_000) == board.completed
        assert (board.result(out) == np.arange(COUNT) + 7 + scalar).all()


def test_a_kernel_that_is_called_starts(backend):
    board = Board(backend)
    assert board.kernel(board.a, board.b, board.out, COUNT, 1, 0).wait() == board.completed
    assert (board.result() == np.arange(COUNT) + 8).all()


def test_many_runs_one_after_the_other_each_with_its_buffers(backend):
    board = Board(backend)
    outs = [board.buffer(2) for _ in range(20)]
    for number, out in enumerate(outs):
        run = board.run(out, scalar=number)
        run.start()
        assert run.wait() == board.completed
    for number, out in enumerate(outs):
        assert (board.result(out) == np.arange(COUNT) + 7 + number).all()


def test_runs_of_two_units_are_under_way_at_once(backend):
    board = Board(backend)
    first = board.run(scalar=1, sleep_ms=200)
    kept, out = (board.kernel, board.a, board.b), board.out
    board.open("vadd:{vadd_2}")
    second = board.run(scalar=2)
    first.start()
    second.start()
    assert second.wait() == first.wait() == board.completed
    assert (board.result() == np.arange(COUNT) + 9).all()
    assert (board.result(out) == np.arange(COUNT) + 8).all()
    del kept


def test_a_kernel_of_both_units_runs_on_those_that_reach_its_buffers(backend):
    board = Board(backend, "vadd")
    run = board.run()
    run.start()
    assert run.wait() == board.completed
    assert (board.result() == np.arange(COUNT) + 7).all()


def test_a_container_that_is_loaded_again_computes(backend):
    """hw_emu's shim ends its device and starts another."""
    x = backend.pyxrt
    device = x.device(0)
    first = device.load_xclbin(str(backend.container)).to_string()
    for again in (str(backend.container), x.xclbin(str(backend.container))):
        assert device.load_xclbin(again).to_string() == first
    board = Board(backend, device=device)
    run = board.run(scalar=4)
    run.start()
    assert run.wait(10_000) == board.completed
    assert (board.result() == np.arange(COUNT) + 11).all()


def test_what_is_not_synced_is_seen_only_where_memory_is_shared(backend):
    board = Board(backend)
    board.a.write(np.zeros(COUNT, np.int32), 0)
    board.out.write(np.zeros(COUNT, np.int32), 0)  # a new buffer may hold anything
    run = board.run()
    run.start()
    run.wait()
    shared = shares_memory(backend)
    assert np.frombuffer(board.out.map(), np.int32).any() == shared
    assert (board.result() == (7 if shared else np.arange(COUNT) + 7)).all()


def test_a_partial_sync_moves_just_its_bytes(backend):
    board = Board(backend)
    board.out.write(np.zeros(COUNT, np.int32), 0)
    run = board.run()
    run.start()
    run.wait()
    board.sync(board.out, "FROM", 40, 20)
    host = np.frombuffer(board.out.map(), np.int32)
    assert (host[5:15] == np.arange(5, 15) + 7).all()
    assert shares_memory(backend) or (not host[:5].any() and not host[15:].any())


def test_a_partial_sync_to_the_device_moves_just_its_bytes(backend):
    board = Board(backend)
    board.a.write(np.zeros(COUNT, np.int32), 0)
    board.sync(board.a, "TO", 400, 800)
    run = board.run()
    run.start()
    run.wait()
    expected = np.arange(COUNT) + 7
    expected[slice(None) if shares_memory(backend) else slice(200, 300)] = 7
    assert (board.result() == expected).all()


def test_a_sub_buffer_is_a_part_of_its_parent_and_an_argument(backend):
    board = Board(backend)
    parent = board.buffer(2, 3 * 4096)
    part = board.x.bo(parent, 4 * COUNT, 4096)
    assert part.address() == parent.address() + 4096 and part.size() == 4 * COUNT
    run = board.run(part)
    run.start()
    assert run.wait() == board.completed
    assert (board.result(part) == np.arange(COUNT) + 7).all()
    whole = board.result(parent)
    assert (whole[1024 : 1024 + COUNT] == np.arange(COUNT) + 7).all()
    assert not whole[:1024].any() and not whole[1024 + COUNT :].any()
    for offset in (4097, 13):
        odd = board.x.bo(parent, 100, offset)
        odd.write(b"x" * 100, 0)
        assert odd.address() == parent.address() + offset
        assert bytes(parent.map()[offset : offset + 100]) == b"x" * 100


def test_buffers_lie_on_pages_of_their_own(backend):
    board = Board(backend)
    buffers = [board.a, board.out, *(board.buffer(0, size) for size in (1, 4096, 5000))]
    spans = sorted((one.address(), one.size()) for one in buffers)
    assert all(start % 4096 == 0 for start, _ in spans)
    assert all(start + size <= after for (start, size), (after, _) in pairwise(spans))


def test_a_wait_ends_at_its_limit_where_there_are_limits(backend):
    board = Board(backend)
    run = board.run(sleep_ms=1000)
    run.start()
    assert repr(run.wait(50)).replace("pyxrt.", "") == backend.listed[TIMES_OUT]
    assert run.wait() == board.completed
    assert (board.result() == np.arange(COUNT) + 7).all()


def test_a_run_that_is_under_way_is_not_started_again(backend):
    assert backend.listed[STARTED_TWICE] == "RuntimeError"
    board = Board(backend)
    run = board.run(sleep_ms=1000)
    run.start()
    with pytest.raises(RuntimeError):
        run.start()
    assert run.wait() == board.completed


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("vmul", "x.kernel(d, u, 'missing')"),
        ("vadd:{vadd_3}", "x.kernel(d, u, 'vadd:{missing}')"),
        ("vadd:{vadd_1,vadd_9}", "x.kernel(d, u, 'vadd:{vadd_1,missing}')"),
    ],
)
def test_unknown_kernels_and_units_are_refused_except_together_with_known_ones(backend, name, call):
    board = Board(backend)
    if backend.listed[call] == "<kernel object>":
        assert board.x.kernel(board.device, board.uuid, name).group_id(1) == board.kernel.group_id(1)
        return
    with pytest.raises(RuntimeError):
        board.x.kernel(board.device, board.uuid, name)


def test_exclusive_access_excludes_where_units_are_opened(backend):
    board, x = Board(backend), backend.pyxrt

    def opened(unit, mode):
        return x.kernel(board.device, board.uuid, f"vadd:{{{unit}}}", mode)

    if backend.listed[EXCLUSIVE] != "RuntimeError":  # beside one that has it already
        assert opened("vadd_1", x.kernel.exclusive).group_id(1) == board.kernel.group_id(1)
        return
    with pytest.raises(RuntimeError):
        opened("vadd_1", x.kernel.exclusive)
    held = opened("vadd_2", x.kernel.exclusive)
    with pytest.raises(RuntimeError):
        opened("vadd_2", x.kernel.shared)
    if backend.setup is None:  # see docs/reference/xrt_calls.md
        with pytest.raises(RuntimeError, match="busy"):
            opened("vadd_2", x.kernel.exclusive)
    del held
    gc.collect()
    opened("vadd_2", x.kernel.shared)


def test_a_buffer_in_a_bank_that_no_unit_reaches_is_refused_and_the_run_stays_as_it_was(backend):
    assert backend.listed[ANOTHER_BANK] == "RuntimeError"
    board = Board(backend)
    run = board.run()
    for index, of in ((0, 1), (1, 0)):
        with pytest.raises(RuntimeError):
            run.set_arg(index, board.buffer(of))
    run.start()
    assert run.wait() == board.completed
    assert (board.result() == np.arange(COUNT) + 7).all()


def test_empty_objects_are_made(backend):
    x = backend.pyxrt
    for made in (x.device, x.run, x.xclbin, x.xclbin.xclbinip, x.xclbin.xclbinkernel, x.xclbin.xclbinmem):
        assert isinstance(made(), made)


def test_a_container_in_memory_is_nothing_that_python_gets(backend):
    """pyxrt lists it since 2.16, but no Python value converts to it."""
    container = backend.pyxrt.xclbin(str(backend.container))
    if not hasattr(container, "get_axlf"):
        pytest.skip("this release has no get_axlf")
    with pytest.raises(TypeError):
        container.get_axlf()


def test_a_refused_argument_leaves_the_run_as_it_was(backend):
    board = Board(backend)
    run = board.run()
    for index, value, error in (
        (3, 1.5, TypeError),
        (3, "7", TypeError),
        (3, 1 << 31, TypeError),
        (3, None, TypeError),
        (9, 1, IndexError),
        (0, "text", TypeError),
    ):
        with pytest.raises(error):
            run.set_arg(index, value)
    run.start()
    assert run.wait() == board.completed
    assert (board.result() == np.arange(COUNT) + 7).all()


def test_bytes_outside_a_buffer_are_refused(backend):
    board = Board(backend)
    for action in (lambda: board.a.write(bytes(8), 4 * COUNT - 4), lambda: board.a.read(8, 4 * COUNT)):
        with pytest.raises(RuntimeError):
            action()


def test_a_container_tells_its_kernels_and_banks(backend):
    container = backend.pyxrt.xclbin(str(backend.container))
    (kernel,) = container.get_kernels()
    assert (kernel.get_name(), kernel.get_num_args()) == ("vadd", 6)
    bank = container.get_mems()[1]
    assert (bank.get_tag(), bank.get_index(), bank.get_base_address()) == ("HBM[1]", 1, 512 << 20)
    assert container.get_uuid().to_string() == Board(backend).device.get_xclbin_uuid().to_string()


def test_a_hardware_context_opens_a_kernel_where_there_are_any(backend):
    """XRT has hardware contexts since 2.16."""
    x = backend.pyxrt
    assert repr(hasattr(x, "hw_context")) == backend.listed["hasattr(x, 'hw_context')"]
    if not hasattr(x, "hw_context"):
        return
    device = x.device(0)
    context = x.hw_context(device, device.register_xclbin(x.xclbin(str(backend.container))))
    kernel = x.kernel(context, "vadd:{vadd_1}")
    buffers = [x.bo(device, 4 * COUNT, x.bo.normal, kernel.group_id(argument)) for argument in range(3)]
    for number, buffer in enumerate(buffers[:2]):
        buffer.write(np.full(COUNT, 4 + number, np.int32), 0)
        buffer.sync(x.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)
    assert kernel(*buffers, COUNT, 0, 0).wait() == x.ert_cmd_state.ERT_CMD_STATE_COMPLETED
    buffers[2].sync(x.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE)
    assert (np.frombuffer(buffers[2].map(), np.int32) == 9).all()


def test_a_hardware_context_tells_what_it_is_of(backend):
    """XRT has these methods since 2.20. On the emulated device an exclusive context excludes others."""
    x = backend.pyxrt
    if not hasattr(x, "hw_context") or not hasattr(x.hw_context, "get_mode"):
        pytest.skip("this release's contexts tell nothing")
    device = x.device(0)
    text = x.xclbin(str(backend.container)).get_uuid().to_string()
    for source in (str(backend.container), x.xclbin(str(backend.container))):
        context = x.hw_context(device, source, x.hw_context.exclusive)
        assert context.get_mode() == x.hw_context.exclusive and context.get_xclbin_uuid().to_string() == text
        assert context.get_xclbin().get_uuid().to_string() == context.get_device().get_xclbin_uuid().to_string() == text
        if backend.setup is None:
            with pytest.raises(RuntimeError, match="busy"):
                x.hw_context(device, source)
        buffer = x.bo(context, 4096, x.kernel(context, "vadd").group_id(0))
        assert buffer.size() == 4096
        del context, buffer
        gc.collect()
    assert x.hw_context(device, source).get_mode() == x.hw_context.shared
