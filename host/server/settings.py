"""How each model is served: what the options of `headrace serve` say, or a table of a TOML file with their names."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from headrace.batching import POLICIES, UsageError
from headrace.batching.errors import LONGEST_NAME
from headrace.batching.graphs.profile import KNEE_GROWTH
from headrace.batching.policies.bucketed_graph import BUCKET_WIDTH
from headrace.batching.policies.preba import BUCKET_S
from headrace.batching.registry import CELL_POLICIES
from headrace.host.workers.devices import parsed_workers
from headrace.host.workers.networks.foreign.rules import EXPORTED, MEMORY_MIB, FileRules

NAME = re.compile(r"[\w-][\w.: -]{0,254}")  # no way out of a folder, no part of a path in a URL
PREPROCESSORS = ("cpu", "dpu")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """`source` is a torchvision network, `module:function`, a file of torch.export's (`.pt2`), or a step model of
    `headrace.host.workers.networks.sequence_networks.KINDS`; `hidden` to `longest_output` are such a one's (see
    `Network` there), and `dec_timesteps` the decoder steps that policies which predict assume.

    `resize` (of the shorter side), `crop`, `mean` and `std` (red, green, blue; 1 is white) replace parts of the
    network's own transform.

    `sha256` is the digest that the file of `source` must have, `weights_sha256` that of `weights`.
    `allow_nonfinite_weights` takes weights that are NaN or infinite, and `read_memory_mib` bounds the memory that
    reading the files takes; see `FileRules`.

    A `profile` file of None is measured. `workers` is what the option takes: a number, npu:N, or None. Models that
    agree in `shared` have their workers and one policy in common. Raises UsageError."""

    name: str
    source: str
    weights: Path | None = None
    sha256: str | None = None
    weights_sha256: str | None = None
    allow_nonfinite_weights: bool = False
    read_memory_mib: int = MEMORY_MIB
    input_shape: str | None = None
    resize: int | None = None
    crop: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    policy: str = "preba"
    preprocess: str = "cpu"
    profile: Path | None = None
    workers: str | None = None
    whole: bool = False
    window_s: float = 0.005
    bucket_s: float = BUCKET_S
    bucket_width: int = BUCKET_WIDTH
    merge_buckets: bool = True
    knee_growth: float = KNEE_GROWTH
    max_batch: int = 32
    sla_s: float = 0.1
    drop_late: bool = False
    max_queue: int = 256
    dec_timesteps: int | None = None
    hidden: int | None = None
    vocabulary: int | None = None
    longest_input: int | None = None
    longest_output: int | None = None

    def __post_init__(self) -> None:
        if not self.source or not NAME.fullmatch(self.name) or self.name.strip() != self.name:
            raise UsageError(
                f"--model {self.name + '=' + self.source!r}: give each model a name of letters, digits and . _ - :, as "
                "in NAME=resnet50"
            )
        if self.policy not in POLICIES:
            raise UsageError(f"--policy: there is no {self.policy!r} here; choose from {', '.join(POLICIES)}")
        parsed_workers(self.workers)
        if self.sha256 is not None and not self.source.endswith(EXPORTED):
            raise UsageError(f"model {self.name!r}: sha256 is for a file {EXPORTED}, and its source is {self.source!r}")
        if self.weights_sha256 is not None and self.weights is None:
            raise UsageError(f"model {self.name!r}: weights-sha256 is given without weights; give the file too")
        _ = self.rules

    @property
    def rules(self) -> FileRules:
        """Return the rules for reading the model's files. Raises UsageError."""
        return FileRules(
            self.sha256, self.weights_sha256, self.allow_nonfinite_weights, memory_mib=self.read_memory_mib
        )

    @property
    def shared(self) -> tuple[object, ...]:
        """Of what models must have in common to share workers."""
        kind = self.policy in CELL_POLICIES  # cells are programs of their own
        buckets = (self.bucket_s, self.bucket_width, self.merge_buckets, self.knee_growth)
        limits = (self.window_s, self.max_batch, self.drop_late)
        return (kind, self.policy, self.workers, self.whole, *buckets, *limits)


def with_settings(base: ModelSettings, table: Mapping[str, Any], where: str) -> ModelSettings:
    """`base` with what a table says; `where` names it in errors. Raises UsageError."""
    changes = {}
    for key, value in table.items():
        known = KEYS.get(key)
        if known is None:
            raise UsageError(
                f"{where}: there is no setting {key[:LONGEST_NAME]!r}; known are {', '.join(sorted(KEYS))}"
            )
        try:
            changes[known.field] = known.read(value)
        except ValueError as error:
            raise UsageError(f"{where}: {key} is {repr(value)[:LONGEST_NAME]}; {error}") from None
    return replace(base, **changes)


class _Key(NamedTuple):
    """A key of a table: the field that it sets, and how its value is read. `read` raises ValueError with what to
    give."""

    field: str
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("give a text")
    return value


def _file(value: Any) -> Path:
    return Path(_text(value))


def _workers(value: Any) -> str:
    return str(value) if type(value) is int else _text(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value


def _one_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"choose from {', '.join(names)}")
        return str(value)

    return read


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"give a whole number of {least} to {most}")
        return value

    return read


def _seconds(least_ms: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if type(value) not in (int, float) or not least_ms <= value < math.inf:
            raise ValueError(f"give {least_ms:g} or more milliseconds")
        return float(value) / 1e3

    return read


def _channels(least: float) -> Callable[[Any], tuple[float, ...]]:
    def read(value: Any) -> tuple[float, ...]:
        try:
            found = tuple(float(each) for each in (value.split(",") if isinstance(value, str) else value))
        except (TypeError, ValueError):
            found = ()
        if len(found) != 3 or not all(least <= each < math.inf for each in found):
            raise ValueError(f"give three numbers of {least:g} or more, for red, green and blue, as in 0.5,0.5,0.5")
        return found

    return read


def _bucket_s(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError("give seconds above 0")
    return float(value)


def _knee_growth(value: Any) -> float:
    if type(value) not in (int, float) or not KNEE_GROWTH <= value < math.inf:
        raise ValueError(f"give {KNEE_GROWTH:g} or more")
    return float(value)


KEYS = {
    "name": _Key("name", _text),
    "source": _Key("source", _text),
    "weights": _Key("weights", _file),
    "sha256": _Key("sha256", _text),
    "weights-sha256": _Key("weights_sha256", _text),
    "allow-nonfinite-weights": _Key("allow_nonfinite_weights", _flag),
    "read-memory-mib": _Key("read_memory_mib", _whole(64, 1 << 24)),
    "input-shape": _Key("input_shape", _text),
    "resize": _Key("resize", _whole(1, 65535)),
    "crop": _Key("crop", _whole(1, 65535)),
    "mean": _Key("mean", _channels(0.0)),
    "std": _Key("std", _channels(1e-6)),
    "policy": _Key("policy", _one_of(POLICIES)),
    "preprocess": _Key("preprocess", _one_of(PREPROCESSORS)),
    "profile": _Key("profile", _file),
    "workers": _Key("workers", _workers),
    "whole": _Key("whole", _flag),
    "window-ms": _Key("window_s", _seconds(0)),
    "bucket-s": _Key("bucket_s", _bucket_s),
    "bucket-width": _Key("bucket_width", _whole(1, 100_000)),
    "merge-buckets": _Key("merge_buckets", _flag),
    "knee-growth": _Key("knee_growth", _knee_growth),
    "max-batch": _Key("max_batch", _whole(1, 1024)),
    "sla-ms": _Key("sla_s", _seconds(0.001)),
    "drop-late": _Key("drop_late", _flag),
    "max-queue": _Key("max_queue", _whole(1, 65536)),
    "dec-timesteps": _Key("dec_timesteps", _whole(1, 1 << 20)),
    "hidden": _Key("hidden", _whole(1, 1 << 20)),
    "vocabulary": _Key("vocabulary", _whole(2, 1 << 24)),
    "longest-input": _Key("longest_input", _whole(1, 1 << 20)),
    "longest-output": _Key("longest_output", _whole(1, 1 << 20)),
}
