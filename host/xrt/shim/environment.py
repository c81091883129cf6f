"""The folder that programs need to find Headrace's device behind the real XRT: what Vitis' installation and
`emconfigutil` give them, for one container."""

import ctypes.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from headrace.batching.errors import HeadraceError
from headrace.bitstreams.xclbin import Mode, Xclbin

EMULATED = (Mode.SW_EMU, Mode.HW_EMU)
LIBRARIES = ("core", "coreutil", "swemu", "hwemu", "noop")  # libxrt_NAME.so.2
OLDEST_AUDIO = (2, 14)  # before it the shims lose what realloc gives
MODEL = Path("data/emulation/unified/cpu_em/generic_pcie/model/genericpciemodel")


class XrtMissing(HeadraceError):
    """The folder cannot be written; the message says what to change."""


def find_xrt() -> Path:
    """The folder with libxrt_core.so.2: that of XILINX_XRT, of the vendor's package or of the distribution's.

    Raises XrtMissing if there is none."""
    places = [Path(root) / "lib" for root in (os.environ.get("XILINX_XRT"), "/opt/xilinx/xrt") if root]
    if (name := ctypes.util.find_library("xrt_core")) is not None:
        done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True)
        found = re.search(rf"{re.escape(name)} .*=> (\S+)", done.stdout)
        places += [Path(found[1]).parent] if found else []
    for place in places:
        if (place / "libxrt_core.so.2").exists():
            return place
    raise XrtMissing(
        "no XRT is installed: there is no libxrt_core.so.2 in $XILINX_XRT/lib, /opt/xilinx/xrt/lib or the linker's "
        "folders; on Debian `apt-get install libxrt-dev`"
    )


def xrt_version(libraries: Path) -> tuple[int, int]:
    """Such as (2, 16). Raises XrtMissing."""
    name = (libraries / "libxrt_core.so.2").resolve().name
    version = re.search(r"\.so\.(\d+)\.(\d+)", name)
    if version is None:
        raise XrtMissing(f"{libraries}: {name} does not say which XRT it is of")
    return int(version[1]), int(version[2])


def write_environment(container: Xclbin, folder: Path, *, libraries: Path | None = None) -> Path:
    """Write `folder` and return its setup.sh, to be sourced. The folder may hold an environment from before.

    Raises XrtMissing, OSError."""
    if container.mode not in EMULATED:
        raise XrtMissing(f"the container is for {container.mode.name}, and XRT's emulation runs SW_EMU and HW_EMU")
    setup = folder / "setup.sh"
    if folder.exists() and any(folder.iterdir()) and not setup.exists():
        raise XrtMissing(f"{folder} holds other things; name a folder that is new or was written by this command")
    libraries = libraries or find_xrt()
    version = xrt_version(libraries)
    (folder / "xrt" / "lib").mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        library = libraries / f"libxrt_{name}.so.2"
        for known_as in (library.name, library.stem):  # PYNQ asks for the latter
            link = folder / "xrt" / "lib" / known_as
            link.unlink(missing_ok=True)
            if library.exists():
                link.symlink_to(library)
    _write_model(folder / "tools" / MODEL)
    (folder / "emconfig.json").write_text(json.dumps(emconfig(container), indent=1) + "\n")
    variables = {
        "XILINX_XRT": str(folder.resolve() / "xrt"),
        "XILINX_VITIS": str(folder.resolve() / "tools"),
        "XCL_EMULATION_MODE": container.mode.name.lower(),
        "EMCONFIG_PATH": str(folder.resolve()),
        "SDACCEL_EM_RUN_DIR": str(folder.resolve() / "run"),
        "HEADRACE": str(Path(sys.executable).parent / "headrace"),
    }
    (folder / "run").mkdir(exist_ok=True)
    opencl = libraries / "libxilinxopencl.so.2"
    if opencl.exists():  # the distribution's package does not tell OpenCL's loader of it
        vendors = folder.resolve() / "vendors"
        vendors.mkdir(exist_ok=True)
        (vendors / "xilinx.icd").write_text(f"{opencl}\n")
        variables["OCL_ICD_VENDORS"] = str(vendors)
    if version < OLDEST_AUDIO:
        variables["LD_PRELOAD"] = str(_build_interposer(folder.resolve()))
    lines = ["# Source this: programs started from here find the emulated card through XRT's own libraries."]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append('export USER="${USER:-$(id -un)}"')  # the shims name their sockets' folder by it
    setup.write_text("\n".join(lines) + "\n")
    return setup


def emconfig(container: Xclbin) -> dict[str, object]:
    """What `emconfigutil` writes: a card with the container's platform and banks."""
    banks = [{"Size": _size(bank.size_kb)} for bank in container.memories]
    device = {
        "DeviceName": container.platform,
        "DdrSize": _size(sum(bank.size_kb for bank in container.memories)),
        "DdrBanks": banks,
        "DataWidth": "64",
    }
    return {
        "Version": {"FileVersion": "2.0", "ToolVersion": "2022.1"},
        "Platform": {"Name": container.platform, "Boards": [{"NumBoards": 1, "Devices": [device]}]},
    }


def _size(kib: int) -> str:
    for unit, factor in (("G", 1 << 20), ("M", 1 << 10)):
        if kib % factor == 0:
            return f"{kib // factor}{unit}"
    return f"{kib}K"


def _write_model(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        '#!/bin/sh\n# Where XRT\'s sw_emu shim looks for the device process.\nexec "$HEADRACE" device "$@"\n'
    )
    path.chmod(0o755)


def _build_interposer(folder: Path) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        raise XrtMissing("XRT before 2.14 needs a work-around that gcc compiles; on Debian `apt-get install gcc`")
    library = folder / "keep_buffers.so"
    source = Path(__file__).with_name("keep_buffers.c")
    done = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise XrtMissing(f"{source.name} does not compile: {done.stderr.strip()}")
    return library
