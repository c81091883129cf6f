"""Make the tensors of image files with an image processor, for `headrace preprocess image --processor`."""

import asyncio
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np

from headrace.batching import HeadraceError
from headrace.host.dpu.files import output_names, save
from headrace.host.dpu.hugging_face.front import process_file
from headrace.host.dpu.processors import ProcessorSpec, type_name
from headrace.host.dpu.specs import Damaged

FIELDS = ("output", "tensors", "unit", "damage", "orientation", "error")


async def process_files(
    files: Sequence[Path],
    folder: Path,
    spec: ProcessorSpec,
    max_megapixels: int,
    damaged: Damaged,
    on_done: Callable[[], None],
) -> list[dict[str, Any]]:
    """Process files, as many at a time as there are usable cores, and save their tensors in `folder`.

    Args:
        files: The input files.
        folder: Folder of the outputs, one `.npz` file for each input, with the tensors by their names.
        on_done: Called after each file.

    Returns:
        One outcome for each file, in order. The key "file" has its path, and "error" the reason if it failed. All other
            keys are None then: "output" (the path), "tensors" (shape and dtype by name), "unit", "damage" (the fault of
            a file that was taken nonetheless, or None) and "orientation" (1 to 8, as in the Exif data).
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")  # faults beside the pixels, such as in Exif data
    cv2.setNumThreads(1)  # files run in parallel
    cores = len(os.sched_getaffinity(0))
    loop = asyncio.get_running_loop()

    def one(file: Path, output: Path) -> dict[str, Any]:
        outcome: dict[str, Any] = {"file": str(file), **dict.fromkeys(FIELDS)}
        try:
            done = process_file(file.read_bytes(), spec, max_megapixels, damaged)
            save(output, lambda opened: np.savez(opened, **cast(dict[str, Any], done.tensors)))
        except HeadraceError as error:
            return {**outcome, "error": str(error)}
        except OSError as error:
            return {**outcome, "error": f"{error.strerror}"}
        tensors = {name: {"shape": each.shape, "dtype": type_name(each.dtype)} for name, each in done.tensors.items()}
        outcome |= {"output": str(output), "tensors": tensors, "unit": done.unit}
        return {**outcome, "damage": done.damage, "orientation": int(done.orientation)}

    with ThreadPoolExecutor(cores, thread_name_prefix="image-processor") as threads:

        async def in_thread(file: Path, name: str) -> dict[str, Any]:
            outcome = await loop.run_in_executor(threads, one, file, folder / name)
            on_done()
            return outcome

        try:
            names = output_names(files, ".npz")
            return await asyncio.gather(*(in_thread(file, name) for file, name in zip(files, names, strict=True)))
        finally:
            threads.shutdown(cancel_futures=True)  # after an interrupt, files that wait are left out
