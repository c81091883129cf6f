#!/usr/bin/env python3
"""Write tests/sim/golden_scenarios.json: random command lines of `headrace simulate`, each with its result.

    .venv/bin/python scripts/golden_scenarios.py [--count 200] [--out FILE]

A test runs the same command lines and compares every number, bit for bit. Write the file anew only if results are meant
to change, and give the reason in the commit. The file names options as the command line does, so a redesign of the code
does not change it. Combinations that the command refuses are left out."""

import argparse
import contextlib
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

from headrace.host.cli.main import app

OUT = Path(__file__).resolve().parents[1] / "tests" / "sim" / "golden_scenarios.json"
NPU_MODELS = ("resnet50", "mobilenet_v1", "gnmt", "transformer", "las", "bert_base", "conformer", "gnmt,resnet50")
CELL_MODELS = ("lstm", "seq2seq", "treelstm")
GPU_MODELS = ("mobilenet_v3_small", "resnet50", "swin_t", "conformer", "citrinet", "mobilenet_v3_small,swin_t")
NODE_POLICIES = ("serial", "graph", "static", "work-conserving", "bucketed-graph", "lazy", "oracle", "preba", "smdp")
MORE_POLICIES = ("preba-lazy", "deferred", "earliest-deadline")


def command_line(chance: random.Random) -> list[str]:
    """Return random options of `headrace simulate`; some contradict each other."""
    accelerator = chance.choice(("npu", "npu", "v100", *["a100-40gb", "h100"] * 4))
    if accelerator == "v100":
        policies, models = ("cellular", "dynamic-graph", "graph", "bucketed-graph"), CELL_MODELS
    else:
        policies = NODE_POLICIES + MORE_POLICIES
        models = NPU_MODELS if accelerator == "npu" else GPU_MODELS
    given: dict[str, Any] = {
        "--accelerator": accelerator,
        "--model": chance.choice(models),
        "--policy": chance.choice(policies),
        "--rate-rps": chance.choice((20, 100, 300, 1000, 3000)),
        "--requests": chance.choice((100, 300)),
        "--seed": chance.randrange(1000),
    }
    some: dict[str, Any] = {
        "--traffic": chance.choice(("poisson", "deterministic", "mmpp")),
        "--burst-s": chance.choice((0.2, 2.0)),
        "--sla-ms": chance.choice((20, 50, 200, 1000)),
        "--window-ms": chance.choice((0, 2, 20)),
        "--max-batch": chance.choice((1, 4, 16, 64)),
        "--overhead-ms": chance.choice((0.5, 3)),
        "--coverage": chance.choice((0.5, 0.99)),
        "--knee-growth": chance.choice((1.05, 1.2)),
        "--lengths": chance.choice(("librispeech", "20")),
        "--busy-w": 200,
        "--w2": chance.choice((0, 0.5)),
        "--bucket-width": chance.choice((2, 30)),
        "--bucket-s": chance.choice((0.5, 5)),
    }
    given |= {option: value for option, value in some.items() if chance.random() < 0.2}
    if accelerator == "npu" and chance.random() < 0.3:
        given["--npus"] = chance.choice((2, 3))
    if accelerator not in ("npu", "v100"):
        given["--partition"] = chance.choice(("1g.5gb:7", "2g.10gb:3", "1g.10gb:7", "7g.80gb:1", "3g.20gb:2"))
        given["--preprocess"] = chance.choice(("ideal", "cpu", "dpu"))
    if chance.random() < 0.15:
        given |= {"--servers": chance.choice((2, 4)), "--router": chance.choice(("round-robin", "least-outstanding"))}
    flags = [flag for flag in ("--drop-late", "--defer-late", "--stream", "--by-phase") if chance.random() < 0.1]
    return [*(str(word) for pair in given.items() for word in pair), *flags]


def result(options: list[str]) -> dict[str, Any] | None:
    """Return the JSON result of the command, or None if it refuses the options. Keys that do not describe the run are
    left out."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(io.StringIO()):
        try:
            app(["simulate", "--json", *options], prog_name="headrace", standalone_mode=False)
        except Exception:
            return None
    printed: dict[str, Any] = json.loads(stdout.getvalue())
    return {name: value for name, value in printed.items() if name not in ("wall_s", "settings", "warnings")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    scenarios: list[dict[str, Any]] = []
    seed = 0
    while len(scenarios) < arguments.count:
        options = command_line(random.Random(seed))
        seed += 1
        if (given := result(options)) is not None:
            scenarios.append({"options": options, "result": given})
            if len(scenarios) % 20 == 0:
                print(f"{len(scenarios)} of {arguments.count}, after {seed} tries", file=sys.stderr)
    arguments.out.write_text("[\n" + ",\n".join(json.dumps(each) for each in scenarios) + "\n]\n")


if __name__ == "__main__":
    main()
