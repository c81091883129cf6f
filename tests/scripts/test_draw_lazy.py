"""scripts/draw_lazy.py draws the table of Eq. 2 at the head of lazy.py."""

import runpy
from pathlib import Path

import cv2

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "draw_lazy.py"))


def test_all_rows_of_the_table_are_drawn(tmp_path):
    rows = SCRIPT["ROW"].findall(SCRIPT["example"]())
    assert [(start, stop) for start, stop, *_ in rows] == [
        ("0", "1"),
        ("1", "2"),
        ("2", "3"),
        ("3", "5"),
        ("5", "6"),
        ("6", "9"),
        ("9", "13"),
    ]
    SCRIPT["draw"](tmp_path / "lazy.png")
    assert cv2.imread(str(tmp_path / "lazy.png")).std() > 10
