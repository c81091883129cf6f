"""The error classes of Headrace, and checks that several parts share. Every message says what to change."""

import re
import textwrap
from collections.abc import Iterable

LONGEST_NAME = 200  # characters of a given value that a message shows
LONGEST_ERROR = 300  # characters of a foreign error that a message shows


class HeadraceError(Exception):
    """Base class of all errors that a user of Headrace is meant to see. A message shortens each value to
    LONGEST_NAME."""

    def __str__(self) -> str:
        return shortened(super().__str__())


class UsageError(HeadraceError):
    """The request cannot be carried out as given: a bad option, an unknown name or a missing file."""


class Unstable(UsageError):
    """More requests arrive than the workers can serve, or the load is too close to that limit for the solver."""


class OutOfMemory(UsageError):
    """The device has not enough memory for the batch."""


class UnknownModel(UsageError):
    """The policy, the server or the zoo has no such model."""

    @classmethod
    def asked_for(cls, request_id: int, model: str, known: Iterable[str]) -> "UnknownModel":
        """Return the error for a request that names a model outside `known`."""
        return cls(f"request {request_id} asks for model {model!r}; this server has {', '.join(sorted(known))}")

    @classmethod
    def among(cls, model: str, known: Iterable[str]) -> "UnknownModel":
        """Return the error for a model outside `known` that was not named by a request."""
        return cls(f"there is no model {model!r}; this server has {', '.join(sorted(known))}")

    @classmethod
    def unnamed(cls, model: str) -> "UnknownModel":
        """Return the error for a remote client. It does not list the models, so that strangers do not learn their
        names."""
        return cls(f"there is no model {model[:LONGEST_NAME]!r}; the repository index lists those that there are")


class PolicyError(HeadraceError):
    """A policy broke a rule of its contract (batching/policy.py). The message names the policy and what it did.

    `rule` is the name of the rule."""

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class BadInput(UsageError):
    """The network cannot take this input."""

    @classmethod
    def too_many_tokens(cls, id: int, tokens: float, max_tokens: float) -> "BadInput":
        """Return the error for a request that is longer than a batch may be."""
        return cls(
            f"request {id} has {tokens:g} tokens, and a batch has at most {max_tokens:g}; send a shorter input, or "
            "give --max-batch-tokens a larger number"
        )


class UnsupportedInput(HeadraceError):
    """The DPU cannot take this input, for example a CMYK JPEG. The CPU path may still take it."""


class CorruptInput(HeadraceError):
    """Neither the DPU nor the CPU path can decode this input."""


def check_workers(workers: int) -> None:
    """Raise UsageError unless there is at least one worker."""
    if workers < 1:
        raise UsageError(f"{workers} workers: give at least 1")


def check_max_batch(max_batch: int) -> None:
    """Raise UsageError unless the batch limit is 1 or more."""
    if max_batch < 1:
        raise UsageError(f"max_batch is {max_batch}: give a batch limit of 1 or more")


_LONG = re.compile(rf"('[^']{{{LONGEST_NAME}}})[^']+(?=')|(\S{{{LONGEST_NAME}}})\S*[^\s:;,.]")


def shortened(text: str) -> str:
    """Return a message in which each quoted value and each word has at most LONGEST_NAME characters."""
    return text if len(text) <= LONGEST_NAME else _LONG.sub(lambda match: f"{match[1] or match[2]}...", text)


def one_line(error: BaseException) -> str:
    """Return an error of foreign code as one line of bounded length."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", LONGEST_ERROR, placeholder=" ...")
