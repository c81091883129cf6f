"""Preprocess every input file once on the CPU and once on the DPU, before the runs."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from headrace.batching import CorruptInput, UsageError
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Preprocessed, Preprocessor


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """An input file, its tensor by the CPU path, and the answer of the DPU's driver (None without a DPU)."""

    name: str
    data: bytes
    cpu_tensor: NDArray[Any]
    dpu: Preprocessed | None

    @property
    def on_dpu(self) -> bool:
        """Whether a CU made the tensor. The driver passes files that the CUs do not take to the CPU."""
        return self.dpu is not None and self.dpu.unit != "cpu"

    @property
    def tensor(self) -> NDArray[Any]:
        """The tensor that the `beforehand` runs send: the driver's, or the CPU's without a DPU."""
        return self.cpu_tensor if self.dpu is None else self.dpu.tensor


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """The input files that can be used, and the reason for each of the others in `skipped`, by name.

    `cpu_s` is the time that one thread took to preprocess all of `files`, one after another."""

    files: Sequence[PreparedFile]
    skipped: Mapping[str, str]
    cpu_s: float

    @property
    def dpu_s(self) -> float:
        """The time that the DPU took for the files that it took, one after another."""
        return sum(file.dpu.finished - file.dpu.started for file in self.files if file.dpu is not None and file.on_dpu)

    @property
    def files_per_s(self) -> dict[str, float]:
        """The rate of one file at a time, by "cpu" on one thread and by "dpu". It is 0 if the DPU took no file."""
        on_dpu = sum(file.on_dpu for file in self.files)
        return {"cpu": len(self.files) / self.cpu_s, "dpu": on_dpu / self.dpu_s if on_dpu else 0.0}

    @property
    def unsupported(self) -> dict[str, int]:
        """How many files the DPU did not take, by the name of the status."""
        return dict(
            Counter(
                file.dpu.dpu_status or "no CU in service"
                for file in self.files
                if file.dpu is not None and file.dpu.unit == "cpu"
            )
        )


async def prepare_files(
    kind: str,
    files: Sequence[tuple[str, bytes]],
    on_cpu: Callable[[bytes], NDArray[Any]],
    dpu: Dpu[Any] | None,
    step: Callable[[], None],
) -> PreparedFiles:
    """Preprocess each file, given by name and bytes, with `on_cpu` and, if there is one, with `dpu`.

    `step` is called for each file; `kind` names the files in errors ("photos"). Raises UsageError if no file can be
    used."""
    prepared = []
    skipped = {}
    cpu_s = 0.0
    for name, data in files:
        step()
        started = time.monotonic()
        try:
            tensor = on_cpu(data)
        except (CorruptInput, UsageError) as error:
            skipped[name] = str(error)
            continue
        cpu_s += time.monotonic() - started
        prepared.append(PreparedFile(name, data, tensor, None if dpu is None else await dpu.process(data)))
    if not prepared:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(skipped.items())[:3])
        raise UsageError(f"none of the {len(files)} {kind} can be used ({reasons})")
    return PreparedFiles(prepared, skipped, cpu_s)


@dataclass(frozen=True, slots=True)
class FileSource:
    """A `Source` (runs/serving.py) whose request i sends file `order[i % len(order)]`.

    The request sends the tensor that `preprocessor` makes or, without one, the tensor that was made beforehand.
    `model_input` makes the network's input of a tensor. `compare_file` compares a tensor with the reference of the file
    with that index, and returns whether they agree and the largest difference."""

    files: Sequence[PreparedFile]
    preprocessor: Preprocessor[Any] | None
    order: Sequence[int]
    model_input: Callable[[NDArray[Any]], Any]
    compare_file: Callable[[int, NDArray[Any]], tuple[bool, float]]

    def _index(self, number: int) -> int:
        return self.order[number % len(self.order)]

    def name(self, number: int) -> str:
        return self.files[self._index(number)].name

    async def value(self, number: int) -> tuple[Any, Preprocessed | None]:
        file = self.files[self._index(number)]
        if self.preprocessor is None:
            return self.model_input(file.tensor), None
        preprocessed = await self.preprocessor.process(file.data)
        return self.model_input(preprocessed.tensor), preprocessed

    def options(self, number: int) -> Mapping[str, Any]:
        return {}

    def compare(self, number: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        return self.compare_file(self._index(number), tensor)
