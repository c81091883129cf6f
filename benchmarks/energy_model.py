"""The energy of a cell of a 16 nm FPGA, from published reports of the vendor's power tool, and that of a run.

Nobody has measured or routed these units. So the energy of a cell comes from reports on routed designs of others, on
UltraScale+ parts at 0.85 V. Each gives the watts of a kind of cell, the number of cells and the clock. The reports
differ, so each energy is a range: from the least of the reports to the greatest.

- A clock of a flip-flop: the watts of the clock network, by flip-flops and clocks.
- A toggle of a LUT's output, of a net and of a flip-flop: the watts, by cells and clocks, and by VECTORLESS, the
  toggles a clock that the tool assumes by default. A report with toggles of a simulation does not say how many there
  were, so it gives no such energy.
- A toggle of a multiplier: the same. It stands for a clock in which all bits around it toggle.
- A clock of a block RAM and of an UltraRAM: the watts by memories and clocks. It counts in every clock of a run,
  whether the unit reads or not.

RTL without delays has no glitches. They can double the toggles of an FPGA's nets, so the upper end counts LUTs and nets
GLITCHES[1] times.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

# UG1556 (AMD, Power Design Manager), "Logic": one transition every eight clocks.
VECTORLESS: Final = 0.125
# Czajkowski, "Fast Toggle Rate Computation for FPGA Circuits": glitches can as much as double the toggle rate.
# GlitchLess (Lamoureux et al., IEEE TVLSI 16(11), 2008) removes 87 % of them, which is 17 % of the power, of which
# 62 % are dynamic: so some 1.46 times on average.
GLITCHES: Final = (1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Report:
    """A published power report of a routed design.

    Args:
        name: The design.
        source: Repository and path on GitHub.
        part: The device.
        mhz: Its clock; of two, that of most logic.
        simulated: Whether the toggles came from a simulation of the netlist. If not, the tool assumed them.
        watts: Dynamic power by kind: clocks, lut (with carry chains, LUT RAM and shift registers), ff, net, bram36,
            uram, dsp.
        cells: The number of each kind; `net` is the number of signals.
        static_w: Static power of the whole device.
    """

    name: str
    source: str
    part: str
    mhz: float
    simulated: bool
    watts: Mapping[str, float]
    cells: Mapping[str, float]
    static_w: float


def _report(
    name: str, source: str, part: str, mhz: float, simulated: bool, static_w: float, **rows: tuple[float, float]
) -> Report:
    """Return a report from the watts and the cells of each kind."""
    watts, cells = ({kind: row[place] for kind, row in rows.items()} for place in (0, 1))
    return Report(name, source, part, mhz, simulated, watts, cells | {"clocks": cells["ff"]}, static_w)


_FPT = "Tylerlee102/FPT26_paper_project_share, reports/"
REPORTS: Final = (
    _report(
        "delta network, 16 lanes",
        _FPT + "benchmark/sweeps/block_b16_pk16_pv8/vivado/impl_power.rpt",
        "xcu55c",
        250.0,
        False,
        3.307,
        clocks=(0.312, 0),
        lut=(0.237 - 0.017, 83934 + 508 + 1024),
        ff=(0.017, 45721),
        net=(0.393, 141434),
        bram36=(0.036, 7.5),
        dsp=(0.661, 656),
    ),
    _report(
        "delta network, 32 lanes",
        _FPT + "benchmark/sweeps/parallel_pk32_pv16_b32/vivado/impl_power.rpt",
        "xcu55c",
        250.0,
        False,
        3.440,
        clocks=(0.926, 0),
        lut=(0.973 - 0.066, 323669 + 622 + 1136),
        ff=(0.066, 155271),
        net=(2.626, 530296),
        bram36=(0.047, 11.5),
        dsp=(2.992, 2592),
    ),
    _report(
        "delta network, resident state",
        _FPT + "vivado/corrected/e2m0/postroute_sweep/power_5p600ns.rpt",
        "xcu55c",
        1000 / 5.6,
        False,
        3.410,
        clocks=(0.533, 0),
        lut=(1.058 - 0.047, 205563 + 1555 + 1405),
        ff=(0.047, 111169),
        net=(1.078, 331769),
        bram36=(0.151, 353),
        uram=(0.708, 624),
        dsp=(0.054, 44),
    ),
    _report(
        "delta network, second state",
        _FPT + "vivado/corrected/rs2_current/impl_power.rpt",
        "xcu55c",
        250.0,
        False,
        3.390,
        clocks=(0.441, 0),
        lut=(0.502 - 0.024, 79074 + 1798 + 1166),
        ff=(0.024, 69883),
        net=(0.675, 165208),
        bram36=(0.206, 341),
        uram=(0.981, 598),
        dsp=(0.006, 12),
    ),
    _report(
        "trigger with a network, simulated toggles",
        "NuDAQ/AI-Trigger-System, build/vivado_post_impl_saif_30chunks/reports/post_route_power_saif.rpt",
        "xcku5p",
        200.0,
        True,
        0.463,
        clocks=(0.261, 0),
        lut=(0.520 - 0.018, 57798 + 3220 + 8),
        ff=(0.018, 45588),
        net=(0.545, 108148),
        bram36=(0.082, 21),
        uram=(0.054, 6),
        dsp=(0.047, 128),
    ),
)


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest of an estimate."""

    low: float
    high: float

    def __add__(self, other: "Range") -> "Range":
        return Range(self.low + other.low, self.high + other.high)

    def __mul__(self, factor: float) -> "Range":
        return Range(self.low * factor, self.high * factor)


NOTHING: Final = Range(0.0, 0.0)


def _over_reports(joules: Callable[[Report], float], kind: str, *, assumed: bool) -> Range:
    found = [joules(each) for each in REPORTS if kind in each.watts and not (assumed and each.simulated)]
    return Range(min(found), max(found))


def _a_clock(kind: str) -> Range:
    return _over_reports(lambda each: each.watts[kind] / (each.cells[kind] * each.mhz * 1e6), kind, assumed=False)


def _a_toggle(kind: str) -> Range:
    return _over_reports(
        lambda each: each.watts[kind] / (each.cells[kind] * each.mhz * 1e6 * VECTORLESS), kind, assumed=True
    )


# Joules: `clocks`, `bram36` and `uram` of a cell and a clock, all others of a cell and a toggle.
JOULES: Final[Mapping[str, Range]] = {
    "clocks": _a_clock("clocks"),
    "ff": _a_toggle("ff"),
    "lut": _a_toggle("lut"),
    "net": _a_toggle("net"),
    "dsp": _a_toggle("dsp"),
    "bram36": _a_clock("bram36"),
    "uram": _a_clock("uram"),
}
STATIC_W: Final = Range(*(pick(each.static_w for each in REPORTS if each.part == "xcu55c") for pick in (min, max)))


@dataclass(frozen=True, slots=True)
class Activity:
    """How often the bits of a unit toggle, as an average over its bits, a clock."""

    registers: float
    nets: float


def dynamic_joules(cells: Mapping[str, float], activity: Activity, clocks: float) -> dict[str, Range]:
    """Return the dynamic energy of a unit in a run, by kind of cell.

    The nets of a unit are the outputs of its LUTs and flip-flops. Outputs of flip-flops and multipliers toggle as the
    registers of the RTL do, and those of LUTs as its other nets do.

    Args:
        cells: LUTs, flip-flops and so on of the unit, by the names of sim/system/yosys_cells.csv.
        clocks: Clocks of the run.
    """
    lut_toggles = cells["lut"] * activity.nets * clocks
    register_toggles = cells["ff"] * activity.registers * clocks
    glitching = Range(lut_toggles * GLITCHES[0], lut_toggles * GLITCHES[1])
    net, lut = JOULES["net"], JOULES["lut"]
    return {
        "clocks": JOULES["clocks"] * (cells["ff"] * clocks),
        "registers": JOULES["ff"] * register_toggles,
        "luts": Range(lut.low * glitching.low, lut.high * glitching.high),
        "nets": Range(net.low * glitching.low, net.high * glitching.high) + net * register_toggles,
        "multipliers": JOULES["dsp"] * (cells["dsp"] * activity.registers * clocks),
        "block RAM": JOULES["bram36"] * (cells["bram36"] * clocks),
        "UltraRAM": JOULES["uram"] * (cells["uram"] * clocks),
    }
