#!/usr/bin/env python3
"""Clocks of the image CU's RTL, Verilated, over photos x sampling x quality: what a request takes and waits for.

    .venv/bin/python scripts/bench_image_cu.py [--photos FOLDER] [--latency 120] [--jobs 2] [--json FILE]
    .venv/bin/python scripts/bench_image_cu.py --sw-emu [--photos FOLDER] [--calls 10]

Each photo is encoded at its own size and cut to 500x375, at every sampling and quality, the cut also as a progressive
file of libjpeg's ten scans, and goes through decode, resize
to 256, crop to 224x224 and normalize to float32. Clocks are those of the CU's own counters, from start to done; memory
answers after `--latency` clocks, then moves a word of 128 bits a clock on each port, and never stalls. The result is a
function of the files alone; only the speed of the simulation is the machine's. Two tables go to stdout, progress to
stderr.

Images/s stand at two clocks: the 300 MHz that are assumed, and what the estimate of the delays supports, which is no
timing either (sim/system/card.py). Those of several CUs are those of one, times their number: up to 16, each port of
each CU has an HBM bank of its own (bitstreams/build.py), so they share nothing that the model knows of. One CU's time
is from start to start of runs back to back: the run, and the host's register accesses in between without any delay but
the CU's own. What PCIe adds is not in it.

With --sw-emu it is the CPU time of the C++ as software instead, of a photo of 500x375 on one core, for which the
machine counts and what else it does.
"""

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from headrace.bitstreams.build import build_sw_emu
from headrace.bitstreams.hw_emu.library import build_library
from headrace.bitstreams.kernel import KernelSpec, parse_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import rtl_sources
from headrace.host.demo.inputs.images import SAMPLINGS, bundled_images
from headrace.host.dpu.specs import IMAGE_FORMATS, ImageSpec, ImageStage
from headrace.host.dpu.units.status import Status
from headrace.host.workers.profiling.batches import machine
from headrace.host.xrt.engine import MemoryRange
from headrace.host.xrt.hw_emu import CLOCK_MHZ, KernelModel, MemoryModel, register_writes
from headrace.sim.hardware.dpu.image import image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work
from headrace.sim.system.card import estimated_mhz

CLOCK_HZ = CLOCK_MHZ * 1e6
CLOCKS_MHZ = (CLOCK_MHZ, estimated_mhz("image cu"))  # assumed, and what the estimate of the delays supports
SHOWN_CUS = (1, 2, 4, 8)
CUT = (500, 375)
MAX_WIDTH = 8192
USED_SAMPLINGS = ("4:2:0", "4:2:2", "4:4:4", "gray")
PROGRESSIVE = "4:2:0, ten scans"
QUALITIES = (75, 90, 95)
WAITS = ("wait_data", "wait_transform", "wait_rows", "wait_output", "wait_write")
BANK = 512 << 20
CENTRED = 0xFFFFFFFF


@dataclass(frozen=True)
class Case:
    photo: str
    size: str  # "own" or that of CUT
    sampling: str
    quality: int
    jpeg: bytes


class Cu:
    """One Verilated compute unit with buffers of its own."""

    def __init__(self, library: ctypes.CDLL, spec: KernelSpec, memory: MemoryModel, image: ImageSpec) -> None:
        self._spec, self._memory, self._image = spec, memory, image
        self._model = KernelModel(library, seed=1)
        self._index = {arg.name: arg.index for arg in spec.args}
        self._outputs = dict(spec.outputs)
        self._buffers = own_buffers(image)

    def run(self, jpeg: bytes, *, counters: bool = True) -> tuple[int, dict[str, int], int]:
        """The run's clocks with the host's register accesses, the CU's counters, and bytes on the memory ports."""
        file = np.zeros(-(-len(jpeg) // 16) * 16, np.uint8)
        file[: len(jpeg)] = np.frombuffer(jpeg, np.uint8)
        buffers = {"jpeg": file} | self._buffers
        base = {name: (number + 1) * BANK for number, name in enumerate(buffers)}
        given = base | settings(self._image, jpeg, buffers)
        read = self._outputs | dict(self._spec.counters) if counters else {}
        done = self._model.run(
            register_writes(self._spec, {self._index[name]: value for name, value in given.items()}),
            [MemoryRange(base[name], buffer.nbytes, buffer.ctypes.data) for name, buffer in buffers.items()],
            list(read.values()),
            memory=self._memory,
        )
        values = {name: done.registers[offset] for name, offset in read.items()}
        if values.get("status", Status.OK) != Status.OK:
            raise RuntimeError(f"the CU ended in {Status(values['status']).name}")
        moved = sum(16 * (port.read_beats + port.write_beats) for port in done.traffic.values())
        return done.total_cycles, values, moved


def own_buffers(image: ImageSpec) -> dict[str, np.ndarray]:
    """All but the file's."""
    words = np.zeros((3, 256), np.uint32)
    table = image.tables()
    words[:] = table.view(f"u{table.itemsize}")
    tensor = np.empty(int(np.prod(image.tensor_shape)) * np.dtype(image.dtype).itemsize, np.uint8)
    workspace = np.empty(6 * CUT[0] * (CUT[1] + 16), np.uint8)
    return {"tensor": tensor, "tables": words, "result": np.empty(32, np.uint8), "workspace": workspace}


def settings(image: ImageSpec, jpeg: bytes, buffers: dict[str, np.ndarray]) -> dict[str, int]:
    """The arguments of a request that are no buffers, and the ring, which it does not have."""
    return {
        "jpeg_bytes": len(jpeg),
        "tensor_capacity": buffers["tensor"].nbytes,
        "stage": int(ImageStage.NORMALIZE),
        "format": IMAGE_FORMATS.index(image.dtype),
        "resize_short": image.resize_short,
        "crop_width": image.crop_width,
        "crop_height": image.crop_height,
        "crop_x": CENTRED,
        "crop_y": CENTRED,
        "workspace_bytes": buffers["workspace"].nbytes,
        "ring": 0,
        "ring_entries": 0,
        "ring_first": 0,
        "polls": 0,
    }


def cpu_ms(function: Callable[..., None], spec: KernelSpec, image: ImageSpec, jpeg: bytes, calls: int) -> float:
    """Of image_cu's C++ as software, this thread's CPU time: the best of so many calls."""
    file = np.zeros((len(jpeg) // 16 + 1) * 16, np.uint8)
    file[: len(jpeg)] = np.frombuffer(jpeg, np.uint8)
    buffers = {"jpeg": file} | own_buffers(image)
    given = {name: buffer.ctypes.data for name, buffer in buffers.items()} | settings(image, jpeg, buffers)
    arguments = [
        (ctypes.c_void_p if arg.is_global else ctypes.c_uint32)(given[arg.name])
        for arg in sorted(spec.args, key=lambda arg: arg.index)
    ]
    times = []
    for _ in range(calls):
        began = time.thread_time()
        function(*arguments)
        times.append(time.thread_time() - began)
    if status := int(buffers["result"].view("<u4")[0]):
        raise RuntimeError(f"image_cu ended in {Status(status).name}")
    return 1e3 * min(times)


def measure_sw_emu(spec: KernelSpec, files: list[Path], calls: int) -> None:
    """A table of CPU times."""
    photos = [case for case in cases(files) if case.size != "own"]
    groups: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image_cu.so"
        path.write_bytes(build_sw_emu(Path(folder) / "image.xclbin", image_cus=1).bitstream)
        function = ctypes.CDLL(str(path))[spec.name]
    for case in photos:
        ms = cpu_ms(function, spec, ImageSpec(), case.jpeg, calls)
        groups.setdefault((case.sampling, case.quality), []).append(ms)
    print_table(
        ["sampling", "q", "photos", "CPU ms, mean", "worst"],
        [
            [sampling, str(quality), str(len(times)), f"{statistics.fmean(times):.2f}", f"{max(times):.2f}"]
            for (sampling, quality), times in sorted(groups.items())
        ],
    )
    of = machine()
    print(f"\n{CUT[0]}x{CUT[1]}, best of {calls} calls each; {of['cpu']}, {of['cores']} cores")


def cases(files: list[Path]) -> list[Case]:
    found = []
    for path in files:
        own = cv2.imread(str(path), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        if own is None or own.shape[1] > MAX_WIDTH:
            print(f"{path.name}: left out, no image or wider than {MAX_WIDTH}", file=sys.stderr)
            continue
        for size, pixels in (("own", own), ("x".join(map(str, CUT)), cut(own))):
            for sampling in (*USED_SAMPLINGS, *((PROGRESSIVE,) if size != "own" else ())):
                for quality in QUALITIES:
                    found.append(Case(path.stem, size, sampling, quality, encode(pixels, sampling, quality)))
    return found


def cut(image: np.ndarray) -> np.ndarray:
    """The middle of the photo at CUT, scaled as little as possible."""
    width, height = CUT
    scale = max(width / image.shape[1], height / image.shape[0])
    size = max(width, round(image.shape[1] * scale)), max(height, round(image.shape[0] * scale))
    scaled = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    x, y = (size[0] - width) // 2, (size[1] - height) // 2
    return scaled[y : y + height, x : x + width]


def encode(image: np.ndarray, sampling: str, quality: int) -> bytes:
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    if sampling == "gray":
        image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    else:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling.partition(",")[0]]]
        options += [cv2.IMWRITE_JPEG_PROGRESSIVE, int(sampling == PROGRESSIVE)]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def measure(cu: Cu, case: Case, latency: int) -> dict:
    work = read_jpeg_work(case.jpeg)
    began = time.perf_counter()
    total, values, moved = cu.run(case.jpeg)
    wall_s = time.perf_counter() - began
    pixels, cycles = values["src_width"] * values["src_height"], values["cycles"]
    model = image_cu_cycles(work, latency=latency)
    return {
        "photo": case.photo,
        "size": case.size,
        "sampling": case.sampling,
        "quality": case.quality,
        "width": values["src_width"],
        "height": values["src_height"],
        "jpeg_bytes": len(case.jpeg),
        "long_codes": sum(work.long_codes),
        **{name: value for name, value in values.items() if name in cu._spec.counters},
        "cycles_per_pixel": cycles / pixels,
        "symbols_per_cycle": values["symbols"] / cycles,
        # The goal allows 3000 clocks and 1.10 of the longer of symbols and half the pixels.
        "share_of_goal": cycles / (1.10 * max(values["symbols"], pixels / 2) + 3000),
        "model_cycles": model,
        "model_deviation": model / cycles - 1,
        "memory_bytes": moved,
        "simulated_cycles": total,
        "wall_s": wall_s,
    }


def summarise(rows: list[dict], gap: int) -> list[dict]:
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["size"], row["sampling"], row["quality"]), []).append(row)

    def mean(name: str, group: list[dict]) -> float:
        return statistics.fmean(row[name] for row in group)

    summaries = []
    for (size, sampling, quality), group in sorted(groups.items(), key=lambda item: (item[0][0] == "own", *item[0])):
        per_pixel = [row["cycles_per_pixel"] for row in group]
        start_to_start = mean("cycles", group) + gap
        summaries.append(
            {
                "size": size,
                "sampling": sampling,
                "quality": quality,
                "photos": len(group),
                "cycles_per_pixel": {"mean": statistics.fmean(per_pixel), "max": max(per_pixel)},
                **{
                    name: mean(name, group)
                    for name in (
                        "cycles",
                        "symbols",
                        "long_codes",
                        "symbols_per_cycle",
                        "header",
                        *WAITS,
                        "first_output",
                        "last_output",
                    )
                },
                "share_of_goal_max": max(row["share_of_goal"] for row in group),
                "model_deviation_max": max(abs(row["model_deviation"]) for row in group),
                "start_to_start": start_to_start,
                "images_per_s": {
                    mhz: {cus: cus * mhz * 1e6 / start_to_start for cus in range(1, 9)} for mhz in CLOCKS_MHZ
                },
            }
        )
    return summaries


def print_table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * max(3, width) for width in widths], *rows]
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")


def print_summary(summaries: list[dict]) -> None:
    print_table(
        [
            "size",
            "sampling",
            "q",
            "cycles/pixel",
            "worst",
            "of goal",
            "symbols",
            "per clock",
            "header",
            "data",
            "transform",
            "rows",
            "output",
            "write",
            "first us",
            "last us",
            "model",
        ],
        [
            [
                row["size"],
                row["sampling"],
                str(row["quality"]),
                f"{row['cycles_per_pixel']['mean']:.3f}",
                f"{row['cycles_per_pixel']['max']:.3f}",
                f"{row['share_of_goal_max']:.3f}",
                f"{row['symbols']:.0f}",
                f"{row['symbols_per_cycle']:.3f}",
                f"{row['header']:.0f}",
                *(f"{row[name]:.0f}" for name in WAITS),
                f"{row['first_output'] / CLOCK_HZ * 1e6:.1f}",
                f"{row['last_output'] / CLOCK_HZ * 1e6:.1f}",
                f"{100 * row['model_deviation_max']:.3f} %",
            ]
            for row in summaries
        ],
    )
    print()
    print_table(
        [
            "size",
            "sampling",
            "q",
            "cycles",
            *(f"{cus} CU{'s' * (cus > 1)}, {mhz} MHz" for mhz in CLOCKS_MHZ for cus in SHOWN_CUS),
        ],
        [
            [
                row["size"],
                row["sampling"],
                str(row["quality"]),
                f"{row['cycles']:.0f}",
                *(f"{row['images_per_s'][mhz][cus]:,.0f}" for mhz in CLOCKS_MHZ for cus in SHOWN_CUS),
            ]
            for row in summaries
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, help="a folder of your own; default: those of the demo, as bundled")
    parser.add_argument("--latency", type=int, default=120, help="memory's, in clocks")
    parser.add_argument("--jobs", type=int, default=2, help="models that run at the same time")
    parser.add_argument("--json", type=Path, help="also write every figure of every file here")
    parser.add_argument("--sw-emu", action="store_true", help="CPU time of the C++ at 500x375, no clocks")
    parser.add_argument("--calls", type=int, default=10, help="with --sw-emu: of these the best")
    options = parser.parse_args()
    files = sorted(path for path in options.photos.iterdir() if path.is_file()) if options.photos else bundled_images()
    spec = parse_kernels((hls_folder() / "image_cu" / "kernel.xml").read_bytes())[0]
    if options.sw_emu:
        measure_sw_emu(spec, files, options.calls)
        return
    todo = cases(files)
    if not todo:
        parser.error(f"no photos in {options.photos}")
    print("compiling the RTL: one to two minutes the first time", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image_cu.so"
        build_library(spec, rtl_sources(), path)
        library = ctypes.CDLL(str(path))
    image, memory, own = ImageSpec(), MemoryModel(latency=options.latency), threading.local()
    finished = 0

    def one(case: Case) -> dict:
        nonlocal finished
        if not hasattr(own, "cu"):
            own.cu = Cu(library, spec, memory, image)
        row = measure(own.cu, case, options.latency)
        finished += 1
        print(
            f"\r{finished}/{len(todo)} {case.photo} {case.size} {case.sampling} q{case.quality}\x1b[K",
            end="",
            file=sys.stderr,
        )
        return row

    began = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as threads:
        rows = list(threads.map(one, todo))
    wall_s = time.perf_counter() - began
    print(file=sys.stderr)

    # Runs back to back, with no more register accesses than it takes: arguments, start, interrupt, continue. The state
    # of the store unit's turns is what the run before left, which is a clock or two.
    cu = Cu(library, spec, memory, image)
    cycles = cu.run(todo[0].jpeg)[1]["cycles"]
    gap = round(statistics.fmean(cu.run(todo[0].jpeg, counters=False)[0] for _ in range(4))) - cycles

    summaries = summarise(rows, gap)
    errors = [abs(row["model_deviation"]) for row in rows]
    busiest = max(rows, key=lambda row: row["memory_bytes"] / row["cycles"])
    speeds = sorted(row["simulated_cycles"] / row["wall_s"] for row in rows)
    result = {
        "machine": machine(),
        "clock_mhz": CLOCK_MHZ,
        "estimated_clock_mhz": CLOCKS_MHZ[1],
        "memory_latency": options.latency,
        "photos": len(files),
        "gap_between_runs": gap,
        "model_deviation": {"max": max(errors), "mean": statistics.fmean(errors)},
        "memory_bytes_per_s_max": busiest["memory_bytes"] / busiest["cycles"] * CLOCK_HZ,
        "simulated_cycles_per_s": {
            "one model, median": statistics.median(speeds),
            "all": sum(row["simulated_cycles"] for row in rows) / wall_s,
            "jobs": options.jobs,
        },
        "summary": summaries,
        "files": rows,
    }
    print_summary(summaries)
    print(f"""
"worst": the photo with most cycles/pixel. "of goal": cycles of the photo with most, as a share of 1.10 x the greater of
symbols and half the pixels, plus 3000. "data" to "write": clocks in which the entropy decoder had too few bits, it
waited for the transform, samples for a free MCU row, pixels for resize, and the tensor's words for memory; several may
wait in one clock. "first", "last": from start until memory has the first and the last word of the tensor, at 300 MHz.
{CLOCK_MHZ} MHz is assumed; {CLOCKS_MHZ[1]} MHz is what the estimate of the longest path supports (`headrace build --report`).
"model": greatest deviation of sim/hardware/dpu/image.py.

cycle model: {100 * max(errors):.3f} % off at most, {100 * statistics.fmean(errors):.4f} % on average, {len(errors)} files
between runs: {gap} clocks of register accesses, which images/s include
memory: at most {result["memory_bytes_per_s_max"] / 1e9:.2f} GB/s a CU
simulation: {statistics.median(speeds) / 1e6:.2f} M clocks/s a model (median), {result["simulated_cycles_per_s"]["all"] / 1e6:.2f} M/s by {options.jobs} together, on {result["machine"]["cores"]} cores ({result["machine"]["cpu"]})""")  # noqa: E501
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
