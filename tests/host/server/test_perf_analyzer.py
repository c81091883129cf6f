"""Test the fields that Triton's perf_analyzer reads before and after its requests. It fails if they are different."""

import json

import numpy as np
import pytest
import tritonclient.http
from running import IMAGE_FILE, serving


@pytest.fixture(scope="module")
def server():
    with serving(models=("means",)) as server:
        yield server


def test_all_parts_of_the_computation_are_counted_alike(server):

    with tritonclient.http.InferenceServerClient(server.url()) as client:
        image = tritonclient.http.InferInput("IMAGE", [1, 1], "BYTES")
        image.set_data_from_numpy(np.array([[IMAGE_FILE]], object))
        for _ in range(3):
            client.infer("means", [image])
    (found,) = json.loads(server.request("GET", "/v2/models/means/stats")[2])["model_stats"]
    stats = found["inference_stats"]
    assert {stats[part]["count"] for part in ("compute_input", "compute_infer", "compute_output")} == {3}
    assert stats["compute_input"]["ns"] > 0 and stats["compute_infer"]["ns"] > 0


def test_a_model_of_images_takes_either_input_and_says_so(server):
    config = json.loads(server.request("GET", "/v2/models/means/config")[2])
    assert {tensor["name"]: tensor.get("optional") for tensor in config["input"]} == {"x": True, "IMAGE": True}
    assert "optional" not in config["output"][0]
