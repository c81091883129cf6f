"""Test traces of tokens: three formats, errors that name the line, bytes at random, and the requests made of them."""

import json
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching.errors import UsageError
from headrace.sim.workload.contents import contents_of_hashes
from headrace.sim.workload.lengths import Fixed
from headrace.sim.workload.token_requests import Conversations, ImagesPerRequest, token_requests
from headrace.sim.workload.token_traces import TokenTrace, read_token_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
HASHED = '{"timestamp": 1, "input_length": 900, "output_length": 1, "hash_ids": %s}\n'
SAMPLE = Path(__file__).parents[3] / "examples" / "llm_trace.csv"


def read(folder, text):
    path = folder / "trace"
    path.write_text(text)
    return read_token_trace(path)


def columns(trace):
    images = None if trace.images is None else trace.images.tolist()
    return trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), images


def test_azure_times_count_from_the_first_request_to_a_tenth_of_a_microsecond(tmp_path):
    text = AZURE + "2023-11-16 23:59:59.9799601,4808,10\n2023-11-17 00:00:00,3180,8\n2024-02-29T00:00:00.5Z,1,1\n"
    arrival, prompts, outputs, images = columns(read(tmp_path, text))
    assert arrival[:2] == [0.0, 0.0200399]
    assert arrival[2] == pytest.approx(104 * 86400 + 0.5 + 0.0200399)  # 17 November to 29 February
    assert (prompts, outputs, images) == ([4808, 3180, 1], [10, 8, 1], None)


def test_burstgpt_leaves_out_requests_that_failed(tmp_path):
    text = (
        BURSTGPT
        + "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,10,0,10,API log\n118,ChatGPT,1087,230,1317,API log\n"
    )
    trace = read(tmp_path, text)
    assert columns(trace) == ([0.0, 113.0], [472, 1087], [18, 230], None)
    assert trace.failed == 1


def test_burstgpt_with_sessions_is_read_as_without(tmp_path):
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
        "19440161.5,d5983bf9,2,ChatGPT,36,29,65,API log\n"
    )
    assert columns(read(tmp_path, text)) == ([0.0, 51.5], [906, 36], [446, 29], None)


def test_mooncake_counts_milliseconds(tmp_path):
    text = (
        '{"timestamp": 27482, "input_length": 6955, "output_length": 52}\n\n'
        '{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": null}\n'
    )
    trace = read(tmp_path, text)
    assert columns(trace) == ([0.0, 3.053], [6955, 6472], [52, 26], None)
    assert trace.contents is None


def mooncake(folder, prompts):
    """Read a trace of prompts, each with its tokens and its hash_ids."""
    lines = [
        json.dumps({"timestamp": number, "input_length": tokens, "output_length": 1, "hash_ids": ids})
        for number, (tokens, ids) in enumerate(prompts)
    ]
    return read(folder, "\n".join(lines))


def test_hash_ids_tell_how_far_prompts_are_the_same(tmp_path):
    """Blocks of 512 tokens, as in the examples of Mooncake's README, where the first 12 blocks are the same."""
    same = list(range(46, 58))
    trace = mooncake(tmp_path, [(6955, [*same, 2353, 2354]), (6472, [*same, 2366]), (100, [7]), (600, [7, 57])])
    first, second, third, fourth = trace.contents.of(0, 4, 0)
    assert [end for _, end in first] == [6144, 6955]
    assert [end for _, end in second] == [6144, 6472]
    assert [end for _, end in third] == [100]
    assert [end for _, end in fourth] == [512, 600]
    assert first[0] == second[0]
    assert third[0][0] == fourth[0][0]
    numbers = {number for request in (first, second, third, fourth) for number, _ in request}
    assert len(numbers) == 5  # 57 after 7 is another block than 57 after 56
    assert trace.contents.of(1, 3, 1000) == [
        tuple((number + 1000, end) for number, end in request) for request in (second, third)
    ]
    assert trace.contents.every(2, 1).of(0, 2, 0) == [second, fourth]


@given(prompts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8))
@settings(max_examples=60)
def test_two_prompts_have_equal_segments_exactly_as_far_as_their_hashes_are_equal(prompts):
    found = contents_of_hashes(prompts, [512 * len(ids) for ids in prompts], 512).of(0, len(prompts), 0)
    for ids, segments in zip(prompts, found, strict=True):
        for others, other_segments in zip(prompts, found, strict=True):
            same = next((n for n, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b), None)
            same = min(len(ids), len(others)) if same is None else same
            shared = [each for each, other in zip(segments, other_segments, strict=False) if each == other]
            assert (shared[-1][1] if shared else 0) == 512 * same
            assert segments[: len(shared)] == other_segments[: len(shared)]


def test_some_prompts_may_have_no_hashes(tmp_path):
    text = '{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [5]}\n'
    trace = read(tmp_path, text + '{"timestamp": 0, "input_length": 9, "output_length": 2}\n' + text)
    assert trace.contents.of(0, 3, 0) == [((0, 9),), (), ((0, 9),)]


def test_a_column_tells_the_images_of_each_request(tmp_path):
    text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,2,300,5\n2024-01-01 00:00:01,0,7,5\n"
    assert columns(read(tmp_path, text))[3] == [2, 0]
    line = '{"timestamp": 0, "input_length": 9, "output_length": 2'
    text = line + ', "NumImages": 1}\n' + line + "}\n"
    assert columns(read(tmp_path, text))[3] == [1, 0]


def test_the_sample_of_azure_is_read_as_it_stands():
    trace = read_token_trace(SAMPLE)
    lines = SAMPLE.read_text().splitlines()[1:]
    assert trace.requests == len(lines) == 200
    assert [f"{a},{b}" for a, b in zip(trace.prompt_tokens, trace.output_tokens, strict=True)] == [
        line.partition(",")[2] for line in lines
    ]
    assert trace.arrival_s[1] == pytest.approx(50.9951690 - 46.6805900)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line is that of no known trace; begin with TIMESTAMP,ContextTokens,GeneratedTokens"),
        ("a,b\n1,2\n", "of no known trace"),
        (AZURE, "has no requests"),
        (AZURE + "2023-11-16 18:17:03,1\n", "line 2: GeneratedTokens is None, which is no whole number"),
        (AZURE + "2023-11-16 18:17:03,x,1\n", "line 2: ContextTokens is x, which is no whole number from 0 to"),
        (AZURE + "2023-11-16 18:17:03,-1,1\n", "line 2: ContextTokens is -1"),
        (AZURE + "2023-11-16 18:17:03,1.5,1\n", "line 2: ContextTokens is 1.5"),
        (AZURE + "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:04,99999999,1\n", "line 3: ContextTokens is 99999999"),
        (AZURE + "2023-11-16 18:17:03,1,0\n", "line 2: GeneratedTokens is 0, and an output has 1 token or more"),
        (AZURE + "2023-11-16 18:17:03,0,1\n", "line 2: a prompt of 0 tokens"),
        (AZURE + "2023-13-16 18:17:03,1,1\n", "line 2: TIMESTAMP is 2023-13-16 18:17:03, which is no time such as"),
        (AZURE + "2023-11-16 24:17:03,1,1\n", "line 2: TIMESTAMP"),
        (AZURE + "17,1,1\n", "line 2: TIMESTAMP is 17"),
        (AZURE + "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02,1,1\n", "line 3: it comes before the line above; sort"),
        (BURSTGPT + "nan,m,1,1,2,l\n", "line 2: Timestamp is nan, which is no time"),
        (BURSTGPT + "-1,m,1,1,2,l\n", "line 2: Timestamp is -1"),
        (BURSTGPT + "1e99,m,1,1,2,l\n", "line 2: Timestamp is 1e99"),
        (BURSTGPT + "1,m,5,0,5,l\n", "has no requests"),
        ('{"timestamp": 1}\n', "line 1: it lacks input_length, output_length; give timestamp,"),
        ('{"timestamp": true, "input_length": 1, "output_length": 1}\n', "line 1: timestamp is True"),
        ('{"timestamp": 1, "input_length": 1.0, "output_length": 1}\n', "line 1: input_length is 1.0"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 0}\n', "line 1: output_length is 0"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1}\n[1]\n', "line 2: it is no JSON object"),
        ('{"timestamp": 1,\n', "line 1: it is no JSON"),
        (HASHED % "[1]", "line 1: hash_ids has 1 numbers, and a prompt of 900 tokens has 2 blocks of 512"),
        (HASHED % "[1, -1]", "line 1: a number of hash_ids is -1, which is no whole number"),
        (HASHED % "[1, 2.0]", "line 1: a number of hash_ids is 2.0"),
        (HASHED % "[1, [2]]", "line 1: a number of hash_ids is [2]"),
        (HASHED % "[1, true]", "line 1: a number of hash_ids is True"),
        (HASHED % "[1, 1e999]", "line 1: a number of hash_ids is inf"),
        (HASHED % '"12"', "line 1: hash_ids is 12, which is no list"),
        (HASHED % "{}", "line 1: hash_ids is {}, which is no list"),
        ('{"timestamp": 1, "a": ' + "[" * 100_000 + "\n", "line 1: it"),
        ("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,x,3,5\n", "line 2: NumImages is x"),
    ],
)
@pytest.mark.usefixtures("full_stack")
def test_a_wrong_trace_is_told_with_its_line(tmp_path, text, message):
    with pytest.raises(UsageError) as told:
        read(tmp_path, text)
    assert message in str(told.value)
    assert "trace" in str(told.value) and "\n" not in str(told.value)


LINES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "2023-11-16 18:17:03.97,480,10",
            "5,ChatGPT,472,18,490,Conversation log",
            '{"timestamp": 27482, "input_length": 6955, "output_length": 52}',
            '{"timestamp": 1e400, "input_length": 1, "output_length": 52}',
            '"2023-11-16',
            ",,,,,,",
        ]
    ),
)


@given(
    head=st.sampled_from([AZURE, BURSTGPT, "", '{"timestamp": 1, "input_length": 1, "output_length": 2}\n']),
    lines=st.lists(LINES, max_size=6),
    raw=st.binary(max_size=40),
)
@settings(max_examples=200)
def test_any_bytes_give_a_trace_or_one_line_that_says_what_to_change(tmp_path_factory, head, lines, raw):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes((head + "\n".join(lines)).encode("utf-8", "surrogatepass") + raw)
    try:
        trace = read_token_trace(path)
    except UsageError as error:
        assert str(path) in str(error)
        return
    assert trace.requests >= 1
    assert (np.diff(trace.arrival_s) >= 0).all() and trace.arrival_s[0] == 0.0
    assert trace.prompt_tokens.min() >= 1 and trace.output_tokens.min() >= 1


def trace_of(*rows, images=None):
    arrival, prompts, outputs = zip(*rows, strict=True)
    counts = None if images is None else np.array(images)
    return TokenTrace(np.array(arrival), np.array(prompts), np.array(outputs), counts)


def test_requests_have_the_lengths_of_the_trace_and_targets_from_their_arrival():
    trace = trace_of((0.0, 10, 3), (4.0, 20, 5))
    first, second = token_requests(trace, speed=2.0, ttft_s=0.5, tpot_s=0.1)
    assert (first.id, first.arrival, first.prompt_tokens, first.output_len) == (0, 0.0, 10, 3)
    assert (second.id, second.arrival, second.prompt_tokens, second.output_len) == (1, 2.0, 20, 5)
    assert (second.first_token_by, second.tpot_s, second.deadline) == (2.5, 0.1, pytest.approx(2.9))
    assert second.max_output_tokens == 5
    assert [each.max_output_tokens for each in token_requests(trace, max_output_tokens=9)] == [9, 9]


def test_a_longer_run_repeats_the_trace_after_one_mean_distance():
    trace = trace_of((0.0, 10, 3), (1.0, 20, 5), (4.0, 30, 7))
    made = list(token_requests(trace, requests=7))
    assert [each.arrival for each in made] == [0.0, 1.0, 4.0, 6.0, 7.0, 10.0, 12.0]
    assert [each.prompt_tokens for each in made] == [10, 20, 30, 10, 20, 30, 10]
    assert [each.id for each in made] == list(range(7))


def test_requests_are_made_as_they_are_read():
    endless = token_requests(trace_of((0.0, 10, 3), (1.0, 20, 5)), requests=10**15)
    assert [each.id for each in islice(endless, 3)] == [0, 1, 2]


def test_images_come_from_the_column_or_from_shares():
    trace = trace_of((0.0, 10, 3), (1.0, 900, 5), images=[0, 2])
    assert [each.items for each in token_requests(trace, images=ImagesPerRequest(256))] == [(), (256, 256)]
    assert [each.prompt_tokens for each in token_requests(trace, images=ImagesPerRequest(256))] == [10, 1412]
    assert [each.prompt_tokens for each in token_requests(trace, images=ImagesPerRequest(256, in_prompt=True))] == [
        10,
        900,
    ]
    drawn = list(token_requests(trace, requests=9000, images=ImagesPerRequest(64, {0: 0.5, 3: 0.5}), seed=1))
    counts = [len(each.items) for each in drawn]
    assert set(counts) == {0, 3}
    assert sum(counts) / 9000 == pytest.approx(1.5, abs=0.1)
    again = token_requests(trace, requests=9000, images=ImagesPerRequest(64, {0: 0.5, 3: 0.5}), seed=1)
    assert [each.items for each in again] == [each.items for each in drawn]


def test_drawn_lengths_make_a_trace():
    trace = TokenTrace.drawn(np.array([0.0, 1.0]), Fixed(7, 9), seed=0)
    assert columns(trace) == ([0.0, 1.0], [7, 7], [9, 9], None)


def test_wrong_arguments_are_told():
    trace = trace_of((0.0, 10, 3), (1.0, 20, 5))
    for options, message in (
        ({"requests": 0}, "give at least 1"),
        ({"speed": 0.0}, "a speed of 0.0"),
        ({"speed": math.nan}, "a speed of nan"),
        ({"ttft_s": 0.0}, "targets of 0.0 s"),
        ({"max_output_tokens": 4}, "an output has 5 tokens, and at most 4 are allowed"),
        ({"images": ImagesPerRequest(9)}, "the trace has no images; give it a column NumImages"),
    ):
        with pytest.raises(UsageError, match=message):
            token_requests(trace, **options)
    with pytest.raises(UsageError, match="whose shares sum to 1"):
        ImagesPerRequest(9, {0: 0.5})
    with pytest.raises(UsageError, match="images of 0 tokens"):
        ImagesPerRequest(0)
    with pytest.raises(UsageError, match="arrive at one time"):
        token_requests(trace_of((0.0, 1, 1)), requests=2)
    with pytest.raises(UsageError, match="encoder item of 100 tokens, in a prompt of 20"):
        list(token_requests(trace_of((0.0, 20, 1), images=[1]), images=ImagesPerRequest(100, in_prompt=True)))


def test_a_repeated_trace_has_new_contents_each_time(tmp_path):
    trace = mooncake(tmp_path, [(600, [1, 2]), (600, [1, 3])])
    segments = [request.contents for request in token_requests(trace, requests=4, speed=1.0)]
    assert segments[0][0] == segments[1][0] != segments[2][0] == segments[3][0]
    assert len({number for each in segments for number, _ in each}) == 6


def test_turns_go_on_with_the_conversation_that_waited_longest():
    """New tokens of 10 to 15, outputs of 5, a system prompt of 100, and 3 turns at least 10 s apart.

    time             0    1    11   12   13   30
    conversation     1    2    1    2    3    1
    its prompt       110  111  127  129  114  147
    """
    arrivals = np.array([0.0, 1.0, 11.0, 12.0, 13.0, 30.0])
    trace = TokenTrace(arrivals, np.arange(10, 16), np.full(6, 5))
    made = Conversations(system_tokens=100, turns=3, turn_gap_s=10.0).with_history(trace)
    assert made.prompt_tokens.tolist() == [110, 111, 127, 129, 114, 147]
    assert made.contents.of(0, 6, 0) == [
        ((0, 100), (1, 115)),
        ((0, 100), (2, 116)),
        ((0, 100), (1, 132)),
        ((0, 100), (2, 134)),
        ((0, 100), (3, 119)),
        ((0, 100), (1, 152)),
    ]
    with pytest.raises(UsageError, match="tells what its prompts have in common"):
        Conversations(system_tokens=1).with_history(made)
    images = ImagesPerRequest(tokens=4, shares={1: 1.0})
    with pytest.raises(UsageError, match="not into conversations"):
        list(token_requests(made, images=images))


def test_a_conversation_ends_before_its_prompt_is_too_long():
    trace = TokenTrace(np.arange(0.0, 400.0, 100.0), np.full(4, 10), np.full(4, 5))
    made = Conversations(turns=9, turn_gap_s=10.0, longest_prompt=40).with_history(trace)
    assert made.prompt_tokens.tolist() == [10, 25, 40, 10]
    assert [each[0][0] for each in made.contents.of(0, 4, 0)] == [1, 1, 1, 2]
