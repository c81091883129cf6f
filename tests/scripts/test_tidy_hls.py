"""scripts/tidy_hls.py over SystemVerilog; the C++ is `make lint`'s."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "tidy_hls.py"


@pytest.mark.parametrize(("columns", "status"), [(100, 0), (101, 1)])
def test_a_line_of_systemverilog_has_at_most_100_columns(tmp_path, columns, status):
    (tmp_path / "unit.sv").write_text("module unit;\n" + "/" * columns + "\nendmodule\n")
    done = subprocess.run([sys.executable, SCRIPT, tmp_path / "unit.sv"], capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert ("unit.sv:2: 101 columns" in done.stdout) == (status == 1)
