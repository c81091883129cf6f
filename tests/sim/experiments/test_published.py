"""The tables in sim/experiments/*/results are those that `headrace reproduce` writes."""

import random
from pathlib import Path

import pytest
from experiment_names import PAPERS
from progress_counter import Counter

from headrace.sim.experiments.experiment import named
from headrace.sim.experiments.reproduce import reproduce

EXPERIMENTS = Path(__file__).parents[3] / "sim" / "experiments"


def published(name: str) -> list[tuple[str, str, str]]:
    """Return figure, claim and measured number of each row of the table in the results of an experiment."""
    table = (EXPERIMENTS / name / "results" / "table.md").read_text().partition("\n\n")[2]
    rows = [line.strip("|").split(" | ") for line in table.splitlines()[2:]]
    return [(row[0].strip(), row[1], row[3]) for row in rows]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name != "parvagpu" else []) for name in PAPERS]
)
def test_the_published_rows_are_those_of_the_command(name, reproduced):
    _, claims = reproduced(named(name))
    quick = {claim.claim for claim in claims}
    rows = {claim for _, claim, _ in published(name)}
    assert quick <= rows
    if name != "parvagpu":  # its quick scale has three scenarios of six
        assert rows == quick


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PAPERS)
def test_a_random_fifth_of_the_published_numbers_comes_out_again(name, tmp_path):
    experiment, rows = named(name), published(name)
    seed = random.SystemRandom().randrange(10**9)
    figures = [figure for figure in experiment.figures if figure not in experiment.measured]
    random.Random(seed).shuffle(figures)
    numbers = {(figure, claim): measured for figure, claim, measured in rows}
    compared = 0
    for figure in figures:
        report = reproduce(experiment, out=tmp_path, figures=[figure], progress=Counter())
        now = {(claim.figure, claim.claim): claim.shown for claim in report.claims}
        assert now == {at: numbers.get(at) for at in now}, f"figure {figure} of {name}, seed {seed}"
        compared += len(now)
        if compared >= len(rows) / 5:
            break
    assert compared >= len(rows) / 5
