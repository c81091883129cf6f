"""Test the demo under load: its report, networks of a user's own, a killed worker, Ctrl-C."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from command import headrace, headrace_here
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from processes import lives, words

from headrace.host.demo.inputs.images import demo_images
from headrace.host.live.machine.children import children

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN_STEPS = "moving_average:Model"

COMMAND = [sys.executable, "-c", "from headrace.host.cli.main import main; main()", "demo"]


def worker_pids(parent: int) -> list[int]:
    """Return the process ids of the workers. They are children of the fork server, which is a child of `parent`."""
    servers = [
        pid for pid in children(parent) if any("headrace.host.workers.fork_server" in word for word in words(pid))
    ]
    return [worker for server in servers for worker in children(server)]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job ignores interrupts, and its child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for_load(process: subprocess.Popen[str], run: str) -> list[int]:
    """Return the workers' process ids when the run has been under load for a second."""
    for line in process.stderr:  # the loop ends with the process, which has time limits
        if line.strip() == run:
            time.sleep(1)
            return worker_pids(process.pid)
    raise AssertionError("the demo ended before the run began")


def profile_file(folder: Path, model: str = "squeezenet1_1") -> Path:
    points = [{"batch": b, "latency_s": 0.005 * b, "throughput_rps": 300 + b} for b in (1, 2, 4)]
    body = {"version": 1, "model": model, "workers": 2, "points": points, "machine": {}}
    path = folder / f"{model.replace(':', '.')}.json"
    path.write_text(json.dumps(body))
    return path


NAMING = "efficientnet_lite0"  # the network that names what photos show
ALL = ("serial", "graph", "preba", "smdp")


@pytest.mark.parametrize(
    "policies", [("serial", "graph", "preba"), pytest.param(ALL, marks=pytest.mark.slow)], ids="+".join
)
def test_the_demo_reports_every_policy_and_every_tensor_equals_opencvs(policies, tmp_path):
    arguments = ["--requests", "60", "--rate-rps", "50", "--workers", "2", "--out", str(tmp_path), "--json"]
    arguments += ["--policies", ",".join(policies)]
    if policies == ALL:
        arguments += ["--preprocessors", "beforehand,cpu,dpu"]
    else:
        for name in ("mobilenet_v3_small", NAMING):
            arguments += ["--profile", str(profile_file(tmp_path, name))]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    # Runs with tensors made beforehand compare the policies. The last one then takes files.
    takes_files = [f"{kind} + {policies[-1]}" for kind in ("cpu", "dpu") if policies == ALL or kind == "dpu"]
    assert [run["name"] for run in report["runs"]] == [*(f"beforehand + {each}" for each in policies), *takes_files]
    assert report["equality"]["equal"] == report["equality"]["on_dpu"] == 2 * report["photos"]
    assert report["equality"]["max_difference"] == 0
    checked = report["processor"]
    assert (checked["model"], checked["equal"], checked["on_dpu"]) == ("qwen2-vl", 2, 2)
    assert [shape[1] for shape in checked["shapes"]] == [1176, 1176]
    for run in report["runs"]:
        assert (run["requests"], run["finished"], run["failed"], run["shed"]) == (60, 60, 0, 0)
        made_here = not run["name"].startswith("beforehand")
        assert list(run["models"]) == [NAMING if made_here else "mobilenet_v3_small"]
        assert run["tensors_equal"] == run["tensors_compared"] == (60 if made_here else 0)
        assert abs(sum(run["breakdown_ms"].values()) - run["latency_ms"]["mean"]) < 0.5
        assert run["preprocessed_on_cpu"] == (60 if run["name"].startswith("cpu") else 0)
        assert sum(run["reasons"].values()) == round(60 / run["batch_size_mean"])
        assert 0 <= run["arrival_late_ms"]["p50"] <= run["arrival_late_ms"]["max"] < run["latency_ms"]["max"]
    assert all(run["batch_size_mean"] == 1 for run in report["runs"] if "serial" in run["name"])
    simulated = report["simulated"]
    assert "nothing in this part was run" in simulated["note"] and simulated["policy"] == "preba"
    assert simulated["dpu"]["clocks_from"]["the cycle model"] == report["photos"]
    live, loaded = simulated["loads"]
    assert live["times_as_fast"] == 1 and loaded["rate_rps"] > 100 * live["rate_rps"]
    for load, requests in ((live, 60), (loaded, 20_000)):
        assert [run["name"] for run in load["runs"]] == ["ideal", "dpu", "cpu (measured here)", "cpu (paper-implied)"]
        assert all(run["finished"] == run["requests"] >= requests for run in load["runs"])
    assert json.loads((tmp_path / "report.json").read_text()) == report
    for name in ("demo.png", "demo-dark.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    photos_are_named_rightly(report)
    assert done.stderr.splitlines()[-1] == f"look at {tmp_path / 'report.html'}"
    page = (tmp_path / "report.html").read_text()
    assert page.count("<figure>") == 5 and "espresso" in page and len(report["speech"]["runs"]) == 3

    trace = Trace.FromString((tmp_path / "trace.pftrace").read_bytes())
    names = [p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")]
    assert "worker 0" in names and "image_cu_1" in names and "dpu + preba" in names
    begins = [p.track_event for p in trace.packet if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    flows = [flow for event in begins for flow in event.flow_ids]
    # Each request has a task, and those from files have a CU or a core, too.
    assert len(set(flows)) == len(report["runs"]) * 60 and len(flows) == (len(report["runs"]) + len(takes_files)) * 60
    assert any(event.name.endswith("batch of 1, idle") for event in begins)
    assert any("window" in event.name for event in begins)
    no_slices_of_a_worker_overlap(trace)


def photos_are_named_rightly(report: dict[str, Any]) -> None:
    """Check the labels of the network with published weights, in all forms of each photo that it was asked for."""
    found = {
        picture: {
            label["label"] for name, label in report["models"][NAMING]["labels"].items() if name.startswith(picture)
        }
        for picture in ("chelsea", "coffee", "camera", "motorcycle_left")
    }
    assert found["chelsea"] <= {"Egyptian cat", "tabby", "tiger cat"} and found["chelsea"]
    assert (found["coffee"], found["camera"], found["motorcycle_left"]) == ({"espresso"}, {"tripod"}, {"moped"})
    random = report["models"]["mobilenet_v3_small"]
    assert random["labels"] == {} and random["labels_note"] == "random weights: labels mean nothing"


def no_slices_of_a_worker_overlap(trace: Trace) -> None:
    workers = {p.track_descriptor.uuid for p in trace.packet if p.track_descriptor.name.startswith("worker")}
    open_on = dict.fromkeys(workers, 0)
    for packet in trace.packet:
        track = packet.track_event.track_uuid
        if track in workers:
            open_on[track] += 1 if packet.track_event.type == TrackEvent.TYPE_SLICE_BEGIN else -1
            assert open_on[track] in (0, 1)


NETS = """
import torch

class Means(torch.nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.input_shape = shape
        self.head = torch.nn.Linear(3, outputs)

    def forward(self, photos):
        return self.head(photos.mean((2, 3)))

def classes():
    torch.manual_seed(1)
    module = Means("3x48x64", 3)
    module.categories = ["tabby", "lynx", "puma"]
    return module

def embedding():
    return Means("3x32x32", 7)

class Convolutions(torch.nn.Sequential):
    input_shape = "3x64x64"

    def __init__(self):
        torch.manual_seed(2)
        layers = [torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(inplace=True)]
        for _ in range(6):
            layers += [torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(inplace=True)]
        super().__init__(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 5))

class Decides(Convolutions):
    def forward(self, photos):
        return super().forward(photos if photos.sum() > 0 else -photos)

def convolutions():
    return Convolutions()

def decides():
    return Decides()

def words():
    module = torch.nn.Embedding(10, 2)
    module.input_shape = "1..8:int64"
    return module
"""


def own_nets(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    (folder / "own.py").write_text(NETS)
    return headrace("demo", *arguments, "--out", folder, "--json", cwd=folder)


def refused(folder: Path, *arguments: str) -> str:
    """Return the text on stderr of a `headrace demo` that refuses these arguments. It runs in this process, because a
    refusal starts no other."""
    (folder / "own.py").write_text(NETS)
    with contextlib.chdir(folder):
        done = headrace_here("demo", *arguments, "--out", folder, "--json")
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr, done.stderr
    return done.stderr


@pytest.mark.slow
def test_two_networks_of_ones_own_are_served_in_one_run_each_with_its_own_photos(tmp_path):
    arguments = ["--model", "own:classes,own:embedding", "--policies", "serial,preba", "--requests", "40"]
    arguments += ["--rate-rps", "100", "--preprocessors", "beforehand,dpu", "--workers", "1"]
    for name in ("own:classes", "own:embedding"):
        arguments += ["--profile", str(profile_file(tmp_path, name))]
    done = own_nets(tmp_path, arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    classes, embedding = report["models"]["own:classes"], report["models"]["own:embedding"]
    assert (classes["input_shape"], classes["resize_short"]) == ([3, 48, 64], 73)
    assert (embedding["input_shape"], embedding["resize_short"]) == ([3, 32, 32], 37)
    assert len(classes["labels"]) > 5 and embedding["labels"] == {} and classes["labels_note"] is None
    for found in classes["labels"].values():
        assert found["label"] in ("tabby", "lynx", "puma") and 1 / 3 <= found["probability"] <= 1
    assert report["equality"]["equal"] == report["equality"]["on_dpu"] == 2 * report["photos"]
    assert "simulated for tensors of 224x224" in report["simulated"]["left_out"]
    for run in report["runs"]:
        parts = run["models"]
        assert set(parts) == {"own:classes", "own:embedding"}
        assert run["finished"] == sum(part["finished"] for part in parts.values()) == 40
        assert all(part["finished"] == part["requests"] > 10 for part in parts.values())
        assert run["tensors_equal"] == run["tensors_compared"] == (40 if run["preprocessor"] == "dpu" else 0)
    names = [p.track_event.name for p in Trace.FromString((tmp_path / "trace.pftrace").read_bytes()).packet]
    assert any(name.startswith("own:classes: batch of") for name in names)
    for name in ("own.classes", "own.embedding"):
        assert json.loads((tmp_path / f"profile.{name}.json").read_text())["workers"] == 2


@pytest.mark.slow
def test_the_load_comes_from_what_was_measured_and_the_report_says_what_it_shows(tmp_path):
    points = [{"batch": b, "latency_s": 0.02, "throughput_rps": 50 * b} for b in (1, 2)]
    body = {"version": 1, "model": "squeezenet1_1", "workers": 1, "points": points, "machine": {}}
    (tmp_path / "profile.json").write_text(json.dumps(body))
    arguments = ["--model", "squeezenet1_1", "--policies", "serial,preba", "--preprocessors", "beforehand,cpu"]
    arguments += ["--requests", "10", "--workers", "1", "--profile", str(tmp_path / "profile.json")]
    done = own_nets(tmp_path, arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["one_by_one_rps"], report["in_batches_rps"]) == (50, 100)
    assert report["rates_rps"]["beforehand"] == pytest.approx(85) and report["rates_rps"]["cpu"] < 30
    assert [run["rate_rps"] for run in report["runs"]] == [
        report["rates_rps"][name] for name in ("beforehand", "beforehand", "cpu")
    ]
    assert report["sla_ms"] == 100  # four batches of the knee would take 80 ms
    assert report["shows"][0].startswith("At 85 photos/s, 1.70 times what the workers sustain one by one (50/s)")


def test_a_network_that_takes_no_photo_is_refused(tmp_path):
    assert "the demo sends photos" in refused(tmp_path, "--model", "own:words")


@pytest.mark.slow
def test_node_level_policies_run_on_simulated_npus_and_say_why_tasks_left(tmp_path):
    arguments = ["--workers", "npu:2", "--model", "squeezenet1_1", "--policies", "lazy,graph,preba-lazy"]
    done = own_nets(tmp_path, [*arguments, "--requests", "60", "--rate-rps", "60", "--preprocessors", "beforehand"])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["workers_simulated"] and [run["finished"] for run in report["runs"]] == [60, 60, 60]
    lazy, graph, preba_lazy = [run["reasons"] for run in report["runs"]]
    assert lazy["idle"] > 0 and graph["window"] > 0 and preba_lazy["window"] > 0
    assert report["models"]["squeezenet1_1"]["labels"] == {}
    no_slices_of_a_worker_overlap(Trace.FromString((tmp_path / "trace.pftrace").read_bytes()))


WITH_PROFILE = (
    "--workers",
    "1",
    "--model",
    "own:convolutions",
    "--policies",
    "lazy",
    "--requests",
    "20",
    "--rate-rps",
    "50",
    "--preprocessors",
    "beforehand",
    "--profile",
)


@pytest.mark.slow
def test_node_level_policies_run_a_network_of_ones_own_on_real_workers(tmp_path):
    arguments = ["--workers", "1", "--model", "own:convolutions", "--policies", "graph,lazy,preba,preba-lazy"]
    arguments += ["--requests", "150", "--preprocessors", "beforehand,dpu", "--max-batch", "8", "--sla-ms", "200"]
    done = own_nets(tmp_path, arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not report["workers_simulated"] and all(run["finished"] == 150 for run in report["runs"])
    lazy = [run for run in report["runs"] if run["policy"] == "lazy"]
    assert any(run["reasons"].get("merge", 0) > 0 for run in lazy), "nobody joined in the middle"
    assert len(json.loads((tmp_path / "profile.json").read_text())["nodes"]["names"]) == 8
    assert any(sentence.startswith("Compared with graph, lazy had ") for sentence in report["shows"])
    no_slices_of_a_worker_overlap(Trace.FromString((tmp_path / "trace.pftrace").read_bytes()))
    done = own_nets(tmp_path, [*WITH_PROFILE, str(tmp_path / "profile.json")])  # the profile that the run wrote
    assert done.returncode == 0, done.stderr


def test_a_profile_without_nodes_is_refused_by_a_policy_of_nodes(tmp_path):
    message = refused(tmp_path, *WITH_PROFILE, str(profile_file(tmp_path, "own:convolutions")))
    assert "profile --nodes --model own:convolutions" in message


@pytest.mark.slow
def test_sentences_through_a_step_model_end_at_their_own_lengths_under_every_policy(tmp_path):
    # All requests come within 0.3 s and none is urgent, so that some join others on any machine.
    arguments = ["--workers", "1", "--model", "transformer", "--policies", "graph,lazy,preba", "--requests", "80"]
    done = own_nets(tmp_path, [*arguments, "--max-batch", "8", "--rate-rps", "300", "--sla-ms", "10000"])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [(run["name"], run["finished"]) for run in report["runs"]] == [("graph", 80), ("lazy", 80), ("preba", 80)]
    assert report["runs"][1]["reasons"].get("merge", 0) > 0, "nobody joined between two steps"
    nodes = json.loads((tmp_path / "profile.json").read_text())["nodes"]
    assert nodes["names"] == ["transformer-encoder", "transformer-decoder"] and len(nodes["lengths"]) == 3
    no_slices_of_a_worker_overlap(Trace.FromString((tmp_path / "trace.pftrace").read_bytes()))


STEPS = ("--workers", "1", "--model", OWN_STEPS, "--policies", "lazy", "--requests", "20", "--max-batch", "2")


def test_a_step_model_of_ones_own_is_served(tmp_path):
    (tmp_path / "moving_average.py").write_text((EXAMPLES / "moving_average.py").read_text())
    done = own_nets(tmp_path, [*STEPS])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["finished"] == 20


def test_options_that_do_not_fit_a_step_model_of_ones_own_are_refused(tmp_path):
    (tmp_path / "moving_average.py").write_text((EXAMPLES / "moving_average.py").read_text())
    for options, message in (
        (["--workers", "npu:1"], "on worker processes"),
        (["--model", f"{OWN_STEPS},resnet18"], "give it alone"),
        (["--model", "treelstm"], "trees"),
    ):
        assert message in refused(tmp_path, *STEPS, *options)


DECIDES = (
    "--workers",
    "1",
    "--model",
    "own:decides",
    "--policies",
    "lazy",
    "--requests",
    "20",
    "--rate-rps",
    "50",
    "--preprocessors",
    "beforehand",
)


def test_a_network_that_cannot_be_cut_into_nodes_is_refused(tmp_path):
    message = refused(tmp_path, *DECIDES)
    assert "cannot be traced" in message and "--whole" in message


@pytest.mark.slow
def test_a_network_that_cannot_be_cut_into_nodes_is_kept_in_one_piece(tmp_path):
    done = own_nets(tmp_path, [*DECIDES, "--whole"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["finished"] == 20


@pytest.mark.slow
def test_photos_that_cannot_be_used_are_named_and_the_others_are_served(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for file in demo_images()[:2]:
        (images / f"{len(file.jpeg)}.jpg").write_bytes(file.jpeg)
    (images / "text.jpg").write_text("no photo")
    (images / "empty.jpg").write_bytes(b"")
    arguments = ["--images", str(images), "--model", "squeezenet1_1", "--policies", "serial", "--preprocessors", "dpu"]
    arguments += ["--requests", "10", "--rate-rps", "50", "--profile", str(profile_file(tmp_path)), "--json"]
    done = subprocess.run([*COMMAND, *arguments, "--out", str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["skipped"]) == {"text.jpg", "empty.jpg"} and report["photos"] == 2
    assert report["runs"][0]["finished"] == 10


@pytest.mark.slow
def test_photos_that_the_dpu_takes_none_of_are_served_by_the_cpu(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    cv2.imwrite(str(images / "wide.jpg"), np.zeros((300, 8193, 3), np.uint8))
    arguments = ["--images", str(images), "--model", "squeezenet1_1", "--policies", "serial", "--preprocessors", "dpu"]
    arguments += ["--requests", "5", "--profile", str(profile_file(tmp_path)), "--json", "--out", str(tmp_path)]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equality"]["unsupported"] == {"TOO_LARGE": 1} and report["equality"]["on_dpu"] == 0
    assert report["processor"]["on_dpu"] == 0
    assert report["runs"][0]["preprocessed_on_cpu"] == report["runs"][0]["finished"] == 5
    assert report["simulated"]["dpu"]["for_cpu"] == 1 and report["simulated"]["dpu"]["clocks_from"] == {}


def test_a_profile_of_another_network_is_refused(tmp_path):
    message = refused(tmp_path, "--profile", str(profile_file(tmp_path)))
    assert "headrace profile --model mobilenet_v3_small" in message


@pytest.mark.slow
def test_a_worker_killed_under_load_loses_no_request(tmp_path):
    arguments = [
        "--requests",
        "150",
        "--rate-rps",
        "30",
        "--workers",
        "2",
        "--model",
        "squeezenet1_1",
        "--policies",
        "graph",
        "--preprocessors",
        "dpu",
        "--profile",
        str(profile_file(tmp_path)),
        "--out",
        str(tmp_path),
        "--json",
    ]
    process = start(arguments)
    pids = wait_for_load(process, "dpu + graph")
    assert len(pids) == 2
    os.kill(pids[0], signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=200)
    run = json.loads(stdout)["runs"][0]
    assert run["finished"] + run["failed"] + run["shed"] == run["requests"] == 150
    assert run["failed"] == run["shed"] == 0 and process.returncode == 0, stderr
    assert run["workers_lost"] == 1


def test_ctrl_c_ends_cleanly_and_leaves_no_process(tmp_path):
    arguments = [
        "--requests",
        "3000",
        "--rate-rps",
        "20",
        "--workers",
        "2",
        "--profile",
        str(profile_file(tmp_path)),
        "--model",
        "squeezenet1_1",
        "--policies",
        "graph",
        "--preprocessors",
        "cpu",
        "--out",
        str(tmp_path),
    ]
    process = start(arguments)
    pids = wait_for_load(process, "cpu + graph")
    os.killpg(process.pid, signal.SIGINT)  # the workers get the signal too, as from a terminal
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted" in stderr and "Traceback" not in stderr
    assert not any(map(lives, pids))
