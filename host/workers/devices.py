"""Choose where workers run: one on each MIG device, one on each GPU, or each on a share of this machine's cores."""

import contextlib
import os
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from headrace.batching import UsageError


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
        nvml: The module of nvidia-ml-py, imported if None.

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

    Ray sets that variable. The list is empty without nvidia-ml-py or without a driver."""
    if nvml is None:
        try:
            import pynvml as nvml
        except ImportError:
            return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    devices = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            uuids = _mig_uuids(nvml, gpu) or [_text(nvml.nvmlDeviceGetUUID(gpu))]
            whole = (str(index), _text(nvml.nvmlDeviceGetUUID(gpu)))
            uuids = [uuid for uuid in uuids if _is_visible(uuid, *whole)]
            devices += [WorkerDevice(uuid, "cuda", 1, {"CUDA_VISIBLE_DEVICES": uuid}) for uuid in uuids]
    finally:
        nvml.nvmlShutdown()
    return devices


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
