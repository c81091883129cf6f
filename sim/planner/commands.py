"""Write the commands that carry out a plan: simulate it, partition the GPU, serve."""

import shlex
from dataclasses import fields
from typing import Final

from headrace.sim.hardware.gpu.mig import gpu_named, partition
from headrace.sim.scenario import Scenario, server_of
from headrace.sim.system.card import cus_of
from headrace.sim.zoo.traced import traced

# The names in `headrace serve --model` of networks that are not torchvision's.
_OWN: Final = {
    "conformer": "headrace.host.workers.networks.zoo.conformer:conformer_ctc",
    "conformer_small": "headrace.host.workers.networks.zoo.conformer:conformer_ctc_small",
    "citrinet": "headrace.host.workers.networks.zoo.citrinet:citrinet",
}
_CUS: Final = {"image cu": "--image-cus", "mel cu": "--mel-cus", "norm cu": "--norm-cus"}
_PARAMETERS: Final = ("window_ms", "bucket_s")  # fields of Scenario that are options of serve, with the same defaults


def command(scenario: Scenario) -> str:
    """Return the command that simulates a scenario."""
    words = ["headrace", "simulate"]
    for field in fields(Scenario):
        value = getattr(scenario, field.name)
        if value != field.default:
            option = field.name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            else:
                words += [f"--{option}", str(value)]
    return shlex.join(words)


def mig(scenario: Scenario) -> str:
    """Return the command that partitions the GPU, once it is in MIG mode and empty.

    The MIG User Guide, "Creating GPU Instances", allows profiles by name."""
    instances = partition(gpu_named(scenario.accelerator), scenario.partition or "")
    largest = sorted((each.profile for each in instances), key=lambda of: (-of.sms, -of.memory_slices))
    names = [profile.name for profile in largest]
    return shlex.join(["nvidia-smi", "mig", "-cgi", ",".join(names), "-C"])


def serve(scenario: Scenario) -> tuple[str | None, str | None]:
    """Return the command that serves the scenario with a worker for each slice, and a note about it.

    The machine must be partitioned already. Where `headrace serve` cannot do it, the command is None and the note says
    why."""
    if scenario.preprocess == "nvjpg":
        return None, "headrace serve has no nvjpg; give --preprocess cpu, or decode in front of it"
    texts = [name for name in scenario.models() if traced(name).step_s is None and len(traced(name).graphs) > 1]
    if texts:
        return None, f"headrace serve has no {texts[0]} of its own; give --model module:function that returns yours"
    if scenario.by_phase:
        return None, "headrace serve knows of no phases; its smdp estimates the rate instead: leave out --by-phase"
    system, _ = server_of(scenario)
    words = ["headrace", "serve"]
    for name in scenario.models():
        words += ["--model", f"{name}={_OWN[name]}" if name in _OWN else name]
    words += ["--policy", scenario.policy, "--workers", str(len(system.slices)), "--sla-ms", f"{scenario.sla_ms:g}"]
    for name in _PARAMETERS:
        value = getattr(scenario, name)
        if value != getattr(Scenario(), name):
            words += [f"--{name.replace('_', '-')}", f"{value:g}"]
    words += ["--max-batch", str(scenario.max_batch)]
    cus = cus_of(system.preprocessor)
    words += ["--preprocess", "dpu" if cus else "cpu"]
    for name, count in cus.items():
        words += [_CUS[name], str(count)]
    note = "the DPU is emulated (sw_emu) unless --xclbin gives a card's container" if cus else None
    return shlex.join(words), note
