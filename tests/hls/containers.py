"""Containers that several tests share, kept in build/tests/ by the contents of what goes into them and of what builds
them."""

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

import cu_rtlsim
from builds import built

from headrace.bitstreams import build
from headrace.bitstreams.kernel import KernelSpec
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.xclbin import Mode

ROOT = Path(__file__).resolve().parents[2]
VADD = ROOT / "tests" / "bitstreams" / "vadd"
VADD_SOURCES = {
    Mode.SW_EMU: [VADD / "vadd.cpp"],
    Mode.HW_EMU: [hls_folder() / "rtl" / "stream_fifo.sv", VADD / "vadd.sv"],
}
TARGETS = ("sw_emu", "hw_emu")


def vadd(mode: Mode) -> Path:
    """Two compute units of a small kernel, see tests/bitstreams/vadd."""
    sources = VADD_SOURCES[mode]
    kinds = (".py", ".cpp", ".hpp", ".h")
    builders = sorted(path for path in (ROOT / "bitstreams").rglob("*") if path.suffix in kinds)
    named = ((path.name, path) for path in (*builders, VADD / "kernel.xml", *sources))

    def make(path: Path) -> None:
        build.build_kernels(path, sources, [], [(VADD / "kernel.xml").read_bytes()], {"vadd": 2}, mode)

    # A container names the release that built it, and an installation of another one would build it again.
    return built(f"vadd_{mode.name.lower()}", _digest(named, version("headrace")), ".xclbin", make)


def image(target: str) -> Path:
    """One compute unit for images, as C++ (`sw_emu`) or RTL (`hw_emu`)."""
    files = sorted(file for folder in ("bitstreams", "hls") for file in (ROOT / folder).rglob("*.*"))
    files = [file for file in files if file.is_file() and file.parent.name != "__pycache__"]
    named = ((str(file.relative_to(ROOT)), file) for file in files)

    def make(path: Path) -> None:
        if target == "sw_emu":
            build.build_sw_emu(path, image_cus=1)
        else:
            hw_emu(path, image_cus=1)

    return built(f"image_{target}", _digest(named), ".xclbin", make)


def hw_emu(path: Path, **counts: int) -> None:
    """Write a container of RTL with `counts` (`image_cus`, `mel_cus`, `norm_cus`) to `path`, as `build_hw_emu` does.

    It takes seconds, because it holds the models that the tests of the compute units have compiled already."""
    with patch.object(build, "build_library", _shared_library):
        build.build_hw_emu(path, **counts)


def _shared_library(spec: KernelSpec, sources: Sequence[Path], library: Path, *, trace: str) -> None:
    """The model that the tests of the compute unit run, instead of another one of the same RTL and the same driver."""
    assert {*sources} >= {*cu_rtlsim.sources(spec.name)} and trace == "vcd"
    shutil.copyfile(cu_rtlsim.model_file(spec.name), library)


def _digest(named: Iterable[tuple[str, Path]], release: str = "") -> str:
    digest = hashlib.sha256(release.encode())
    for name, path in named:
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
