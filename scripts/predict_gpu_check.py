#!/usr/bin/env python3
"""Compare a finished check with today's slice model: write its JSON and its page again, with new expected numbers.

    .venv/bin/python scripts/predict_gpu_check.py docs/results/measured/h100.json

The page has the JSON's name with the suffix .md. Prints, for each precision, quantiles of measured by predicted time of
networks as one CUDA graph. --check writes nothing. The exit status is then 1 if the JSON would change."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from headrace.host.validation.again import predicted_again
from headrace.host.validation.page import page
from headrace.host.validation.plan import CAPTURED


def quantiles(found: dict) -> dict[str, str]:
    """Return the 10th percentile, the median and the 90th of the ratios of each precision, as text."""
    ratios: dict[str, list[float]] = {}
    for row in found["parts"]["profiles"]["rows"]:
        if row["quantity"] == CAPTURED and row["ratio"]:
            ratios.setdefault(row["details"]["precision"], []).append(row["ratio"])
    return {
        name: "{:.2f}, {:.2f}, {:.2f}".format(*np.quantile(values, (0.1, 0.5, 0.9))) for name, values in ratios.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = options.result.read_text()
    before = json.loads(text)
    after = predicted_again(before)
    old = quantiles(before)
    for name, words in quantiles(after).items():
        print(f"{name}: p10, median, p90 of measured / predicted {words}; in the file {old[name]}")
    written = json.dumps(after, indent=2) + "\n"
    if options.check:
        sys.exit(int(json.loads(written) != before))
    options.result.write_text(written)
    options.result.with_suffix(".md").write_text(page(after))


if __name__ == "__main__":
    main()
