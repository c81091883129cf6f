"""scripts/readability.py: what it counts as a sentence, a long one and a fragment, and how it compares revisions."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "readability.py"


@pytest.fixture(scope="module")
def readability(load_script):
    return load_script("readability")


PAGE = """\
---
title: Not prose
---
# A heading of many words that is no sentence

The server answers every request. It has
two ports, e.g. one for gRPC.

```bash
headrace serve --model resnet50. This is no sentence.
```

| a table. | is none. |
| --- | --- |
| nor is. | this row. |

<!-- a comment. Not prose. -->

- The worker `headrace.host.live` copies it.
- an entry without a full stop

:::{note}
A note has a sentence.
:::

    indented code. Not prose.
"""


def test_sentences_are_those_of_paragraphs_and_lists(readability):
    report = readability.of_markdown(PAGE)
    assert [(each.line, each.words, each.text) for each in report.sentences] == [
        (6, 5, "The server answers every request."),
        (6, 8, "It has two ports, e.g. one for gRPC."),
        (19, 5, "The worker `code` copies it."),
        (20, 6, "an entry without a full stop"),
        (23, 5, "A note has a sentence."),
    ]
    assert report.headings == 1
    assert report.fragments == []


def test_a_sentence_of_31_words_is_long_and_one_of_30_is_not(readability):
    report = readability.of_markdown(f"It is {'so ' * 27}long.\n\nIt is {'so ' * 28}long.\n")
    assert [each.words for each in report.sentences] == [30, 31]
    assert [each.line for each in report.long] == [3]


@pytest.mark.parametrize(
    "text",
    [
        "The server answers requests.",
        "The server frees the slot after it copies the output.",
        "Run the tests.",
        "Then open the page.",
        "It costs 5 ms.",
        "`--grid` runs many scenarios.",
        "Requests wait for a worker.",
        "The file cannot be read.",
        "No request is lost.",
        "The simulator and the planner use it.",
    ],
)
def test_a_sentence_with_a_verb_is_no_fragment(readability, text):
    [sentence] = readability.of_markdown(text).sentences
    assert not sentence.fragment


@pytest.mark.parametrize(
    "text",
    [
        "By nobody's request.",
        "Of each worker; equal ones with theirs.",
        "A queue for each length.",
        "The costs of a batch.",
        "48 rows in 61 s.",
        "Measured on two quiet cores.",
        "Requests from a file.",
    ],
)
def test_a_sentence_without_a_verb_is_a_fragment(readability, text):
    [sentence] = readability.of_markdown(text).sentences
    assert sentence.fragment
    assert readability.of_markdown(f"- {text}").fragments != []
    assert readability.of_markdown(f"- {text.removesuffix('.')}").fragments == []  # an entry of a list needs no verb


def test_a_bold_label_before_a_sentence_is_no_fragment(readability):
    assert readability.of_markdown("- **Safety.** The server serves this machine alone.").fragments == []


def test_the_title_before_the_first_sentence_of_a_page_is_not_counted(readability):
    [sentence] = readability.of_markdown("- [Waves of one unit](wave.md): This page shows signals.").sentences
    assert (sentence.words, sentence.text) == (4, "This page shows signals.")


@pytest.mark.parametrize("text", ["In Python:", "Returns", "- `model`: The network that serves."])
def test_a_lead_in_and_a_defined_name_need_no_verb(readability, text):
    assert readability.of_markdown(text).fragments == []


def test_docstrings_have_the_lines_of_the_file_and_sections_need_no_verbs(readability):
    source = '''"""A module.

It does little."""


def f(a):
    """Return nothing.

    Args:
        a: the number of workers.
            It may be 0.
    """
'''
    sentences = readability.of_docstrings(source).sentences
    assert [(each.line, each.text, each.fragment) for each in sentences] == [
        (1, "A module.", True),
        (3, "It does little.", False),
        (7, "Return nothing.", False),
        (10, "the number of workers.", False),
        (11, "It may be 0.", False),
    ]


@pytest.fixture
def run(tmp_path):
    """run(*arguments) runs the script in a repository of one page, which it has a commit of."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / SCRIPT.name).write_text(SCRIPT.read_text())
    (tmp_path / "docs" / "project").mkdir(parents=True)
    page = tmp_path / "docs" / "project" / "page.md"
    page.write_text(f"# Page\n\nIt is {'so ' * 28}long.\nNo verb here.\n")
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    for command in (("init", "--quiet"), ("add", "docs"), (*identity, "commit", "--quiet", "--message", "page")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, timeout=60)

    def call(*arguments):
        command = [sys.executable, scripts / SCRIPT.name, *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    call.page = page
    return call


def test_two_revisions_are_compared(run, tmp_path):
    run.page.write_text("# Page\n\nIt is short.\n")
    (run.page.parent / "new.md").write_text("It is new.\n")
    done = run("--since", "HEAD", "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2:] == [
        "| docs/project/new.md | - -> 1 | - -> 3.0 | - -> 0 | - -> 0 | - -> 0 |",
        "| docs/project/page.md | 2 -> 1 | 17.0 -> 3.0 | 1 -> 0 | 1 -> 0 | 1 -> 1 |",
        "| all | 2 -> 2 | 17.0 -> 3.0 | 1 -> 0 | 1 -> 0 | 1 -> 1 |",
    ]
    found = json.loads((tmp_path / "report.json").read_text())
    [long] = found["before"]["docs/project/page.md"]["long"]
    assert (long["line"], long["words"]) == (3, 31)
    assert found["after"]["docs/project/page.md"]["over_30_words"] == 0


def test_files_are_summed_by_folder(run):
    (run.page.parent / "new.md").write_text("It is new.\n")
    assert run("--depth", "1").stdout.splitlines()[2:] == [
        "| docs | 3 | 12.3 | 1 | 1 | 1 |",
        "| all | 3 | 12.3 | 1 | 1 | 1 |",
    ]


def test_the_check_fails_for_a_long_sentence_and_names_its_place(run):
    done = run("--check")
    assert done.returncode == 1
    assert done.stdout.startswith("docs/project/page.md:3: a sentence has 31 words")
    run.page.write_text("# Page\n\nNo verb here.\n")
    assert run("--check").returncode == 0


def test_the_check_leaves_out_laboratory_notes(run):
    notes = run.page.parents[1] / "notes"
    notes.mkdir()
    run.page.rename(notes / "page.md")
    assert run("--check", "docs").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--since", "nothing"], "nothing"), (["none"], "no .md file in none")]
)
def test_bad_usage_has_status_2(run, arguments, words):
    done = run(*arguments)
    assert done.returncode == 2 and words in done.stderr, done.stderr
