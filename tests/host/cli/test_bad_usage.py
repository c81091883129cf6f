"""Bad values for every option of every command: one line on stderr that says what to change, status 2, at once."""

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import typer
from command import headrace_here

from headrace.batching import find_policy, policy_names
from headrace.batching.errors import LONGEST_NAME
from headrace.host.cli.main import COMMANDS, app
from headrace.host.demo.inputs.audio import pcm_file
from headrace.host.demo.inputs.images import bundled_images

SIMULATE = ("simulate", "--requests", "10")
FLEET = (*SIMULATE, "--servers", "2")
DECODES = (*SIMULATE, "--model", "llama-3.1-8b")
SMDP = ("smdp", "--tau", "0.3051,1.052", "--zeta", "19.9,19.6")
SLICES = (*SIMULATE, "--accelerator", "a100-40gb", "--model", "swin_t")
SOUNDS = (*SIMULATE, "--accelerator", "a100-40gb", "--model", "citrinet")
PLAN = ("plan", "--model", "resnet50", "--rate-rps", "100", "--slo-ms", "50", "--gpu", "a100-40gb")
TUNE = ("plan", "--rate-rps", "100", "--slo-ms", "50", "--tune", "graph")
DECODER_TARGETS = ("--rate-rps", "1", "--slo-ttft-ms", "500", "--slo-tpot-ms", "50")
DECODER_PLAN = ("plan", "--model", "qwen2-vl-7b", "--gpu", "h100", "--images", "1:224x224", *DECODER_TARGETS)
SPEECH_PLAN = ("plan", "--model", "qwen2-audio-7b", "--gpu", "h100", *DECODER_TARGETS)
DAY = ("plan", "--model", "resnet50", "--slo-ms", "50", "--gpu", "a100-40gb", "--day")
TREES = ("simulate", "--accelerator", "v100", "--model", "treelstm", "--policy", "cellular")
SERVE_FREE = ("serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
SERVE_FLEET = (*SERVE_FREE, "--ray", "127.0.0.1:1")
COMPARE = ("compare", "--reference", "transformers:vit-base-patch16-224", "--candidate", "headrace")
RENDER = ("render", "--engine", "http://127.0.0.1:1", "--model", "folder")
NUMBERS = {  # what is no number of 0 or more, and of those above 0
    "float": ("x", "", "nan", "inf", "-1"),
    "int": ("x", "", "1.5", "nan", "-1"),
}
FILE_OPTIONS = (
    ("simulate", "--config"),
    ("simulate", "--grid"),
    ("simulate", "--replay"),
    ("simulate", "--model", "gnmt", "--corpus"),
    ("simulate", "--accelerator", "profile", "--profile"),
    (*TREES, "--trees"),
    (*SLICES, "--preprocess", "cpu:32", "--cpu-costs"),
    (*SLICES, "--preprocess", "cpu:32", "--images"),
    (*PLAN, "--cpu-costs"),
    (*PLAN, "--images"),
    (*PLAN[:3], *PLAN[5:], "--replay"),  # in place of --rate-rps
    (*TUNE, "--model", "resnet50", "--accelerator", "profile", "--profile"),
    (*TUNE, "--model", "gnmt", "--corpus"),
    (*TUNE[:-1], "cellular", "--model", "treelstm", "--accelerator", "v100", "--trees"),
    DAY,
    ("smdp", "--rho", "0.5", "--profile"),
    ("demo", "--profile"),
    ("demo", "--weights"),
    ("demo", "--xclbin"),
    ("profile", "--weights"),
    ("serve", "--profile"),
    ("serve", "--weights"),
    ("serve", "--preprocess", "dpu", "--xclbin"),
    ("serve", "--token-file"),
    ("serve", "--tls-cert"),
    ("serve", "--tls-key"),
    ("serve", "--config"),
    *((*RENDER, option) for option in ("--xclbin", "--token-file", "--engine-token-file")),
    ("bench", "http://h:1", "--token-file"),
    ("bench", "https://h:1", "--ca-file"),
    ("build", "--info"),
    ("preprocess", "image", "photo.jpg", "--out", "tensors", "--xclbin"),
    ("preprocess", "audio", "sound.wav", "--out", "tensors", "--xclbin"),
    ("preprocess", "audio", "--out", "tensors"),
    ("preprocess", "image", "--out", "tensors"),  # its argument
)
OUTPUT_OPTIONS = (
    ("simulate", "--trace"),
    (*COMPARE, "--json"),
    (*COMPARE, "--html"),
    ("build", "-o"),
    ("profile", "-o"),
    ("profile", "--cpu-preprocessing", "ours", "-o"),
    ("serve", "--trace"),
    ("bench", "http://h:1", "--plot"),
    ("preprocess", "image", "photo.jpg", "--target", "hw_emu", "--out", "tensors", "--wave"),
)
FOLDER_OPTIONS = (
    ("compare", "--write-inputs"),
    ("demo", "--out"),
    ("reproduce", "smdp", "--out"),
    (*PLAN, "--out"),
    ("simulate", "--grid", "grid.toml", "--out"),
    ("preprocess", "image", "photo.jpg", "--out"),
)
NAMED = (  # choices and lists of names
    *(
        (*command, option)
        for command, option in (
            (("compare", "--candidate", "headrace"), "--reference"),
            (("compare", "--reference", "transformers:vit-base-patch16-224"), "--candidate"),
            (COMPARE, "--inputs"),
            (COMPARE, "--model"),
        )
    ),
    ("preprocess", "image", "photo.jpg", "--out", "tensors", "--xrt"),
    ("demo", "--xrt"),
    (*SIMULATE, "--policy"),
    (*SIMULATE, "--slack"),
    (*SIMULATE, "--traffic"),
    (*SIMULATE, "--model"),
    (*SIMULATE, "--accelerator"),
    (*SIMULATE, "--shares"),
    *((*SLICES, "--preprocess", "dpu:4", option) for option in ("--processor", "--image-sizes")),
    *((*FLEET, option) for option in ("--router", "--network-delay", "--failure", "--lost", "--autoscale")),
    (*SMDP, "--rho", "0.5", "--method"),
    ("build", "-o", "new.xclbin", "--target"),
    ("build", "-o", "new.xclbin", "--platform"),
    ("build", "-o", "new.xclbin", "--configuration"),
    ("build", "--target", "hw", "-o", "new", "--kernel"),
    ("build", "--target", "hw", "-o", "new", "--slr"),
    ("build", "--route"),
    ("build", "--route", "ecp5", "--unit"),
    ("demo", "--target"),
    ("demo", "--policies"),
    ("demo", "--policy"),
    ("demo", "--preprocessors"),
    ("demo", "--workers"),
    ("demo", "--model"),
    ("demo", "--input-shape"),
    ("profile", "--model"),
    ("profile", "--cell"),
    ("profile", "--cpu-preprocessing"),
    ("profile", "--input-shape"),
    ("bench", "http://h:1", "--arrivals"),
    *(
        ("serve", option)
        for option in (
            "--model",
            "--input-shape",
            "--policy",
            "--workers",
            "--preprocess",
            "--target",
            "--http",
            "--grpc",
            "--metrics",
        )
    ),
    ("render", "--model", "folder", "--engine"),
    ("render", "--engine", "http://127.0.0.1:1", "--model"),
    *((*RENDER, option) for option in ("--http", "--target", "--allow-host", "--policy")),
    (*SERVE_FREE, "--ray"),
    (*SERVE_FLEET, "--resources"),
    ("reproduce", "smdp", "--quick", "--figure"),
    ("reproduce",),
    *(
        ("preprocess", *kind, "--out", "tensors", option)
        for option in ("--target", "--stage", "--dtype", "--fallback")
        for kind in (("image", "photo.jpg"), ("audio", "sound.wav"))
    ),
    ("preprocess", "image", "photo.jpg", "--out", "tensors", "--damaged"),
    ("preprocess", "image", "photo.jpg", "--out", "tensors", "--processor"),
    ("preprocess", "image", "photo.jpg", "--processor", "qwen2-vl", "--out", "tensors", "--engine"),
    ("serve", "--damaged"),
    ("preprocess", "audio", "sound.wav", "--out", "tensors", "--processor"),
    ("preprocess", "audio", "sound.wav", "--out", "tensors", "--resampler"),
    ("serve", "--resampler"),
    ("preprocess", "audio", "sound.wav", "--out", "tensors", "--normalize-over"),
    ("preprocess", "image", "photo.jpg", "--out", "tensors", "--launch"),
    ("serve", "--preprocess", "dpu", "--launch"),
    (*SIMULATE, "--lengths"),
    (*PLAN, "--ray"),
    ("reproduce", "smdp", "--quick", "--ray"),
    ("simulate", "--grid", "grid.toml", "--ray"),
    (*TUNE, "--accelerator", "npu", "--model"),
    (*TUNE[:-2], "--model", "resnet50", "--tune"),
    (*TUNE, "--model", "resnet50", "--accelerator"),
    *(
        (*TUNE, "--model", "swin_t", "--accelerator", "h100", option)
        for option in ("--partition", "--preprocess", "--precision")
    ),
    *((*PLAN, option) for option in ("--model", "--gpu", "--least", "--traffic", "--prices")),
    *((*PLAN, option) for option in ("--processor", "--image-sizes")),
    (*SOUNDS, "--preprocess", "cpu:32", "--processor"),
    (*PLAN, "--model", "citrinet", "--processor"),
    (*PLAN, "--model", "citrinet", "--lengths"),
    *((*SLICES, option) for option in ("--partition", "--preprocess", "--precision", "--model", "--prices")),
    *((*DECODES, option) for option in ("--kernels", "--weight-precision", "--expert-precision", "--kv-precision")),
    (*DECODES, "--encoder-ms", "1", "--images-per-request"),
    (*SIMULATE, "--kv-blocks", "9", "--step-model"),
    *((*DECODER_PLAN, option) for option in ("--kernels", "--weight-precision", "--kv-precision", "--library")),
    ("serve", "--grpc-front"),
)
# Options with a number, the values that are bad beside those of NUMBERS, and those of NUMBERS that are good.
RANGES = (
    (SIMULATE, "--rate-rps", "float", ("0",), ()),
    ((*SIMULATE, "--traffic", "mmpp"), "--burst-s", "float", ("0",), ()),
    (("simulate",), "--requests", "int", ("0", "999999999999"), ()),
    (SIMULATE, "--slo-ms", "float", ("0",), ()),
    (SIMULATE, "--npus", "int", ("0", "1025"), ()),
    ((*SIMULATE, "--accelerator", "h100-measured"), "--launch-us", "float", ("-1", "1001"), ()),
    (SLICES, "--active-slices", "int", ("0", "8"), ()),
    (SLICES, "--image-pixels", "int", ("0", "100000001"), ()),
    (SIMULATE, "--busy-w", "float", ("0",), ()),
    (("simulate", "--replay", "trace.csv"), "--replay-every", "int", ("0", "1025"), ()),
    (("simulate", "--replay", "trace.csv"), "--replay-speed", "float", ("0",), ()),
    *(
        (DECODES, *case, ())
        for case in (
            ("--prompt-tokens", "float", ("0",)),
            ("--output-tokens", "float", ("0",)),
            ("--tokens-sigma", "float", ("3.1",)),
            ("--longest-tokens", "int", ("0",)),
            ("--slo-ttft-ms", "float", ("0",)),
            ("--slo-tpot-ms", "float", ("0",)),
            ("--image-tokens", "int", ("0",)),
            ("--system-tokens", "int", ("1048577",)),
            ("--turns", "int", ("0", "10001")),
            ("--turn-gap-s", "float", ()),
            ("--longest-prompt", "int", ("0", "1048577")),
            ("--kv-blocks", "int", ("0",)),
            ("--block-size", "int", ("0", "65537")),
            ("--encoder-ms", "float", ()),
            ("--encoder-token-us", "float", ()),
            ("--tp", "int", ("0", "9")),
            ("--ep", "int", ("0", "9")),
            ("--memory-share", "float", ("0", "1.1")),
            ("--host-us", "float", ("1000001",)),
            ("--host-request-us", "float", ("1000001",)),
            ("--max-num-batched-tokens", "int", ("0", "1048577")),
            ("--max-num-seqs", "int", ("0", "65537")),
            ("--max-encoder-tokens", "int", ("0", "1048577")),
        )
    ),
    ((*DECODES, "--policy", "token-deadline"), "--chunk-tokens", "int", ("0", "65537"), ()),
    (DECODES, "--reserved-output", "float", ("1.1",), ("0",)),
    ((*DECODES, "--policy", "prefill-first"), "--max-prefill-tokens", "int", ("0", "1048577"), ()),
    (DECODER_PLAN, "--slo-ttft-ms", "float", ("0",), ()),
    (DECODER_PLAN, "--slo-tpot-ms", "float", ("0",), ()),
    (SPEECH_PLAN, "--audio-s", "float", ("0", "31"), ()),
    (DECODER_PLAN, "--prompt-tokens", "int", ("0",), ()),
    (DECODER_PLAN, "--output-tokens", "int", ("0",), ()),
    (DECODER_PLAN, "--tp", "int", ("0", "9"), ()),
    (DECODER_PLAN, "--system-tokens", "int", ("1048577",), ()),
    (DECODER_PLAN, "--node-gpus", "int", ("0", "1025"), ()),
    (DECODER_PLAN, "--trial-requests", "int", ("99", "1000001"), ()),
    (("build", "--route", "ecp5"), "--seed", "int", (), ()),
    (PLAN, "--rate-rps", "float", ("0", "1,2", "1,,2", "1,"), ()),
    (PLAN, "--slo-ms", "float", ("0", "1,2", "1,,2", "1,"), ()),
    ((*PLAN, "--traffic", "mmpp"), "--burst-s", "float", ("0", "1e6"), ()),
    (PLAN, "--image-pixels", "int", ("0", "100000001"), ()),
    (PLAN, "--slo-quantile", "float", ("0.4", "1"), ()),
    (PLAN, "--gpus", "int", ("0", "65"), ()),
    ((*TUNE, "--model", "resnet50"), "--npus", "int", ("0", "1025"), ()),
    ((*TUNE, "--model", "resnet50"), "--busy-w", "float", ("0",), ()),
    ((*TUNE, "--model", "swin_t", "--accelerator", "h100"), "--active-slices", "int", ("0", "8"), ()),
    (PLAN, "--budget-usd", "float", ("0",), ()),
    ((*DAY, "day.csv"), "--repartition-s", "float", ("3601",), ()),
    ((*SIMULATE, "--policy", "graph"), "--window-ms", "float", (), ()),
    ((*SIMULATE, "--policy", "graph"), "--max-batch", "int", ("0", "4097"), ()),
    ((*SIMULATE, "--policy", "graph"), "--max-batch-tokens", "int", ("0", str((1 << 40) + 1)), ()),
    (SIMULATE, "--coverage", "float", ("0", "1.1"), ()),
    ((*SIMULATE, "--model", "gnmt"), "--dec-timesteps", "int", ("0",), ()),
    ((*SIMULATE, "--policy", "smdp", "--busy-w", "5"), "--w2", "float", (), ()),
    ((*SIMULATE, "--policy", "bucketed-graph"), "--bucket-width", "int", ("0",), ()),
    ((*SIMULATE, "--policy", "preba", "--model", "las"), "--bucket-s", "float", ("0",), ()),
    (SIMULATE, "--merge-us", "float", (), ()),
    (SIMULATE, "--overhead-ms", "float", (), ()),
    (SIMULATE, "--servers", "int", ("0", "100001"), ()),
    ((*FLEET, "--mttr-s", "1"), "--mtbf-s", "float", ("0",), ()),
    ((*FLEET, "--mtbf-s", "1"), "--mttr-s", "float", ("0",), ()),
    (PLAN, "--overhead-ms", "float", ("-1",), ()),
    ((*SIMULATE, "--policy", "preba"), "--knee-growth", "float", ("1", "0"), ()),
    ((*TREES, "--requests", "10"), "--max-tasks", "int", ("0", "1001"), ()),
    (SIMULATE, "--seed", "int", (), ()),
    (("smdp", "--rho", "0.5"), "--tau", "float", ("1", "1,2,3", "1,nan", "-1,-1", "0,0"), ()),
    (("smdp", "--tau", "0.3,1", "--rho", "0.5"), "--zeta", "float", ("1", "1,nan", "-1,-1"), ()),
    ((*SMDP, "--rho", "0.5"), "--bmax", "int", ("0", "4097"), ()),
    (("smdp", "--tau", "0.3,1", "--rho", "0.5"), "--busy-w", "float", ("0",), ()),
    (SMDP, "--rho", "float", ("0", "1"), ()),
    (SMDP, "--rate-rps", "float", ("0", "1e9"), ()),
    (SMDP, "--mmpp", "float", ("1,2,3", "0,0,1,1", "-1,1,1,1", "1,1,0,1", "1,1,1,nan"), ()),
    ((*SMDP, "--rho", "0.5"), "--servers", "int", ("0", "1025"), ()),
    ((*SMDP, "--rho", "0.5"), "--w1", "float", ("0",), ()),
    ((*SMDP, "--rho", "0.5"), "--w2", "float", (), ()),
    ((*SMDP, "--rho", "0.5", "--overflow-cost", "1"), "--smax", "int", ("0",), ()),
    ((*SMDP, "--rho", "0.5", "--smax", "70"), "--overflow-cost", "float", (), ()),
    ((*SMDP, "--rho", "0.5", "--method", "rvi"), "--eps", "float", ("0",), ()),
    ((*SMDP, "--rho", "0.5"), "--slo-ms", "float", ("0",), ()),
    ((*SMDP, "--rho", "0.5", "--slo-ms", "9"), "--slo-quantile", "float", ("0", "1"), ()),
    (("build", "-o", "new.xclbin"), "--image-cus", "int", ("-1", "17"), ()),
    (("build", "-o", "new.xclbin"), "--mel-cus", "int", ("-1", "17"), ()),
    (("build", "-o", "new.xclbin"), "--norm-cus", "int", ("-1", "17"), ()),
    (("build", "--target", "hw", "-o", "new"), "--clock-mhz", "float", ("49", "501"), ()),
    (("build", "--report"), "--cycles-per-image", "int", ("0",), ()),
    (("device",), "--run-limit-s", "float", ("0",), ()),
    (("preprocess", "image", "photo.jpg", "--out", "tensors"), "--image-cus", "int", ("0", "17"), ()),
    (("preprocess", "image", "photo.jpg", "--out", "tensors"), "--resize-short", "int", ("0", "65536"), ()),
    *(
        (("preprocess", "audio", "sound.wav", "--out", "tensors"), *case, ())
        for case in (
            ("--mel-cus", "int", ("0", "17")),
            ("--norm-cus", "int", ("0", "17")),
            ("--mels", "int", ("0", "257")),
            ("--preemphasis", "float", ("1",)),
        )
    ),
    (RENDER, "--image-cus", "int", ("0", "17"), ()),
    (RENDER, "--max-images", "int", ("0", "65537"), ()),
    (RENDER, "--max-megapixels", "int", ("0", "1001"), ()),
    (RENDER, "--max-body-mib", "int", ("0", "4097"), ()),
    (RENDER, "--timeout-s", "float", ("0", "86401"), ()),
    ((*RENDER, "--policy", "graph"), "--places", "int", ("0", "65"), ()),
    ((*RENDER, "--policy", "graph"), "--max-queue", "int", ("0", "65537"), ()),
    ((*RENDER, "--policy", "graph"), "--slo-ms", "float", ("0",), ()),
    (COMPARE, "--tolerance", "float", (), ()),
    (COMPARE, "--timeout-s", "float", ("0", "3601"), ()),
    (("profile",), "--hidden", "int", ("0", "8193"), ()),
    (("profile",), "--workers", "int", ("0", "65"), ()),
    (("profile",), "--max-batch", "int", ("0", "1025"), ()),
    (("profile",), "--max-batch-tokens", "int", ("0",), ()),
    (("profile",), "--lengths", "float", ("0", "1,nan", "1,,2", "2.5,5"), ()),
    (("profile",), "--read-memory-mib", "int", ("63", "16777217"), ()),
    (("profile",), "--limit-s", "float", ("0.5", "86401"), ()),
    (("demo",), "--read-memory-mib", "int", ("63", "16777217"), ()),
    (("demo",), "--requests", "int", ("0", "1000001"), ()),
    (("demo",), "--rate-rps", "float", ("0",), ()),
    (("demo",), "--window-ms", "float", (), ()),
    (("demo",), "--max-batch", "int", ("0", "1025"), ()),
    (("demo",), "--slo-ms", "float", (), ()),
    (("demo",), "--image-cus", "int", ("0", "17"), ()),
    (("demo", "--audio"), "--mel-cus", "int", ("0", "17"), ()),
    (("demo", "--audio"), "--norm-cus", "int", ("0", "17"), ()),
    (("demo",), "--seed", "int", (), ()),
    *(
        (("bench", "http://h:1"), *case, ())
        for case in (
            ("--rate-rps", "float", ("0", "1,,2", "1,0", "1,nan")),
            ("--concurrency", "int", ("0", "4097")),
            ("--requests", "int", ("0", "10000001")),
            ("--duration-s", "float", ("0", "86401")),
            ("--open-size", "int", ("0",)),
            ("--classes", "int", ("1001",)),
            ("--timeout-ms", "float", ("0",)),
            ("--wait-s", "float", ("3601",)),
            ("--processes", "int", ("0", "65")),
            ("--connections", "int", ("0", "65537")),
            ("--seed", "int", ()),
        )
    ),
    (("serve",), "--window-ms", "float", (), ()),
    (("serve",), "--bucket-s", "float", ("0", "86401"), ()),
    (("serve",), "--bucket-width", "int", ("0", "100001"), ()),
    (("serve",), "--knee-growth", "float", ("1", "101"), ()),
    (("serve",), "--max-batch", "int", ("0", "1025"), ()),
    (("serve",), "--slo-ms", "float", ("0",), ()),
    (("serve",), "--max-queue", "int", ("0", "65537"), ()),
    (("serve",), "--read-memory-mib", "int", ("63", "16777217"), ()),
    (("serve",), "--image-cus", "int", ("0", "17"), ()),
    (("serve",), "--mel-cus", "int", ("0", "17"), ()),
    (("serve",), "--norm-cus", "int", ("0", "17"), ()),
    (("serve",), "--max-body-mib", "int", ("0", "2048"), ()),
    (("serve",), "--max-bodies-mib", "int", ("0",), ()),
    (("serve",), "--max-head-kib", "int", ("0", "1025"), ()),
    (("serve",), "--max-json-mib", "int", ("0", "2048"), ()),
    (("serve",), "--max-answer-mib", "int", ("0", str((1 << 20) + 1)), ()),
    (("serve",), "--max-request-megapixels", "int", ("0", str((1 << 20) + 1)), ()),
    (("serve",), "--max-elements", "int", ("0",), ()),
    (("serve",), "--client-timeout-s", "float", ("0", "3601"), ()),
    (("serve",), "--max-connections", "int", ("0",), ()),
    (("serve",), "--max-megapixels", "int", ("0", "1001"), ()),
    (("preprocess", "image", "photo.jpg", "--out", "tensors"), "--max-megapixels", "int", ("0", "1001"), ()),
    (("serve",), "--max-json-kib", "int", ("0", "1048577"), ()),
    (("serve",), "--drain-s", "float", ("3601",), ()),
    (SERVE_FLEET, "--replicas", "int", ("0", "1001"), ()),
    (SERVE_FLEET, "--again-kib", "int", ("15", "131073"), ()),
)
SETTINGS = (  # of a file for --config
    "seed = -1",
    "rate-rps = nan",
    "sla_ms = inf",
    'replay = "missing"',
    'trees = "folder"',
    'profile = "pipe"',
    'corpus = "a\\u0000b"',
    "window-ms = -1",
    "max-batch = 0",
    'policy = "x"',
    "requests = 1.5",
    "what = 1",
    "[",
)


@pytest.fixture(scope="module", autouse=True)
def in_a_folder(tmp_path_factory):
    """The current folder: a photo, a sound, and what is no file to read or to write."""
    before, folder = Path.cwd(), tmp_path_factory.mktemp("usage")
    os.chdir(folder)
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("binary").write_bytes(bytes(range(256)))
    Path("grid.toml").write_text("requests = 10\n")
    Path("day.csv").write_text("hour,resnet50\n0,100\n")
    shutil.copy(next(path for path in bundled_images() if path.suffix == ".jpg"), "photo.jpg")
    Path("trace.csv").write_text("arrival_s,model,input_len,output_len\n0,resnet50,1,1\n")
    Path("photos.csv").write_text("width,height\n500,375\n")
    Path("sound.wav").write_bytes(pcm_file(np.zeros(160), 16_000))
    yield folder
    os.chdir(before)


def refused(*arguments, wording: str = "") -> None:
    files, began = set(Path().rglob("*")), time.monotonic()
    done = headrace_here(*arguments)
    # What is seen only in the network is told behind the line that a server begins with.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("reading ")]
    assert done.returncode == 2 and done.stdout == "" and len(lines) == 1, (done.returncode, done.stderr)
    assert lines[0].startswith("headrace: ") and wording in lines[0]
    assert time.monotonic() - began < 60  # nothing is built, measured or waited for
    left = set(Path().rglob("*")) - files
    assert not any(path.is_file() for path in left)


@pytest.mark.parametrize("command", FILE_OPTIONS, ids=" ".join)
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("missing", "No such file or directory"),
        ("no/such/file", "No such file or directory"),
        ("folder", "Is a directory"),
        ("pipe", "Not a regular file"),
        ("x" * 300, "File name too long"),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_that_cannot_be_read(command, file, reason):
    option = "FILES" if command[0] == "preprocess" and command[-1] == "tensors" else command[-1]
    told = file if len(file) <= LONGEST_NAME else f"{file[:LONGEST_NAME]}..."
    refused(*command, file, wording=f"{option} {told}: {reason}; name a file that can be read")


def test_a_file_and_a_folder_without_permission(in_a_folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # it asks for the real user, whom root cannot change here
    ourselves = os.geteuid()
    Path("secret").touch(mode=0)
    commands = (
        ("smdp", "--rho", "0.5", "--profile", "secret"),
        ("simulate", "--trace", "new.pftrace"),
        ("reproduce", "smdp", "--out", "new"),
    )
    for command in commands:  # loads what they need
        refused(*command[:-1], "binary/x")
    in_a_folder.chmod(0o555)
    if ourselves == 0:  # root may read and write everything
        os.seteuid(65534)
    try:
        for command in commands:
            refused(*command, wording=f"{command[-2]} {command[-1]}: Permission denied; name a f")
    finally:
        os.seteuid(ourselves)
        in_a_folder.chmod(0o755)


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ("missing", "No such file or directory"),
        ("binary", "Not a directory"),
        ("pipe", "Not a directory"),
        ("folder", "it holds no .jpg"),
    ],
)
def test_a_folder_without_photos(images, reason):
    refused("demo", "--images", images, wording=f"--images {images}: {reason}")


# A certificate is read when its key is there too: tests/host/server/transport/test_tls.py.
OTHERS = [each for each in FILE_OPTIONS if each[-1] not in ("tensors", "--tls-cert", "--tls-key")]


@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_a_file_of_something_else(command):
    refused(*command, "binary", wording="binary")


@pytest.mark.parametrize("command", OUTPUT_OPTIONS, ids=" ".join)
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("binary/file", "Not a directory"),
        ("folder", "Is a directory"),
        ("pipe", "Not a regular file"),
        ("/sys/file", ""),  # no file can be made there, whoever one is
    ],
)
def test_an_output_that_cannot_be_written(command, file, reason):
    refused(*command, file, wording=f"{command[-1]} {file}: {reason}")


@pytest.mark.parametrize("command", OUTPUT_OPTIONS[1:], ids=" ".join)  # a trace's folder is made
def test_an_output_in_a_missing_folder(command):
    refused(*command, "missing/file", wording=f"{command[-1]} missing/file: No such file or directory")


@pytest.mark.parametrize("command", FOLDER_OPTIONS, ids=" ".join)
@pytest.mark.parametrize(
    ("folder", "reason"), [("binary", "Not a directory"), ("pipe", "Not a directory"), ("/sys/x", "")]
)
def test_an_output_folder_that_cannot_be_written(command, folder, reason):
    refused(*command, folder, wording=f"{command[-1]} {folder}: {reason}")


@pytest.mark.parametrize(
    ("folder", "reason"),
    [("binary", "Not a directory"), ("pipe", "Not a directory"), ("/sys/x", ""), (".", "it holds other files")],
)
def test_a_hardware_build_that_cannot_be_written(folder, reason):
    refused("build", "--target", "hw", "-o", folder, wording=f"-o {folder}: {reason}")


@pytest.mark.quick(210)
@pytest.mark.parametrize("value", ["magic", "", ",", "[red]x[/red]", ":smile:"])
@pytest.mark.parametrize("command", NAMED, ids=" ".join)
def test_a_name_that_is_not_known(command, value):
    refused(*command, value)


@pytest.mark.quick(400)
@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        pytest.param(command, option, value, id=f"{command[0]} {option} {value}")
        for command, option, kind, more, good in RANGES
        for value in (*NUMBERS[kind], *more)
        if value not in good
    ],
)
def test_a_number_out_of_range(command, option, value):
    refused(*command, option, value)


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        (("build", "-o", "new.xclbin", "--kernel", "rtl"), "--kernel is for --target hw -o FOLDER"),
        (("build", "-o", "new.xclbin", "--run"), "--run is for --target hw -o FOLDER"),
        (("build", "--target", "hw", "--report", "--clock-mhz", "200"), "--clock-mhz is for --target hw"),
        (("build", "--report", "--unit", "crop"), "--unit is for --route ecp5"),
        (("build", "--report", "--route", "ecp5"), "give -o FILE"),
        (("build", "--target", "hw", "--slr", "image_cu_1:3", "-o", "new"), "u55c has SLR 0 to 2"),
        (("build", "--target", "hw", "--image-cus", "15", "-o", "new"), "17 compute units"),
        (PLAN[:-2], "--gpu"),
        (DAY[:-1], "give one of --rate-rps, --day and --replay"),
        ((*PLAN, "--day", "day.csv"), "give one of --rate-rps, --day and --replay"),
        ((*PLAN, "--repartition-s", "9"), "--repartition-s is for --day"),
        ((*DAY, "day.csv", "--least", "power"), "--least: a day is planned for the fewest dollars"),
        ((*DAY, "day.csv", "--budget-usd", "9"), "--budget-usd: a day is planned for the fewest dollars"),
        ((*DAY, "day.csv", "--model", "swin_t"), "the header is 'hour,resnet50'; it must be hour,swin_t"),
    ],
)
def test_what_is_planned_is_a_rate_or_a_day(options, wording):
    refused(*options, wording=wording)


@pytest.mark.parametrize("text", SETTINGS)
def test_a_setting_in_a_file_is_held_to_what_options_are(text, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(text)
    refused("simulate", "--config", file)


@pytest.mark.parametrize("policies", ["cellular", "serial,dynamic-graph"])
def test_the_demo_names_the_policies_that_can_serve_photos(policies):
    refused(
        "demo",
        "--policies",
        policies,
        wording="choose from serial, graph, static, work-conserving, bucketed-graph, lazy, oracle, preba, smdp",
    )


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("options", "wording"),
    [
        (("--rate-rps", "1e6"), "--rate-rps 1e+06 is more than 1 x a100-40gb can serve: "),
        (("--slo-ms", "0.1"), "--slo-ms 0.1 is below "),
        (("--budget-usd", "100"), "the budget binds"),
        (("--model", "conformer", "--lengths", "20000", "--slo-ms", "1e6"), "takes "),
        (("--model", "gnmt"), "gnmt"),
        (("--model", "resnet50,swin_t", "--rate-rps", "1,-2"), "or one for each of --model resnet50,swin_t"),
        (("--model", "resnet50,swin_t", "--slo-ms", "0.1,90"), "--slo-ms 0.1 of resnet50: no slice "),
        (("--burst-s", "1"), "--burst-s is for --traffic mmpp"),
        (("--traffic", "deterministic"), "--traffic 'deterministic': choose from poisson, mmpp"),
        (("--replay", "photo.jpg"), "give one of --rate-rps, --day and --replay, not --rate-rps and --replay"),
        (("--images", "photo.jpg", "--image-pixels", "1"), "--images and --image-pixels both tell sizes"),
        (("--model", "citrinet", "--images", "photos.csv"), "--images: citrinet takes inputs of other kinds"),
        (("--processor", "qwen2-vl", "--image-pixels", "1000"), "--image-pixels does not tell; give --image-sizes"),
        (("--processor", "whisper-tiny"), "--processor whisper-tiny is for audio, and --model takes images"),
        (("--model", "citrinet", "--processor", "qwen2-vl"), "--processor qwen2-vl is for images, and --model takes"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_nothing_can_serve_is_refused_before_anything_is_simulated(options, wording):
    refused(*PLAN, *options, wording=wording)


def test_the_crop_is_held_to_what_the_unit_takes():
    refused("preprocess", "image", "photo.jpg", "--out", "tensors", "--crop", "0", "9", wording="crop_width is 0")


@pytest.mark.parametrize(
    "command",
    [("simulat",), ("simulate", "--rate"), ("simulate", "stray"), ("simulate", "--rate-rps"), ("reproduce",), ("-x",)],
)
def test_what_is_no_command_or_option(command):
    refused(*command)


@pytest.mark.parametrize(
    "options",
    [
        ("--nodes",),
        ("--cell", "lstm"),
        ("--lengths", "5"),
        ("--weights", "file"),
        ("--input-shape", "3x64x64"),
        ("--model", "resnet50"),
        ("--max-batch", "8"),
        ("--workers", "1"),
    ],
    ids=" ".join,
)
def test_what_is_of_networks_has_no_place_where_none_is_measured(options, tmp_path):
    (tmp_path / "file").touch()
    options = [str(tmp_path / "file") if option == "file" else option for option in options]
    refused("profile", "--cpu-preprocessing", "ours", *options, wording=f"leave out {options[0]}")


@pytest.mark.parametrize("command", [(), ("preprocess",)])
def test_without_a_command_the_help_is_shown(command):
    done = headrace_here(*command)
    assert done.returncode == 2 and done.stderr.startswith("Usage: headrace") and done.stdout == ""


def test_every_option_that_takes_a_value_is_tried_here():
    tried = {(row[0][0], row[1]) for row in RANGES}
    tried |= {(row[0], row[-1]) for row in (*FILE_OPTIONS, *OUTPUT_OPTIONS, *FOLDER_OPTIONS, *NAMED)}
    tried |= {
        ("preprocess", "--crop"),
        ("preprocess", "files"),
        ("demo", "--images"),
        ("demo", "folder"),
        ("reproduce", "experiment"),
    }
    tried |= {("bench", option) for option in ("url", "--model", "--input")}  # in tests/host/bench
    # in tests/host/server
    tried |= {("serve", option) for option in ("--repository", "--otlp", "--access-log", "--allow-host")}
    tried |= {("serve", option) for option in ("--mean", "--std", "--resize", "--crop", "--processor", "--engine")}
    tried |= {
        ("device", option) for option in ("unpacked", "--log", "-ppid", "-port")
    }  # in tests/host/xrt, as the rest
    tried |= {("xrt-env", "container"), ("xrt-env", "-o")}
    tried |= {("policies", "name"), *(("check-policy", option) for option in ("name", "--examples", "--seed"))}
    tried |= {
        (name, "--set") for name in ("check-policy", "demo", "render", "serve", "simulate")
    }  # in test_policies and others
    # A setting of a policy is read by its class, whichever command has it.
    of_policies = {each.option for name in policy_names() for each in find_policy(name).settings}
    tried |= {
        (name, option)
        for name in ("demo", "serve")
        for by, option in tried
        if by == "simulate" and option in of_policies
    }
    missing = []
    group = typer.main.get_command(app)
    for name in COMMANDS:
        command = group.get_command(None, name)
        for each in (command, *getattr(command, "commands", {}).values()):
            missing += [
                (name, param.opts)
                for param in each.params
                if not getattr(param, "is_flag", False) and not any((name, option) in tried for option in param.opts)
            ]
    assert missing == []
