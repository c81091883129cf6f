"""Compare the numbers of LazyBatching (HPCA 2021) with ours, by the paper's figure numbers and by Section VI-C of its
text.

Averages of ratios are arithmetic means. "Best GraphB" is, at each load, the window that is best there. A note first
says load, baseline and averaging, then the numbers of other readings, then why a number is off.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.batching.graphs.execution import NodeTimes
from headrace.sim.experiments.lazybatching import plots
from headrace.sim.experiments.lazybatching.conditions import (
    COLOCATED,
    FURTHER_NETWORKS,
    HIGH_RPS,
    LOW_RPS,
    NETWORKS,
    NPUS,
    OF_LAZY,
    OF_NPU,
    READINGS,
    TARGETS_MS,
    UNCACHED,
    WORDS,
)
from headrace.sim.experiments.lazybatching.rows import LiveRow, LiveRuns, Row, Runs
from headrace.sim.experiments.report import NEAR, Claim
from headrace.sim.hardware.npu import npu_times
from headrace.sim.zoo import model_graph

AT_HIGH_LOAD = "at 500/s and more"
AT_TOP_LOAD = "at the highest load alone"
OVERLOAD = "overload (the highest rate of the scale)"
NEVER = math.inf  # the lowest target that is met, if none is


def gains(runs: Runs, field: str, *, best: bool, policy: str = "lazy", **settings: object) -> list[float]:
    """Return the gains of lazy (or oracle) over GraphB: the ratio of throughputs, or the inverse ratio of latencies.

    There is one value for each load and network with the best window, or one for each window."""
    values = []
    for model, rate in ((model, rate) for model in runs.models() for rate in runs.rates()):
        own = runs.mean(field, model=model, rate_rps=rate, policy=policy, **settings)
        graph = runs.by_window(field, model=model, rate_rps=rate, **settings).values()
        every = [own / value if field == "throughput_rps" else value / own for value in graph]
        values += [min(every)] if best else every
    return values


def ratio_of_means(runs: Runs, field: str, **settings: object) -> float:
    """Return the gain over the best GraphB in the means over loads and networks, in place of the mean of the gains."""
    least = field != "throughput_rps"
    served = [{"model": model, "rate_rps": rate, **settings} for model in runs.models() for rate in runs.rates()]
    graphs = (runs.by_window(field, **some).values() for some in served)
    graph = _mean(min(by_window) if least else max(by_window) for by_window in graphs)
    lazy = _mean(runs.mean(field, policy="lazy", **some) for some in served)
    return graph / lazy if least else lazy / graph


def reading_of(runs: Runs, reading: str, *models: str) -> Runs:
    """Return the runs of `models` in a reading: those of lazy, and those of GraphB where it differs there."""
    rows = [row for row in runs.of(*models, reading=reading).all_rows() if row.policy in ("lazy", "graph")]
    if reading in OF_LAZY:
        rows += [row for row in runs.of(*models).all_rows() if row.policy == "graph"]
    return Runs(rows)


def best_fixed_window(runs: Runs, field: str) -> tuple[int, float]:
    """Return the window (ms) with the least mean gain of lazy over all loads of one network, and that gain."""
    by_window = {
        window: _mean(
            runs.by_window(field, rate_rps=rate)[window] / runs.mean(field, rate_rps=rate, policy="lazy")
            for rate in runs.rates()
        )
        for window in runs.windows()
    }
    window = min(by_window, key=lambda window: by_window[window])
    return window, by_window[window]


def satisfaction(runs: Runs, windows: Callable[[int], Iterable[int]]) -> tuple[float, float]:
    """Return the mean shares of requests in time under lazy and under GraphB.

    They are means over networks, targets and windows(target). Shares are averaged before the ratio. A mean of ratios
    would follow the few settings in which GraphB has hardly any request in time."""
    lazy, graph = [], []
    for model in runs.models():
        for target in TARGETS_MS:
            lazy.append(runs.in_time(target, model=model, policy="lazy"))
            of_graph = [
                runs.in_time(target, model=model, policy="graph", window_ms=window) for window in windows(target)
            ]
            graph += [_mean(of_graph)] if of_graph else []
    return _mean(lazy), _mean(graph)


def figure_3(rows: Sequence[Row], folder: Path) -> list[Claim]:
    batches = [1, 2, 4, 8, 16, 32, 64]
    latency = {
        name: [npu_times(model_graph("resnet50"), npu).whole(batch, 1, 1) for batch in batches]
        for name, npu in {"": READINGS[""].npu, **NPUS}.items()
    }
    plots.figure_3(folder / "figure3.png", batches, latency[""])
    lines = ["batch,latency_ms,throughput_rps"]
    lines += [f"{b},{s * 1e3:.4f},{b / s:.2f}" for b, s in zip(batches, latency[""], strict=True)]
    (folder / "figure3.csv").write_text("\n".join(lines) + "\n")
    where = {
        "resnet50": "",
        "gnmt": "19 steps in and out, the mean output length here; the paper does not say for which",
        "transformer": "The same 19 steps",
    }
    claims = []
    for model, paper in (("resnet50", 1.1), ("gnmt", 7.2), ("transformer", 2.4)):
        measured = _times(model).whole(1, 19, 19) * 1e3
        others = {name: npu_times(model_graph(model), npu).whole(1, 19, 19) * 1e3 for name, npu in NPUS.items()}
        claims.append(_claim("Table II", f"{model}: latency of one input", paper, measured, "ms", others, where[model]))
    knees = {name: _saturates(batches, latency_s) for name, latency_s in latency.items()}
    what, where_3 = "resnet50: batch that saturates the throughput", "The first power of two with 95 % of that at 64"
    return [*claims, _claim("3", what, 16, knees.pop(""), "", knees, where_3)]


def figure_12(rows: Sequence[Row], folder: Path) -> list[Claim]:
    runs = Runs(rows)
    upto = runs.of(reading=None, max_rps=HIGH_RPS)
    claims = []
    for model, paper in zip(NETWORKS, (5.3, 2.7, 2.5), strict=True):
        mine = gains(upto.of(model), "mean_ms", best=True)
        window, fixed = best_fixed_window(upto.of(model), "mean_ms")
        note = _note(
            f"{_loads(upto)}, best window at each, mean: {_by_load(upto, mine)}; {window} ms for all: {fixed:.2f}; "
            f"ratio of the means: {ratio_of_means(upto.of(model), 'mean_ms'):.2f}; "
            f"oracle: {_mean(gains(upto.of(model), 'mean_ms', best=True, policy='oracle')):.2f}",
        )
        others = _in_readings(upto, model, "mean_ms")
        claims.append(_claim("12", f"{model}: latency, best GraphB / lazy", paper, _mean(mine), "x", others, note))
    every = {model: gains(upto.of(model), "mean_ms", best=False) for model in NETWORKS}
    together = [gain for values in every.values() for gain in values]
    note = _note(
        f"{_loads(upto)}, mean over networks, loads and windows: {_list(every, map(_mean, every.values()))}; geometric "
        f"mean {_geometric(together):.2f}",
    )
    others = {name: _mean(gains(upto.of(reading=name), "mean_ms", best=False)) for name in OF_NPU}
    return [*claims, _claim("12", "latency, every GraphB / lazy", 15, _mean(together), "x", others, note)]


def figure_13(rows: Sequence[Row], folder: Path) -> list[Claim]:
    runs = Runs(rows)
    upto, from500 = runs.of(reading=None, max_rps=HIGH_RPS), runs.of(reading=None, least_rps=500)
    claims = []
    for model, paper in zip(NETWORKS, (1.1, 1.3, 1.2), strict=True):
        high = gains(from500.of(model), "throughput_rps", best=True)
        note = _note(
            f"{_loads(upto)}, best window at each, mean; {_loads(from500)}: {_mean(high):.2f}, "
            f"at {_by_load(from500, high)}",
        )
        mine = _mean(gains(upto.of(model), "throughput_rps", best=True))
        others = {AT_HIGH_LOAD: _mean(high), **_in_readings(from500, model, "throughput_rps", ", at those loads")}
        claims.append(_claim("13", f"{model}: throughput, lazy / best GraphB", paper, mine, "x", others, note))
    every = [_mean(gains(some.of(*NETWORKS), "throughput_rps", best=False)) for some in (upto, from500)]
    note = f"{_loads(upto)}, mean over networks, loads and windows"
    others = {AT_HIGH_LOAD: every[1]} | {
        f"{WORDS[name]}, at those loads": _mean(gains(from500.of(reading=name), "throughput_rps", best=False))
        for name in OF_NPU
    }
    return [*claims, _claim("13", "throughput, lazy / every GraphB", 1.5, every[0], "x", others, note)]


def figure_14(rows: Sequence[Row], folder: Path) -> list[Claim]:
    runs = Runs(rows)
    claims: list[Claim] = []
    for model, words in (("transformer", ""), (UNCACHED, ", decoder without cached keys and values")):
        batch = _times(model).whole(64, 19, 19)
        served = f"In batches of 64 the NPU serves {64 / batch:.0f}/s"
        # Where that is less than what arrives, the queue grows for as long as a run lasts.
        cause = f"{served} of the {HIGH_RPS}/s that arrive" if 64 / batch < HIGH_RPS else ""
        readings = OF_LAZY if model == UNCACHED else (*OF_NPU, *OF_LAZY)
        others = {WORDS[name]: runs.mean("p99_ms", model=model, policy="lazy", reading=name) for name in readings}
        lazy = runs.mean("p99_ms", model=model, policy="lazy", reading="")
        if model == UNCACHED:
            others["a decoder that caches them"] = claims[0].measured or 0.0
        note = _note(f"{HIGH_RPS}/s, mean over runs, merging across timesteps", served)
        claims.append(_claim("14", f"transformer: p99 of lazy{words}", 54, lazy, "ms", others, note, cause))
        tails = runs.by_window("p99_ms", model=model, reading="")
        window = min(tails, key=lambda window: tails[window])
        note = _note(f"{HIGH_RPS}/s, mean over runs, best window: {window} ms", f"{served}, less what GraphB pads")
        others = {
            WORDS[name]: min(runs.by_window("p99_ms", model=model, reading=name).values())
            for name in (OF_NPU if model != UNCACHED else ())
        }
        if model == UNCACHED:
            others["a decoder that caches them"] = claims[1].measured or 0.0
        what = f"transformer: p99 of the best GraphB{words}"
        claims.append(_claim("14", what, 123, tails[window], "ms", others, note, cause))
    return claims


def figure_15(rows: Sequence[Row], folder: Path) -> list[Claim]:
    runs = Runs(rows).of(reading=None, max_rps=HIGH_RPS)
    overload = Runs(rows).of(*NETWORKS, least_rps=HIGH_RPS + 1)
    sets = {
        "": runs.of(*NETWORKS),
        "uncached": runs.of("resnet50", "gnmt", UNCACHED),
        **{name: runs.of(*NETWORKS, reading=name) for name in OF_NPU},
        OVERLOAD: overload,
    }
    shares: dict[str, float] = {}
    late: dict[str, float] = {}
    words = {}
    for name, some in sets.items():
        lazy, graph = satisfaction(some, lambda target: [w for w in runs.windows() if w < target])
        shares[name] = lazy / graph
        words[name] = f"{lazy:.0%} against {graph:.0%}"
        in_time = [
            some.in_time(100, model=model, policy="graph", window_ms=window)
            for model in some.models()
            for window in some.windows()
        ]
        late[name] = 100 * float(np.mean([share < 0.5 for share in in_time]))
    note = f"{HIGH_RPS}/s; in-time shares, mean over networks, targets and windows below the target: {words['']}"
    others = {f"{WORDS.get(name, name)} ({words[name]})": shares[name] for name in ("uncached", *OF_NPU, OVERLOAD)}
    claims = [_claim("15", "SLA satisfaction, lazy / every GraphB", 5.5, shares[""], "x", others, note)]
    note = f"{HIGH_RPS}/s, target 100 ms, of networks and windows"
    others = {WORDS.get(name, name): late[name] for name in ("uncached", *OF_NPU, OVERLOAD)}
    what = "GraphB settings in which more than half are late"
    claims.append(_claim("15", what, 66.7, late[""], "%", others, note))
    for model, paper in (("resnet50", 20), ("gnmt", 40), ("transformer", 60)):
        readings = {WORDS[name]: (model, name) for name in _readings(model)}
        if model == "transformer":
            readings[WORDS["uncached"]] = (UNCACHED, "")
        told = {words: _targets(runs, each, paper, name) for words, (each, name) in readings.items()}
        lowest = {words: _lowest_target(runs, each, name) for words, (each, name) in readings.items()}
        lowest["oracle"] = _lowest_target(runs, model, policy="oracle")
        note = _note(
            f"{HIGH_RPS}/s, nobody late in any run, and the share late at {paper} ms: "
            f"{1 - runs.in_time(paper, model=model, reading='', policy='lazy'):.2%}; "
            f"oracle: {_targets(runs, model, paper, policy='oracle')}",
            _others(told),
        )
        met = _lowest_target(runs, model)
        cause = _between(
            paper, NEVER if met is None else met, {n: NEVER if v is None else v for n, v in lowest.items()}
        )
        what = f"{model}: lowest target without violations"
        claims.append(Claim("15", what, paper, met, "ms", note, cause=cause))
    return claims


def figure_16(rows: Sequence[Row], folder: Path) -> list[Claim]:
    runs = Runs(rows)
    claims = []
    for field, what, paper in (
        ("mean_ms", "latency, GraphB(95) / lazy", 1.5),
        ("throughput_rps", "throughput, lazy / GraphB(95)", 1.3),
    ):
        lists = []
        for rate in (LOW_RPS, HIGH_RPS):
            each = gains(runs.of(least_rps=rate, max_rps=rate), field, best=True, slo_ms=100.0)
            lists.append(f"{rate}/s: {_list(FURTHER_NETWORKS, each)}")
        note = f"{LOW_RPS} and {HIGH_RPS}/s, ratio of the means over networks and loads; each at {'; at '.join(lists)}"
        others = {WORDS[name]: ratio_of_means(runs.of(reading=name), field, slo_ms=100.0) for name in OF_NPU}
        for rate in (LOW_RPS, HIGH_RPS):
            others[f"{rate}/s alone"] = ratio_of_means(runs.of(least_rps=rate, max_rps=rate), field, slo_ms=100.0)
        measured = ratio_of_means(runs.of(), field, slo_ms=100.0)
        claims.append(_claim("16", f"four further networks: {what}", paper, measured, "x", others, note))
    shares = {
        name: satisfaction(runs.of(reading=name, least_rps=HIGH_RPS), lambda target: [95]) for name in ("", *OF_NPU)
    }
    lazy, graph = shares.pop("")
    note = f"{HIGH_RPS}/s; in-time shares, mean over networks and targets: {lazy:.0%} against {graph:.0%}"
    others = {WORDS[name]: of_lazy / of_graph for name, (of_lazy, of_graph) in shares.items()}
    what = "four further networks: SLA satisfaction, lazy / GraphB(95)"
    return [*claims, _claim("16", what, 2.9, lazy / graph, "x", others, note)]


def figure_17(rows: Sequence[LiveRow], folder: Path) -> list[Claim]:
    """Compare the prototype on a GPU with live runs of one worker (`host/validation`), seeds averaged."""
    plots.figure_17(folder / "figure17.png", rows)
    runs = LiveRuns(rows)
    loads = runs.loads()
    own = {load: runs.mean("mean_ms", load, "lazy") for load in loads}
    gain = {(load, w): runs.mean("mean_ms", load, "graph", w) / own[load] for load in loads for w in runs.windows()}
    smallest, largest = (least(gain, key=lambda at: gain[at]) for least in (min, max))
    late = _mean(runs.mean("violation_rate", load, "lazy") for load in loads)
    graph_late = [[runs.mean("violation_rate", load, "graph", w) for w in runs.windows()] for load in loads]
    best, every = _mean(map(min, graph_late)), _mean(map(_mean, graph_late))
    simulated = _mean(row.simulated_mean_ms / row.mean_ms for row in rows)
    slowdowns = [row.slowdown for row in rows]
    where = _note(
        f"Live, not simulated, on {rows[0].device}; {runs.requests()} requests a run; loads of "
        f"{', '.join(f'{load:g}' for load in loads)} of what padded batches sustain; windows of "
        f"{', '.join(f'{w:g}' for w in runs.windows())} times the latency alone. Here it is {smallest[1]:g}, at load "
        f"{smallest[0]:g}",
        f"Nodes took {min(slowdowns):.2f} to {max(slowdowns):.2f} times as long as in the profile. The simulator, on "
        f"that profile, has {simulated:.2f} times the mean latency of these runs",
    )
    longer = (
        f"The same runs; window {largest[1]:g} at load {largest[0]:g}. The paper says neither window nor load; a "
        "longer window gives a larger factor"
    )
    by_load = ", ".join(
        f"{load:g}: {runs.mean('violation_rate', load, 'lazy'):.1%} against {min(shares):.1%}"
        for load, shares in zip(loads, graph_late, strict=True)
    )
    share = (
        f"The same runs, mean share late over the loads, best window at each; target {rows[0].slo_ms:.0f} ms. Lazy and "
        f"GraphB by load: {by_load}; every window: {f'{every / late:.2f}' if late else '-'}"
    )
    return [
        Claim("17", "transformer, live: latency, GraphB / lazy, least", 1.4, gain[smallest], "x", where),
        Claim("17", "transformer, live: latency, GraphB / lazy, most", 56, gain[largest], "x", longer),
        Claim("17", "transformer, live: violations, GraphB / lazy", 1.3, best / late if late else None, "x", share),
    ]


def sensitivity(rows: Sequence[Row], folder: Path) -> list[Claim]:
    """Compare the numbers in the text of Section VI-C."""
    runs = Runs(rows)
    steps = Runs([row for row in rows if row.dec_timesteps is not None])
    by_batch = Runs([row for row in rows if row.max_batch != 64])
    together = runs.of(COLOCATED, reading=None)
    return [*_dec_timesteps(steps), *_maximum_batch(by_batch), *_colocated(together)]


def _dec_timesteps(runs: Runs) -> list[Claim]:
    claims = []
    for assumed, paper in ((10, 36.0), (32, 0.0)):
        late = {
            (model, name): {
                rate: runs.mean("violation_rate", model=model, reading=name, rate_rps=rate, dec_timesteps=assumed)
                for rate in runs.rates()
            }
            for model in ("transformer", UNCACHED)
            for name in ("", "equal-timesteps")
        }
        shown = {key: ", ".join(f"{rate:g}/s {share:.1%}" for rate, share in by.items()) for key, by in late.items()}
        mine = shown.pop(("transformer", ""))
        others = {
            " and ".join(WORDS[word] for word in ("uncached" * (model == UNCACHED), name) if word): share
            for (model, name), share in shown.items()
        }
        note = _note(f"{HIGH_RPS}/s, mean over runs ({mine})", _others(others))
        share = 100 * late["transformer", ""][HIGH_RPS]
        what = f"transformer: violations of lazy at 60 ms, dec_timesteps {assumed}"
        across = {
            ", ".join(part for part in (WORDS.get(name), f"{model} at {rate:g}/s") if part): 100 * of_rate
            for (model, name), by in late.items()
            for rate, of_rate in by.items()
        }
        claims.append(Claim("VI-C", what, paper, share, "%", note, cause=_between(paper, share, across)))
    return claims


def _maximum_batch(runs: Runs) -> list[Claim]:
    upto, from500 = runs.of(max_rps=HIGH_RPS), runs.of(least_rps=500)
    claims = []
    for max_batch, paper in ((16, 12.0), (32, 14.0)):
        by_network = {model: gains(upto.of(model), "mean_ms", best=False, max_batch=max_batch) for model in NETWORKS}
        every = [gain for values in by_network.values() for gain in values]
        note = _note(
            f"{_loads(upto)}, mean over networks, loads and windows: "
            f"{_list(by_network, map(_mean, by_network.values()))}; geometric mean {_geometric(every):.2f}",
        )
        what = f"latency, every GraphB / lazy, maximum batch {max_batch}"
        claims.append(Claim("VI-C", what, paper, _mean(every), "x", note))
    for max_batch in (16, 32):
        served = [_mean(gains(some, "throughput_rps", best=False, max_batch=max_batch)) for some in (upto, from500)]
        note = f"{_loads(upto)}, mean over networks, loads and windows"
        what = f"throughput, lazy / every GraphB, maximum batch {max_batch}"
        claims.append(_claim("VI-C", what, 1.3, served[0], "x", {AT_HIGH_LOAD: served[1]}, note))
    return claims


def _colocated(runs: Runs) -> list[Claim]:
    claims = []
    for field, what, paper, some in (
        ("mean_ms", "latency, best GraphB / lazy", 2.4, runs.of(reading=None, max_rps=HIGH_RPS)),
        ("throughput_rps", "throughput, lazy / best GraphB", 1.8, runs.of(reading=None, least_rps=500)),
    ):
        mine = gains(some.of(), field, best=True)
        others = {WORDS[name]: _mean(gains(reading_of(some, name), field, best=True)) for name in ("active", *OF_NPU)}
        if field == "throughput_rps":
            top = some.of(least_rps=max(some.rates()))
            others[AT_TOP_LOAD] = _mean(gains(top, field, best=True))
        note = _note(
            f"{COLOCATED.replace('+', ', ')} equally likely; {_loads(some)}, best window at each, mean: "
            f"{_by_load(some, mine)}; every window: {_mean(gains(some.of(), field, best=False)):.2f}; oracle: "
            f"{_mean(gains(some.of(), field, best=True, policy='oracle')):.2f}",
        )
        claims.append(_claim("VI-C", f"four co-located networks: {what}", paper, _mean(mine), "x", others, note))
    return claims


def _times(model: str, reading: str = "") -> NodeTimes:
    return npu_times(model_graph(model), READINGS[reading].npu)


def _saturates(batches: Sequence[int], latency_s: Sequence[float]) -> int:
    """Return the first batch with 95 % of the throughput of the last."""
    peak = batches[-1] / latency_s[-1]
    return next(batch for batch, s in zip(batches, latency_s, strict=True) if batch / s >= 0.95 * peak)


def _readings(model: str) -> tuple[str, ...]:
    """Return the readings that matter for a network.

    In ResNet-50 nothing merges across steps, and slack is not short."""
    return OF_NPU if model == "resnet50" else (*OF_NPU, *OF_LAZY)


def _in_readings(runs: Runs, model: str, field: str, where: str = "") -> dict[str, float]:
    """Return the mean gain over the best GraphB in all other readings, by their words and `where`."""
    others = {
        WORDS[name] + where: _mean(gains(reading_of(runs, name, model), field, best=True)) for name in _readings(model)
    }
    if model == "transformer":
        others[WORDS["uncached"] + where] = _mean(gains(runs.of(UNCACHED), field, best=True))
    return others


def _claim(
    figure: str,
    what: str,
    paper: float,
    measured: float,
    unit: str,
    others: Mapping[str, float],
    note: str = "",
    cause: str = "",
) -> Claim:
    """Return a row whose note has the numbers of other readings, and whose cause is theirs if there is no other.

    `others` has these numbers by the reading in words."""
    said = _others({name: f"{value:.3g} {unit}".rstrip() for name, value in others.items()}) if others else ""
    return Claim(
        figure, what, paper, measured, unit, _note(note, said), cause=cause or _between(paper, measured, others)
    )


def _between(paper: float, measured: float, others: Mapping[str, float]) -> str:
    """Return in words which readings come near the paper's number, or put it between theirs and ours; empty if none.

    The two nearest to the paper's number are named."""

    def explains(value: float) -> bool:
        near = math.isfinite(value) and abs(value - paper) <= NEAR * abs(paper)
        return near or min(measured, value) <= paper <= max(measured, value)

    nearest = sorted(
        ((value, name) for name, value in others.items() if explains(value)), key=lambda pair: abs(pair[0] - paper)
    )
    named = ", ".join(f"{name} {'none' if value == NEVER else f'{value:.3g}'}" for value, name in nearest[:2])
    return f"Other readings come near the paper's number, or lie beyond it: {named}" if named else ""


def _lowest_target(runs: Runs, model: str, reading: str = "", policy: str = "lazy") -> int | None:
    """Return the lowest target (ms) that no request misses in any run; None if some miss even 100 ms."""
    settings = {"model": model, "reading": reading, "policy": policy}
    return next((target for target in TARGETS_MS if runs.in_time(target, **settings) == 1), None)


def _targets(runs: Runs, model: str, at_ms: int, reading: str = "", policy: str = "lazy") -> str:
    """Return in words the lowest target, and the share late at `at_ms`."""
    lowest = _lowest_target(runs, model, reading, policy)
    late = 1 - runs.in_time(at_ms, model=model, reading=reading, policy=policy)
    return f"{'none' if lowest is None else f'{lowest} ms'} ({late:.2%})"


def _others(numbers: Mapping[str, str]) -> str:
    """Return in words the numbers of other readings."""
    return "Otherwise read: " + "; ".join(f"{name} {what}" for name, what in numbers.items())


def _note(*sentences: str) -> str:
    return ". ".join(sentence for sentence in sentences if sentence)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _loads(runs: Runs) -> str:
    rates = runs.rates()
    return f"{rates[0]:g} to {rates[-1]:g}/s"


def _by_load(runs: Runs, values: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}/s {value:.2f}" for rate, value in zip(runs.rates(), values, strict=True))


def _list(names: Iterable[str], values: Iterable[float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in zip(names, values, strict=True))


def draw(figure: str, rows: Sequence[Row], folder: Path) -> None:
    """Draw a figure of the paper, or nothing where its numbers are not drawn from rows."""
    runs, path = Runs(rows), folder / f"figure{figure}.png"
    match figure:
        case "5":
            plots.figure_5(path, runs)
        case "12":
            plots.by_load(path, runs.of(), "mean_ms", "mean latency, ms")
        case "13":
            plots.by_load(path, runs.of(), "throughput_rps", "requests/s")
        case "14":
            plots.figure_14(path, runs.of())
        case "15":
            plots.figure_15(path, runs.of(max_rps=HIGH_RPS))
        case "16":
            plots.figure_16(path, runs.of())
        case "sensitivity":
            steps = Runs([row for row in rows if row.dec_timesteps is not None])
            by_batch = Runs([row for row in rows if row.max_batch != 64])
            plots.sensitivity(path, steps.of(), by_batch, runs.of(COLOCATED, reading=None).of())


REPORTS: dict[str, Callable[[Sequence[Any], Path], list[Claim]]] = {
    "3": figure_3,
    "12": figure_12,
    "13": figure_13,
    "14": figure_14,
    "15": figure_15,
    "16": figure_16,
    "17": figure_17,
    "sensitivity": sensitivity,
}
