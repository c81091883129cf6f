"""`--ray` of the commands that have many runs: what they print and write is what they do without it."""

import pytest
from command import headrace_here

from headrace.sim.sweeps.cluster import Cluster, ray  # loaded as it is for a command

GRID = 'model = "gnmt"\nrequests = 100\npolicy = ["lazy", "graph"]\nseeds = 2\n'


def written(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--grid", "grid.toml"),
        pytest.param(
            ("plan", "--tune", "serial", "--model", "resnet50", "--rate-rps", "100", "--slo-ms", "50"),
            marks=pytest.mark.slow,
        ),
        pytest.param(("reproduce", "lazybatching", "--quick", "--figure", "5"), marks=pytest.mark.slow),
    ],
    ids=lambda command: command[0],
)
def test_a_cluster_gives_the_same_to_the_byte(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(GRID)
    there, at_its_end = [], []
    run, shutdown = Cluster.run, ray.shutdown

    def counting(self, work, jobs):
        there.append(len(jobs))
        return run(self, work, jobs)

    def ending():
        at_its_end.extend(path.suffix for path in (tmp_path / "there").iterdir())
        shutdown()

    monkeypatch.setattr(Cluster, "run", counting)
    monkeypatch.setattr(ray, "shutdown", ending)
    here = headrace_here(*command, "--json", "--out", tmp_path / "here")
    assert here.returncode == 0 and there == [], here.stderr
    on_ray = headrace_here(*command, "--json", "--out", tmp_path / "there", "--ray", "local")
    assert on_ray.returncode == 0 and sum(there) > 3, on_ray.stderr
    assert on_ray.stdout == here.stdout
    assert ".parquet" in at_its_end and ".jsonl" not in at_its_end, "it may take longer than there is after Ctrl-C"
    assert written(tmp_path / "there") == written(tmp_path / "here")
