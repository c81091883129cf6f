"""Copies between the host's memory, pageable and pinned, and the device."""

from collections.abc import Iterator
from functools import partial

import torch

from headrace.host.validation.parts.torch_runs import seconds_of
from headrace.host.validation.plan import Check, Row
from headrace.sim.hardware.gpu.slice import PARVAGPU

NO_GPU = "pinned memory needs a GPU"


def rows(check: Check) -> Iterator[Row]:
    device = torch.device(check.device)
    assumed = PARVAGPU.copy_bytes_s / 1e9  # pageable memory to the GPU
    for size in check.sizes.copies:
        if check.left_s() <= 0:
            return
        case = f"{size / 1e6:.2f} MB"
        there = torch.empty(size, dtype=torch.uint8, device=device)
        for kind in ("pageable", "pinned"):
            details = {"bytes": size, "memory": kind}
            if kind == "pinned" and device.type != "cuda":
                yield Row(case, "pinned to the device", "GB/s", assumed, None, NO_GPU, details)
                continue
            here = torch.zeros(size, dtype=torch.uint8, pin_memory=kind == "pinned")
            for way, target, source in ((f"{kind} to the device", there, here), (f"the device to {kind}", here, there)):
                took = seconds_of(
                    partial(target.copy_, source, non_blocking=True),
                    device,
                    check.sizes.point_s,
                )
                expected = assumed if target is there else None
                yield Row(case, way, "GB/s", expected, size / took / 1e9, f"{took * 1e6:.1f} us", details)
