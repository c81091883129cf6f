"""FuseSoC takes hls/headrace.core and the example design: it lints them, and the simulation decodes a file from
flash."""

import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from headrace.bitstreams.hw.cores import stream_core
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import verilator_folder
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageSpec, ImageStage

EXAMPLES = Path(__file__).parents[3] / "examples"
FLASH = EXAMPLES / "flash"


@pytest.fixture
def fusesoc(tmp_path):
    """Return fusesoc(*arguments), which runs in an empty folder."""
    verilator = verilator_folder()
    environment = {
        **os.environ,
        "VERILATOR_ROOT": str(verilator),
        "PATH": f"{Path(sys.executable).parent}:{verilator / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        # The package's makefile names the precompiled headers without telling g++ to include them.
        "MAKEFLAGS": "VK_PCH_I_FAST= VK_PCH_I_SLOW=",
        "OBJCACHE": "ccache",
    }
    roots = ("--cores-root", str(hls_folder()), "--cores-root", str(FLASH))

    def run(*arguments):
        command = [sys.executable, "-c", "from fusesoc.main import main; main()", *roots, "run", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)

    return run


def flash_content(photo, folder):
    flash = folder / "flash.hex"
    subprocess.run([sys.executable, FLASH / "flash_content.py", photo, flash], check=True)
    return flash


def test_the_core_lists_what_the_sources_need():
    """If this fails, run scripts/fusesoc_core.py."""
    assert (hls_folder() / "headrace.core").read_text() == stream_core()


@pytest.mark.quick(1)
@pytest.mark.parametrize("core", ["headrace:example:photo_from_flash", "headrace:ip:image_stream"])
def test_lint(fusesoc, core):
    done = fusesoc("--target", "lint", core)
    assert done.returncode == 0 and "%Warning" not in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.slow
def test_the_simulation_decodes_the_file_in_the_flash(fusesoc, tmp_path):
    picture, core = tmp_path / "picture.ppm", "headrace:example:photo_from_flash"
    photo = EXAMPLES / "chelsea.jpg"
    flash = flash_content(photo, tmp_path)
    done = fusesoc("--target", "sim", core, "--flash", str(flash), "--picture", str(picture))
    assert done.returncode == 0 and "status 0, 12288 bytes of pixels" in done.stdout, done.stdout + done.stderr
    spec = ImageSpec(resize_short=64, crop_width=64, crop_height=64)
    expected = preprocess(photo.read_bytes(), spec, ImageStage.CROP)
    assert np.array_equal(cv2.cvtColor(cv2.imread(str(picture)), cv2.COLOR_BGR2RGB), expected)

    cut = tmp_path / "cut.jpg"
    cut.write_bytes(photo.read_bytes()[:5000])
    flash = flash_content(cut, tmp_path)
    done = fusesoc("--target", "sim", "--run", core, "--flash", str(flash), "--picture", str(picture))
    assert done.returncode != 0 and "status 2, " in done.stdout, done.stdout + done.stderr
