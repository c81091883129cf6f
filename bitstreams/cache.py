"""Containers for the DPU: built on demand, and kept in the user's cache folder."""

from pathlib import Path

from headrace.batching.errors import UsageError
from headrace.bitstreams.build import build_hw_emu, build_sw_emu
from headrace.bitstreams.cache_folder import cache_folder
from headrace.bitstreams.configurations import FULL
from headrace.bitstreams.platforms import DEFAULT
from headrace.bitstreams.xclbin import Xclbin

TARGETS = {"sw_emu": build_sw_emu, "hw_emu": build_hw_emu}


def build(
    path: Path | str | None = None,
    *,
    target: str = "sw_emu",
    image_cus: int = 4,
    mel_cus: int = 1,
    norm_cus: int = 1,
    platform: str = DEFAULT,
    configuration: str = FULL,
) -> Path:
    """Build a container for the DPU, unless its sources have not changed since it was built.

    Args:
        path: The .xclbin file to write. Without it, the file lies in the cache folder.
        target: "sw_emu" compiles the C++ of the units; "hw_emu" compiles their RTL, which is simulated by the clock.
        image_cus, mel_cus, norm_cus: How many compute units of each kind, 0 to 16.
        platform: The card, "u55c" for instance.
        configuration: The configuration of the image units, "full" or "small".

    Returns the path. The first build takes about a minute. Raises UsageError."""
    if path is None:
        chosen = "" if configuration == FULL else f"-{configuration}"
        path = cache_folder() / f"{target}-{image_cus}image-{mel_cus}mel-{norm_cus}norm{chosen}.xclbin"
    build_container(Path(path), target, image_cus, mel_cus, norm_cus, platform, configuration)
    return Path(path)


def build_container(
    path: Path,
    target: str,
    image_cus: int,
    mel_cus: int,
    norm_cus: int,
    platform: str = DEFAULT,
    configuration: str = FULL,
) -> Xclbin:
    """Build a container at `path`, as `build` does, and return what is in it. Raises UsageError."""
    if target not in TARGETS:
        raise UsageError(f"target {target!r}: choose from {', '.join(TARGETS)}")
    for name, count in (("image_cus", image_cus), ("mel_cus", mel_cus), ("norm_cus", norm_cus)):
        if not 0 <= count <= 16:
            raise UsageError(f"{name} {count}: give 0 to 16")
    return TARGETS[target](path, image_cus, mel_cus, norm_cus, platform, configuration)
