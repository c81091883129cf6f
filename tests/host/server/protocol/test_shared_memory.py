"""Test tensors in shared memory with the real client's module, and regions that differ from their registration."""

import contextlib
import json
import os
import signal
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_mapping import without_extension
from properties import examples
from running import HELD, IMAGE_FILE, SPEC, scale_request, scaled, serving, until
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from headrace.batching import BadInput
from headrace.host.dpu.reference.image import preprocess
from headrace.host.server.protocol.shared_memory import FOLDER, MAX_REGIONS, Regions, SharedTensor

TRANSPORTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}


@pytest.fixture(scope="module")
def server():
    with serving("--shared-memory", "--max-body-mib", "1") as running:
        yield running
        assert running.lives()
        code, said = running.end()
        assert code == 0 and "Traceback" not in said


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture
def client(server, transport):
    with TRANSPORTS[transport].InferenceServerClient(server.url(transport)) as found:
        yield found
        found.unregister_system_shared_memory()


@pytest.fixture
def memory():
    """Provide `memory(size)`, which makes a region and returns its handle and its name, which is also its key."""
    with contextlib.ExitStack() as stack:

        def made(size):
            name = f"headrace-test-{uuid.uuid4().hex}"
            handle = shm.create_shared_memory_region(name, name, size)
            stack.callback(shm.destroy_shared_memory_region, handle)
            return name, handle

        yield made


def in_memory(transport, tensor, region, shape, size, offset=0, datatype="FP32"):
    found = TRANSPORTS[transport].InferInput(tensor, shape, datatype)
    found.set_shared_memory(region, size, offset)
    return found


def out(transport, region, size, offset=0):
    found = TRANSPORTS[transport].InferRequestedOutput("output")
    found.set_shared_memory(region, size, offset)
    return found


def refused(call, *given, **more):
    with pytest.raises(InferenceServerException) as error:
        call(*given, **more)
    return error.value.message()


def test_inputs_and_outputs_lie_in_one_region_at_their_offsets(client, transport, memory):
    name, handle = memory(4096)
    client.register_system_shared_memory(name, name, 4000, offset=96)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    shm.set_shared_memory_region(handle, [rows], offset=96 + 100)
    answer = client.infer(
        "scale",
        [in_memory(transport, "x", name, [2, 4], 32, offset=100)],
        outputs=[out(transport, name, 64, offset=200)],
    )
    np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [2, 4], offset=96 + 200), 2 * rows)
    output = answer.get_output("output")
    told = output["parameters"] if transport == "http" else output.parameters
    value = (lambda key: told[key]) if transport == "http" else (lambda key: told[key].int64_param)
    assert (value("shared_memory_offset"), value("shared_memory_byte_size")) == (200, 32)


def test_a_request_may_have_inputs_in_memory_and_in_the_message(client, transport, memory):
    name, handle = memory(64)
    client.register_system_shared_memory(name, name, 64)
    shm.set_shared_memory_region(handle, [np.array([[3, 4, 5]])])
    mask = TRANSPORTS[transport].InferInput("mask", [1, 3], "BOOL")
    mask.set_data_from_numpy(np.array([[True, False, True]]))
    kept = TRANSPORTS[transport].InferRequestedOutput("kept")
    kept.set_shared_memory(name, 24, 24)
    total = TRANSPORTS[transport].InferRequestedOutput("sum")
    ids = in_memory(transport, "ids", name, [1, 3], 24, datatype="INT64")
    for inputs in ([ids, mask], [mask, ids]):
        answer = client.infer("pair", inputs, outputs=[kept, total])
        assert answer.as_numpy("sum").tolist() == [[8]]
        assert shm.get_contents_as_numpy(handle, np.int64, [1, 3], offset=24).tolist() == [[3, 0, 5]]


def test_images_may_lie_there_too(client, transport, memory):
    raw = serialize_byte_tensor(np.array([IMAGE_FILE], object)).item()
    name, handle = memory(len(raw) + 12)
    client.register_system_shared_memory(name, name, len(raw) + 12)
    shm.set_shared_memory_region(handle, [np.array(raw, object)])
    client.infer(
        "means",
        [in_memory(transport, "IMAGE", name, [1], len(raw), datatype="BYTES")],
        outputs=[out(transport, name, 12, offset=len(raw))],
    )
    expected = preprocess(IMAGE_FILE, SPEC).mean((1, 2))
    found = np.frombuffer(shm.get_contents_as_numpy(handle, np.uint8, [12], offset=len(raw)).tobytes(), np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_regions_are_listed_until_they_are_unregistered(client, transport, memory):
    def listed(name=""):
        found = client.get_system_shared_memory_status(name, **({} if transport == "http" else {"as_json": True}))
        regions = found if transport == "http" else list(found.get("regions", {}).values())
        return {(each["name"], each["key"], int(each.get("offset", 0)), int(each["byte_size"])) for each in regions}

    assert "system_shared_memory" in str(client.get_server_metadata())
    first, second = memory(100)[0], memory(100)[0]
    client.register_system_shared_memory("one", first, 100)
    client.register_system_shared_memory("two", "/" + second, 40, offset=60)
    assert listed() == {("one", first, 0, 100), ("two", "/" + second, 60, 40)} and len(listed("two")) == 1
    assert "no shared memory region 'three'" in refused(client.get_system_shared_memory_status, "three")
    client.unregister_system_shared_memory("one")
    client.unregister_system_shared_memory("one")
    assert {name for name, *_ in listed()} == {"two"}
    client.unregister_system_shared_memory()
    assert listed() == set()


@pytest.mark.quick(1)
def test_a_region_that_cannot_be_is_refused(client, memory):
    name, _ = memory(100)
    client.register_system_shared_memory("taken", name, 100)
    Path(FOLDER, f"{name}-link").symlink_to("/etc/passwd")
    Path(FOLDER, f"{name}-folder").mkdir()
    os.mkfifo(f"{FOLDER}/{name}-pipe")
    try:
        for key, size, offset, text in (
            (name, 101, 0, "go beyond"),
            (name, 2**61, 2**60, "go beyond"),
            (name, 1, 100, "go beyond"),
            (name, 0, 0, "byte_size of 1"),
            (name + "x", 1, 0, "No such file"),
            ("../../etc/passwd", 1, 0, "name of a file"),
            ("/../etc/passwd", 1, 0, "name of a file"),
            ("..", 1, 0, "name of a file"),
            ("//" + name, 1, 0, "name of a file"),
            ("x" * 256, 1, 0, "name of a file"),
            ("a\0b", 1, 0, "name of a file"),
            (f"{name}-link", 1, 0, "symbolic link"),
            (f"{name}-folder", 1, 0, "directory"),
            (f"{name}-pipe", 1, 0, "is not shared memory"),
        ):
            assert text in refused(client.register_system_shared_memory, "new", key, size, offset=offset), key
        assert "already registered" in refused(client.register_system_shared_memory, "taken", name, 100)
    finally:
        Path(FOLDER, f"{name}-link").unlink()
        Path(FOLDER, f"{name}-folder").rmdir()
        Path(FOLDER, f"{name}-pipe").unlink()


def test_tensors_beyond_their_region_are_refused(client, transport, memory):
    name, _ = memory(2 << 20)
    client.register_system_shared_memory(name, name, 1 << 21)
    row = (transport, "x", name, [1, 4])
    plain = [in_memory(*row, 16)]
    for inputs, outputs, text in (
        ([in_memory(transport, "x", "other", [1, 4], 16)], [], "no shared memory region 'other'"),
        ([in_memory(*row, 16, offset=(1 << 21) - 15)], [], "go beyond"),
        ([in_memory(*row, 2**61, offset=2**60)], [], "go beyond"),
        ([in_memory(*row, 15)], [], "needs 16 bytes; the request has 15"),
        ([in_memory(*row, (1 << 20) + 1)], [], "send at most 1048576"),
        (plain, [out(transport, name, 15)], "an output of 16 bytes does not fit its 15 bytes"),
        (plain, [out(transport, name, 16, offset=1 << 21)], "go beyond"),
        (plain, [out(transport, "other", 16)], "no shared memory region 'other'"),
    ):
        assert text in refused(client.infer, "scale", inputs, outputs=outputs), text


def test_outputs_of_several_rows_that_do_not_fit_leave_the_region_as_it_was(client, transport, memory):
    name, handle = memory(64)
    client.register_system_shared_memory(name, name, 64)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    shm.set_shared_memory_region(handle, [rows, np.full(8, 7, np.float32)])
    asked = "scale", [in_memory(transport, "x", name, [2, 4], 32)]
    assert "an output of 32 bytes does not fit" in refused(
        client.infer, *asked, outputs=[out(transport, name, 31, offset=32)]
    )
    assert shm.get_contents_as_numpy(handle, np.float32, [8], offset=32).tolist() == [7.0] * 8
    client.infer(*asked, outputs=[out(transport, name, 32, offset=32)])
    assert shm.get_contents_as_numpy(handle, np.float32, [2, 4], offset=32).tolist() == (2 * rows).tolist()


@pytest.fixture(params=["mapping", "system calls"])
def way(request, monkeypatch):
    """Copy through mappings, or without the extension, as where no compiler was found."""
    if request.param == "system calls":
        without_extension(monkeypatch)
    return request.param


@pytest.mark.parametrize("dtype", ["float16", "bool", "int64"])
def test_a_tensor_in_a_region_is_read_whole_or_by_rows(way, memory, dtype):
    name, handle = memory(100)
    values = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    shm.set_shared_memory_region(handle, [values], offset=7)
    regions = Regions(1 << 20)
    regions.register("r", name, 3, 97)
    tensor = SharedTensor(regions.window("r", 4, values.nbytes), values.dtype, values.shape)
    assert (len(tensor), tensor.ndim) == (2, 2)
    np.testing.assert_array_equal(np.asarray(tensor), values)
    np.testing.assert_array_equal(np.asarray(tensor[1]), values[1])
    assert np.asarray(tensor[1][0]).item() == values[1, 0]
    regions.unregister("r")
    with pytest.raises(BadInput, match="was unregistered"):
        tensor.read_into(np.empty_like(values))


def test_both_ways_of_copying_say_the_same(way, memory):
    name, _ = memory(8192)
    maps = Path("/proc/self/maps")
    before = maps.read_text().count(name)  # the client's own
    regions = Regions(1 << 20)
    regions.register("r", name, 100, 8000)
    window = regions.window("r", 50, 7000)
    assert (window.region.file.mapping is not None) == (way == "mapping")
    window.write(bytes(range(200)), 5)
    window.write(np.full((2, 8), 7, np.int16), 300)
    content = Path(FOLDER, name).read_bytes()
    assert content[155:355] == bytes(range(200)) and content[450:482] == np.full(16, 7, np.int16).tobytes()
    assert bytes(window.read()) == content[150:7150]
    window.write(b"", 7000)
    os.truncate(f"{FOLDER}/{name}", 4000)
    window.write(bytes(3850), 0)
    for copy in (window.read, lambda: window.write(bytes(3851), 0)):
        with pytest.raises(BadInput, match="is shorter than when it was registered"):
            copy()
    assert Path(FOLDER, name).stat().st_size == 4000
    regions.unregister()
    assert maps.read_text().count(name) == before
    for copy in (window.read, lambda: window.write(b"1")):
        with pytest.raises(BadInput, match="was unregistered while it was in use"):
            copy()


def test_a_region_that_becomes_shorter_ends_no_server(client, transport, memory):
    name, _ = memory(8192)
    client.register_system_shared_memory(name, name, 8192)
    inputs = [in_memory(transport, "x", name, [1, 4], 16, offset=8000)]
    os.truncate(f"{FOLDER}/{name}", 4096)
    assert "shorter than when it was registered" in refused(client.infer, "scale", inputs)
    first = [in_memory(transport, "x", name, [1, 4], 16)]
    outputs = [out(transport, name, 16, offset=8000)]
    assert "shorter than when it was registered" in refused(client.infer, "scale", first, outputs=outputs)
    assert os.stat(f"{FOLDER}/{name}").st_size == 4096


@pytest.fixture
def held(server):
    """Provide `held()`, which waits until the worker's network is at a request that begins with HELD."""
    yield lambda: until((server.folder / "held").exists)
    server.let_go()
    assert scaled(server.request("POST", "/v2/models/scale/infer", scale_request(1.0))[2])[0, 0] == 2  # it goes on
    for name in ("held", "go"):
        (server.folder / name).unlink(missing_ok=True)


def test_a_region_that_is_unregistered_in_use_is_written_no_more(server, client, transport, memory, held):
    name, handle = memory(64)
    client.register_system_shared_memory(name, name, 64)
    shm.set_shared_memory_region(handle, [np.float32([[HELD, 0, 0, 0]])])
    with ThreadPoolExecutor(1) as pool, TRANSPORTS[transport].InferenceServerClient(server.url(transport)) as other:
        inputs, outputs = [in_memory(transport, "x", name, [1, 4], 16)], [out(transport, name, 16, offset=32)]
        running = pool.submit(refused, other.infer, "scale", inputs, outputs=outputs)
        held()
        client.unregister_system_shared_memory(name)
        server.let_go()
        text = running.result(20)
    assert "unregistered while it was in use" in text
    assert not shm.get_contents_as_numpy(handle, np.float32, [4], offset=32).any()


def mapped_by(server, name):
    """Return how many workers have mapped the file."""
    return sum(name in Path(f"/proc/{pid}/maps").read_text() for pid in server.workers())


def test_the_workers_map_a_region_as_long_as_it_is_registered(server, client, transport, memory):
    name, handle = memory(64)
    shm.set_shared_memory_region(handle, [np.float32([[1, 2, 3, 4]])])
    for _ in range(2):
        client.register_system_shared_memory(name, name, 64)
        assert mapped_by(server, name) == 0
        for place in (16, 48):
            inputs, outputs = [in_memory(transport, "x", name, [1, 4], 16)], [out(transport, name, 16, offset=place)]
            client.infer("scale", inputs, outputs=outputs)
            assert shm.get_contents_as_numpy(handle, np.float32, [4], offset=place).tolist() == [2, 4, 6, 8]
        assert mapped_by(server, name) == 1
        client.unregister_system_shared_memory(name)
        until(lambda: mapped_by(server, name) == 0)


def test_an_input_that_was_read_may_be_unregistered_before_the_answer(server, client, transport, memory, held):
    name, handle = memory(64)
    client.register_system_shared_memory(name, name, 64)
    shm.set_shared_memory_region(handle, [np.float32([[HELD, 0, 0, 0]])])
    with ThreadPoolExecutor(1) as pool, TRANSPORTS[transport].InferenceServerClient(server.url(transport)) as other:
        running = pool.submit(other.infer, "scale", [in_memory(transport, "x", name, [1, 4], 16)])
        held()
        client.unregister_system_shared_memory(name)
        server.let_go()
        assert running.result(20).as_numpy("output").tolist() == [[2 * HELD, 0, 0, 0]]


def test_a_region_is_not_written_for_a_client_that_has_gone(server, client, transport, memory, held):
    name, handle = memory(64)
    client.register_system_shared_memory(name, name, 64)
    shm.set_shared_memory_region(handle, [np.float32([[HELD, 0, 0, 0]])])
    inputs, outputs = [in_memory(transport, "x", name, [1, 4], 16)], [out(transport, name, 16, offset=32)]
    if transport == "grpc":
        running = client.async_infer("scale", inputs, lambda result, error: None, outputs=outputs)
    else:
        body, size = tritonclient.http.InferenceServerClient.generate_request_body(inputs, outputs=outputs)
        host, port = server.ports["http"].split(":")
        gone = socket.create_connection((host, int(port)), timeout=30)
        headers = f"Content-Length: {len(body)}\r\n" + (f"Inference-Header-Content-Length: {size}\r\n" if size else "")
        gone.sendall(f"POST /v2/models/scale/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode() + body)
    held()
    running.cancel() if transport == "grpc" else gone.close()
    until(lambda: 'headrace_in_flight{model="scale"} 0.0' in server.metrics())
    server.let_go()
    again = np.float32([[1, 2, 3, 4]])
    assert (scaled(server.request("POST", "/v2/models/scale/infer", scale_request(1.0))[2]) == [2, 2, 4, 6]).all()
    assert not shm.get_contents_as_numpy(handle, np.float32, [4], offset=32).any()  # that request came later
    shm.set_shared_memory_region(handle, [again])
    client.infer("scale", inputs, outputs=outputs)
    np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [1, 4], offset=32), 2 * again)


def test_a_request_runs_again_after_its_worker_was_killed(server, client, transport, memory):
    name, handle = memory(64)
    client.register_system_shared_memory(name, name, 64)
    shm.set_shared_memory_region(handle, [np.float32([[1001, 0, 0, 0]])])
    inputs, outputs = [in_memory(transport, "x", name, [1, 4], 16)], [out(transport, name, 16, offset=32)]
    with ThreadPoolExecutor(1) as pool, TRANSPORTS[transport].InferenceServerClient(server.url(transport)) as other:
        running = pool.submit(other.infer, "scale", inputs, outputs=outputs)
        until(lambda: mapped_by(server, name))
        for pid in server.workers():
            if name in Path(f"/proc/{pid}/maps").read_text():
                os.kill(pid, signal.SIGKILL)
        running.result(30)
    assert shm.get_contents_as_numpy(handle, np.float32, [4], offset=32).tolist() == [2002, 0, 0, 0]


def test_without_the_option_there_is_no_shared_memory(memory):
    name, _ = memory(64)
    with serving(models=("scale",)) as server:
        for transport, module in TRANSPORTS.items():
            with module.InferenceServerClient(server.url(transport)) as client:
                assert "--shared-memory" in refused(client.register_system_shared_memory, name, name, 64)
                assert "--shared-memory" in refused(
                    client.infer, "scale", [in_memory(transport, "x", name, [1, 4], 16)]
                )
                assert "system_shared_memory" not in str(client.get_server_metadata())


@settings(examples(20, 60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.dictionaries(
        st.sampled_from(["key", "offset", "byte_size"]),
        st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2) | st.floats(),
    ),
    parameters=st.dictionaries(
        st.sampled_from(["shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"]),
        st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2) | st.booleans(),
        min_size=1,
    ),
)
def test_any_registration_and_any_place_are_answered(server, asked, parameters):
    body = json.dumps(asked).encode()
    status, _, text = server.request("POST", "/v2/systemsharedmemory/region/fuzz/register", body)
    assert status == 400 and json.loads(text)["error"]
    request = scale_request(1.0)
    request["inputs"][0]["parameters"] = parameters
    request["outputs"] = [{"name": "output", "parameters": parameters}]
    assert server.request("POST", "/v2/models/scale/infer", request)[0] in (200, 400, 404)


@pytest.mark.slow
def test_registrations_are_bounded_and_leave_no_file_open(memory):
    name, _ = memory(64)
    before = len(os.listdir("/proc/self/fd"))
    regions = Regions(1000)
    for number in range(MAX_REGIONS):
        regions.register(str(number), name, 0, 64)
    with pytest.raises(BadInput, match="unregister one"):
        regions.register("more", name, 0, 64)
    regions.unregister()
    for key in (name, "missing"):
        with pytest.raises(BadInput):
            regions.register("beyond", key, 60, 5)
    assert len(os.listdir("/proc/self/fd")) == before
