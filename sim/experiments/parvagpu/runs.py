"""Plan the scenarios of ParvaGPU (Lee et al., SC 2024): the GPUs that they need, and the requests that are late on
them.

The figure `eleven` has all its networks by the profiles that its authors measured, `six` those of SIX alone. `modelled`
has all of them by our slice model, with one process a slice. Each figure has three plans: its two stages (baseline.py),
the same rule packed exactly, and the plan by simulation (planning.py). Each plan is served with evenly spaced arrivals
and with Poisson arrivals, under a seed that no plan was made with.

The paper's definition of a violation is not known here: only its abstract was at hand, which has none. The program in
its artifact has no arrivals; it runs full batches one after another. Its configurator takes a batch to be in time if
its latency is below 0.45 of the SLO, which holds in all its deployments. Here a request is late if it ends more than
the SLO after its arrival, whether it waited or its batch took that long.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.experiments.parvagpu import baseline
from headrace.sim.experiments.parvagpu.packing import Gpus
from headrace.sim.experiments.parvagpu.planning import Effort, least, packed, planned, segments_of
from headrace.sim.experiments.parvagpu.published import (
    GPCS,
    SCENARIOS,
    SIX,
    Demand,
    Profiles,
    deployed,
    measured,
    modelled,
    wanted,
)
from headrace.sim.experiments.parvagpu.rows import PACKED, PARVAGPU, PLANNED, PLANS, Placed, Row
from headrace.sim.experiments.parvagpu.serving import ARRIVALS, EVEN, POISSON, serve
from headrace.sim.experiments.report import NEAR, Claim, Kind

SEED = 11  # the seed of reported runs


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run: scenarios, requests of the simulations that plan, and requests of each network in those
    reported."""

    scenarios: tuple[int, ...]
    effort: Effort
    requests: int


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario by one source of profiles, with all figures of that source, because they share results of networks."""

    modelled: bool
    scenario: int
    scale: Scale


def run_job(job: Job) -> list[Row | Placed]:
    every = wanted(job.scenario)
    if job.modelled:
        return _rows("modelled", every, modelled(), job)
    six = tuple(each for each in every if each.model in SIX)
    return [*_rows("eleven", every, measured(), job), *_rows("six", six, measured(), job)]


def _rows(figure: str, every: Sequence[Demand], profiles: Profiles, job: Job) -> list[Row | Placed]:
    plans = {
        PARVAGPU: baseline.allocated(every, profiles),
        PACKED: packed(every, profiles),
        PLANNED: planned(every, profiles, job.scale.effort),
    }
    fewest = least(every, profiles)
    rows: list[Row | Placed] = []
    for plan, gpus in plans.items():
        for arrivals in ARRIVALS:
            rows.append(_row(figure, job, plan, gpus, fewest, every, arrivals))
        for number, segments in enumerate(gpus):
            rows += [
                Placed(figure, job.scenario, plan, number, each.model, each.gpcs, each.batch, each.procs)
                for each in segments
            ]
    return rows


def _row(figure: str, job: Job, plan: str, gpus: Gpus, fewest: int, every: Sequence[Demand], arrivals: str) -> Row:
    on = {each: segments_of(gpus, each.model) for each in every}
    served = {each: serve(each, segments, job.scale.requests, arrivals, SEED) for each, segments in on.items()}
    names = {each.model for each in every}
    return Row(
        figure,
        job.scenario,
        plan,
        arrivals,
        len(gpus),
        sum(s.gpcs for gpu in gpus for s in gpu),
        fewest,
        len(deployed(job.scenario)),
        sum(s.gpcs for gpu in deployed(job.scenario) for s in gpu if s.model in names),
        max(each.rate_rps / sum(s.throughput_rps for s in segments) for each, segments in on.items()),
        sum(one.requests for one in served.values()),
        sum(one.late for one in served.values()),
        sum(one.batches for one in served.values()),
        sum(one.late_batches for one in served.values()),
        max(one.p99_s / each.slo_s for each, one in served.items()),
        max(one.longest_s / each.slo_s for each, one in served.items()),
    )


def jobs_for(figure: str, scale: Scale) -> list[Job]:
    return [Job(figure == "modelled", scenario, scale) for scenario in scale.scenarios]


def report(figure: str, found: Sequence[Row | Placed], folder: Path) -> Report:
    """Draw a figure. The rows of a job are those of several figures; only the figure's own are drawn."""
    from headrace.sim.experiments.parvagpu import plots  # a job's process draws nothing

    rows = [row for row in found if isinstance(row, Row) and row.figure == figure]
    placed = [row for row in found if isinstance(row, Placed) and row.figure == figure]
    plots.deployments(folder / f"figure{figure}.png", figure, rows)
    return Report({f"figure{figure}": rows, f"plans_{figure}": placed}, _claims(figure, rows))


_AGAIN = {
    "eleven": "its two stages again; they give its deployment",
    "six": "its two stages for these six alone; the paper's is what its deployment has of GPCs for them, by 7",
    "modelled": "its two stages, by these profiles; the paper's is its deployment, by those measured",
}


def _claims(figure: str, rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for scenario in dict.fromkeys(row.scenario for row in rows):
        of = {(row.plan, row.arrivals): row for row in rows if row.scenario == scenario}
        one = of[PLANNED, POISSON]
        given = one.published_gpcs / GPCS if figure == "six" else one.published_gpus
        fewest = f"no plan by these profiles has fewer than {one.least}"
        notes = {
            PARVAGPU: _AGAIN[figure],
            PACKED: "the same rule for rates and latencies, packed by a MILP",
            PLANNED: f"nothing is late in simulation, Poisson arrivals; {fewest}",
        }
        gpus = {plan: of[plan, POISSON].gpus for plan in PLANS}
        for plan in PLANS:
            claims.append(
                Claim(
                    figure,
                    f"S{scenario}: GPUs, {plan}",
                    round(given, 2),
                    of[plan, POISSON].gpus,
                    "GPUs",
                    notes[plan],
                    kind=Kind.BY_CONSTRUCTION if figure == "modelled" else Kind.INDEPENDENT,
                    cause=_why_more(figure, plan, given, gpus, one.least),
                )
            )
        for plan in PLANS:
            row, even = of[plan, POISSON], of[plan, EVEN]
            note = (
                f"Poisson: {row.late} of {row.requests}, in {row.late_batches} of {row.batches} batches; p99 at most "
                f"{row.p99:.2f} of the SLO, load at most {row.load:.3f}. Evenly spaced: {even.late}"
            )
            claims.append(
                Claim(
                    figure,
                    f"S{scenario}: late requests, {plan}",
                    0,
                    row.late_percent,
                    "%",
                    note,
                    kind=Kind.BY_CONSTRUCTION if plan == PLANNED else Kind.INDEPENDENT,
                    cause=f"arrivals are Poisson; in the run with arrivals evenly spaced {even.late} are late"
                    if row.late and not even.late
                    else "",
                )
            )
    return claims


def _why_more(figure: str, plan: str, given: float, gpus: Mapping[str, int], least: int) -> str:
    """Return why a plan needs another number of GPUs than the paper's, as the runs show; "" if it is near or unknown.

    Args:
        figure: The figure.
        plan: The plan.
        given: The paper's number, with a fraction where it is a share of its GPUs.
        gpus: The number of each plan.
        least: The least number of any plan by the figure's profiles.
    """
    if abs(gpus[plan] - given) <= NEAR * given:
        return ""
    if gpus[plan] == math.ceil(given):
        return f"GPUs come whole, and the paper's {given:.2f} are a share of its deployment"
    if figure == "modelled" and least > given:
        return f"no plan by the modelled profiles has fewer than {least}; by those measured see the run 'eleven'"
    if plan == PARVAGPU and gpus[PACKED] == math.ceil(given):
        return f"its second stage places segments one by one; the run '{PACKED}' has the same rule and {gpus[PACKED]}"
    return ""


EXPERIMENT = Experiment(
    name="parvagpu",
    source="Lee et al., ParvaGPU, SC 2024",
    figures=("eleven", "six", "modelled"),
    full=Scale(SCENARIOS, Effort(5_000, 60_000), 100_000),
    quick=Scale(SCENARIOS[:3], Effort(1_000, 5_000), 5_000),
    jobs=jobs_for,
    run=run_job,
    row_types=(Row, Placed),
    report=report,
    describe=lambda jobs: f"{len(jobs)} scenarios",
    order=lambda job: -job.scenario,
)
