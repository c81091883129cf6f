"""A remembered description changes no answer: requests are read as by a server that remembers nothing."""

import json
from functools import partial

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import HeadraceError
from headrace.host.memory.sources import array_of
from headrace.host.server.protocol.descriptions import MAX_BYTES, MAX_KEPT, Descriptions, key_of
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.shared_memory import Regions
from headrace.host.server.transport.grpc import tensor_calls as grpc
from headrace.host.server.transport.http import endpoints as http

ONES, TWOS = np.ones(4, np.float32).tobytes(), np.full(4, 2, np.float32).tobytes()


def tensor(name="x", **more):
    return {"name": name, "datatype": "FP32", "shape": [1, 4]} | more


def binary(size=16):
    return {"parameters": {"binary_data_size": size}}


def body(inputs, data=b"", **more):
    header = json.dumps({"inputs": inputs} | more).encode()
    return header + data, str(len(header))


def outcome(read):
    """Return the request with its inputs as lists, or the text of the error."""
    try:
        request = read()
    except HeadraceError as error:
        return f"{type(error).__name__}: {error}"
    inputs = {name: (array_of(each).dtype.str, array_of(each).tolist()) for name, each in request.inputs.items()}
    outputs = [(each.name, each.classes, each.binary, each.window is not None) for each in request.outputs]
    return (request.model, request.version, request.id, request.timeout_us, request.binary, inputs, outputs)


# Pairs with the same description and other data follow each other.
BODIES = [
    body([tensor(**binary())], ONES),
    body([tensor(**binary())], TWOS),
    body([tensor(**binary())], TWOS[:-1]),
    body([tensor(**binary())], TWOS + b"\0"),
    body([tensor(**binary())], ONES, id="7", parameters={"timeout": 5, "binary_data_output": True}),
    body([tensor(**binary())], TWOS, outputs=[{"name": "y", "parameters": {"classification": 2}}]),
    body([tensor(data=[1, 2, 3, 4])]),
    body([tensor(data=[5, 6, 7, 8])]),
    body([tensor(**binary()), tensor("z", data=[1, 2, 3, 4])], ONES),
    body([tensor(**binary()), tensor("z", data=[1, 2, 3, 5])], ONES),
    body([tensor(**binary()), tensor(**binary())], ONES + TWOS),
    body([tensor(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 16})]),
    body([tensor(parameters={"shared_memory_region": "r", "shared_memory_byte_size": "16"})]),
]


@pytest.mark.parametrize("regions", [None, Regions(1 << 20)], ids=["no regions", "no such region"])
def test_an_http_body_is_read_alike_whatever_came_before(regions):
    kept = Descriptions()
    for raw, length in BODIES * 2:
        for model in ("a", "b"):
            read = partial(http.infer_request, model, "1", memoryview(raw), length, Limits(), regions)
            assert outcome(partial(read, kept)) == outcome(partial(read, Descriptions()))


def message(raw=(), numbers=(), shape=(1, 4), **more):
    entry = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=shape)
    entry.contents.fp32_contents.extend(numbers)
    return pb.ModelInferRequest(model_name="a", inputs=[entry], raw_input_contents=raw, **more).SerializeToString()


MESSAGES = [
    message([ONES]),
    message([TWOS]),
    message(),
    message(shape=[1, 0]),
    message([b""], shape=[1, 0]),
    message(shape=[1, 0]),
    message([ONES, TWOS]),
    message(numbers=[1, 2, 3, 4]),
    message([TWOS], [1, 2, 3, 4]),
    message(numbers=[5, 6, 7, 8]),
    message([ONES], id="7", model_version="1"),
    message([ONES]) + bytes([15 << 3 | 2, 1, 0]),  # a field that a request does not have
    message([TWOS]) + bytes([15 << 3 | 2, 1, 0]),
]


def test_a_grpc_message_is_read_alike_whatever_came_before():
    kept = Descriptions()

    def read(memory, raw):
        received = grpc.received(raw, Limits(), memory)
        return grpc.infer_request(received.description(), received.contents, None)

    for raw in MESSAGES * 2:
        assert outcome(partial(read, kept, raw)) == outcome(partial(read, Descriptions(), raw))


def test_few_and_short_descriptions_are_remembered():
    kept = Descriptions()

    def infer(id):
        raw, length = body([tensor(**binary())], ONES, id=id)
        http.infer_request("a", "1", memoryview(raw), length, Limits(), None, kept)
        return key_of(raw[: int(length)], "a", "1")

    first = infer("0")
    assert kept.find(first) is not None
    keys = [infer(str(number)) for number in range(1, MAX_KEPT + 1)]
    assert kept.find(first) is None and all(kept.find(key) is not None for key in keys)
    assert infer("x" * MAX_BYTES) is None
