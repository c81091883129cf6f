"""deploy/triton in a real Triton: its models answer the tensors that Headrace makes, and each fault is one clear error.

`make test-triton` makes the environment and runs these tests.
"""

import contextlib
import io
import os
import re
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tritonclient.grpc
import tritonclient.http
import trustme
from PIL import Image
from running import IMAGE_FILE, serving, until
from triton_repository import TIMEOUT_S, model_repository, preprocess, server_config
from tritonclient.utils import InferenceServerException

import headrace
from benchmarks.triton_servers import PYTHON, triton
from headrace.batching import HeadraceError

pytestmark = [pytest.mark.triton, pytest.mark.slow, pytest.mark.timeout(600)]
CUT = IMAGE_FILE[:5000]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextlib.contextmanager
def headrace_at(port: int, config: Path, *options: str):
    words = ("--config", str(config), "--grpc", f"127.0.0.1:{port}", *options)
    with serving(*words, models=(), profiled=False) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip("Triton is not installed; make test-triton installs it")
    made = tmp_path_factory.mktemp("triton")
    server_config(made)
    return made


@pytest.fixture(scope="module")
def server(folder):
    with headrace_at(free_port(), folder / "server.toml") as running:
        yield running


@pytest.fixture(scope="module")
def ports(folder, server):
    repository = model_repository(folder / "models", server.url("grpc"))
    with triton(repository, folder / "triton.log") as found:
        yield found


@pytest.fixture
def client(ports):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports[1]}") as found:
        yield found


def image_file(seed: int, width: int = 90, height: int = 70, kind: str = "JPEG") -> bytes:
    held = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    Image.fromarray(pixels).resize((width, height)).save(held, kind)
    return held.getvalue()


def audio_file(seconds: float = 0.7) -> bytes:
    held = io.BytesIO()
    samples = np.random.default_rng(3).normal(0, 0.1, round(seconds * 16_000)).astype(np.float32)
    soundfile.write(held, samples, 16_000, "PCM_16", format="WAV")
    return held.getvalue()


def given(*files: bytes, name: str = "IMAGE", axes: int = 2, client=tritonclient.grpc):
    shape = (len(files), 1) if axes == 2 else (len(files),)
    tensor = client.InferInput(name, shape, "BYTES")
    tensor.set_data_from_numpy(np.array(files, object).reshape(shape))
    return [tensor]


def expected(folder: Path, model: str, file: bytes) -> dict[str, np.ndarray]:
    """Return the tensors that Headrace makes of a file without any server."""
    return headrace.preprocess(file, str(folder / f"processor_{model}.json"))


def error_of(client, *files: bytes, model: str = "preprocess", **more) -> str:
    with pytest.raises(InferenceServerException) as refused:
        client.infer(model, given(*files), **more)
    return refused.value.message()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WebP"])
def test_the_model_answers_the_tensors_of_headrace(client, server, folder, kind):
    files = image_file(1, kind=kind), IMAGE_FILE
    found = client.infer("preprocess", given(*files)).as_numpy("pixel_values")
    assert np.array_equal(found, np.concatenate([expected(folder, "pixels", each)["pixel_values"] for each in files]))
    with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as direct:
        assert np.array_equal(found, direct.infer("pixels", given(*files)).as_numpy("pixel_values"))


def test_the_network_in_the_same_triton_gets_them(ports, folder):
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{ports[0]}") as client:
        found = client.infer("photos", given(IMAGE_FILE, client=tritonclient.http)).as_numpy("output")
    assert np.array_equal(found, 2 * expected(folder, "pixels", IMAGE_FILE)["pixel_values"])


def test_audio_becomes_features(client, folder):
    file = audio_file()
    found = client.infer("audio", given(file, name="AUDIO")).as_numpy("input_features")
    assert np.array_equal(found, expected(folder, "features", file)["input_features"])


def test_images_of_any_size_become_patches(client, folder):
    files = image_file(2, 100, 80), image_file(3, 200, 120)
    for file in files:
        found = client.infer("vision", given(file, axes=1))
        for name, tensor in expected(folder, "patches", file).items():
            assert np.array_equal(found.as_numpy(name), tensor)
    both = client.infer("vision", given(*files, axes=1)).as_numpy("pixel_values")
    assert np.array_equal(both, np.concatenate([expected(folder, "patches", each)["pixel_values"] for each in files]))


@pytest.mark.parametrize("form", ["http://127.0.0.1:{0}/v2/models/preprocess/infer", "grpc://127.0.0.1:{1}/preprocess"])
def test_compare_takes_a_model_of_triton(ports, folder, tmp_path, form):
    (tmp_path / "siglip").mkdir()
    shutil.copy(folder / "processor_pixels.json", tmp_path / "siglip" / "preprocessor_config.json")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "photo.jpg").write_bytes(IMAGE_FILE)
    found = headrace.compare(f"transformers:{tmp_path}/siglip", form.format(*ports), tmp_path / "photos")
    assert found.equal and found.files[0].tensors["pixel_values"].max == 0.0


def test_several_clients_at_a_time_get_their_own(ports, folder):
    files = [image_file(seed, 40 + 7 * seed, 60 + 3 * seed) for seed in range(24)]

    def of_client(number: int) -> list[np.ndarray]:
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports[1]}") as client:
            return [client.infer("photos", given(each)).as_numpy("output") for each in files[number::6]]

    with ThreadPoolExecutor(6) as clients:
        found = list(clients.map(of_client, range(6)))
    for number, tensors in enumerate(found):
        for tensor, file in zip(tensors, files[number::6], strict=True):
            assert np.array_equal(tensor, 2 * expected(folder, "pixels", file)["pixel_values"])


@pytest.mark.parametrize("model", ["preprocess", "photos"])
def test_a_file_that_is_damaged_fails_alone_in_its_batch(ports, folder, server, model):
    """The delay of the batcher brings the requests of all clients together."""
    files = [CUT if number == 2 else image_file(number) for number in range(5)]

    def ask(file: bytes) -> np.ndarray | str:
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports[1]}") as client:
            together.wait()
            try:
                output = {"preprocess": "pixel_values", "photos": "output"}[model]
                return client.infer(model, given(file)).as_numpy(output)
            except InferenceServerException as error:
                return error.message()

    together = threading.Barrier(len(files))
    with ThreadPoolExecutor(len(files)) as clients:
        found = list(clients.map(ask, files))
    scale = 2 if model == "photos" else 1
    for number, (answer, file) in enumerate(zip(found, files, strict=True)):
        if number != 2:
            assert np.array_equal(answer, scale * expected(folder, "pixels", file)["pixel_values"])
    told = f"headrace at {server.url('grpc')}: it is damaged: Premature end of JPEG file"
    assert found[2] in (told, f"in ensemble 'photos', {told}")


def test_bytes_that_are_no_image_are_named(client):
    assert "not a JPEG, PNG or WebP file" in error_of(client, b"hello")


def test_a_deadline_of_the_client_reaches_headrace(client):
    """A microsecond is too short for any answer."""
    found = error_of(client, IMAGE_FILE, timeout=1)
    assert found.startswith("headrace at ") and "Deadline Exceeded" in found


def test_headrace_that_is_gone_is_one_error_until_it_is_back(folder, tmp_path):
    port = free_port()
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(contextlib.ExitStack())
        first = running.enter_context(headrace_at(port, folder / "server.toml"))
        repository = model_repository(tmp_path / "models", f"127.0.0.1:{port}")
        ports = stack.enter_context(triton(repository, tmp_path / "log"))
        client = stack.enter_context(tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports[1]}"))
        wanted = expected(folder, "pixels", IMAGE_FILE)["pixel_values"]
        assert np.array_equal(client.infer("preprocess", given(IMAGE_FILE)).as_numpy("pixel_values"), wanted)
        # A process that is stopped takes connections and answers nothing. Triton answers before its client gives up.
        os.killpg(first.process.pid, signal.SIGSTOP)
        assert error_of(client, IMAGE_FILE, client_timeout=5 * TIMEOUT_S).startswith(f"headrace at 127.0.0.1:{port}: ")
        os.killpg(first.process.pid, signal.SIGCONT)
        assert np.array_equal(client.infer("photos", given(IMAGE_FILE)).as_numpy("output"), 2 * wanted)
        running.close()
        for model in ("preprocess", "photos"):
            gone = error_of(client, IMAGE_FILE, model=model, client_timeout=5 * TIMEOUT_S)
            assert f"headrace at 127.0.0.1:{port}: " in gone and "Traceback" not in gone

        def is_back() -> bool:
            try:
                answer = client.infer("preprocess", given(IMAGE_FILE), client_timeout=5 * TIMEOUT_S)
            except InferenceServerException:
                return False
            return np.array_equal(answer.as_numpy("pixel_values"), wanted)

        assert not is_back()
        running.enter_context(headrace_at(port, folder / "server.toml"))
        until(is_back)


def test_a_token_and_certificates_are_used_where_the_file_names_them(folder, tmp_path):
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = ca.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    (tmp_path / "token").write_text("a-token-of-enough-characters\n")
    port, pem = free_port(), str(tmp_path / "server.pem")
    options = ("--tls-cert", pem, "--tls-key", pem, "--token-file", str(tmp_path / "token"))
    preprocess(tmp_path / "models", "preprocess", f"127.0.0.1:{port}", "pixels")
    file = tmp_path / "models" / "preprocess" / "config.pbtxt"
    shown = file.read_text()
    for name, path in {"token_file": tmp_path / "token", "root_certificates": tmp_path / "ca.pem"}.items():
        shown = re.sub(rf'# (parameters {{ key: "{name}" value {{ string_value: )"[^"]*"', rf'\1"{path}"', shown)
    file.write_text(shown)
    with (
        headrace_at(port, folder / "server.toml", *options),
        triton(tmp_path / "models", tmp_path / "log") as ports,
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports[1]}") as client,
    ):
        found = client.infer("preprocess", given(IMAGE_FILE)).as_numpy("pixel_values")
    assert np.array_equal(found, expected(folder, "pixels", IMAGE_FILE)["pixel_values"])


def test_a_model_that_headrace_does_not_have_keeps_triton_from_its_start(folder, server, tmp_path):
    preprocess(tmp_path / "models", "preprocess", server.url("grpc"), "nothing")
    with pytest.raises(HeadraceError, match="nothing"), triton(tmp_path / "models", tmp_path / "log"):
        pass


def test_a_batch_that_joins_rows_is_refused_where_triton_batches(folder, server, tmp_path):
    preprocess(tmp_path / "models", "vision", server.url("grpc"), "patches", max_batch=8)
    with (
        triton(tmp_path / "models", tmp_path / "log") as ports,
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports[1]}") as client,
    ):
        assert "max_batch_size: 0" in error_of(client, IMAGE_FILE, model="vision")
