"""scripts/corpus_jpeg.py on a small folder: files are found, told apart and counted, and a difference is not missed."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest

PIXELS = cv2.GaussianBlur(np.random.default_rng(1).integers(0, 256, (48, 64, 3), np.uint8), (0, 0), 2)


def encoded(suffix: str = ".jpg", *options: int) -> bytes:
    return cv2.imencode(suffix, PIXELS, options)[1].tobytes()


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "deeper").mkdir()
    files = {
        "good.jpg": encoded(),
        "deeper/the same.JPEG": encoded(),
        "deeper/other.jpe": encoded(".jpg", cv2.IMWRITE_JPEG_QUALITY, 40),
        "progressive.jpg": encoded(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        "png.jpg": encoded(".png"),
        "text.jfif": b"no photo",
        "empty.jpg": b"",
        "no.photo": encoded(".jpg", cv2.IMWRITE_JPEG_QUALITY, 30),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.fixture(scope="module")
def corpus_jpeg() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "corpus_jpeg.py"
    spec = importlib.util.spec_from_file_location("corpus_jpeg", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(script: ModuleType, capsys, monkeypatch, *arguments: str) -> tuple[int, dict[str, int]]:
    """The exit status, and the rows of the table by their name, or by the status code at its end."""
    monkeypatch.setattr(sys, "argv", ["corpus_jpeg.py", *arguments])
    status = script.main()
    rows = re.findall(r"^\| (?:refused: .* (?=\())?(.+?) \| (\d+) \|$", capsys.readouterr().out, re.MULTILINE)
    return status, {name: int(count) for name, count in rows}


def test_files_are_taken_once_by_content_and_counted_by_their_outcome(corpus_jpeg, folder, capsys, monkeypatch):
    status, rows = table(corpus_jpeg, capsys, monkeypatch, "--only-given", str(folder))
    assert (status, rows) == (0, {"equal": 3, "(1)": 1, "refused by OpenCV, too": 2, "different": 0, "all": 6})


def test_a_difference_is_counted_and_is_the_exit_status(corpus_jpeg, folder, capsys, monkeypatch):
    opencv = corpus_jpeg.decoded_by_opencv

    def one_level_off(jpeg: bytes) -> np.ndarray | None:
        image = opencv(jpeg)
        if image is not None and jpeg == encoded():
            image[5, 7, 1] ^= 1
        return image

    monkeypatch.setattr(corpus_jpeg, "decoded_by_opencv", one_level_off)
    status, rows = table(corpus_jpeg, capsys, monkeypatch, "--only-given", str(folder))
    assert (status, rows["equal"], rows["different"]) == (1, 2, 1)


def test_without_any_file_it_says_so(corpus_jpeg, tmp_path, capsys, monkeypatch):
    with pytest.raises(SystemExit, match="2"):
        table(corpus_jpeg, capsys, monkeypatch, "--only-given", str(tmp_path))
    assert "no JPEG files found" in capsys.readouterr().err
