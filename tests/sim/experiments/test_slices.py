"""Test the study of GPUs in slices: the meaning of its numbers, and its results for each kind of preprocessing."""

import csv
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from progress_counter import Counter

from headrace.batching.errors import UsageError
from headrace.sim.experiments.reproduce import reproduce
from headrace.sim.experiments.slices.rows import Capacity, Server, UnitCount
from headrace.sim.experiments.slices.runs import (
    CUT,
    CUTS,
    DESIGNS,
    EXPERIMENT,
    HALVINGS,
    LOADS,
    POLICIES,
    STAGES,
    Load,
    Measure,
    largest,
    limits,
    measure,
    partitions,
    possible,
    serve,
    stages,
    steps_rps,
    system,
    unit_count,
    with_design,
)
from headrace.sim.experiments.slices.tables import preparing
from headrace.sim.hardware.gpu.mig import GPUS
from headrace.sim.hardware.inputs import UNITS

QUICK = EXPERIMENT.quick
BRIEF = replace(QUICK, saturated=10, loaded=10)
PHOTOS = Server("a100-40gb", "1g.5gb:7", "mobilenet_v3_small", "", "ideal")
SPEECH = Server("a100-40gb", "1g.5gb:7", "citrinet", "2.5", "ideal")


def measured(server, design):
    return measure(Measure(with_design(server, design), design, 0, BRIEF))


def test_the_smallest_slices_and_the_whole_gpu_are_looked_at():
    assert partitions("a100-40gb") == ("1g.5gb:7", "7g.40gb:1")
    assert partitions("h200") == ("1g.18gb:7", "7g.141gb:1")


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("whole", [False, True])
def test_nvjpg_is_tried_where_every_slice_has_an_engine(gpu, whole):
    server = Server(gpu, partitions(gpu)[whole], "swin_t", "", "nvjpg")
    if possible(server, "nvjpg"):
        assert steps_rps(server)["nvjpg"] > 0
    else:
        with pytest.raises(UsageError, match="no JPEG engine"):
            system(server)
    assert not possible(replace(server, model="citrinet", lengths="2.5"), "nvjpg")
    assert possible(server, "nvjpg") == (whole or gpu in ("h100", "h200"))
    assert all(possible(server, design) is True for design in DESIGNS if design != "nvjpg")


def test_a_cell_of_the_table_names_the_step_that_binds_below_97_percent():
    def capacity(design, throughput_rps, within_rps, binds):
        server = ("a100-40gb", "1g.5gb:7", "swin_t", "", design, design)
        return Capacity(*server, throughput_rps, binds, 1.0, 50.0, within_rps, 0.0, 300.0, 0.05, 2e6)

    rows = [
        capacity("ideal", 100.0, 50.0, "slices"),
        capacity("dpu", 97.0, 48.0, "dpu"),
        capacity("cpu", 40, 10, "cpu"),
    ]
    units = [UnitCount("a100-40gb", "1g.5gb:7", "swin_t", "", 100.0, "pcie", 200.0, 3, 2)]
    head, _, line = preparing(rows, units, whole=False)
    assert head == "| network | GPU | ready, /s | dpu | cpu | CUs |"
    cells = "100 / 50 | 97 %; 50.0 mJ; 2.0 | 40 % (cpu), within 20 %; 50.0 mJ; 2.0 | 3 / 2"
    assert line == f"| swin_t | a100-40gb | {cells} |"
    assert len(preparing(rows, units, whole=True)) == 2  # none has a whole GPU


@pytest.mark.parametrize("start", ["kernel", "queue"])
@pytest.mark.parametrize("server", [PHOTOS, SPEECH], ids=["photos", "speech"])
def test_so_many_units_keep_up_and_one_fewer_would_not(server, start):
    found = unit_count(server)
    count = getattr(found, start)
    setting = "" if start == "kernel" else ":queue"

    def slowest(cus):
        rates = steps_rps(replace(server, preprocess=f"dpu:{cus}{setting}"))
        return min(rate for step, rate in rates.items() if step in UNITS)

    least = min(found.slices_rps, found.link_rps)
    assert slowest(count) >= least
    assert count == 1 or slowest(count - 1) < least


@given(st.floats(0.0, 2.0), st.floats(0.1, 1e5))
def test_the_largest_rate_within_a_target_is_found_by_halving(share, most):
    found = largest(lambda rate: rate <= share * most, most)
    assert found <= share * most or share >= 1
    assert min(1.0, share) * most - found <= most / 2**HALVINGS * (1 + 1e-9)


def test_tensors_of_photos_on_their_way_from_the_card_bind_a_dpu_that_has_units_enough():
    server = replace(PHOTOS, gpu="h100", partition="1g.10gb:7")
    row = measured(server, "dpu")
    assert row.binds == "dpu to host"
    assert row.throughput_rps == pytest.approx(unit_count(server).link_rps, rel=0.03)
    assert row.throughput_rps < 0.8 * measured(server, "ideal").throughput_rps
    assert row.throughput_rps < measured(server, "nvjpg").throughput_rps


def test_sounds_are_no_work_for_cores_of_the_measured_cost_and_too_much_for_the_paper_implied():
    ready = measured(SPEECH, "ideal").throughput_rps
    assert measured(SPEECH, "cpu, measured").throughput_rps > 0.97 * ready
    slow = measured(SPEECH, "cpu, paper-implied")
    assert slow.binds == "cpu"
    assert slow.throughput_rps < 0.2 * ready


def test_what_is_within_the_target_is_served_within_it():
    row = measured(SPEECH, "dpu")
    assert 0 < row.within_rps <= row.throughput_rps
    assert row.energy_per_request_j == pytest.approx(row.power_w / row.throughput_rps)


def test_policies_that_have_one_limit_get_what_preba_has_for_the_mean_length():
    knee = system(PHOTOS).profiles()["mobilenet_v3_small"].knee()
    assert limits(PHOTOS) == {"max_batch": knee.batch, "window_ms": pytest.approx(1e3 * knee.latency_s / 7)}
    profile = system(SPEECH).profiles()["citrinet"]
    knee = profile.knee(2.5 / profile.step_s)
    assert limits(SPEECH) == {"max_batch": knee.batch, "window_ms": pytest.approx(1e3 * knee.latency_s / 7)}


@pytest.mark.parametrize("policy", POLICIES)
def test_below_what_the_slices_do_nearly_all_are_in_time(policy):
    row = serve(Load(replace(PHOTOS, model="swin_t"), policy, 0.6, 0, BRIEF))
    assert row.in_time > 0.99
    assert row.mean_ms <= row.p99_ms


@pytest.mark.slow
def test_the_study_writes_all_its_rows_tables_and_plots(tmp_path):
    progress = Counter()
    scale = replace(QUICK, saturated=0.2, loaded=0.1, fewest=40)
    report = reproduce(EXPERIMENT, out=tmp_path, scale=scale, progress=progress)
    found = {name: len(rows) for name, rows in report.rows.items()}
    servers = len(stages(QUICK))
    assert servers == 8  # two networks, two GPUs, two partitions
    assert found["units"] == servers
    assert found["preparing"] == 4 * len(DESIGNS) - 1 + 4 * (len(DESIGNS) - 1)  # A100's slices and sounds: no nvjpg
    assert found["scheduling"] == 2 * len(STAGES) * len(LOADS) * len(POLICIES)
    assert found["cutting"] == 4 * len(CUTS) < len(CUT) * len(CUTS)
    shared = 2 * 2  # jobs of two figures: both networks on an A100, in sevenths and whole, with inputs that are ready
    assert progress.steps == found["preparing"] + found["scheduling"] + found["cutting"] - shared
    for name in ("units", "preparing", "scheduling", "cutting"):
        with (tmp_path / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) == found[name]
    for name in ("preparing.png", "policies.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "tables.md").read_text() == "\n".join(report.tables)
