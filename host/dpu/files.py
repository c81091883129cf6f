"""`headrace preprocess image`: files through the DPU, as many at a time as it has CUs, each with its own outcome."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.batching import HeadraceError
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.image import ImageSpec, Stage
from headrace.host.dpu.preprocessor import Fallback
from headrace.host.xrt import emulation


async def preprocess_files(
    files: Sequence[Path],
    folder: Path,
    xclbin: Path,
    spec: ImageSpec,
    stage: Stage,
    fallback: Fallback,
    on_done: Callable[[], None],
    wave: Path | None = None,
) -> list[dict[str, Any]]:
    """One outcome a file, in order: file, output (path or None), shape, dtype, unit, dpu_status, error (or None).

    Clocked devices add cycles, cycles_per_pixel, symbols and, under `counters`, all that they count. `wave` is a
    waveform file of the first request, which only `hw_emu` can write."""
    outputs = _output_names(files)
    async with Dpu(xclbin, spec, fallback=fallback) as dpu:
        if wave is not None:
            emulation.trace(emulation.device(0), wave)
        limit = asyncio.Semaphore(2 * len(dpu.cus))  # bounds the memory that waiting files take

        async def one(file: Path, output: Path) -> dict[str, Any]:
            outcome: dict[str, Any] = dict.fromkeys(("output", "shape", "dtype", "unit", "dpu_status", "error"))
            async with limit:
                try:
                    done = await dpu.process(file.read_bytes(), stage)
                    np.save(output, done.tensor)
                    outcome |= {"output": str(output), "shape": done.tensor.shape, "dtype": str(done.tensor.dtype)}
                    outcome |= {"unit": done.unit, "dpu_status": done.dpu_status}
                    if done.counters is not None and done.source_pixels:
                        outcome |= {
                            "cycles": done.counters["cycles"],
                            "cycles_per_pixel": done.counters["cycles"] / done.source_pixels,
                            "symbols": done.counters.get("symbols"),
                            "counters": dict(done.counters),
                        }
                except HeadraceError as error:
                    outcome["error"] = str(error)
                except OSError as error:
                    outcome["error"] = f"{error.strerror}"
            on_done()
            return {"file": str(file), **outcome}

        return await asyncio.gather(*(one(file, folder / name) for file, name in zip(files, outputs, strict=True)))


def _output_names(files: Sequence[Path]) -> list[str]:
    """The file's stem with .npy; where stems repeat, the later ones are numbered so that none is overwritten."""
    seen: dict[str, int] = {}
    names = []
    for file in files:
        count = seen[file.stem] = seen.get(file.stem, 0) + 1
        names.append(f"{file.stem}.npy" if count == 1 else f"{file.stem}-{count}.npy")
    return names
