"""The errors that every part of Headrace raises, and checks that several parts make. A message names what to change."""

import re
import textwrap
from collections.abc import Iterable

LONGEST_NAME = 200  # characters of a value that somebody gave
LONGEST_ERROR = 300  # characters of an error of someone else's code


class HeadraceError(Exception):
    """Base of all errors that a user of Headrace is meant to see. A message cuts each value at LONGEST_NAME."""

    def __str__(self) -> str:
        return shortened(super().__str__())


class UsageError(HeadraceError):
    """The request itself cannot be carried out as asked: a bad option, an unknown name, a missing file."""


class Unstable(UsageError):
    """More requests arrive than any policy could serve, or so many that none can be computed."""


class OutOfMemory(UsageError):
    """A batch that what is to run it has no memory for."""


class UnknownModel(UsageError):
    """A model that this policy, server or zoo does not have."""

    @classmethod
    def asked_for(cls, request_id: int, model: str, known: Iterable[str]) -> "UnknownModel":
        """Return the error for a request of a server that has the models `known`."""
        return cls(f"request {request_id} asks for model {model!r}; this server has {', '.join(sorted(known))}")

    @classmethod
    def among(cls, model: str, known: Iterable[str]) -> "UnknownModel":
        """Return the error for a model that no single request asked for."""
        return cls(f"there is no model {model!r}; this server has {', '.join(sorted(known))}")

    @classmethod
    def unnamed(cls, model: str) -> "UnknownModel":
        """Return the error for a client. It does not list the models, which strangers need not learn."""
        return cls(f"there is no model {model[:LONGEST_NAME]!r}; the repository index lists those that there are")


class PolicyError(HeadraceError):
    """A policy broke a rule of its contract (batching/policy.py). The message names the policy and what it did.

    `rule` is the name of the rule."""

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class BadInput(UsageError):
    """An input that the network cannot take."""


class UnsupportedInput(HeadraceError):
    """An input that the DPU cannot take, with the reason (a progressive JPEG, say). The CPU path may still take it."""


class CorruptInput(HeadraceError):
    """An input that neither the DPU nor the CPU path can decode."""


def check_workers(workers: int) -> None:
    if workers < 1:
        raise UsageError(f"{workers} workers: give at least 1")


def check_max_batch(max_batch: int) -> None:
    if max_batch < 1:
        raise UsageError(f"max_batch is {max_batch}: give a batch limit of 1 or more")


_LONG = re.compile(rf"('[^']{{{LONGEST_NAME}}})[^']+(?=')|(\S{{{LONGEST_NAME}}})\S*[^\s:;,.]")


def shortened(text: str) -> str:
    """Return a message in which each quoted value, and each word, has at most LONGEST_NAME characters."""
    return text if len(text) <= LONGEST_NAME else _LONG.sub(lambda found: f"{found[1] or found[2]}...", text)


def one_line(error: BaseException) -> str:
    """An error of someone else's code, as one line of bounded length."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", LONGEST_ERROR, placeholder=" ...")
