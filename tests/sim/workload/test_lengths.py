import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.workload.lengths import (
    LIBRISPEECH,
    LIBRISPEECH_TEST,
    SPEECH,
    TRANSLATION,
    WMT15,
    Clipped,
    Sentences,
    dec_timesteps,
    read_corpus,
    read_durations,
)


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


def test_lengths_have_the_facts_of_batchmaker():
    inputs, _ = WMT15.sample(200_000, np.random.default_rng(0))
    assert inputs.mean() == pytest.approx(24, rel=0.02) and inputs.max() <= 330
    assert (inputs < 100).mean() == pytest.approx(0.99, abs=0.002)
    clipped, _ = Clipped(50).sample(200_000, np.random.default_rng(0))
    assert clipped.max() == 50 and (clipped == np.minimum(inputs, 50)).all()
    leaves, _ = Sentences().sample(100_000, np.random.default_rng(0))
    assert 18.5 < leaves.mean() < 20 and leaves.min() >= 2 and leaves.max() <= 56
    with pytest.raises(UsageError, match="clipped to 0"):
        Clipped(0)


def test_librispeech_lengths_are_those_of_the_corpus():
    seconds, outputs = LIBRISPEECH.sample(400_000, np.random.default_rng(0))
    assert seconds.mean() == pytest.approx(982.1 * 3600 / 292_367, rel=0.01)  # hours and utterances of all seven sets
    assert seconds.min() >= 1 and 30 < seconds.max() <= 35 and (outputs == 1).all()
    assert (seconds > 18.9).mean() < 0.004  # training sets hardly have longer ones
    histogram, edges = np.histogram(seconds, np.arange(0, 37.5, 2.5))
    assert edges[histogram.argmax()] == 12.5 and histogram[5:7].sum() > 0.45 * len(seconds)
    assert (seconds % 1 > 0).mean() > 0.99  # none of them rounded


def test_the_sets_to_test_on_are_shorter_and_vary_more_than_those_to_train_on():
    seconds, _ = LIBRISPEECH_TEST.sample(200_000, np.random.default_rng(0))
    # Hours and utterances of dev-clean, dev-other, test-clean, test-other; cut to the quantiles of test-clean.
    assert seconds.mean() == pytest.approx((5.4 + 5.3 + 5.4 + 5.1) * 3600 / (2703 + 2864 + 2620 + 2939), rel=0.12)
    every, _ = LIBRISPEECH.sample(200_000, np.random.default_rng(0))
    assert seconds.std() / seconds.mean() > 1.5 * every.std() / every.mean()


def test_durations_are_those_of_the_files_in_a_folder(tmp_path):
    (tmp_path / "deep").mkdir()
    soundfile.write(tmp_path / "a.wav", np.zeros(24_000), 16_000)
    soundfile.write(tmp_path / "deep" / "b.FLAC", np.zeros((22_050, 2)), 44_100, format="FLAC")
    (tmp_path / "notes.txt").write_text("no sound")
    seconds, outputs = read_durations(tmp_path).sample(100, np.random.default_rng(0))
    assert set(seconds.tolist()) == {1.5, 0.5} and set(outputs.tolist()) == {1}
    (tmp_path / "c.wav").write_bytes(b"RIFF")
    with pytest.raises(UsageError, match=r"c\.wav: .+ Take it out of the folder"):
        read_durations(tmp_path)
    with pytest.raises(UsageError, match="holds no"):
        read_durations(tmp_path / "deep" / "none")


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


@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_corpus_or_are_refused(body, tmp_path_factory):
    file = tmp_path_factory.mktemp("fuzz") / "file"
    file.write_bytes(body)
    try:
        read_corpus(file)
    except UsageError as error:
        assert "file" in str(error)
