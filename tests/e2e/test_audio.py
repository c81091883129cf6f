"""`headrace preprocess audio` and `headrace demo --audio`, as a user meets them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command import headrace, headrace_here
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from headrace.host.demo.inputs.audio import AudioClip, pcm_file, spoken_audio
from headrace.host.demo.inputs.prepared_audio import by_definition
from headrace.host.dpu.reference import audio
from headrace.host.dpu.reference.audio_file import pcm
from headrace.host.dpu.specs import NORMALIZE_OVER, RATES, AudioSpec, AudioStage

SPEECH = Path(__file__).parents[2] / "examples/speech.wav"  # 16 kHz
NETWORK = """
import torch
from headrace.host.dpu.specs import AudioSpec

class Means(torch.nn.Module):
    transform = AudioSpec()
    input_shape = "features=80x1..3501,lengths=scalar:int64"

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.head = torch.nn.Linear(80, 5)

    def forward(self, features, lengths):
        valid = torch.arange(features.shape[2]) < lengths[:, None]
        return self.head((features * valid[:, None]).sum(2) / lengths[:, None])

def net():
    return Means().eval()
"""


@pytest.fixture(scope="session")
def xclbin(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("xclbin") / "audio.xclbin"
    done = headrace("build", "--image-cus", "0", "--mel-cus", "1", "--norm-cus", "1", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="session")
def spoken() -> list[AudioClip]:
    """At 16 and 44.1 kHz, none of them long."""
    short = [sound for sound in spoken_audio() if len(sound.data) < 500_000]
    rates = {pcm(sound.data, RATES, 35.0).rate: sound for sound in short}
    return [rates[16_000], rates[44_100]]


@pytest.mark.quick(1)
@pytest.mark.parametrize("stage", ["resample", "mel", "normalize"])
def test_preprocess_writes_each_stage(stage, xclbin, spoken, tmp_path):
    files = []
    for number, sound in enumerate(spoken):
        files.append(tmp_path / f"{number}.wav")
        files[-1].write_bytes(sound.data)
    done = headrace("preprocess", "audio", *files, "--xclbin", xclbin, "--stage", stage, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["stage"] == stage
    for sound, file, outcome in zip(spoken, files, report["files"], strict=True):
        header, array = pcm(sound.data, RATES, 35.0), np.load(tmp_path / f"{file.stem}.npy")
        assert list(outcome)[:8] == ["file", "output", "shape", "dtype", "unit", "dpu_status", "error", "samples"]
        assert outcome["samples"] == header.frames and outcome["dpu_status"] == "OK" and outcome["error"] is None
        assert "audio_mel_cu" in outcome["unit"] and ("audio_norm_cu" in outcome["unit"]) == (stage == "normalize")
        assert outcome["shape"] == list(array.shape) and outcome["dtype"] == str(array.dtype) == "float32"
        on_cpu = audio.preprocess(sound.data, AudioSpec(), AudioStage[stage.upper()])
        assert array.shape == on_cpu.shape
        if stage == "normalize":
            assert by_definition(sound.data, AudioSpec()).errors(array)[0] < 1e-3
        elif header.rate == 16_000:
            assert np.abs(array - on_cpu).max() < (1e-6 if stage == "resample" else 5e-2)


@pytest.mark.parametrize("rule", NORMALIZE_OVER)
def test_preprocess_normalizes_over_the_frames_that_it_is_told(rule, xclbin, tmp_path):
    file = tmp_path / "noise.wav"
    file.write_bytes(pcm_file(0.1 * np.random.default_rng(1).standard_normal(8_000), 16_000))
    options = ("--xclbin", xclbin, "--normalize-over", rule, "--out", tmp_path)
    assert headrace("preprocess", "audio", file, *options).returncode == 0
    expected = audio.preprocess(file.read_bytes(), AudioSpec(normalize_over=rule))
    assert np.abs(np.load(tmp_path / "noise.npy") - expected).max() < 5e-3
    assert (not expected[:, -1].any()) == (rule == "nemo")


def test_preprocess_resamples_with_soxr_on_request(xclbin, tmp_path):
    """On the CPU: the DPU does not take FLAC."""
    file = tmp_path / "noise.flac"
    soundfile.write(file, 0.1 * np.random.default_rng(1).standard_normal(24_000), 48_000)
    command = ("preprocess", "audio", file, "--xclbin", xclbin, "--stage", "resample", "--out", tmp_path)
    for arguments, resampler in (((), "fir"), (("--resampler", "soxr"), "soxr")):
        assert headrace(*command, *arguments).returncode == 0
        expected = audio.preprocess(file.read_bytes(), AudioSpec(resampler=resampler), AudioStage.RESAMPLE)
        assert np.array_equal(np.load(tmp_path / "noise.npy"), expected)


def test_a_bad_file_gives_its_reason_and_the_others_succeed(xclbin, tmp_path):
    (tmp_path / "good.wav").write_bytes(pcm_file(np.zeros(1600), 16_000))
    (tmp_path / "text.wav").write_text("no sound")
    soundfile.write(tmp_path / "float.wav", np.zeros(1600), 16_000, subtype="FLOAT")
    soundfile.write(tmp_path / "good.flac", np.zeros(1600), 16_000)
    files = [tmp_path / name for name in ("good.wav", "missing.wav", "text.wav", "float.wav", "good.flac")]
    arguments = ("preprocess", "audio", *files, "--xclbin", xclbin, "--out", tmp_path / "npy", "--json")
    done = headrace(*arguments)
    assert done.returncode == 1
    outcomes = {Path(outcome["file"]).name: outcome for outcome in json.loads(done.stdout)["files"]}
    assert outcomes["good.wav"]["error"] is None and outcomes["good.wav"]["shape"] == [80, 11]
    assert "No such file" in outcomes["missing.wav"]["error"] and outcomes["missing.wav"]["samples"] is None
    assert outcomes["text.wav"]["error"]
    for name in ("float.wav", "good.flac"):
        assert outcomes[name]["unit"] == "cpu" and outcomes[name]["samples"] == 1600 and not outcomes[name]["error"]
    assert outcomes["float.wav"]["dpu_status"] == "SOUND_FORMAT" and outcomes["good.flac"]["dpu_status"] == "NOT_WAV"
    assert Path(outcomes["good.flac"]["output"]).name == "good-2.npy"
    refused = headrace(*arguments, "--fallback", "raise")
    outcomes = {Path(outcome["file"]).name: outcome for outcome in json.loads(refused.stdout)["files"]}
    assert "SOUND_FORMAT" in outcomes["float.wav"]["error"] and "NOT_WAV" in outcomes["good.flac"]["error"]


def test_what_the_units_cannot_do_is_told_before_any_are_built(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    done = headrace(
        "preprocess",
        "audio",
        Path(__file__).parents[2] / "examples" / "speech.wav",
        "--out",
        tmp_path / "out",
        "--mels",
        "81",
    )
    assert done.returncode == 2 and "multiples of 4 from 4 to 128" in done.stderr
    assert not cache.exists()


def demo_on(folder: Path, sounds: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    (folder / "own.py").write_text(NETWORK)
    points = [{"batch": b, "latency_s": 0.01 + 0.001 * b, "throughput_rps": b / (0.01 + 0.001 * b)} for b in (1, 2, 4)]
    profile = {"version": 1, "model": "own:net", "workers": 1, "points": points, "machine": {}}
    (folder / "profile.json").write_text(json.dumps(profile))
    command = [sys.executable, "-c", "from headrace.host.cli.main import main; main()", "demo", "--audio", str(sounds)]
    command += ["--model", "own:net", "--workers", "1", "--profile", "profile.json", "--out", "out", "--json"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=200, cwd=folder)


@pytest.fixture
def sounds(spoken, tmp_path) -> Path:
    folder = tmp_path / "sounds"
    folder.mkdir()
    for number, sound in enumerate(spoken):
        (folder / f"{number}.wav").write_bytes(sound.data)
    soundfile.write(folder / "a.flac", np.zeros(16_000), 16_000)
    (folder / "text.wav").write_text("no sound")
    return folder


@pytest.mark.slow
def test_the_demo_serves_sounds_under_every_policy_and_names_those_it_cannot(sounds, tmp_path):
    done = demo_on(tmp_path, sounds, ["--requests", "12", "--rate-rps", "20", "--preprocessors", "beforehand,cpu"])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [run["name"] for run in report["runs"]] == ["beforehand + serial", "beforehand + preba", "cpu + preba"]
    assert set(report["skipped"]) == {"text.wav"} and report["sounds"] == 3 and report["audio_cus"] == []
    for run in report["runs"]:
        assert (run["requests"], run["finished"], run["failed"]) == (12, 12, 0)
        assert run["tensors_compared"] == (12 if run["preprocessor"] == "cpu" else 0)
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.timed  # CU B's runs lie beside CU A's only if nobody else keeps the cores for as long as all of them take
@pytest.mark.slow
def test_the_demo_runs_sounds_through_both_cus_and_its_trace_shows_them(xclbin, sounds, tmp_path):
    for sound in list(sounds.glob("?.wav")):
        for number in range(4):  # one pair of neighbours may miss each other
            shutil.copy(sound, sounds / f"{sound.stem}-{number}.wav")
    arguments = ["--requests", "22", "--preprocessors", "beforehand,dpu", "--xclbin", str(xclbin)]
    done = demo_on(tmp_path, sounds, arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    accuracy = report["models"]["own:net"]["accuracy"]
    assert accuracy["on_dpu"] == accuracy["good"] == 10 and accuracy["largest_rms"] < 1e-3
    assert accuracy["unsupported"] == {"NOT_WAV": 1} and len(report["audio_cus"]) == 2
    by_name = {run["name"]: run for run in report["runs"]}
    run = by_name["dpu + preba"]
    assert run["finished"] == run["tensors_compared"] == 22 and run["preprocessed_on_cpu"] == 2
    assert run["overlap"]["mel_s"] > run["overlap"]["norm_s"] > 0 and by_name["beforehand + preba"]["overlap"] is None
    together = report["models"]["own:net"]["all_at_once"]
    assert together["overlap"]["both_s"] > 0 and together["together_s"] > 0
    trace = Trace.FromString((tmp_path / "out" / "trace.pftrace").read_bytes())
    names = {packet.track_descriptor.name for packet in trace.packet if packet.HasField("track_descriptor")}
    assert any("audio_mel_cu" in name for name in names) and any("audio_norm_cu" in name for name in names)
    assert "all sounds at once" in names
    assert "emulated" in report["note"]
    assert "no traced network 'own:net'" in report["simulated"]["left_out"]


def test_photos_and_sounds_are_not_mixed_up(tmp_path):
    for arguments, wording in (
        ((tmp_path,), "give --audio too"),
        (("--audio", "--images", tmp_path), "--audio and --images"),
        (("--audio", tmp_path), "holds no .wav or .flac"),
        (("--audio", tmp_path / "missing"), "No such file"),
    ):
        done = headrace_here("demo", *arguments)
        assert done.returncode == 2 and wording in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_hw_emu_tells_the_clocks_and_gives_the_same_bytes(xclbin, tmp_path):
    container = tmp_path / "hw.xclbin"
    counts = ("--image-cus", "0", "--mel-cus", "1", "--norm-cus", "1")
    done = headrace("build", "--target", "hw_emu", *counts, "-o", container, timeout=900)
    assert done.returncode == 0, done.stderr
    arrays = []
    for each in (xclbin, container):
        done = headrace("preprocess", "audio", SPEECH, "--xclbin", each, "--out", tmp_path, "--json")
        assert done.returncode == 0, done.stderr
        arrays.append(np.load(tmp_path / "speech.npy"))
    outcome = json.loads(done.stdout)["files"][0]
    counters = outcome["counters"]
    assert np.array_equal(*arrays) and outcome["dpu_status"] == "OK"
    assert outcome["cycles"] == counters["cycles"] == counters["mel_cycles"] + counters["norm_cycles"]
    assert counters["mel_cycles"] <= 1.05 * outcome["samples"] + 2000  # at 16 kHz
    assert counters["norm_cycles"] <= 2 * arrays[0].size
