"""What a command says where the extra is missing that it needs: which one to install, before any work."""

import subprocess
import sys

import pytest

from headrace.host.cli.main import EXTRAS

PROGRAM = """
import sys

missing = sys.argv.pop(1).split(",")

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
from headrace.host.cli.main import main
main()
"""
IMAGE = "this needs OpenCV: pip install 'headrace[image]'"
LIBROSA = "this needs librosa: pip install 'headrace[libraries]'"
PARQUET = "results are kept in Parquet files, by pyarrow: pip install 'headrace[sweeps]'"


def without(modules: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, modules, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "modules, arguments, message",
    [
        ("cv2,simplejpeg", "preprocess image photo.jpg --out {out}", IMAGE),
        ("cv2,simplejpeg", "preprocess audio sound.wav --out {out}", IMAGE),
        ("simplejpeg", "preprocess image photo.jpg --out {out}", "needs simplejpeg: pip install 'headrace[image]'"),
        (
            "PIL",
            "preprocess image photo.jpg --processor qwen2-vl --out {out}",
            "this needs Pillow: pip install 'headrace[",
        ),
        (
            "transformers",
            "compare --reference transformers:vit-base-patch16-224 --candidate headrace --json {out}",
            "this needs transformers: pip install 'headrace[compare]'",
        ),
        ("uvloop,cv2", "serve", "this needs uvloop: pip install 'headrace[server]'"),
        ("librosa", "profile --cpu-preprocessing librosa -o {out}", LIBROSA),
        ("resampy", "profile --cpu-preprocessing librosa-kaiser_best -o {out}", "pip install 'headrace[libraries]'"),
        ("pyarrow", "reproduce smdp --quick --out {out}", PARQUET),
        ("pyarrow", "simulate --grid {grid} --out {out}", PARQUET),
        ("pyarrow", "plan --model resnet50 --slo-ms 100 --rate-rps 1 --gpu a100-40gb --out {out}", PARQUET),
        ("matplotlib", "reproduce smdp --quick --out {out}", "needs Matplotlib: pip install 'headrace[sweeps]'"),
        (
            "matplotlib",
            "plan --model resnet50 --slo-ms 100 --rate-rps 1 --gpu a100-40gb --out {out}",
            "needs Matplotlib: pip install 'headrace[sweeps]'",
        ),
    ],
)
def test_a_missing_extra_is_named(tmp_path, modules, arguments, message):
    (tmp_path / "grid.toml").write_text("requests = [10, 20]\n")
    paths = {"out": tmp_path / "out", "grid": tmp_path / "grid.toml"}
    done = without(modules, *(word.format(**paths) for word in arguments.split()))
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout


def test_a_simulated_run_needs_no_extra():
    done = without(",".join(EXTRAS), "simulate", "--requests", "100", "--json")
    assert done.returncode == 0, done.stderr


def test_a_grid_without_a_folder_needs_no_extra(tmp_path):
    (tmp_path / "grid.toml").write_text("requests = [10, 20]\n")
    done = without(",".join(EXTRAS), "simulate", "--grid", str(tmp_path / "grid.toml"), "--json")
    assert done.returncode == 0, done.stderr
