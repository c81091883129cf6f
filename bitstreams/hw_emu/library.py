"""Build libraries that run RTL kernels clock by clock, and the BITSTREAM section of a `hw_emu` container from them.

The section is a ZIP archive with a library NAME.so for each kernel. hw_emu.h defines its C interface. The archive also
holds a script at the place of Vivado's simulation, which XRT's own hw_emu starts, and the EMBEDDED_METADATA for it.
Every library can write waveforms, as that option makes it hardly slower (image_cu: less than 2 %).
"""

import io
import zipfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from headrace.bitstreams.kernel import KernelSpec
from headrace.bitstreams.verilate import compiled, link

FOLDER = Path(__file__).parent
DRIVER, MESSAGES = FOLDER / "driver.cpp", FOLDER / "messages.hpp"
# A process may load several libraries, each with a copy of Verilator's runtime. They must not share symbols.
LIBRARY_FLAGS = ("-fvisibility=hidden", "-fno-gnu-unique")
PRINTS = ("-include", str(MESSAGES))  # keeps the prints of a model
METADATA = "kernels.xml"
SIMULATE = "behav_waveform/xsim/simulate.sh"
_SIMULATE_SCRIPT = b"""#!/bin/sh
# Started by XRT's hw_emu, here; `headrace xrt-env` says where Headrace is.
exec "${HEADRACE:-headrace}" device ../..
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same libraries give the same bytes


def driver_sources() -> list[Path]:
    return sorted(path for path in FOLDER.iterdir() if path.suffix in (".cpp", ".hpp", ".h"))


def model_macros(top: str) -> tuple[str, str]:
    """Return the macros that tell C++ of the model of module `top`: its class and its header."""
    return f"HW_EMU_TOP=V{top}", f'HW_EMU_HEADER="V{top}.h"'


def build_library(spec: KernelSpec, sources: Sequence[Path], library: Path, *, trace: str = "vcd") -> None:
    """Build `library` from the SystemVerilog of a kernel, whose top module has the kernel's name.

    A run writes its trace in the format `trace`, which is one of those of `verilate`. Raises BuildError."""
    with kernel_objects(spec, sources, trace=trace) as objects:
        link(library, objects.values(), ["-shared"])


def kernel_objects(
    spec: KernelSpec,
    sources: Sequence[Path],
    more: Sequence[Path] = (),
    *,
    includes: Sequence[Path] = (),
    trace: str = "vcd",
    coverage: str | None = None,
    verilate_flags: Sequence[str] = (),
) -> AbstractContextManager[dict[Path, Path]]:
    """Compile a kernel's model, the driver and `more` C++ files. See `verilate.compiled`."""
    ports = "".join(
        f"X({port.name.removeprefix('M_AXI_').lower()},{port.data_width})" for port in spec.ports if port.is_master
    )
    return compiled(
        spec.name,
        sources,
        [DRIVER, *more],
        includes=includes,
        trace=trace,
        coverage=coverage,
        compile_flags=(*LIBRARY_FLAGS, *PRINTS),
        macros=(*model_macros(spec.name), f"HW_EMU_PORTS(X)={ports}"),
        verilate_flags=verilate_flags,
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
    """Return one library. Raises KeyError if the archive does not hold it, and zipfile.BadZipFile."""
    with zipfile.ZipFile(io.BytesIO(bitstream)) as archive:
        return archive.read(name)
