"""What can go wrong while a container is built."""

from headrace.batching.errors import HeadraceError, UsageError


class BuildError(HeadraceError):
    """The build failed; the message has the compiler's first errors, or what is missing."""


class MissingExtra(BuildError, UsageError):
    """What one of Headrace's extras brings is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"this needs {what}: pip install 'headrace[{extra}]'")


class WrongNumber(BuildError, UsageError):
    """Of compute units: no container holds so many, or so few."""
