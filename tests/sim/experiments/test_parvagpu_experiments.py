import csv
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching.errors import UsageError
from headrace.sim.experiments.parvagpu import baseline, planning, published
from headrace.sim.experiments.parvagpu import runs as parvagpu
from headrace.sim.experiments.parvagpu.published import (
    GPU,
    SCENARIOS,
    SIX,
    SLICES,
    Demand,
    deployed,
    measured,
    wanted,
)
from headrace.sim.experiments.parvagpu.rows import PACKED, PARVAGPU, PLANNED
from headrace.sim.experiments.parvagpu.serving import EVEN, POISSON, serve
from headrace.sim.hardware.gpu.mig import gpu_named, placed
from headrace.sim.planner.allocate import Option, allocate
from headrace.sim.system import cost

GPUS = {1: 2, 2: 3, 3: 5, 4: 7, 5: 13, 6: 16}  # of the deployments in ParvaGPU's artifact


@pytest.fixture(scope="module")
def quick(reproduced):
    return reproduced(parvagpu.EXPERIMENT)


def rows_of(folder, name):
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def segments_of(gpus):
    return Counter((each.model, each.gpcs, each.batch, each.procs) for gpu in gpus for each in gpu)


def fits(sizes):
    profiles = gpu_named(GPU).profiles
    return placed(gpu_named(GPU), [profiles[SLICES[size]] for size in sizes])


def of(gpus, model):
    return planning.segments_of(gpus, model)


def check(gpus, every):
    """Check that partitions are possible, and that segments do the rate of each network."""
    for gpu in gpus:
        fits([segment.gpcs for segment in gpu])
    for each in every:
        assert sum(segment.throughput_rps for segment in of(gpus, each.model)) >= each.rate_rps
    assert {segment.model for gpu in gpus for segment in gpu} == {each.model for each in every}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_two_stages_give_the_published_deployment_segment_by_segment(scenario):
    gpus = baseline.allocated(wanted(scenario), measured())
    assert len(gpus) == len(deployed(scenario)) == GPUS[scenario]
    assert segments_of(gpus) == segments_of(deployed(scenario))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_published_deployments_do_their_rates_in_batches_of_half_the_slo(scenario):
    check(deployed(scenario), wanted(scenario))
    slo_s = {each.model: each.slo_s for each in wanted(scenario)}
    assert all(segment.latency_s < slo_s[segment.model] / 2 for gpu in deployed(scenario) for segment in gpu)


def test_the_scenarios_are_the_published_ones():
    assert [len(wanted(scenario)) for scenario in SCENARIOS] == [6, 11, 11, 11, 11, 11]
    assert wanted(5)[0] == Demand("bert", 843.0, 2.153)
    assert wanted(6)[-1] == Demand("vgg19", 2296.0, 0.3965)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("profiles", [published.measured, published.modelled])
def test_exact_packing_of_the_same_rule_takes_no_more_gpus(scenario, profiles):
    every = wanted(scenario)
    packed = planning.packed(every, profiles())
    check(packed, every)
    assert planning.least(every, profiles()) <= len(packed) <= len(baseline.allocated(every, profiles()))


def test_the_planners_own_allocation_has_as_few_gpus():
    every = wanted(1)
    options = [
        Option(each.model, SLICES[segment.gpcs], "ideal", segment.throughput_rps, batch=segment.batch)
        for each in every
        for segment in baseline.fastest(measured()[each.model], baseline.LATENCY_SHARE * each.slo_s).values()
    ]
    rates = {each.model: each.rate_rps for each in every}
    found = allocate(GPU, options, rates, gpus=None, least="gpus", prices=cost.given_prices(None))
    assert len(found.servers) == len(planning.packed(every, measured()))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_more_time_never_takes_more_gpus(scenario):
    fewest = [
        planning.least([Demand(e.model, e.rate_rps, factor * e.slo_s) for e in wanted(scenario)], measured())
        for factor in (0.5, 1.0, 2.0, 1000.0)
    ]
    assert fewest == sorted(fewest, reverse=True)


@pytest.mark.parametrize(
    "plan",
    [
        baseline.allocated,
        planning.packed,
        lambda every, profiles: planning.planned(every, profiles, planning.Effort(100, 100)),
    ],
)
def test_an_slo_that_no_slice_meets_is_refused(plan):
    # Batches of one take 5 ms at least (profiles.csv).
    with pytest.raises(UsageError, match=r"no slice .* resnet50 .* ms: allow more"):
        plan([Demand("resnet50", 100.0, 0.001)], measured())


def test_what_was_modelled_has_every_network_on_every_slice_that_holds_it():
    for model, segments in published.modelled().items():
        assert {segment.gpcs for segment in segments} == set(SLICES), model
        assert all(segment.procs == 1 for segment in segments)


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(sorted(measured())),
    numbers=st.lists(st.integers(0, 10_000), min_size=1, max_size=4),
    load=st.floats(0.2, 3.0),
    arrivals=st.sampled_from((EVEN, POISSON)),
    seed=st.integers(0, 99),
)
def test_segments_never_serve_more_than_they_can(model, numbers, load, arrivals, seed):
    choice = measured()[model]
    segments = tuple(choice[number % len(choice)] for number in numbers)
    # Of a smaller batch throughput is greater on some slices, where measurements scatter.
    max_rps = sum(
        max(point.throughput_rps for point in segment.profile.points if point.batch <= segment.batch)
        for segment in segments
    )
    requests, rate = 400, load * max_rps
    asked = Demand(model, rate, max(segment.latency_s for segment in segments))
    served = serve(asked, segments, requests, arrivals, seed)
    if arrivals == EVEN:  # the last one comes when it comes, and what came before takes its time
        assert served.longest_s >= requests / max_rps - requests / rate - 1e-9
    assert served.longest_s >= min(segment.profile.points[0].latency_s for segment in segments) * 0.999
    assert 0 <= served.late_batches <= min(served.batches, served.late) and served.batches <= requests
    assert (served.late == 0) == (served.longest_s <= asked.slo_s)
    assert served.p99_s <= served.longest_s


def test_a_process_alone_runs_a_request_in_what_was_measured():
    (segment,) = (s for s in measured()["resnet50"] if (s.gpcs, s.batch, s.procs) == (1, 8, 1))
    served = serve(Demand("resnet50", 1.0, 0.1), (segment,), 50, EVEN, 0)
    # 196.762 requests/s in batches of one: profiles.csv.
    assert served.longest_s == pytest.approx(1 / 196.762) and served.batches == 50


def test_plans_have_partitions_that_can_be_and_do_their_rates(quick):
    folder, _ = quick
    for figure, profiles in (("eleven", measured()), ("six", measured()), ("modelled", published.modelled())):
        does = {(s.model, s.gpcs, s.batch, s.procs): s.throughput_rps for each in profiles.values() for s in each}
        gpus, rates = defaultdict(list), defaultdict(float)
        for row in rows_of(folder, f"plans_{figure}"):
            scenario, gpcs, batch, procs = (int(row[name]) for name in ("scenario", "gpcs", "batch", "procs"))
            gpus[scenario, row["plan"], row["gpu"]].append(gpcs)
            rates[scenario, row["plan"], row["model"]] += does[row["model"], gpcs, batch, procs]
        assert all(fits(sizes) for sizes in gpus.values())
        for scenario in parvagpu.EXPERIMENT.quick.scenarios:
            for plan in (PARVAGPU, PACKED, PLANNED):
                for each in wanted(scenario):
                    if figure != "six" or each.model in SIX:
                        assert rates[scenario, plan, each.model] >= each.rate_rps


def test_nothing_is_late_in_what_was_planned_by_simulation(quick):
    folder, claims = quick
    for figure in parvagpu.EXPERIMENT.figures:
        for row in rows_of(folder, f"figure{figure}"):
            if row["plan"] == PLANNED:
                assert int(row["late"]) == 0 and float(row["longest"]) <= 1
                assert int(row["gpus"]) >= int(row["least"])
    assert all(claim.measured == 0 for claim in claims if "late requests, planned" in claim.claim)


def test_more_gpus_are_planned_where_more_would_be_late():
    """S3's rule puts MobileNet on a slice that it fills to 98 %."""
    every = [each for each in wanted(3) if each.model == "mobilenetv2"]
    effort = planning.Effort(1_000, 20_000)
    packed, planned = planning.packed(every, measured()), planning.planned(every, measured(), effort)
    late = {
        name: serve(every[0], of(gpus, "mobilenetv2"), 20_000, POISSON, 5).late
        for name, gpus in (("packed", packed), ("planned", planned))
    }
    assert late["planned"] == 0 and sum(s.gpcs for s in of(planned, "mobilenetv2")) >= 2
