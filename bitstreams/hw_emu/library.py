"""RTL kernels to libraries that run them clock by clock, and these to the BITSTREAM section of a `hw_emu` container.

The section is a ZIP archive with a library NAME.so for each kernel; its C interface is in hw_emu.h. Besides, it has
what XRT's own hw_emu starts, a script at the place of Vivado's simulation, and for that the EMBEDDED_METADATA. Every
library can write waveforms: being able to costs no time that could be measured (image_cu: less than 2 %).
"""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

from headrace.bitstreams.kernel import KernelSpec
from headrace.bitstreams.verilate import verilate

FOLDER = Path(__file__).parent
# A process may load several libraries, each with a copy of Verilator's runtime: they must not share symbols.
LIBRARY_FLAGS = ("-fvisibility=hidden", "-fno-gnu-unique")
METADATA = "kernels.xml"
SIMULATE = "behav_waveform/xsim/simulate.sh"
_SIMULATE_SCRIPT = b"""#!/bin/sh
# Started by XRT's hw_emu, here; `headrace xrt-env` says where Headrace is.
exec "${HEADRACE:-headrace}" device ../..
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same libraries make the same bytes


def driver_sources() -> list[Path]:
    return sorted(path for path in FOLDER.iterdir() if path.suffix in (".cpp", ".hpp", ".h"))


def build_library(spec: KernelSpec, sources: Sequence[Path], library: Path, *, coverage: bool = False) -> None:
    """Build `library` of the kernel's SystemVerilog, whose top module has the kernel's name. Raises BuildError."""
    ports = "".join(
        f"X({port.name.removeprefix('M_AXI_').lower()},{port.data_width})" for port in spec.ports if port.is_master
    )
    flags = (*LIBRARY_FLAGS, "-include", str(FOLDER / "messages.hpp"))
    macros = (f"-DHW_EMU_TOP=V{spec.name}", f'-DHW_EMU_HEADER="V{spec.name}.h"', f"-DHW_EMU_PORTS(X)={ports}")
    verilate(
        spec.name,
        sources,
        [FOLDER / "driver.cpp"],
        library,
        trace=True,
        coverage=coverage,
        compile_flags=(*flags, *macros),
    )


def pack(libraries: Sequence[Path], metadata_xml: bytes) -> bytes:
    content = io.BytesIO()
    files = {library.name: library.read_bytes() for library in libraries}
    files |= {METADATA: metadata_xml, SIMULATE: _SIMULATE_SCRIPT}
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = (0o755 if name == SIMULATE else 0o644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=6)
    return content.getvalue()


def unpack(bitstream: bytes, name: str) -> bytes:
    """One library. Raises KeyError if it is not in there, and zipfile.BadZipFile."""
    with zipfile.ZipFile(io.BytesIO(bitstream)) as archive:
        return archive.read(name)
