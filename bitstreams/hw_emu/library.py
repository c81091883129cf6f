"""RTL kernels to libraries that run them clock by clock, and these to the BITSTREAM section of a `hw_emu` container.

The section is a ZIP archive with a library NAME.so for each kernel; its C interface is in hw_emu.h. Every library can
write waveforms: being able to costs no time that could be measured (image_cu: less than 2 %).
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
        spec.name, sources, [FOLDER / "driver.cpp"], library,
        trace=True, coverage=coverage, compile_flags=(*flags, *macros),
    )  # fmt: skip


def pack(libraries: Sequence[Path]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for library in libraries:
            entry = zipfile.ZipInfo(library.name, _EPOCH)
            archive.writestr(entry, library.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=6)
    return content.getvalue()


def unpack(bitstream: bytes, name: str) -> bytes:
    """One library. Raises KeyError if it is not in there, and zipfile.BadZipFile."""
    with zipfile.ZipFile(io.BytesIO(bitstream)) as archive:
        return archive.read(name)
