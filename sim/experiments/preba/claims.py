"""Compare the numbers of PREBA with ours, by the paper's own figure numbers.

Averages over networks are arithmetic means, of ratios too. Where a CPU preprocesses, a row is of one of
conditions.BASELINES alone and names it. A note first says load and averaging, then the numbers of other readings. The
column "paper" has the numbers that the paper prints. A number that only follows from those is called derived.

A cause is given where the paper's number lies between those of runs that differ in one reading.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from headrace.sim.experiments.preba import plots, table1
from headrace.sim.experiments.preba.conditions import (
    AUDIO_NETWORKS,
    BASELINE_SHARE,
    BASELINES,
    CLIP,
    CPU,
    CPU_CORES,
    DPU,
    FEWER_UNITS,
    IDEAL,
    IMAGE_NETWORKS,
    IMPLIED,
    KNEE_LENGTHS_S,
    LATENCY_CASES,
    LAUNCH_US,
    LOW_LOAD,
    MEANS_S,
    MORE_UNITS,
    NETWORKS,
    OTHER_LAUNCH_US,
    OTHER_PRECISION,
    PAPER_CPU,
    PARTITIONS,
    PCIE_CASES,
    ROWS_OF_CPU,
    SAME_SHARE,
    SEVENTHS,
    SHORT,
    SLICES,
    SLOWER,
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
from headrace.sim.experiments.report import NEAR, Claim, Kind
from headrace.sim.hardware.gpu.slice import LATENCY_KNEE
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, usual
from headrace.sim.hardware.preba_cpu import clip_core_s, clips_per_s, derivation

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


def _with_slower(paper: float, values: Mapping[float, float], unit: str) -> tuple[str, str]:
    """Return a note and a cause: what runs with slower cores give.

    The cause is empty unless the paper's number lies between the numbers of these runs.

    Args:
        paper: The paper's number.
        values: Our number by how many times slower the cores are; 1 is the row's own.
    """
    each = ", ".join(f"{slower:g} times slower {value:.3g} {unit}" for slower, value in values.items() if slower != 1)
    if min(values.values()) <= paper <= max(values.values()):
        cause = (
            f"the cost of a core, which was measured on a newer CPU than the paper's. With cores {each} (this figure)"
        )
        return "", cause
    return f"With cores {each}", ""


def _by_slower(value: Callable[[float], float]) -> dict[float, float]:
    return {slower: value(slower) for slower in (1.0, *SLOWER)}


def _others(value: Callable[[str], float], unit: str, but: str = PAPER_CPU) -> str:
    """Return in words what the other costs of the CPU give."""
    rest = {baseline: value(cpu) for baseline, cpu in BASELINES.items() if baseline != but}
    return "With other costs: " + ", ".join(f"{baseline} {number:.3g} {unit}" for baseline, number in rest.items())


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
            cause = ""
            if latency_knee(slower).batch == paper != point.batch:
                cause = f"products in TF32 and the knee of throughput; in {OTHER_PRECISION}, by latency, it is {paper}"
            what = f"{SHORT[model]}: Batch_knee on {_shown(parts)}"
            claims.append(Claim("6", what, paper, point.batch, "", note, cause=cause))
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

    def knee_at(parts: str, pick: Callable[[Iterable[float]], float]) -> int:
        seconds = pick({point.seconds for point in rows.curve("conformer", parts)})
        return knee(rows.curve("conformer", parts, seconds)).batch

    ratio = {parts: knee_at(parts, min) / knee_at(parts, max) for parts in (SEVENTHS, WHOLE)}
    each = ", ".join(f"{_shown(parts)} {value:.3g}" for parts, value in ratio.items())
    note = f"Conformer, least of two partitions: {each}. The paper draws it and gives no number"
    what = "Batch_knee of sounds of 2.5 s / of 25 s"
    return [Claim("14", what, 1, min(ratio.values()), "x", note, ">")]


def figure_15(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_15(folder / "figure15.png", rows)
    claims, spread = [], {}
    for model in AUDIO_NETWORKS:
        knees = [knee(rows.curve(model, SEVENTHS, seconds)) for seconds in KNEE_LENGTHS_S]
        each = ", ".join(f"{point.latency_ms:.1f} ms at {point.seconds:g} s (batch {point.batch})" for point in knees)
        slower = [knee(rows.curve(model, SEVENTHS, seconds, OTHER_PRECISION)).latency_ms for seconds in KNEE_LENGTHS_S]
        note = _note(
            f"mean of the three: {each}",
            f"With products in {OTHER_PRECISION}: {', '.join(f'{latency:.1f}' for latency in slower)}",
        )
        faster = [
            knee(rows.curve(model, SEVENTHS, seconds, launch_us=OTHER_LAUNCH_US)).latency_ms
            for seconds in KNEE_LENGTHS_S
        ]
        time_knee = mean(point.latency_ms for point in knees)
        text = (
            f"with {OTHER_LAUNCH_US:g} us to launch a kernel in place of {LAUNCH_US:.3g}: "
            f"{', '.join(f'{latency:.1f}' for latency in faster)}, mean {mean(faster):.3g} ms"
        )
        closer = abs(mean(faster) - TIME_KNEE_MS) <= NEAR * TIME_KNEE_MS
        what = f"{SHORT[model]}: Time_knee on a slice of 1g.5gb"
        cause = f"the host; {text} (this figure)" if closer else ""
        if not cause and time_knee <= TIME_KNEE_MS <= mean(slower):
            cause = f"the type of products, which the paper does not give: {mean(slower):.3g} ms in {OTHER_PRECISION}"
        claims.append(Claim("15", what, TIME_KNEE_MS, time_knee, "ms", note, cause=cause))
        spread[model] = max(point.latency_ms for point in knees) / min(point.latency_ms for point in knees)
    note = f"greatest of three networks: {_each(spread)}. The paper calls it almost constant, and gives no number"
    return [*claims, Claim("15", "Time_knee, greatest / least of 5, 15, 25 s", 1, max(spread.values()), "x", note)]


# ---- Section 3: CPU preprocessing ----


def figure_8(rows: Rows, folder: Path) -> list[Claim]:
    def cores(model: str, cpu: str, slower: float = 1.0) -> float:
        core_ms = _greatest(rows, model, cpu, slower=slower).core_ms
        return _greatest(rows, model, IDEAL).throughput_rps * core_ms / 1e3

    plots.figure_8(folder / "figure8.png", rows, cores)
    claims = []
    where = f"saturated, sounds of {CLIP} s, {CPU_CORES} cores of which {SLICES} launch kernels"
    for baseline in ROWS_OF_CPU:
        cpu = BASELINES[baseline]
        lost = {model: 100 * _lost(rows, model, cpu) for model in NETWORKS}
        slower, cause = _slower_or_not(baseline, 75.6, lambda x: _mean_lost(rows, x), "%")
        derived = "The images' cost is derived from this number, taken for MobileNet's" if baseline == IMPLIED else ""
        note = _note(f"{where}, {SIX}: {_each(lost)}", derived, slower)
        what = f"throughput lost to CPU preprocessing, {baseline} CPU"
        claims.append(Claim("8", what, 75.6, mean(lost.values()), "%", note, kind=_kind(baseline), cause=cause))
    clips = f"saturated, sounds of {CLIP} s: Ideal's {_greatest(rows, 'citrinet', IDEAL).throughput_rps:.0f}/s"
    for baseline in ROWS_OF_CPU:
        cpu = BASELINES[baseline]
        needed = {model: cores(model, cpu) for model in NETWORKS}
        slower, cause = _slower_or_not(baseline, 393, lambda x: cores("citrinet", CPU, x), "cores")
        note = _note(
            f"{clips} by {_greatest(rows, 'citrinet', cpu).core_ms:.3g} ms of a core each",
            f"All: {_each(needed)}",
            _derived("CPU, a clip of 2.5 s") if baseline == IMPLIED else "",
            slower,
        )
        if baseline == IMPLIED:
            rate = _greatest(rows, "citrinet", IDEAL).throughput_rps
            cause = (
                f"the slices serve {rate:.0f} clips/s here, and the cost was derived from {clips_per_s():.0f}/s, which "
                "PCIe's traffic implies"
            )
        what = f"cores that CitriNet's preprocessing takes, {baseline} CPU"
        claims.append(Claim("8", what, 393, needed["citrinet"], "cores", note, kind=_kind(baseline), cause=cause))
    return claims


def _mean_lost(rows: Rows, slower: float) -> float:
    """Return the share (%) of Ideal's throughput that the paper's baseline loses, mean of the networks."""
    return mean(100 * _lost(rows, model, CPU, slower) for model in NETWORKS)


def _kind(baseline: str) -> Kind:
    """Return what a row proves whose paper's number, or one that implies it, is among those of `derivation`."""
    return Kind.BY_CONSTRUCTION if baseline == IMPLIED else Kind.INDEPENDENT


def _slower_or_not(baseline: str, paper: float, value: Callable[[float], float], unit: str) -> tuple[str, str]:
    """Return note and cause of `_with_slower` for the baseline that has such runs, and nothing for the others."""
    return _with_slower(paper, _by_slower(value), unit) if baseline == PAPER_CPU else ("", "")


def _derived(what: str) -> str:
    """Return in words how a number that the paper implies follows."""
    row = next(row for row in derivation() if row.what == what)
    return f"Derived, not printed by the paper: {row.what} {row.value:.4g} {row.unit} = {row.how}"


def _lost(rows: Rows, model: str, preprocess: str, slower: float = 1.0) -> float:
    """Return the lost share of Ideal's greatest throughput."""
    found = _greatest(rows, model, preprocess, slower=slower)
    return 1 - found.throughput_rps / _greatest(rows, model, IDEAL).throughput_rps


def figure_9(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_9(folder / "figure9.png", rows)
    claims = []
    for baseline in ROWS_OF_CPU:
        cpu = BASELINES[baseline]
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
        slower, cause = _slower_or_not(
            baseline, 90, lambda x: mean(100 * _greatest(rows, m, CPU, slower=x).cpu for m in NETWORKS), "%"
        )
        what = f"CPU utilization where it saturates, {baseline} CPU"
        claims.append(Claim("9", what, 90, mean(used.values()), "%", _note(note, slower), cause=cause))
    return claims


# ---- Section 6 ----


def figure_17(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_17(folder / "figure17.png", rows)
    claims = []
    for baseline in ROWS_OF_CPU:
        lost = {model: 100 * _lost(rows, model, BASELINES[baseline]) for model in NETWORKS}
        slower, cause = _slower_or_not(baseline, 77.2, lambda x: _mean_lost(rows, x), "%")
        note = _note(f"{SATURATED}, {SIX}: {_each(lost)}", slower)
        what = f"throughput lost beside Ideal, {baseline} CPU"
        claims.append(Claim("17", what, 77.2, mean(lost.values()), "%", note, kind=_kind(baseline), cause=cause))
    kept = {model: 100 * (1 - _lost(rows, model, DPU)) for model in NETWORKS}
    more = {units: {m: 100 * (1 - _lost(rows, m, units)) for m in IMAGE_NETWORKS} for units in MORE_UNITS}
    note = _note(
        f"{SATURATED}, {DPU}, the fifth of six: {_each(kept)}",
        *(f"With {units}: {_each(share)}" for units, share in more.items()),
    )
    claims.append(Claim("17", "PREBA / Ideal, five of six networks", 91.6, sorted(kept.values())[1], "%", note, ">"))
    claims.append(_ratio(rows, "17", "throughput, PREBA / baseline", 3.7, lambda run: run.throughput_rps, SATURATED))
    flat = {}
    for model in NETWORKS:
        run = _greatest(rows, model, DPU)
        images_rps = _greatest(rows, model, BASELINES[IMPLIED]).throughput_rps
        flat[model] = run.throughput_rps / (_flat_rps(run) if model in AUDIO_NETWORKS else images_rps)
    implied = _ratios(rows, BASELINES[IMPLIED], NETWORKS, lambda run: run.throughput_rps)
    note = f"{SATURATED}, {SIX}: {_each(implied)}; geometric mean {_geometric(implied):.3g}"
    cause = f"the length of sounds. {_FLAT}: {_each(flat)}, mean of six {mean(flat.values()):.3g} (figure 17's rates)"
    what = f"throughput, PREBA / baseline, {IMPLIED} CPU"
    kind = _kind(IMPLIED)
    return [*claims, Claim("17", what, 3.7, mean(implied.values()), "x", note, kind=kind, cause=cause)]


def _ratios(
    rows: Rows, cpu: str, networks: tuple[str, ...], value: Callable[[Run], float], slower: float = 1.0
) -> dict[str, float]:
    """Return by network the ratio of PREBA to a CPU, at the greatest throughput of each."""
    return {m: value(_greatest(rows, m, DPU)) / value(_greatest(rows, m, cpu, slower=slower)) for m in networks}


def _geometric(ratios: Mapping[str, float]) -> float:
    return math.exp(mean(math.log(each) for each in ratios.values()))


def _ratio(
    rows: Rows,
    figure: str,
    what: str,
    paper: float,
    value: Callable[[Run], float],
    where: str,
    networks: tuple[str, ...] = NETWORKS,
) -> Claim:
    """Compare PREBA with the paper's baseline, at the greatest throughput of each design."""

    def ratio(cpu: str, slower: float = 1.0) -> float:
        return mean(_ratios(rows, cpu, networks, value, slower).values())

    each = _ratios(rows, CPU, networks, value)
    text, cause = _with_slower(paper, _by_slower(lambda slower: ratio(CPU, slower)), "x")
    note = _note(
        f"{where}, mean of {len(networks)} networks: {_each(each)}; geometric mean {_geometric(each):.3g}",
        _others(ratio, "x"),
        text,
    )
    return Claim(figure, f"{what}, {PAPER_CPU} CPU", paper, ratio(CPU), "x", note, cause=cause)


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

    def slower_tail(cpu: str, slower: float = 1.0) -> dict[str, float]:
        of = cpu if slower == 1 else f"{cpu}:{slower:g}"
        at = {"load": "share", "of": of, "share": BASELINE_SHARE}
        return {
            model: rows.of(model=model, preprocess=cpu, slower=slower, **at)[0].p95_ms
            / rows.of(model=model, preprocess=DPU, **at)[0].p95_ms
            for model in NETWORKS
        }

    ours = rows.of(preprocess=DPU, load="share", of=CPU, share=BASELINE_SHARE)
    over = sorted({SHORT[run.model] for run in ours if run.throughput_rps < 0.95 * run.rate_rps})
    text, cause = _with_slower(3.4, _by_slower(lambda slower: mean(slower_tail(CPU, slower).values())), "x")
    each = _each(slower_tail(CPU))
    note = _note(
        f"p95 at {BASELINE_SHARE:.0%} of the baseline's greatest throughput, LibriSpeech, {SIX}: {each}",
        f"The DPU is overloaded there by {', '.join(over)}" if over else "",
        _others(lambda cpu: mean(slower_tail(cpu).values()), "x"),
        text,
    )
    what = f"tail latency, {PAPER_CPU} CPU / PREBA"
    return [*claims, Claim("18", what, 3.4, mean(slower_tail(CPU).values()), "x", note, cause=cause)]


def figure_19(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_19(folder / "figure19.png", rows)
    loads = sorted({run.share for run in rows.runs})
    claims = []

    def share(model: str, lengths: str, cpu: str, load: float = LOW_LOAD, slower: float = 1.0) -> float:
        run = rows.one(model=model, preprocess=cpu, lengths=lengths, share=load, slower=slower)
        return 100 * run.preprocess_ms / run.mean_ms

    for model, paper in (("squeezenet1_1", 53), ("conformer", 72)):
        texts = []
        every = [lengths for name, lengths in LATENCY_CASES if name == model]
        for lengths in every:
            by_load = ", ".join(f"{share(model, lengths, CPU, load):.3g} % at {load:g}" for load in loads)
            low = rows.one(model=model, preprocess=CPU, lengths=lengths, share=LOW_LOAD)
            would_ms = (low.mean_ms - low.preprocess_ms) * paper / (100 - paper)
            texts.append(
                f"{_clips(lengths)}{by_load}; the paper's share is {would_ms:.3g} ms of it, where there are "
                f"{low.preprocess_ms:.3g}"
            )
        values = _by_slower(lambda slower, m=model, n=every[0]: share(m, n, CPU, slower=slower))  # type: ignore[misc]
        text, cause = _with_slower(paper, values, "%")
        note = _note(
            f"of the mean latency, at {LOW_LOAD:g} of the baseline's greatest throughput",
            *texts,
            _others(lambda cpu, m=model, n=every[0]: share(m, n, cpu), "%"),  # type: ignore[misc]
            text,
        )
        what = f"{SHORT[model]}: preprocessing, {PAPER_CPU} CPU"
        claims.append(Claim("19", what, paper, values[1.0], "%", note, cause=cause))
    return claims


def _clips(lengths: str) -> str:
    return {"": "", UTTERANCES: "LibriSpeech: "}.get(lengths, f"{lengths} s: ")


def figure_20(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_20(folder / "figure20.png", rows)
    where = f"each at its greatest throughput, LibriSpeech, {DPU}"

    def saved(cpu: str, slower: float = 1.0) -> dict[str, float]:
        ratios = _ratios(rows, cpu, NETWORKS, lambda run: run.cpu_w, slower)
        return {model: 100 * (1 - ratio) for model, ratio in ratios.items()}

    less = saved(CPU)
    text, cause = _with_slower(35.4, _by_slower(lambda slower: mean(saved(CPU, slower).values())), "%")
    note = _note(f"{where}, {SIX}: {_each(less)}", _others(lambda cpu: mean(saved(cpu).values()), "%"), text)
    return [
        Claim("20", f"CPU power saved, {PAPER_CPU} CPU", 35.4, mean(less.values()), "%", note, cause=cause),
        _ratio(rows, "20", "GPU power, PREBA / baseline", 2.8, lambda run: run.gpu_w, where, AUDIO_NETWORKS),
        _ratio(rows, "20", "requests/J, PREBA / baseline", 3.5, lambda run: run.requests_per_j, where),
    ]


def figure_21(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_21(folder / "figure21.png", rows)
    where = f"each at its greatest throughput, LibriSpeech, {DPU}, prices of sim/system/cost.py"
    found = _ratio(rows, "21", "requests a dollar, PREBA / baseline", 3.0, lambda run: run.requests_per_usd, where)
    least = {model: _ratios(rows, CPU, (model,), lambda run: run.requests_per_usd)[model] for model in NETWORKS}
    note = f"{where}, least of six networks: {_each(least)}"
    what = f"requests a dollar of every network, PREBA / baseline, {PAPER_CPU} CPU"
    return [found, Claim("21", what, 1, min(least.values()), "x", note, ">")]


def figure_22(rows: Rows, folder: Path) -> list[Claim]:
    plots.figure_22(folder / "figure22.png", rows)
    static = f"{STATIC}:{STATIC_READINGS[0]}"

    def gains(
        ours: tuple[str, str], theirs: tuple[str, str], load: str, lengths: str = UTTERANCES, slower: float = 1.0
    ) -> dict[str, float]:
        """Return the percentage of further throughput by network. Preprocessing and policy name a design."""

        def rate(model: str, design: tuple[str, str], slower: float = 1.0) -> float:
            at = {"load": load, "lengths": lengths, "slower": slower}
            run = rows.one(model=model, preprocess=design[0], policy=design[1], **at)
            return run.within_rps if load == "tail" else run.throughput_rps

        pairs = {model: (rate(model, ours), rate(model, theirs, slower)) for model in AUDIO_NETWORKS}
        return {model: 100 * (mine / other - 1) if other else math.inf for model, (mine, other) in pairs.items()}

    where = "saturated, LibriSpeech, one queue with Batch_max and Time_queue of its mean length, mean of 3 networks"

    def gained(cpu: str, slower: float = 1.0) -> float:
        return mean(gains((DPU, static), (cpu, static), "saturated", slower=slower).values())

    gain = gains((DPU, static), (CPU, static), "saturated")
    tail = gains((DPU, static), (CPU, static), "tail")
    text, cause = _with_slower(101, _by_slower(lambda slower: gained(CPU, slower)), "%")
    note = _note(
        f"{where}: {_each(gain)}",
        "Within Fig. 18's target: "
        + (f"{mean(tail.values()):.3g} %" if math.inf not in tail.values() else "Base meets it at no rate"),
        _others(gained, "%"),
        text,
    )
    claims = [Claim("22", f"Base+DPU above Base, {PAPER_CPU} CPU", 101, gained(CPU), "%", note, cause=cause)]

    def full(reading: str, lengths: str, load: str) -> float:
        return mean(gains((DPU, "preba"), (DPU, f"{STATIC}:{reading}"), load, lengths).values())

    def read(lengths: str) -> str:
        return ", ".join(
            f"{reading} {full(reading, lengths, 'saturated'):.3g} and {full(reading, lengths, 'tail'):.3g} %"
            for reading in STATIC_READINGS
        )

    gain = gains((DPU, "preba"), (DPU, static), "saturated")
    note = _note(
        f"{where}: {_each(gain)}",
        f"Saturated and within Fig. 18's target, by what Base has for all lengths: {read(UTTERANCES)}",
        f"Of LibriSpeech's sets to tune and to test alone, {MEANS_S[TEST_UTTERANCES]:.1f} s long on average in place "
        f"of {MEANS_S[UTTERANCES]:.1f}: {read(TEST_UTTERANCES)}",
    )
    by_reading = {reading: full(reading, UTTERANCES, "saturated") for reading in STATIC_READINGS}
    cause = ""
    if min(by_reading.values()) <= 54 <= max(by_reading.values()):
        each = ", ".join(f"{reading} {value:.3g} %" for reading, value in by_reading.items())
        cause = f"the limits of Base, which the paper does not give: {each} (this figure)"
    what = "dynamic batching above Base+DPU"
    return [*claims, Claim("22", what, 54, mean(gain.values()), "%", note, cause=cause)]


_FLAT = f"If a clip took the CPU {1e3 * clip_core_s():.0f} ms whatever its length"


def _flat_rps(run: Run) -> float:
    """Return the rate that the paper-implied CPU would then serve in place of the DPU in a saturated run."""
    return min(run.throughput_rps, (CPU_CORES - SLICES) / clip_core_s())


def pcie(rows: Rows, folder: Path) -> list[Claim]:
    def bytes_of(model: str, lengths: str) -> float:
        """Return the bytes to the DPU and back for a request of mean size."""
        inputs = usual("audio" if lengths else "image")
        seconds = {"": float(TYPICAL_PIXELS), **MEANS_S}[lengths]
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
        )
        images = model in IMAGE_NETWORKS
        if images:
            cause = f"compute units come whole: {FEWER_UNITS} moves {texts[FEWER_UNITS, ''][0]:.3g} GB/s (this figure)"
        else:
            cause = (
                f"with float32 at 22,050 Hz the same clips/s move {first[2] * 0.9 / clips_per_s():.3g} GB/s, and the "
                f"rest is the rate of the slices, {first[2]:.0f}/s here"
            )
        kind = Kind.CIRCULAR if images else Kind.INDEPENDENT  # the DPU has as many units as this traffic implies
        claims.append(Claim("4.2", f"PCIe, {SHORT[model]}", paper, first[0], "GB/s", note, kind=kind, cause=cause))
    return [*claims, *transfers()]


def table_1(rows: Rows, folder: Path) -> list[Claim]:
    (folder / "table1.md").write_text(table1.table())
    claims = []
    for kind, units in table1.TABLE_1.items():
        for column, (resource, shown) in enumerate(table1.KINDS.items()):
            total = units["total"][column]
            summed = sum(share[column] for unit, share in units.items() if unit != "total")
            names = " + ".join(unit for unit in units if unit != "total")
            over = total - summed
            own = table1.own_percent(kind, "total", resource)
            note = _note(
                f"{names}, the paper's own numbers; its total is {over:.3g} points more" if over > 0.05 else names,
                f"This project's own by Yosys: {own:.2g} % for one compute unit, {table1.UNITS * own:.2g} % for {DPU}",
            )
            what = f"{kind}: {shown}, total beside the sum of its units"
            claims.append(Claim("Table 1", what, total, summed, "%", note, kind=Kind.CIRCULAR))
    return claims


# What the paper shows beyond these rows, and why there is no row.
NOTES: dict[str, Sequence[str]] = {
    "5": (
        "Fig. 5 shows the utilization of the GPU. We did not attempt it: the slice model has no counterpart of the "
        "utilization that a driver shows for a slice, and the paper prints no number.",
        "Figs. 1 to 4, 10, 11 and 16 are drawings of hardware and of the pipeline, without results.",
    ),
    "6": (
        "Fig. 6 has knees of audio networks, which figure6.png shows. The paper prints the knees of three networks for "
        "images only, and none of 2g.10gb(3x).",
        "Fig. 6 has a 95th percentile. In the slice model, batches of one size always take the same time.",
    ),
    "7": ("Fig. 7 has milliseconds of batching and of execution. figure7.png shows ours. The paper prints no number.",),
    "8": ("Fig. 8 has single networks. figure8.png shows ours. The paper prints means, and the cores of CitriNet.",),
    "9": (
        "Fig. 9 has the throughput by active servers. figure9.png shows ours. The paper does not print the number of "
        "servers at which the throughput stops growing. The conditions of our rows have it.",
    ),
    "14": (
        "Fig. 12 is a drawing of two requests in the compute units, without numbers. The trace that `headrace demo "
        "--audio` writes has the same overlap of CU A and CU B.",
        "Fig. 13 is a histogram of LibriSpeech. Our lengths are those of sim/workload/lengths.py. The paper prints no "
        "number, and we do not have the data set.",
    ),
    "17": (
        "Section 6 announces a study of other configurations of MIG, and the paper prints none. `headrace reproduce "
        "slices` is such a study.",
    ),
    "18": ("Fig. 18 has milliseconds of single networks. figure18.png shows ours. The paper prints no number.",),
    "20": ("Figs. 20 and 21 have single networks and watts. Our pictures show them. The paper prints means only.",),
    "22": ("Fig. 22 has single networks. figure22.png shows ours. The paper prints means only.",),
}
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
