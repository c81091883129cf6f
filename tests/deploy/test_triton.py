"""deploy/triton: what its files say is what Triton reads, and fits what `headrace serve` answers.

test_triton_server.py runs them in a real Triton."""

import ast

import numpy as np
import pytest
import tritonclient.grpc
from google.protobuf import text_format
from running import IMAGE_FILE, serving
from triton_repository import DEPLOY, PROCESSORS, model_repository, server_config
from tritonclient.grpc.model_config_pb2 import TYPE_FP32, TYPE_STRING, ModelConfig

import headrace


def config_of(folder):
    return text_format.Parse((folder / "config.pbtxt").read_text(), ModelConfig())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("triton")


@pytest.fixture(scope="module")
def client(folder):
    with (
        serving("--config", str(server_config(folder)), models=(), profiled=False) as server,
        tritonclient.grpc.InferenceServerClient(server.url("grpc")) as found,
    ):
        yield found


def test_the_preprocessing_model_is_one_that_triton_reads():
    config = config_of(DEPLOY / "preprocess")
    assert config.backend == "python" and config.HasField("dynamic_batching") and not config.name
    assert set(config.parameters) == {"url", "model", "timeout_s"}
    assert float(config.parameters["timeout_s"].string_value) > 0


def test_its_program_reads_the_parameters_that_the_file_has_or_shows():
    text = (DEPLOY / "preprocess" / "config.pbtxt").read_text()
    program = ast.parse((DEPLOY / "preprocess" / "1" / "model.py").read_text())
    read = {node.value for node in ast.walk(program) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    shown = {line.split('key: "')[1].split('"')[0] for line in text.splitlines() if 'key: "' in line}
    assert shown <= read and shown == {"url", "model", "timeout_s", "token_file", "root_certificates"}


def test_the_ensemble_hands_the_tensors_of_siglip_to_the_network(client):
    config = config_of(DEPLOY / "photos")
    first, second = config.ensemble_scheduling.step
    assert config.platform == "ensemble" and first.model_name == "preprocess"
    assert set(first.output_map) == {each.name for each in client.get_model_metadata("pixels").outputs}
    assert set(second.input_map.values()) == set(first.output_map.values())
    assert [(each.name, each.data_type) for each in config.input] == [("IMAGE", TYPE_STRING)]
    assert [each.data_type for each in config.output] == [TYPE_FP32]


def test_what_the_tests_with_triton_run_is_what_triton_reads(tmp_path):
    repository = model_repository(tmp_path, "127.0.0.1:1")
    configs = {each.name: config_of(each) for each in repository.iterdir()}
    assert set(configs) == {"preprocess", "audio", "vision", "network", "photos"}
    assert configs["audio"].parameters["model"].string_value == "features"
    assert configs["vision"].max_batch_size == 0 and not configs["vision"].HasField("dynamic_batching")


@pytest.mark.parametrize("model", PROCESSORS)
def test_headrace_answers_the_tensors_themselves(client, folder, model):
    kind = "AUDIO" if model == "features" else "IMAGE"
    file = (DEPLOY.parents[1] / "examples" / "speech.wav").read_bytes() if kind == "AUDIO" else IMAGE_FILE
    given = tritonclient.grpc.InferInput(kind, [1], "BYTES")
    given.set_data_from_numpy(np.array([file], object))
    found = client.infer(model, [given])
    wanted = headrace.preprocess(file, str(folder / f"processor_{model}.json"))
    assert {each.name for each in found.get_response().outputs} == set(wanted)
    for name, tensor in wanted.items():
        assert np.array_equal(found.as_numpy(name), tensor) and found.as_numpy(name).dtype == tensor.dtype
