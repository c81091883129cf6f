"""Write the tables of the study, in Markdown."""

from collections.abc import Iterable, Sequence

from headrace.sim.experiments.gpu.rows import LeftOut, Modelled, Share

TITLES = {"products": "Matrix products, by their rows", "attention": "Attention, by its keys"}


def modelled(figure: str, rows: Sequence[Modelled]) -> list[str]:
    """Return the slice model's errors by size and GPU. Sizes that were held out of the fit are marked so."""
    lines = [
        (
            row.gpu,
            row.kernel,
            row.size,
            row.half,
            f"{row.kernels:,}",
            f"{row.before:.1%}",
            f"{row.error:.1%}",
            f"{row.ratio:.2f}",
            f"{row.p10:.2f} to {row.p90:.2f}",
        )
        for row in rows
    ]
    head = (
        "GPU",
        "kernel",
        "size",
        "half",
        "kernels",
        "error with the slices' constants",
        "error",
        "measured / modelled",
        "p10 to p90",
    )
    return _titled(TITLES[figure], head, lines)


def left_out(rows: Sequence[LeftOut]) -> list[str]:
    """Return what interpolation misses where a size is left out."""
    lines = [
        (
            row.gpu,
            row.kernel,
            row.axis,
            f"{row.kernels:,}",
            f"{row.lines:.1%}",
            f"{row.logarithms:.1%}",
            row.used,
            f"{row.p90:.1%}",
        )
        for row in rows
    ]
    head = ("GPU", "kernel", "axis", "kernels", "on lines", "on logarithms", "used", "p90 of the used")
    return _titled("Between sizes: the error of a size that is left out", head, lines)


def shares(rows: Sequence[Share]) -> list[str]:
    """Return where the time of each network comes from."""
    lines = [
        (
            row.network,
            row.gpu,
            f"{row.length:g}",
            str(row.batch),
            f"{1e3 * row.seconds:.3g}",
            f"{row.tables:.0%}",
            f"{row.bytes:.0%}",
            f"{row.modelled:.0%}",
        )
        for row in sorted(rows, key=lambda row: row.network)
    ]
    head = ("network", "GPU", "length", "batch", "ms", "from tables", "by bytes", "modelled")
    return _titled("Which part of a network's time is measured", head, lines)


def _titled(title: str, head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    table = [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]
    return [f"## {title}", "", *table, ""]
