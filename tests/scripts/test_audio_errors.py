"""`scripts/audio_errors.py`: errors of speech features by plan and sound."""

import json
import sys

import numpy as np
import pytest


@pytest.fixture
def script(load_script, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    return load_script("audio_errors")


def test_sounds_that_no_test_has_are_marked(script):
    names = set(script.cases.clips())
    assert len([name for name in names if name.endswith(" *")]) == 12 and "voice" in names and "empty" not in names


def test_errors_of_all_three_are_within_the_bounds_and_in_json(script, monkeypatch, tmp_path, capsys):
    sound = (np.arange(-8000, 8000) * 2 / 32768).astype(np.float32)  # as in a file of 16 bits
    monkeypatch.setattr(script.cases, "clips", lambda: {"ramp": sound})
    plans = "qwen3-asr,phi-4,wav2vec2"
    monkeypatch.setattr(sys, "argv", ["audio_errors", "--plans", plans, "--json", str(tmp_path / "out")])
    assert script.main() == 0
    found = json.loads((tmp_path / "out").read_text())
    assert set(found["qwen3-asr"]["ramp"]) == {"transformers", "CPU path", "compute units"}
    assert set(found["wav2vec2"]["ramp"]) == {"transformers", "CPU path"}  # the units do not take it
    for plan in ("qwen3-asr", "phi-4"):
        largest, usual = found[plan]["ramp"]["compute units"]
        assert 0 < usual <= largest < 1e-4
    assert "| ramp | " in capsys.readouterr().out


def test_features_of_another_shape_are_no_small_error(script):
    with pytest.raises(ValueError, match="reshape"):
        script._distance(np.zeros(5), np.zeros((2, 3)))


def test_an_unknown_plan_is_bad_usage(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["audio_errors", "--plans", "wisper"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2 and "no plan 'wisper'; choose from whisper" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_line(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script, "errors", lambda plan: {"ramp": {"transformers": (1e-5, 1e-6)}})
    monkeypatch.setattr(sys, "argv", ["audio_errors", "--json", str(tmp_path / "nowhere" / "out")])
    assert script.main() == 1
    assert "nowhere" in capsys.readouterr().err
