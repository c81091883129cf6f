"""docs/settings.md follows from the classes of settings, and a new setting appears in it."""

import runpy
from pathlib import Path

from headrace.batching.settings import setting, settings

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "settings_reference.py"))


def test_the_reference_in_the_repository_is_what_the_settings_say():
    assert (ROOT / "docs" / "settings.md").read_text() == SCRIPT["reference"]()


def test_a_setting_that_is_added_in_one_place_is_a_row_of_the_reference():
    @settings()
    class Patient:
        patience_ms: float = setting(default=2.5, help="Longest wait.", ge=0, le=50)

    assert "| `patience_ms` | float | 0 to 50 | `2.5` | Longest wait. |" in SCRIPT["table"](Patient)
