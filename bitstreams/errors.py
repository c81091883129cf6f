"""What can go wrong while a container is built."""

from headrace.batching.errors import HeadraceError


class BuildError(HeadraceError):
    """The build failed; the message has the compiler's first errors, or what is missing."""
