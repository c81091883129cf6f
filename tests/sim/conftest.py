import os
import pickle
from functools import cache

import pytest
from builds import alone
from progress_counter import Counter


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """Folder and claims of a paper's quick reproduction, which is run once for all processes of a test session."""
    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent

    @cache
    def run(paper):
        folder = session / paper.__name__
        kept = folder / "claims.pickle"
        with alone(paper.__name__):
            if not kept.exists():
                progress = Counter()
                claims = paper.reproduce(paper.FIGURES, folder, paper.QUICK, progress)
                assert progress.stages[0][1] == progress.steps > 0
                kept.write_bytes(pickle.dumps(claims))
        return folder, pickle.loads(kept.read_bytes())

    return run
