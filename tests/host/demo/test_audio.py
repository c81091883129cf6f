import io
import signal
import sys

import numpy as np
import pytest
import soundfile

from headrace.batching import UsageError
from headrace.host.demo.inputs import audio
from headrace.host.demo.inputs.audio import demo_audio, folder_audio, pcm_file, recorded_audio, spoken_audio
from headrace.host.demo.inputs.speaker import Speaker
from headrace.host.dpu.reference.audio_file import pcm
from headrace.host.dpu.specs import RATES, AudioSpec


@pytest.fixture(scope="module")
def spoken():
    return spoken_audio()


def test_the_dpu_can_take_every_spoken_sound_and_all_its_rates_occur(spoken):
    spec = AudioSpec()
    headers = [pcm(clip.data, spec.rates, spec.longest_s) for clip in spoken]
    assert {header.rate for header in headers} == set(RATES) and {header.channels for header in headers} == {1, 2}
    seconds = [header.frames / header.rate for header in headers]
    assert min(seconds) < 2 and 20 < max(seconds) <= 35 and 8 < np.mean(seconds) < 14
    assert len({clip.name for clip in spoken}) == len(spoken)


def test_espeak_speaks_and_not_all_voices_alike(spoken):
    for clip in spoken:
        samples, _ = soundfile.read(io.BytesIO(clip.data), always_2d=True)
        loud = np.abs(samples[:, 0]).reshape(-1)[: len(samples) // 50 * 50].reshape(50, -1).max(1)
        assert loud.max() > 0.2 and (loud > 0.05).mean() > 0.5, clip.name  # speech, with pauses
    with Speaker() as speaker:
        assert speaker.rate == 22050
        high, low = (speaker.say("water", voice, 160) for voice in ("en-US+f3", "en-US"))
        slow = speaker.say("water", "en-US", 80)
    assert len(high) != len(low) or not np.array_equal(high, low)
    assert len(slow) > 1.5 * len(low)


def test_ctrl_c_is_not_lost_in_the_middle_of_a_sentence(monkeypatch, request):
    taken = []

    def take_interrupted(self, *arguments):
        signal.raise_signal(signal.SIGINT)
        taken.append(original(self, *arguments))
        return taken[-1]

    original = Speaker._take
    monkeypatch.setattr(Speaker, "_take", take_interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores the signal
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with Speaker() as speaker, pytest.raises(KeyboardInterrupt):
        speaker.say("water " * 400, "en-US", 160)
    assert taken == [1]  # the speech ended there
    monkeypatch.undo()
    with Speaker() as speaker:
        assert len(speaker.say("water", "en-US", 160)) > 1000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_unknown_voice_is_named():
    with Speaker() as speaker, pytest.raises(UsageError, match="no voice 'nobody'"):
        speaker.say("water", "nobody", 160)


def test_recordings_come_from_the_first_folder_that_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(audio, "RECORDED", (tmp_path / "none", tmp_path))
    with pytest.raises(UsageError, match="alsa-utils"):
        recorded_audio()
    for name in ("Noise", "Front_Left", "Front_Center"):
        (tmp_path / f"{name}.wav").write_bytes(pcm_file(np.zeros(480), 48_000))
    assert [clip.name for clip in recorded_audio()] == ["alsa Front_Center", "alsa Front_Left"]


def test_the_demo_uses_the_sources_that_are_installed_and_reports_the_others(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(audio, "RECORDED", (tmp_path,))
    assert len(demo_audio(lines.append)) == audio.SPOKEN
    assert len(lines) == 1 and "alsa-utils" in lines[0]
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)  # as if it were not installed
    with pytest.raises(UsageError, match="no sounds: run scripts/setup"):
        demo_audio(lines.append)
    (tmp_path / "Front_Left.wav").write_bytes(pcm_file(np.zeros(480), 48_000))
    lines.clear()
    assert [clip.name for clip in demo_audio(lines.append)] == ["alsa Front_Left"]
    assert len(lines) == 1 and "espeak-ng is not installed" in lines[0]


def test_a_folder_of_ones_own_is_taken_in_order_of_name(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("b.wav", "a.FLAC", "notes.txt", "deep/c.wav"):
        (tmp_path / name).write_bytes(b"x")
    assert [clip.name for clip in folder_audio(tmp_path)] == ["a.FLAC", "b.wav", "deep/c.wav"]
    with pytest.raises(UsageError, match="no such folder"):
        folder_audio(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no"):
        folder_audio(tmp_path / "empty")


def test_a_file_written_is_16_bit_pcm_and_clips():
    samples, rate = soundfile.read(io.BytesIO(pcm_file(np.array([0.0, 0.5, 2.0, -2.0]), 8000)), dtype="int16")
    assert rate == 8000 and samples.tolist() == [0, 16384, 32767, -32768]
