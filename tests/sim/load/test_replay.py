import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.load.replay import read_trace

HEADER = "arrival_s,model,input_len,output_len\n"


def test_a_trace_is_replayed_as_it_is(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text(HEADER + "0.5,text,12,9\n0.5,image,1,1\n2,text,3.5,4\n")
    load = read_trace(file, ["text", "image"], 0.1)
    assert load.arrival == [0.5, 0.5, 2.0] and load.models == ["text", "image", "text"]
    assert load.input_len == [12.0, 1.0, 3.5] and load.output_len == [9, 1, 4]
    assert load.deadline == pytest.approx([0.6, 0.6, 2.1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_s,model\n1,text\n", "lacks input_len, output_len"),
        (HEADER, "has no requests"),
        (HEADER + "x,text,1,1\n", "line 2: could not convert"),
        (HEADER + "1,text,1\n", "line 2"),
        (HEADER + "1,other,1,1\n", "line 2: model 'other' is not served"),
        (HEADER + "2,text,1,1\n1,text,1,1\n", "line 3: arrival_s is 1.0"),
        (HEADER + "nan,text,1,1\n", "line 2: arrival_s is nan"),
        (HEADER + "1,text,0,1\n", "line 2: lengths"),
        (HEADER + "1,text,nan,1\n", "line 2: lengths of nan"),
        (HEADER + "1,text,1,0\n", "line 2: lengths"),
        (HEADER + '1,"text,1,1\n', "unexpected end"),
    ],
)
def test_a_broken_trace_is_refused_with_the_line(tmp_path, text, message):
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_trace(file, ["text"], 0.1)


@pytest.mark.parametrize("sla_s", [math.nan, 0.0, -1.0])
def test_a_trace_needs_a_target_above_0(tmp_path, sla_s):
    file = tmp_path / "trace.csv"
    file.write_text(HEADER + "1,text,1,1\n")
    with pytest.raises(UsageError, match="the SLA is"):
        read_trace(file, ["text"], sla_s)


@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_trace_or_are_refused(body, tmp_path_factory):
    file = tmp_path_factory.mktemp("fuzz") / "file"
    for head in (b"", HEADER.encode()):
        file.write_bytes(head + body)
        try:
            read_trace(file, ["text"], 0.1)
        except UsageError as error:
            assert "file" in str(error)
