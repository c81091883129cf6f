"""How each model is served: what the options of `headrace serve` say, or a table of a TOML file with their names."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.batching import UsageError, find_policy, policy_names
from headrace.batching.errors import LONGEST_NAME
from headrace.batching.registry import PolicySettings, policy_with, usable_policies
from headrace.batching.settings import FORMER, Setting, setting, settings, settings_of
from headrace.host.workers.devices import parsed_workers
from headrace.host.workers.networks.foreign.rules import EXPORTED, MEMORY_MIB, FileRules

NAME = re.compile(r"[\w-][\w.: -]{0,254}")  # no way out of a folder, no part of a path in a URL
PREPROCESSORS = ("cpu", "dpu")
NO_PROCESSOR = "none"  # as the processor: images are preprocessed by the network's own transform, or not at all
ENGINES = ("torchvision", "pillow12", "pillow13", "opencv")  # values of `Engine`; the help alone does not import it


@settings()
class ModelSettings:
    """How one model is served. Raises UsageError.

    `source` is a torchvision network, `module:function`, a file of torch.export's (`.pt2`) or its folder, `tensors`, or
    a step model of `headrace.host.workers.networks.sequence_networks.KINDS`. `hidden` to `longest_output` are settings
    of step models (see `Network` there). `processor` is an image processor or a feature extractor of Hugging Face.
    Without one, `resize` (of the shorter side), `crop`, `mean` and `std` (red, green, blue; 1 is white) replace parts
    of the network's own transform.

    `policy_values` are settings of policies, by name. The model's policy takes those that it has: several models of
    different policies may be given the same values. Models that agree in `shared` have their workers and one policy
    in common."""

    name: str = setting(default="model", help="The model's name for clients.")
    source: str = setting(
        default="mobilenet_v3_small",
        help="A torchvision network by name, module:function, FILE.pt2 of torch.export, its folder, a step model, or "
        "tensors, which returns its inputs.",
    )
    weights: Path | None = setting(default=None, help="A state_dict file; fixed random weights without.")
    sha256: str | None = setting(default=None, help="The digest that the file of the source must have.")
    weights_sha256: str | None = setting(default=None, help="The digest that the file of the weights must have.")
    allow_nonfinite_weights: bool = setting(default=False, help="Accept weights that are NaN or infinite.")
    read_memory_mib: int = setting(
        default=MEMORY_MIB,
        help="Memory (MiB) that reading a .pt2 file or weights may take, in addition to 4 times the file's size.",
        ge=64,
        le=1 << 24,
    )
    input_shape: str | None = setting(
        default=None, help="3x299x299, say; what the network says of itself if not given."
    )
    processor: str | None = setting(
        default=None,
        help="Image processor or feature extractor of Hugging Face: a name of `headrace preprocess processors`, a "
        "preprocessor_config.json, a folder that has one, or none; without, such a file in the folder of the weights "
        "counts.",
    )
    engine: str | None = setting(
        default=None,
        help="The library whose bits the image processor gives; torchvision without.",
        choices=ENGINES,
    )
    resize: int | None = setting(
        default=None, help="Resize the shorter side of images to this (pixels).", ge=1, le=65535
    )
    crop: int | None = setting(
        default=None, help="Crop images to a square of this size (pixels), the network's input.", ge=1, le=65535
    )
    mean: tuple[float, ...] | None = setting(
        default=None, help="Subtract R,G,B from pixels of 0 to 1, as in 0.5,0.5,0.5.", ge=0, count=3
    )
    std: tuple[float, ...] | None = setting(
        default=None, help="Divide by R,G,B after the subtraction.", ge=1e-6, count=3
    )
    policy: str = setting(default="preba", help=f"Batching policy: {', '.join(policy_names())}, or module:Class.")
    preprocess: str = setting(
        default="cpu",
        help="Preprocessor of images and audio; inputs that the DPU cannot take go to the CPU.",
        choices=PREPROCESSORS,
    )
    profile: Path | None = setting(default=None, help="From `headrace profile`; measured at the start without.")
    workers: str | None = setting(
        default=None,
        help="Number of workers, or npu:N for N simulated NPUs; without, one worker for each MIG device or core.",
    )
    whole: bool = setting(
        default=False, help="Keep each network in one piece, also under policies that schedule nodes."
    )
    max_batch: int = setting(
        default=32, help="Largest batch to profile, and the limit of policies that have one.", ge=1, le=1024
    )
    slo_ms: float = setting(
        default=100.0,
        help="Target latency (ms). A request without a timeout is late after it.",
        ge=0.001,
    )
    drop_late: bool = setting(
        default=False, help="Answer requests that have not begun in time for their deadline with an error."
    )
    max_queue: int = setting(
        default=256, help="Largest number of inputs in flight of a model. More are refused.", ge=1, le=65536
    )
    hidden: int | None = setting(default=None, help="Size of a step model's hidden state.", ge=1, le=1 << 20)
    vocabulary: int | None = setting(default=None, help="Size of a step model's vocabulary.", ge=2, le=1 << 24)
    longest_input: int | None = setting(default=None, help="Longest input of a step model.", ge=1, le=1 << 20)
    longest_output: int | None = setting(default=None, help="Longest output of a step model.", ge=1, le=1 << 20)
    policy_values: tuple[tuple[str, Any], ...] = ()

    def check(self) -> None:
        """Refuse values that contradict each other."""
        if not self.source or not NAME.fullmatch(self.name) or self.name.strip() != self.name:
            raise UsageError(
                f"--model {self.name + '=' + self.source!r}: give each model a name of letters, digits and . _ - :, as "
                "in NAME=resnet50"
            )
        parsed_workers(self.workers)
        if self.sha256 is not None and not self.source.endswith(EXPORTED):
            raise UsageError(f"model {self.name!r}: sha256 is for a file {EXPORTED}, and its source is {self.source!r}")
        if self.weights_sha256 is not None and self.weights is None:
            raise UsageError(f"model {self.name!r}: weights-sha256 is given without weights; give the file too")
        _ = self.rules, self.chosen

    @property
    def slo_s(self) -> float:
        """Return the target latency (s)."""
        return self.slo_ms / 1e3

    @property
    def rules(self) -> FileRules:
        """Return the rules for reading the model's files. Raises UsageError."""
        return FileRules(
            self.sha256, self.weights_sha256, self.allow_nonfinite_weights, memory_mib=self.read_memory_mib
        )

    @property
    def chosen(self) -> PolicySettings:
        """Return the settings of the model's policy. Raises UsageError."""
        return policy_with(self.policy, **{"max_batch": self.max_batch, **dict(self.policy_values)})

    @property
    def max_batch_tokens(self) -> int | None:
        """Return the largest number of tokens of a batch, a setting of most policies. None if there is no limit."""
        tokens: int | None = getattr(self.chosen, "max_batch_tokens", None)
        return tokens

    @property
    def of_cells(self) -> bool:
        """Tell whether the policy's tasks are of cells, which are programs of their own."""
        return find_policy(self.policy).tasks == "cells"

    @property
    def shared(self) -> tuple[object, ...]:
        """Return what models must have in common to share workers and a policy."""
        return (self.policy, self.chosen, self.workers, self.whole, self.max_batch, self.drop_late)

    def with_policy_values(self, values: Mapping[str, Any]) -> "ModelSettings":
        """Return these settings with some settings of policies changed."""
        return replace(self, policy_values=tuple({**dict(self.policy_values), **values}.items()))


def with_settings(base: ModelSettings, table: Mapping[str, Any], where: str) -> ModelSettings:
    """Return `base` with the settings of a table changed, also those of its policy.

    A key is a setting's name, with dashes. The table may have a table `policy` with the policy's `name` and settings.
    `where` names the table in errors. Raises UsageError."""
    given = _flat(table)
    own = {each.name: each for each in settings_of(ModelSettings)}
    values, of_policy = {}, {}
    policy = given.get("policy", base.policy)
    if not isinstance(policy, str):
        raise UsageError(f"{where}: policy is {repr(policy)[:LONGEST_NAME]}; give a text")
    try:
        known = settings_of_policies(policy)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    for name, value in given.items():
        key = name.replace("_", "-")
        what = f"{where}: {key} is"
        if name in own:
            read = _read(own[name], value, what)
            values[name] = source_of(read) if name == "source" else read
        elif name in known:
            of_policy[name] = _read(known[name], value, what)
        else:
            names = sorted(each.replace("_", "-") for each in (*own, *known))
            raise UsageError(f"{where}: there is no setting {key[:LONGEST_NAME]!r}; known are {', '.join(names)}")
    return replace(base, **values).with_policy_values(of_policy)


def source_of(text: str) -> str:
    """Return the source that a text names: the only .pt2 file of a folder, or the text itself.

    The text of a folder has a slash, because a folder may have the name of a network. Raises UsageError."""
    folder = Path(text)
    if "/" not in text or not folder.is_dir():
        return text
    files = sorted(each for each in folder.iterdir() if each.name.endswith(EXPORTED))
    if len(files) != 1:
        has = f"has {len(files)} files {EXPORTED}" if files else f"has no file {EXPORTED}"
        raise UsageError(f"--model {text}: the folder {has}; save one with torch.export.save there, or name the file")
    return str(files[0])


def name_of(source: str) -> str:
    """Return the name for clients of a model that is given without one, by the text of its source."""
    if source.endswith(EXPORTED):
        return Path(source).stem
    return Path(source).resolve().name if "/" in source else source


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key == "policy" and isinstance(value, dict):
            given |= {"policy" if name == "name" else name: each for name, each in value.items()}
        else:
            given[key] = value
    named = {key.replace("-", "_"): value for key, value in given.items()}
    return {FORMER.get(name, name): value for name, value in named.items()}


def settings_of_policies(policy: str) -> dict[str, Setting]:
    """Return the settings of all known policies and of this one, by name."""
    return {each.name: each for entry in (*usable_policies(), find_policy(policy)) for each in entry.settings}


def _read(known: Setting, value: Any, what: str) -> Any:
    if known.name == "workers" and type(value) is int:
        value = str(value)
    if value is None:
        raise UsageError(f"{what} None; {known.allowed()}")
    if isinstance(value, str) and (not value or "\0" in value):
        raise UsageError(f"{what} {repr(value)[:LONGEST_NAME]}; give a text")
    if isinstance(value, str) and known.kind in (bool, int, float) and not known.many:
        raise UsageError(f"{what} {repr(value)[:LONGEST_NAME]}; {known.allowed()}")
    return known.read(value, what)
