"""What tests build is kept in build/tests/ by its contents, and made by one process at a time."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build" / "tests"


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Processes that test at the same time make `name` one after the other, so that the second finds it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # for no longer than the other's test may take
        yield


def built(stem: str, digest: str, suffix: str, build: Callable[[Path], object]) -> Path:
    """The file or folder of these contents, which build(path) makes if it is not there yet; older ones are removed."""
    target = BUILD / f"{stem}-{digest[:16]}{suffix}"
    with alone(stem):
        if not target.exists():
            for stale in BUILD.glob(f"{stem}-{'?' * 16}{suffix}"):
                if stale.is_dir():
                    shutil.rmtree(stale, ignore_errors=True)
                else:
                    stale.unlink()
            build(target)
    return target


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` at the end, and is none if what is made in it fails."""
    made = target.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    yield made
    made.rename(target)
