#!/usr/bin/env python3
"""Single starts of the image CU beside its queue, Verilated, with what a launch costs modelled.

    .venv/bin/python scripts/bench_queue.py [--photos FOLDER] [--count 24] [--latency 120]
                                            [--launch-us 0 50 100] [--json FILE]

Photos as bench_image_cu.py cuts and encodes them, 500x375 at 4:2:0, quality 75 and 90, to 256 / 224 in float32: each
by a start of its own, back to back, and all from a ring by one start. Clocks of a start are those from the launch to
the next one: the launch itself, register accesses, the run. XRT takes 50 to 100 us for a launch on a U55C (XRT issue
8687), which the emulation models as so many clocks at 300 MHz before the registers are written. In the queue all jobs
are there before the start; what the host does beside it, and PCIe, is in neither. The result is a function of the files
alone. Images/s stand at both clocks of bench_image_cu.py, clocks and gain at 300 MHz. A table goes to stdout.
"""

import argparse
import ctypes
import itertools
import json
import struct
import tempfile
from pathlib import Path

import cv2
import numpy as np
from bench_image_cu import BANK, CENTRED, CLOCKS_MHZ, cut, encode

from headrace.bitstreams.hw_emu.library import build_library
from headrace.bitstreams.kernel import parse_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import rtl_sources
from headrace.host.demo.inputs.images import bundled_images
from headrace.host.dpu.specs import IMAGE_FORMATS, ImageSpec, ImageStage
from headrace.host.dpu.units.image_cu import table_words
from headrace.host.dpu.units.status import Status
from headrace.host.workers.profiling.batches import machine
from headrace.host.xrt.engine import MemoryRange
from headrace.host.xrt.hw_emu import CLOCK_MHZ, KernelModel, MemoryModel, register_writes

SPEC = ImageSpec()
TENSOR = int(np.prod(SPEC.tensor_shape)) * 4
QUALITIES = (75, 90)


class Cu:
    """The Verilated CU with all files, tensors, jobs and records in its memory."""

    def __init__(self, library: ctypes.CDLL, files: list[bytes], memory: MemoryModel) -> None:
        (self._spec,) = parse_kernels((hls_folder() / "image_cu" / "kernel.xml").read_bytes())
        self._model, self._memory, self._files = KernelModel(library, seed=1), memory, files
        self._entries = 1 << len(files).bit_length()  # one more for the stop
        sizes = [-(-len(data) // 16) * 16 for data in files]
        self._at = [0, *itertools.accumulate(sizes)][:-1]
        jpeg = np.zeros(sum(sizes), np.uint8)
        for at, data in zip(self._at, files, strict=True):
            jpeg[at : at + len(data)] = np.frombuffer(data, np.uint8)
        self._buffers = {
            "jpeg": jpeg,
            "tensor": np.zeros(TENSOR * len(files), np.uint8),
            "tables": table_words(SPEC),
            "result": np.zeros((self._entries + 1) * 32, np.uint8),
            "ring": np.zeros(self._entries * 64, np.uint8),
        }
        self._base = {name: (number + 1) * BANK for number, name in enumerate(self._buffers)}

    def single(self, number: int, launch: int) -> int:
        """Clocks of a photo's start, to the next one."""
        at, size = self._at[number], len(self._files[number])
        return self._start(
            launch,
            jpeg=self._base["jpeg"] + at,
            jpeg_bytes=size,
            tensor=self._base["tensor"] + number * TENSOR,
            tensor_capacity=TENSOR,
            **self._settings(),
            ring_entries=0,
            ring_first=0,
            polls=0,
        )

    def queue(self, launch: int) -> int:
        """Clocks of all."""
        for number, (at, data) in enumerate(zip(self._at, self._files, strict=True), 1):
            self._put(number, at, len(data), (number - 1) * TENSOR, TENSOR, *self._settings().values(), 0)
        self._put(len(self._files) + 1, *(0,) * 11, 1)
        total = self._start(
            launch,
            jpeg_bytes=self._buffers["jpeg"].nbytes,
            tensor_capacity=self._buffers["tensor"].nbytes,
            **dict.fromkeys(self._settings(), 0),
            ring_entries=self._entries,
            ring_first=1,
            polls=1,
        )
        records = self._buffers["result"].view("<u4").reshape(-1, 8)
        assert records[-1, 1] == len(self._files) and not records[1 : len(self._files) + 1, 0].any()
        return total

    def _put(self, number: int, *words: int) -> None:
        at = number % self._entries * 64
        self._buffers["ring"][at : at + 64] = np.frombuffer(struct.pack("<16I", *words, 0, 0, 0, number), np.uint8)

    def _settings(self) -> dict[str, int]:
        return {
            "stage": int(ImageStage.NORMALIZE),
            "format": IMAGE_FORMATS.index(SPEC.dtype),
            "resize_short": SPEC.resize_short,
            "crop_width": SPEC.crop_width,
            "crop_height": SPEC.crop_height,
            "crop_x": CENTRED,
            "crop_y": CENTRED,
        }

    def _start(self, launch: int, **given: int) -> int:
        values = self._base | {"workspace": 0, "workspace_bytes": 0} | given
        index = {arg.name: arg.index for arg in self._spec.args}
        status = self._spec.outputs["status"]
        done = self._model.run(
            register_writes(self._spec, {index[name]: value for name, value in values.items()}),
            [
                MemoryRange(self._base[name], buffer.nbytes, buffer.ctypes.data)
                for name, buffer in self._buffers.items()
            ],
            [status],
            memory=self._memory,
            launch=launch,
            renew=True,
        )
        assert done.registers[status] == Status.OK
        return done.total_cycles


def images_s(clocks: float, launch_us: float, mhz: int) -> float:
    """At `mhz`; `clocks` are of a photo at CLOCK_MHZ, with its part of a launch, which no clock makes shorter."""
    return 1e6 / ((clocks - launch_us * CLOCK_MHZ) / mhz + launch_us)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="a folder of your own; default: those of the demo, as bundled")
    parser.add_argument("--count", type=int, default=24, help="photos of each quality")
    parser.add_argument("--latency", type=int, default=120, help="memory's, in clocks")
    parser.add_argument("--launch-us", type=float, nargs="+", default=[0, 50, 100], help="what a launch costs")
    parser.add_argument("--json", type=Path, help="also write every figure here")
    options = parser.parse_args()
    files = sorted(path for path in options.photos.iterdir() if path.is_file()) if options.photos else bundled_images()
    images = [cut(image) for path in files if (image := cv2.imread(str(path))) is not None]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        library = Path(folder) / "image_cu.so"
        (spec,) = parse_kernels((hls_folder() / "image_cu" / "kernel.xml").read_bytes())
        build_library(spec, rtl_sources(), library)
        loaded = ctypes.CDLL(str(library))
        rows = []
        for quality in QUALITIES:
            jpegs = [encode(image, "4:2:0", quality) for image, _ in zip(itertools.cycle(images), range(options.count))]
            cu = Cu(loaded, jpegs, MemoryModel(latency=options.latency))
            cu.single(0, 0)  # the first one begins with a reset
            for microseconds in options.launch_us:
                launch = round(microseconds * CLOCK_MHZ)
                singles = sum(cu.single(number, launch) for number in range(len(jpegs))) / len(jpegs)
                queue = cu.queue(launch) / len(jpegs)
                rows.append({"quality": quality, "launch_us": microseconds, "single": singles, "queue": queue})
    at_clocks = " | ".join(f"images/s at {mhz} MHz" for mhz in CLOCKS_MHZ)
    print(f"| quality | launch | single start, clocks a photo | {at_clocks} | from the queue | {at_clocks} | gain |")
    print("|" + " ---: |" * (5 + 2 * len(CLOCKS_MHZ)))
    for row in rows:
        single, queue, launch_us = row["single"], row["queue"], row["launch_us"]
        singles = " | ".join(f"{images_s(single, launch_us, mhz):,.0f}" for mhz in CLOCKS_MHZ)
        queues = " | ".join(f"{images_s(queue, launch_us / options.count, mhz):,.0f}" for mhz in CLOCKS_MHZ)
        print(
            f"| {row['quality']} | {launch_us:g} us | {single:,.0f} | {singles} | {queue:,.0f} | {queues} "
            f"| {100 * (single / queue - 1):.1f} % |"
        )
    if options.json:
        found = {"machine": machine(), "latency": options.latency, "photos": options.count, "rows": rows}
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
