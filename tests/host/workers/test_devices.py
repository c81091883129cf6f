"""The devices on which workers run."""

import os
import sys
from types import SimpleNamespace

import pytest

from headrace.batching import UsageError
from headrace.host.workers.devices import gpu_devices, worker_devices


def test_cpu_workers_share_the_cores_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [device.threads for device in worker_devices(3)] == [2, 2, 2]  # of 7: one core is the runtime's
    assert len(worker_devices()) == 7 and worker_devices(20)[0].threads == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert [device.threads for device in worker_devices()] == [1]


def fake_nvml(gpus: list[list[str | None] | None]) -> SimpleNamespace:
    """Return nvidia-ml-py as it answers for GPUs with these MIG devices (None: a gap; no list: a GPU without MIG)."""

    class Error(Exception):
        pass

    def mode(gpu):
        if gpus[gpu] is None:
            raise Error
        return bool(gpus[gpu]), 0

    def mig(gpu, index):
        if gpus[gpu][index] is None:
            raise Error
        return gpus[gpu][index]

    return SimpleNamespace(
        NVMLError=Error,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMigMode=mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda gpu: len(gpus[gpu]),
        nvmlDeviceGetMigDeviceHandleByIndex=mig,
        nvmlDeviceGetUUID=lambda handle: handle if isinstance(handle, str) else f"GPU-{handle}",
    )


def test_there_is_one_worker_for_each_mig_device_or_gpu_without_any():
    nvml = fake_nvml([["MIG-a", None, "MIG-b"], None, []])
    devices = worker_devices(nvml=nvml)
    assert [device.name for device in devices] == ["MIG-a", "MIG-b", "GPU-1", "GPU-2"]
    assert all(device.env == {"CUDA_VISIBLE_DEVICES": device.name} and device.device == "cuda" for device in devices)
    with pytest.raises(UsageError, match="has 4 GPU slices"):
        worker_devices(5, nvml=nvml)


@pytest.mark.parametrize(
    ("visible", "left"),
    [
        ("MIG-b", ["MIG-b"]),
        ("MIG-b,GPU-2", ["MIG-b", "GPU-2"]),
        ("0", ["MIG-a", "MIG-b"]),
        ("1, 2", ["GPU-1", "GPU-2"]),
        ("GPU-0", ["MIG-a", "MIG-b"]),
        ("-1", []),
        ("", []),
    ],
)
def test_what_is_hidden_from_this_process_gets_no_worker(visible, left, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml = fake_nvml([["MIG-a", None, "MIG-b"], None, []])
    assert [device.name for device in gpu_devices(nvml)] == left


def test_without_a_driver_there_are_no_gpu_devices():
    nvml = fake_nvml([])

    def no_driver():
        raise nvml.NVMLError

    nvml.nvmlInit = no_driver
    assert gpu_devices(nvml) == []


LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-00)
  MIG 1g.5gb      Device  0: (UUID: MIG-a)
  MIG 1g.5gb      Device  1: (UUID: MIG-b)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-11)
"""


@pytest.mark.parametrize(
    ("visible", "names"), [(None, ["MIG-a", "MIG-b", "GPU-11"]), ("1", ["GPU-11"]), ("MIG-b", ["MIG-b"]), ("", [])]
)
def test_without_the_library_gpus_come_from_nvidia_smi(visible, names, monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n[ \"$1\" = -L ] && cat <<'END'\n{LISTED}END\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [device.name for device in gpu_devices()] == names
    assert all(device.device == "cuda" for device in gpu_devices())


@pytest.mark.parametrize("answer", ["exit 9", "echo NVIDIA-SMI has failed"])
def test_an_nvidia_smi_without_a_driver_means_no_gpu(answer, monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert gpu_devices() == []
