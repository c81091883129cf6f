"""Send files through the DPU for `headrace preprocess`, as many at a time as it has CUs, each with its own outcome."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from headrace.batching import HeadraceError
from headrace.bitstreams.whole_file import replacing
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Fallback, Launch, Preprocessed
from headrace.host.dpu.processors import ProcessorSpec, type_name
from headrace.host.dpu.reference import audio_file
from headrace.host.dpu.specs import MAX_MEGAPIXELS, AudioSpec, AudioStage, Damaged, ImageSpec, ImageStage
from headrace.host.xrt import Api, emulation

FIELDS = ("output", "shape", "dtype", "unit", "dpu_status", "error")
OF_PROCESSOR = ("output", "tensors", "unit", "dpu_status", "refused", "error")


async def preprocess_files(
    files: Sequence[Path],
    folder: Path,
    xclbin: Path,
    spec: ImageSpec | AudioSpec | ProcessorSpec,
    stage: ImageStage | AudioStage | None,
    fallback: Fallback,
    on_done: Callable[[], None],
    wave: Path | None = None,
    launch: Launch = Launch.SINGLE,
    api: Api | None = None,
    max_megapixels: int = MAX_MEGAPIXELS,
    damaged: Damaged = Damaged.STRICT,
) -> list[dict[str, Any]]:
    """Preprocess files and save their tensors in `folder`.

    Args:
        files: The input files.
        folder: Folder of the outputs, one `.npy` file for each input. A ProcessorSpec, and an AudioSpec that names its
            tensors, has `.npz` files, with the tensors by their names.
        xclbin: Container of the CUs.
        stage: The last stage that runs. None runs all.
        on_done: Called after each file.
        wave: Waveform file of the first request. Only `hw_emu` can write it.
        max_megapixels, damaged: Rules for files with a ProcessorSpec. Other specs have their own.

    Returns:
        One outcome for each file, in order, with the keys file, output (path or None), shape, dtype, unit, dpu_status
            and error (or None). A spec with named tensors has `tensors` in place of shape and dtype, which has both by
            name, and `refused`, the reason why no CU was asked, or None. Audio adds `samples`, of each channel at the
            file's rate. Images add `damage` and `orientation`. `damage` is the fault of a file that was taken
            nonetheless, or None. `orientation` is 1 to 8 as in the file's Exif, whether or not the image was turned.
            `out_of_service` is the reason why no CU did the work, or None. Clocked devices add `cycles` and, under
            `counters`, all that they count. For images they also add `cycles_per_pixel` and `symbols`.
    """
    processor = isinstance(spec, ProcessorSpec) or (isinstance(spec, AudioSpec) and spec.tensors is not None)
    outputs = output_names(files, ".npz" if processor else ".npy")
    of_kind = ("samples",) if isinstance(spec, AudioSpec) else ("damage", "orientation")
    fields = (*(OF_PROCESSOR if processor else FIELDS), *of_kind, "out_of_service")
    rules = {"max_megapixels": max_megapixels, "damaged": damaged}
    async with Dpu(xclbin, spec, fallback=fallback, launch=launch, api=api, **rules) as dpu:
        if wave is not None:
            emulation.trace(emulation.device(0), wave)
        limit = asyncio.Semaphore(2 * len(dpu.states()))  # bounds the memory that waiting files take

        async def one(file: Path, output: Path) -> dict[str, Any]:
            outcome: dict[str, Any] = dict.fromkeys(fields)
            async with limit:
                try:
                    data = file.read_bytes()
                    if isinstance(spec, AudioSpec):
                        outcome["samples"] = audio_file.length(data, spec.rates)[0]
                    done = await dpu.process(data, stage)
                    outcome |= {"output": str(output), **_saved(output, done)}
                    if processor:
                        outcome["refused"] = done.refused
                    outcome |= {"unit": done.unit, "dpu_status": done.dpu_status, "out_of_service": done.out_of_service}
                    if done.orientation is not None:
                        outcome |= {"damage": done.damage, "orientation": int(done.orientation)}
                    outcome |= _clocks(done)
                except HeadraceError as error:
                    outcome["error"] = str(error)
                except OSError as error:
                    outcome["error"] = f"{error.strerror}"
            on_done()
            return {"file": str(file), **outcome}

        return await asyncio.gather(*(one(file, folder / name) for file, name in zip(files, outputs, strict=True)))


def _saved(output: Path, done: Preprocessed) -> dict[str, Any]:
    """Save the tensors, and return their shapes and dtypes."""
    if not done.tensors:
        save(output, lambda file: np.save(file, done.tensor))
        return {"shape": done.tensor.shape, "dtype": str(done.tensor.dtype)}
    save(output, lambda file: np.savez(file, **done.tensors))
    tensors = done.tensors.items()
    return {"tensors": {name: {"shape": each.shape, "dtype": type_name(each.dtype)} for name, each in tensors}}


def save(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Let `write` fill a file, and give it its name whole or not at all, whatever interrupts the write.

    Where the file system allows it, the file has no name until it is whole. Then even a killed process leaves
    nothing."""
    with replacing(path) as partial:
        if not _save_nameless(partial, write):
            with partial.open("wb") as file:
                write(file)


def _save_nameless(path: Path, write: Callable[[IO[bytes]], None]) -> bool:
    """Write a file that gets its name at the end, and return whether the system can do that.

    The folder's file system must have files without a name, and /proc must be there to name one."""
    try:
        handle = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError:
        return False
    with open(handle, "wb") as file:
        write(file)
        file.flush()
        try:
            os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)  # linkat, which follows the link
        except OSError:
            return False
    return True


def _clocks(done: Preprocessed) -> dict[str, Any]:
    if done.counters is None:
        return {}
    clocks: dict[str, Any] = {"cycles": done.counters["cycles"], "counters": dict(done.counters)}
    if done.source_pixels:
        clocks |= {
            "cycles_per_pixel": done.counters["cycles"] / done.source_pixels,
            "symbols": done.counters.get("symbols"),
        }
    return clocks


def output_names(files: Sequence[Path], suffix: str = ".npy") -> list[str]:
    """Return a name for each file: its stem with the suffix. Files with equal stems get numbers that no other name
    has."""
    taken = {f"{file.stem}{suffix}" for file in files}
    last: dict[str, int] = {}  # the last number of each stem
    names = []
    for file in files:
        name, number = f"{file.stem}{suffix}", last.get(file.stem, 0) + 1
        if number > 1:
            while (name := f"{file.stem}-{number}{suffix}") in taken:
                number += 1
            taken.add(name)
        last[file.stem] = number
        names.append(name)
    return names
