import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.engine import Arrivals
from headrace.sim.workload.replay import every, faster, lengths_of, mean_rps, read_trace

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
        (HEADER + "x,text,1,1\n", "line 2: arrival_s is x, which is no number"),
        (HEADER + "1,text,1\n", "line 2"),
        (HEADER + "1,other,1,1\n", "line 2: model 'other' is not served"),
        (HEADER + "2,text,1,1\n1,text,1,1\n", "line 3: arrival_s is 1; times must"),
        (HEADER + "nan,text,1,1\n", "line 2: arrival_s is nan, which is no number"),
        (HEADER + "sNaN,text,1,1\n", "line 2: arrival_s is sNaN, which is no number"),
        (HEADER + "inf,text,1,1\n", "line 2: arrival_s is inf, which is no number"),
        (HEADER + "0,text,1,1\n1e999999999,text,1,1\n", "line 3: arrival_s is 1e999999999"),
        (HEADER + "-1,text,1,1\n", "line 2: arrival_s is -1; times must"),
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


BEGIN = 1_700_000_000  # a clock's second, in 2023
OFFSETS_NS = [0, 1, 500, 500, 1_000_000, 123_456_789, 3_600_000_000_000]


@pytest.mark.parametrize("begin_s", [0, 5, BEGIN])
@pytest.mark.parametrize(("unit", "digits"), [("s", 9), ("ms", 6), ("us", 3), ("ns", 0)])
def test_times_in_any_unit_are_exact(tmp_path, unit, digits, begin_s):
    """A clock's time in nanoseconds has more digits than a float: equal times stay equal, and others differ."""
    file = tmp_path / "trace.csv"
    rows = []
    for offset in OFFSETS_NS:
        text = str(begin_s * 10**9 + offset).rjust(digits + 1, "0")
        rows.append(f"{text[:-digits]}.{text[-digits:]}" if digits else text)
    file.write_text(HEADER.replace("arrival_s", f"arrival_{unit}") + "".join(f"{row},text,1,1\n" for row in rows))
    first = 0 if begin_s == BEGIN else begin_s * 10**9
    assert read_trace(file, ["text"], 0.1).arrival == [(first + offset) / 1e9 for offset in OFFSETS_NS]


@pytest.mark.parametrize(
    ("unit", "begin", "way"),
    [
        ("s", "1700000000000", "; name the column arrival_ms"),
        ("s", "1700000000000000", "; name the column arrival_us"),
        ("s", "1700000000000000000", "; name the column arrival_ns"),
        ("ms", "1700000000000000000", "; name the column arrival_ns"),
        ("s", "1e30", "$"),
    ],
)
def test_a_clocks_time_in_another_unit_than_the_header_says_is_refused(tmp_path, unit, begin, way):
    file = tmp_path / "trace.csv"
    file.write_text(HEADER.replace("arrival_s", f"arrival_{unit}") + f"{begin},text,1,1\n")
    with pytest.raises(UsageError, match=f"line 2: arrival_{unit} begins beyond the year 2100{way}"):
        read_trace(file, ["text"], 0.1)


@pytest.mark.parametrize("slo_s", [math.nan, 0.0, -1.0])
def test_a_trace_needs_a_target_above_0(tmp_path, slo_s):
    file = tmp_path / "trace.csv"
    file.write_text(HEADER + "1,text,1,1\n")
    with pytest.raises(UsageError, match="the target latency is"):
        read_trace(file, ["text"], slo_s)


@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_trace_or_are_refused(body, tmp_path_factory):
    file = tmp_path_factory.mktemp("fuzz") / "file"
    for head in (b"", HEADER.encode()):
        file.write_bytes(head + body)
        try:
            read_trace(file, ["text"], 0.1)
        except UsageError as error:
            assert "file" in str(error)


def trace_of(times):
    count = len(times)
    return Arrivals(["text"] * count, sorted(times), [math.inf] * count, [*range(1, count + 1)], [1] * count)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.integers(1, 8))
def test_what_equal_servers_get_that_take_turns_is_the_trace_again(times, servers):
    whole = trace_of(times)
    parts = [every(whole, servers, first) for first in range(min(servers, len(times)))]
    assert sorted(length for part in parts for length in part.input_len) == whole.input_len
    assert sorted(time for part in parts for time in part.arrival) == whole.arrival
    counts = [len(part.arrival) for part in parts]
    assert max(counts) - min(counts) <= 1
    if servers > len(times):
        with pytest.raises(UsageError, match=f"--replay-every {servers}: there are only {len(times)} requests"):
            every(whole, servers, servers - 1)


def test_a_trace_that_is_played_faster_has_its_rate_times_the_speed():
    whole = trace_of([2.0, 3.0, 7.0])
    assert mean_rps(whole) == 2 / 5
    quick = faster(whole, 2.5, 0.1)
    assert quick.arrival == pytest.approx([0.8, 1.2, 2.8]) and quick.deadline == pytest.approx([0.9, 1.3, 2.9])
    assert mean_rps(quick) == pytest.approx(2.5 * mean_rps(whole))
    assert quick.input_len == whole.input_len
    with pytest.raises(UsageError, match="all requests of the trace arrive at one time"):
        mean_rps(trace_of([4.0, 4.0]))


def test_lengths_of_a_trace_are_those_of_each_model():
    found = lengths_of(Arrivals(["a", "b", "a"], [0, 1, 2], [9] * 3, [5.0, 7.0, 6.0], [1, 2, 3]))
    assert sorted(found) == ["a", "b"]
    inputs, outputs = found["a"].sample(50, np.random.default_rng(0))
    assert set(zip(inputs.tolist(), outputs.tolist(), strict=True)) == {(5.0, 1), (6.0, 3)}
