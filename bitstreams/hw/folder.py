"""Write the folder from which a machine with Vitis builds a container for a card: sources, scripts and link settings.

The folder holds all files that its `make` needs. No vendor tool runs while it is written, and nothing in it was built
or timed.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.batching.errors import UsageError
from headrace.bitstreams.build import own_kernels, units_cpp
from headrace.bitstreams.configurations import FULL, headers_of
from headrace.bitstreams.hw import check, cores
from headrace.bitstreams.kernel import KernelSpec, parse_kernels
from headrace.bitstreams.layout import connections, instances
from headrace.bitstreams.platforms import Platform
from headrace.bitstreams.sources import hls_folder, place
from headrace.bitstreams.verilate import needed_files, rtl_sources

HERE = Path(__file__).parent
MANIFEST, BUILD = "manifest.json", "build"
# From Yosys's estimate of the longest path of image_cu, 3.97 ns (`headrace build --report`). The vendor's tools did not
# time it: their link may miss this clock or leave room.
CLOCK_MHZ = 250
COPIED = (
    "Makefile",
    "check.py",
    "reports.py",
    *(
        f"scripts/{name}"
        for name in (
            "package_kernel.tcl",
            "opt_pre.tcl",
            "place_pre.tcl",
            "record.tcl",
            "run.sh",
            "sim_main.cpp",
            "tools.sh",
        )
    ),
)
_README = """# Compute units for an Alveo {card}

Not built. This folder has sources and scripts. No vendor tool has run on anything in it. `make report` says what has
been built since.

Units: {units}.

The link asks for a clock of {clock_mhz} MHz. No timing supports it: there is only an estimate of the longest path by
Yosys (`headrace build --report`). The vendor's tools have to find timing, area and power.

    make check     scripts, link.cfg, kernel.xml, ports and pragmas; needs python3 (3.10) and tclsh
    make xclbin    with Vitis {vitis} or later and its settings64.sh sourced: build/hw/headrace.xclbin
    make hw_emu    the vendor's emulation
    make report    clock, slack and utilisation, or "not built"
    make run PHOTOS='a.jpg b.jpg'

`make` alone lists all steps. `link.cfg` has the banks and the die of each unit. `profile.cfg` has the monitors that
`PROFILE=1` adds. The page "From RTL to a folder for a U55C" of Headrace's documentation explains the folder.
"""


@dataclass(frozen=True, slots=True)
class Design:
    """The design to build.

    Args:
        card: The card.
        kernel: "rtl" or "hls".
        kernel_xmls: The kernel.xml files.
        cus: Units of each kernel, by name.
        clock_mhz: Clock that the link is asked for.
        slr: Dies of units, by name, that are not on their usual die.
        configuration: Name of the image units' configuration.
    """

    card: Platform
    kernel: str
    kernel_xmls: tuple[bytes, ...]
    cus: Mapping[str, int]
    clock_mhz: float = CLOCK_MHZ
    slr: Mapping[str, int] | None = None
    configuration: str = FULL


def own_design(
    card: Platform,
    kernel: str,
    counts: tuple[int, int, int],
    clock_mhz: float,
    slr: Mapping[str, int],
    configuration: str = FULL,
) -> Design:
    """Return the design with so many image, mel and norm units. Raises WrongNumber."""
    xmls, cus = own_kernels(*counts, configuration)
    return Design(card, kernel, tuple(xmls), cus, clock_mhz, slr, configuration)


def write_folder(folder: Path, design: Design, sources: Sequence[Path] | None = None) -> None:
    """Write the folder whole or not at all.

    A folder that this function wrote, and that has not changed since, is written again and keeps its build results.

    Args:
        sources: RTL files in place of our own.

    Raises:
        UsageError: The folder holds other files, or cannot be written.
    """
    files = _files(design, rtl_sources(configuration=design.configuration) if sources is None else sources)
    _check_replaceable(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            new, old = Path(scratch) / "new", Path(scratch) / "old"
            for name, data in files.items():
                target = new / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                target.chmod(0o755 if name.endswith(".sh") else 0o644)
                if (folder / name).is_file() and (folder / name).read_bytes() == data:
                    shutil.copystat(folder / name, target)  # so that make does not build again for it
            if (folder / BUILD).exists():
                (folder / BUILD).rename(new / BUILD)
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
    except OSError as error:
        raise UsageError(f"-o {folder}: {error.strerror}; name a folder that can be written") from error


def _check_replaceable(folder: Path) -> None:
    """Raise UsageError unless the folder is missing, empty, or as `write_folder` left it."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"-o {folder}: Not a directory; name a folder for the build")
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        known = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"-o {folder}: it holds other files; name a new folder") from error
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith(f"{BUILD}/") or "__pycache__" in name or name == MANIFEST or not path.is_file():
            continue
        if known.get(name) != hashlib.sha256(path.read_bytes()).hexdigest():
            raise UsageError(
                f"-o {folder}: {name} is not as it was written there; keep it elsewhere, or name a new folder"
            )


def _files(design: Design, rtl: Sequence[Path]) -> dict[str, bytes]:
    """Return the content of each file by name, the manifest last. Raises UsageError."""
    specs = [spec for xml in design.kernel_xmls for spec in parse_kernels(xml)]
    texts = {name: (HERE / name).read_bytes() for name in COPIED}
    by_kernel: dict[str, list[Path]] = {}
    for spec, xml in zip(specs, design.kernel_xmls, strict=True):
        texts[f"kernels/{spec.name}.xml"] = xml
        by_kernel[spec.name] = needed_files(spec.name, rtl) if design.kernel == "rtl" else units_cpp(spec.name)
        for path in by_kernel[spec.name]:
            texts[_place(path)] = path.read_bytes()
        if design.kernel == "rtl":
            texts[f"kernels/{spec.name}.tcl"] = _kernel_tcl(xml, by_kernel[spec.name]).encode()
    if design.kernel == "rtl":
        texts |= {_place(path): path.read_bytes() for path in rtl}
        for unit in cores.units(rtl):
            texts[f"{unit}.core"] = cores.core(unit, rtl, "src").encode()
        texts["fusesoc.conf"] = b"[library.headrace]\nlocation = .\n"
        period = 1000 / design.clock_mhz
        texts["constraints/ap_clk.xdc"] = f"create_clock -period {period:.3f} [get_ports ap_clk]\n".encode()
    else:
        for path in sorted(hls_folder().rglob("*.hpp")):
            texts[_place(path)] = path.read_bytes()
    cfg, floorplan = link_cfg(design, specs)
    texts |= {"link.cfg": cfg.encode(), "floorplan.tcl": floorplan.encode()}
    texts["profile.cfg"] = b"[profile]\ndata=all:all:all\nexec=all:all\n"
    texts["config.mk"] = _config(design, by_kernel).encode()
    units = ", ".join(f"{count} {name}" for name, count in design.cus.items())
    texts["README.md"] = _README.format(
        card=design.card.name.upper(), units=units, clock_mhz=f"{design.clock_mhz:g}", vitis=design.card.vitis
    ).encode()
    manifest: dict[str, Any] = {
        "kernel": design.kernel,
        "kernels": dict(design.cus),
        "clock_mhz": design.clock_mhz,
        "configuration": design.configuration,
        "card": asdict(design.card),
        "built": False,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(texts.items())},
    }
    return {**texts, MANIFEST: (json.dumps(manifest, indent=2) + "\n").encode()}


def _place(path: Path) -> str:
    """Return where a source lies in the folder: as below hls/, for what includes what by its path."""
    return f"src/{place(path)}"


def link_cfg(design: Design, specs: Sequence[KernelSpec]) -> tuple[str, str]:
    """Return link.cfg for `v++ --config`, and the script with the die of each unit for the hooks. Raises UsageError."""
    ips = instances(specs, design.cus)
    joined = connections(specs, ips, design.card)
    moved = dict(design.slr or {})
    names = [ip.instance for ip in ips]
    for unit, slr in moved.items():
        if unit not in names:
            raise UsageError(f"--slr {unit}:{slr}: no such unit; there are {', '.join(names)}")
        if not 0 <= slr < design.card.slrs:
            raise UsageError(f"--slr {unit}:{slr}: {design.card.name} has SLR 0 to {design.card.slrs - 1}")
    lines = ["[connectivity]"]
    for spec in specs:
        mine = [ip.instance for ip in ips if ip.kernel == spec.name]
        lines.append(f"nk={spec.name}:{len(mine)}:{'.'.join(mine)}")
    by_name = {spec.name: spec for spec in specs}
    for each in joined:
        ip = ips[each.ip_index]
        argument = by_name[ip.kernel].args[each.arg_index].name
        lines.append(f"sp={ip.instance}.{argument}:{design.card.tag(each.memory_index)}")
    dies = {}
    for index, ip in enumerate(ips):
        bank = next((each.memory_index for each in joined if each.ip_index == index), 0)
        # All of HBM is at one die. Units take dies in turn, as they would not all fit there.
        usual = index % design.card.slrs if design.card.memory == "HBM" else design.card.slr_of(bank)
        dies[ip.instance] = moved.get(ip.instance, usual)
    lines += [f"slr={unit}:SLR{slr}" for unit, slr in dies.items()]
    lines += ["", "[clock]", *(f"freqHz={round(design.clock_mhz * 1e6)}:{unit}" for unit in dies)]
    floorplan = (
        "# Unit and die (SLR), in turn.\nset floorplan {\n" + "".join(f"  {u} {s}\n" for u, s in dies.items()) + "}\n"
    )
    return "\n".join(lines) + "\n", floorplan


def _kernel_tcl(xml: bytes, files: Sequence[Path]) -> str:
    kernel = check.read_kernel(xml.decode())
    registers = "".join(
        f"  {{{arg.name} 0x{arg.offset:X} {8 * arg.size} {arg.port if arg.is_pointer else '{}'}}}\n"
        for arg in kernel.args
    )
    sources = "".join(f"  {_place(path)}\n" for path in files if path.suffix == ".sv")
    headers = "".join(f"  {_place(path)}\n" for path in files if path.suffix == ".svh")
    return (
        f"set kernel {{{' '.join(kernel.vlnv)}}}\nset protocol {kernel.protocol}\n"
        f"set masters {{{' '.join(kernel.masters)}}}\nset slave {kernel.slave}\n"
        f"set sources {{\n{sources}}}\nset headers {{\n{headers}}}\nset registers {{\n{registers}}}\n"
    )


def _include_folders(design: Design) -> list[str]:
    """Return the include path of the C++ in the folder. Another config.hpp than the usual one comes first."""
    chosen = headers_of(design.configuration)
    return [*([_place(chosen)] if chosen else []), "src/include", "src"]


def _config(design: Design, by_kernel: Mapping[str, Sequence[Path]]) -> str:
    lines = [
        f"KERNEL = {design.kernel}",
        f"KERNELS = {' '.join(by_kernel)}",
        f"PLATFORM = {design.card.platform}",
        f"PART = {design.card.part}",
        f"VITIS_RELEASE = {design.card.vitis}",
        f"CLOCK_HZ = {round(design.clock_mhz * 1e6)}",
        f"INCLUDES = {' '.join(f'-I{folder}' for folder in _include_folders(design))}",
        f"SOURCES = {' '.join(dict.fromkeys(_place(path) for files in by_kernel.values() for path in files))}",
        *(f"SOURCES_{name} = {' '.join(map(_place, files))}" for name, files in by_kernel.items()),
    ]
    return "\n".join(lines) + "\n"
