import csv
from dataclasses import replace

import numpy as np
import pytest

from headrace.sim.experiments.preba.table1 import TABLE_1
from headrace.sim.experiments.preba.conditions import (
    BASELINES,
    CLIP,
    DESIGNS,
    DPU,
    IDEAL,
    NETWORKS,
    OTHER_PRECISION,
    SEVENTHS,
    SLICES,
    TARGET_SHARE,
    WHOLE,
    server,
)
from headrace.sim.experiments.preba.runs import EXPERIMENT, Curves, Tail, jobs_for, run_job, saturated, simulated
from headrace.sim.hardware.cpu import MEASURED
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.hardware.preba_cpu import images_per_s
from headrace.sim.hardware.settings import PRECISION
from headrace.sim.system.system import System


@pytest.fixture(scope="module")
def quick(reproduced):
    return reproduced(EXPERIMENT)


@pytest.fixture(scope="module")
def claims(quick):
    return quick[1]


def rows_of(folder, figure):
    with (folder / f"figure{figure}.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_number_that_has_a_cpu_in_it_stands_under_both_baselines_and_says_under_which(claims):
    names = [(claim.figure, claim.paper, claim.claim) for claim in claims]
    labelled = {
        (*name[:2], name[2].replace(baseline, "")) for name in names for baseline in BASELINES if baseline in name[2]
    }
    for figure, paper, rest in labelled:
        same = [name for *which, name in names if which == [figure, paper]]
        for baseline in BASELINES:
            assert sum(baseline in name and name.replace(baseline, "") == rest for name in same) == 1
    assert {(figure, paper) for figure, paper, _ in labelled} == {
        ("8", 75.6),
        ("8", 393),
        ("9", 90),
        ("17", 77.2),
        ("17", 3.7),
        ("18", 3.4),
        ("19", 53),
        ("19", 72),
        ("20", 35.4),
        ("20", 2.8),
        ("20", 3.5),
        ("21", 3.0),
        ("22", 101),
    }


def test_every_note_of_a_number_that_was_simulated_or_averaged_says_how(claims):
    for claim in claims:
        assert claim.note, claim
        if claim.figure in ("8", "9", "17", "18", "19", "20", "21", "22"):
            assert "saturated" in claim.note.lower() or "greatest" in claim.note, claim
        if claim.unit in ("%", "x") and claim.figure not in ("Table 1", "19"):
            assert any(word in claim.note for word in ("mean of", "least of", "greatest of", "fifth of")), claim


def test_what_does_not_come_from_the_paper_is_called_derived(claims):
    from_pcie = [claim for claim in claims if claim.figure in ("4.2", "8") and claim.paper in (6.13, 0.9, 393)]
    noted = [claim for claim in from_pcie if "Derived, not printed by the paper" in claim.note]
    assert [claim.claim for claim in from_pcie if claim not in noted] == [
        "cores that CitriNet's preprocessing takes, measured CPU"
    ]


def test_totals_of_table_1_exceed_the_sums_of_their_units_where_the_paper_says_so(claims):
    over = {claim.claim.split(", ")[0]: claim.paper - claim.measured for claim in claims if claim.figure == "Table 1"}
    assert over == pytest.approx(
        {
            "image: LUT": 4.1,
            "image: REG": 1.9,
            "image: BRAM": 7.4,
            "image: URAM": 0,
            "image: DSP": 0,
            "audio: LUT": 1.1,
            "audio: REG": 0.5,
            "audio: BRAM": 2.4,
            "audio: URAM": 0,
            "audio: DSP": 0,
        },
        abs=1e-9,
    )
    assert all(len(shares) == 5 for units in TABLE_1.values() for shares in units.values())


def test_2g_10gb_loses_the_seventh_that_is_off(claims):
    lost = next(claim for claim in claims if claim.paper == 14.2)
    assert lost.measured == pytest.approx(100 / 7, abs=1.5)


def test_bounds_of_the_paper_on_slices_hold(claims):
    assert all(claim.kept for claim in claims if claim.bound and claim.figure in ("5", "7"))


def test_no_design_serves_more_than_ideal_or_than_its_slowest_stage(quick):
    runs = rows_of(quick[0], "17")
    for model in NETWORKS:
        for active in EXPERIMENT.quick.active:
            rate = {
                run["preprocess"]: float(run["throughput_rps"])
                for run in runs
                if (run["model"], run["active"]) == (model, str(active))
            }
            assert set(DESIGNS) <= set(rate)
            assert all(rate[design] <= 1.01 * rate[IDEAL] for design in DESIGNS)
    assert all(0 <= float(run[part]) <= 1 for run in runs for part in ("cpu", "gpu"))


@pytest.mark.parametrize("baseline", BASELINES)
def test_a_headline_is_of_the_one_baseline_that_it_names(quick, baseline):
    folder, claims = quick

    def mean(value):
        found = []
        for model in NETWORKS:
            of = {
                run["preprocess"]: run
                for run in rows_of(folder, "17")
                if (run["model"], run["active"]) == (model, str(SLICES))
            }
            found.append(value(of[DPU], of[BASELINES[baseline]], of[IDEAL]))
        return np.mean(found)

    def ratio(name):
        return mean(lambda dpu, cpu, ideal: float(dpu[name]) / float(cpu[name]))

    expected = {
        ("17", 77.2): mean(
            lambda d, cpu, ideal: 100 - 100 * float(cpu["throughput_rps"]) / float(ideal["throughput_rps"])
        ),
        ("17", 3.7): ratio("throughput_rps"),
        ("20", 35.4): 100 * (1 - ratio("cpu_w")),
        ("21", 3.0): ratio("requests_per_usd"),
    }
    for (figure, paper), value in expected.items():
        (claim,) = (
            claim for claim in claims if (claim.figure, claim.paper) == (figure, paper) and baseline in claim.claim
        )
        assert claim.measured == pytest.approx(value)


def test_ideal_serves_in_proportion_to_the_slices_that_are_active(quick):
    for model in NETWORKS:
        rate = {
            int(run["active"]): float(run["throughput_rps"])
            for run in rows_of(quick[0], "17")
            if (run["model"], run["preprocess"]) == (model, IDEAL)
        }
        # The last batches are short.
        assert rate[SLICES] / rate[1] == pytest.approx(SLICES, rel=0.1)


@pytest.mark.parametrize("model", ["swin_t", "citrinet"])
def test_the_greatest_throughput_is_what_the_curve_of_a_slice_says(model):
    (at,) = [point for point in run_job(Curves(model, SEVENTHS, (2.5,))) if point.knee]
    assert saturated(server(model, lengths=CLIP), 6000).throughput_rps == pytest.approx(at.throughput_rps, rel=0.02)


def test_cores_that_are_needed_are_those_that_keep_up():
    cpu = BASELINES["paper-implied"]
    taken = saturated(server("mobilenet_v3_small", cpu), 2000)
    assert taken.core_ms / 1e3 * taken.throughput_rps == pytest.approx(32 - SLICES, rel=0.02)


def test_the_two_baselines_are_what_their_labels_say():
    clips = {label: saturated(server("citrinet", cpu, CLIP), 500).core_ms for label, cpu in BASELINES.items()}
    # 393 cores keep up with 0.9 GB/s of clips of 2.5 s: float32 at 22,050 Hz there, 80 x 251 float32 back.
    assert clips["paper-implied"] == pytest.approx(393 / (0.9e9 / (2.5 * 22050 * 4 + 80 * 251 * 4)) * 1e3, rel=1e-3)
    assert clips["measured"] == pytest.approx(1e3 * MEASURED.audio.clip_s + 2.5e3 * MEASURED.audio.second_s, rel=0.05)


def test_a_rate_within_a_tail_target_is_the_greatest_that_is():
    one = server("swin_t", DPU)
    (found,) = run_job(Tail(one, 3000, 1.0, 0.01))
    ideal = server("swin_t")
    target = simulated(ideal, TARGET_SHARE * saturated(ideal, 3000).throughput_rps, 3000, "share").p95_ms
    assert found.target_ms == pytest.approx(target)
    assert found.p95_ms <= target and found.within_rps == found.throughput_rps
    assert simulated(one, 1.03 * found.rate_rps, 3000, "tail").p95_ms > target


def test_a_design_that_meets_a_target_at_no_rate_serves_nothing_within_it():
    (found,) = run_job(Tail(server("squeezenet1_1", BASELINES["paper-implied"]), 1000, slack=1.0, resolution=0.01))
    assert found.p95_ms > found.target_ms and found.within_rps == 0


def test_the_dpu_has_as_many_units_as_the_papers_pcie_traffic_implies():
    units = int(DPU.removeprefix("dpu:"))

    def keeps_up(count):
        system = System.of(
            "a100-40gb",
            ["mobilenet_v3_small"],
            parts=WHOLE,
            preprocess=f"dpu:{count}",
            image_pixels=TYPICAL_PIXELS,
            precision=PRECISION,
        )
        (step,) = (step for step in system.preprocessor.steps if step.name == "image cu")
        return count / step.service_s(np.array([float(TYPICAL_PIXELS)]))[0] >= images_per_s()

    assert keeps_up(units) and not keeps_up(units - 1)


def test_runs_that_several_figures_share_are_made_once():
    assert (
        set(jobs_for("20", EXPERIMENT.quick))
        == set(jobs_for("21", EXPERIMENT.quick))
        <= set(jobs_for("17", EXPERIMENT.quick))
    )
    assert set(jobs_for("5", EXPERIMENT.quick)) < set(jobs_for("6", EXPERIMENT.quick))


def test_slower_products_make_no_network_faster():
    job = Curves("conformer", SEVENTHS, (2.5,), (1, 8))
    for fast, slow in zip(run_job(job), run_job(replace(job, precision=OTHER_PRECISION)), strict=True):
        assert fast.latency_ms <= slow.latency_ms
