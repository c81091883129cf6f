"""Single starts of the image CU in comparison with its queue, Verilated, with the cost of a launch modelled.

    .venv/bin/python -m benchmarks.launch_queue [--images FOLDER] [--count 24] [--latency 120]
        [--launch-us 0 50 100] [--json [FILE]]

Photos are cut and encoded as in benchmarks.image_cu: 500x375 at 4:2:0, quality 75 and 90, to 256 / 224 in float32.
Each goes through the CU by a start of its own, back to back, and all from a ring by one start. Clocks of a start are
those from the launch to the next one: the launch itself, register accesses, the run. XRT takes 50 to 100 us for a
launch on a U55C (XRT issue 8687), which the emulation models as so many clocks at 300 MHz before the registers are
written. All jobs are in the queue before the start. Neither figure has what the host does meanwhile, or PCIe. The
result is a function of the files alone. Images/s are given at both clocks of benchmarks.image_cu, clocks and gain at
300 MHz.
"""

import argparse
import itertools
from pathlib import Path

import cv2

from benchmarks.harness import Report, arguments, main, table
from benchmarks.image_cu import CLOCKS_MHZ, Cu, Memory, cut, encode, image_cu_library, image_files
from headrace.batching import UsageError
from headrace.host.xrt.hw_emu import CLOCK_MHZ, MemoryModel

QUALITIES = (75, 90)


def images_s(clocks: float, launch_us: float, mhz: int) -> float:
    """Return the rate at `mhz`. `clocks` are of a photo at CLOCK_MHZ, with its part of a launch.

    A launch takes as long at any clock."""
    return 1e6 / ((clocks - launch_us * CLOCK_MHZ) / mhz + launch_us)


def run(options: argparse.Namespace) -> Report:
    files = image_files(options.images)
    images = [cut(image) for path in files if (image := cv2.imread(str(path))) is not None]
    if not images:
        raise UsageError("--images: the folder has no photo that OpenCV reads")
    library = image_cu_library()
    figures, rows = [], []
    for quality in QUALITIES:
        jpegs = [encode(image, "4:2:0", quality) for image in itertools.islice(itertools.cycle(images), options.count)]
        cu, memory = Cu(library, MemoryModel(latency=options.latency)), Memory(jpegs)
        cu.single(memory)  # the first one begins with a reset
        for launch_us in options.launch_us:
            launch = round(launch_us * CLOCK_MHZ)
            starts = [cu.single(memory, number, launch) for number in range(options.count)]
            single = sum(start.total_cycles for start in starts) / options.count
            queue = cu.queue(memory, launch).total_cycles / options.count
            figures.append({"quality": quality, "launch_us": launch_us, "single": single, "queue": queue})
            singles = " | ".join(f"{images_s(single, launch_us, mhz):,.0f}" for mhz in CLOCKS_MHZ)
            queues = " | ".join(f"{images_s(queue, launch_us / options.count, mhz):,.0f}" for mhz in CLOCKS_MHZ)
            gain = f"{100 * (single / queue - 1):.1f} %"
            rows.append(f"{quality} | {launch_us:g} us | {single:,.0f} | {singles} | {queue:,.0f} | {queues} | {gain}")
    rates = " | ".join(f"images/s at {mhz} MHz" for mhz in CLOCKS_MHZ)
    head = f"quality | launch | single start, clocks a photo | {rates} | from the queue | {rates} | gain"
    return Report({"rows": figures}, table(head, rows))


if __name__ == "__main__":
    parser = arguments(__doc__, count=24, latency=120)
    parser.add_argument("--images", type=Path, help="a folder of your own; default: those of the demo, as bundled")
    parser.add_argument("--launch-us", type=float, nargs="+", default=[0, 50, 100], help="cost of a launch")
    main(parser, run)
