"""Measured profiles from files: the one reader that the simulator and the commands share."""

from pathlib import Path

from headrace.batching.errors import UsageError
from headrace.batching.graphs.profile import Profile


def read_profile(path: Path) -> Profile:
    """What `headrace profile` wrote. Raises UsageError."""
    try:
        return Profile.from_json(path.read_text())
    except (OSError, UnicodeDecodeError, UsageError) as error:
        raise UsageError(f"--profile {path}: {error}") from error
