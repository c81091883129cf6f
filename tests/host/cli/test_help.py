"""The help of every command: short at the first level, and complete with --help-all."""

import re

import pytest
import typer
from command import headrace_here

from headrace.host.cli.main import COMMANDS, app

MAX_OPTIONS = 25
COMMANDS_WITH_HELP = [(name,) for name in COMMANDS if name != "preprocess"] + [
    ("preprocess", "image"),
    ("preprocess", "audio"),
    ("preprocess", "processors"),
]


def command_of(words):
    found = typer.main.get_command(app)
    for word in words:
        found = found.get_command(None, word)
    return found


def listed(text):
    """Return the options that a help text lists, by their last name."""
    return {line.split("  ")[1] for line in text.splitlines() if re.match(r"  -", line)}


@pytest.mark.parametrize("words", COMMANDS_WITH_HELP, ids=" ".join)
def test_the_help_shows_few_options_and_help_all_shows_every_one(words):
    first = headrace_here(*words, "--help")
    assert first.returncode == 0 and len(listed(first.stdout)) <= MAX_OPTIONS
    params = [param for param in command_of(words).params if param.param_type_name == "option"]
    visible = {param.opts[0] for param in params if not param.hidden}
    more = re.search(r"--help-all shows (\d+) more options", first.stdout)
    every = headrace_here(*words, "--help-all") if more else first
    assert every.returncode == 0
    missing = [name for name in visible if not re.search(rf"^  .*{re.escape(name)}\b", every.stdout, re.MULTILINE)]
    assert not missing
    if more:
        assert len(listed(every.stdout)) == len(listed(first.stdout)) + int(more[1])


@pytest.mark.parametrize("words", COMMANDS_WITH_HELP, ids=" ".join)
def test_every_option_has_a_help_text_that_is_a_sentence_or_a_phrase(words):
    command = command_of(words)
    assert command.help
    for param in command.params:
        if not getattr(param, "hidden", False):
            assert param.help and param.help.endswith("."), param.name
            assert param.help.split()[0] not in ("Of", "By", "As", "Whose"), param.name
