"""Look for the cause of a number that is far from the paper's, among the questions that the paper leaves open.

Every reading of these questions has runs of its own. A figure is computed again with the runs of one reading in place
of the default ones. If a number that was off is then near the paper's, that reading is its cause.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.sim.experiments.lazybatching.conditions import UNCACHED, WORDS
from headrace.sim.experiments.lazybatching.rows import Row
from headrace.sim.experiments.report import Claim

_UNCACHED = "uncached"  # the reading of which the rows have a network of their own


def explained(
    claims: Sequence[Claim], rows: Sequence[Row], compute: Callable[[Sequence[Row], Path], list[Claim]], folder: Path
) -> list[Claim]:
    """Return the claims of a figure with the causes that its rows show.

    Args:
        claims: The claims by the default reading.
        rows: The rows of all readings.
        compute: Returns the claims from rows.
        folder: Where `compute` may write files; it writes the same ones for every reading that has rows.
    """
    readings = sorted({row.reading for row in rows} - {""})
    if any(row.model == UNCACHED for row in rows):
        readings.append(_UNCACHED)
    causes: dict[tuple[str, str], list[str]] = {}
    for reading in readings:
        for claim in compute(as_default(rows, reading), folder):
            if claim.near:
                text = f"in the run of the reading '{WORDS[reading]}' it is {claim.shown}"
                causes.setdefault((claim.figure, claim.claim), []).append(text)

    def cause(claim: Claim) -> str:
        found = "; ".join(causes.get((claim.figure, claim.claim), ()))
        return "" if claim.near else found or claim.cause

    return [replace(claim, cause=cause(claim)) for claim in claims]


def as_default(rows: Sequence[Row], reading: str) -> list[Row]:
    """Return the rows with those of a reading in place of the default ones, where the reading has such."""

    def key(row: Row) -> tuple[object, ...]:
        run = (row.model, row.reading, row.rate_rps, row.seed, row.policy, row.window_ms, row.slo_ms, row.max_batch)
        return (*run, row.dec_timesteps)

    if reading == _UNCACHED:
        own = [replace(row, model="transformer") for row in rows if row.model == UNCACHED]
    else:
        own = [replace(row, reading="") for row in rows if row.reading == reading]
    taken = {key(row): row for row in own}
    known = {key(row) for row in rows}
    return [taken.get(key(row), row) for row in rows] + [row for where, row in taken.items() if where not in known]
