"""Test that messages written as bytes equal protobuf's, and that any other bytes are bad input."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import BadInput
from headrace.host.server.protocol.messages import MAX_FIELDS
from headrace.host.server.transport.grpc.wire import read_request, write_response, write_stream_response

TEXT = st.text(max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
PARAMETERS = st.dictionaries(
    TEXT,
    st.builds(pb.InferParameter, int64_param=NUMBERS) | st.builds(pb.InferParameter, string_param=TEXT),
    max_size=2,
)
CONTENTS = st.lists(st.binary(max_size=300), max_size=3)
REQUESTS = st.builds(
    pb.ModelInferRequest,
    model_name=TEXT,
    model_version=TEXT,
    id=TEXT,
    parameters=PARAMETERS,
    inputs=st.lists(
        st.builds(
            pb.ModelInferRequest.InferInputTensor,
            name=TEXT,
            datatype=TEXT,
            shape=st.lists(NUMBERS, max_size=3),
            parameters=PARAMETERS,
            contents=st.builds(pb.InferTensorContents, int64_contents=st.lists(NUMBERS, max_size=3)),
        ),
        max_size=2,
    ),
    outputs=st.lists(
        st.builds(pb.ModelInferRequest.InferRequestedOutputTensor, name=TEXT, parameters=PARAMETERS), max_size=2
    ),
    raw_input_contents=CONTENTS,
)
RESPONSES = st.builds(
    pb.ModelInferResponse,
    model_name=TEXT,
    id=TEXT,
    outputs=st.lists(st.builds(pb.ModelInferResponse.InferOutputTensor, name=TEXT, shape=st.lists(NUMBERS))),
)


def whole(message):
    """Return the message that `read_request` has split, in one piece again."""
    request, contents = read_request(message)
    found = pb.ModelInferRequest()
    found.CopyFrom(request)
    found.raw_input_contents[:] = map(bytes, contents)
    return found


@given(REQUESTS)
def test_a_request_is_read_as_protobuf_reads_it(request):
    assert whole(request.SerializeToString()) == request


@given(st.lists(REQUESTS, min_size=2, max_size=3))
def test_fields_that_come_in_any_order_and_again_are_read_as_protobuf_reads_them(requests):
    joined = b"".join(request.SerializeToString() for request in requests)
    assert whole(joined) == pb.ModelInferRequest.FromString(joined)


def test_raw_contents_are_not_copied():
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"abc", b""]).SerializeToString()
    _, contents = read_request(message)
    assert [bytes(raw) for raw in contents] == [b"abc", b""] and all(raw.obj is message for raw in contents)


DAMAGE = st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.binary(max_size=3))


@given(st.binary(max_size=80) | st.builds(lambda request, damage: damaged(request, *damage), REQUESTS, DAMAGE))
def test_any_bytes_are_read_as_protobuf_reads_them_or_are_bad_input(message):
    try:
        expected = pb.ModelInferRequest.FromString(message)
    except DecodeError:
        with pytest.raises(BadInput, match="not a ModelInferRequest"):
            read_request(message)
    else:
        assert whole(message).SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def damaged(request, at, cut, put):
    message = request.SerializeToString()
    at %= len(message) + 1
    return message[:at] + put + message[at + cut :]


@pytest.mark.parametrize(
    "message",
    [
        b"\x3a",
        b"\x3a\x05abc",
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x3a" + b"\x80" * 11,
        b"\x0a\x01\xff",
        b"\x3b",
        b"\x3b\x3a\x01a",
        b"\x00\x00",
    ],
)
def test_lengths_and_keys_that_lie_are_bad_input(message):
    with pytest.raises(BadInput, match="not a ModelInferRequest"):
        read_request(message)


def test_a_number_longer_than_it_need_be_and_unknown_fields_are_read():
    message = b"\x0a\x81\x80\x80\x00m" + b"\x3a\x83\x00abc" + b"\xf8\x07\x05" + b"\x43\x44"  # field 127, a group
    request, contents = read_request(message)
    assert request.model_name == "m" and [bytes(raw) for raw in contents] == [b"abc"]


FIELDS = {"parameters": 4, "inputs": 5, "outputs": 6, "raw_input_contents": 7}


class Watched(bytes):
    """A message that notes the last of its bytes that was looked at."""

    furthest = 0

    def __getitem__(self, at):
        self.furthest = max(self.furthest, at)
        return super().__getitem__(at)


@pytest.mark.parametrize("field", FIELDS)
def test_fields_are_bounded_before_they_are_looked_at(field):
    """Without the bound, 8 MiB of empty fields blocked a server for 16 s."""
    key = bytes([FIELDS[field] << 3 | 2])
    one = b"\x03\x0a\x01%c" if field == "parameters" else b"\x00"
    few = [
        key + (one % number if field == "parameters" else one) for number in range(MAX_FIELDS if one == b"\x00" else 9)
    ]
    request, contents = read_request(b"".join(few))
    assert len(getattr(request, field) or contents) == len(few)
    message = Watched((key + b"\x00") * (4 << 20))
    with pytest.raises(BadInput, match="more than 1024"):
        read_request(message)
    assert MAX_FIELDS < message.furthest < 2 * (MAX_FIELDS + 5)  # an empty field has two bytes


def test_parameters_within_inputs_and_outputs_count():
    parameters = {str(number): pb.InferParameter(bool_param=True) for number in range(MAX_FIELDS // 2)}
    inputs = [pb.ModelInferRequest.InferInputTensor(name="x", parameters=parameters)]
    outputs = [pb.ModelInferRequest.InferRequestedOutputTensor(name="y", parameters=parameters)]
    read_request(pb.ModelInferRequest(inputs=inputs).SerializeToString())
    with pytest.raises(BadInput, match="more than 1024"):
        read_request(pb.ModelInferRequest(inputs=inputs, outputs=outputs).SerializeToString())


def test_a_long_message_that_only_protobuf_can_read_is_refused():
    unknown = b"\xf8\x07\x05"
    read_request(unknown + bytes([7 << 3 | 2]) + b"\x80\x80\x08" + bytes(1 << 17))
    with pytest.raises(BadInput, match="fields that a ModelInferRequest does not have"):
        read_request(unknown + b"\x32\x00" * (1 << 18))


@given(RESPONSES, CONTENTS)
def test_an_answer_is_what_protobuf_reads(response, contents):
    parts = write_response(response.SerializeToString(), map(memoryview, contents))
    message = b"".join(parts)
    expected = pb.ModelInferResponse()
    expected.CopyFrom(response)
    expected.raw_output_contents[:] = contents
    assert pb.ModelInferResponse.FromString(message) == expected
    streamed = pb.ModelStreamInferResponse.FromString(b"".join(write_stream_response(parts)))
    assert streamed.infer_response == expected and not streamed.error_message


def test_contents_of_every_length_keep_it():
    for length in (0, 1, 127, 128, 16383, 16384, 2**21):
        message = b"".join(write_response(pb.ModelInferResponse().SerializeToString(), [bytes(length)]))
        assert list(map(len, pb.ModelInferResponse.FromString(message).raw_output_contents)) == [length]
