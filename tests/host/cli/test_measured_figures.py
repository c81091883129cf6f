"""`headrace reproduce` measures the figures that no simulation gives."""

import csv
import json
import subprocess
import sys

import pytest

from headrace.host.cli import reproduce as command
from headrace.host.validation.figure_17 import measure_figure_17
from headrace.host.validation.live import LOADS, WINDOWS
from headrace.sim.experiments.experiment import named


def without_torch():
    raise ModuleNotFoundError("No module named 'torch'", name="torch")


def test_only_an_experiment_with_a_measured_figure_that_is_wanted_gets_a_measurement():
    lazybatching, smdp = named("lazybatching"), named("smdp")
    assert command._measure(smdp, None) is None and command._measure(lazybatching, ["12", "15"]) is None
    assert command._measure(lazybatching, None) is command._measure(lazybatching, ["12", "17"]) is measure_figure_17


def test_without_torch_the_figure_is_left_out_of_all_and_refused_by_name(monkeypatch, capsys):
    monkeypatch.setattr(command, "require_torch", without_torch)
    assert command._measure(named("lazybatching"), None) is None
    assert "figure 17 is left out: its workers need torch" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):
        command._measure(named("lazybatching"), ["17"])


@pytest.mark.slow
def test_figure_17_is_measured_live_and_its_rows_name_the_device(tmp_path):
    headrace = [sys.executable, "-c", "from headrace.host.cli.main import main; main()"]
    arguments = ["reproduce", "lazybatching", "--figure", "17", "--quick", "--json", "--out", tmp_path]
    done = subprocess.run([*headrace, *arguments], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "live runs on" in done.stderr
    claims = json.loads(done.stdout)
    assert [(claim["figure"], claim["paper"]) for claim in claims] == [("17", 1.4), ("17", 56), ("17", 1.3)]
    with (tmp_path / "figure17.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(LOADS) * (1 + len(WINDOWS))
    least, largest, _ = (claim["measured"] for claim in claims)
    gains = []
    for load in LOADS:
        means = {
            (row["policy"], float(row["window"])): float(row["mean_ms"]) for row in rows if float(row["load"]) == load
        }
        gains += [mean / means["lazy", 0.0] for (policy, _), mean in means.items() if policy == "graph"]
    assert least == pytest.approx(min(gains)) and largest == pytest.approx(max(gains))
    for row in rows:
        assert row["device"] in claims[0]["note"] and 0 <= float(row["violation_rate"]) <= 1
        assert float(row["mean_ms"]) > 0 and float(row["simulated_mean_ms"]) > 0 and int(row["requests"]) >= 50
