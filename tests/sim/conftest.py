from functools import cache

import pytest
from progress_counter import Counter


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """Folder and claims of a paper's quick reproduction, which is run once."""

    @cache
    def run(paper):
        folder, progress = tmp_path_factory.mktemp("reproduce"), Counter()
        claims = paper.reproduce(paper.FIGURES, folder, paper.QUICK, progress)
        assert progress.stages[0][1] == progress.steps > 0
        return folder, claims

    return run
