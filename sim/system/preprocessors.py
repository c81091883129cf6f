"""The preprocessors, by their names on a command line.

ideal                       no time at all
cpu:CORES[:COSTS]           cores of the host; COSTS is "measured" (the default), "paper-implied", or a library by the
                            label that `hardware.cpu.LIBRARY_COSTS` has, such as "librosa"
dpu:CUS[,CUS][:SETTING]...  image CUs, or CUs A and B for audio (as many of B without); SETTINGs are
                            "queue" (starts are queued), "p2p" (tensors go straight to the GPU)
nvjpg                       the JPEG engines of the GPU's instances
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.cpu import LIBRARY_COSTS, MEASURED, CpuCosts, cpu_preprocessor
from headrace.sim.hardware.gpu.mig import Gpu, Instance
from headrace.sim.hardware.inputs import Inputs
from headrace.sim.hardware.nvjpg import nvjpg_preprocessor
from headrace.sim.hardware.pcie import gpu_link
from headrace.sim.hardware.preba_cpu import PAPER_IMPLIED
from headrace.sim.preprocessing import Preprocessor
from headrace.sim.system.dpu_server import dpu_preprocessor
from headrace.sim.text_files import read_text

FORMS: Final = "ideal, cpu:32, cpu:32:librosa, dpu:4, dpu:4,2 (audio), dpu:4:queue:p2p, nvjpg"
COSTS: Final = (MEASURED, PAPER_IMPLIED, *LIBRARY_COSTS)


@dataclass(frozen=True, slots=True)
class Host:
    """The server that a preprocessor is part of.

    Attributes:
        inputs: The inputs.
        gpu: The GPU.
        instances: Its instances.
        taken: The cores of the CPU that do other work.
        costs: Sets of costs of the CPU. The first is the default, and the first of a label is taken.
    """

    inputs: Inputs
    gpu: Gpu
    instances: Sequence[Instance] = ()
    taken: int = 0
    costs: tuple[CpuCosts, ...] = COSTS


def parse(text: str, host: Host) -> Preprocessor:
    """Return the preprocessor that `text` names. Raises UsageError that says what to change."""
    name, *words = text.strip().split(":")
    makers: Mapping[str, Callable[[Sequence[str], Host], Preprocessor]] = {
        "ideal": _ideal,
        "cpu": _cpu,
        "dpu": _dpu,
        "nvjpg": _nvjpg,
    }
    if name not in makers:
        raise UsageError(f"preprocessing {text.strip()!r}: give one such as {FORMS}")
    try:
        return makers[name](words, host)
    except UsageError as error:
        raise UsageError(f"preprocessing {text.strip()!r}: {error}") from error


def read_costs(path: Path) -> CpuCosts:
    """Return the costs that `headrace profile --cpu-preprocessing` wrote. Raises UsageError for any other file."""
    text = read_text(str(path), path)
    try:
        return CpuCosts.from_json(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _ideal(words: Sequence[str], host: Host) -> Preprocessor:
    if words:
        raise UsageError("ideal takes no settings")
    return Preprocessor("ideal", ())


def _cpu(words: Sequence[str], host: Host) -> Preprocessor:
    if not 1 <= len(words) <= 2:
        raise UsageError("give a number of cores and, if need be, a label of costs, such as cpu:32:librosa")
    costs = {each.label: each for each in reversed(host.costs)}
    if host.inputs.labels:  # where only the seconds are known, cores slow each other down as by the default
        costs = {label: costs.get(label, replace(host.costs[0], label=label)) for label in host.inputs.labels}
    label = words[1] if len(words) == 2 else host.costs[0].label
    if label not in costs:
        raise UsageError(f"there are no costs {label!r}; choose from {', '.join(reversed(costs))}")
    return cpu_preprocessor(
        host.inputs,
        _count(words[0], "cores"),
        costs[label],
        taken=host.taken,
        gpu_link=gpu_link(host.gpu.name),
    )


def _dpu(words: Sequence[str], host: Host) -> Preprocessor:
    if not words:
        raise UsageError("give a number of CUs, such as dpu:4")
    counts = [_count(part, "CUs") for part in words[0].split(",")]
    if len(counts) > 2:
        raise UsageError("there are two kinds of CUs for audio and one for images: give one number or two")
    settings = words[1:]
    unknown = [word for word in settings if word not in ("queue", "p2p")]
    if unknown or len(set(settings)) < len(settings):
        raise UsageError("settings after the CUs are queue and p2p, each at most once")
    return dpu_preprocessor(
        host.inputs,
        counts[0],
        counts[1] if len(counts) > 1 else None,
        start="queue" if "queue" in settings else "kernel",
        to_gpu="p2p" if "p2p" in settings else "host",
        gpu_link=gpu_link(host.gpu.name),
    )


def _nvjpg(words: Sequence[str], host: Host) -> Preprocessor:
    if words:
        raise UsageError("nvjpg takes no settings: its engines are those of the partition")
    return nvjpg_preprocessor(host.inputs, host.gpu, host.instances)


def _count(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7 and int(text) >= 1):
        raise UsageError(f"{text!r} is no number of {what}; give 1 or more")
    return int(text)
