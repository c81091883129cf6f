"""scripts/draw_lazy.py draws the table at the head of lazy.py."""

import runpy
from pathlib import Path

import cv2

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "draw_lazy.py"))


def test_all_rows_of_the_table_are_drawn(tmp_path):
    table = (ROOT / "batching" / "policies" / "lazy.py").read_text()
    rows = SCRIPT["ROW"].findall(table)
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
