#!/usr/bin/env python3
"""Write the map of docs/explanation/dpu_before_decoders.md: what images and sounds of models that decode need.

    .venv/bin/python scripts/decoder_front_ends.py

It writes docs/results/measured/decoder_front_ends.json and the picture. It takes some minutes on one core."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.batching.errors import HeadraceError
from headrace.sim.hardware.inputs import UNITS
from headrace.sim.planner.decoders.search import DecodingAnswer, fewest, plan_decoder
from headrace.sim.planner.decoders.server import (
    DecodingCandidate,
    DecodingMeasured,
    DecodingTrial,
    FrontEndChoice,
    device,
    front_end_usd,
    measure,
)
from headrace.sim.planner.decoders.target import DecodingTarget
from headrace.sim.system.processors import core_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "results" / "measured" / "decoder_front_ends.json"
PICTURE = ROOT / "docs" / "images" / "results" / "decoder_front_ends" / "map.png"
SIDES = (224, 448, 640, 1024, 1448, 2048)  # of square images, in pixels
SECONDS = (1.0, 5.0, 15.0, 30.0)
TTFT_MS = (200.0, 300.0, 400.0, 600.0, 1000.0, 2000.0)  # targets of the map
RATE_RPS = 10.0  # of the map
SHARE = 0.9  # of the greatest rate, at which cores and compute units are counted: at the rate itself, chance decides
NODE_GPUS = 8  # of a node that shares cores and a card
ALL_CORES, CARD = 31, FrontEndChoice("dpu", 8)
COMMON = {"gpu": "h100", "slo_ttft_ms": 2000.0, "slo_tpot_ms": 50.0, "quantile": 0.95, "output_tokens": 64}
COMMON |= {"trial_requests": 500}
IMAGES = {**COMMON, "model": "qwen2-vl-7b"}
AUDIO = {**COMMON, "model": "qwen2-audio-7b", "kernels": "sglang"}


def run(text: str, trials: Sequence[DecodingTrial]) -> list[DecodingMeasured]:
    """Run the trials of a search."""
    return [measure(trial) for trial in trials]


def planned(target: DecodingTarget) -> DecodingAnswer | None:
    """Return the plan for a target; None if there is none."""
    try:
        return plan_decoder(target, run)
    except HeadraceError:
        return None


def busy_s(target: DecodingTarget, front_end: FrontEndChoice) -> float:
    """Return the time (s) that a core or the slower kind of compute unit takes for an image or a sound."""
    size = np.array([0.0 if target.audio_s is None else target.audio_s])  # the number of the one image is 0
    steps = device(target, front_end).steps
    return max(float(step.service_s(size)[0]) for step in steps if step.name in ("cpu", *UNITS))


def need(target: DecodingTarget) -> dict[str, Any]:
    """Return the greatest rate of a server, and the fewest cores of each library and compute units that hold it."""
    answer = plan_decoder(replace(target, gpus=1, rate_rps=0.2), run)
    found: dict[str, Any] = {"max_rps": answer.max_rps, "binds": answer.binds, "cores": {}, "work": {}}
    both = target.multimodal
    assert both is not None
    libraries = [name for name in core_seconds(both.processor) if name != "measured"]

    def holds(device: str, library: str | None) -> Callable[[int], bool]:
        def one(count: int) -> bool:
            server = DecodingCandidate(1, FrontEndChoice(device, count, library), answer.best.candidate.policy)
            return measure(DecodingTrial(target, server, rate)).late <= target.late

        return one

    rate = SHARE * answer.max_rps
    for library in libraries:
        found["cores"][library] = fewest(holds("cpu", library), 63)
        found["work"][library] = rate * busy_s(target, FrontEndChoice("cpu", ALL_CORES, library))
    found["cus_work"] = rate * busy_s(target, CARD)
    found["cus"] = fewest(holds("dpu", None), CARD.count)
    usd = answer.best.measured.cost_usd
    least = min(count for count in found["cores"].values() if count)
    cores = DecodingCandidate(1, FrontEndChoice("cpu", ALL_CORES, libraries[0]), "continuous")
    found["cores_share"] = front_end_usd(target, cores, least) / usd
    found["card_share"] = front_end_usd(target, replace(cores, front_end=CARD), 0) / usd
    return found


def node_need(target: DecodingTarget, max_rps: float) -> dict[str, Any]:
    """Return what a node of NODE_GPUS replicas needs at SHARE of their greatest rate, and its parts of the cost.

    `max_rps` is that of one replica with cores of its own. A number that the search space does not reach is None."""
    node = replace(target, node_gpus=NODE_GPUS)
    both = target.multimodal
    assert both is not None
    rate = SHARE * NODE_GPUS * max_rps

    def late(front_end: FrontEndChoice) -> float:
        return measure(DecodingTrial(node, DecodingCandidate(NODE_GPUS, front_end, "continuous"), rate)).late

    cores = {
        library: fewest(lambda count, library=library: late(FrontEndChoice("cpu", count, library)) <= target.late, 56)
        for library in core_seconds(both.processor)
        if library != "measured"
    }
    cus = fewest(lambda count: late(replace(CARD, count=count)) <= target.late, CARD.count)
    held = [count for count in cores.values() if count]
    few = DecodingCandidate(NODE_GPUS, FrontEndChoice("cpu", ALL_CORES, next(iter(cores))), "continuous")
    usd = measure(DecodingTrial(node, few, rate)).cost_usd
    return {
        "rate_rps": rate,
        "cores": cores,
        "cus": cus,
        "cores_share": front_end_usd(node, few, min(held)) / usd if held else None,
        "card_share": front_end_usd(node, replace(few, front_end=CARD), 0) / usd,
    }


def cell(target: DecodingTarget) -> dict[str, Any]:
    """Return GPUs and dollars of the cheapest plan with cores, and of that with a DPU."""
    answer = planned(target)
    found: dict[str, Any] = {}
    for plan in () if answer is None else (answer.best, *answer.others):
        found[plan.candidate.front_end.device] = {
            "gpus": plan.candidate.replicas,
            "usd": plan.measured.cost_usd,
            "needed": plan.fewest,
        }
    return found


def main() -> None:
    """Compute the map, and write its data and its picture."""
    needs, seconds, cells, nodes = {}, {}, {}, {}
    for side in SIDES:
        target = DecodingTarget(**IMAGES, images=f"1:{side}x{side}")
        needs[str(side)] = need(target)
        nodes[str(side)] = node_need(target, needs[str(side)]["max_rps"])
        print(side, needs[str(side)], nodes[str(side)], file=sys.stderr)
        for ttft_ms in TTFT_MS:
            cells[f"{side},{ttft_ms:g}"] = cell(replace(target, rate_rps=RATE_RPS, slo_ttft_ms=ttft_ms))
            print(side, ttft_ms, cells[f"{side},{ttft_ms:g}"], file=sys.stderr)
    for length in SECONDS:
        seconds[f"{length:g}"] = need(DecodingTarget(**AUDIO, audio_s=length))
        print(length, seconds[f"{length:g}"], file=sys.stderr)
    body = {
        "settings": COMMON,
        "rate_rps": RATE_RPS,
        "share": SHARE,
        "ttft_ms": TTFT_MS,
        "images": needs,
        "audio": seconds,
        "cells": cells,
        "node_gpus": NODE_GPUS,
        "nodes": nodes,
    }
    DATA.write_text(json.dumps(body, indent=1) + "\n")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    draw(body)


def draw(body: dict[str, Any]) -> None:
    """Draw the picture of the data, in its light and its dark variant."""
    from headrace.sim.plot_style import picture

    picture(_drawn)(PICTURE, body)


def _drawn(body: dict[str, Any]) -> "Figure":
    from headrace.sim.plot_style import SMALL_PT, label_ends, others, panels, theme

    titles = ["Work of cores for each H100", f"Cost with a DPU / with cores, {body['rate_rps']:g} images/s"]
    drawn, (left, right) = panels(titles, columns=2, height_in=3.6)
    sides = list(body["images"])
    names = list(next(iter(body["images"].values()))["cores"])
    for name, fill in zip([*names, "CUs of a DPU"], others(len(names) + 1), strict=True):
        work = [each["work"].get(name, each["cus_work"]) for each in body["images"].values()]
        left.plot([int(side) for side in sides], work, "o-", color=fill, label=name)
    left.set(xlabel="side of a square image, pixels", ylabel="cores or CUs that work", ylim=(0, None))
    label_ends(left)
    shown = theme()
    for row, ttft_ms in enumerate(body["ttft_ms"]):
        for column, side in enumerate(sides):
            found = body["cells"][f"{side},{ttft_ms:g}"]
            text, fill = _word(found)
            color = {"dpu": "#c44e52", "cpu": "#4c72b0", "": shown.band}[fill]
            right.add_patch(_square(column, row, color))
            right.text(column, row, text, ha="center", va="center", fontsize=SMALL_PT, color=shown.text)
    right.set(xlim=(-0.5, len(sides) - 0.5), ylim=(-0.5, len(body["ttft_ms"]) - 0.5))
    right.set_xticks(range(len(sides)), sides)
    right.set_yticks(range(len(body["ttft_ms"])), [f"{each:g}" for each in body["ttft_ms"]])
    right.set(xlabel="side of a square image, pixels", ylabel="target for the first token, ms")
    right.grid(visible=False)
    return drawn


def _square(column: int, row: int, color: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, color=color, alpha=0.45, lw=0)


def _word(found: dict[str, Any]) -> tuple[str, str]:
    """Return the words of a cell of the map, and the front end that is the cheaper one."""
    if not found:
        return "neither", ""
    if len(found) == 1:
        device = next(iter(found))
        return ("DPU\nonly" if device == "dpu" else "cores\nonly"), device
    ratio = found["dpu"]["usd"] / found["cpu"]["usd"]
    return f"{ratio:.2f}", "dpu" if ratio < 1 else "cpu"


if __name__ == "__main__":
    main()
