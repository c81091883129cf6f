"""The order of tests under `-p randomly`, as in `make test-all`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("file", "keeps"), [("host/fleet/test_fleet.py", True), ("test_virtual_time.py", False)])
def test_only_a_module_that_is_marked_keeps_its_order(file, keeps):
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--randomly-seed=1", f"tests/{file}"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    found = [line.rpartition("::")[2].partition("[")[0] for line in done.stdout.splitlines() if "::" in line]
    source = (ROOT / "tests" / file).read_text()
    assert len(found) > 3 and (found == sorted(found, key=lambda name: source.index(f"def {name}("))) == keeps
