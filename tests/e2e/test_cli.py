"""The command line as a user meets it: exit status, results on stdout, prose on stderr, one bad file among good."""

import json
from pathlib import Path

import containers
import cv2
import numpy as np
import pytest
from command import headrace, headrace_here
from PIL import Image

from headrace.host.demo.inputs.images import bundled_images


@pytest.fixture(scope="session")
def xclbin(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("xclbin") / "two.xclbin"
    done = headrace("build", "--target", "sw_emu", "--image-cus", "2", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def china() -> Path:
    return next(path for path in bundled_images() if path.name == "china.jpg")


def reference(path: Path) -> np.ndarray:
    return cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)[..., ::-1]


def test_info_lists_kernels_offsets_and_banks(xclbin):
    done = headrace("build", "--info", xclbin, "--json")
    assert done.returncode == 0
    kernel = json.loads(done.stdout)["kernels"][0]
    assert kernel["name"] == "image_cu" and len(kernel["instances"]) == 2
    offsets = {arg["name"]: arg["offset"] for arg in kernel["args"]}
    assert offsets["jpeg"] == 0x10 and offsets["tensor"] == 0x24
    banks = [instance["banks"]["tensor"] for instance in kernel["instances"]]
    assert all(bank.startswith("HBM") for bank in banks) and len(set(banks)) == 2


@pytest.mark.quick(2)
@pytest.mark.parametrize("stage", ["decode", "resize", "crop", "normalize"])
def test_preprocess_writes_each_stage(stage, xclbin, china, tmp_path):
    done = headrace("preprocess", "image", china, "--xclbin", xclbin, "--stage", stage, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)["files"][0]
    assert outcome["unit"].startswith("image_cu_") and outcome["dpu_status"] == "OK" and outcome["orientation"] == 1
    array = np.load(outcome["output"])
    image = reference(china)
    resized = cv2.resize(image, (640 * 256 // 427, 256), interpolation=cv2.INTER_LINEAR_EXACT)
    left = round((resized.shape[1] - 224) / 2)
    cropped = resized[16:240, left : left + 224]
    match stage:
        case "decode":
            assert np.array_equal(array, image)
        case "resize":
            assert np.array_equal(array, resized)
        case "crop":
            assert np.array_equal(array, cropped)
        case "normalize":
            mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
            assert np.array_equal(array, ((cropped.astype(np.float32) / 255 - mean) / std).transpose(2, 0, 1))


def test_preprocess_from_a_queue_writes_the_same(xclbin, china, tmp_path):
    arrays = []
    for launch in ("single", "queue"):
        folder = tmp_path / launch
        done = headrace("preprocess", "image", china, "--xclbin", xclbin, "--launch", launch, "--out", folder, "--json")
        assert done.returncode == 0, done.stderr
        outcome = json.loads(done.stdout)["files"][0]
        assert outcome["dpu_status"] == "OK" and ("." in outcome["unit"]) == (launch == "queue")
        arrays.append(np.load(outcome["output"]))
    assert np.array_equal(*arrays)


@pytest.fixture(scope="session")
def hw_xclbin(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("xclbin") / "hw.xclbin"
    done = headrace("build", "--target", "hw_emu", "--image-cus", "2", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def test_hw_emu_tells_the_clocks_and_writes_a_waveform(china, tmp_path):
    small = tmp_path / "small.jpg"
    cv2.imwrite(str(small), cv2.resize(cv2.imread(str(china)), (40, 30)))
    arguments = (
        "--xclbin",
        containers.image("hw_emu"),
        "--out",
        tmp_path,
        "--resize-short",
        "28",
        "--crop",
        "24",
        "24",
        "--json",
    )
    done = headrace("preprocess", "image", small, *arguments, "--wave", tmp_path / "small.vcd")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)["files"][0]
    assert outcome["dpu_status"] == "OK" and outcome["cycles"] == outcome["counters"]["cycles"]
    assert outcome["cycles_per_pixel"] == outcome["cycles"] / 1200 and 0 < outcome["symbols"] < outcome["cycles"]
    assert "m_axi_gmem0_araddr" in (tmp_path / "small.vcd").read_text()[:1_000_000]
    refused = headrace("preprocess", "image", small, china, *arguments, "--wave", tmp_path / "small.vcd")
    assert refused.returncode == 2 and "give one file, not 2" in refused.stderr


@pytest.mark.slow
def test_hw_emu_gives_opencvs_tensor_of_a_photo_and_the_demo_runs_on_it(hw_xclbin, china, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    cv2.imwrite(str(photos / "china.jpg"), cv2.resize(cv2.imread(str(china)), (320, 213)))
    options = ("--requests", "3", "--policies", "serial", "--preprocessors", "dpu", "--workers", "npu:1")
    done = headrace("demo", "--xclbin", hw_xclbin, "--images", photos, *options, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equality"]["equal"] == report["equality"]["on_dpu"] == 1
    assert report["dpu_clocks"]["images"] == 1 and report["dpu_clocks"]["clock_mhz"] == 300
    assert 0.25 < report["dpu_clocks"]["cycles_per_pixel"] < 2 and "clock by clock" in report["note"]
    assert (
        "cycles a photo"
        in headrace("demo", "--xclbin", hw_xclbin, "--images", photos, *options, "--out", tmp_path).stdout
    )


def test_a_photos_orientation_is_told_and_with_orient_it_is_turned(xclbin, china, tmp_path):
    photo = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(china).save(photo, exif=exif)
    command = ("preprocess", "image", photo, "--xclbin", xclbin, "--stage", "decode", "--out", tmp_path)
    assert "not turned by Exif orientation 6" in headrace(*command).stdout
    (outcome,) = json.loads(headrace(*command, "--json").stdout)["files"]
    stored = np.load(outcome["output"])
    assert outcome["orientation"] == 6 and stored.shape == (427, 640, 3)
    assert ", turned by Exif orientation 6" in headrace(*command, "--orient").stdout
    assert np.array_equal(np.load(outcome["output"]), np.rot90(stored, -1))


def test_a_bad_file_gives_its_reason_and_the_others_succeed(xclbin, china, tmp_path):
    wide = tmp_path / "wide.jpg"
    wide.write_bytes(cv2.imencode(".jpg", cv2.resize(reference(china)[..., ::-1], (8193, 300)))[1].tobytes())
    (tmp_path / "text.jpg").write_text("not a photo")
    (tmp_path / "short.jpg").write_bytes(china.read_bytes()[:5000])
    files = [china, tmp_path / "missing.jpg", tmp_path / "text.jpg", wide, tmp_path / "short.jpg"]
    done = headrace("preprocess", "image", *files, "--xclbin", xclbin, "--out", tmp_path / "npy", "--json")
    assert done.returncode == 1
    outcomes = {Path(o["file"]).name: o for o in json.loads(done.stdout)["files"]}
    assert outcomes["china.jpg"]["error"] is None
    assert "No such file" in outcomes["missing.jpg"]["error"]
    assert "NOT_JPEG" in outcomes["text.jpg"]["error"]
    assert outcomes["wide.jpg"]["unit"] == "cpu" and outcomes["wide.jpg"]["dpu_status"] == "TOO_LARGE"
    done = headrace(
        "preprocess", "image", *files, "--xclbin", xclbin, "--out", tmp_path / "npy", "--json", "--fallback", "raise"
    )
    outcomes = {Path(o["file"]).name: o for o in json.loads(done.stdout)["files"]}
    assert "TOO_LARGE" in outcomes["wide.jpg"]["error"] and "TRUNCATED" in outcomes["short.jpg"]["error"]
    closed = tmp_path / "closed.jpg"
    closed.write_bytes(china.read_bytes()[:5000] + b"\xff\xd9")
    command = ("preprocess", "image", closed, "--xclbin", xclbin, "--out", tmp_path / "npy", "--json")
    strict, lenient = headrace(*command), headrace(*command, "--damaged", "lenient")
    assert (strict.returncode, lenient.returncode) == (1, 0)
    assert "it is damaged: Corrupt JPEG data" in json.loads(strict.stdout)["files"][0]["error"]
    assert "Corrupt JPEG data" in json.loads(lenient.stdout)["files"][0]["damage"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("build",),
        ("build", "--target", "asic", "-o", "x.xclbin"),
        ("preprocess", "image", "--out", "x"),
        ("preprocess", "image", "x.jpg", "--out", "x", "--wave", "x.vcd"),
        ("preprocess", "image", "x.jpg", "--target", "hw_emu", "--out", "x", "--wave", "no/folder/x.vcd"),
        ("demo", "--policies", "magic"),
        ("demo", "--images", "nowhere"),
        ("demo", "--rate-rps", "0"),
        ("demo", "--model", "resnet51"),
        ("demo", "--profile", "nowhere.json"),
        ("profile", "--model", "nowhere:net"),
    ],
)
def test_bad_usage_exits_2_with_a_message_and_no_traceback(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = headrace_here(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip() and "Traceback" not in done.stderr and done.stdout == ""


def test_a_file_that_is_no_container_is_refused(tmp_path):
    bad = tmp_path / "bad.xclbin"
    bad.write_bytes(b"xclbin1" * 100)
    done = headrace("build", "--info", bad)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr and done.stdout == ""


RESULT_KEYS = {
    "requests",
    "finished",
    "failed",
    "shed",
    "throughput_rps",
    "latency_ms",
    "queue_ms",
    "sla_violation_rate",
    "batch_size_mean",
    "utilization",
    "energy_j",
    "wall_s",
    "seed",
}


def test_simulate_reports_the_result_keys_and_writes_a_trace(tmp_path):
    trace = tmp_path / "new" / "run.pftrace"
    settings = "--model resnet50 --accelerator npu --npus 1 --policy lazy --rate-rps 1000 --requests 2000 --sla-ms 100"
    more = "--window-ms 5 --max-batch 64 --seed 0 --json --trace"
    done = headrace("simulate", *settings.split(), *more.split(), trace)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report.keys() >= RESULT_KEYS and report["finished"] == 2000
    assert set(report["latency_ms"]) == {"mean", "p50", "p90", "p95", "p99", "max"}
    assert report["settings"]["policy"] == "lazy" and "--window-ms has no effect" in report["warnings"][0]
    assert "--window-ms has no effect" in done.stderr and trace.stat().st_size > 10_000


def test_simulate_takes_settings_from_a_file_and_options_override_them(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('model = "gnmt"\nrate-rps = 50\nrequests = 100\npolicy = "graph"\n')
    done = headrace("simulate", "--config", config, "--policy", "serial", "--json")
    settings = json.loads(done.stdout)["settings"]
    assert (settings["model"], settings["rate_rps"], settings["policy"]) == ("gnmt", 50.0, "serial")
    assert "latency_ms mean" in headrace("simulate", "--config", config).stdout


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate-rps", "0"], "--rate-rps 0: give a"),
        (["--policy", "best"], "--policy 'best': there is no such policy; choose from serial"),
        (["--model", "resnet"], "did you mean resnet50"),
        (["--replay", "x.csv", "--requests", "5"], "leave out --requests"),
        (["--config", "no.toml"], "no.toml"),
        (["--rate-rps", "fast"], "--rate-rps 'fast': it must be of type float"),
    ],
)
def test_simulate_refuses_what_it_cannot_do(arguments, message):
    done = headrace("simulate", *arguments)
    assert done.returncode in (1, 2) and not done.stdout
    assert message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_reproduce_ends_with_its_table(tmp_path):
    done = headrace("reproduce", "lazybatching", "--figure", "3,12", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "latency, every GraphB / lazy" in done.stdout and "15 x" in done.stdout
    assert {"figure3.png", "figure12.png", "figure12.csv", "table.md"} <= {path.name for path in tmp_path.iterdir()}
    done = headrace("reproduce", "lazybatching", "--figure", "99", "--quick", "--out", tmp_path)
    assert done.returncode == 2 and "--figure 99" in done.stderr


@pytest.mark.slow
def test_a_cell_is_profiled_at_every_batch_size(tmp_path):
    arguments = ("profile", "--cell", "lstm", "--hidden", "64", "--max-batch", "4", "-o", tmp_path / "p.json", "--json")
    done = headrace(*arguments)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["model"] == "lstm-64" and [point["batch"] for point in measured["points"]] == [1, 2, 4]
    refused = headrace("profile", "--cell", "gru")
    assert refused.returncode == 2 and "lstm, encoder, decoder, leaf, inner" in refused.stderr
