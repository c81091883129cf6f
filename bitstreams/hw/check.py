"""Check a folder for a hardware build without any of the vendor's tools: `make check`.

It compares kernel.xml with the RTL's ports or with the pragmas of the C++, and link.cfg with kernel.xml and the card.
It runs the packaging script in tclsh with recorded commands, and compares these with kernel.xml. It reads the folder's
files as they are now and writes nothing there. This file has no imports of Headrace, as the folder has a copy of it.
"""

import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

CLOCK, RESET, INTERRUPT = "ap_clk", "ap_rst_n", "interrupt"
READ = ("araddr", "arlen", "arvalid", "arready", "rdata", "rlast", "rvalid", "rready")
WRITE = ("awaddr", "awlen", "awvalid", "awready", "wdata", "wstrb", "wlast", "wvalid", "wready", "bvalid", "bready")
LITE = (
    *("awaddr", "awvalid", "awready", "wdata", "wstrb", "wvalid", "wready", "bresp", "bvalid", "bready"),
    *("araddr", "arvalid", "arready", "rdata", "rresp", "rvalid", "rready"),
)
TCLSH_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Arg:
    name: str
    port: str
    offset: int
    size: int
    is_pointer: bool  # to memory


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    vlnv: list[str]
    protocol: str
    masters: dict[str, int]  # port to data width
    slave: str
    slave_range: int
    args: list[Arg]


def read_kernel(xml: str) -> Kernel:
    """Return the kernel of a kernel.xml. Names of ports are in lower case, as in RTL and tools."""
    root = ElementTree.fromstring(xml).find(".//kernel")
    if root is None:
        raise ValueError("no kernel in it")
    name = root.attrib["name"]
    masters, slave, slave_range = {}, "", 0
    for port in root.iter("port"):
        lower = port.attrib["name"].lower()
        if port.attrib["mode"] == "master":
            masters[lower] = int(port.attrib["dataWidth"], 0)
        else:
            slave, slave_range = lower, int(port.attrib["range"], 0)
    for arg in root.iter("arg"):
        if "hostSize" not in arg.attrib:
            raise ValueError(f"argument {arg.attrib['name']} has no hostSize, without which XRT opens no kernel")
    args = [
        Arg(
            arg.attrib["name"],
            arg.attrib["port"].lower(),
            int(arg.attrib["offset"], 0),
            int(arg.attrib["size"], 0),
            arg.attrib["addressQualifier"] == "1",
        )
        for arg in root.iter("arg")
    ]
    vlnv = root.attrib.get("vlnv", f"headrace:kernel:{name}:1.0").split(":")
    return Kernel(name, vlnv, root.attrib["hwControlProtocol"], masters, slave, slave_range, args)


def rtl_ports(module: str, text: str, macros: str, constants: str = "") -> dict[str, tuple[str, int]]:
    """Return direction and width of each port of a module, by name. Ports may come from macros, and their widths from
    the integers of a package, `constants`."""
    match = re.search(rf"^module {module}\b[^(]*\((?P<ports>.*?)\n\);", _uncommented(text), re.M | re.S)
    if match is None:
        return {}
    header = match["ports"]
    for macro in re.finditer(r"`define (\w+)\(([^)]*)\)((?:.*\\\n)*.*)", _uncommented(macros)):
        name, parameters, body = macro[1], [part.strip() for part in macro[2].split(",")], macro[3]

        def expand(use: re.Match[str], parameters: list[str] = parameters, body: str = body) -> str:
            for parameter, value in zip(parameters, use[1].split(","), strict=True):
                body = re.sub(rf"\b{parameter}\b", value.strip(), body)
            return body.replace("``", "").replace("\\\n", "\n")

        header = re.sub(rf"`{name}\(([^)]*)\)", expand, header)
    for name, value in re.findall(r"\bint unsigned (\w+)\s*=\s*(\d+);", _uncommented(constants)):
        header = re.sub(rf"\b{name}\b", value, header)
    ports = {}
    for direction, packed, name in re.findall(r"\b(input|output)\s+logic\s*(\[[^\]]*\])?\s*(\w+)", header):
        ports[name] = (direction, _width(packed))
    return ports


def _uncommented(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def _width(packed: str) -> int:
    if not packed:
        return 1
    high, low = packed.strip("[]").split(":")
    terms = re.findall(r"[+-]?[\d*]+", high.replace(" ", ""))
    return sum(math.prod(map(int, term.split("*"))) for term in terms) - int(low) + 1


def check_ports(kernel: Kernel, ports: dict[str, tuple[str, int]]) -> list[str]:
    """Return the differences between the ports of kernel.xml and those of the RTL."""
    faults = []

    def expect(port: str, direction: str, width: int) -> None:
        actual = ports.get(port)
        if actual != (direction, width):
            what = "missing" if actual is None else f"{actual[0]} of {actual[1]} bits"
            faults.append(f"{kernel.name}: RTL port {port} is {what}, not {direction} of {width} bits")

    expect(CLOCK, "input", 1)
    expect(RESET, "input", 1)
    expect(INTERRUPT, "output", 1)
    known = {CLOCK, RESET, INTERRUPT}
    address = (kernel.slave_range - 1).bit_length()
    widths = {"awaddr": address, "araddr": address, "wdata": 32, "rdata": 32, "wstrb": 4, "bresp": 2, "rresp": 2}
    inputs = {"awaddr", "awvalid", "wdata", "wstrb", "wvalid", "bready", "araddr", "arvalid", "rready"}
    for signal in LITE:
        expect(f"{kernel.slave}_{signal}", "input" if signal in inputs else "output", widths.get(signal, 1))
    known |= {port for port in ports if port.startswith(f"{kernel.slave}_")}
    for master, bits in kernel.masters.items():
        mine = {port.removeprefix(f"{master}_") for port in ports if port.startswith(f"{master}_")}
        known |= {f"{master}_{signal}" for signal in mine}
        channels = [group for group in (READ, WRITE) if group[0] in mine]
        if not channels:
            faults.append(f"{kernel.name}: kernel.xml has a port {master}, of which the RTL has no channel")
        sizes = {"araddr": 64, "awaddr": 64, "arlen": 8, "awlen": 8, "rdata": bits, "wdata": bits, "wstrb": bits // 8}
        taken = {"arready", "rdata", "rlast", "rvalid", "awready", "wready", "bvalid"}
        for signal in [signal for group in channels for signal in group]:
            expect(f"{master}_{signal}", "input" if signal in taken else "output", sizes.get(signal, 1))
    faults += [f"{kernel.name}: RTL port {port} is of no port in kernel.xml" for port in ports if port not in known]
    return faults


def check_args(kernel: Kernel) -> list[str]:
    """Check the arguments against the ports of the same kernel.xml."""
    faults = []
    for arg in kernel.args:
        wanted = kernel.masters if arg.is_pointer else {kernel.slave: 32}
        if arg.port not in wanted:
            faults.append(f"{kernel.name}: argument {arg.name} is at {arg.port}, which is not a port of its kind")
        if arg.offset + arg.size > kernel.slave_range:
            faults.append(f"{kernel.name}: argument {arg.name} lies beyond the {kernel.slave_range} bytes of registers")
    return faults


def check_pragmas(kernel: Kernel, source: str) -> list[str]:
    """Check kernel.xml against the INTERFACE pragmas of the C++ that v++ compiles."""
    lite = dict(re.findall(r"s_axilite port = (\w+) bundle = \w+ offset = (0x[0-9A-Fa-f]+)", source))
    offsets = {name: int(offset, 16) for name, offset in lite.items()}
    masters = dict(re.findall(r"m_axi port = (\w+) bundle = (\w+)", source))
    faults = []
    for arg in kernel.args:
        if offsets.pop(arg.name, None) != arg.offset:
            faults.append(f"{kernel.name}: the pragmas do not put {arg.name} at 0x{arg.offset:X}, as kernel.xml does")
        bundle = masters.pop(arg.name, None)
        if arg.is_pointer and f"m_axi_{bundle}" != arg.port:
            faults.append(f"{kernel.name}: the pragmas bundle {arg.name} into {bundle}, kernel.xml has {arg.port}")
    faults += [f"{kernel.name}: the pragmas name {name}, kernel.xml does not" for name in {**offsets, **masters}]
    if f"INTERFACE {kernel.protocol} port = return" not in source:
        faults.append(f"{kernel.name}: the pragmas have another control protocol than {kernel.protocol}")
    return faults


def check_link(cfg: str, kernels: list[Kernel], card: dict[str, object]) -> list[str]:
    """Check the units, banks, dies and clocks of link.cfg against the kernels and the card."""
    by_name = {kernel.name: kernel for kernel in kernels}
    lines = [line.split("=", 1) for line in cfg.splitlines() if "=" in line and not line.startswith("#")]
    faults: list[str] = []
    units: dict[str, Kernel] = {}
    for value in (value for key, value in lines if key == "nk"):
        name, count, listed = (*value.split(":"), "")[:3]
        names = listed.split(".") if listed else []
        if name not in by_name:
            faults.append(f"link.cfg: nk={value}: there is no kernel {name}")
        elif not count.isdigit() or len(names) != int(count):
            faults.append(f"link.cfg: nk={value}: it names {len(names)} units")
        else:
            units |= dict.fromkeys(names, by_name[name])
    faults += [f"link.cfg: no unit of kernel {name}" for name in by_name if by_name[name] not in units.values()]
    wanted = {f"{unit}.{arg.name}" for unit, kernel in units.items() for arg in kernel.args if arg.is_pointer}
    banks: dict[str, str] = {}
    for value in (value for key, value in lines if key == "sp"):
        where, _, bank = value.partition(":")
        match = re.fullmatch(rf"{card['memory']}\[(\d+)\]", bank)
        if where not in wanted:
            faults.append(f"link.cfg: sp={value}: {where} is no pointer of a unit, or has its bank already")
        elif match is None or int(match[1]) >= int(str(card["banks"])):
            faults.append(
                f"link.cfg: sp={value}: {card['name']} has {card['memory']}[0] to [{int(str(card['banks'])) - 1}]"
            )
        wanted.discard(where)
        banks[where] = bank
    faults += [f"link.cfg: no bank for {where}" for where in sorted(wanted)]
    ports = sum(len({arg.port for arg in kernel.args if arg.is_pointer}) for kernel in units.values())
    if ports > int(str(card["ports"])):
        faults.append(f"link.cfg: {ports} memory ports, {card['name']} takes {card['ports']}")
    placed = _by_unit([value for key, value in lines if key == "slr"], units, "slr", faults)
    for unit, slr in placed.items():
        if not re.fullmatch(r"SLR\d+", slr) or int(slr[3:]) >= int(str(card["slrs"])):
            faults.append(f"link.cfg: {unit} in {slr}; {card['name']} has SLR0 to SLR{int(str(card['slrs'])) - 1}")
    clocks = [":".join(reversed(value.split(":"))) for key, value in lines if key == "freqHz"]
    for unit, hertz in _by_unit(clocks, units, "freqHz", faults).items():
        if not hertz.isdigit() or not 1_000_000 <= int(hertz) <= 600_000_000:
            faults.append(f"link.cfg: a clock of {hertz} Hz for {unit}")
    return faults


def _by_unit(values: list[str], units: dict[str, Kernel], key: str, faults: list[str]) -> dict[str, str]:
    """Return the value of each unit from lines UNIT:VALUE, of which each unit has one. Adds to `faults`."""
    by_unit: dict[str, str] = {}
    for value in values:
        unit, _, what = value.partition(":")
        if unit not in units or unit in by_unit:
            faults.append(f"link.cfg: {key} of {unit}, which is no unit or has one already")
        by_unit[unit] = what
    faults += [f"link.cfg: no {key} for {unit}" for unit in units if unit not in by_unit]
    return {unit: what for unit, what in by_unit.items() if unit in units}


def check_script(kernel: Kernel, folder: Path, part: str) -> list[str]:
    """Run the packaging script in tclsh, and check the commands that it runs against kernel.xml."""
    if (tclsh := shutil.which("tclsh")) is None:
        return ["tclsh is missing, which runs the scripts (on Debian or Ubuntu: apt-get install tcl)"]
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as scratch:
        command = [tclsh, "scripts/record.tcl", "scripts/package_kernel.tcl", kernel.name, part, scratch]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TCLSH_TIMEOUT_S, check=False)
        if done.returncode != 0:
            return [f"{kernel.name}: scripts/package_kernel.tcl fails: {done.stderr.strip().splitlines()[0]}"]
        recorded = done.stdout.replace(scratch, "FOLDER").replace(str(folder.resolve()), "ROOT").splitlines()
    name = kernel.name
    expected = [
        f"set_property top {name} current_fileset()",
        f"set_property vitis_drc {{ctrl_protocol {kernel.protocol}}} ipx::current_core()",
        "set_property sdx_kernel true ipx::current_core()",
        "set_property sdx_kernel_type rtl ipx::current_core()",
        f"set_property name {kernel.vlnv[2]} ipx::current_core()",
        f"set_property version {kernel.vlnv[3]} ipx::current_core()",
        f"ipx::package_project -root_dir FOLDER/ip_{name} -vendor {kernel.vlnv[0]} -library {kernel.vlnv[1]}"
        " -taxonomy /KernelIP -set_current true",
        "set_property value -1 ipx::add_bus_parameter(FREQ_TOLERANCE_HZ)",
        "ipx::check_integrity -kernel -xrt ipx::current_core()",
        f"package_xo -force -xo_path FOLDER/{name}.xo -kernel_name {name} -ip_directory FOLDER/ip_{name} -kernel_xml"
        f" ROOT/kernels/{name}.xml -ctrl_protocol {kernel.protocol}",
        *(
            f"ipx::associate_bus_interfaces -busif {port} -clock ap_clk ipx::current_core()"
            for port in (*kernel.masters, kernel.slave)
        ),
    ]
    faults = [f"{name}: the packaging script does not run: {line}" for line in expected if line not in recorded]
    registers = [line for line in recorded if line.startswith(("ipx::add_register", "set_property"))]
    registers = [line for line in registers if "ipx::add_register" in line]
    wanted = []
    for arg in kernel.args:
        made = f"ipx::add_register({arg.name})"
        wanted += [
            f"ipx::add_register {arg.name} ipx::add_address_block(reg0)",
            f"set_property address_offset 0x{arg.offset:X} {made}",
            f"set_property size {8 * arg.size} {made}",
        ]
        if arg.is_pointer:
            wanted.append(f"ipx::add_register_parameter ASSOCIATED_BUSIF {made}")
            wanted.append(f"set_property value {arg.port} ipx::add_register_parameter(ASSOCIATED_BUSIF)")
    for line, other in zip_longest(registers, wanted, fillvalue="nothing"):
        if line != other:
            faults.append(f"{name}: the packaging script runs {line}, kernel.xml asks for {other}")
            break
    return faults


def check_folder(folder: Path) -> list[str]:
    """Return the faults that all checks find. The list is empty if there are none."""
    config = json.loads((folder / "manifest.json").read_text())
    kernels, faults = [], []
    for name in config["kernels"]:
        try:
            kernels.append(read_kernel((folder / "kernels" / f"{name}.xml").read_text()))
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            faults.append(f"kernels/{name}.xml cannot be read: {type(error).__name__} {error}")
    for kernel in kernels:
        faults += check_args(kernel)
        if config["kernel"] == "rtl":
            source = next(folder.glob(f"src/*/{kernel.name}.sv"))
            macros = "\n".join(path.read_text() for path in sorted(folder.glob("src/**/*.svh")))
            constants = "\n".join(path.read_text() for path in folder.glob("src/**/config_pkg.sv"))
            faults += check_ports(kernel, rtl_ports(kernel.name, source.read_text(), macros, constants))
            faults += check_script(kernel, folder, config["card"]["part"])
        else:
            source = next(folder.glob(f"src/*/{kernel.name}.cpp"))
            faults += check_pragmas(kernel, source.read_text())
    return faults + check_link((folder / "link.cfg").read_text(), kernels, config["card"])


if __name__ == "__main__":
    faults = check_folder(Path(sys.argv[1]))
    print("\n".join(faults) or "check: scripts, link.cfg and kernel.xml agree; nothing was built or timed by this")
    sys.exit(1 if faults else 0)
