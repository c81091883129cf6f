"""Candidates that are models of a real `headrace serve`, over HTTP and over gRPC."""

import json
import shutil
import socket

import pytest
from running import serving, write_profile

from headrace.batching import UsageError
from headrace.host.compare.candidates import check_name
from headrace.host.compare.candidates.served import outputs_of
from headrace.host.compare.comparison import compare
from headrace.host.compare.curated import write
from headrace.host.compare.values import CandidateError

SIGLIP = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 64, "width": 48}, "resample": 2}
OTHER = SIGLIP | {"resample": 3}
NAMES = ("jpeg-420.jpg", "rgb.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("served")
    for name, settings in {"siglip": SIGLIP, "other": OTHER}.items():
        (made / name).mkdir()
        (made / name / "preprocessor_config.json").write_text(json.dumps(settings))
    write(made / "curated")
    (made / "photos").mkdir()
    for name in NAMES:
        shutil.copy(made / "curated" / "images" / name, made / "photos")
    return made


@pytest.fixture(scope="module")
def server(folder):
    table = '[[models]]\nname = "{0}"\nsource = "tensors"\nprocessor = "{1}"\nprofile = "{2}"\npolicy = "serial"\n'
    names = ("siglip", "other")
    tables = [table.format(name, folder / name, write_profile(folder, name)) for name in names]
    scale = table.format("scale", "none", write_profile(folder, "scale")).replace('"tensors"', '"served:scale"')
    (folder / "server.toml").write_text("".join([*tables, scale]))
    with serving("--config", str(folder / "server.toml"), models=(), profiled=False) as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def address(request, server):
    """Return a function that gives the candidate of a model."""
    host = server.url(request.param)
    return lambda name: f"http://{host}/v2/models/{name}/infer" if request.param == "http" else f"grpc://{host}/{name}"


def test_a_server_that_makes_the_tensors_is_equal(address, folder):
    found = compare(f"transformers:{folder}/siglip", address("siglip"), folder / "photos")
    assert found.equal and len(found.files) == 2
    assert {each.tensors["pixel_values"].max for each in found.files} == {0.0}


def test_another_filter_of_the_server_is_found_at_resize(address, folder):
    found = compare(f"transformers:{folder}/siglip", address("other"), folder / "photos")
    assert found.first == {"resize": 2}


def test_a_file_that_the_server_refuses_fails_alone(address, folder, tmp_path):
    shutil.copytree(folder / "photos", tmp_path / "photos")
    shutil.copy(next((folder / "curated" / "images").glob("*.gif")), tmp_path / "photos" / "first.gif")
    files = compare(f"transformers:{folder}/siglip", address("siglip"), tmp_path / "photos").files
    found = {each.file: each for each in files}
    results = {name: each.result for name, each in found.items()}
    assert results == {"first.gif": "failed"} | dict.fromkeys(NAMES, "equal")
    assert "not a JPEG, PNG or WebP file" in found["first.gif"].why and "\n" not in found["first.gif"].why


@pytest.mark.parametrize("model, text", [("scale", "the model has 0 inputs for files"), ("none", "none")])
def test_a_model_that_takes_no_files_or_is_not_there(address, folder, model, text):
    found = compare(f"transformers:{folder}/siglip", address(model), folder / "photos")
    assert found.count("failed") == 2 and all(text in each.why for each in found.files)


@pytest.mark.parametrize("form", ["http://127.0.0.1:{}/v2/models/m/infer", "grpc://127.0.0.1:{}/m"])
def test_a_server_that_is_not_there_or_says_nothing(form, folder):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        candidate = form.format(silent.getsockname()[1])
        late = compare(f"transformers:{folder}/siglip", candidate, folder / "photos", timeout_s=0.5)
    gone = compare(f"transformers:{folder}/siglip", candidate, folder / "photos", timeout_s=5)
    for found in (late, gone):
        assert found.count("failed") == 2 and all(each.why.startswith(candidate[:17]) for each in found.files)


@pytest.mark.parametrize(
    "named", ["grpc://", "grpc://127.0.0.1:8001", "grpc://127.0.0.1/m", "grpc://h:port/m", "grpc://[/m"]
)
def test_an_address_that_is_not_whole_is_refused(named):
    with pytest.raises(UsageError, match="write grpc://HOST:PORT/NAME"):
        check_name(named)


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"[1]",
        b'{"outputs": [{"name": "a"}]}',
        b'{"outputs": [{"name": "a", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}',
        b'{"outputs": [{"name": "a", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}]}1234',
    ],
)
def test_an_answer_that_cannot_be_read_is_refused(body):
    head = body.rfind(b"}") + 1 or len(body)
    with pytest.raises(CandidateError, match=r"its answer (cannot be read|is no JSON)"):
        outputs_of(body, head)
