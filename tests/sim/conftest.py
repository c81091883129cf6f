import os
import pickle
from functools import cache

import pytest
from builds import alone
from live_rows import measure_of
from progress_counter import Counter

from headrace.sim.experiments.reproduce import reproduce


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """Return a function that gives the folder and the claims of an experiment's quick reproduction.

    Each experiment runs once for all processes of a test session."""
    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent

    @cache
    def run(experiment):
        folder = session / f"reproduced {experiment.name}"
        kept = folder / "claims.pickle"
        with alone(experiment.name):
            if not kept.exists():
                progress = Counter()
                measure = measure_of(experiment)
                claims = reproduce(experiment, out=folder, scale="quick", progress=progress, measure=measure).claims
                assert progress.stages[0][1] == progress.steps > 0
                kept.write_bytes(pickle.dumps(claims))
        return folder, pickle.loads(kept.read_bytes())

    return run
