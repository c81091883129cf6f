"""Photos/s of the image unit over the emulated device and over the real XRT, by the same driver, for sw_emu and hw_emu.

    . the setup script of XRT; export XILINX_XRT, and PYTHONPATH for its pyxrt
    .venv/bin/python -m benchmarks.xrt [--target sw_emu] [--image-cus 2] [--rounds 5] [--seconds 4] [--json [FILE]]

The real XRT is in front of the device process (host/xrt/shim). Each of the four cases is a process that has opened its
device and done a photo before the clock runs, because hw_emu's shim sleeps for ten seconds as it loads. Each keeps as
many photos in progress as there are units. The last column has the median of the quotients of the two in one round.
"""

import argparse
import asyncio
import os
import shlex
import signal
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import (
    ROOT,
    Report,
    arguments,
    closed_loop,
    main,
    measure_async,
    progress,
    spread,
    summary,
    table,
)
from headrace.batching import HeadraceError
from headrace.bitstreams.build import build_hw_emu, build_sw_emu
from headrace.bitstreams.xclbin import read_xclbin
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Fallback
from headrace.host.dpu.specs import ImageSpec
from headrace.host.xrt import Api
from headrace.host.xrt.shim.environment import write_environment

TARGETS = {"sw_emu": build_sw_emu, "hw_emu": build_hw_emu}
LIMIT_S = 120.0  # for a worker to begin, and for what it has in progress when its time is up
LARGEST = 30_000  # bytes; RTL needs seconds for larger ones


async def work(container: Path, api: Api) -> None:
    """Answer each line of stdin, which has seconds, with a line of photos/s on stdout."""
    images = [image.jpeg for image in demo_images() if len(image.jpeg) <= LARGEST]
    loop = asyncio.get_running_loop()
    async with Dpu(container, ImageSpec(), fallback=Fallback.RAISE, api=api) as dpu:
        await dpu.process(images[0])
        print(len(images), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            rate = await closed_loop(lambda n: dpu.process(images[n % len(images)]), len(dpu.cus), float(line))
            print(rate, flush=True)


class Worker:
    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self.process = process
        self.name = name

    @classmethod
    async def start(cls, container: Path, api: Api, environment: Path) -> "Worker":
        line = shlex.join([sys.executable, "-m", "benchmarks.xrt", "--worker", str(container), api])
        if api is Api.REAL:
            line = f". {shlex.quote(str(environment / 'setup.sh'))}; exec {line}"
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            line,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd=environment,
            env={**os.environ, "PYTHONPATH": path},  # the shims write logs into the folder
        )
        return cls(process, f"{container.stem}, {api}")

    async def answer(self, within_s: float) -> float:
        """Return the next number that the worker prints, and pass over the lines of XRT. Raises HeadraceError."""
        try:
            async with asyncio.timeout(within_s):
                while text := (await self.process.stdout.readline()).decode():
                    if text.strip().replace(".", "", 1).isdigit():
                        return float(text)
        except TimeoutError:
            raise HeadraceError(f"{self.name}: no answer for {within_s:g} s") from None
        raise HeadraceError(f"{self.name}: the process has ended; its own words stand above")

    async def rate(self, seconds: float) -> float:
        self.process.stdin.write(f"{seconds}\n".encode())
        return await self.answer(seconds + LIMIT_S)

    async def end(self) -> None:
        self.process.stdin.close()
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.process.wait()
        except TimeoutError:
            os.killpg(self.process.pid, signal.SIGKILL)  # its session: the shim's device process, too
            await self.process.wait()


async def run(options: argparse.Namespace) -> Report:
    targets = options.target or list(TARGETS)
    workers: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            for target in targets:
                container = folder / f"{target}.xclbin"
                progress(f"building {container.name}")
                TARGETS[target](container, image_cus=options.image_cus)
                write_environment(read_xclbin(container), folder / target)
                for api in Api:
                    worker = await Worker.start(container, api, folder / target)
                    workers[worker.name] = worker
                    images = int(await worker.answer(LIMIT_S))
            cases = {name: lambda _, worker=worker: worker.rate(options.seconds) for name, worker in workers.items()}
            rates = await measure_async(cases, options.rounds)
        finally:
            await asyncio.gather(*(worker.end() for worker in workers.values()))
    quotients, rows = {}, []
    for target in targets:
        real, emulated = (rates[f"{target}, {api}"] for api in (Api.REAL, Api.EMULATION))
        quotients[target] = statistics.median(r / e for r, e in zip(real, emulated, strict=True))
        rows.append(f"{target} | {spread(emulated, '.2f')} | {spread(real, '.2f')} | {quotients[target]:.2f}")
    figures = {"photos": images, "photos_per_s": summary(rates), "real_to_emulation": quotients}
    head = f"photos/s, {options.image_cus} units | emulation | real XRT | real to emulation"
    return Report(figures, table(head, rows))


if __name__ == "__main__":
    parser = arguments(__doc__, image_cus=2, rounds=5, seconds=4.0)
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: both")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args()
    if options.worker:
        asyncio.run(work(Path(options.worker[0]), Api(options.worker[1])))
    else:
        main(parser, run)
