"""The file of measured times of a core, as benchmarks write it and the simulator reads it."""

import csv

import numpy as np

from benchmarks import core_costs
from benchmarks.core_costs import COLUMNS, Cost, write_costs
from headrace.sim.system import processors


def test_measured_processors_take_the_place_of_their_old_times_and_others_stay(tmp_path, monkeypatch):
    file = tmp_path / "costs.csv"
    file.write_text(",".join(COLUMNS) + "\nold,ours,10x10,1,A\nmine,ours,1,7,A\nmine,gone,1,7,A\n")
    monkeypatch.setattr(core_costs, "COSTS", file)
    write_costs([Cost("mine", "ours", "1", 2.0), Cost("mine", "ours", "2", 3.23456)])
    with file.open(newline="") as text:
        old, *mine = csv.DictReader(text)
    assert old == dict(zip(COLUMNS, ("old", "ours", "10x10", "1", "A"), strict=True))
    assert [(row["size"], row["ms"]) for row in mine] == [("1", "2"), ("2", "3.23")]
    assert len({row["machine"] for row in mine} - {"", "A"}) == 1
    monkeypatch.setattr(processors, "COSTS", file)
    processors._costs.cache_clear()
    try:
        assert processors.measured_processors("image") == ["old"]
        assert processors.core_seconds("mine")["ours"](np.array([1.5])) * 1e3 == 2.615
        assert "gone" not in processors.core_seconds("mine")
    finally:
        processors._costs.cache_clear()


def test_every_row_names_its_machine():
    with processors.COSTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS and all(row["machine"] for row in rows)
