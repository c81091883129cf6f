"""Why some classes of rows are missed: the same rows, predicted with one change of the model.

A change that brings a class near says what its measured servers did, or which table misleads. The published errors are
those without any change, and no change is fitted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.batching.steps.prefill_first import PrefillFirst
from headrace.batching.steps.registry import StepPolicySettings
from headrace.sim.experiments.aiconfigurator.samples import Sample
from headrace.sim.hardware.gpu.tables import SGLANG, TENSORRT_LLM, VLLM


@dataclass(frozen=True, slots=True)
class Cause:
    """A change of the model, and the rows that it is tried on.

    Attributes:
        words: What is changed.
        tried_on: Says whether a row is one of them.
        tables: The server whose tables are taken; None for the row's own.
        cached: Whether prompts take the time of their last token alone, as if all others were in the cache.
        policy: The rule of the server's steps; None for that of samples.py.
    """

    words: str
    tried_on: Callable[[Sample], bool]
    tables: str | None = None
    cached: bool = False
    policy: Callable[[Sample], StepPolicySettings] | None = None


def _of(backend: str, model: str, *gpus: str, precision: str = "") -> Callable[[Sample], bool]:
    def tried_on(sample: Sample) -> bool:
        named = (sample.backend, sample.model) == (backend, model)
        return named and sample.gpu in gpus and precision in ("", sample.precision)

    return tried_on


CAUSES: Final[Mapping[str, Cause]] = {
    "products of vLLM": Cause(
        "SGLang's tables in place of vLLM's",
        _of(VLLM, "minimax-m2.5", "h100", "h200", "b200", "b300", precision="fp8"),
        tables=SGLANG,
    ),
    "products of TensorRT-LLM": Cause(
        "SGLang's tables in place of TensorRT-LLM's",
        _of(TENSORRT_LLM, "llama-3.1-70b", "b200", precision="fp4"),
        tables=SGLANG,
    ),
    "cached prompts": Cause("prompts that are in the cache", _of(VLLM, "llama-3.1-8b", "h200"), cached=True),
    "defaults of SGLang": Cause(
        "SGLang's defaults: prompts go first, and wait for no limit of their own",
        lambda sample: sample.mixed and sample.gpu == "h200",
        policy=lambda sample: PrefillFirst(max_num_seqs=sample.requests),
    ),
    "experts of SGLang": Cause(
        "TensorRT-LLM's tables in place of SGLang's", _of(SGLANG, "qwen3-235b-a22b", "h200"), tables=TENSORRT_LLM
    ),
}
