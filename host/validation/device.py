"""The device that is measured: the first GPU or MIG slice that this process sees, else the cores of the CPU."""

import os
import subprocess
from typing import Final

from headrace.host.workers.devices import worker_devices
from headrace.host.workers.profiling.batches import machine

ANSWER_S: Final = 10.0  # longest wait for nvidia-smi


def worker_name() -> str:
    """Return the name of the device on which a single worker runs."""
    (device,) = worker_devices(1)
    if device.device == "cuda":
        return product_name(device.name)
    return f"{device.threads} {'core' if device.threads == 1 else 'cores'} of {machine()['cpu']}"


def product_name(uuid: str) -> str:
    """Return the product name of a GPU; for a MIG device, or where nvidia-smi does not know the GPU, the UUID."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", f"--id={uuid}"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return uuid
    return found.splitlines()[0] if found else uuid


def hide_gpus() -> None:
    """Let this process and all that it starts see no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
