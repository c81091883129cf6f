"""From hardware sources to containers for emulation: `sw_emu`, the HLS C++ compiled by g++, and `hw_emu`, the
SystemVerilog compiled by Verilator and g++. The rest is what a card's container has.

What a link for a card decides is decided here, too, so that the host meets the same rules: compute units get control
registers at 64 KiB steps, and each memory port of each unit an HBM bank of its own, in order, as one would set with
`v++ --connectivity.sp` for all arguments of the port; beyond the card's 32 banks they are shared from the first on.
What one unit leaves for another of any number (HANDED_OVER) lies in one bank that all of them reach, with what else
goes through these ports.
"""

import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headrace.bitstreams.errors import BuildError, WrongNumber
from headrace.bitstreams.hw_emu.library import LIBRARY_FLAGS, build_library, driver_sources, pack
from headrace.bitstreams.kernel import KernelSpec, parse_kernels, parse_xml
from headrace.bitstreams.sources import hls_folder, include_folders
from headrace.bitstreams.verilate import COMPILE_FLAGS, VERILATE_FLAGS, needed_files, rtl_sources, verilator_version
from headrace.bitstreams.xclbin import (
    Connection,
    IpInstance,
    MemoryBank,
    MemoryType,
    Mode,
    Xclbin,
    XclbinError,
    make_xclbin,
    read_xclbin,
    write_xclbin,
)

PLATFORM = "xilinx_u55c_gen3x16_xdma_base_3"  # the shell of an Alveo U55C
HBM_BANKS, HBM_BANK_KIB = 32, 512 * 1024  # 16 GiB
CU_BASE, CU_STEP = 0x80_0000, 0x1_0000
CLOCK_MHZ = 300
MAX_CUS = 16
HANDED_OVER = frozenset({"mel"})  # memory arguments that one kernel writes and another one reads
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-Wno-unknown-pragmas")
COMPILE_TIMEOUT_S = 600

_log = logging.getLogger(__name__)


def build_sw_emu(path: Path, image_cus: int = 4, mel_cus: int = 0, norm_cus: int = 0) -> Xclbin:
    """Compile the CUs' C++ and write the container to `path`, unless it already holds just that. Of a kind of which
    there are none, nothing is compiled.

    Raises BuildError."""
    return _build_own(path, units_cpp, include_folders(), Mode.SW_EMU, image_cus, mel_cus, norm_cus)


def build_hw_emu(path: Path, image_cus: int = 4, mel_cus: int = 0, norm_cus: int = 0) -> Xclbin:
    """The same of the CUs' RTL. Raises BuildError, also when Verilator is not installed."""
    return _build_own(path, _units_rtl, [], Mode.HW_EMU, image_cus, mel_cus, norm_cus)


def _build_own(
    path: Path,
    sources: Callable[[str], list[Path]],
    includes: Sequence[Path],
    mode: Mode,
    image_cus: int,
    mel_cus: int,
    norm_cus: int,
) -> Xclbin:
    cus = {"image_cu": image_cus, "audio_mel_cu": mel_cus, "audio_norm_cu": norm_cus}
    if any(count < 0 for count in cus.values()):
        raise WrongNumber("the number of compute units of a kind is 0 or more")
    kernels = [name for name, count in cus.items() if count]
    needed = list(dict.fromkeys(file for name in kernels for file in sources(name)))
    xmls = [(hls_folder() / name / "kernel.xml").read_bytes() for name in kernels]
    return build_kernels(path, needed, includes, xmls, {name: cus[name] for name in kernels}, mode)


def units_cpp(kernel: str) -> list[Path]:
    """The C++ of a kernel and of the units whose headers it includes, by themselves or through others."""
    folders = [kernel]
    for folder in folders:
        for file in sorted((hls_folder() / folder).glob("*.[ch]pp")):
            named = re.findall(r'#include "(\w+)/\w+\.hpp"', file.read_text())
            folders += [name for name in dict.fromkeys(named) if name not in (*folders, "headrace")]
    return [file for folder in folders for file in sorted((hls_folder() / folder).glob("*.cpp"))]


def _units_rtl(kernel: str) -> list[Path]:
    return needed_files(kernel, rtl_sources())


def build_kernels(
    path: Path,
    sources: Sequence[Path],
    includes: Sequence[Path],
    kernel_xmls: Sequence[bytes],
    cus: Mapping[str, int],
    mode: Mode = Mode.SW_EMU,
) -> Xclbin:
    """A container of any kernels: `cus` has the number of compute units of each. `sources` are C++ with a function of
    each kernel's name (`sw_emu`) or SystemVerilog with a module of that name (`hw_emu`)."""
    specs = [spec for xml in kernel_xmls for spec in parse_kernels(xml)]
    total = sum(cus.values())
    if any(count < 1 for count in cus.values()) or not 1 <= total <= MAX_CUS:
        raise WrongNumber(f"{total} compute units asked for; a container holds 1 to {MAX_CUS}")
    hardware = mode is Mode.HW_EMU
    build = {
        "target": mode.name.lower(),
        "kernels": dict(cus),
        "compiler": _compiler_version(),
        **(_verilator_metadata() if hardware else {"flags": list(FLAGS)}),
        "source_sha256": _hash_sources([*sources, *(driver_sources() if hardware else [])], includes, kernel_xmls),
        "headrace": _own_version(),
        "clock_mhz": CLOCK_MHZ,
    }
    try:
        present = read_xclbin(path)
        if json.loads(present.build_metadata) == build:
            _log.info("%s is up to date", path)
            return present
    except (XclbinError, ValueError):
        pass  # nothing there yet, or nothing usable
    _log.info("building %s of %d sources", path, len(sources))
    ips = _instances(specs, cus)
    connections = _connections(specs, ips)
    used = {connection.memory_index for connection in connections}
    memories = [
        MemoryBank(MemoryType.HBM, bank in used, HBM_BANK_KIB, bank * HBM_BANK_KIB * 1024, f"HBM[{bank}]")
        for bank in range(HBM_BANKS)
    ]
    metadata_xml = _embedded_metadata(kernel_xmls, ips)
    xclbin = make_xclbin(
        mode=mode,
        platform=PLATFORM,
        bitstream=_verilate(sources, specs, metadata_xml) if hardware else _compile(sources, includes),
        metadata_xml=metadata_xml,
        build_metadata=json.dumps(build, indent=2).encode(),
        memories=memories,
        ips=ips,
        connections=connections,
    )
    try:
        write_xclbin(path, xclbin)
    except OSError as error:
        raise BuildError(f"cannot write {path}: {error.strerror}") from error
    return xclbin


def _instances(specs: Sequence[KernelSpec], cus: Mapping[str, int]) -> list[IpInstance]:
    names = [(spec, number) for spec in specs for number in range(1, cus[spec.name] + 1)]
    return [
        IpInstance(f"{spec.name}:{spec.name}_{number}", CU_BASE + index * CU_STEP, spec.control_protocol)
        for index, (spec, number) in enumerate(names)
    ]


def _connections(specs: Sequence[KernelSpec], ips: Sequence[IpInstance]) -> list[Connection]:
    by_name = {spec.name: spec for spec in specs}
    banks: dict[str | tuple[int, str], int] = {}  # of what is handed over by its name, of all else by unit and port
    found = []
    for index, ip in enumerate(ips):
        pointers = [arg for arg in by_name[ip.kernel].args if arg.is_global]
        handed_over = {arg.port: arg.name for arg in pointers if arg.name in HANDED_OVER}
        for arg in pointers:
            bank = banks.setdefault(handed_over.get(arg.port, (index, arg.port)), len(banks) % HBM_BANKS)
            found.append(Connection(arg.index, index, bank))
    return found


def _embedded_metadata(kernel_xmls: Sequence[bytes], ips: Sequence[IpInstance]) -> bytes:
    """The kernels with their instances, in the nesting that XRT reads: project, platform, device, core, kernel."""
    project = ElementTree.Element("project", name="headrace")
    platform = ElementTree.SubElement(project, "platform", vendor="xilinx", boardid="u55c", name="gen3x16_xdma_base")
    device = ElementTree.SubElement(platform, "device", name="fpga0")
    core = ElementTree.SubElement(device, "core", name="OCL_REGION_0", target="bitstream", type="clc_region")
    for xml in kernel_xmls:
        for kernel in parse_xml(xml).iter("kernel"):
            _flatten(kernel)
            for ip in ips:
                if ip.kernel == kernel.attrib["name"]:
                    instance = ElementTree.SubElement(kernel, "instance", name=ip.instance)
                    remap = {"base": f"0x{ip.base_address:X}", "range": "0x10000", "port": "S_AXI_CONTROL"}
                    ElementTree.SubElement(instance, "addrRemap", remap)
            core.append(kernel)
    return ElementTree.tostring(project, encoding="UTF-8", xml_declaration=True)


def _flatten(kernel: ElementTree.Element) -> None:
    """kernel.xml, which tools read, has ports and arguments in groups; XRT reads them as the kernel's own children."""
    for group in [child for child in kernel if child.tag in ("ports", "args")]:
        position = list(kernel).index(group)
        kernel.remove(group)
        kernel[position:position] = list(group)


def _compile(sources: Sequence[Path], includes: Sequence[Path]) -> bytes:
    """The shared library that stands in for the bitstream."""
    compiler = _compiler()
    command = [*([ccache] if (ccache := shutil.which("ccache")) else []), compiler, *FLAGS]
    command += [f"-I{folder}" for folder in includes]
    with tempfile.TemporaryDirectory(prefix="headrace-build-") as folder:
        objects = [Path(folder) / f"{number}-{source.stem}.o" for number, source in enumerate(sources)]

        def compile_one(source: Path, target: Path) -> None:
            _run([*command, "-c", str(source), "-o", str(target)], source.name)

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(compile_one, sources, objects))
        library = Path(folder) / "kernels.so"
        _run([compiler, "-shared", "-o", str(library), *map(str, objects)], "linking")
        return library.read_bytes()


def _verilate(sources: Sequence[Path], specs: Sequence[KernelSpec], metadata_xml: bytes) -> bytes:
    """The archive that stands in for the bitstream."""
    with tempfile.TemporaryDirectory(prefix="headrace-build-") as folder:
        libraries = [Path(folder) / f"{spec.name}.so" for spec in specs]
        for spec, library in zip(specs, libraries, strict=True):
            build_library(spec, sources, library)
        return pack(libraries, metadata_xml)


def _verilator_metadata() -> dict[str, Any]:
    return {"verilator": verilator_version(), "flags": [*VERILATE_FLAGS, *COMPILE_FLAGS, *LIBRARY_FLAGS]}


def _run(command: Sequence[str], what: str) -> None:
    _log.debug("%s", shlex.join(command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{what}: the compiler took more than {COMPILE_TIMEOUT_S} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line][:5] or done.stderr.splitlines()[-5:]
        raise BuildError(f"{what} does not compile:\n" + "\n".join(lines))


def _compiler() -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        raise BuildError("g++ is missing; install it (on Debian or Ubuntu: apt-get install g++)")
    return compiler


def _compiler_version() -> str:
    return subprocess.run([_compiler(), "--version"], capture_output=True, text=True).stdout.partition("\n")[0]


def _own_version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "unknown"


def _hash_sources(sources: Sequence[Path], includes: Sequence[Path], kernel_xmls: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    headers = {header for folder in includes for header in folder.rglob("*.h*") if header.is_file()}
    for file in [*sources, *sorted(headers)]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    for xml in kernel_xmls:
        digest.update(xml)
    return digest.hexdigest()


def describe(xclbin: Xclbin) -> dict[str, Any]:
    """What is in a container, for people and machines: kernels, arguments with offsets, instances with their banks."""
    kernels = []
    for spec in parse_kernels(xclbin.metadata_xml):
        instances = []
        for index, ip in enumerate(xclbin.ips):
            if ip.kernel != spec.name:
                continue
            banks = {
                spec.args[connection.arg_index].name: xclbin.memories[connection.memory_index].tag
                for connection in xclbin.connections
                if connection.ip_index == index and 0 <= connection.arg_index < len(spec.args)
            }
            instances.append({"name": ip.instance, "base_address": ip.base_address, "banks": banks})
        args = [
            {"index": a.index, "name": a.name, "type": a.type, "offset": a.offset, "size": a.size, "port": a.port}
            for a in spec.args
        ]
        kernels.append(
            {"name": spec.name, "control_protocol": spec.control_protocol, "args": args, "instances": instances}
        )
    return {
        "mode": xclbin.mode.name.lower(),
        "platform": xclbin.platform,
        "uuid": str(xclbin.uuid),
        "bitstream_bytes": len(xclbin.bitstream),
        "kernels": kernels,
        "memories": [
            {"tag": m.tag, "used": m.used, "size_kb": m.size_kb, "base_address": m.base_address}
            for m in xclbin.memories
        ],
        "build": json.loads(xclbin.build_metadata) if xclbin.build_metadata else {},
    }
