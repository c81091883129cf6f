import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.sim.experiments.preba.claims import _kind, _with_slower
from headrace.sim.experiments.preba.conditions import (
    BASELINES,
    CLIP,
    CPU,
    DESIGNS,
    DPU,
    IDEAL,
    IMPLIED,
    NETWORKS,
    OTHER_PRECISION,
    PAPER_CPU,
    SEVENTHS,
    SLICES,
    TARGET_SHARE,
    TODAY,
    WHOLE,
    server,
)
from headrace.sim.experiments.preba.crossover import AUDIO, GRID, IMAGES, LIBRARIES, Case, Map, Served, served
from headrace.sim.experiments.preba.map_page import DARK_PICTURE, PICTURE, page
from headrace.sim.experiments.preba.runs import EXPERIMENT, Curves, Tail, jobs_for, run_job, saturated, simulated
from headrace.sim.experiments.preba.table1 import TABLE_1
from headrace.sim.experiments.report import Kind
from headrace.sim.hardware.cpu import LIBRARY_COSTS
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.hardware.preba_cpu import images_per_s
from headrace.sim.hardware.settings import PRECISION
from headrace.sim.system.card import CUS, U55C
from headrace.sim.system.system import System

ROOT = Path(__file__).parents[3]
NUMBERS = ("core_ms", "throughput_rps", "requests_per_j", "requests_per_usd")


@pytest.fixture(scope="module")
def quick(reproduced):
    return reproduced(EXPERIMENT)


@pytest.fixture(scope="module")
def claims(quick):
    return quick[1]


def rows_of(folder, figure):
    with (folder / f"figure{figure}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_number_with_a_cpu_in_it_names_its_costs_and_the_papers_baseline_has_them_all(claims):
    named = {label: set() for label in BASELINES}
    for claim in claims:
        labels = [label for label in BASELINES if f"{label} CPU" in claim.claim]
        assert len(labels) <= 1
        for label in labels:
            named[label].add((claim.figure, claim.paper))
    assert named[PAPER_CPU] == {
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
        ("21", 1),
        ("22", 101),
    }
    assert named[IMPLIED] == {("8", 75.6), ("8", 393), ("9", 90), ("17", 77.2), ("17", 3.7)}
    assert not named[TODAY]


@pytest.mark.slow
def test_rows_say_what_they_prove(claims):
    kinds = {kind: {(claim.figure, claim.paper) for claim in claims if claim.kind == kind} for kind in Kind}
    assert kinds[Kind.BY_CONSTRUCTION] == {("8", 75.6), ("8", 393), ("17", 77.2), ("17", 3.7)}
    assert all(IMPLIED in claim.claim for claim in claims if claim.kind == Kind.BY_CONSTRUCTION)
    assert {figure for figure, _ in kinds[Kind.CIRCULAR]} == {"Table 1", "4.2"}
    assert ("4.2", 6.13) in kinds[Kind.CIRCULAR] and ("4.2", 0.9) not in kinds[Kind.CIRCULAR]


def test_a_number_that_the_baseline_implies_proves_nothing():
    for baseline in BASELINES:
        assert _kind(baseline) is (Kind.BY_CONSTRUCTION if baseline == IMPLIED else Kind.INDEPENDENT)
    assert IMPLIED in BASELINES and len(BASELINES) > 1


def test_slower_cores_are_a_cause_only_where_the_papers_number_lies_between():
    values = {1.0: 1.5, 2.0: 2.7, 4.0: 5.2}
    note, cause = _with_slower(3.7, values, "x")
    assert not note and "2 times slower 2.7 x, 4 times slower 5.2 x" in cause
    note, cause = _with_slower(9, values, "x")
    assert "4 times slower 5.2 x" in note and not cause


@pytest.mark.slow
def test_every_note_of_a_number_that_was_simulated_or_averaged_says_how(claims):
    for claim in claims:
        assert claim.note, claim
        if claim.figure in ("8", "9", "17", "18", "19", "20", "21", "22"):
            assert "saturated" in claim.note.lower() or "greatest" in claim.note, claim
        if claim.unit in ("%", "x") and claim.figure not in ("Table 1", "19"):
            assert any(word in claim.note for word in ("mean of", "least of", "greatest of", "fifth of")), claim


@pytest.mark.slow
def test_what_does_not_come_from_the_paper_is_called_derived(claims):
    from_pcie = [claim for claim in claims if claim.figure in ("4.2", "8") and claim.paper in (6.13, 0.9, 393)]
    noted = [claim for claim in from_pcie if "Derived, not printed by the paper" in claim.note]
    assert [claim.claim for claim in from_pcie if claim not in noted] == [
        f"cores that CitriNet's preprocessing takes, {PAPER_CPU} CPU"
    ]


@pytest.mark.slow
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


@pytest.mark.slow
def test_2g_10gb_loses_the_seventh_that_is_off(claims):
    lost = next(claim for claim in claims if claim.paper == 14.2)
    assert lost.measured == pytest.approx(100 / 7, abs=1.5)


@pytest.mark.slow
def test_bounds_of_the_paper_on_slices_hold(claims):
    assert all(claim.kept for claim in claims if claim.bound and claim.figure in ("5", "7"))


@pytest.mark.slow
def test_no_design_serves_more_than_ideal_or_than_its_slowest_stage(quick):
    runs = [run for run in rows_of(quick[0], "17") if run["slower"] == "1.0"]
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


@pytest.mark.slow
@pytest.mark.parametrize("baseline", [PAPER_CPU, IMPLIED])
def test_a_headline_is_of_the_one_baseline_that_it_names(quick, baseline):
    folder, claims = quick

    def mean(value):
        found = []
        for model in NETWORKS:
            of = {
                run["preprocess"]: run
                for run in rows_of(folder, "17")
                if (run["model"], run["active"], run["slower"]) == (model, str(SLICES), "1.0")
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
    }
    if baseline == PAPER_CPU:
        expected |= {("20", 35.4): 100 * (1 - ratio("cpu_w")), ("21", 3.0): ratio("requests_per_usd")}
    for (figure, paper), value in expected.items():
        (claim,) = (
            claim for claim in claims if (claim.figure, claim.paper) == (figure, paper) and baseline in claim.claim
        )
        assert claim.measured == pytest.approx(value)


def test_slower_cores_serve_less_in_proportion():
    rates = [saturated(server("conformer_small", CPU, slower=slower), 2000).throughput_rps for slower in (1.0, 2.0)]
    assert rates[0] / rates[1] == pytest.approx(2, rel=0.02)


@pytest.mark.slow
def test_a_reading_that_changes_nothing_gives_the_numbers_of_the_rows(quick):
    folder, claims = quick
    with (folder / "sensitivity.csv").open() as file:
        usual, *others = csv.DictReader(file)
    named = {(claim.figure, claim.paper): claim.measured for claim in claims if IMPLIED not in claim.claim}
    for name, place in {
        "lost": ("17", 77.2),
        "throughput": ("17", 3.7),
        "kept": ("17", 91.6),
        "cpu_power_saved": ("20", 35.4),
        "gpu_power": ("20", 2.8),
        "per_joule": ("20", 3.5),
        "per_dollar": ("21", 3.0),
        "dpu_gain": ("22", 101),
        "batching_gain": ("22", 54),
    }.items():
        assert float(usual[name]) == pytest.approx(named[place]), name
    unknown = {other["unknown"] for other in others}
    assert unknown >= {"librosa's resampler", "type of products", "sizes of photos", "limits of Base"}
    for other in others:
        assert any(float(other[name]) != float(usual[name]) for name in list(usual)[2:]), other["reading"]
    shown = (folder / "sensitivity.md").read_text().splitlines()
    assert len(shown) == 2 + 1 + 1 + len(others)  # headings, the paper, the rows


@pytest.mark.slow
def test_table_1_stands_beside_the_cells_of_this_project(quick):
    with (quick[0] / "table1.csv").open() as file:
        found = {(row["kind"], row["unit"], row["resource"]): row for row in csv.DictReader(file)}
    whole = found["audio", "total", "URAM"]
    both = sum(CUS[name]["uram"] for name in ("mel cu", "norm cu"))
    assert float(whole["paper"]) == 45 and float(whole["own"]) == pytest.approx(100 * both / U55C["uram"])
    assert float(whole["own_of_dpu"]) == pytest.approx(6 * float(whole["own"]))
    assert "| image | decode | 19.7 /" in (quick[0] / "table1.md").read_text()


@pytest.mark.slow
def test_what_was_not_attempted_is_said_with_the_reason(quick):
    notes = (quick[0] / "notes.md").read_text()
    assert all(f"Fig. {figure}" in notes for figure in ("5", "6", "7", "8", "9", "12", "13", "18", "22"))


# ---- the map ----


def served_at(core_ms, rate, label=GRID, cores=32, size=2.5):
    return Served(AUDIO, size, label, cores, core_ms, rate, rate / 100, rate * 1e3)


def test_a_dpu_pays_from_the_cost_at_which_its_server_serves_more():
    dpu = served_at(0.0, 1000.0, "dpu")
    found = Map([dpu, *(served_at(ms, 2000 / ms) for ms in (1.0, 4.0, 16.0))])
    assert found.pays_from_ms(AUDIO, 2.5, 32, "dollars") == pytest.approx(2)
    assert found.pays_from_ms(AUDIO, 2.5, 32, "throughput") == pytest.approx(2.1)  # 5 % more
    assert Map([dpu, served_at(1.0, 9000.0), served_at(4.0, 2000.0)]).pays_from_ms(AUDIO, 2.5, 32, "energy") == np.inf
    assert Map([dpu, served_at(1.0, 900.0), served_at(4.0, 200.0)]).pays_from_ms(AUDIO, 2.5, 32, "energy") == 0


def test_more_cores_and_cheaper_preprocessing_never_serve_less():
    rates = {
        (cores, ms): served(Case(AUDIO, 2.5, GRID, cores, ms, 1500)).throughput_rps
        for cores in (16, 32)
        for ms in (2.0, 20.0)
    }
    assert rates[16, 20.0] < rates[32, 20.0] < rates[32, 2.0] and rates[16, 20.0] < rates[16, 2.0]
    assert rates[32, 20.0] == pytest.approx((32 - SLICES) / 20e-3, rel=0.02)


def test_libraries_are_points_of_the_map():
    found = served(Case(IMAGES, 500 * 375, "pillow", 32, 0.0, 6000))
    assert found.throughput_rps == pytest.approx((32 - SLICES) / found.core_ms * 1e3, rel=0.03)


def test_the_page_in_the_documentation_is_that_of_the_published_map():
    results = Path(page.__code__.co_filename).parent / "results"
    with (results / "map.csv").open() as file:
        rows = [
            Served(row["model"], float(row["size"]), row["label"], int(row["cores"]), *(float(row[n]) for n in NUMBERS))
            for row in csv.DictReader(file)
        ]
    text = page(Map(rows))
    assert text == (ROOT / "docs" / "explanation" / "does_a_dpu_pay.md").read_text()
    assert text.count("| photos of 500x375 |") == 1 + len(LIBRARIES[IMAGES])
    assert all((ROOT / "docs" / "explanation" / picture).exists() for picture in (PICTURE, DARK_PICTURE))


@pytest.mark.slow
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
    cpu = BASELINES[IMPLIED]
    taken = saturated(server("mobilenet_v3_small", cpu), 2000)
    assert taken.core_ms / 1e3 * taken.throughput_rps == pytest.approx(32 - SLICES, rel=0.02)


def test_baselines_are_what_their_labels_say():
    clips = {label: saturated(server("citrinet", cpu, CLIP), 500).core_ms for label, cpu in BASELINES.items()}
    # 393 cores keep up with 0.9 GB/s of clips of 2.5 s: float32 at 22,050 Hz there, 80 x 251 float32 back.
    assert clips[IMPLIED] == pytest.approx(393 / (0.9e9 / (2.5 * 22050 * 4 + 80 * 251 * 4)) * 1e3, rel=1e-3)
    for costs in LIBRARY_COSTS:
        if costs.label in clips:
            alone_ms = 1e3 * costs.audio.clip_s + 2.5e3 * costs.audio.second_s
            assert clips[costs.label] == pytest.approx(costs.audio.contention * alone_ms, rel=0.05)


def test_a_rate_within_a_tail_target_is_the_greatest_that_is():
    one = server("swin_t", DPU)
    (found,) = run_job(Tail(one, 3000, 1.0, 0.01))
    ideal = server("swin_t")
    target = simulated(ideal, TARGET_SHARE * saturated(ideal, 3000).throughput_rps, 3000, "share").p95_ms
    assert found.target_ms == pytest.approx(target)
    assert found.p95_ms <= target and found.within_rps == found.throughput_rps
    assert simulated(one, 1.03 * found.rate_rps, 3000, "tail").p95_ms > target


def test_a_design_that_meets_a_target_at_no_rate_serves_nothing_within_it():
    (found,) = run_job(Tail(server("squeezenet1_1", BASELINES[IMPLIED]), 1000, slack=1.0, resolution=0.01))
    assert found.p95_ms > found.target_ms and found.within_rps == 0


def test_the_dpu_has_as_many_units_as_the_papers_pcie_traffic_implies():
    units = int(DPU.removeprefix("dpu:"))

    def keeps_up(count):
        system = System.of(
            "a100-40gb",
            ["mobilenet_v3_small"],
            parts=WHOLE,
            preprocess=f"dpu:{count}",
            image_sizes=TYPICAL_PIXELS,
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
