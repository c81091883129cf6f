"""Find the hardware sources and the arbitrary-precision headers on this machine."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from headrace.bitstreams.errors import MissingExtra


@cache
def _package_folder(name: str) -> Path:
    spec = find_spec(name)  # finds the files without importing the package
    for location in (spec.submodule_search_locations or []) if spec else []:
        if Path(location).is_dir():
            return Path(location)
    raise FileNotFoundError(f"package {name} is not installed")


def hls_folder() -> Path:
    """Return the installed `hls/` folder: one folder per unit, which may have more inside, and include/."""
    return _package_folder("headrace.hls")


def place(path: Path) -> Path:
    """Return where a source lies below `hls/`, or its folder and name if it lies elsewhere."""
    hls, whole = hls_folder().resolve(), path.resolve()
    return whole.relative_to(hls) if whole.is_relative_to(hls) else Path(path.parent.name) / path.name


def include_folders(configuration: Path | None = None) -> list[Path]:
    """Return the include path of a g++ build, in order: our sources, our `hls_stream.h` shim, and Xilinx's ap_types
    from hls4ml.

    `configuration` is the folder of another config.hpp, which then comes first. Raises MissingExtra."""
    if find_spec("hls4ml") is None:
        raise MissingExtra("the ap_types headers of hls4ml", "emulation")
    hls = hls_folder()
    ours = [hls / "include", hls / "include" / "csim", hls]
    vendor = _package_folder("hls4ml") / "templates/vivado/ap_types"
    return [*([configuration] if configuration else []), *ours, vendor]
