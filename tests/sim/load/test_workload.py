import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.load.lengths import SPEECH, TRANSLATION, Fixed, dec_timesteps, read_corpus
from headrace.sim.load.traffic import poisson
from headrace.sim.load.workload import generate, read_trace


def test_translation_lengths_satisfy_what_the_paper_says_of_its_corpus():
    inputs, outputs = TRANSLATION.sample(400_000, np.random.default_rng(0))
    assert (inputs < 20).mean() == pytest.approx(0.70, abs=0.01)
    assert (outputs <= 10).mean() == pytest.approx(0.16, abs=0.01)
    assert (outputs <= 32).mean() == pytest.approx(0.90, abs=0.01)
    assert 30 <= np.quantile(outputs, 0.9) <= 32
    assert max(inputs.max(), outputs.max()) == 80 and min(inputs.min(), outputs.min()) >= 1
    assert np.corrcoef(inputs, outputs)[0, 1] > 0.8
    assert dec_timesteps(TRANSLATION, 0.9) == 32 and dec_timesteps(TRANSLATION, 0.16) in (10, 11)


def test_coverage_is_the_share_of_outputs_that_end_in_time():
    _, outputs = SPEECH.sample(100_000, np.random.default_rng(0))
    for coverage in (0.1, 0.5, 0.9, 1.0):
        steps = dec_timesteps(SPEECH, coverage)
        assert (outputs <= steps).mean() >= coverage > (outputs <= steps - 1).mean()
    with pytest.raises(UsageError, match="coverage"):
        dec_timesteps(SPEECH, 0.0)


def test_generated_requests_have_their_models_lengths_and_deadlines():
    arrival = poisson(100, 3000, 0)
    load = generate(arrival, {"image": Fixed(), "text": TRANSLATION}, 0.5, 0)
    assert load.arrival == arrival.tolist()
    np.testing.assert_allclose(np.array(load.deadline) - arrival, 0.5)
    share = sum(model == "text" for model in load.models) / 3000
    assert share == pytest.approx(0.5, abs=0.04)
    image = [
        (i, o) for model, i, o in zip(load.models, load.input_len, load.output_len, strict=True) if model == "image"
    ]
    assert set(image) == {(1.0, 1)}
    assert load.output_len == generate(arrival, {"image": Fixed(), "text": TRANSLATION}, 0.5, 0).output_len
    assert load.output_len != generate(arrival, {"image": Fixed(), "text": TRANSLATION}, 0.5, 1).output_len
    assert generate(arrival, {"image": Fixed()}, math.inf, 0).deadline[0] == math.inf
    with pytest.raises(UsageError, match="SLA"):
        generate(arrival, {"image": Fixed()}, 0.0, 0)


def test_a_corpus_is_counted_in_words_or_given_in_lengths(tmp_path):
    file = tmp_path / "corpus.tsv"
    file.write_text("a b c\tein zwei\n\n12\t34\nGr\u00fc\u00dfe\tgreetings to all\n", encoding="utf-8")
    corpus = read_corpus(file)
    assert list(zip(corpus.inputs, corpus.outputs, strict=True)) == [(3, 2), (12, 34), (1, 3)]
    inputs, outputs = corpus.sample(1000, np.random.default_rng(0))
    assert set(zip(inputs.tolist(), outputs.tolist(), strict=True)) == {(3, 2), (12, 34), (1, 3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b c\n", "line 1: no tab"),
        ("a\tb\n \tb\n", "line 2: lengths of"),
        ("0\t5\n", "line 1: lengths"),
        ("", "has no pairs"),
        ("a\t" + "9" * 400 + "\n", "line 1: lengths"),
    ],
)
def test_a_broken_corpus_is_refused_with_the_line(tmp_path, text, message):
    file = tmp_path / "corpus.tsv"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_corpus(file)


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
        (HEADER + "1,text,1,0\n", "line 2: lengths"),
        (HEADER + '1,"text,1,1\n', "unexpected end"),
    ],
)
def test_a_broken_trace_is_refused_with_the_line(tmp_path, text, message):
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_trace(file, ["text"], 0.1)


@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_trace_or_a_corpus_or_are_refused(body, tmp_path_factory):
    file = tmp_path_factory.mktemp("fuzz") / "file"
    for head in (b"", HEADER.encode()):
        file.write_bytes(head + body)
        for read in (read_corpus, lambda path: read_trace(path, ["text"], 0.1)):
            try:
                read(file)
            except UsageError as error:
                assert "file" in str(error)
