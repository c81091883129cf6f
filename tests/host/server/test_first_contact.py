"""Test the lines that a server writes as it starts: its progress, and the weights and input transform of each model."""

import json

import numpy as np
import pytest
import torch
from command import headrace_here
from running import IMAGE_FILE, serving

from headrace.batching import UsageError
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageSpec
from headrace.host.server.settings import ModelSettings, with_settings


def heard(*options, models, ask=lambda server: None):
    """Return the lines that a server writes until its end, and the result of `ask`."""
    with serving(*options, models=models) as server:
        found = ask(server)
        code, said = server.end()
    assert code == 0
    return said.splitlines(), found


def means(server):
    status, _, answer = server.request("POST", "/v2/models/means/infer", IMAGE_FILE)
    assert status == 200
    return json.loads(answer)["outputs"][0]["data"]


def test_it_says_what_it_does_and_that_a_transform_is_a_guess():
    lines, found = heard(models=("means", "scale"), ask=means)
    assert lines[0] == "reading served:means, served:scale"
    (line,) = [line for line in lines if line.startswith("means:")]
    assert "weights of served:means; images are resized to 73, cropped to 64x64, mean 0.485,0.456,0.406" in line
    assert line.endswith("GUESSED from ImageNet, because it names no transform; give --mean and --std, and --resize")
    assert "scale: weights of served:scale" in lines
    np.testing.assert_allclose(found, preprocess(IMAGE_FILE, ImageSpec(73, 64, 64)).mean((1, 2)), rtol=1e-5)


@pytest.mark.slow
def test_a_transform_may_be_given():
    options = ("--resize", "80", "--crop", "64", "--mean", "0.5,0.25,0", "--std", "0.5,1,2")
    lines, found = heard(*options, models=("means",), ask=means)
    (line,) = [line for line in lines if line.startswith("means:")]
    assert line.endswith("resized to 80, cropped to 64x64, mean 0.5,0.25,0, std 0.5,1,2, from the settings")
    spec = ImageSpec(80, 64, 64, mean=(0.5, 0.25, 0.0), std=(0.5, 1.0, 2.0))
    np.testing.assert_allclose(found, preprocess(IMAGE_FILE, spec).mean((1, 2)), rtol=1e-5)
    lines, found = heard("--resize", "64", models=("means",), ask=means)
    np.testing.assert_allclose(found, preprocess(IMAGE_FILE, ImageSpec(64, 64, 64)).mean((1, 2)), rtol=1e-5)


@pytest.mark.slow
def test_random_weights_are_told_and_those_of_a_file_are_none(tmp_path):
    own = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
    program = tmp_path / "own.pt2"
    batch = torch.export.Dim("batch", max=64)
    torch.export.save(torch.export.export(own, (torch.zeros(2, 3, 8, 8),), dynamic_shapes=[{0: batch}]), program)
    lines, _ = heard("--model", f"own={program}", "--model", "squeezenet1_1", "--workers", "npu:1", models=())
    own, squeeze = (next(line for line in lines if line.startswith(f"{name}:")) for name in ("own", "squeezenet1_1"))
    assert own.startswith(f"own: weights of {program}; ")
    assert squeeze.startswith("squeezenet1_1: RANDOM weights, so its answers mean nothing; give --weights FILE; ")
    assert squeeze.endswith("from its own transform")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--mean", "0.5"), "--mean '0.5': give 3 numbers of 0 or more, by comma"),
        (("--mean", "0.5,0.5,x"), "give 3 numbers of 0 or more"),
        (("--std", "0,1,1"), "give 3 numbers of 1e-06 or more"),
        (("--resize", "0"), "--resize"),
        (("--crop", "200", "--model", "squeezenet1_1", "--workers", "npu:1"), "its input of 224x224"),
        (("--mean", "1,1,1", "--model", "lstm", "--policy", "cellular"), "takes no images; leave out --mean"),
    ],
)
def test_image_settings_that_do_not_fit_the_model_are_refused(options, text):
    done = headrace_here("serve", *options, *(f"--{port}=127.0.0.1:0" for port in ("http", "grpc", "metrics")))
    assert done.returncode == 2 and text in done.stderr, done.stderr


def test_a_table_takes_lists_and_texts():
    base = ModelSettings("m", "own:net")
    for given in ([0.5, 0.25, 0], "0.5,0.25,0"):
        assert with_settings(base, {"mean": given, "resize": 80}, "t").mean == (0.5, 0.25, 0.0)
    for wrong in (0.5, [0.5], ["a", 1, 1], [True, 1], None, [float("nan")] * 3, {"r": 1}):
        with pytest.raises(UsageError, match="give 3 numbers"):
            with_settings(base, {"mean": wrong}, "t")
    assert base.mean is None
