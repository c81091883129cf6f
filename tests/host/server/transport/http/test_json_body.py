"""Test JSON of clients. Tensors equal those of Python's own reader and numpy, and other JSON is refused."""

import json

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import BadInput
from headrace.host.server.protocol.messages import BYTES, DATATYPES, MAX_FIELDS, MAX_OBJECTS
from headrace.host.server.transport.http.json_body import Body, tensor

SHAPES = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple)


def body(value, max_bytes=1 << 24):
    return Body(memoryview(value if isinstance(value, bytes) else json.dumps(value).encode()), max_bytes)


def read(datatype, shape, data):
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    found = body(b'{"inputs":[{"data":' + raw + b"}]}")
    return tensor("x", datatype, tuple(shape), found.objects("inputs")[0]["data"])


@given(SHAPES, st.sampled_from(sorted(DATATYPES)), st.booleans(), st.randoms(use_true_random=False))
def test_a_tensor_is_what_numpy_makes_of_the_same_list(shape, datatype, flat, random):
    dtype = np.dtype(DATATYPES[datatype])
    count = int(np.prod(shape))
    if dtype.kind == "f":
        values = [random.uniform(-1e4, 1e4) if random.random() < 0.8 else random.randint(-9, 9) for _ in range(count)]
    elif dtype.kind == "b":
        values = [random.random() < 0.5 for _ in range(count)]
    else:
        limits = np.iinfo(dtype)
        values = [random.randint(int(limits.min), int(limits.max)) for _ in range(count)]
    expected = np.array(values, dtype).reshape(shape)
    nested = np.array(values, object).reshape(shape).tolist()
    found = read(datatype, shape, values if flat else nested)
    assert found.dtype == dtype and found.shape == shape and np.array_equal(found, expected)


def test_numbers_are_rounded_as_by_numpy_and_large_ones_are_exact():
    texts = ["0.1", "1e-46", "3.4028235e38", "1e39", "65519.999", "65520", "-0.0", "16777217", "2e-324"]
    for datatype in ("FP16", "FP32", "FP64"):
        with np.errstate(over="ignore"):
            expected = np.array([float(text) for text in texts]).astype(DATATYPES[datatype])
        found = read(datatype, [len(texts)], f"[{','.join(texts)}]".encode())
        assert found.tobytes() == expected.tobytes()
    assert read("INT64", [2], [2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)]


def test_texts_become_bytes():
    found = read(BYTES, [2, 1], [["a\0\u00e9"], [""]])
    assert found.shape == (2, 1) and found.ravel().tolist() == ["a\0\u00e9".encode(), b""]


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "text"),
    [
        ("FP32", [2], [1, None], "not a list of FP32"),
        ("FP32", [2], [1, "2"], "not a list of FP32"),
        ("FP32", [2], [1, True], "not a list of FP32"),
        ("FP32", [2], [1, {}], "not a list of FP32"),
        ("FP32", [2], 5, "neither data"),
        ("FP32", [2], {"a": 1}, "neither data"),
        ("FP32", [2], [1, 2, 3], "does not fit the 3"),
        ("FP32", [2, 2], [[1, 2, 3, 4]], "does not fit"),
        ("FP32", [2, 2], [[[1, 2], [3, 4]]], "does not fit"),
        ("INT64", [1], [2**63], "beyond INT64"),
        ("INT64", [1], [1.0], "not a list of INT64"),
        ("UINT8", [1], [-1], "outside the range of UINT8"),
        ("INT8", [1], [128], "outside the range of INT8"),
        ("BOOL", [2], [True, 1], "not a list of BOOL"),
        ("BOOL", [2], [True], "does not fit the 1"),
        ("BYTES", [2], ["a", None], "not a list of BYTES"),
        ("BYTES", [2], ["a"], "does not fit the 1"),
        ("BOOL", [MAX_OBJECTS * 3], [True] * (MAX_OBJECTS * 3), "too many elements"),
        ("BYTES", [MAX_OBJECTS * 3], [""] * (MAX_OBJECTS * 3), "too many elements"),
        ("BYTES", [MAX_OBJECTS + 1], [""] * (MAX_OBJECTS + 1), "65537 elements of BYTES; send at most 65536"),
        ("BOOL", [1], [[]] * (MAX_OBJECTS * 3), "does not fit|too many elements"),
        ("FP128", [1], [1], "unknown datatype"),
    ],
)
def test_what_is_no_tensor_is_refused(datatype, shape, data, text):
    with pytest.raises(BadInput, match=text):
        read(datatype, shape, data)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b"5", "must be a JSON object"),
        (b'{"a":NaN}', "not JSON"),
        (b'{"a":"\\ud800"}', "not JSON"),
        (b'{"a":"\xff"}', "not JSON"),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "not JSON.*too deep"),
        (b'{"a":1}' + bytes(20), "not JSON"),
        (b'{"a\\u0000":1}', "the name of a field has a zero byte"),
        (b'{"a":' + b"9" * 400 + b"}", "not JSON"),
        (b" " * 101, "101 bytes of JSON; send at most 100"),
        (json.dumps({str(n): n for n in range(MAX_FIELDS + 1)}).encode(), "1025 fields; send at most 1024"),
    ],
)
@pytest.mark.usefixtures("full_stack")
def test_what_is_no_object_is_refused(raw, text):
    with pytest.raises(BadInput, match=text):
        body(raw, 100 if b"  " in raw else 1 << 24)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)


@given(st.dictionaries(NAME, JSON, max_size=4))
def test_any_object_is_read_as_orjson_reads_it(value):
    raw = orjson.dumps(value)
    found = body(raw).fields
    plain = {
        key: each.as_dict() if hasattr(each, "as_dict") else each.as_list() if hasattr(each, "as_list") else each
        for key, each in found.items()
    }
    assert plain == orjson.loads(raw)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:0123456789.eE-tfn\\u ', max_size=60).map(str.encode))
def test_any_bytes_are_an_object_or_refused(raw):
    try:
        found = body(raw)
    except BadInput:
        return
    assert found.fields.keys() == json.loads(raw).keys()
