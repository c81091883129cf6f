"""Find the configurations of the image units: named choices of the widest image and of what the units take.

hls/rtl/config_pkg.sv is that of `full`. Each other one has a folder hls/configurations/NAME/ with a config_pkg.sv for
the RTL and headrace/config.hpp for the C++. Both have the same constants. The width of a port may be such a constant:
kernel.xml has that of `full`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.batching.errors import UsageError
from headrace.bitstreams.sources import hls_folder

FULL: Final = "full"
CONFIGURATIONS: Final = "configurations"
PACKAGE: Final = "config_pkg.sv"
_CONSTANT: Final = re.compile(r"^\s*localparam\s.*?\b(\w+)\s*=\s*(?:\d*'[bd])?(\d+);", re.MULTILINE)

_WIDTH: Final = re.compile(r"<\?headrace-width (\w+) (\w+)\?>")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration.

    Args:
        name: Its name.
        constants: The constants of its config_pkg.sv by their names in lower case, `max_width` for instance. Those
            that switch something on are 0 or 1.
    """

    name: str
    constants: Mapping[str, int]


def configuration_names(root: Path | None = None) -> list[str]:
    """Return the names of the configurations, `full` first. `root` is a copy of hls/."""
    folders = (root or hls_folder()) / CONFIGURATIONS
    return [FULL, *sorted(path.parent.name for path in folders.glob(f"*/{PACKAGE}"))]


def package_of(name: str, root: Path | None = None) -> Path:
    """Return the config_pkg.sv of a configuration. Raises UsageError."""
    folder = _folder(name, root)
    return (root or hls_folder()) / "rtl" / PACKAGE if folder is None else folder / PACKAGE


def headers_of(name: str) -> Path | None:
    """Return the folder with headrace/config.hpp of a configuration, or None for `full`. Raises UsageError."""
    return _folder(name, None)


def configuration(name: str) -> Configuration:
    """Return a configuration as its config_pkg.sv has it. Raises UsageError."""
    found = _CONSTANT.findall(package_of(name).read_text())
    return Configuration(name, {_snake(constant): int(value) for constant, value in found})


def kernel_xml(kernel: str, name: str = FULL) -> bytes:
    """Return the kernel.xml of one of our kernels, with the widths of its ports in a configuration.

    Raises UsageError."""
    text = (hls_folder() / kernel / "kernel.xml").read_text()
    constants = configuration(name).constants
    for port, constant in _WIDTH.findall(text):
        text = re.sub(rf'(<port name="{port}"[^>]* dataWidth=")\d+', rf"\g<1>{8 * constants[constant]}", text)
    return text.encode()


def _folder(name: str, root: Path | None) -> Path | None:
    names = configuration_names(root)
    if name not in names:
        raise UsageError(f"configuration {name!r}: choose from {', '.join(names)}")
    return None if name == FULL else (root or hls_folder()) / CONFIGURATIONS / name


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
