"""What preprocessing on the CPU costs: `headrace profile --cpu-preprocessing`.

The work is that of the CPU path (image.py, audio.py), on one file at a time, in processes that have a core each: one
alone first, then one on every usable core. What counts is processor time, which other programs on the machine lengthen
by the caches they take and not by the turns they are given. A round goes through all files; there are several, and a
file's cost is the median of its rounds.
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
import scipy.optimize
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.reference import audio, audio_file, image
from headrace.host.dpu.specs import AudioSpec, AudioStage, ImageSpec, ImageStage
from headrace.sim.hardware.cpu import AudioCost, CpuCosts, ImageCost

ROUNDS = 9
WARM_UP = 2  # rounds before these, which fill caches and load what is loaded late
AUDIO_HZ = 16000  # LibriSpeech's
ROUND_S = 120.0  # at most, so that nobody waits for a process that has died


@dataclass(frozen=True, slots=True)
class Fit:
    """`error`: of a file's time by the costs, relative, median over files; `spread`: the same of the difference between
    its slowest and its fastest round; `alone_s` and `all_cores_s`: medians over files."""

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
    sound: Fit


def measure_cpu(
    photos: Sequence[bytes], sounds: Sequence[bytes], source: str, on_part: Callable[[str], None]
) -> CpuMeasurement:
    """`photos` are JPEG files, `sounds` files of any rate, which are first made to be of 16 kHz. `on_part` is told what
    begins. Raises UsageError, and CorruptInput and BadInput for files that cannot be preprocessed."""
    if not photos or not sounds:
        raise UsageError("give at least one photo and one sound to measure preprocessing with")
    waves = [_at_16_khz(data) for data in sounds]
    sizes = [_pixels(jpeg) for jpeg in photos]
    cores = sorted(os.sched_getaffinity(0))
    # (processes, rounds, files), seconds
    taken: dict[str, list[NDArray[np.float64]]] = {"image": [], "sound": []}
    for some, text in ((cores[:1], "one core"), (cores, f"{len(cores)} cores at once")):
        for kind, files in (("image", photos), ("sound", waves)):
            on_part(f"{len(files)} {kind}s on {text}")
            taken[kind].append(_on_cores(some, kind, files))
    image_times, image_fit, image_contention = _seen(*taken["image"])
    work = np.array([[1.0, pixels, len(jpeg)] for pixels, jpeg in zip(sizes, photos, strict=True)])
    image_s, pixel_s, byte_s = _solved(work, image_times)
    audio_times, audio_fit, audio_contention = _seen(*taken["sound"])
    lengths = np.array([[1.0, _seconds(data)] for data in waves])
    clip_s, second_s = _solved(lengths, audio_times)
    costs = CpuCosts(
        "measured",
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


def _at_16_khz(data: bytes) -> bytes:
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
    spec = AudioSpec()
    return len(audio_file.decode(data, spec.rates, spec.longest_s)[0]) / AUDIO_HZ


def _seen(
    alone: NDArray[np.float64], together: NDArray[np.float64]
) -> tuple[NDArray[np.float64], tuple[int, float, float, float], float]:
    """Each file's seconds alone; files, spread and medians, as in Fit; contention, which is 1 at least."""
    times = np.median(alone[0], axis=0)
    crowded = np.median(together, axis=(0, 1))
    spread = float(np.median((alone[0].max(0) - alone[0].min(0)) / times))
    contention = max(1.0, float(np.median(crowded / times)))
    return times, (len(times), spread, float(np.median(times)), float(np.median(crowded))), contention


def _with_error(seen: tuple[int, float, float, float], fitted: NDArray[np.float64], times: NDArray[np.float64]) -> Fit:
    files, spread, alone, crowded = seen
    return Fit(files, statistics.median(np.abs(fitted / times - 1).tolist()), spread, alone, crowded)


def _solved(work: NDArray[np.float64], times: NDArray[np.float64]) -> list[float]:
    """Costs of 0 or more by the columns of `work`, with the least squares of relative errors."""
    scale = work.max(axis=0)
    found, _ = scipy.optimize.nnls(work / scale / times[:, None], np.ones(len(times)))
    costs: list[float] = (found / scale).tolist()
    return costs


def _on_cores(cores: Sequence[int], kind: str, files: Sequence[bytes]) -> NDArray[np.float64]:
    """Seconds of the processor by process, round and file, the processes, one a core, at work at the same time."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(cores))
    with ExitStack() as running:
        pipes = []
        for place, core in enumerate(cores):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, barrier, kind, list(files), place), daemon=True)
            with _inherited(core):
                process.start()
            theirs.close()
            running.callback(process.join)
            running.callback(process.terminate)
            pipes.append(ours)
        try:
            return np.array([pipe.recv() for pipe in pipes])
        except EOFError as error:
            raise UsageError("a process that measures preprocessing has died; is there enough memory?") from error


@contextmanager
def _inherited(core: int) -> Iterator[None]:
    """What starts inside has one core, which libraries see when they are loaded, and leaves Ctrl-C to its parent."""
    before = os.sched_getaffinity(0)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _work(
    pipe: Connection, barrier: "multiprocessing.synchronize.Barrier", kind: str, files: list[bytes], place: int
) -> None:
    """Of one process. Each begins at another file, so that they do not all decode the same one."""
    cv2.setNumThreads(1)
    image_spec, audio_spec = ImageSpec(), AudioSpec()
    times = np.zeros((ROUNDS, len(files)))
    first = place * len(files) // barrier.parties
    for turn in range(-WARM_UP, ROUNDS):
        barrier.wait(ROUND_S)
        for number in range(len(files)):
            at = (first + number) % len(files)
            began = time.thread_time()
            if kind == "image":
                image.preprocess(files[at], image_spec)
            else:
                audio.preprocess(files[at], audio_spec)
            if turn >= 0:
                times[turn, at] = time.thread_time() - began
    barrier.wait(ROUND_S)  # nobody has the machine to himself while others still measure
    pipe.send(times)
