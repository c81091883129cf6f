"""The user's rules for reading a network's files. This module does not import torch, as the server passes them on."""

import re
from dataclasses import dataclass

from headrace.batching import UsageError

EXPORTED = ".pt2"  # the suffix of what torch.export saves
MEMORY_MIB = 4096  # in addition to a multiple of the files' sizes, see `limits`
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class FileRules:
    """The rules for reading a network's files.

    Args:
        sha256: the digest that the file of the program (`.pt2`) must have; None accepts any file.
        weights_sha256: the same for the file of the weights.
        allow_nonfinite: take weights that are NaN or infinite.
        memory_mib: how much memory reading may take in addition to a multiple of the files' sizes.

    Raises UsageError."""

    sha256: str | None = None
    weights_sha256: str | None = None
    allow_nonfinite: bool = False
    memory_mib: int = MEMORY_MIB

    def __post_init__(self) -> None:
        for name, digest in (("sha256", self.sha256), ("weights-sha256", self.weights_sha256)):
            if digest is not None and not _DIGEST.fullmatch(digest):
                raise UsageError(f"{name} {digest!r}: give the 64 hexadecimal digits that sha256sum prints")
        if self.memory_mib < 1:
            raise UsageError(f"read-memory-mib {self.memory_mib}: give 1 or more")


ANY_FILE = FileRules()
