"""Write the commands that carry out a plan: simulate it, partition the GPU, serve."""

import shlex
from typing import Final

from headrace.batching.settings import option
from headrace.sim.hardware.gpu.mig import gpu_named, partition
from headrace.sim.hardware.settings import MigGpu
from headrace.sim.machine import max_batch_of, server_of
from headrace.sim.scenario import Scenario
from headrace.sim.system.card import cus_of
from headrace.sim.zoo.traced import traced

# The names in `headrace serve --model` of networks that are not torchvision's.
_OWN: Final = {
    "conformer": "headrace.host.workers.networks.zoo.conformer:conformer_ctc",
    "conformer_small": "headrace.host.workers.networks.zoo.conformer:conformer_ctc_small",
    "citrinet": "headrace.host.workers.networks.zoo.citrinet:citrinet",
}
_CUS: Final = {"image cu": "--image-cus", "mel cu": "--mel-cus", "norm cu": "--norm-cus"}
_PARAMETERS: Final = ("window_ms", "bucket_s")  # of policies, for `headrace serve`


def command(scenario: Scenario) -> str:
    """Return the command that simulates a scenario."""
    words = ["headrace", "simulate"]
    given = scenario.given()
    for name, value in {"model": scenario.workload.model, **given}.items():
        if isinstance(value, bool):
            words.append(option(name) if value else f"--no-{option(name).removeprefix('--')}")
        else:
            words += [option(name), str(value)]
    return shlex.join(words)


def mig(scenario: Scenario) -> str:
    """Return the command that partitions the GPU, once it is in MIG mode and empty.

    The MIG User Guide, "Creating GPU Instances", allows profiles by name."""
    assert isinstance(scenario.hardware, MigGpu)
    instances = partition(gpu_named(scenario.hardware.gpu), scenario.hardware.partition or "")
    largest = sorted((each.profile for each in instances), key=lambda of: (-of.sms, -of.memory_slices))
    names = [profile.name for profile in largest]
    return shlex.join(["nvidia-smi", "mig", "-cgi", ",".join(names), "-C"])


def serve(scenario: Scenario) -> tuple[str | None, str | None]:
    """Return the command that serves the scenario with a worker for each slice, and a note about it.

    The machine must be partitioned already. Where `headrace serve` cannot do it, the command is None and the note says
    why."""
    if scenario.preprocess.preprocess == "nvjpg":
        return None, "headrace serve has no nvjpg; give --preprocess cpu, or decode in front of it"
    texts = [
        name for name in scenario.workload.models() if traced(name).step_s is None and len(traced(name).graphs) > 1
    ]
    if texts:
        return None, f"headrace serve has no {texts[0]} of its own; give --model module:function that returns yours"
    if getattr(scenario.policy, "by_phase", False):
        return None, "headrace serve knows of no phases; its smdp estimates the rate instead: leave out --by-phase"
    system, _ = server_of(scenario)
    words = ["headrace", "serve"]
    for name in scenario.workload.models():
        words += ["--model", f"{name}={_OWN[name]}" if name in _OWN else name]
    words += ["--policy", scenario.entry.name, "--workers", str(len(system.slices))]
    words += ["--slo-ms", f"{scenario.workload.slo_ms:g}"]
    for name, value in scenario.given().items():
        if name in _PARAMETERS:
            words += [option(name), f"{value:g}"]
    words += ["--max-batch", str(max_batch_of(scenario))]
    cus = cus_of(system.preprocessor)
    words += ["--preprocess", "dpu" if cus else "cpu"]
    if scenario.preprocess.processor is not None:
        words += ["--processor", scenario.preprocess.processor]
    for name, count in cus.items():
        words += [_CUS[name], str(count)]
    note = "the DPU is emulated (sw_emu) unless --xclbin gives a card's container" if cus else None
    return shlex.join(words), note
