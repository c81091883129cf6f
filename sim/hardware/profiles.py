"""Read measured profiles from files, for the simulator and the commands."""

from pathlib import Path

from headrace.batching.errors import UsageError
from headrace.batching.graphs.profile import Profile
from headrace.sim.text_files import read_text


def read_profile(path: Path) -> Profile:
    """Return the profile that `headrace profile` wrote. Raises UsageError for any other file."""
    where = f"--profile {path}"
    text = read_text(where, path)
    try:
        return Profile.from_json(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
