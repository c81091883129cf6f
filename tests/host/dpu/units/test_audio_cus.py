"""The DPU driver on audio: both CUs of the emulated device, the buffer between them, and their faults."""

import asyncio
import itertools
import math
import threading
import time

import containers
import numpy as np
import pytest
import scipy.signal
from sounds import int16, speechlike, wav, written
from stopped_clock import StoppedClock, turns_until

from headrace.batching import BadInput, CorruptInput, UnsupportedInput, UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.host.dpu import driver
from headrace.host.dpu.driver import Dpu, DpuUnavailable
from headrace.host.dpu.preprocessor import Fallback
from headrace.host.dpu.reference import audio, resampling
from headrace.host.dpu.specs import AudioSpec, AudioStage, Ends, Floor, Lengths, Rescale, Statistics
from headrace.host.dpu.units import cu
from headrace.host.dpu.units.audio_cu import MelCu, NormCu
from headrace.host.dpu.units.status import Status
from headrace.host.xrt import emulation
from headrace.host.xrt.faults import Fault, FaultKind

SPEC = AudioSpec()
WHISPER = {"feature_extractor_type": "WhisperFeatureExtractor"}
SOUNDS = [wav(int16(speechlike(0.3 + 0.2 * i, 16000, i)), 16000) for i in range(6)]


@pytest.fixture(scope="session")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "audio.xclbin"
    build_sw_emu(path, image_cus=0, mel_cus=2, norm_cus=2)
    return path


@pytest.fixture(scope="session")
def hw_xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "audio.hw_emu.xclbin"
    containers.hw_emu(path, image_cus=0, mel_cus=1, norm_cus=1)
    return path


def with_dpu(xclbin, body, spec=SPEC, fault=None, **settings):

    async def run():
        async with Dpu(xclbin, spec, **{"probe_after_s": math.inf, **settings}) as dpu:  # what is lost stays so
            if fault is not None:
                emulation.inject(emulation.device(0), fault)
            return await body(dpu)

    return asyncio.run(run())


def close(tensor, data, spec=SPEC, atol=2e-3):
    """Check that the tensor is close to the CPU's, as far as fixed point allows."""
    reference = audio.preprocess(data, spec)
    assert tensor.shape == reference.shape and tensor.dtype == reference.dtype
    return np.allclose(tensor, reference, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_concurrent_requests_get_their_own_tensors(xclbin, dtype):
    spec = AudioSpec(dtype=dtype)

    async def body(dpu):
        tensors = await asyncio.gather(*(dpu.preprocess(sound) for sound in SOUNDS * 3))
        for sound, tensor in zip(SOUNDS * 3, tensors, strict=True):
            assert close(tensor, sound, spec, 4e-3)
        assert dpu.counters.done == 18 and dpu.counters.on_cpu == 0

    with_dpu(xclbin, body, spec)


@pytest.mark.parametrize("rate", SPEC.rates)
def test_sounds_of_every_rate_follow_each_other(xclbin, rate):
    """Rates, and with them the taps, change from request to request. The reference has the same FIR."""
    samples = int16(np.stack([speechlike(0.4, rate, seed) for seed in (1, 2)], 1))

    async def body(dpu):
        resampled = (await dpu.process(wav(samples, rate), AudioStage.RESAMPLE)).tensor
        up, down = 16000 // np.gcd(16000, rate), rate // np.gcd(16000, rate)
        taps = resampling.taps(rate, SPEC.rate)
        skip = -(len(taps) // 2) % down  # zeros in front, so that an output lies on the middle
        exact = scipy.signal.upfirdn(np.pad(taps, (skip, 0)), samples.sum(1) / 65536, up, down)
        exact = exact[(skip + len(taps) // 2) // down :]
        assert resampled.shape == (SPEC.resampled(len(samples), rate),)
        np.testing.assert_allclose(resampled, exact[: len(resampled)], atol=2e-5)
        done = await dpu.process(SOUNDS[0])
        assert close(done.tensor, SOUNDS[0]) and done.source_samples == 4800

    with_dpu(xclbin, body)


@pytest.mark.parametrize("rate", SPEC.rates)
def test_the_cpu_gives_what_the_units_give_at_every_rate(xclbin, rate):
    """The results are equal within rounding, so it does not matter which path an input took. The noise reaches the
    filter's edge."""
    noise = 0.01 * np.random.default_rng(3).standard_normal(rate)
    data = wav(int16(speechlike(1, rate) + noise), rate)

    async def body(dpu):
        bounds = {
            AudioStage.RESAMPLE: (2e-7, 2.0**-20),
            AudioStage.MEL: (2e-4, 3e-3),
            AudioStage.NORMALIZE: (2e-4, 5e-3),
        }
        for stage, (rms, largest) in bounds.items():
            done = await dpu.process(data, stage)
            error = done.tensor.astype(np.float64) - audio.preprocess(data, SPEC, stage)
            assert done.unit != "cpu" and np.sqrt(np.square(error).mean()) < rms and np.abs(error).max() < largest

    with_dpu(xclbin, body)


@pytest.mark.parametrize("stage", AudioStage)
def test_each_stage_gives_what_the_cpu_gives(xclbin, stage):
    async def body(dpu):
        done = await dpu.process(SOUNDS[1], stage)
        reference = audio.preprocess(SOUNDS[1], SPEC, stage)
        assert done.tensor.shape == reference.shape and done.tensor.dtype == reference.dtype
        np.testing.assert_allclose(done.tensor, reference, atol=2e-3)
        kinds = [run.unit.rpartition("_")[0] for run in done.runs]
        assert kinds == ["audio_mel_cu", "audio_norm_cu"][: 1 + (stage == AudioStage.NORMALIZE)]
        assert done.unit == ", ".join(run.unit for run in done.runs) and done.dpu_status == "OK"

    with_dpu(xclbin, body)


def test_one_cu_works_on_a_request_while_the_other_has_the_one_before(xclbin):
    """There is one CU of each kind, as in Figure 12 of PREBA."""
    long = wav(int16(speechlike(3, 16000)), 16000)

    async def body(dpu):
        done = await asyncio.gather(*(dpu.process(long) for _ in range(6)))
        by_unit: dict = {}
        for one in done:
            for run in one.runs:
                by_unit.setdefault(run.unit, []).append((run.started, run.finished))
        assert len(by_unit) == 4
        for runs in by_unit.values():  # one at a time
            runs.sort()
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))
        mel = [run for unit, runs in by_unit.items() if "mel" in unit for run in runs]
        norm = [run for unit, runs in by_unit.items() if "norm" in unit for run in runs]
        assert any(a[0] < b[1] and b[0] < a[1] for a in mel for b in norm), "nothing overlaps"

    with_dpu(xclbin, body)


def test_what_the_dpu_cannot_take_is_done_on_the_cpu_and_counted(xclbin):
    flac = written(speechlike(0.5, 22050), 22050, "FLAC", "PCM_16")
    wide = written(speechlike(0.5, 16000), 16000, "WAV", "PCM_24")
    odd = wav(int16(speechlike(0.5, 12000)), 12000)
    cases = {flac: Status.NOT_WAV, wide: Status.SOUND_FORMAT, odd: Status.RATE}

    async def body(dpu):
        for data, status in cases.items():
            done = await dpu.process(data)
            assert done.unit == "cpu" and done.dpu_status == status.name and not done.runs
            assert np.array_equal(done.tensor, audio.preprocess(data, SPEC))
        assert dpu.counters.unsupported == dict.fromkeys(cases.values(), 1) and dpu.counters.on_cpu == 3

    with_dpu(xclbin, body)


def test_a_rate_that_the_spec_leaves_out_is_not_for_the_dpu(xclbin):
    spec = AudioSpec(rates=(44100,))
    slow = wav(int16(speechlike(0.5, 8000)), 8000)

    async def body(dpu):
        for data in (SOUNDS[0], slow):
            done = await dpu.process(data)
            assert done.unit == "cpu" and done.dpu_status == "RATE"

    with_dpu(xclbin, body, spec)


def test_without_fallback_it_is_refused_with_the_reason(xclbin):
    async def body(dpu):
        with pytest.raises(UnsupportedInput, match="CHANNELS: neither mono nor stereo"):
            await dpu.preprocess(wav(np.zeros((100, 3), np.int16), 16000))

    with_dpu(xclbin, body, fallback=Fallback.RAISE)


def test_what_nobody_can_take_is_refused_with_what_to_change(xclbin):
    async def body(dpu):
        for data, status in ((b"", "NOT_WAV"), (b"text", "NOT_WAV"), (SOUNDS[0][:40], "TRUNCATED")):
            with pytest.raises(CorruptInput, match=status):
                await dpu.preprocess(data)
        with pytest.raises(BadInput, match="at most 35 s"):
            await dpu.preprocess(wav(np.zeros(36 * 16000, np.int16), 16000))

    with_dpu(xclbin, body)


def whisper_errors(found, data, spec) -> tuple[float, float]:
    """Return the greatest difference to the CPU path, and that of 99.9 % of the values."""
    expected = audio.preprocess(data, spec)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    off = np.abs(found.astype(np.float64) - expected)
    return off.max(), np.quantile(off, 0.999)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "change", [{"feature_size": 128, "chunk_length": 5}, {"feature_size": 80, "chunk_length": 10}], ids=str
)
def test_features_of_whisper_are_the_cpus_within_its_bounds(xclbin, change):
    """Sounds are quiet, loud, short, longer than a chunk, of other rates, and none at all."""
    spec = AudioSpec.from_hf(WHISPER | change)
    speech = speechlike(change["chunk_length"] + 1, 16000)
    sounds = {
        "speech": wav(int16(speech[:40000]), 16000),
        "long": wav(int16(speech), 16000),
        "quiet": wav(int16(speech[:30000] / 1000), 16000),
        "square": wav(np.where(np.arange(20000) % 160 < 80, 32767, -32768).astype(np.int16), 16000),
        "click": wav(np.where(np.arange(20000) == 9121, 30000, 0).astype(np.int16), 16000),
        "stereo": wav(int16(np.stack([speechlike(1, 44100, seed) for seed in (1, 2)], 1)), 44100),
        "8 kHz": wav(int16(speechlike(1, 8000)), 8000),
        "silence": wav(np.zeros(5000, np.int16), 16000),
        "a sample": wav(np.full(1, 20000, np.int16), 16000),
        "none": wav(np.zeros(0, np.int16), 16000),
    }

    async def body(dpu):
        for name, data in sounds.items():
            done = await dpu.process(data)
            assert done.unit != "cpu" and done.dpu_status == "OK" and done.refused is None
            assert done.tensors["input_features"] is done.tensor
            greatest, usual = whisper_errors(done.tensor, data, spec)
            print(f"{name:10} {greatest:.1e} {usual:.1e}")
            bounds = (1e-4, 2e-5) if name not in ("stereo", "8 kHz") else (2e-3, 1e-3)  # samples are rounded to 2^-21
            assert greatest < bounds[0] and usual < bounds[1], name
        mel = (await dpu.process(sounds["speech"], AudioStage.MEL)).tensor
        assert np.abs(mel - audio.preprocess(sounds["speech"], spec, AudioStage.MEL)).max() < 1e-3
        assert dpu.counters.on_cpu == 0

    with_dpu(xclbin, body, spec)


def test_a_sound_without_a_frame_is_refused_before_a_cu_runs(xclbin):
    spec = AudioSpec(ends=Ends.INSIDE, normalize_over="all")

    async def body(dpu):
        with pytest.raises(BadInput, match="a frame takes 400"):
            await dpu.preprocess(wav(np.zeros(399, np.int16), 16000))
        data = wav(int16(speechlike(1, 16000)), 16000)
        assert close(await dpu.preprocess(data), data, spec) and dpu.counters.done == 1

    with_dpu(xclbin, body, spec)


KALDIS = {
    "seamless": {"feature_extractor_type": "SeamlessM4TFeatureExtractor"},
    "w2v-bert": {"feature_extractor_type": "SeamlessM4TFeatureExtractor", "padding_value": 1.0},
    "speech2text": {"feature_extractor_type": "Speech2TextFeatureExtractor"},
    "ast": {"feature_extractor_type": "ASTFeatureExtractor", "max_length": 200},
    "phi-4": {"feature_extractor_type": "Phi4MultimodalFeatureExtractor"},
}


@pytest.mark.parametrize("name", KALDIS)
def test_features_of_kaldis_plans_are_the_cpus_within_their_bounds(xclbin, name):
    spec = AudioSpec.from_hf(KALDIS[name])
    speech = speechlike(1.5, 16000)
    sounds = {
        "speech": wav(int16(speech), 16000),
        "quiet": wav(int16(speech[:15000] / 1000), 16000),
        "noise": wav(int16(np.random.default_rng(2).normal(0, 0.1, 8000)), 16000),
        "odd frames": wav(int16(speech[: 400 + 160 * 8]), 16000),
        "a frame": wav(int16(speech[:400]), 16000),
        "silence": wav(np.zeros(5000, np.int16), 16000),
        "stereo": wav(int16(np.stack([speechlike(1, 44100, seed) for seed in (1, 2)], 1)), 44100),
    }

    async def body(dpu):
        for sound, data in sounds.items():
            done = await dpu.process(data)
            assert done.unit != "cpu" and done.dpu_status == "OK" and done.refused is None
            expected, tensors = audio.process(data, spec)
            extras = [name for name, _ in spec.tensors.extras]
            assert all(np.array_equal(done.tensors[extra], tensors[extra]) for extra in extras)
            off = np.abs(done.tensor.astype(np.float64) - expected)
            assert done.tensor.shape == expected.shape and done.tensor.dtype == expected.dtype
            assert done.tensor.flags.c_contiguous
            print(f"{sound:10} {off.max():.1e} {np.quantile(off, 0.999):.1e}")
            bounds = (1e-4, 2e-5) if sound != "stereo" else (1e-2, 2e-3)  # samples are rounded to 2^-21
            assert off.max() < bounds[0] and np.quantile(off, 0.999) < bounds[1], sound
        mel = (await dpu.process(sounds["speech"], AudioStage.MEL)).tensor
        expected = audio.preprocess(sounds["speech"], spec, AudioStage.MEL)
        assert mel.shape == expected.shape and np.quantile(np.abs(mel - expected), 0.99) < 1e-3
        assert dpu.counters.on_cpu == 0

    with_dpu(xclbin, body, spec)


def test_a_sound_without_a_frame_whose_features_are_padding_goes_to_the_cpu(xclbin):
    spec = AudioSpec.from_hf(KALDIS["ast"])
    data = wav(np.zeros(399, np.int16), 16000)

    async def body(dpu):
        done = await dpu.process(data)
        assert done.unit == "cpu" and "shorter than a frame" in done.refused
        assert np.array_equal(done.tensor, audio.process(data, spec)[0])

    with_dpu(xclbin, body, spec)


@pytest.mark.parametrize("samples", [0, 1, 159, 160, 161, 400, 512])
def test_short_sounds_are_done_on_the_dpu(xclbin, samples):
    data = wav(int16(speechlike(1, 16000))[:samples], 16000)

    async def body(dpu):
        assert close(await dpu.preprocess(data), data, atol=5e-3) and dpu.counters.done == 1

    with_dpu(xclbin, body)


KALDI = {
    "ends": Ends.INSIDE,
    "normalize_over": "all",
    "remove_mean": True,
    "preemphasis_per_frame": True,
    "floor": Floor.LEAST,
}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rate": 8000}, "8000, 512, 400, 160"),
        ({"n_fft": 1024}, "16000, 1024"),
        ({"gain": 32768.0}, "log_floor is .* of samples without gain"),
        ({"remove_mean": True}, "remove_mean follows the preemphasis"),
        ({"remove_mean": True, "preemphasis": 0.0}, "remove_mean is True, and ends is zeros"),
        ({"preemphasis_per_frame": True}, "preemphasis_per_frame is True, and ends is zeros"),
        (KALDI | {"lengths": Lengths(least=500)}, "remove_mean is True, and lengths"),
        (KALDI | {"lengths": Lengths(frames=9)}, "lengths.frames is 9; the DPU has it only if"),
        (KALDI | {"gain": 1e-30}, "log_floor is .* e.-32 to e.32"),
        ({"floor": Floor.LEAST, "log_floor": 1e-20}, r"log_floor is 1e-20; the DPU takes e\^-32"),
        ({"normalize": Statistics(variance_floor=1e-3)}, r"variance_floor is 0\.001"),
        ({"normalize": Rescale(factor=-1.0), "normalize_over": "all"}, "a factor of"),
        ({"normalize": Rescale(factor=0.001), "normalize_over": "all"}, "a factor of"),
        ({"normalize": Rescale(offset=40.0), "normalize_over": "all"}, "an offset between"),
        ({"lengths": Lengths(frames=100)}, "lengths.frames is 100"),
        ({"lengths": Lengths(samples=20_000_000)}, "lengths are"),
        ({"window": 320}, "512, 320"),
        ({"hop": 100}, "400, 100"),
        ({"n_mels": 81}, "n_mels is 81"),
        ({"n_mels": 132}, "n_mels is 132"),
        ({"log_floor": 0.5}, r"log_floor is 0\.5"),
        ({"std_floor": 1e-20}, "std_floor is 1e-20"),
    ],
)
def test_a_spec_that_the_hardware_cannot_do_is_refused_with_what_to_change(xclbin, change, text):
    with pytest.raises(UsageError, match=text):
        Dpu(xclbin, AudioSpec(**change))


@pytest.mark.parametrize("cu", ["audio_mel_cu_2", "audio_norm_cu_1"])
@pytest.mark.parametrize("kind", [FaultKind.HANG, FaultKind.ERROR])
def test_a_failing_unit_goes_out_of_service_and_its_run_to_another(xclbin, kind, cu):
    async def body(dpu):
        tensors = await asyncio.gather(*(dpu.preprocess(sound) for sound in SOUNDS))
        assert all(close(tensor, sound) for sound, tensor in zip(SOUNDS, tensors, strict=True))
        assert list(dpu.out_of_service) == [cu] and dpu.counters.retried == 1
        assert dpu.counters.done == 6 and dpu.counters.on_cpu == 0
        assert [state.name for state in dpu.states() if state.lost] == [cu]

    with_dpu(xclbin, body, fault=Fault(kind, cu=cu), timeout_s=2.0)


@pytest.mark.parametrize("kernel", ["mel", "norm"])
def test_with_no_unit_of_a_kind_left_requests_go_to_the_cpu(xclbin, kernel):
    async def body(dpu):
        for number in (1, 2):
            fault = Fault(FaultKind.ERROR, cu=f"audio_{kernel}_cu_{number}")
            emulation.inject(emulation.device(0), fault)
        tensors = await asyncio.gather(*(dpu.preprocess(sound) for sound in SOUNDS))
        assert all(
            np.array_equal(tensor, audio.preprocess(sound, SPEC)) for sound, tensor in zip(SOUNDS, tensors, strict=True)
        )
        assert len(dpu.out_of_service) == 2 and dpu.counters.on_cpu == 6

    with_dpu(xclbin, body, timeout_s=2.0)


def test_callers_that_give_up_leave_nothing_behind(xclbin):
    async def body(dpu):
        for wait in (0.0, 0.002, 0.02, 0.06):
            callers = [asyncio.create_task(dpu.preprocess(sound)) for sound in SOUNDS]
            await asyncio.sleep(wait)
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)
        tensors = await asyncio.gather(*(dpu.preprocess(sound) for sound in SOUNDS * 2))
        assert all(close(tensor, sound) for sound, tensor in zip(SOUNDS * 2, tensors, strict=True))
        assert not dpu.out_of_service and not any(state.busy for state in dpu.states())

    with_dpu(xclbin, body)


def test_however_many_requests_wait_there_are_no_more_buffers_than_units(xclbin, monkeypatch):
    """The bound also holds when requests wait for the second unit."""
    made = []
    buffer, run = MelCu._buffer, NormCu.run
    monkeypatch.setattr(MelCu, "_buffer", lambda cu, *given, **more: made.append(more) or buffer(cu, *given, **more))
    monkeypatch.setattr(NormCu, "run", lambda *given: time.sleep(0.1) or run(*given))

    async def body(dpu):
        await asyncio.gather(*(dpu.preprocess(SOUNDS[0]) for _ in range(20)))
        assert 2 < made.count({"argument": 1}) <= len(dpu.cus)

    with_dpu(xclbin, body)


def test_a_close_ends_runs_and_waits_at_once(xclbin, monkeypatch):
    """The runs hang and the clock stands still, so that only the close can end them."""
    clock = StoppedClock()
    for module in (cu, driver):
        monkeypatch.setattr(module, "time", clock)

    async def body(dpu):
        calls = [asyncio.create_task(dpu.preprocess(sound)) for sound in SOUNDS]
        await clock.waited_for(threads=2)
        dpu.close()
        assert max(await turns_until(*calls)) <= 10
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert {(type(error), str(error)) for error in ended} == {(DpuUnavailable, "the driver was closed")}
        assert not [one for one in threading.enumerate() if one.name.startswith(("dpu", "cpu-preprocessor"))]

    with_dpu(xclbin, body, fault=Fault(FaultKind.HANG, times=4), timeout_s=30.0)


def test_a_container_without_audio_units_is_refused(vadd_xclbin, tmp_path):
    with pytest.raises(UsageError, match="no audio_mel_cu"):
        Dpu(vadd_xclbin, SPEC)


@pytest.mark.slow
def test_on_hw_emu_features_of_whisper_are_the_same_with_clocks_counted(hw_xclbin, xclbin):
    """A sound of half a chunk, and one that is cut."""
    spec = AudioSpec.from_hf(WHISPER | {"chunk_length": 1})
    files = [SOUNDS[0], wav(int16(speechlike(1.3, 16000)), 16000)]

    async def body(dpu):
        return await asyncio.gather(*(dpu.process(data) for data in files))

    for cpp, rtl in zip(with_dpu(xclbin, body, spec), with_dpu(hw_xclbin, body, spec), strict=True):
        assert np.array_equal(cpp.tensor, rtl.tensor) and cpp.dpu_status == rtl.dpu_status == "OK"
        assert rtl.counters["mel_cycles"] <= 1.3 * 1.05 * 16000 + 2000


@pytest.mark.slow
def test_on_hw_emu_it_is_the_same_with_clocks_counted(hw_xclbin, xclbin):
    spec = AudioSpec(dtype="float16")
    stereo = wav(np.stack([int16(speechlike(0.2, 44100, seed)) for seed in (1, 2)], 1), 44100)
    files = [SOUNDS[0], stereo, SOUNDS[1], written(speechlike(0.1, 16000), 16000, "WAV", "FLOAT")]

    async def body(dpu):
        return await asyncio.gather(*(dpu.process(data) for data in files))

    emulated = with_dpu(xclbin, body, spec)
    clocked = with_dpu(hw_xclbin, body, spec)
    for cpp, rtl in zip(emulated, clocked, strict=True):
        assert np.array_equal(cpp.tensor, rtl.tensor) and cpp.dpu_status == rtl.dpu_status
        assert cpp.counters is None
    *sounds, refused = clocked
    for done in sounds:
        assert done.counters["cycles"] == done.counters["mel_cycles"] + done.counters["norm_cycles"]
    assert sounds[0].counters["mel_cycles"] <= 1.05 * 4800 + 2000
    assert sounds[0].counters["norm_cycles"] <= 2 * sounds[0].tensor.size + 1000
    assert refused.unit == "cpu" and refused.dpu_status == "SOUND_FORMAT"
