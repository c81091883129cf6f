"""The CPU preprocessor runs as many requests at a time as it has threads, in order, and ends cleanly."""

import asyncio
import gc
import os
import threading

import cv2
import numpy as np
import pytest
from sounds import int16, speechlike, wav

import headrace
from headrace.batching import CorruptInput
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.hugging_face.names import processor
from headrace.host.dpu.preprocessor import CpuPreprocessor, PreprocessorUnavailable
from headrace.host.dpu.reference import audio
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import AudioSpec, AudioStage, Damaged, ImageSpec, ImageStage

PHOTOS = demo_images()[:8]


class Watched(bytes):
    """An input that knows whether a thread has read it, and holds the thread until `go` is set."""

    def __new__(cls, data: bytes, held: bool = False) -> "Watched":
        self = super().__new__(cls, data)
        self.seen, self.go = threading.Event(), threading.Event()
        if not held:
            self.go.set()
        return self

    def __len__(self) -> int:
        self.seen.set()
        assert self.go.wait(20)
        return super().__len__()


async def working(cpu: CpuPreprocessor) -> tuple[Watched, "asyncio.Task"]:
    """Start a call that has its thread and keeps it until its `go` is set."""
    data = Watched(PHOTOS[0].jpeg, held=True)
    task = asyncio.create_task(cpu.process(data))
    assert await asyncio.to_thread(data.seen.wait, 20)
    return data, task


def with_cpu(body, spec=None, threads=None):
    async def run():
        async with CpuPreprocessor(spec or ImageSpec(), threads) as cpu:
            return await body(cpu)

    return asyncio.run(run())


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_it_gives_what_the_reference_gives(dtype):
    spec = ImageSpec(dtype=dtype)

    async def body(cpu):
        tensors = await asyncio.gather(*(cpu.preprocess(photo.jpeg) for photo in PHOTOS))
        for photo, tensor in zip(PHOTOS, tensors, strict=True):
            assert np.array_equal(tensor, preprocess(photo.jpeg, spec))
        done = await cpu.process(PHOTOS[0].jpeg, ImageStage.CROP)
        assert done.unit == "cpu" and done.tensor.shape == (224, 224, 3) and done.dpu_status is None
        with pytest.raises(CorruptInput):
            await cpu.preprocess(b"text")

    with_cpu(body, spec)


def test_an_image_processor_gives_its_tensors_with_their_names():
    spec = processor("pixtral-12b")
    photo = PHOTOS[0].jpeg

    async def body() -> None:
        async with CpuPreprocessor(spec, max_megapixels=1, damaged=Damaged.LENIENT) as cpu:
            done = await cpu.process(photo)
            expected = headrace.preprocess(photo, spec)
            assert done.tensors.keys() == expected.keys() == {"pixel_values", "image_sizes"}
            assert all(np.array_equal(done.tensors[name], values) for name, values in expected.items())
            assert done.tensor is done.tensors["pixel_values"] and done.unit == "cpu" and not done.damage
            assert cpu.damaged == 0
            png = bytearray(cv2.imencode(".png", np.zeros((30, 40, 3), np.uint8))[1].tobytes())
            png[-5] ^= 1
            assert (await cpu.process(bytes(png))).damage == "the checksum of chunk 2 is wrong" and cpu.damaged == 1
            with pytest.raises(CorruptInput, match="1001x1000 pixels, by its header, are more than --max-megapixels 1"):
                await cpu.process(cv2.imencode(".png", np.zeros((1000, 1001, 3), np.uint8))[1].tobytes())
        async with CpuPreprocessor(spec) as cpu:
            with pytest.raises(CorruptInput, match="it is damaged: the checksum of chunk 2 is wrong"):
                await cpu.process(bytes(png))

    asyncio.run(body())


def test_sounds_go_the_same_way_as_photos():
    sound = wav(int16(speechlike(1, 44100)), 44100)
    spec = AudioSpec(dtype="float16")

    async def body(cpu):
        done = await cpu.process(sound)
        assert done.unit == "cpu" and np.array_equal(done.tensor, audio.preprocess(sound, spec))
        mel = (await cpu.process(sound, AudioStage.MEL)).tensor
        assert np.array_equal(mel, audio.preprocess(sound, spec, AudioStage.MEL)) and mel.dtype == np.float32
        with pytest.raises(CorruptInput):
            await cpu.preprocess(PHOTOS[0].jpeg)

    with_cpu(body, spec)


@pytest.mark.parametrize("threads", [1, 2])
def test_requests_are_worked_on_in_order_and_as_many_at_a_time_as_there_are_threads(threads):
    async def body(cpu):
        done = await asyncio.gather(*(cpu.process(photo.jpeg) for photo in PHOTOS * 3))
        for earlier, later in zip(done, done[threads:], strict=False):
            assert earlier.started < later.started
        for one in done:
            assert sum(other.started <= one.started < other.finished for other in done) <= threads

    with_cpu(body, threads=threads)


def test_there_are_as_many_threads_as_usable_cores():
    async def threads(cpu):
        return cpu.threads

    cores = os.sched_getaffinity(0)
    assert with_cpu(threads) == len(cores)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert with_cpu(threads) == 1
    finally:
        os.sched_setaffinity(0, cores)


def test_opencv_takes_one_thread_a_request():
    async def body(cpu):
        await cpu.preprocess(PHOTOS[0].jpeg)
        assert cv2.getNumThreads() == 1

    cv2.setNumThreads(2)
    with_cpu(body)


def test_a_call_that_is_given_up_while_it_waits_is_never_worked_on():
    async def body(cpu):
        held, busy = await working(cpu)
        given_up = [Watched(PHOTOS[0].jpeg) for _ in range(20)]
        calls = [asyncio.create_task(cpu.process(data)) for data in given_up]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        held.go.set()
        assert np.array_equal(await cpu.preprocess(PHOTOS[1].jpeg), preprocess(PHOTOS[1].jpeg, ImageSpec()))
        assert busy.done() and not any(data.seen.is_set() for data in given_up)

    with_cpu(body, threads=1)


def test_a_close_ends_what_is_worked_on_and_refuses_the_rest():
    async def body(cpu):
        held, busy = await working(cpu)
        waiting = asyncio.create_task(cpu.process(PHOTOS[0].jpeg))
        await asyncio.sleep(0)
        threading.Timer(0.1, held.go.set).start()
        cpu.close()
        with pytest.raises(PreprocessorUnavailable, match="closed"):
            await waiting
        assert (await busy).unit == "cpu"
        with pytest.raises(PreprocessorUnavailable, match="closed"):
            await cpu.preprocess(PHOTOS[0].jpeg)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("cpu-preprocessor")]

    with_cpu(body, threads=1)


def test_a_caller_that_gives_up_while_it_is_closed_is_cancelled():
    async def body(cpu):
        held, _ = await working(cpu)
        waiting = asyncio.create_task(cpu.process(PHOTOS[0].jpeg))
        await asyncio.sleep(0)
        threading.Timer(0.1, held.go.set).start()
        waiting.cancel()
        cpu.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with_cpu(body, threads=1)


def test_states_say_which_threads_are_busy_and_for_how_long():
    async def body(cpu):
        assert [(one.name, one.busy, one.busy_s) for one in cpu.states()] == [
            ("cpu thread 0", False, 0),
            ("cpu thread 1", False, 0),
        ]
        held, busy = await working(cpu)
        (first,) = [one for one in cpu.states() if one.busy]
        await asyncio.sleep(0.01)
        held.go.set()
        await busy
        before, idle = sorted(cpu.states(), key=lambda one: one.busy_s, reverse=True)
        assert before.name == first.name and before.busy_s >= max(first.busy_s, 0.01) and idle.busy_s == 0
        assert not before.busy and cpu.states()[int(before.name[-1])].busy_s == before.busy_s

    with_cpu(body, threads=2)


def test_its_threads_end_with_it_if_nobody_closes_it():
    def threads():
        return {thread for thread in threading.enumerate() if thread.name.startswith("cpu-preprocessor")}

    before = threads()

    async def body():
        cpu = CpuPreprocessor(ImageSpec(), 1)
        await cpu.preprocess(PHOTOS[0].jpeg)
        assert threads() - before

    gc.disable()  # nothing holds it in a cycle
    try:
        asyncio.run(body())
        for thread in threads() - before:
            thread.join(20)
        assert not threads() - before
    finally:
        gc.enable()


def test_a_caller_that_gives_up_does_not_free_its_thread():
    async def body(cpu):
        held, given_up = await working(cpu)
        given_up.cancel()
        waiting = asyncio.create_task(cpu.process(data := Watched(PHOTOS[0].jpeg)))
        await asyncio.sleep(0.01)
        threading.Timer(0.1, held.go.set).start()
        cpu.close()  # refuses what has no thread yet
        with pytest.raises(PreprocessorUnavailable):
            await waiting
        assert not data.seen.is_set()

    with_cpu(body, threads=1)
