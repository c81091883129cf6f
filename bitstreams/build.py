"""Build containers for emulation: `sw_emu` from the HLS C++ with g++, `hw_emu` from the SystemVerilog with Verilator
and g++.

The rest of a container is what a card's container has. layout.py makes the choices that a link for a card makes, so
that the host meets the same rules.
"""

import hashlib
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
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headrace.bitstreams import build_metadata
from headrace.bitstreams.configurations import FULL, Configuration, headers_of, kernel_xml
from headrace.bitstreams.configurations import configuration as configuration_of
from headrace.bitstreams.errors import BuildError, WrongNumber
from headrace.bitstreams.hw_emu.library import LIBRARY_FLAGS, build_library, driver_sources, pack
from headrace.bitstreams.kernel import KernelSpec, kernels_of, parse_kernels, parse_xml
from headrace.bitstreams.layout import connections, instances
from headrace.bitstreams.platforms import DEFAULT, Platform, platform
from headrace.bitstreams.sources import hls_folder, include_folders
from headrace.bitstreams.verilate import (
    COMPILE_FLAGS,
    TRACES,
    VERILATE_FLAGS,
    needed_files,
    rtl_sources,
    verilator_version,
)
from headrace.bitstreams.xclbin import (
    IpInstance,
    Mode,
    Xclbin,
    XclbinError,
    make_xclbin,
    read_xclbin,
    write_xclbin,
)

CLOCK_MHZ = 300
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-Wno-unknown-pragmas")
COMPILE_TIMEOUT_S = 600

_log = logging.getLogger(__name__)


def build_sw_emu(
    path: Path,
    image_cus: int = 4,
    mel_cus: int = 0,
    norm_cus: int = 0,
    card: str = DEFAULT,
    configuration: str = FULL,
) -> Xclbin:
    """Compile the C++ of the CUs and write the container to `path`, unless `path` already holds the same content.

    Args:
        image_cus, mel_cus, norm_cus: Units of each kind. Nothing is compiled for a kind with 0 units.
        card: Card whose memory the container describes.
        configuration: Name of the image units' configuration.

    Raises:
        BuildError: A compiler fails or is missing, or the container cannot be written.
        UsageError: There is no such configuration.
    """
    includes = include_folders(headers_of(configuration))
    return _build_own(path, units_cpp, includes, Mode.SW_EMU, image_cus, mel_cus, norm_cus, card, configuration)


def build_hw_emu(
    path: Path,
    image_cus: int = 4,
    mel_cus: int = 0,
    norm_cus: int = 0,
    card: str = DEFAULT,
    configuration: str = FULL,
    trace: str = "vcd",
) -> Xclbin:
    """Compile the RTL of the CUs and write the container, as `build_sw_emu`. `trace` is the format of traces.

    Raises BuildError, also without Verilator."""
    rtl = rtl_sources(configuration=configuration)
    return _build_own(
        path,
        lambda kernel: needed_files(kernel, rtl),
        [],
        Mode.HW_EMU,
        image_cus,
        mel_cus,
        norm_cus,
        card,
        configuration,
        trace,
    )


def _build_own(
    path: Path,
    sources: Callable[[str], list[Path]],
    includes: Sequence[Path],
    mode: Mode,
    image_cus: int,
    mel_cus: int,
    norm_cus: int,
    card: str,
    configuration: str,
    trace: str = "vcd",
) -> Xclbin:
    xmls, cus = own_kernels(image_cus, mel_cus, norm_cus, configuration)
    needed = list(dict.fromkeys(file for name in cus for file in sources(name)))
    return build_kernels(path, needed, includes, xmls, cus, mode, card, configuration_of(configuration), trace)


def own_kernels(
    image_cus: int, mel_cus: int, norm_cus: int, configuration: str = FULL
) -> tuple[list[bytes], dict[str, int]]:
    """Return the kernel.xml of each of our kernels that is asked for, and its number of units.

    Raises WrongNumber, and UsageError if there is no such configuration."""
    cus = {"image_cu": image_cus, "audio_mel_cu": mel_cus, "audio_norm_cu": norm_cus}
    if any(count < 0 for count in cus.values()):
        raise WrongNumber("the number of compute units of a kind is 0 or more")
    wanted = {name: count for name, count in cus.items() if count}
    return [kernel_xml(name, configuration) for name in wanted], wanted


def units_cpp(kernel: str) -> list[Path]:
    """Return the C++ files of a kernel and of all units whose headers it includes, directly or through others."""
    folders = [kernel]
    for folder in folders:
        for file in sorted((hls_folder() / folder).glob("*.[ch]pp")):
            named = re.findall(r'#include "([\w/]+)/\w+\.hpp"', file.read_text())
            folders += [name for name in dict.fromkeys(named) if name not in (*folders, "headrace")]
    return [file for folder in folders for file in sorted((hls_folder() / folder).glob("*.cpp"))]


def build_kernels(
    path: Path,
    sources: Sequence[Path],
    includes: Sequence[Path],
    kernel_xmls: Sequence[bytes],
    cus: Mapping[str, int],
    mode: Mode = Mode.SW_EMU,
    card: str = DEFAULT,
    configuration: Configuration | None = None,
    trace: str = "vcd",
) -> Xclbin:
    """Build a container of any kernels and write it to `path`, unless `path` already holds the same content.

    Args:
        sources: C++ with a function of each kernel's name (`sw_emu`), or SystemVerilog with a module of that name
            (`hw_emu`).
        kernel_xmls: The kernel.xml files.
        cus: Compute units of each kernel, by name.
        configuration: Configuration of our own image units, which the container then names.
        trace: The format of traces of `hw_emu`, one of those of `verilate`.

    Raises:
        BuildError: The sources do not compile, or the container cannot be written.
    """
    specs = [spec for xml in kernel_xmls for spec in parse_kernels(xml)]
    board = platform(card)
    ips = instances(specs, cus)
    joined = connections(specs, ips, board)
    hardware = mode is Mode.HW_EMU
    build = {
        "target": mode.name.lower(),
        "kernels": dict(cus),
        "card": card,
        "compiler": _compiler_version(),
        **(_verilator_metadata(trace) if hardware else {"flags": list(FLAGS)}),
        "source_sha256": _hash_sources([*sources, *(driver_sources() if hardware else [])], includes, kernel_xmls),
        "headrace": _own_version(),
        "clock_mhz": CLOCK_MHZ,
        **({"configuration": asdict(configuration)} if configuration else {}),
    }
    try:
        present = read_xclbin(path)
        if build_metadata.unpack(present.build_metadata) == build:
            _log.info("%s is up to date", path)
            return present
    except XclbinError:
        pass  # no container there yet, or no valid one
    _log.info("building %s of %d sources", path, len(sources))
    metadata_xml = _embedded_metadata(kernel_xmls, ips, board)
    xclbin = make_xclbin(
        mode=mode,
        platform=board.shell,
        bitstream=_verilate(sources, specs, metadata_xml, trace) if hardware else _compile(sources, includes),
        metadata_xml=metadata_xml,
        build_metadata=build_metadata.pack(build, metadata_xml, board),
        memories=board.memories({connection.memory_index for connection in joined}),
        ips=ips,
        connections=joined,
    )
    try:
        write_xclbin(path, xclbin)
    except OSError as error:
        raise BuildError(f"cannot write {path}: {error.strerror}") from error
    return xclbin


def _embedded_metadata(kernel_xmls: Sequence[bytes], ips: Sequence[IpInstance], card: Platform) -> bytes:
    """Return the kernels with their instances, nested as XRT reads them: project, platform, device, core, kernel."""
    project = ElementTree.Element("project", name="headrace")
    board = ElementTree.SubElement(project, "platform", vendor="xilinx", boardid=card.name, name=card.shell_name[0])
    device = ElementTree.SubElement(board, "device", name="fpga0")
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
    """Move ports and arguments out of their groups. Tools read kernel.xml in groups; XRT reads the kernel's own
    children."""
    for group in [child for child in kernel if child.tag in ("ports", "args")]:
        position = list(kernel).index(group)
        kernel.remove(group)
        kernel[position:position] = list(group)


def _compile(sources: Sequence[Path], includes: Sequence[Path]) -> bytes:
    """Return the shared library that stands in for the bitstream."""
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


def _verilate(sources: Sequence[Path], specs: Sequence[KernelSpec], metadata_xml: bytes, trace: str) -> bytes:
    """Return the archive that stands in for the bitstream."""
    with tempfile.TemporaryDirectory(prefix="headrace-build-") as folder:
        libraries = [Path(folder) / f"{spec.name}.so" for spec in specs]
        for spec, library in zip(specs, libraries, strict=True):
            build_library(spec, sources, library, trace=trace)
        return pack(libraries, metadata_xml)


def _verilator_metadata(trace: str) -> dict[str, Any]:
    flags = [*VERILATE_FLAGS, *TRACES[trace][0], *COMPILE_FLAGS, *LIBRARY_FLAGS]
    return {"verilator": verilator_version(), "flags": flags}


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
    """Return the content of a container as JSON values: kernels, arguments with offsets, instances with their banks.

    Raises XclbinError for metadata that are not valid."""
    kernels = []
    for spec in kernels_of(xclbin):
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
        "build": build_metadata.unpack(xclbin.build_metadata),
    }
