"""Test the demo's simulated part: its inputs, its results, and the notes that say that it was not run."""

import contextlib
import io
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import soundfile
from rich.console import Console

from headrace.host.demo.inputs.audio import pcm_file
from headrace.host.demo.inputs.prepared_audio import Accuracy, PreparedAudio
from headrace.host.demo.inputs.prepared_files import PreparedFile
from headrace.host.demo.options import DemoOptions
from headrace.host.demo.report import simulated as report
from headrace.host.demo.runs import core_time, simulated, simulated_inputs
from headrace.host.demo.runs.simulated import LOADED, MEASURED, Server, Simulated, simulate_audio, simulate_images
from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.sim.hardware.dpu.audio import mel_cu_cycles
from headrace.sim.hardware.inputs import image_of
from headrace.sim.workload.traffic import poisson

MODEL = "resnet50"
CORE_S = 1e-3
CLOCK_HZ = 300e6


def jpeg(width: int, height: int, seed: int = 0) -> bytes:
    blocks = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.resize(blocks, (width, height)))[1].tobytes()


def image(name: str, data: bytes, pixels: int | None, cycles: int | None = None) -> PreparedFile:
    """Return a photo that the DPU took, or, without `pixels`, one that it did not take. A clocked DPU counts cycles."""
    counters = None if cycles is None else {"cycles": cycles}
    unit = "cpu" if pixels is None else "image_cu_1"
    answer = Preprocessed(TENSOR, unit, 0.0, 0.0, source_pixels=pixels, counters=counters)
    return PreparedFile(name, data, TENSOR, answer)


TENSOR = np.zeros(0, np.float32)
SIZES = ((320, 240), (200, 300), (1, 1))
IMAGES = [image(f"{width}x{height}", jpeg(width, height), width * height) for width, height in SIZES]


def with_cycles(cycles: int) -> list[PreparedFile]:
    """Return the photos with cycles that a clocked DPU counted."""
    return [image(file.name, file.data, file.dpu.source_pixels, cycles) for file in IMAGES]


def not_taken(file: PreparedFile) -> PreparedFile:
    return image(file.name, file.data, None)


def run_of(models: list[str], names: list[str], rate: float = 20.0, requests: int = 60) -> Any:
    """Return the parts of a live run that the simulation reads."""
    at = 1000.0 + poisson(rate, requests, 0)
    return SimpleNamespace(
        records=[
            SimpleNamespace(model=models[i % len(models)], input=names[i % len(names)], arrival=float(arrival))
            for i, arrival in enumerate(at)
        ],
    )


def of_images(
    files: list[PreparedFile] = IMAGES,
    model: str = MODEL,
    cus: int = 4,
    spec: ImageSpec | None = None,
    policies: tuple[str, ...] = ("serial", "preba"),
    core_s: float = CORE_S,
    max_batch: int = 32,
    **run: Any,
) -> Simulated | str:
    options = DemoOptions([], models=(model,), policies=policies, max_batch=max_batch)
    network = {model: SimpleNamespace(spec=spec or ImageSpec())}
    prepared = {model: SimpleNamespace(files=files)}
    with core_taken(core_s):
        return simulate_images(options, network, prepared, run_of([model], [file.name for file in files], **run), cus)


@contextlib.contextmanager
def core_taken(seconds: float) -> Iterator[None]:
    """Let every input take that time on one of this machine's cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated, "core_seconds", lambda work: [seconds] * len(work))
        yield


def by_name(found: Simulated | str, load: int) -> dict[str, Server]:
    assert isinstance(found, Simulated), found
    return {server.name: server for server in found.loads[load].servers}


def median_ms(server: Server) -> float:
    return server.result["latency_ms"]["p50"]


@pytest.fixture(scope="module")
def images() -> Simulated | str:
    return of_images()


def test_the_live_arrivals_come_as_they_were_and_then_so_fast_that_the_slices_are_loaded(images):
    live, loaded = images.loads
    assert (live.faster, live.requests, images.policy) == (1.0, 60, "preba")
    gaps = np.diff(poisson(20.0, 60, 0))
    assert live.rate_rps == pytest.approx(1 / gaps.mean())
    assert images.full == "slices" and loaded.rate_rps == pytest.approx(LOADED * images.capacity_rps)
    assert loaded.rate_rps == pytest.approx(live.rate_rps * loaded.faster) and loaded.requests >= 20_000
    ideal = by_name(images, 1)["ideal"]
    assert ideal.limited_by is None and ideal.result["throughput_rps"] == pytest.approx(loaded.rate_rps, rel=0.01)
    assert ideal.result["utilization"] == pytest.approx(LOADED, abs=0.1)


def test_every_request_is_served_and_no_more_cores_are_busy_than_there_are(images):
    for load in images.loads:
        assert [server.name for server in load.servers] == ["ideal", "dpu", MEASURED, "cpu (paper-implied)"]
        for server in load.servers:
            assert server.result["finished"] == load.requests
            assert 0 <= server.busy_cores <= 32
            assert all(0 <= share <= 1 for share in server.result["part_utilization"].values())


def test_a_core_takes_for_a_photo_what_was_measured_here_and_full_cores_limit_the_load():
    slow = of_images(core_s=0.1)
    at_ease, loaded = by_name(slow, 0), by_name(slow, 1)
    assert slow.core_ms == pytest.approx(100)
    # Then the tensor goes to the GPU. Requests that come to the policy slightly later form slightly other batches.
    assert median_ms(at_ease[MEASURED]) - median_ms(at_ease["ideal"]) == pytest.approx(100, rel=0.05)
    # 25 cores, because the server processes take 7.
    assert slow.full == "cores" and slow.cpu_rps == pytest.approx(25 / 0.1)
    assert slow.loaded.rate_rps == pytest.approx(LOADED * 25 / 0.1)
    assert all(loaded[name].limited_by is None for name in ("ideal", "dpu", MEASURED))
    assert loaded[MEASURED].busy_cores > LOADED * 25 > 3 > loaded["dpu"].busy_cores


def test_the_report_says_how_many_cores_a_dpu_frees_and_what_it_costs():
    slow = of_images(core_s=0.1)
    cpu, dpu = (slow.by_name(name) for name in (MEASURED, "dpu"))
    cores, cost = report.server_lines(slow)
    assert f"That frees {cpu.busy_cores - dpu.busy_cores:.0f} cores." in cores and "at 225 photos/s" in cores
    usd = [1e6 / server.result["cost"]["requests_per_usd"] for server in (cpu, dpu)]
    assert f"cost {usd[0]:.3f} $ without a DPU and {usd[1]:.3f} $ with one" in cost and usd[0] < usd[1]
    strip = report.server_strip(slow)
    assert strip.simulated and strip.heading.startswith("Simulated: resnet50, 225 photos/s")
    assert [panel.values for panel in strip.panels] == [
        {"cpu": cpu.busy_cores, "dpu": dpu.busy_cores},
        {"cpu": cpu.result["latency_ms"]["p99"], "dpu": dpu.result["latency_ms"]["p99"]},
        dict(zip(("cpu", "dpu"), usd, strict=True)),
    ]


def test_the_time_of_a_core_is_the_processors_without_what_came_first_or_from_others():
    calls = []

    def busy() -> None:
        calls.append("busy")
        until = time.thread_time() + (
            0.005 if len(calls) == 3 else 0.03
        )  # short, so that three calls fit into a busy second
        while time.thread_time() < until:
            pass

    busy_s, idle_s = core_time.core_seconds([busy, lambda: time.sleep(0.02)])
    assert 0.005 <= busy_s < 0.03 and idle_s < 0.01
    assert len(calls) <= 10


def test_a_core_is_measured_without_the_threads_of_matrix_products():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    pools: list[dict[str, Any]] = []
    core_time.core_seconds([lambda: pools.extend(threadpoolctl.threadpool_info())])
    assert {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"} == {1}


def test_a_core_is_not_measured_for_longer_than_there_is_time():
    calls = []
    core_time.core_seconds([lambda: (calls.append("call"), time.sleep(0.6))])
    assert len(calls) == 2


def test_counted_clocks_go_before_the_cycle_models():
    counted = of_images(with_cycles(3_000_000))
    assert counted.clocks_from == {"hw_emu": 3} and counted.for_cpu == 0
    at_ease = by_name(counted, 0)
    assert median_ms(at_ease["dpu"]) - median_ms(at_ease["ideal"]) == pytest.approx(10, rel=0.05)
    assert by_name(counted, 0)[MEASURED].result == by_name(of_images(), 0)[MEASURED].result | {
        "wall_s": at_ease[MEASURED].result["wall_s"]
    }


def test_without_counted_clocks_they_are_the_cycle_models_of_these_files(images):
    assert images.clocks_from["the cycle model"] == 3
    one = of_images(IMAGES[:1])
    seconds = 75e-6 + image_of(IMAGES[0].data).clocks / CLOCK_HZ
    busy = by_name(one, 0)["dpu"].result["preprocess_utilization"]["image cu"]
    span_s = by_name(one, 0)["dpu"].result["finished"] / by_name(one, 0)["dpu"].result["throughput_rps"]
    assert busy == pytest.approx(60 * seconds / (4 * span_s), rel=1e-3)


def test_a_progressive_file_is_modelled_and_counts_once_for_each_scan(monkeypatch):
    pixels = cv2.imdecode(np.frombuffer(IMAGES[0].data, np.uint8), 1)
    ten_scans = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
    progressive = [image("progressive", ten_scans, IMAGES[0].dpu.source_pixels)]
    monkeypatch.setattr(simulated_inputs, "MODELLED_BYTES", 10 * len(ten_scans))
    found = of_images(progressive)
    assert found.clocks_from == {"the cycle model": 1}
    more = image_of(ten_scans).clocks - image_of(IMAGES[0].data).clocks
    slower = median_ms(by_name(found, 0)["dpu"]) - median_ms(by_name(of_images(IMAGES[:1]), 0)["dpu"])
    assert slower == pytest.approx(1e3 * more / CLOCK_HZ, abs=0.2) and more > 100_000
    monkeypatch.setattr(simulated_inputs, "MODELLED_BYTES", 10 * len(ten_scans) - 1)
    assert of_images(progressive).clocks_from == {"pixels and bytes": 1}


def test_files_beyond_what_the_cycle_model_has_time_for_are_estimated(monkeypatch):
    monkeypatch.setattr(simulated_inputs, "MODELLED_BYTES", len(IMAGES[0].data))
    found = of_images()
    assert (found.clocks_from["the cycle model"], found.clocks_from["pixels and bytes"]) == (1, 2)
    assert median_ms(by_name(found, 0)["dpu"]) == pytest.approx(median_ms(by_name(of_images(), 0)["dpu"]), abs=0.3)


def test_a_file_that_the_unit_takes_and_the_model_does_not_is_estimated():
    found = of_images([image("odd", b"no JPEG", 10_000)])
    assert found.clocks_from["pixels and bytes"] == 1


def test_photos_that_the_dpu_does_not_take_go_to_the_cpu_from_there():
    # The DPU takes photos 0 and 1, and not 2.
    found = of_images([*IMAGES[:2], not_taken(IMAGES[2])], core_s=0.2)
    assert found.for_cpu == 1
    dpu = by_name(found, 0)["dpu"].result
    assert dpu["preprocess_ms"]["p50"] < 1 < 200 < dpu["preprocess_ms"]["p99"] < 202
    assert dpu["preprocess_utilization"]["cpu"] > 0


def test_if_the_dpu_takes_none_they_take_what_they_take_on_the_cpu():
    found = by_name(of_images(list(map(not_taken, IMAGES)), core_s=0.2), 0)
    assert median_ms(found["dpu"]) == pytest.approx(median_ms(found[MEASURED]), abs=0.5)


def test_the_dpu_has_the_cus_that_the_slices_ask_for_and_those_of_the_emulated_one_and_no_more_than_a_card():
    assert of_images(cus=9).cus == "9 CUs"
    slow = of_images(with_cycles(1_500_000))  # 5 ms and the start
    assert slow.cus == f"{int(np.ceil(slow.capacity_rps * 5.075e-3))} CUs"
    assert by_name(slow, 1)["dpu"].limited_by is None
    huge = of_images(with_cycles(30_000_000))
    assert huge.cus == "16 CUs" and by_name(huge, 1)["dpu"].limited_by == "image cu"


@pytest.mark.parametrize(
    ("policies", "chosen"), [(("preba", "graph"), "preba"), (("serial", "graph"), "graph"), (("serial",), "serial")]
)
def test_the_policy_is_one_of_the_demos(policies, chosen):
    found = of_images(policies=policies)
    assert found.policy == chosen
    assert by_name(found, 1)["ideal"].limited_by is None


def test_two_networks_share_the_slices():
    models = (MODEL, "mobilenet_v3_small")
    prepared = dict.fromkeys(models, SimpleNamespace(files=IMAGES))
    networks = dict.fromkeys(models, SimpleNamespace(spec=ImageSpec()))
    run = run_of(list(models), [file.name for file in IMAGES])
    found = simulate_images(DemoOptions([], models=models), networks, prepared, run, 4)
    assert found.models == models
    assert 1 / found.capacity_rps == pytest.approx(
        np.mean([1 / of_images(model=model).capacity_rps for model in models])
    )


def test_one_request_is_enough():
    assert isinstance(of_images(requests=1), Simulated)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": "resnet18"}, "no traced network 'resnet18'; did you mean"),
        ({"model": "own:net"}, "no traced network 'own:net'"),
        ({"spec": ImageSpec(342, 299, 299)}, "224x224, and not of 299x299"),
        ({"model": "vgg19", "policies": ("graph",), "max_batch": 512}, "--max-batch 512: vgg19 takes"),
    ],
)
def test_a_demo_that_cannot_be_simulated_is_left_out_with_the_reason_in_one_line(settings, reason):
    found = of_images(**settings)
    assert isinstance(found, str) and reason in found and "\n" not in found
    console = Console(file=io.StringIO(), width=400)
    report.print_simulated(found, console)
    assert console.file.getvalue() == f"The simulated part is left out: {found}.\n"
    assert report.simulated_json(found) == {"left_out": found}


def test_the_report_says_that_nothing_of_it_was_run(images):
    console = Console(file=io.StringIO(), width=200)
    report.print_simulated(images, console)
    printed = console.file.getvalue()
    assert printed.startswith("Simulated, not run: a100-40gb in 1g.5gb:7, 32 cores, preba")
    assert "nothing in this part was run" in printed and "DPU of 4 CUs at 300 MHz" in printed
    body = report.simulated_json(images)
    assert "nothing in this part was run" in body["note"] and all("imulated" in text for text in body["shows"])
    assert [[run["name"] for run in load["runs"]] for load in body["loads"]] == [
        ["ideal", "dpu", MEASURED, "cpu (paper-implied)"]
    ] * 2


def test_a_server_whose_queue_grows_is_reported_without_latencies():
    full = of_images(model="mobilenet_v3_small")
    console = Console(file=io.StringIO(), width=200)
    report.print_simulated(full, console)
    (row,) = [line for line in console.file.getvalue().splitlines() if "grows" in line]
    assert row.count("grows") == 2 and "cpu (paper-implied)" in row and "cpu" in row.split("│")[-2]
    assert "cpu (paper-implied) no more than " in report.simulated_shows(full)[1]


# ---- audio ----


def noise(seconds: float, rate: int) -> np.ndarray:
    return 0.1 * np.random.default_rng(0).standard_normal(round(seconds * rate))


def of_audio(name: str, data: bytes, seconds: float, model: str = "conformer", core_s: float = 0.02) -> Any:
    """Simulate the demo with a single clip."""
    options = DemoOptions([], models=(model,), policies=("serial", "preba"))
    file = PreparedFile(name, data, np.zeros((80, round(seconds * 100)), np.float32), None)
    prepared = PreparedAudio([file], {}, 0.0, spec=AudioSpec(), references=[], accuracy=Accuracy())
    with core_taken(core_s):
        return simulate_audio(options, {model: prepared}, run_of([model], [name], rate=2.0), (1, 1))


def test_sounds_take_their_seconds_on_the_slices_and_the_clocks_of_their_samples_on_the_dpu():
    took = {}
    for frames, rate in ((160_000, 16_000), (480_000, 48_000)):
        found = of_audio("noise", pcm_file(noise(10, rate), rate), 10.0)
        assert found.models == ("conformer_small",) and found.what == "sounds"
        dpu = by_name(found, 0)["dpu"].result
        span_s = dpu["finished"] / dpu["throughput_rps"]
        cus = int(found.cus.split()[0])
        each_s = 75e-6 + mel_cu_cycles(frames, rate, loads_taps=rate != 16_000) / CLOCK_HZ
        assert found.cus == f"{int(np.ceil(found.capacity_rps * each_s))} CUs A and 1 CU B"
        assert dpu["preprocess_utilization"]["mel cu"] * cus * span_s / 60 == pytest.approx(each_s, rel=1e-3)
        took[rate] = median_ms(by_name(found, 0)["ideal"])
    assert took[16_000] == took[48_000]
    short = of_audio("2", pcm_file(noise(2, 16_000), 16_000), 2.0)
    assert short.capacity_rps > 1.5 * found.capacity_rps


def test_a_sound_that_the_dpu_does_not_take_goes_to_the_cpu_from_there():
    file = io.BytesIO()
    soundfile.write(file, noise(2, 16_000), 16_000, format="FLAC")
    found = of_audio("a.flac", file.getvalue(), 2.0)
    assert found.clocks_from == {} and found.for_cpu == 1
    servers = by_name(found, 0)
    assert median_ms(servers["dpu"]) == pytest.approx(median_ms(servers[MEASURED]), abs=0.5)


@pytest.mark.parametrize(("model", "reason"), [("own:net", "no traced network"), ("resnet50", "takes no sounds")])
def test_sounds_for_networks_that_cannot_be_simulated_are_left_out(model, reason):
    assert reason in of_audio("2", pcm_file(noise(2, 16_000), 16_000), 2.0, model)
