"""Errors of a build."""

from headrace.batching.errors import HeadraceError, UsageError


class BuildError(HeadraceError):
    """The build failed. The message holds the compiler's first errors, or names a missing tool."""


class MissingExtra(BuildError, UsageError):
    """A package that one of Headrace's extras brings is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"this needs {what}: pip install 'headrace[{extra}]'")


class WrongNumber(BuildError, UsageError):
    """The number of compute units, or of their memory ports, is outside the range of a container."""
