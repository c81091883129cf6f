"""What holds for the reproductions of all papers."""

import csv
import json

import pytest
from progress_counter import Counter

from headrace.batching import UsageError
from headrace.sim.experiments.batchmaker import runs as batchmaker
from headrace.sim.experiments.lazybatching import runs as lazybatching
from headrace.sim.experiments.smdp import runs as smdp


@pytest.mark.parametrize("paper", [lazybatching, smdp, batchmaker])
def test_every_figure_has_a_plot_and_its_numbers(paper, reproduced):
    folder, claims = reproduced(paper)
    for name in (f"figure{figure}" for figure in paper.FIGURES if figure != "table1"):
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        with (folder / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) > 3
    table = json.loads((folder / "table.json").read_text())
    assert [(entry["claim"], entry["paper"]) for entry in table] == [(claim.claim, claim.paper) for claim in claims]
    assert len((folder / "table.md").read_text().splitlines()) == len(claims) + 2


@pytest.mark.parametrize(
    ("paper", "figure", "known"),
    [(lazybatching, "4", "3, 5"), (smdp, "3", "4, 5"), (smdp, "table2", "4, 5"), (batchmaker, "4", "3, 7")],
)
def test_an_unknown_figure_is_refused(paper, figure, known, tmp_path):
    with pytest.raises(UsageError, match=f"--figure {figure}: choose from {known}"):
        paper.reproduce([figure], tmp_path, paper.QUICK, Counter())
