"""Clocks of the image CU's RTL, Verilated, over photos x sampling x quality: the time of a request, and its waits.

    .venv/bin/python -m benchmarks.image_cu [--images FOLDER] [--latency 120] [--jobs 2] [--json [FILE]]
    .venv/bin/python -m benchmarks.image_cu --sw-emu [--images FOLDER] [--calls 10]

Each photo is encoded at its own size and cut to 500x375, at every sampling and quality. The cut is also encoded as a
progressive file of libjpeg's ten scans. The files go through decode, resize to 256, crop to 224x224 and normalize to
float32. Clocks are those of the CU's own counters, from start to done. Memory answers after `--latency` clocks, then
moves a word of 128 bits a clock on each port, and never stalls. The result is a function of the files alone; only the
speed of the simulation is the machine's.

Images/s are given at two clocks: the 300 MHz that are assumed, and the clock that the estimate of the delays supports
(sim/system/card.py), which is no timing either. The images/s of several CUs are those of one, times their number: up
to 16, each port of each CU has an HBM bank of its own (bitstreams/build.py), so they share nothing that the model knows
of. The time of one CU is from start to start of runs back to back: the run, and the host's register accesses in
between, without any delay but the CU's own. It does not include what PCIe adds.

`--sw-emu` measures the CPU time of the C++ as software instead, for photos of 500x375 on one core. That figure depends
on the machine and its other work.
"""

import argparse
import ctypes
import itertools
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.harness import Report, arguments, main, progress, table
from headrace.batching import HeadraceError, UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.bitstreams.hw_emu.library import build_library
from headrace.bitstreams.kernel import parse_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import rtl_sources
from headrace.host.demo.inputs.images import SAMPLINGS, bundled_images
from headrace.host.dpu.specs import IMAGE_FORMATS, ImageSpec, ImageStage
from headrace.host.dpu.units.jobs import table_words
from headrace.host.dpu.units.status import Status
from headrace.host.workers.profiling.batches import machine
from headrace.host.xrt.engine import MemoryRange
from headrace.host.xrt.hw_emu import CLOCK_MHZ, KernelModel, KernelRun, MemoryModel, register_writes
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
MEANS = ("cycles", "symbols", "long_codes", "symbols_per_cycle", "header", *WAITS, "first_output", "last_output")
BANK = 512 << 20
CENTRED = 0xFFFFFFFF
IMAGE = ImageSpec()
TENSOR = int(np.prod(IMAGE.tensor_shape)) * np.dtype(IMAGE.dtype).itemsize  # bytes
SETTINGS = {
    "stage": int(ImageStage.NORMALIZE),
    "format": IMAGE_FORMATS.index(IMAGE.dtype),
    "resize_short": IMAGE.resize_short,
    "crop_width": IMAGE.crop_width,
    "crop_height": IMAGE.crop_height,
    "crop_x": CENTRED,
    "crop_y": CENTRED,
}
(SPEC,) = parse_kernels((hls_folder() / "image_cu" / "kernel.xml").read_bytes())
WORD = {port.name.lower(): port.data_width // 8 for port in SPEC.ports}  # bytes
REGISTERS = dict(SPEC.outputs) | dict(SPEC.counters)


# ---- files ----


@dataclass(frozen=True)
class Case:
    image: str
    size: str  # "own" or that of CUT
    sampling: str
    quality: int
    jpeg: bytes


def image_files(folder: Path | None) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder else bundled_images()


def cases(files: list[Path]) -> list[Case]:
    """Return every encoding of every photo. Raises UsageError if there is no photo."""
    found = []
    for path in files:
        own = cv2.imread(str(path), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        if own is None or own.shape[1] > MAX_WIDTH:
            progress(f"{path.name}: left out, no image or wider than {MAX_WIDTH}")
            continue
        for size, pixels in (("own", own), ("x".join(map(str, CUT)), cut(own))):
            for sampling in (*USED_SAMPLINGS, *((PROGRESSIVE,) if size != "own" else ())):
                for quality in QUALITIES:
                    found.append(Case(path.stem, size, sampling, quality, encode(pixels, sampling, quality)))
    if not found:
        raise UsageError("--images: the folder has no photo that OpenCV reads")
    return found


def cut(image: np.ndarray) -> np.ndarray:
    """Return the middle of the photo at CUT, scaled as little as possible."""
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


# ---- the unit ----


class Memory:
    """A CU's memory: files, tensors, tables, a ring of jobs, records, and room for progressive files of CUT."""

    def __init__(self, files: list[bytes]) -> None:
        self.files = files
        sizes = [-(-len(data) // 16) * 16 for data in files]
        self._at = [0, *itertools.accumulate(sizes)][:-1]
        jpeg = np.zeros(sum(sizes) + 16, np.uint8)
        for at, data in zip(self._at, files, strict=True):
            jpeg[at : at + len(data)] = np.frombuffer(data, np.uint8)
        self.entries = 1 << len(files).bit_length()  # one more for the stop
        self.buffers = {
            "jpeg": jpeg,
            "tensor": np.zeros(TENSOR * len(files), np.uint8),
            "tables": table_words(IMAGE.tables()),
            "result": np.zeros((self.entries + 1) * 32, np.uint8),
            "workspace": np.empty(6 * CUT[0] * (CUT[1] + 16), np.uint8),
            "ring": np.zeros(self.entries * 64, np.uint8),
            "program": np.zeros(64, np.uint8),  # no stage reads it
        }

    def single(self, base: Mapping[str, int], number: int) -> dict[str, int]:
        """Return the arguments of a start for one file. `base` has the address of each buffer."""
        jpeg = {"jpeg": base["jpeg"] + self._at[number], "jpeg_bytes": len(self.files[number])}
        tensor = {"tensor": base["tensor"] + number * TENSOR, "tensor_capacity": TENSOR}
        no_ring = {"ring_entries": 0, "ring_first": 0, "polls": 0, "program_bytes": 0}
        return {**base, **SETTINGS, **jpeg, **tensor, "workspace_bytes": self.buffers["workspace"].nbytes, **no_ring}

    def queue(self, base: Mapping[str, int]) -> dict[str, int]:
        """Write a job for each file into the ring, and return the arguments of a start for all of them."""
        jobs = [
            (at, len(data), number * TENSOR, TENSOR, *SETTINGS.values(), 0)
            for number, (at, data) in enumerate(zip(self._at, self.files, strict=True))
        ]
        for number, words in enumerate([*jobs, (*(0,) * 11, 1)], 1):
            at = number % self.entries * 64
            job = struct.pack("<16I", *words, *(0,) * (15 - len(words)), number)
            self.buffers["ring"][at : at + 64] = np.frombuffer(job, np.uint8)
        return (
            dict(base)
            | dict.fromkeys(SETTINGS, 0)
            | {
                "jpeg_bytes": self.buffers["jpeg"].nbytes,
                "tensor_capacity": self.buffers["tensor"].nbytes,
                "workspace_bytes": 0,
                "ring_entries": self.entries,
                "ring_first": 1,
                "polls": 1,
                "program_bytes": 0,
            }
        )


class Cu:
    """One Verilated compute unit. Its state stays between runs."""

    def __init__(self, library: ctypes.CDLL, memory_model: MemoryModel) -> None:
        self._model, self._memory_model = KernelModel(library, seed=1), memory_model

    def single(self, memory: Memory, number: int = 0, launch: int = 0, reads: Sequence[str] = ("status",)) -> KernelRun:
        """Start the unit for one file, `launch` clocks after now, and read those registers when it has ended.

        The run's clocks last until the next start. They include the accesses to registers."""
        return self._start(memory, memory.single(_bases(memory), number), launch, reads)

    def queue(self, memory: Memory, launch: int) -> KernelRun:
        """Start the unit once for all files."""
        done = self._start(memory, memory.queue(_bases(memory)), launch)
        records = memory.buffers["result"].view("<u4").reshape(-1, 8)
        count = len(memory.files)
        assert records[-1, 1] == count and not records[1 : count + 1, 0].any()
        return done

    def _start(
        self, memory: Memory, given: dict[str, int], launch: int, reads: Sequence[str] = ("status",)
    ) -> KernelRun:
        base, index = _bases(memory), {arg.name: arg.index for arg in SPEC.args}
        done = self._model.run(
            register_writes(SPEC, {index[name]: value for name, value in given.items()}),
            [MemoryRange(base[name], buffer.nbytes, buffer.ctypes.data) for name, buffer in memory.buffers.items()],
            [REGISTERS[name] for name in reads],
            memory=self._memory_model,
            launch=launch,
            renew=True,
        )
        if (status := done.registers.get(REGISTERS["status"], Status.OK)) != Status.OK:
            raise HeadraceError(f"the CU ended in {Status(status).name}")
        return done


def _bases(memory: Memory) -> dict[str, int]:
    return {name: (number + 1) * BANK for number, name in enumerate(memory.buffers)}


def image_cu_library() -> ctypes.CDLL:
    progress("compiling the RTL: one to two minutes the first time")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        path = Path(folder) / "image_cu.so"
        build_library(SPEC, rtl_sources(), path)
        return ctypes.CDLL(str(path))


# ---- the C++ as software ----


def cpu_ms(function: Any, jpeg: bytes, calls: int) -> float:
    """Return the CPU time of this thread in image_cu's C++: the best of so many calls."""
    memory = Memory([jpeg])
    given = memory.single({name: buffer.ctypes.data for name, buffer in memory.buffers.items()}, 0)
    words = [
        (ctypes.c_void_p if arg.is_global else ctypes.c_uint32)(given[arg.name])
        for arg in sorted(SPEC.args, key=lambda arg: arg.index)
    ]
    times = []
    for _ in range(calls):
        began = time.thread_time()
        function(*words)
        times.append(time.thread_time() - began)
    if status := int(memory.buffers["result"].view("<u4")[0]):
        raise HeadraceError(f"image_cu ended in {Status(status).name}")
    return 1e3 * min(times)


def sw_emu(options: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image_cu.so"
        path.write_bytes(build_sw_emu(Path(folder) / "image.xclbin", image_cus=1).bitstream)
        function = ctypes.CDLL(str(path))[SPEC.name]
    groups: dict[tuple[str, int], list[float]] = {}
    for case in cases(image_files(options.images)):
        if case.size != "own":
            groups.setdefault((case.sampling, case.quality), []).append(cpu_ms(function, case.jpeg, options.calls))
    rows = [
        f"{sampling} | {quality} | {len(times)} | {statistics.fmean(times):.2f} | {max(times):.2f}"
        for (sampling, quality), times in sorted(groups.items())
    ]
    text = table("sampling | q | photos | CPU ms, mean | worst", rows)
    figures = {f"{sampling} q{quality}": times for (sampling, quality), times in groups.items()}
    return Report({"cpu_ms": figures}, f"{text}\n\n{CUT[0]}x{CUT[1]}, best of {options.calls} calls each")


# ---- the clocks of the RTL ----


def measure(cu: Cu, case: Case, latency: int) -> dict[str, Any]:
    work, memory = read_jpeg_work(case.jpeg), Memory([case.jpeg])
    began = time.perf_counter()
    done = cu.single(memory, reads=tuple(REGISTERS))
    wall_s = time.perf_counter() - began
    values = {name: done.registers[at] for name, at in REGISTERS.items()}
    pixels, cycles = values["src_width"] * values["src_height"], values["cycles"]
    model = image_cu_cycles(work, latency=latency)
    return {
        "photo": case.image,
        "size": case.size,
        "sampling": case.sampling,
        "quality": case.quality,
        "width": values["src_width"],
        "height": values["src_height"],
        "jpeg_bytes": len(case.jpeg),
        "long_codes": sum(work.long_codes),
        **{name: value for name, value in values.items() if name in SPEC.counters},
        "cycles_per_pixel": cycles / pixels,
        "symbols_per_cycle": values["symbols"] / cycles,
        # The goal allows 3000 clocks and 1.10 of the longer of symbols and half the pixels.
        "share_of_goal": cycles / (1.10 * max(values["symbols"], pixels / 2) + 3000),
        "model_cycles": model,
        "model_deviation": model / cycles - 1,
        "memory_bytes": sum(WORD[name] * (port.read_beats + port.write_beats) for name, port in done.traffic.items()),
        "simulated_cycles": done.total_cycles,
        "wall_s": wall_s,
    }


def summarise(rows: list[dict[str, Any]], gap: int) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["size"], row["sampling"], row["quality"]), []).append(row)
    summaries = []
    for (size, sampling, quality), group in sorted(groups.items(), key=lambda item: (item[0][0] == "own", *item[0])):
        means = {name: statistics.fmean(row[name] for row in group) for name in MEANS}
        per_pixel = [row["cycles_per_pixel"] for row in group]
        start_to_start = means["cycles"] + gap
        summaries.append(
            {
                "size": size,
                "sampling": sampling,
                "quality": quality,
                "photos": len(group),
                "cycles_per_pixel": {"mean": statistics.fmean(per_pixel), "max": max(per_pixel)},
                **means,
                "share_of_goal_max": max(row["share_of_goal"] for row in group),
                "model_deviation_max": max(abs(row["model_deviation"]) for row in group),
                "start_to_start": start_to_start,
                "images_per_s": {
                    mhz: {cus: cus * mhz * 1e6 / start_to_start for cus in range(1, 9)} for mhz in CLOCKS_MHZ
                },
            }
        )
    return summaries


def tables(summaries: list[dict[str, Any]]) -> str:
    clocks = table(
        "size | sampling | q | cycles/pixel | worst | of goal | symbols | per clock | header"
        " | data | transform | rows | output | write | first us | last us | model",
        (
            f"{row['size']} | {row['sampling']} | {row['quality']}"
            f" | {row['cycles_per_pixel']['mean']:.3f} | {row['cycles_per_pixel']['max']:.3f}"
            f" | {row['share_of_goal_max']:.3f} | {row['symbols']:.0f} | {row['symbols_per_cycle']:.3f}"
            f" | {' | '.join(f'{row[name]:.0f}' for name in ('header', *WAITS))}"
            f" | {row['first_output'] / CLOCK_HZ * 1e6:.1f} | {row['last_output'] / CLOCK_HZ * 1e6:.1f}"
            f" | {100 * row['model_deviation_max']:.3f} %"
            for row in summaries
        ),
    )
    columns = [(mhz, cus) for mhz in CLOCKS_MHZ for cus in SHOWN_CUS]
    images = table(
        " | ".join(["size | sampling | q | cycles", *(f"{n} CU{'s' * (n > 1)}, {mhz} MHz" for mhz, n in columns)]),
        (
            f"{row['size']} | {row['sampling']} | {row['quality']} | {row['cycles']:.0f} | "
            + " | ".join(f"{row['images_per_s'][mhz][cus]:,.0f}" for mhz, cus in columns)
            for row in summaries
        ),
    )
    return f"{clocks}\n\n{images}"


def clocks(options: argparse.Namespace) -> Report:
    files = image_files(options.images)
    todo, library = cases(files), image_cu_library()
    memory_model, own = MemoryModel(latency=options.latency), threading.local()

    def one(numbered: tuple[int, Case]) -> dict[str, Any]:
        number, case = numbered
        if not hasattr(own, "cu"):
            own.cu = Cu(library, memory_model)
        row = measure(own.cu, case, options.latency)
        progress(f"{number} of {len(todo)}: {case.image} {case.size} {case.sampling} q{case.quality}")
        return row

    began = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as threads:
        rows = list(threads.map(one, enumerate(todo, 1)))
    wall_s = time.perf_counter() - began

    # Runs back to back, with no more register accesses than it takes: arguments, start, interrupt, continue. The state
    # of the store unit's turns is what the run before left, which is a clock or two.
    cu, memory = Cu(library, memory_model), Memory([todo[0].jpeg])
    cycles = cu.single(memory, reads=tuple(REGISTERS)).registers[REGISTERS["cycles"]]
    gap = round(statistics.fmean(cu.single(memory, reads=()).total_cycles for _ in range(4))) - cycles

    summaries = summarise(rows, gap)
    errors = [abs(row["model_deviation"]) for row in rows]
    bytes_per_s = max(row["memory_bytes"] / row["cycles"] for row in rows) * CLOCK_HZ
    speed = statistics.median(row["simulated_cycles"] / row["wall_s"] for row in rows)
    speed_of_all = sum(row["simulated_cycles"] for row in rows) / wall_s
    figures = {
        "clock_mhz": CLOCK_MHZ,
        "estimated_clock_mhz": CLOCKS_MHZ[1],
        "memory_latency": options.latency,
        "photos": len(files),
        "gap_between_runs": gap,
        "model_deviation": {"max": max(errors), "mean": statistics.fmean(errors)},
        "memory_bytes_per_s_max": bytes_per_s,
        "simulated_cycles_per_s": {"one model, median": speed, "all": speed_of_all, "jobs": options.jobs},
        "summary": summaries,
        "files": rows,
    }
    text = f"""{tables(summaries)}

"worst": the photo with most cycles/pixel. "of goal": cycles of the photo with most, as a share of 1.10 x the greater of
symbols and half the pixels, plus 3000. "data" to "write": clocks in which the entropy decoder had too few bits, it
waited for the transform, samples for a free MCU row, pixels for resize, and the tensor's words for memory; several may
wait in one clock. "first", "last": from start until memory has the first and the last word of the tensor, at 300 MHz.
{CLOCK_MHZ} MHz is assumed; {CLOCKS_MHZ[1]} MHz is what the estimate of the longest path supports (`headrace build --report`).
"model": greatest deviation of sim/hardware/dpu/image.py.

cycle model: {100 * max(errors):.3f} % off at most, {100 * statistics.fmean(errors):.4f} % on average, {len(errors)} files
between runs: {gap} clocks of register accesses, which images/s include
memory: at most {bytes_per_s / 1e9:.2f} GB/s a CU
simulation: {speed / 1e6:.2f} M clocks/s a model (median), {speed_of_all / 1e6:.2f} M/s by {options.jobs} together, on {machine()["cores"]} cores"""  # noqa: E501
    return Report(figures, text)


if __name__ == "__main__":
    parser = arguments(__doc__, latency=120, jobs=2, calls=10)
    parser.add_argument("--images", type=Path, help="a folder of your own; default: those of the demo, as bundled")
    parser.add_argument("--sw-emu", action="store_true", help="CPU time of the C++ at 500x375, no clocks")
    main(parser, lambda options: sw_emu(options) if options.sw_emu else clocks(options))
