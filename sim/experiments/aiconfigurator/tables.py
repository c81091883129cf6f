"""Write the tables of the study, in Markdown."""

from collections import Counter
from collections.abc import Iterable, Sequence

from headrace.sim.experiments.aiconfigurator.rows import ALL, Count, Errors, GridPoint, HeldOut, Predicted

_HEAD = (
    "rows",
    "mean error",
    "median",
    "within 10 %",
    "predicted / measured",
    "p10 to p90",
    "first token: mean error",
    "first token: ratio",
)


def servers(rows: Sequence[Errors]) -> list[str]:
    """Return the errors by server."""
    return _titled(
        "By server", ("server", "measured by", *_HEAD), [(row.backend, row.source, *_cells(row)) for row in rows]
    )


def classes(rows: Sequence[Errors]) -> list[str]:
    """Return the errors by class."""
    head = ("server", "model", "GPU", "precision", "measured by", *_HEAD)
    lines = [(row.backend, row.model, row.gpu, row.precision, row.source, *_cells(row)) for row in rows]
    return _titled("By class", head, lines)


def causes(rows: Sequence[Errors]) -> list[str]:
    """Return the errors of classes with a change of the model, next to those without."""
    lines = [(row.backend, row.model, row.gpu, row.cause or "as published", *_cells(row)) for row in rows]
    return _titled("With one change", ("server", "model", "GPU", "changed", *_HEAD), lines)


def rates(rows: Sequence[Errors]) -> list[str]:
    """Return the errors by the rate at which a server streams tokens."""
    lines = [(row.backend, row.cause, *_cells(row)) for row in rows if row.rows]
    return _titled("By tokens a second", ("server", "tokens a second", *_HEAD), lines)


def held_out(rows: Sequence[HeldOut]) -> list[str]:
    """Return the errors of rows that are held out from the choice of the host's time."""
    head = (
        "server",
        "held out",
        "chosen on the others",
        "rows",
        "failed",
        "mean error with 0 us",
        "mean error",
        "median",
        "within 10 %",
        "predicted / measured",
        "p10 to p90",
    )
    lines = [
        (
            row.backend,
            f"each {row.rotation} in turn" if row.held_out == ALL else row.held_out,
            f"{row.chosen_us:g} us" if isinstance(row.chosen_us, float) else "stable" if row.stable else "not stable",
            f"{row.rows:,}",
            str(row.failed),
            f"{row.tpot_before:.1%}",
            f"{row.tpot:.1%}",
            f"{row.tpot_median:.1%}",
            f"{row.within:.0%}",
            f"{row.ratio:.2f}",
            f"{row.p10:.2f} to {row.p90:.2f}",
        )
        for row in rows
    ]
    return _titled("Held out", head, lines)


def grid(rows: Sequence[GridPoint]) -> list[str]:
    """Return the mean error by the host's time for each request of a step, over all rows of each server."""
    servers = list(dict.fromkeys(row.backend for row in rows))
    times = list(dict.fromkeys(row.host_request_us for row in rows))
    of = {(row.backend, row.host_request_us): row.tpot for row in rows}
    lines = [(server, *(f"{of[server, us]:.1%}" for us in times)) for server in servers]
    return _titled("By time of the host", ("server", *(f"{us:g} us" for us in times)), lines)


def failures(rows: Sequence[Predicted]) -> list[str]:
    """Return the rows without a prediction, by class and reason; nothing if there are none."""
    if not rows:
        return []
    counted = Counter((row.backend, row.model, row.gpu, row.precision, row.failure) for row in rows)
    lines = [(*key, str(count)) for key, count in counted.items()]
    return _titled("Without a prediction", ("server", "model", "GPU", "precision", "reason", "rows"), lines)


def left_out(rows: Sequence[Count]) -> list[str]:
    """Return how many rows of the file are left out, by reason."""
    return _titled("Left out", ("reason", "rows"), [(row.reason, f"{row.rows:,}") for row in rows])


def _cells(row: Errors) -> tuple[str, ...]:
    if not row.rows:
        return "0", *("-" for _ in _HEAD[1:])
    return (
        f"{row.rows:,}",
        f"{row.tpot:.1%}",
        f"{row.tpot_median:.1%}",
        f"{row.within:.0%}",
        f"{row.ratio:.2f}",
        f"{row.p10:.2f} to {row.p90:.2f}",
        f"{row.ttft:.0%}",
        f"{row.ttft_ratio:.2f}",
    )


def _titled(title: str, head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    table = [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]
    return [f"## {title}", "", *table, ""]
