"""The measured servers: rows of silicon_sample.csv in the package aiconfigurator-core, and how each was set.

A row says the server, the model, the GPU, how many GPUs share the model, the lengths of prompt and output, and how many
requests were in flight. It does not say all settings of the server. `setting_of` and `policy_of` add them, from
checkpoints and from the benchmarks' own scripts, and never from the measured times:

- Rows of InferenceMAX have lengths drawn from 80 to 100 % of the nominal ones. Its scripts ask for a KV cache in fp8,
  except for gpt-oss on Hopper and MiniMax on H100. They let TensorRT-LLM take 16,384 tokens a step, or 20,000 for
  gpt-oss. Its dense models in fp8 are NVIDIA's checkpoints, which have static scales.
- Other rows have what the file says, and the servers' defaults: a KV cache in bf16, and 8,192 tokens a step.
- NVIDIA's rows of SGLang come from servers that aiconfigurator sets up. Its rule for SGLang
  (`generator/rule_plugin/sglang.rule`) lets a step have 1,500 prompt tokens more than the nominal prompt. Since January
  2026 it also lets steps with prompts decode (--enable-mixed-chunk). Its files for SGLang 0.5.6 and later came after
  that, and those for 0.5.1 before.
- A step of TensorRT-LLM has at least one whole prompt beside all requests that decode. Requests reserve blocks for all
  their tokens (its policy GUARANTEED_NO_EVICT, the default).
- Checkpoints of Qwen3-235B and MiniMax in fp8 have scales for blocks. gpt-oss has experts in mxfp4 and all else in
  bf16. MiniMax in nvfp4 has attention in bf16.
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from headrace.batching.steps.cellular import CellularSteps
from headrace.batching.steps.continuous import Continuous
from headrace.batching.steps.prefill_first import PrefillFirst
from headrace.batching.steps.registry import StepPolicySettings
from headrace.sim.decoding.architecture import ARCHITECTURES, Precision
from headrace.sim.decoding.latency import GPUS
from headrace.sim.hardware.gpu.tables import DECODER_FOLDERS, SGLANG, TENSORRT_LLM, package_file

FILE: Final = "silicon_sample.csv"
MODELS: Final[Mapping[str, str]] = {
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
}
# Who measured a row. Dynamo's rows are of several servers behind a router: the requests of each are a share of all.
INFERENCEMAX, DYNAMO, NVIDIA = "InferenceMAX", "Dynamo", "NVIDIA"
_INFERENCEMAX: Final = re.compile(r"source_file=\d{4}-\d\d-\d\d\.csv|db-dump/")
_HOPPER: Final = ("h100", "h200")
_MIXED_SINCE: Final = (0, 5, 6)  # the first release of SGLang that aiconfigurator starts with --enable-mixed-chunk
_TOKENS: Final = 8192  # of a step, where no script says otherwise: vLLM's and SGLang's default on these GPUs
_MORE_PROMPT: Final = 1500  # tokens of a step's prompts beyond the nominal prompt


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured row.

    Attributes:
        source: Who measured it: INFERENCEMAX, DYNAMO, or NVIDIA for the rest.
        backend, checkpoint, gpu: The server, the model's name in the file, and the GPU's in the tables.
        precision: What the file calls the number format; bf16 where it says nothing.
        blocks: Whether the file says that scales in fp8 are those of blocks.
        prompt, output: The nominal tokens of a request.
        requests: How many were in flight.
        tp: The GPUs that share the model.
        ep: The groups into which they share its experts.
        mixed: Whether the server is SGLang, and lets steps with prompts decode.
        ttft_s, tpot_s: The measured times to the first token and for each further one.
    """

    source: str
    backend: str
    checkpoint: str
    gpu: str
    precision: str
    blocks: bool
    prompt: int
    output: int
    requests: int
    tp: int
    ep: int
    mixed: bool
    ttft_s: float
    tpot_s: float

    @property
    def model(self) -> str:
        """Return the model's name, one of ARCHITECTURES."""
        return MODELS[self.checkpoint]


@dataclass(frozen=True, slots=True)
class Setting:
    """How a server was set. The formats are those of `StepLatency`.

    Attributes:
        products, experts, keys: The number formats.
        shortest: The shortest length, as a share of the nominal one.
    """

    products: Precision
    experts: Precision | None
    keys: str
    shortest: float


@dataclass(frozen=True, slots=True)
class Samples:
    """The rows that can be predicted, and how many of the others there are, by the reason."""

    rows: tuple[Sample, ...]
    left_out: Mapping[str, int]


def read_samples() -> Samples:
    """Return the measured rows. Raises UsageError if the package is missing."""
    rows: dict[Sample, None] = {}
    left_out: Counter[str] = Counter()
    folders = {folder: gpu for gpu, folder in DECODER_FOLDERS.items()}
    with package_file(FILE).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            reason = _left_out(row)
            sample = None if reason else _sample(row, folders)
            if sample is None:
                left_out[reason] += 1
            elif sample in rows:
                left_out["repeats another row"] += 1
            else:
                rows[sample] = None
    return Samples(tuple(rows), dict(left_out.most_common()))


def _left_out(row: Mapping[str, str]) -> str:
    """Return why a row is left out; nothing for one that is not."""
    if row["mode"] != "agg":
        return "prompts and outputs on separate GPUs"
    if row["model_path"] not in MODELS:
        return "a model whose attention is not covered"
    if int(row["tp_size"]) not in GPUS or row["pp_size"] not in ("", "1"):
        return "more than 8 GPUs, or stages of layers"
    if int(row["attention_dp_size"] or 1) > 1:
        return "attention shared by requests"
    if _has_experts(row) and _shared(row, "moe_tp_size") * _shared(row, "moe_ep_size") != int(row["tp_size"]):
        return "experts on another number of GPUs than attention"
    return ""


def _has_experts(row: Mapping[str, str]) -> bool:
    return ARCHITECTURES[MODELS[row["model_path"]]].experts is not None


def _shared(row: Mapping[str, str], field: str) -> int:
    return max(1, int(row[field] or 1))  # some rows have 0 where nothing is shared


def _sample(row: Mapping[str, str], folders: Mapping[str, str]) -> Sample:
    given = row["silicon_data_source"]
    source = INFERENCEMAX if _INFERENCEMAX.match(given) else DYNAMO if "dynamo" in given else NVIDIA
    release = tuple(int(part) for part in re.findall(r"\d+", row["backend_version"])[:3])
    return Sample(
        source,
        row["backend"],
        row["model_path"],
        folders[row["system"]],
        row["precision"] or "bf16",
        row["gemm_quant_mode"] == "fp8_block",
        int(row["isl"]),
        int(row["osl"]),
        int(row["batch_size"]),
        int(row["tp_size"]),
        _shared(row, "moe_ep_size") if _has_experts(row) else 1,
        row["backend"] == SGLANG and source == NVIDIA and release >= _MIXED_SINCE,
        float(row["silicon_ttft_ms"]) / 1e3,
        float(row["silicon_tpot_ms"]) / 1e3,
    )


def setting_of(sample: Sample) -> Setting:
    """Return how the server of a sample was set."""
    public = sample.source == INFERENCEMAX
    setting = Setting("bf16", None, "bf16", 0.8 if public else 1.0)
    match sample.model, sample.precision:
        case "gpt-oss-120b", _:
            return replace(setting, experts="mxfp4", keys="bf16" if sample.gpu in _HOPPER else "fp8")
        case "minimax-m2.5", "fp4":
            return replace(setting, experts="nvfp4", keys="fp8")
        case "minimax-m2.5", _:
            return replace(setting, products="fp8_block", keys="bf16" if sample.gpu == "h100" else "fp8")
        case "qwen3-235b-a22b", _:
            return replace(setting, products="fp8_block")
        case _, "bf16":
            return setting
        case _, "fp4":
            return replace(setting, products="nvfp4", keys="fp8")
        case _ if public or sample.checkpoint.startswith("nvidia/"):
            return replace(setting, products="fp8_static", keys="fp8")
        case _:
            return replace(setting, products="fp8_block" if sample.blocks else "fp8")


def policy_of(sample: Sample) -> StepPolicySettings:
    """Return the rule by which the server of a sample forms its steps. It never limits the number of requests."""
    requests = sample.requests
    if sample.backend == TENSORRT_LLM:
        tokens = _TOKENS
        if sample.source == INFERENCEMAX:
            tokens = 20000 if sample.model == "gpt-oss-120b" else 16384
        return CellularSteps(max(tokens, sample.prompt + requests), requests, reserved_output=1.0)
    if sample.backend == SGLANG:
        return PrefillFirst(_TOKENS, requests, sample.prompt + _MORE_PROMPT, sample.mixed)
    return Continuous(max(_TOKENS, requests), requests)
