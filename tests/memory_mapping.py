"""Take away the extension that copies through mappings, as where no compiler was found."""

import sys

import pytest

from headrace.host.memory import mapped


def without_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mapped, "mapped_file", raising=False)
    monkeypatch.setitem(sys.modules, "headrace.host.memory.mapped.mapped_file", None)
