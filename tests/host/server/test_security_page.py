"""Test that the page on security has the command's limits and defaults, and names existing files."""

import re
from pathlib import Path

import pytest
from command import headrace

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text()
LIMITS = dict(re.findall(r"^\| `(--[\w-]+)` \| ([\d.]+) \|", PAGE, re.MULTILINE))
OPTION = re.compile(r"^  (--[\w-]+)[ ,]", re.MULTILINE)


@pytest.fixture(scope="module")
def defaults() -> dict[str, str]:
    """Return the defaults of `serve` in its help, by option."""
    found = headrace("serve", "--help-all")
    text = found.stdout + found.stderr
    places = [*OPTION.finditer(text)]
    ends = [place.start() for place in places[1:]] + [len(text)]
    told = {place[1]: text[place.start() : end] for place, end in zip(places, ends, strict=True)}
    matches = {option: re.search(r"\[default:\s+([^;\]\s]+)", help) for option, help in told.items()}
    return {option: match[1] for option, match in matches.items() if match}


def test_limits_have_the_commands_defaults(defaults):
    assert len(LIMITS) > 10 and {option: defaults.get(option) for option in LIMITS} == LIMITS


def test_every_limit_of_the_command_is_on_the_page(defaults):
    of_policies = {"--max-batch", "--max-batch-tokens", "--max-tasks"}
    bounds = {option for option in defaults if option.startswith("--max-")} - of_policies
    assert bounds <= LIMITS.keys()


def test_options_and_files_that_the_page_names_are_there(defaults):
    help = headrace("serve", "--help-all")
    for option in re.findall(r"`(--[\w-]+)", PAGE):
        assert option in help.stdout + help.stderr, option
    for name in re.findall(r"`((?:tests|host|scripts)/[\w/.]+)`", PAGE):
        assert (ROOT / name).exists(), name
