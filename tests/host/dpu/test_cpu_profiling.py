"""`headrace profile --cpu-preprocessing` measures what preprocessing costs on the CPU."""

import os

import numpy as np
import pytest
from sounds import int16, speechlike, wav

from headrace.batching import CorruptInput, UsageError
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu import cpu_profiling
from headrace.host.dpu.cpu_profiling import measure_cpu
from headrace.sim.hardware.inputs import Audio

PHOTOS = [photo.jpeg for photo in demo_images()[:6]]
SOUNDS = [wav(int16(speechlike(seconds, rate)), rate) for seconds, rate in ((1.0, 16000), (4.0, 44100))]


@pytest.fixture(scope="module")
def measured():
    told = []
    found = measure_cpu(PHOTOS, SOUNDS, "a test", told.append)
    assert [text.split(" on ")[0] for text in told] == ["6 images", "2 recordings"] * 2
    return found


def test_costs_are_those_that_make_the_times_of_the_files(monkeypatch):
    """The times are made up, because a busy machine measures anything."""
    image_s, byte_s, clip_s, second_s, contention = 3e-4, 8e-9, 2e-4, 5e-4, 1.25

    def on_cores(cores, name, kind, files):
        slower = contention if len(cores) == 2 else 1.0
        if kind == "image":
            times = [image_s + byte_s * len(file) for file in files]
        else:
            times = [clip_s + second_s * (len(file) - 44) / 2 / 22050 for file in files]  # 16 bits behind a WAV header
        return slower * np.tile(times, (len(cores), cpu_profiling.ROUNDS, 1))

    monkeypatch.setattr(cpu_profiling, "_on_cores", on_cores)
    monkeypatch.setattr(cpu_profiling.os, "sched_getaffinity", lambda _: {0, 1})
    costs = measure_cpu(PHOTOS, SOUNDS, "a test", lambda _: None).costs
    assert (costs.image.image_s, costs.image.byte_s) == pytest.approx((image_s, byte_s), rel=1e-3)
    assert (costs.audio.clip_s, costs.audio.second_s) == pytest.approx((clip_s, second_s), rel=1e-3)
    assert costs.image.contention == costs.audio.contention == pytest.approx(contention)
    assert costs.seconds(Audio(), np.array([10.0])) == pytest.approx(contention * (clip_s + 10 * second_s), rel=1e-3)


@pytest.mark.slow
def test_contention_is_what_all_cores_take_beside_one(measured):
    for cost, fit in ((measured.costs.image, measured.image), (measured.costs.audio, measured.audio)):
        assert cost.contention >= 1
        assert fit.alone_s > 0 and fit.all_cores_s > 0 and fit.spread >= 0
    assert measured.image.files == 6 and measured.audio.files == 2
    assert measured.cores == len(os.sched_getaffinity(0))


def test_costs_of_each_column_are_found_of_what_they_make():
    work = np.array([[1.0, 1e5, 2e4], [1.0, 2e5, 9e4], [1.0, 4e5, 3e4], [1.0, 1e6, 5e5]])
    costs = [1e-4, 2e-9, 1e-8]
    assert cpu_profiling._solved(work, work @ costs) == pytest.approx(costs)


@pytest.mark.slow
def test_another_library_is_measured_under_its_name():
    found = measure_cpu(PHOTOS[:3], SOUNDS, "a test", lambda _: None, "librosa")
    assert found.costs.label == "librosa" and found.audio.alone_s > 0


class Pipe:
    def send(self, answer):
        self.sent = answer


class Barrier:
    parties = 1

    def wait(self, limit_s):
        pass


def test_what_a_library_refuses_is_sent_to_the_parent_and_nobody_waits():
    pipe = Pipe()
    cpu_profiling._work(pipe, Barrier(), "opencv", "image", [b"no photo"], 0)
    assert isinstance(pipe.sent, UsageError) and "OpenCV decodes no image" in str(pipe.sent)


def test_a_process_measures_every_file_in_every_round():
    pipe = Pipe()
    cpu_profiling._work(pipe, Barrier(), "opencv", "image", PHOTOS[:2], 0)
    assert pipe.sent.shape == (cpu_profiling.ROUNDS, 2) and (pipe.sent >= 0).all()


def test_the_processes_leave_this_ones_cores_as_they_were():
    cores = os.sched_getaffinity(0)
    times = cpu_profiling._on_cores(sorted(cores), "ours", "image", PHOTOS[:1])
    assert times.shape == (len(cores), cpu_profiling.ROUNDS, 1) and (times > 0).all()
    assert os.sched_getaffinity(0) == cores


def test_without_files_and_with_broken_ones_there_is_nothing_to_measure():
    with pytest.raises(UsageError, match="at least one image and one recording"):
        measure_cpu([], SOUNDS, "a test", lambda _: None)
    with pytest.raises(CorruptInput):
        measure_cpu([b"no photo"], SOUNDS, "a test", lambda _: None)
    with pytest.raises(UsageError, match="no preprocessing by 'scipy'; choose from ours, opencv"):
        measure_cpu(PHOTOS, SOUNDS, "a test", lambda _: None, "scipy")
