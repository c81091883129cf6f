"""Compare the numbers of PREBA with ours, by the paper's own figure numbers.

Averages over networks are arithmetic means, of ratios too. Where a CPU preprocesses, every row stands twice, once for
each of conditions.BASELINES, and is of that one alone. A note first says load and averaging, then the numbers of other
readings, then why a number is off. The column "paper" has the numbers that the paper prints. A number that only follows
from those is called derived.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from headrace.sim.experiments.preba import plots
from headrace.sim.experiments.preba.conditions import (
    AUDIO_NETWORKS,
    BASELINE_SHARE,
    BASELINES,
    CLIP,
    CLIP_S,
    CPU_CORES,
    DPU,
    IDEAL,
    IMAGE_NETWORKS,
    KNEE_LENGTHS_S,
    LATENCY_CASES,
    LOW_LOAD,
    MEANS_S,
    MORE_UNITS,
    NETWORKS,
    OTHER_PRECISION,
    PARTITIONS,
    PCIE_CASES,
    SAME_SHARE,
    SEVENTHS,
    SHORT,
    SLICES,
    STATIC,
    STATIC_READINGS,
    TARGET_SHARE,
    TARGET_SLACKS,
    TEST_UTTERANCES,
    UTTERANCES,
    WHOLE,
)
from headrace.sim.experiments.preba.rows import Rows, Run, knee, latency_knee, mean
from headrace.sim.experiments.preba.transfers import transfers
from headrace.sim.experiments.report import Claim
from headrace.sim.hardware.gpu.slice import LATENCY_KNEE
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, Inputs
from headrace.sim.hardware.preba_cpu import clip_core_s, clips_per_s, derivation

# Table 1, per cent of the card.
RESOURCES = ("LUT", "REG", "BRAM", "URAM", "DSP")
TABLE_1 = {
    "image": {
        "decode": (19.7, 8.6, 0.7, 22.5, 6.2),
        "resize": (7.1, 2.3, 0.0, 0.0, 8.6),
        "crop": (0.6, 0.4, 0.0, 0.0, 0.0),
        "normalize": (13.0, 3.3, 11.2, 0.0, 3.0),
        "total": (44.5, 16.5, 19.3, 22.5, 17.8),
    },
    "audio": {
        "resample": (0.2, 0.1, 1.0, 0.0, 0.0),
        "mel": (41.5, 24.6, 18.2, 37.5, 34.2),
        "normalize": (3.1, 1.7, 1.7, 7.5, 1.3),
        "total": (45.9, 26.9, 23.3, 45.0, 35.5),
    },
}
# Section 3.2, of MobileNet, SqueezeNet and Swin.
KNEES = {SEVENTHS: (16, 4, 2), WHOLE: (128, 32, 16)}
TIME_KNEE_MS = 35  # Section 4.3
SIX = f"mean of {len(NETWORKS)} networks"
SATURATED = "saturated, LibriSpeech, 1g.5gb(7x)"


def _each(values: Mapping[str, float], unit: str = "") -> str:
    """Return values by network, in words."""
    return ", ".join(f"{SHORT[model]} {value:.3g}{unit}" for model, value in values.items())


def _note(*parts: str) -> str:
    return ". ".join(part for part in parts if part)


def _greatest(rows: Rows, model: str, preprocess: str, **fields: object) -> Run:
    settings: dict[str, object] = {"policy": "preba", "active": SLICES, **fields}
    return rows.one(load="saturated", model=model, preprocess=preprocess, **settings)


# ---- Section 3: slices by themselves ----


def figure_5(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_5(folder / "figure5.png", rows)

    def peak(model: str, parts: str) -> float:
        return max(point.throughput_rps for point in rows.curve(model, parts))

    def at(model: str, parts: str, batch: int) -> float:
        return next(point.throughput_rps for point in rows.curve(model, parts) if point.batch == batch)

    thirds = PARTITIONS[1]
    lost = {m: 100 * (1 - peak(m, thirds) / peak(m, SEVENTHS)) for m in NETWORKS}
    whole = {m: 100 * (1 - peak(m, thirds) / peak(m, WHOLE)) for m in NETWORKS}
    note = _note(
        f"greatest over all batches, sounds of {CLIP} s, {SIX}: {_each(lost)}",
        f"Below 7g.40gb(1x): {mean(whole.values()):.3g} %",
        "The paper has it from the SMs that are off, 1 of 7",
    )
    claims = [Claim("5", "throughput of 2g.10gb(3x) below 1g.5gb(7x)", 14.2, mean(lost.values()), "%", note)]
    for batch in (1, 4):
        ratio = {model: at(model, SEVENTHS, batch) / at(model, WHOLE, batch) for model in NETWORKS}
        note = f"least of six networks: {_each(ratio)}. The paper says higher, and not by how much"
        what = f"throughput in batches of {batch}, 1g.5gb(7x) / 7g.40gb(1x)"
        claims.append(Claim("5", what, 1, min(ratio.values()), "x", note, ">"))
    return claims


def figure_6(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_6(folder / "figure6.png", rows)
    claims = []
    for parts, knees in KNEES.items():
        for model, paper in zip(IMAGE_NETWORKS, knees, strict=True):
            curve = rows.curve(model, parts)
            slower = rows.curve(model, parts, precision=OTHER_PRECISION)
            point = knee(curve)
            note = _note(
                f"last doubling that brings 5 % more throughput; {point.latency_ms:.1f} ms there",
                f"By the latency curve, {LATENCY_KNEE:g} times what one takes: {latency_knee(curve).batch}",
                f"With products in {OTHER_PRECISION}: {knee(slower).batch} and {latency_knee(slower).batch}",
            )
            claims.append(Claim("6", f"{SHORT[model]}: Batch_knee on {_shown(parts)}", paper, point.batch, "", note))
    return claims


def _shown(parts: str) -> str:
    """Return a partition as the paper writes it."""
    profile, count = parts.split(":")
    return f"{profile}({count}x)"


def figure_7(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_7(folder / "figure7.png", rows)

    def waits(model: str) -> float:
        return rows.one(model=model, partition=SEVENTHS).queue_ms / rows.one(model=model, partition=WHOLE).queue_ms

    ratio = {model: waits(model) for model in NETWORKS}
    note = (
        f"ideal preprocessing, {SAME_SHARE:.0%} of the greatest throughput of the slower partition, preba, sounds of "
        f"{CLIP} s; greatest of six networks: {_each(ratio)}. The paper draws it and gives no number"
    )
    what = "mean time in the batcher, 1g.5gb(7x) / 7g.40gb(1x)"
    return [Claim("7", what, 1, max(ratio.values()), "x", note, "<")]


def figure_14(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_14(folder / "figure14.png", rows)
    return []


def figure_15(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_15(folder / "figure15.png", rows)
    claims = []
    for model in AUDIO_NETWORKS:
        knees = [knee(rows.curve(model, SEVENTHS, seconds)) for seconds in KNEE_LENGTHS_S]
        each = ", ".join(f"{point.latency_ms:.1f} ms at {point.seconds:g} s (batch {point.batch})" for point in knees)
        slower = [knee(rows.curve(model, SEVENTHS, seconds, OTHER_PRECISION)).latency_ms for seconds in KNEE_LENGTHS_S]
        note = _note(
            f"mean of the three: {each}",
            f"With products in {OTHER_PRECISION}: {', '.join(f'{latency:.1f}' for latency in slower)}",
        )
        time_knee = mean(point.latency_ms for point in knees)
        claims.append(
            Claim("15", f"{SHORT[model]}: Time_knee on a slice of 1g.5gb", TIME_KNEE_MS, time_knee, "ms", note)
        )
    return claims


# ---- Section 3: CPU preprocessing ----


def figure_8(rows: Rows, folder: Path) -> list[Claim]:
    def cores(model: str, cpu: str) -> float:
        return _greatest(rows, model, IDEAL).throughput_rps * _greatest(rows, model, cpu).core_ms / 1e3

    plots.figure_8(folder / "figure8.png", rows, cores)
    claims = []
    where = f"saturated, sounds of {CLIP} s, {CPU_CORES} cores of which {SLICES} launch kernels"
    for baseline, cpu in BASELINES.items():
        lost = {model: 100 * _lost(rows, model, cpu) for model in NETWORKS}
        note = _note(
            f"{where}, {SIX}: {_each(lost)}",
            "The images' cost is derived from this number, taken for MobileNet's"
            if baseline == "paper-implied"
            else "",
        )
        what = f"throughput lost to CPU preprocessing, {baseline} CPU"
        claims.append(Claim("8", what, 75.6, mean(lost.values()), "%", note))
    clips = f"saturated, sounds of {CLIP} s: Ideal's {_greatest(rows, 'citrinet', IDEAL).throughput_rps:.0f}/s"
    for baseline, cpu in BASELINES.items():
        needed = {model: cores(model, cpu) for model in NETWORKS}
        note = _note(
            f"{clips} by {_greatest(rows, 'citrinet', cpu).core_ms:.3g} ms of a core each",
            f"All: {_each(needed)}",
            _derived("CPU, a clip of 2.5 s") if baseline == "paper-implied" else "",
        )
        what = f"cores that CitriNet's preprocessing takes, {baseline} CPU"
        claims.append(Claim("8", what, 393, needed["citrinet"], "cores", note))
    return claims


def _derived(what: str) -> str:
    """Return in words how a number that the paper implies follows."""
    row = next(row for row in derivation() if row.what == what)
    return f"Derived, not printed by the paper: {row.what} {row.value:.4g} {row.unit} = {row.how}"


def _lost(rows: Rows, model: str, preprocess: str) -> float:
    """Return the lost share of Ideal's greatest throughput."""
    return 1 - _greatest(rows, model, preprocess).throughput_rps / _greatest(rows, model, IDEAL).throughput_rps


def figure_9(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_9(folder / "figure9.png", rows)
    claims = []
    for baseline, cpu in BASELINES.items():
        used = {model: 100 * _greatest(rows, model, cpu).cpu for model in NETWORKS}
        enough = {}
        for model in NETWORKS:
            runs = sorted(rows.of(model=model, preprocess=cpu), key=lambda run: run.active)
            enough[model] = next(
                r.active for r in runs if r.throughput_rps >= 0.95 * max(x.throughput_rps for x in runs)
            )
        note = _note(
            f"saturated, sounds of {CLIP} s, all {SLICES} servers active, {SIX}: {_each(used)}",
            f"Throughput is within 5 % of its greatest from so many servers on: {_each(enough)}",
            "A core is kept for each server and idles while its slice waits",
        )
        claims.append(
            Claim("9", f"CPU utilization where it saturates, {baseline} CPU", 90, mean(used.values()), "%", note)
        )
    return claims


# ---- Section 6 ----


def figure_17(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_17(folder / "figure17.png", rows)
    claims = []
    for baseline, cpu in BASELINES.items():
        lost = {model: 100 * _lost(rows, model, cpu) for model in NETWORKS}
        note = f"{SATURATED}, {SIX}: {_each(lost)}"
        claims.append(
            Claim("17", f"throughput lost beside Ideal, {baseline} CPU", 77.2, mean(lost.values()), "%", note)
        )
    kept = {model: 100 * (1 - _lost(rows, model, DPU)) for model in NETWORKS}
    more = {units: {m: 100 * (1 - _lost(rows, m, units)) for m in IMAGE_NETWORKS} for units in MORE_UNITS}
    note = _note(
        f"{SATURATED}, {DPU}, the fifth of six: {_each(kept)}",
        *(f"With {units}: {_each(share)}" for units, share in more.items()),
    )
    claims.append(Claim("17", "PREBA / Ideal, five of six networks", 91.6, sorted(kept.values())[1], "%", note, ">"))
    ratios = _ratios(rows, "17", "throughput, PREBA / baseline", 3.7, lambda run: run.throughput_rps, SATURATED)
    flat = {}
    for model in NETWORKS:
        run = _greatest(rows, model, DPU)
        images_rps = _greatest(rows, model, BASELINES["paper-implied"]).throughput_rps
        flat[model] = run.throughput_rps / (_flat_rps(run) if model in AUDIO_NETWORKS else images_rps)
    shares = [mean(kept.values()) / (100 - claim.measured) for claim in claims[: len(BASELINES)] if claim.measured]
    notes = [f"Ratio of the mean shares of Ideal: {share:.3g}" for share in shares]
    notes[0] = _note(notes[0], f"{_FLAT}: {_each(flat)}, mean of six {mean(flat.values()):.3g}")
    return claims + [replace(claim, note=_note(claim.note, note)) for claim, note in zip(ratios, notes, strict=True)]


def _ratios(
    rows: Rows,
    figure: str,
    what: str,
    paper: float,
    value: Callable[[Run], float],
    where: str,
    networks: tuple[str, ...] = NETWORKS,
) -> list[Claim]:
    """Compare PREBA with each CPU baseline, at the greatest throughput of each design."""
    claims = []
    for baseline, cpu in BASELINES.items():
        ratio = {m: value(_greatest(rows, m, DPU)) / value(_greatest(rows, m, cpu)) for m in networks}
        geometric = math.exp(mean(math.log(each) for each in ratio.values()))
        note = f"{where}, mean of {len(networks)} networks: {_each(ratio)}; geometric mean {geometric:.3g}"
        claims.append(Claim(figure, f"{what}, {baseline} CPU", paper, mean(ratio.values()), "x", note))
    return claims


def figure_18(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_18(folder / "figure18.png", rows)

    def within(model: str, preprocess: str, slack: float) -> float:
        return rows.one(model=model, preprocess=preprocess, load="tail", share=slack).within_rps

    def of_ideal(preprocess: str, slack: float) -> dict[str, float]:
        return {m: 100 * within(m, preprocess, slack) / within(m, IDEAL, slack) for m in NETWORKS}

    first, *others = TARGET_SLACKS
    kept = of_ideal(DPU, first)
    cpus = {baseline: mean(of_ideal(cpu, first).values()) for baseline, cpu in BASELINES.items()}
    note = _note(
        f"LibriSpeech, {DPU}, greatest Poisson rate whose p95 is within {first:g} times Ideal's at {TARGET_SHARE:.0%} "
        f"of its greatest throughput, the fifth of six: {_each(kept)}",
        *(f"Within {slack:g} times Ideal's: {_each(of_ideal(DPU, slack))}" for slack in others),
        f"CPU, {SIX}: " + ", ".join(f"{baseline} {share:.3g} %" for baseline, share in cpus.items()),
    )
    claims = [Claim("18", "PREBA / Ideal within a tail target, five of six", 91.6, sorted(kept.values())[1], "%", note)]

    for baseline, cpu in BASELINES.items():
        at = {"load": "share", "of": cpu, "share": BASELINE_SHARE}
        theirs = {model: rows.of(model=model, preprocess=cpu, **at)[0] for model in NETWORKS}
        ours = {model: rows.of(model=model, preprocess=DPU, **at)[0] for model in NETWORKS}
        ratio = {model: theirs[model].p95_ms / ours[model].p95_ms for model in NETWORKS}
        over = [SHORT[model] for model, run in ours.items() if run.throughput_rps < 0.95 * run.rate_rps]
        note = _note(
            f"p95 at {BASELINE_SHARE:.0%} of the baseline's greatest throughput, LibriSpeech, {SIX}: {_each(ratio)}",
            f"The DPU is overloaded there by {', '.join(over)}" if over else "",
        )
        claims.append(Claim("18", f"tail latency, {baseline} CPU / PREBA", 3.4, mean(ratio.values()), "x", note))
    return claims


def figure_19(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_19(folder / "figure19.png", rows)
    loads = sorted({run.share for run in rows.runs})
    claims = []
    for baseline, cpu in BASELINES.items():
        for model, paper in (("squeezenet1_1", 53), ("conformer", 72)):
            texts = []
            for lengths in [lengths for name, lengths in LATENCY_CASES if name == model]:
                runs = [rows.one(model=model, preprocess=cpu, lengths=lengths, share=share) for share in loads]
                shares = [100 * run.preprocess_ms / run.mean_ms for run in runs]
                by_load = ", ".join(f"{value:.3g} % at {share:g}" for share, value in zip(loads, shares, strict=True))
                low = runs[loads.index(LOW_LOAD)]
                would_ms = (low.mean_ms - low.preprocess_ms) * paper / (100 - paper)
                text = (
                    f"{by_load}; the paper's share is {would_ms:.3g} ms of it, where there are {low.preprocess_ms:.3g}"
                )
                texts.append((shares[loads.index(LOW_LOAD)], f"{_clips(lengths)}{text}"))
            note = _note(
                f"of the mean latency, at {LOW_LOAD:g} of the baseline's greatest throughput",
                *(text for _, text in texts),
            )
            what = f"{SHORT[model]}: preprocessing, {baseline} CPU"
            claims.append(Claim("19", what, paper, texts[0][0], "%", note))
    return claims


def _clips(lengths: str) -> str:
    return {"": "", UTTERANCES: "LibriSpeech: "}.get(lengths, f"{lengths} s: ")


def figure_20(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_20(folder / "figure20.png", rows)
    where = f"each at its greatest throughput, LibriSpeech, {DPU}"
    claims = []
    for baseline, cpu in BASELINES.items():
        less = {m: 100 * (1 - _greatest(rows, m, DPU).cpu_w / _greatest(rows, m, cpu).cpu_w) for m in NETWORKS}
        note = f"{where}, {SIX}: {_each(less)}"
        claims.append(Claim("20", f"CPU power saved, {baseline} CPU", 35.4, mean(less.values()), "%", note))
    claims += _ratios(rows, "20", "GPU power, PREBA / baseline", 2.8, lambda run: run.gpu_w, where, AUDIO_NETWORKS)
    return claims + _ratios(rows, "20", "requests/J, PREBA / baseline", 3.5, lambda run: run.requests_per_j, where)


def figure_21(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_21(folder / "figure21.png", rows)
    where = f"each at its greatest throughput, LibriSpeech, {DPU}, prices of sim/system/cost.py"
    return _ratios(rows, "21", "requests a dollar, PREBA / baseline", 3.0, lambda run: run.requests_per_usd, where)


def figure_22(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_22(folder / "figure22.png", rows)
    static = f"{STATIC}:{STATIC_READINGS[0]}"

    def gains(ours: tuple[str, str], theirs: tuple[str, str], load: str, lengths: str = UTTERANCES) -> dict[str, float]:
        """Return the percentage of further throughput by network. Preprocessing and policy name a design."""

        def rate(model: str, design: tuple[str, str]) -> float:
            run = rows.one(model=model, preprocess=design[0], policy=design[1], load=load, lengths=lengths)
            return run.within_rps if load == "tail" else run.throughput_rps

        pairs = {model: (rate(model, ours), rate(model, theirs)) for model in AUDIO_NETWORKS}
        return {model: 100 * (mine / other - 1) if other else math.inf for model, (mine, other) in pairs.items()}

    where = "saturated, LibriSpeech, one queue with Batch_max and Time_queue of its mean length, mean of 3 networks"
    claims = []
    for baseline, cpu in BASELINES.items():
        gain = gains((DPU, static), (cpu, static), "saturated")
        flat = {
            model: 100 * (run.throughput_rps / _flat_rps(run) - 1)
            for model in AUDIO_NETWORKS
            for run in [_greatest(rows, model, DPU, policy=static, lengths=UTTERANCES)]
        }
        tail = gains((DPU, static), (cpu, static), "tail")
        note = _note(
            f"{where}: {_each(gain)}",
            "Within Fig. 18's target: "
            + (f"{mean(tail.values()):.3g} %" if math.inf not in tail.values() else "Base meets it at no rate"),
            f"{_FLAT}: {_each(flat)}, mean {mean(flat.values()):.3g} %" if baseline == "paper-implied" else "",
        )
        claims.append(Claim("22", f"Base+DPU above Base, {baseline} CPU", 101, mean(gain.values()), "%", note))

    def read(lengths: str) -> str:
        texts = []
        for reading in STATIC_READINGS:
            base = (DPU, f"{STATIC}:{reading}")
            full, tail = (mean(gains((DPU, "preba"), base, load, lengths).values()) for load in ("saturated", "tail"))
            texts.append(f"{reading} {full:.3g} and {tail:.3g} %")
        return ", ".join(texts)

    gain = gains((DPU, "preba"), (DPU, static), "saturated")
    note = _note(
        f"{where}: {_each(gain)}",
        f"Saturated and within Fig. 18's target, by what Base has for all lengths: {read(UTTERANCES)}",
        f"Of LibriSpeech's sets to tune and to test alone, {MEANS_S[TEST_UTTERANCES]:.1f} s long on average in place "
        f"of {MEANS_S[UTTERANCES]:.1f}: {read(TEST_UTTERANCES)}",
    )
    return [*claims, Claim("22", "dynamic batching above Base+DPU", 54, mean(gain.values()), "%", note)]


_FLAT = f"If a clip took the CPU {1e3 * clip_core_s():.0f} ms whatever its length"


def _flat_rps(run: Run) -> float:
    """Return the rate that the paper-implied CPU would then serve in place of the DPU in a saturated run."""
    return min(run.throughput_rps, (CPU_CORES - SLICES) / clip_core_s())


def pcie(rows: Rows, folder: Path) -> list[Claim]:
    def bytes_of(model: str, lengths: str) -> float:
        """Return the bytes to the DPU and back for a request of mean size."""
        inputs = Inputs("audio" if lengths else "image")
        seconds = {"": float(TYPICAL_PIXELS), CLIP: CLIP_S, **MEANS_S}[lengths]
        size = np.array([seconds])
        return float((inputs.file_bytes(size) + inputs.tensor_bytes(size))[0])

    claims = []
    for model, paper in (("mobilenet_v3_small", 6.13), ("citrinet", 0.9)):
        texts = {}
        for name, design, lengths in PCIE_CASES:
            if name == model:
                run = _greatest(rows, model, design, lengths=lengths)
                moved = bytes_of(model, lengths)
                texts[design, lengths] = (run.throughput_rps * moved / 1e9, moved, run.throughput_rps)
        first = next(value for (design, _), value in texts.items() if design == DPU)
        note = _note(
            f"saturated, both directions between CPU and DPU, {first[1] / 1e3:.0f} KB a request at {first[2]:.0f}/s",
            "; ".join(f"{_clips(lengths)}{design} {value[0]:.3g} GB/s" for (design, lengths), value in texts.items()),
            _derived("images" if model in IMAGE_NETWORKS else "clips of 2.5 s"),
            "" if model in IMAGE_NETWORKS else f"With its bytes a clip: {first[2] * 0.9 / clips_per_s():.3g} GB/s",
        )
        claims.append(Claim("4.2", f"PCIe, {SHORT[model]}", paper, first[0], "GB/s", note))
    return [*claims, *transfers()]


def table_1(rows: Rows, folder: Path) -> list[Claim]:
    claims = []
    for kind, units in TABLE_1.items():
        for column, resource in enumerate(RESOURCES):
            total = units["total"][column]
            summed = sum(share[column] for unit, share in units.items() if unit != "total")
            names = " + ".join(unit for unit in units if unit != "total")
            over = total - summed
            note = f"{names}, the paper's own numbers; its total is {over:.3g} points more" if over > 0.05 else names
            claims.append(
                Claim("Table 1", f"{kind}: {resource}, total beside the sum of its units", total, summed, "%", note)
            )
    return claims


REPORTS: dict[str, Callable[[Rows, Path], list[Claim]]] = {
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "8": figure_8,
    "9": figure_9,
    "14": figure_14,
    "15": figure_15,
    "17": figure_17,
    "18": figure_18,
    "19": figure_19,
    "20": figure_20,
    "21": figure_21,
    "22": figure_22,
    "pcie": pcie,
    "table1": table_1,
}
