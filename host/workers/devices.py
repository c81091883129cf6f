"""Choose where workers run: one on each MIG device, one on each GPU, or each on a share of this machine's cores."""

import contextlib
import os
import re
import subprocess
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from headrace.batching import UsageError

LIST_S: Final = 10.0  # longest wait for nvidia-smi


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """The place of a worker: a torch device as the worker sees it, and the environment that shows only that device."""

    name: str
    device: str = "cpu"
    threads: int = 1
    env: dict[str, str] = field(default_factory=dict)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def worker_devices(count: int | None = None, nvml: ModuleType | None = None) -> list[WorkerDevice]:
    """Return one place for each MIG device, else for each GPU, else `count` places on the CPU.

    CPU workers share all cores but one, which the runtime needs. The threads of an operator wait for each other, so one
    thread that shares its core with a busy process delays them all.

    Args:
        count: Number of workers. None means all devices, or one worker for each core.
        nvml: The module of nvidia-ml-py, imported if None (`gpu_devices`).

    Raises:
        UsageError: There are fewer devices than `count`.
    """
    gpus = gpu_devices(nvml)
    if gpus:
        if count is not None and count > len(gpus):
            raise UsageError(f"{count} workers asked for, but this machine has {len(gpus)} GPU slices")
        return gpus[:count]
    cores = max(1, usable_cores() - 1)
    count = cores if count is None else count
    return [WorkerDevice(f"cpu {number}", threads=max(1, cores // count)) for number in range(count)]


def parsed_workers(text: str | None) -> tuple[int | None, int]:
    """Parse --workers. Return the number of worker processes (None: one for each device) and of simulated NPUs."""
    kind, colon, count = (text or "").partition(":")
    number = count if colon else kind
    if text is None:
        return None, 0
    if (colon and kind != "npu") or not number.isdecimal() or not 1 <= int(number) <= 64:
        raise UsageError(f"--workers {text!r}: give a number of 1 to 64, or npu:N for N simulated NPUs")
    return (None, int(number)) if colon else (int(number), 0)


def gpu_devices(nvml: ModuleType | None = None) -> list[WorkerDevice]:
    """Return MIG devices by UUID, and whole GPUs without MIG, as far as `CUDA_VISIBLE_DEVICES` shows them to this
    process.

    Ray sets that variable. The devices come from nvidia-ml-py, or without it from `nvidia-smi -L`, which the driver
    brings. The list is empty without a driver."""
    if nvml is None:
        try:
            import pynvml as nvml
        except ImportError:
            listed = _by_command()
        else:
            listed = _by_library(nvml)
    else:
        listed = _by_library(nvml)
    return [
        WorkerDevice(uuid, "cuda", 1, {"CUDA_VISIBLE_DEVICES": uuid})
        for number, (gpu, instances) in enumerate(listed)
        for uuid in instances or [gpu]
        if _is_visible(uuid, str(number), gpu)
    ]


def _by_library(nvml: ModuleType) -> list[tuple[str, list[str]]]:
    """Return the UUID of each GPU, in order, with the UUIDs of its MIG devices."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [(_text(nvml.nvmlDeviceGetUUID(gpu)), _mig_uuids(nvml, gpu)) for gpu in gpus]
    finally:
        nvml.nvmlShutdown()


def _by_command() -> list[tuple[str, list[str]]]:
    """Return the same from the lines of `nvidia-smi -L`, in which the MIG devices of a GPU follow it."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=LIST_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    found: list[tuple[str, list[str]]] = []
    for line in done.stdout.splitlines():
        if (match := re.search(r"UUID: ((GPU|MIG)-[^)]+)\)", line)) is None:
            continue
        if match[2] == "GPU":
            found.append((match[1], []))
        elif found:
            found[-1][1].append(match[1])
    return found


def _is_visible(uuid: str, index: str, gpu: str) -> bool:
    """Return whether a device of this GPU is visible.

    The variable may name the device or its GPU, by number or by the beginning of a UUID."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return True
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return index in names or uuid.startswith(tuple(names)) or gpu.startswith(tuple(names))


def _mig_uuids(nvml: ModuleType, gpu: Any) -> list[str]:
    try:
        enabled, _ = nvml.nvmlDeviceGetMigMode(gpu)
    except nvml.NVMLError:  # a GPU without MIG
        return []
    uuids = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if enabled else 0):
        with contextlib.suppress(nvml.NVMLError):  # instance numbers have gaps
            uuids.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))))
    return uuids


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
