"""Messages of errors have a bounded length of each value."""

import pytest

from headrace.batching import UsageError
from headrace.batching.errors import LONGEST_NAME, shortened

LONG = "x" * 5000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("--model 'resnet18': give another", "--model 'resnet18': give another"),
        (f"there is no model '{LONG}'; see the list", f"there is no model '{LONG[:LONGEST_NAME]}...'; see the list"),
        (f"'{'a b ' * 1000}' is no number", f"'{('a b ' * 1000)[:LONGEST_NAME]}...' is no number"),
        (f"--out {LONG}: no such folder", f"--out {LONG[:LONGEST_NAME]}...: no such folder"),
        ("word " * 100, "word " * 100),
    ],
)
def test_values_are_cut_and_words_around_them_are_not(text, found):
    assert shortened(text) == found and str(UsageError(text)) == found


def test_an_error_without_a_text_stays_so():
    assert str(UsageError()) == ""
