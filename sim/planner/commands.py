"""The commands that do what is planned: simulate it, partition the GPU, serve."""

import shlex
from dataclasses import fields
from typing import Final

from headrace.sim.hardware.gpu.mig import gpu_named, partition
from headrace.sim.scenario import Scenario, server_of
from headrace.sim.system.card import cus_of
from headrace.sim.zoo.traced import traced

# What `headrace serve --model` calls networks that are not torchvision's.
_OWN: Final = {
    "conformer": "headrace.host.workers.networks.zoo.conformer:conformer_ctc",
    "conformer_small": "headrace.host.workers.networks.zoo.conformer:conformer_ctc_small",
    "citrinet": "headrace.host.workers.networks.zoo.citrinet:citrinet",
}
_CUS: Final = {"image cu": "--image-cus", "mel cu": "--mel-cus", "norm cu": "--norm-cus"}
_PARAMETERS: Final = ("window_ms", "bucket_s")  # in Scenario and as options of serve, with the same defaults


def command(scenario: Scenario) -> str:
    """What simulates it."""
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
    """What cuts the GPU so, once it is in MIG mode and empty (MIG User Guide, Creating GPU Instances, where profiles go
    by name too)."""
    instances = partition(gpu_named(scenario.accelerator), scenario.partition or "")
    largest = sorted((each.profile for each in instances), key=lambda of: (-of.sms, -of.memory_slices))
    names = [profile.name for profile in largest]
    return shlex.join(["nvidia-smi", "mig", "-cgi", ",".join(names), "-C"])


def serve(scenario: Scenario) -> tuple[str | None, str | None]:
    """What serves it on a machine that is partitioned so, a worker a slice, and what to know of that; None and why not
    where `headrace serve` cannot."""
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
