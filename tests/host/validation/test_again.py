"""A finished check that is compared with the slice model of today."""

import json
from pathlib import Path

from headrace.host.validation.again import predicted_again
from headrace.host.validation.page import page

CHECK = Path(__file__).parents[3] / "docs" / "results" / "measured" / "h100.json"


def test_the_kept_check_has_the_numbers_of_todays_slice_model_and_its_page_shows_them():
    """If this fails, the slice model changed: run scripts/predict_gpu_check.py docs/results/measured/h100.json."""
    found = json.loads(CHECK.read_text())
    again = predicted_again(found)
    for row, new in zip(found["parts"]["profiles"]["rows"], again["parts"]["profiles"]["rows"], strict=True):
        assert abs(new["expected"] / row["expected"] - 1) < 1e-9
    assert CHECK.with_suffix(".md").read_text() == page(found)


def test_only_predictions_of_the_slice_model_change():
    found = json.loads(CHECK.read_text())
    rows = found["parts"]["profiles"]["rows"]
    true = [(row["expected"], row["ratio"]) for row in rows]
    for row in rows:
        row["expected"], row["ratio"] = 1.0, 2.0
    again = predicted_again(found)
    assert {name: part for name, part in again["parts"].items() if name != "profiles"} == {
        name: part for name, part in found["parts"].items() if name != "profiles"
    }
    made = again["parts"]["profiles"]["rows"]
    assert [row["measured"] for row in made] == [row["measured"] for row in rows]
    assert sum(abs(new["expected"] / old - 1) < 1e-9 for new, (old, _) in zip(made, true, strict=True)) == len(rows)


def test_a_gpu_without_a_model_keeps_its_numbers():
    found = json.loads(CHECK.read_text())
    found["device"]["name"] = "NVIDIA GeForce RTX 4090"
    assert predicted_again(found) == found
