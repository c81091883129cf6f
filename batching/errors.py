"""The errors that every part of Headrace raises. A message names what to change."""


class HeadraceError(Exception):
    """Base of all errors that a user of Headrace is meant to see."""


class UsageError(HeadraceError):
    """The request itself cannot be carried out as asked: a bad option, an unknown name, a missing file."""


class UnknownModel(HeadraceError):
    """A request names a model that the policy was not told of."""


class UnsupportedInput(HeadraceError):
    """An input that the DPU cannot take, with the reason (a progressive JPEG, say). The CPU path may still take it."""


class CorruptInput(HeadraceError):
    """An input that neither the DPU nor the CPU path can decode."""
