#!/usr/bin/env python
"""Errors of speech features by plan and sound: of transformers, of the CPU path and of the compute units.

    scripts/audio_errors.py [--plans whisper,parakeet] [--json FILE]

Each is compared with the features in float64 that the tests compute for themselves. The sounds are 16-bit samples at 16
kHz: those of the tests, and twelve that no test has. The compute units are their C++, which the RTL equals bit for bit.
A plan that they do not take has no errors there. An error is the largest one, and the one that 99.9 % of the values
keep. The table is Markdown.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "host" / "dpu"))

import speech_front_ends as cases  # noqa: E402

from headrace.batching import HeadraceError, UsageError  # noqa: E402
from headrace.bitstreams.build import build_sw_emu  # noqa: E402
from headrace.host.dpu.driver import Dpu  # noqa: E402
from headrace.host.dpu.reference import audio  # noqa: E402
from headrace.host.dpu.specs import AudioSpec  # noqa: E402
from headrace.host.dpu.units.audio_cu import check  # noqa: E402

PLANS = ("whisper", "whisper-large-v3", "parakeet", "seamless", "speech2text", "ast", "phi-4")


def of_units(spec: AudioSpec, given: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[Any]] | None:
    """Return the features of all sounds by the compute units, or None if they do not take the spec."""
    try:
        check(spec)
    except UsageError:
        return None

    async def run(path: Path) -> dict[str, NDArray[Any]]:
        async with Dpu(path, spec) as dpu:
            found = {name: await dpu.process(cases.file_of(samples)) for name, samples in given.items()}
            assert dpu.counters.on_cpu == 0
            return {name: np.asarray(done.tensor) for name, done in found.items()}

    with tempfile.TemporaryDirectory() as folder:
        build_sw_emu(Path(folder) / "audio.xclbin", image_cus=0, mel_cus=1, norm_cus=1)
        return asyncio.run(run(Path(folder) / "audio.xclbin"))


def errors(plan: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the largest error and that of 99.9 % of the values, by sound and by what computed them."""
    kind, settings = cases.CASES[plan]
    spec = AudioSpec.from_hf({"feature_extractor_type": kind, **settings})
    assert spec.tensors is not None
    features, given = spec.tensors.features, cases.clips()
    units, rows = of_units(spec, given), {}
    for name, samples in given.items():
        wanted = cases.exact(kind, settings, samples)
        computed = {
            "transformers": cases.theirs(kind, settings, samples)[features],
            "CPU path": audio.features(samples, spec),
        } | ({} if units is None else {"compute units": units[name]})
        rows[name] = {by: _distance(np.asarray(each), wanted) for by, each in computed.items()}
        print(f"{plan}: {name}", file=sys.stderr)
    return rows


def _distance(found: NDArray[Any], wanted: NDArray[np.float64]) -> tuple[float, float]:
    """Raises ValueError for features of another shape."""
    difference = np.abs(found.reshape(wanted.shape) - wanted)
    return float(difference.max()), float(np.quantile(difference, 0.999))


def table(rows: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """Return the errors of a plan as a Markdown table."""
    columns = list(next(iter(rows.values())))
    lines = ["| sound | " + " | ".join(f"{by}, largest | 99.9 %" for by in columns) + " |"]
    lines.append("| --- |" + " ---: | ---: |" * len(columns))
    for name, each in rows.items():
        lines.append(
            f"| {name} | " + " | ".join(f"{largest:.1e} | {usual:.1e}" for largest, usual in each.values()) + " |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", default=",".join(PLANS), help=f"of {', '.join(cases.CASES)}")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    plans = options.plans.split(",")
    if unknown := sorted(set(plans) - set(cases.CASES)):
        parser.error(f"there is no plan {unknown[0]!r}; choose from {', '.join(cases.CASES)}")
    try:
        found = {plan: errors(plan) for plan in plans}
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    except (HeadraceError, OSError) as error:
        print(f"audio_errors: {error}", file=sys.stderr)
        return 1
    for plan, rows in found.items():
        print(f"{plan}\n\n{table(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
