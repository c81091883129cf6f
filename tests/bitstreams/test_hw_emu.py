"""hw_emu: the driver of Verilated kernels and its AXI memory, with the RTL of vadd (tests/bitstreams/vadd)."""

import ctypes
import time
from pathlib import Path

import numpy as np
import pytest

from headrace.bitstreams.hw_emu.library import unpack
from headrace.bitstreams.kernel import parse_kernels
from headrace.bitstreams.xclbin import read_xclbin
from headrace.host.xrt.engine import MemoryRange, load_library
from headrace.host.xrt.hw_emu import KernelFailed, KernelModel, MemoryModel, Traffic, register_writes

(SPEC,) = parse_kernels((Path(__file__).parent / "vadd" / "kernel.xml").read_bytes())
BASE = 0x1_2000_0000  # above 32 bits
BANK = 1 << 20
A, B, OUT = BASE, BASE + 0x40000, BASE + 0x80000
SUM = 0x50
BUS_ERROR = 0xDEC0DEC0
CROSS_BORDER, EARLY_LAST, UNSTEADY_DATA, UNSTEADY_ADDRESS, DONE_TOO_EARLY = 1, 2, 3, 4, 5
NEVER_DONE, ASSERTION, NARROW_BURST, FIXED_BURST, DROPS_VALID, DEVICE_MEMORY, INSTRUCTIONS = range(6, 13)


def defect(number: int) -> int:
    return 0xBAD00000 + number


@pytest.fixture(scope="session")
def library(vadd_hw_xclbin):
    content = read_xclbin(vadd_hw_xclbin)
    return load_library(content.uuid, "vadd.so", lambda: unpack(content.bitstream, "vadd.so"))


class Bench:
    """A model with 1 MiB of memory: `a` counts up, `b` is random, `out` is 0xA5."""

    def __init__(self, library: ctypes.CDLL, seed: int = 0) -> None:
        self.model = KernelModel(library, seed)
        self.bank = np.full(BANK, 0xA5, np.uint8)
        self.a, self.b, self.out = (self.bank[start - BASE :][:0x40000].view(np.int32) for start in (A, B, OUT))
        self.a[:] = np.arange(len(self.a))
        self.b[:] = np.random.default_rng(seed).integers(-(1 << 31), 1 << 31, len(self.b))

    def run(self, count, scalar=0, sleep_ms=0, a=A, b=B, out=OUT, **options):
        ranges = [MemoryRange(BASE, BANK, self.bank.ctypes.data)]
        values = dict(enumerate((a, b, out, count, scalar & 0xFFFFFFFF, sleep_ms)))
        return self.model.run(register_writes(SPEC, values), ranges, [SUM], **options)

    def check(self, count, scalar=0, **options):
        self.out[:] = -1
        done = self.run(count, scalar, **options)
        expected = self.a[:count] + self.b[:count] + np.int32(scalar)
        assert np.array_equal(self.out[:count], expected) and (self.out[count:] == -1).all()
        assert done.registers == {SUM: int(expected.astype(np.int64).sum()) & 0xFFFFFFFF}
        return done


@pytest.fixture
def bench(library):
    return Bench(library)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 63, 64, 65, 1000, 65536])
def test_every_element_is_added_and_nothing_else_is_written(bench, count):
    done = bench.check(count, scalar=-3)
    words = -(-count // 4)
    bursts = -(-words // 16)
    assert done.traffic == {
        "m_axi_gmem0": Traffic(bursts, words, 0, bursts, words, 0),
        "m_axi_gmem1": Traffic(bursts, words, 0, 0, 0, 0),
    }
    assert done.cycles < done.total_cycles < done.cycles + 200


def test_latency_counts_once_for_reads_in_flight_and_once_for_the_last_response(bench):
    cycles = {n: bench.check(4 * 16, memory=MemoryModel(latency=n)).cycles for n in (1, 100, 1000)}
    assert cycles[100] - cycles[1] == 2 * 99 and cycles[1000] - cycles[100] == 2 * 900
    one, many = (bench.check(65536, memory=MemoryModel(latency=200, max_outstanding=n)).cycles for n in (1, 64))
    assert one > 1024 * 200  # each of the bursts waits for the one before
    assert many < one / 3


@pytest.mark.parametrize("bandwidth", [1.0, 0.5, 0.25, 0.1])
def test_bandwidth_bounds_the_beats_a_clock(bench, bandwidth):
    words = 16384
    cycles = bench.check(4 * words, memory=MemoryModel(latency=1, bandwidth=bandwidth)).cycles
    # vadd spends a clock on each write address; beyond that only the memory holds it back.
    assert (words - 1) / bandwidth - 1 <= cycles <= words / bandwidth + (words / 16 * 2 + 100)


@pytest.mark.parametrize("stall", [0.1, 0.5, 0.9])
def test_stalls_on_every_channel_change_the_time_and_nothing_else(bench, stall):
    plain = bench.check(20000).cycles
    cycles = [bench.check(20000, memory=MemoryModel(stall=stall, seed=seed)).cycles for seed in (1, 2, 1)]
    assert cycles[0] > plain and cycles[0] == cycles[2] != cycles[1]


def test_runs_follow_each_other_without_a_reset_and_take_the_same_time(bench):
    cycles = {bench.check(500, scalar=number).cycles for number in range(20)}
    assert len(cycles) == 1
    assert bench.check(500, poll=True).cycles < cycles.pop() + 100


def test_sleeping_clocks_are_counted(bench):
    assert bench.check(4, sleep_ms=3).cycles - bench.check(4).cycles == 3 * 2048


@pytest.mark.parametrize("wrong", [{"a": 0}, {"b": BASE + BANK}, {"out": (1 << 64) - 4096}, {"a": BASE - 4096}])
def test_addresses_without_memory_are_answered_with_an_error(bench, wrong):
    before = bench.bank.copy()
    done = bench.run(1000, **wrong)
    assert done.registers == {SUM: BUS_ERROR}
    assert any(port.read_errors or port.write_errors for port in done.traffic.values())
    if "out" in wrong:
        assert np.array_equal(bench.bank, before)
    bench.check(1000)  # and the kernel goes on


def test_random_errors_of_memory_reach_the_kernel_and_are_counted(bench):
    for seed in range(20):
        done = bench.run(1000, memory=MemoryModel(errors=(0.001, 0.5)[seed % 2], seed=seed))
        errors = sum(port.read_errors + port.write_errors for port in done.traffic.values())
        assert (done.registers == {SUM: BUS_ERROR}) == (errors > 0)
        assert seed % 2 == 0 or errors > 200
        bench.check(1000)


@pytest.mark.parametrize(
    ("number", "message", "memory"),
    [
        (CROSS_BORDER, r"m_axi_gmem0: burst of 16 beats at 0x120000ff0 crosses a 4 KiB border", {}),
        (EARLY_LAST, r"m_axi_gmem0: wlast comes in beat 15 of a burst of 16", {}),
        (UNSTEADY_DATA, r"m_axi_gmem0: the data changed while wvalid waited", {"stall": 0.7}),
        (UNSTEADY_ADDRESS, r"m_axi_gmem0: the address changed while awvalid waited", {"stall": 0.7}),
        (DROPS_VALID, r"m_axi_gmem0: awvalid fell before awready", {"stall": 0.7}),
        (DONE_TOO_EARLY, r"m_axi_gmem0: the kernel was done with \d+ writes that memory had not confirmed", {}),
        (ASSERTION, r"stopped itself at .*vadd.sv.*a_no_defect_asked", {}),
        (NARROW_BURST, r"m_axi_gmem0: .* arsize 2; this memory takes whole words of 16 bytes", {}),
        (FIXED_BURST, r"m_axi_gmem0: .* not of type INCR", {}),
        (DEVICE_MEMORY, r"m_axi_gmem0: .* awcache 0 and awprot 0; .* given 3 and 0", {}),
        (INSTRUCTIONS, r"m_axi_gmem0: .* arcache 3 and arprot 4; .* given 3 and 0", {}),
    ],
)
def test_a_breach_of_axis_rules_fails_the_run_and_the_next_one_works(bench, number, message, memory):
    with pytest.raises(KernelFailed, match=message):
        bench.run(1000, defect(number), memory=MemoryModel(**memory))
    bench.check(1000)


def test_a_kernel_that_never_ends_is_stopped(bench):
    started = time.monotonic()
    with pytest.raises(KernelFailed, match=r"did not finish within 100000 clocks"):
        bench.run(1000, defect(NEVER_DONE), max_cycles=100_000)
    with pytest.raises(KernelFailed, match=r"nothing has moved on its memory ports for 50000 clocks"):
        bench.run(1000, defect(NEVER_DONE), max_idle=50_000)
    assert time.monotonic() - started < 10
    bench.check(1000)


def test_a_run_cut_off_in_the_middle_leaves_nothing_behind(bench):
    for clocks in (300, 500, 1024, 4000):
        with pytest.raises(KernelFailed, match="did not finish"):
            bench.run(65536, max_cycles=clocks)
        bench.check(777)


def test_what_registers_held_before_reset_does_not_matter(library):
    assert len({Bench(library, seed).check(300).cycles for seed in range(5)}) == 1


def test_a_waveform_is_of_one_run(bench, tmp_path):
    bench.check(100)
    done = bench.check(100, wave=tmp_path / "run.vcd")
    text = (tmp_path / "run.vcd").read_text()
    assert text.startswith("$version") and "m_axi_gmem0_araddr" in text and "u_a_fifo" in text
    times = [int(line[1:]) for line in text.splitlines() if line.startswith("#")]
    assert times == sorted(times)
    clocks = (times[-1] - times[0]) / 3334
    assert done.total_cycles - 2 <= clocks <= done.total_cycles
    size = (tmp_path / "run.vcd").stat().st_size
    bench.check(100)
    assert (tmp_path / "run.vcd").stat().st_size == size


def test_a_waveform_that_cannot_be_written_fails_the_run(bench, tmp_path):
    with pytest.raises(KernelFailed, match="cannot be written"):
        bench.run(10, wave=tmp_path / "no" / "run.vcd")
    bench.check(10)


def test_a_waveform_of_a_failing_run_shows_how_it_came(bench, tmp_path):
    with pytest.raises(KernelFailed, match="wlast"):
        bench.run(1000, defect(EARLY_LAST), wave=tmp_path / "run.vcd")
    assert (tmp_path / "run.vcd").stat().st_size > 10_000


IMPOSSIBLE = ({"latency": 0}, {"bandwidth": 0}, {"bandwidth": 1.5}, {"stall": 1.0}, {"errors": -1})


@pytest.mark.parametrize("settings", IMPOSSIBLE)
def test_impossible_memory_is_refused(settings):
    with pytest.raises(ValueError, match="MemoryModel"):
        MemoryModel(**settings)


def test_coverage_is_written_by_libraries_that_count_it(bench, tmp_path):
    with pytest.raises(ValueError, match="built without coverage"):
        bench.model.write_coverage(tmp_path / "coverage.dat")


def test_a_launch_costs_clocks_before_the_start_and_none_in_the_run(bench):
    bench.check(100)
    plain, launched = bench.check(100), bench.check(100, launch=1000)
    assert launched.cycles == plain.cycles and launched.total_cycles == plain.total_cycles + 1000


def test_a_run_without_a_bound_of_its_own_goes_on_while_it_writes(bench):
    cycles = bench.check(65536).cycles
    bench.check(65536, max_cycles=cycles // 4, renew=True)
    with pytest.raises(KernelFailed, match="did not finish within"):
        bench.check(65536, max_cycles=cycles // 4)
    with pytest.raises(KernelFailed, match="did not finish within"):
        bench.check(65536, max_cycles=1, renew=True)
