"""Test text files as spreadsheets and Windows save them, for every reader, and bytes that are no text."""

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import Profile, ProfilePoint, UsageError
from headrace.host.server.repository import Repository
from headrace.host.server.settings import ModelSettings
from headrace.sim.hardware.profiles import read_profile
from headrace.sim.scenario_files import read_settings
from headrace.sim.sweeps.grid import read_grid
from headrace.sim.system.preprocessors import read_costs
from headrace.sim.text_files import MAX_DEPTH, MAX_TOML, read_rows, read_text, read_toml
from headrace.sim.workload.day import read_day
from headrace.sim.workload.images import read_images
from headrace.sim.workload.lengths import read_corpus
from headrace.sim.workload.replay import read_trace
from headrace.sim.workload.trees import read_trees

PROFILE = Profile("net", 1, (ProfilePoint(1, 1e-3, 1e3),), {})


def of_repository(path):
    return Repository(path.parent, ModelSettings("m", "resnet50")).settings(path.stem)


READERS = {
    "trace": (
        lambda path: read_trace(path, ["a"], 1.0).arrival,
        "arrival_s,model,input_len,output_len\n0,a,1,1\n0.5,a,2,2\n",
    ),
    "photos": (lambda path: read_images(path).pixels.tolist(), "width,height\n640,480\n32,32\n"),
    "day": (lambda path: read_day(path, ["a"]), "hour,a\n0,10\n12.5,20\n"),
    "corpus": (lambda path: read_corpus(path).inputs.tolist(), "a b c\tein zwei\n12\t34\n"),
    "trees": (lambda path: len(read_trees(path)), "(3 (2 good) (2 film))\n(2 fine)\n"),
    "profile": (read_profile, PROFILE.to_json()),
    "costs": (read_costs, json.dumps({"made": "by a test"})),
    "settings": (read_settings, 'model = "resnet50"\nrate-rps = 5\n'),
    "grid": (read_grid, 'model = ["resnet50", "vgg16"]\nseeds = 2\n'),
    "repository": (of_repository, 'source = "resnet18"\nmax-batch = 3\n'),
}
FORMS = {
    "as CSV UTF-8 by Excel": lambda text: codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode(),
    "with a byte order mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "with line ends of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "with line ends of old Macs": lambda text: text.replace("\n", "\r").encode(),
    "as Unicode text by Excel": lambda text: codecs.BOM_UTF16_LE + text.replace("\n", "\r\n").encode("utf-16-le"),
    "as UTF-16 with big bytes first": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}


def outcome(read, path):
    """Return what was read, or the error."""
    try:
        return read(path)
    except UsageError as error:
        return str(error)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", READERS)
def test_a_file_is_read_as_the_same_text_without_marks(kind, form, tmp_path):
    read, text = READERS[kind]
    path = tmp_path / "file.toml"
    path.write_text(text)
    plain = outcome(read, path)
    path.write_bytes(FORMS[form](text))
    assert outcome(read, path) == plain
    assert kind == "costs" or not isinstance(plain, str), plain


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_text_is_told_with_the_file_and_the_way(kind, tmp_path):
    read, text = READERS[kind]
    path = tmp_path / "file.toml"
    for raw, words in (
        (text.encode() + b"\xff", r"file\.toml.*byte \d+ is no text in utf-8; save it as UTF-8"),
        (text.encode() + b"\0", r"file\.toml.*no text file, for it holds a zero byte"),
    ):
        path.write_bytes(raw)
        with pytest.raises(UsageError, match=words):
            read(path)
    path.unlink()
    with pytest.raises(UsageError, match=r"No such file or directory; name a file|there is no model"):
        read(path)


@pytest.mark.usefixtures("full_stack")
def test_toml_that_nests_without_end_is_told_in_a_line(tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 3000)
    with pytest.raises(UsageError) as caught:
        read_toml("--config deep.toml", path)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_a_header_needs_one_of_several_names(tmp_path):
    path = tmp_path / "rows.csv"
    columns = (("a_s", "a_ms"), "b")
    for text, words in (
        ("b\n", "the header lacks a_s or a_ms; it must be a_s,b"),
        ("a_s,a_ms,b\n", "the header has more than one of a_s and a_ms; it must be a_s,b"),
        ("", "the header lacks a_s or a_ms"),
        ('a_ms,b\n"1,2\n', "unexpected end of data"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            list(read_rows(path, columns))
    path.write_text("b,a_ms,c\n1,2,3\n\n4,5,6\n")
    assert [(where[-6:], row["a_ms"]) for where, row in read_rows(path, columns)] == [("line 2", "2"), ("line 4", "5")]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(raw)
    for kind, (read, _) in READERS.items():
        if kind != "repository":
            outcome(read, path)
    try:
        text = read_text("any", path)
    except UsageError:
        return
    assert "\r" not in text and "\0" not in text


@pytest.mark.usefixtures("full_stack")
def test_a_toml_file_may_nest_as_deep_as_settings_do_and_no_deeper(tmp_path):
    path = tmp_path / "deep.toml"
    for depth, taken in ((MAX_DEPTH - 1, True), (MAX_DEPTH, False), (300, False), (100_000, False)):
        path.write_text("key = " + "[" * depth + "]" * depth)
        if taken:
            assert read_toml("here", path).keys() == {"key"}
            continue
        with pytest.raises(UsageError) as refused:
            read_toml("here", path)
        assert str(refused.value).startswith("here: it nests too deep") and len(str(refused.value)) < 200


def test_a_toml_file_has_a_largest_size(tmp_path):
    path = tmp_path / "large.toml"
    path.write_bytes(b"#" * (MAX_TOML - 6) + b"\na = 1")
    assert read_toml("here", path) == {"a": 1}
    path.write_bytes(b"#" * (MAX_TOML - 5) + b"\na = 1")
    with pytest.raises(UsageError, match=f"here: it has more than {MAX_TOML} bytes"):
        read_toml("here", path)
