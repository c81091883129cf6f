"""This module makes the tokens of a chat, with a place for each image and sound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.batching import BadInput, UsageError
from headrace.batching.errors import one_line
from headrace.host.adapters.render.items import FLAT, Form, Item


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The tokens that stand for an image or a sound: one token, so many times.

    Attributes:
        token: The token.
        constant: Its number, or None if it depends on the item.
        rows_of: The tensor whose rows tell the number, and how many rows there are for a token.
    """

    token: int
    constant: int | None = None
    rows_of: tuple[str, int] | None = None

    def length(self, item: Item) -> int:
        """Return the number of tokens of an item."""
        if self.constant is not None:
            return self.constant
        assert self.rows_of is not None
        name, rows = self.rows_of
        return len(item[name]) // rows


def learned(samples: Sequence[tuple[Item, int]], forms: Mapping[str, Form], token: int) -> Placeholder:
    """Return the rule that gives the number of tokens of each sample, an item with its number.

    Raises UsageError if none of the known rules does."""
    for name in (name for name, form in forms.items() if form.place == FLAT):
        rows, rest = divmod(len(samples[0][0][name]), samples[0][1])
        if rest == 0 and all(len(item[name]) == rows * number for item, number in samples):
            return Placeholder(token, rows_of=(name, rows))
    if len({number for _, number in samples}) == 1:
        return Placeholder(token, constant=samples[0][1])
    raise UsageError("the number of tokens of an image follows no rule that is known here; use the plugin for vLLM")


class Prompts:
    """The chat template and the tokenizer of a model."""

    def __init__(self, folder: Path) -> None:
        """Load them from a model's folder. Raises UsageError."""
        import transformers

        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # of any class, for the many things that can be wrong in a folder
            raise UsageError(f"--model {folder}: transformers loads no tokenizer: {one_line(error)}") from error
        if not self._tokenizer.chat_template:
            raise UsageError(f"--model {folder}: there is no chat template; add chat_template.jinja to the folder")

    def tokens(self, messages: Sequence[Mapping[str, Any]], template: Mapping[str, Any]) -> list[int]:
        """Return the tokens of a chat, with one token for each image and sound. Raises BadInput."""
        try:
            text = self._tokenizer.apply_chat_template(list(messages), tokenize=False, **template)
        except Exception as error:  # the template is a program, and raises what it likes
            raise BadInput(f"the chat template does not take these messages: {one_line(error)}") from error
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def text_of(self, token: int) -> str:
        """Return the text of a token."""
        return str(self._tokenizer.convert_ids_to_tokens(token))


def expanded(
    tokens: Sequence[int], lengths: Sequence[int], placeholder: int, text: str
) -> tuple[list[int], list[dict[str, int]]]:
    """Return tokens with the placeholder as often as each item needs it, and the range of each item.

    Args:
        tokens: With one placeholder for each item.
        lengths: Numbers of tokens of the items.
        placeholder: The token that stands for an item.
        text: Its text, for errors.

    Raises BadInput if the tokens have another number of placeholders than there are items."""
    found = tokens.count(placeholder)
    if found != len(lengths):
        raise BadInput(
            f"the text of the chat has {found} places for {len(lengths)} images; leave {text} out of the messages"
        )
    left = iter(lengths)
    ranges: list[dict[str, int]] = []
    made: list[int] = []
    for token in tokens:
        number = next(left) if token == placeholder else 1
        if token == placeholder:
            ranges.append({"offset": len(made), "length": number})
        made += [token] * number
    return made, ranges
