"""The device that is measured: the first GPU or MIG slice that this process sees, else the cores of the CPU."""

import os
import shutil
import subprocess
from typing import Final

from headrace.host.workers.devices import worker_devices
from headrace.host.workers.profiling.batches import machine

ANSWER_S: Final = 10.0  # longest wait for nvidia-smi


def worker_name() -> str:
    """Return the name of the device on which a single worker runs."""
    (device,) = worker_devices(1)
    if device.device == "cuda":
        return gpu_name() or device.name
    return f"{device.threads} {'core' if device.threads == 1 else 'cores'} of {machine()['cpu']}"


def gpu_name() -> str | None:
    """Return the product name of the first visible GPU; None if nvidia-smi finds none."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    names = [line.strip() for line in found.splitlines() if line.strip()]
    return names[0] if names else None


def hide_gpus() -> None:
    """Let this process and all that it starts see no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
