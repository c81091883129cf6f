"""Writer of the folder with which programs find Headrace's device through the real XRT.

The folder stands in for Vitis' installation and for the output of `emconfigutil`, for one container."""

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
OLDEST_WITH_REALLOC = (2, 14)  # the shims of older releases ignore the block that realloc returns
MODEL = Path("data/emulation/unified/cpu_em/generic_pcie/model/genericpciemodel")


class XrtMissing(HeadraceError):
    """The folder cannot be written; the message says what to change."""


def find_xrt() -> Path:
    """Return the folder with libxrt_core.so.2.

    The search order is XILINX_XRT, the vendor's package, then the distribution's package. Raises XrtMissing if there is
    none."""
    places = [Path(root) / "lib" for root in (os.environ.get("XILINX_XRT"), "/opt/xilinx/xrt") if root]
    if (name := ctypes.util.find_library("xrt_core")) is not None:
        done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True)
        listed = re.search(rf"{re.escape(name)} .*=> (\S+)", done.stdout)
        places += [Path(listed[1]).parent] if listed else []
    for place in places:
        if (place / "libxrt_core.so.2").exists():
            return place
    raise XrtMissing(
        "no XRT is installed: there is no libxrt_core.so.2 in $XILINX_XRT/lib, /opt/xilinx/xrt/lib or the linker's "
        "folders; install XRT, on Debian with `apt-get install libxrt-dev`"
    )


def xrt_version(libraries: Path) -> tuple[int, int]:
    """Return the major and minor version, such as (2, 16). Raises XrtMissing."""
    name = (libraries / "libxrt_core.so.2").resolve().name
    version = re.search(r"\.so\.(\d+)\.(\d+)", name)
    if version is None:
        raise XrtMissing(f"{libraries}: the file name {name} has no XRT version; give a folder with XRT's libraries")
    return int(version[1]), int(version[2])


def write_environment(container: Xclbin, folder: Path, *, libraries: Path | None = None) -> Path:
    """Write `folder` and return the path of its setup.sh, which a shell then sources. The folder may hold an older
    environment.

    Raises XrtMissing, OSError."""
    if container.mode not in EMULATED:
        raise XrtMissing(
            f"the container is for {container.mode.name}; give one for SW_EMU or HW_EMU, which XRT's emulation runs"
        )
    setup = folder / "setup.sh"
    if folder.exists() and any(folder.iterdir()) and not setup.exists():
        raise XrtMissing(f"{folder} holds other files; give a new folder, or one that this command wrote")
    libraries = libraries or find_xrt()
    version = xrt_version(libraries)
    (folder / "xrt" / "lib").mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        library = libraries / f"libxrt_{name}.so.2"
        for link_name in (library.name, library.stem):  # PYNQ loads the name without the version
            link = folder / "xrt" / "lib" / link_name
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
    if opencl.exists():  # the distribution's package does not register it with OpenCL's loader
        vendors = folder.resolve() / "vendors"
        vendors.mkdir(exist_ok=True)
        (vendors / "xilinx.icd").write_text(f"{opencl}\n")
        variables["OCL_ICD_VENDORS"] = str(vendors)
    if version < OLDEST_WITH_REALLOC:
        variables["LD_PRELOAD"] = str(_build_interposer(folder.resolve()))
    lines = ["# Source this file. Programs that this shell starts then find the emulated card through XRT's libraries."]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append('export USER="${USER:-$(id -un)}"')  # the shims name the folder of their sockets after the user
    setup.write_text("\n".join(lines) + "\n")
    return setup


def emconfig(container: Xclbin) -> dict[str, object]:
    """Return the content of the file that `emconfigutil` writes: a card with the container's platform and memory
    banks."""
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
        raise XrtMissing("XRT before 2.14 needs a work-around that gcc compiles; on Debian use `apt-get install gcc`")
    library = folder / "keep_buffers.so"
    source = Path(__file__).with_name("keep_buffers.c")
    done = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise XrtMissing(f"{source.name} does not compile: {done.stderr.strip()}")
    return library
