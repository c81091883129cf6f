"""Write the tables of the study, in Markdown."""

from collections.abc import Iterable, Sequence

from headrace.sim.experiments.slices.rows import Capacity, Served, UnitCount

BINDS_BELOW = 0.97  # of the throughput with inputs ready; below it a cell names the step that binds
WHOLE = ":1"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]


def preparing(rows: Sequence[Capacity], units: Sequence[UnitCount], whole: bool) -> list[str]:
    """Return the table of GPUs in their smallest slices, or whole.

    A cell first has the saturated throughput as a share of that with inputs ready. If the throughput within the target
    is another share, it follows. Then come the energy of a request, and millions of requests a dollar."""
    rows = [row for row in rows if row.partition.endswith(WHOLE) == whole]
    designs = [design for design in dict.fromkeys(row.design for row in rows) if design != "ideal"]
    cus = {(each.model, each.gpu, each.partition): f"{each.kernel} / {each.queue}" for each in units}
    lines = []
    for model, gpu in dict.fromkeys((row.model, row.gpu) for row in rows):
        mine = {row.design: row for row in rows if (row.model, row.gpu) == (model, gpu)}
        ready = mine["ideal"]
        cells = [_prepared(mine.get(design), ready) for design in designs]
        rates = f"{ready.throughput_rps:,.0f} / {ready.within_rps:,.0f}"
        lines.append([model, gpu, rates, *cells, cus[model, gpu, ready.partition]])
    return table(["network", "GPU", "ready, /s", *designs, "CUs"], lines)


def _prepared(row: Capacity | None, ready: Capacity) -> str:
    if row is None:
        return "-"
    share = row.throughput_rps / ready.throughput_rps
    within = row.within_rps / ready.within_rps if ready.within_rps else share
    binds = f" ({row.binds})" if share < BINDS_BELOW and row.binds != "slices" else ""
    late = f", within {100 * within:.0f} %" if abs(share - within) > 1 - BINDS_BELOW else ""
    energy, bought = 1e3 * row.energy_per_request_j, row.requests_per_usd / 1e6
    return f"{100 * share:.0f} %{binds}{late}; {energy:,.{1 if energy < 100 else 0}f} mJ; {bought:.1f}"


def scheduling(rows: Sequence[Served], preprocess: str, whole: bool) -> list[str]:
    """Return the table of policies.

    It has mean and 99th percentile of latency where the load can be served, the share in time where it cannot, and the
    mean batch."""
    rows = [row for row in rows if row.preprocess.startswith(preprocess) and row.partition.endswith(WHOLE) == whole]
    loads = sorted({row.load for row in rows})
    lines = []
    for model, policy in dict.fromkeys((row.model, row.policy) for row in rows):
        mine = {row.load: row for row in rows if (row.model, row.policy) == (model, policy)}
        cells = [_served(mine[load]) for load in loads]
        lines.append([model, policy, *cells, ", ".join(f"{mine[load].batch:.1f}" for load in loads)])
    return table(["network", "policy", *(f"at {load:g}" for load in loads), "batch"], lines)


def _served(row: Served) -> str:
    if row.load < 1:
        return f"{row.mean_ms:.1f} / {row.p99_ms:.1f}"
    return f"{100 * row.in_time:.0f} %"


def cutting(rows: Sequence[Capacity]) -> list[str]:
    """Return the table of partitions: throughput saturated, and within the target."""
    parts = list(dict.fromkeys(row.partition for row in rows))
    lines = []
    for model, lengths in dict.fromkeys((row.model, row.lengths) for row in rows):
        mine = {row.partition: row for row in rows if (row.model, row.lengths) == (model, lengths)}
        cells = [f"{mine[part].throughput_rps:,.0f} / {mine[part].within_rps:,.0f}" for part in parts]
        lines.append([model, sent(lengths), *cells])
    return table(["network", "inputs", *parts], lines)


def sent(lengths: str) -> str:
    if not lengths:
        return "photos"
    return lengths if lengths == "librispeech" else f"{lengths} s"


def of_preparing(rows: Sequence[Capacity], units: Sequence[UnitCount]) -> list[str]:
    return [
        *_titled("Preprocessing, in the smallest slices", preparing(rows, units, whole=False)),
        *_titled("Preprocessing, the whole GPU in one instance", preparing(rows, units, whole=True)),
    ]


def of_scheduling(rows: Sequence[Served]) -> list[str]:
    return [
        *_titled("Policies on seven slices, inputs ready", scheduling(rows, "ideal", whole=False)),
        *_titled("Policies on seven slices, behind a DPU", scheduling(rows, "dpu", whole=False)),
        *_titled("Policies on the whole GPU, inputs ready", scheduling(rows, "ideal", whole=True)),
    ]


def of_cutting(rows: Sequence[Capacity]) -> list[str]:
    return _titled("Partitions", cutting(rows))


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *lines, ""]
