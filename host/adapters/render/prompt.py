"""This module makes the tokens of a chat, with a place for each image and sound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.batching import BadInput, UsageError
from headrace.batching.errors import one_line
from headrace.host.adapters.render.items import FLAT, Form, Item

MAX_FRAMES: Final = 32  # of a spectrogram, for one token


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The tokens that stand for an image or a sound: one token, so many times.

    Attributes:
        token: The token.
        constant: Its number, or None if it depends on the item.
        rows_of: The tensor whose rows tell the number, and how many rows there are for a token.
        frames: Two numbers, a and b: a sound of n frames has (n + a) // b tokens.
    """

    token: int
    constant: int | None = None
    rows_of: tuple[str, int] | None = None
    frames: tuple[int, int] | None = None

    def length(self, item: Item, frames: int = 0) -> int:
        """Return the number of tokens of an item. For a sound, give the number of frames that count."""
        if self.constant is not None:
            return self.constant
        if self.frames is not None:
            added, per_token = self.frames
            return (frames + added) // per_token
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


def learned_of_frames(samples: Sequence[tuple[int, int]], token: int) -> Placeholder:
    """Return the rule that gives the number of tokens of each sample, a number of frames with that of its tokens.

    Raises UsageError if no rule of the known form does, or more than one."""
    if len({number for _, number in samples}) == 1:
        return Placeholder(token, constant=samples[0][1])
    rules = [
        (added, per_token)
        for per_token in range(1, MAX_FRAMES + 1)
        for added in range(per_token)
        if all((frames + added) // per_token == number for frames, number in samples)
    ]
    if len(rules) != 1:
        raise UsageError("the number of tokens of a sound follows no rule that is known here; use the plugin for vLLM")
    return Placeholder(token, frames=rules[0])


class Prompts:
    """The tokenizer of a model, and its chat template, if it has one."""

    def __init__(self, folder: Path) -> None:
        """Load them from a model's folder. Raises UsageError."""
        import transformers

        self._folder = folder
        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # of any class, for the many things that can be wrong in a folder
            raise UsageError(f"--model {folder}: transformers loads no tokenizer: {one_line(error)}") from error

    def check_template(self) -> None:
        """Raise UsageError if there is no chat template."""
        if not self._tokenizer.chat_template:
            raise UsageError(
                f"--model {self._folder}: there is no chat template; add chat_template.jinja to the folder"
            )

    def tokens(self, messages: Sequence[Mapping[str, Any]], template: Mapping[str, Any]) -> list[int]:
        """Return the tokens of a chat, with one token for each image and sound. Raises BadInput."""
        try:
            text = self._tokenizer.apply_chat_template(list(messages), tokenize=False, **template)
        except Exception as error:  # the template is a program, and raises what it likes
            raise BadInput(f"the chat template does not take these messages: {one_line(error)}") from error
        return self.tokens_of(text)

    def tokens_of(self, text: str) -> list[int]:
        """Return the tokens of a text. The text of a special token gives that token."""
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def special(self) -> list[tuple[str, int]]:
        """Return the text and the number of each special token."""
        return [(str(each), number) for number, each in self._tokenizer.added_tokens_decoder.items()]

    def number_of(self, text: str) -> int:
        """Return the number of a token."""
        return int(self._tokenizer.convert_tokens_to_ids(text))

    def text_of(self, token: int) -> str:
        """Return the text of a token."""
        return str(self._tokenizer.convert_ids_to_tokens(token))


@dataclass(frozen=True, slots=True)
class Places:
    """The places of one medium in a chat.

    Attributes:
        token: The token that stands for an item.
        text: Its text, for errors.
        noun: What the items are, for errors.
        lengths: Numbers of tokens of the items, in their order.
    """

    token: int
    text: str
    noun: str
    lengths: Sequence[int]


def expanded(tokens: Sequence[int], media: Sequence[Places]) -> tuple[list[int], list[list[dict[str, int]]]]:
    """Return tokens with each placeholder as often as its item needs it, and the ranges of the items of each medium.

    `tokens` have one placeholder for each item. Raises BadInput if there is another number of them."""
    for each in media:
        found = tokens.count(each.token)
        if found != len(each.lengths):
            raise BadInput(
                f"the text of the chat has {found} places for {len(each.lengths)} {each.noun}; "
                f"leave {each.text} out of the messages"
            )
    left = {each.token: iter(each.lengths) for each in media}
    ranges: dict[int, list[dict[str, int]]] = {each.token: [] for each in media}
    made: list[int] = []
    for token in tokens:
        number = next(left[token]) if token in left else 1
        if token in left:
            ranges[token].append({"offset": len(made), "length": number})
        made += [token] * number
    return made, [ranges[each.token] for each in media]
