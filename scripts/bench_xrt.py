"""Photos/s of the image unit over the emulated device and over the real XRT in front of the device process, for sw_emu
and hw_emu, by the same driver.

    . what sets XRT up; export XILINX_XRT, and PYTHONPATH for its pyxrt
    .venv/bin/python scripts/bench_xrt.py [--image-cus 2] [--rounds 5] [--seconds 4] [--json FILE]

Each of the four is a process that has opened its device and done a photo before the clock runs: hw_emu's shim sleeps
for ten seconds as it loads. They take turns, as machines are shared and drift, and the median over the rounds is told;
so is that of the quotient of the two of one round. Each keeps as many photos under way as there are units; a photo that
is under way when the time is up counts with the time that it takes."""

import argparse
import asyncio
import json
import os
import shlex
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from headrace.batching import HeadraceError
from headrace.bitstreams.build import build_hw_emu, build_sw_emu
from headrace.bitstreams.xclbin import read_xclbin
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Fallback
from headrace.host.dpu.specs import ImageSpec
from headrace.host.workers.profiling.batches import machine
from headrace.host.xrt import Api
from headrace.host.xrt.shim.environment import write_environment

TARGETS = {"sw_emu": build_sw_emu, "hw_emu": build_hw_emu}
LIMIT_S = 120.0  # for a worker to begin, and for what it has under way when its time is up
LARGEST = 30_000  # bytes; RTL needs seconds for larger ones


async def work(container: Path, api: Api) -> None:
    """A line of stdin has seconds; one of stdout, photos/s."""
    photos = [photo.jpeg for photo in demo_images() if len(photo.jpeg) <= LARGEST]
    loop = asyncio.get_running_loop()
    async with Dpu(container, ImageSpec(), fallback=Fallback.RAISE, api=api) as dpu:
        await dpu.process(photos[0])
        print(len(photos), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            started, done = time.monotonic(), 0
            end = started + float(line)

            async def client(number: int, end: float = end) -> int:
                done = 0
                while time.monotonic() < end:
                    await dpu.process(photos[(number + done * len(dpu.cus)) % len(photos)])
                    done += 1
                return done

            done = sum(await asyncio.gather(*(client(number) for number in range(len(dpu.cus)))))
            print(done / (time.monotonic() - started), flush=True)


class Worker:
    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self.process = process
        self.name = name

    @classmethod
    async def start(cls, container: Path, api: Api, environment: Path) -> "Worker":
        line = shlex.join([sys.executable, os.path.abspath(__file__), "--worker", str(container), api])
        if api is Api.REAL:
            line = f". {shlex.quote(str(environment / 'setup.sh'))}; exec {line}"
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            line,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd=environment,  # the shims write logs there
        )
        return cls(process, f"{api}, {container.stem}")

    async def answer(self, within_s: float) -> float:
        """Passes over what XRT says. Raises HeadraceError."""
        try:
            async with asyncio.timeout(within_s):
                while text := (await self.process.stdout.readline()).decode():
                    if text.strip().replace(".", "", 1).isdigit():
                        return float(text)
        except TimeoutError:
            raise HeadraceError(f"{self.name}: no answer for {within_s:g} s") from None
        raise HeadraceError(f"{self.name}: the process has ended; what it said stands above")

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


async def measure(folder: Path, targets: list[str], cus: int, rounds: int, seconds: float) -> dict:
    workers: dict[tuple[str, Api], Worker] = {}
    rates: dict[tuple[str, Api], list[float]] = {}
    try:
        for target in targets:
            container = folder / f"{target}.xclbin"
            print(f"building {container.name}", file=sys.stderr)
            TARGETS[target](container, image_cus=cus)
            write_environment(read_xclbin(container), folder / target)
            for api in Api:
                workers[target, api] = await Worker.start(container, api, folder / target)
                photos = int(await workers[target, api].answer(LIMIT_S))
        for number in range(rounds):
            for key, worker in workers.items():
                rates.setdefault(key, []).append(await worker.rate(seconds))
                print(f"round {number + 1} of {rounds}, {worker.name}: {rates[key][-1]:.2f} photos/s", file=sys.stderr)
    finally:
        await asyncio.gather(*(worker.end() for worker in workers.values()))
    return {
        "machine": machine(),
        "photos": photos,
        "units": cus,
        "photos_per_s": {
            target: {
                **{
                    str(api): {"median": statistics.median(rates[target, api]), "rounds": rates[target, api]}
                    for api in Api
                },
                "real_to_emulation": statistics.median(
                    real / emulated
                    for real, emulated in zip(rates[target, Api.REAL], rates[target, Api.EMULATION], strict=True)
                ),
            }
            for target in targets
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", choices=TARGETS, help="both by default")
    parser.add_argument("--image-cus", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each in each round")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(work(Path(options.worker[0]), Api(options.worker[1])))
        return
    targets = options.target or list(TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(Path(folder), targets, options.image_cus, options.rounds, options.seconds))
    told = result["machine"]
    print(f"{told['cpu']}, {told['cores']} cores; {result['photos']} photos, {result['units']} units, photos/s\n")
    print("| target | emulation | real XRT | real to emulation |")
    print("| --- | ---: | ---: | ---: |")
    for target, rates in result["photos_per_s"].items():
        medians = [f"{rates[api]['median']:.2f}" for api in Api]
        print(f"| {target} | {' | '.join(medians)} | {rates['real_to_emulation']:.2f} |")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
