"""Test `headrace compare`: its output, its files and its exit status."""

import json
from pathlib import Path

import numpy as np
import pytest
from command import headrace_here
from PIL import Image

from headrace.host.compare import curated

CLIP = ("--reference", "transformers:clip-vit-base-patch32")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("inputs").mkdir()
    Path("inputs/a.jpg").write_bytes(curated.IMAGES["jpeg-420.jpg"]())
    Path("inputs/notes.txt").write_text("no input")
    return tmp_path


def compared(*arguments, status):
    done = headrace_here("compare", *arguments)
    assert done.returncode == status, done.stderr
    return done


def test_equal_tensors_give_the_status_0():
    done = compared(*CLIP, "--candidate", "headrace", "--inputs", "inputs", status=0)
    assert done.stdout.startswith("1 of 1 inputs are equal to those of transformers.\n1 inputs: 1 equal, 0 differs")


def test_a_difference_gives_the_status_1_and_both_reports():
    done = compared(
        *CLIP, "--candidate", "dali-like", "--inputs", "inputs", "--json", "r.json", "--html", "r.html", status=1
    )
    assert "The earliest stage that differs is decode." in done.stdout
    assert "the report is in r.html" in done.stderr
    assert json.loads(Path("r.json").read_text())["first"] == {"decode": 1}
    assert "<!doctype html>" in Path("r.html").read_text()


def test_json_on_stdout_is_nothing_but_json():
    done = compared(*CLIP, "--candidate", "opencv", "--inputs", "inputs", "--json", "-", status=1)
    assert json.loads(done.stdout)["differs"] == 1


def test_a_tolerance_lets_rounding_pass():
    Path("inputs/a.jpg").unlink()
    Image.fromarray(np.full((224, 224, 3), 77, np.uint8)).save("inputs/a.png")
    compared(*CLIP, "--candidate", "opencv", "--inputs", "inputs", status=1)
    compared(*CLIP, "--candidate", "opencv", "--inputs", "inputs", "--tolerance", "1e-5", status=0)


def test_an_input_that_fails_is_told_on_stderr():
    Path("mine.py").write_text("def tensors(data):\n    raise ValueError('no')\n")
    done = compared(*CLIP, "--candidate", "mine:tensors", "--inputs", "inputs", status=1)
    assert "a.jpg: failed: mine:tensors: ValueError: no" in done.stderr.splitlines()


def test_the_curated_inputs_are_written():
    done = compared("--write-inputs", "curated", status=0)
    assert done.stdout == "curated: 60 images in images, 20 sounds in sounds\n"
    assert (len(list(Path("curated/images").iterdir())), len(list(Path("curated/sounds").iterdir()))) == (60, 20)


@pytest.mark.parametrize(
    ("arguments", "wording"),
    [
        ((), "--reference is missing; give --reference and --candidate"),
        (CLIP, "--candidate is missing; give --reference and --candidate"),
        ((*CLIP, "--candidate", "opencw"), "--candidate 'opencw': did you mean opencv?"),
        ((*CLIP, "--candidate", "opencv", "--inputs", "missing"), "--inputs missing: No such file or directory"),
        (
            ("--reference", "transformers:./inputs", "--candidate", "opencv"),
            "the folder has no preprocessor_config.json",
        ),
    ],
)
def test_bad_usage_gives_the_status_2_and_one_line(arguments, wording):
    done = compared(*arguments, status=2)
    assert wording in done.stderr and len(done.stderr.splitlines()) == 1 and done.stdout == ""
