"""scripts/calibrate_gpu_slice.py fits the constants of the slice model."""

import runpy
from dataclasses import astuple
from pathlib import Path

import pytest

from headrace.sim.hardware.gpu.slice import PARVAGPU

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "calibrate_gpu_slice.py"))


def test_a_few_steps_of_the_fit_move_the_constants_and_lower_the_error():
    rows = {key: found for key, found in SCRIPT["measured"]().items() if key[0] == "vgg16" and key[2] == 1}

    def error(kernels, host):
        found = SCRIPT["errors"](rows, "vgg16", 1, kernels, host)
        return sum(abs(each).mean() for each in found.values())

    kernels, host = SCRIPT["fit"](rows, ["vgg16"], evaluations=12)
    assert error(kernels, host) < error(SCRIPT["START"], SCRIPT["START_HOST"])
    assert (kernels.products, kernels.attention) == (None, None)
    assert astuple(host) != astuple(SCRIPT["START_HOST"])
    assert host.launch_s == pytest.approx(PARVAGPU.launch_s, rel=0.5)
