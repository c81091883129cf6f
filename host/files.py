"""`headrace preprocess image`: files through the DPU, as many at a time as it has CUs, each with its own outcome."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.batching import HeadraceError
from headrace.host.dpu import Dpu, Fallback
from headrace.host.image import ImageSpec, Stage


async def preprocess_files(
    files: Sequence[Path],
    folder: Path,
    xclbin: Path,
    spec: ImageSpec,
    stage: Stage,
    fallback: Fallback,
    on_done: Callable[[], None],
) -> list[dict[str, Any]]:
    """One outcome a file, in order: file, output (path or None), shape, dtype, unit, dpu_status, error (or None)."""
    outputs = _output_names(files)
    async with Dpu(xclbin, spec, fallback=fallback) as dpu:
        limit = asyncio.Semaphore(2 * len(dpu.cus))  # bounds the memory that waiting files take

        async def one(file: Path, output: Path) -> dict[str, Any]:
            outcome: dict[str, Any] = dict.fromkeys(("output", "shape", "dtype", "unit", "dpu_status", "error"))
            async with limit:
                try:
                    done = await dpu.process(file.read_bytes(), stage)
                    np.save(output, done.tensor)
                    outcome |= {"output": str(output), "shape": done.tensor.shape, "dtype": str(done.tensor.dtype)}
                    outcome |= {"unit": done.unit, "dpu_status": done.dpu_status}
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
