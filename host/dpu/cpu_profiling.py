"""Measure what preprocessing costs on the CPU, for `headrace profile --cpu-preprocessing`.

The processes run one library of cpu_libraries.py on one file at a time. Each process has a core of its own: first one
process alone, then one on every usable core. The cost is processor time. Other programs lengthen it by the caches that
they take, but not by the time that they hold a core. A round goes through all files. There are several rounds, and the
cost of a file is the median of its rounds.
"""

import io
import multiprocessing
import os
import signal
import statistics
import time
import wave
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import cv2
import numpy as np
import scipy  # its parts are large, and load when they are used
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.cpu_libraries import library
from headrace.host.dpu.reference import audio, audio_file, image
from headrace.host.dpu.specs import AudioSpec, AudioStage, ImageSpec, ImageStage
from headrace.sim.hardware.cpu import AudioCost, CpuCosts, ImageCost

ROUNDS = 9
WARM_UP = 2  # rounds before these; they fill caches and import modules that are imported late
# The rate at which librosa loads audio by default, and PREBA's samples are taken to be (sim/hardware/preba_cpu.py). All
# libraries resample from it to the 16 kHz of the networks.
AUDIO_HZ = 22050
ROUND_S = 120.0  # longest wait for the other processes, as one of them may have died


@dataclass(frozen=True, slots=True)
class Fit:
    """How well the costs describe the measured files.

    Args:
        files: Number of files.
        error: Relative error of the time that the costs give for a file, median over files.
        spread: Relative difference of a file's slowest and fastest round, median over files.
        alone_s, all_cores_s: Processor seconds of a file with one process and with one on every core, medians over
            files.
    """

    files: int
    error: float
    spread: float
    alone_s: float
    all_cores_s: float


@dataclass(frozen=True, slots=True)
class CpuMeasurement:
    costs: CpuCosts
    cores: int
    rounds: int
    image: Fit
    audio: Fit


def measure_cpu(
    jpegs: Sequence[bytes], recordings: Sequence[bytes], source: str, on_part: Callable[[str], None], name: str = "ours"
) -> CpuMeasurement:
    """Measure the CPU costs of images and of audio with one library.

    Args:
        jpegs: JPEG files.
        recordings: WAV or FLAC files of any rate. They become WAV files of AUDIO_HZ before the measurement.
        source: Name of the measurement in the costs.
        on_part: Gets a text whenever a part of the measurement begins.
        name: The library, one of cpu_libraries.LIBRARIES. It is the label of the costs.

    Raises:
        UsageError: There is no JPEG file, no recording or no such library; the library does not load; or a measuring
            process has died.
        CorruptInput, BadInput: A file cannot be preprocessed.
    """
    if not jpegs or not recordings:
        raise UsageError("give at least one image and one recording to measure preprocessing with")
    library(name)
    waves = [_at_audio_hz(data) for data in recordings]
    sizes = [_pixels(jpeg) for jpeg in jpegs]
    cores = sorted(os.sched_getaffinity(0))
    # (processes, rounds, files), seconds
    taken: dict[str, list[NDArray[np.float64]]] = {"image": [], "audio": []}
    for some, text in ((cores[:1], "one core"), (cores, f"{len(cores)} cores at once")):
        for kind, files, label in (("image", jpegs, "images"), ("audio", waves, "recordings")):
            on_part(f"{len(files)} {label} on {text}")
            taken[kind].append(_on_cores(some, name, kind, files))
    image_times, image_fit, image_contention = _seen(*taken["image"])
    work = np.array([[1.0, pixels, len(jpeg)] for pixels, jpeg in zip(sizes, jpegs, strict=True)])
    image_s, pixel_s, byte_s = _solved(work, image_times)
    audio_times, audio_fit, audio_contention = _seen(*taken["audio"])
    lengths = np.array([[1.0, _seconds(data)] for data in waves])
    clip_s, second_s = _solved(lengths, audio_times)
    costs = CpuCosts(
        name,
        ImageCost(image_s, pixel_s, byte_s, image_contention),
        AudioCost(clip_s, second_s, audio_contention),
        source,
    )
    return CpuMeasurement(
        costs,
        len(cores),
        ROUNDS,
        _with_error(image_fit, work @ [image_s, pixel_s, byte_s], image_times),
        _with_error(audio_fit, lengths @ [clip_s, second_s], audio_times),
    )


def _pixels(jpeg: bytes) -> int:
    height, width = image.preprocess(jpeg, ImageSpec(), ImageStage.DECODE).shape[:2]
    return height * width


def _at_audio_hz(data: bytes) -> bytes:
    spec = AudioSpec(rate=AUDIO_HZ)
    samples = audio.preprocess(data, spec, AudioStage.RESAMPLE)
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(AUDIO_HZ)
        out.writeframes(np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes())
    return file.getvalue()


def _seconds(data: bytes) -> float:
    spec = AudioSpec(rate=AUDIO_HZ)
    return len(audio_file.decode(data, spec.rates, spec.longest_s)[0]) / AUDIO_HZ


def _seen(
    alone: NDArray[np.float64], together: NDArray[np.float64]
) -> tuple[NDArray[np.float64], tuple[int, float, float, float], float]:
    """Summarize the times of one process and of one on every core.

    Args:
        alone, together: Seconds, shape (processes, rounds, files).

    Returns:
        The seconds of each file alone; files, spread and medians, as in Fit; and the contention, which is at least 1.
    """
    times = np.median(alone[0], axis=0)
    crowded = np.median(together, axis=(0, 1))
    spread = float(np.median((alone[0].max(0) - alone[0].min(0)) / times))
    contention = max(1.0, float(np.median(crowded / times)))
    return times, (len(times), spread, float(np.median(times)), float(np.median(crowded))), contention


def _with_error(seen: tuple[int, float, float, float], fitted: NDArray[np.float64], times: NDArray[np.float64]) -> Fit:
    files, spread, alone, crowded = seen
    return Fit(files, statistics.median(np.abs(fitted / times - 1).tolist()), spread, alone, crowded)


def _solved(work: NDArray[np.float64], times: NDArray[np.float64]) -> list[float]:
    """Return the non-negative costs of the columns of `work` with the least squares of relative errors (NNLS).

    Args:
        work: Amount of each kind of work in each file, shape (files, costs).
        times: Seconds of each file.
    """
    scale = work.max(axis=0)
    scaled, _ = scipy.optimize.nnls(work / scale / times[:, None], np.ones(len(times)))
    costs: list[float] = (scaled / scale).tolist()
    return costs


def _on_cores(cores: Sequence[int], name: str, kind: str, files: Sequence[bytes]) -> NDArray[np.float64]:
    """Return processor seconds by process, round and file. One process runs on each core, all at the same time.

    Raises UsageError if the library does not load, or if a process dies."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(cores))
    with ExitStack() as running:
        pipes = []
        for place, core in enumerate(cores):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, barrier, name, kind, list(files), place), daemon=True)
            with _inherited(core):
                process.start()
            theirs.close()
            running.callback(process.join)
            running.callback(process.terminate)
            pipes.append(ours)
        try:
            answers = [pipe.recv() for pipe in pipes]
        except EOFError as error:
            raise UsageError(
                "a process that measures preprocessing has died; check that there is enough memory"
            ) from error
    for answer in answers:
        if isinstance(answer, UsageError):
            raise answer
    return np.array(answers)


@contextmanager
def _inherited(core: int) -> Iterator[None]:
    """Give processes that start inside one core, and leave Ctrl-C to their parent. Libraries see the core when they
    load."""
    before = os.sched_getaffinity(0)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _work(
    pipe: Connection,
    barrier: "multiprocessing.synchronize.Barrier",
    name: str,
    kind: str,
    files: list[bytes],
    place: int,
) -> None:
    """Measure all files in one process, and send the seconds, or the UsageError of a library that does not load.

    Each process begins at another file, so that they do not all decode the same one."""
    cv2.setNumThreads(1)
    try:
        found = library(name)
        preprocess = found.image if kind == "image" else found.audio
        preprocess(files[0])
    except UsageError as error:
        pipe.send(error)
        return
    times = np.zeros((ROUNDS, len(files)))
    first = place * len(files) // barrier.parties
    for turn in range(-WARM_UP, ROUNDS):
        barrier.wait(ROUND_S)
        for number in range(len(files)):
            at = (first + number) % len(files)
            began = time.thread_time()
            preprocess(files[at])
            if turn >= 0:
                times[turn, at] = time.thread_time() - began
    barrier.wait(ROUND_S)  # every process keeps its core busy until all have measured
    pipe.send(times)
