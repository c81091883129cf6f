"""scripts/tidy_hls.py over files of the tests; those of the units are `make lint`'s."""

import shutil
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "tidy_hls.py"


@pytest.fixture
def tidy(load_script, tmp_path, monkeypatch):
    """Run the script on a file, and return its exit status."""
    script = load_script("tidy_hls")
    monkeypatch.setattr(script, "CLEAN", tmp_path / "clean")
    shutil.copy(SCRIPT.parents[1] / "hls" / ".clang-tidy", tmp_path)

    def run(name, text):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(tmp_path / name)])
        return script.main()

    run.script = script
    return run


@pytest.mark.parametrize(("columns", "status"), [(100, 0), (101, 1)])
def test_a_line_of_systemverilog_has_at_most_100_columns(tidy, capsys, columns, status):
    assert tidy("unit.sv", "module unit;\n" + "/" * columns + "\nendmodule\n") == status
    assert ("unit.sv:2: 101 columns" in capsys.readouterr().out) == (status == 1)


def test_a_file_is_checked_again_only_after_a_change(tidy, monkeypatch):
    assert tidy("unit.cpp", "int one() { return 1; }\n") == 0
    for _ in range(2):
        assert tidy("unit.cpp", "int one() { return }\n") == 1
    assert tidy("unit.cpp", "int one() { return 1; }\n") == 0
    calls, run = [], tidy.script.subprocess.run

    def counted(command, *given, **options):
        calls.append(command)
        return run(command, *given, **options)

    monkeypatch.setattr(tidy.script.subprocess, "run", counted)
    assert tidy("unit.cpp", "int one() { return 1; }\n") == 0 and len(calls) == 1  # the version of clang-tidy
    assert tidy("unit.cpp", "int two() { return 2; }\n") == 0 and len(calls) == 3
