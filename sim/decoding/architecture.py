"""The sizes of a transformer that decodes: layers, heads, experts, and the bytes of its weights and its KV cache.

`named` has the models that the validation needs, and `from_config` reads a config.json of Hugging Face. The models are
decoders of grouped-query attention with gated feed-forward layers, dense or of experts. Other attention is refused:
multi-head latent attention (DeepSeek), linear attention (Qwen3.5), state spaces.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from headrace.batching.errors import UsageError

Precision = Literal["bf16", "fp8", "fp8_static", "fp8_block", "nvfp4", "mxfp4"]
PRECISIONS: Final = ("bf16", "fp8", "fp8_static", "fp8_block", "nvfp4", "mxfp4")
# Bytes of a weight, with its scales: nvfp4 has a scale of a byte for 16 weights, mxfp4 one for 32, and fp8_block four
# bytes for 128 x 128.
WEIGHT_BYTES: Final[Mapping[str, float]] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_static": 1.0,
    "fp8_block": 1.0 + 4 / (128 * 128),
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
}
KEY_BYTES: Final[Mapping[str, float]] = {"bf16": 2.0, "fp8": 1.0}  # of an element in the KV cache
CONFIG: Final = ".json"  # ends the path of a config.json
_SHARED_EXPERTS: Final = ("n_shared_experts", "shared_expert_intermediate_size", "mlp_only_layers")
_MAX_SIZE: Final = 10_000_000
_LATENT, _LINEAR = "multi-head latent attention", "linear attention or a state space"
# Fields of a config.json that say that a model is not one of those above.
_REFUSED: Final[Mapping[str, str]] = {
    "kv_lora_rank": _LATENT,
    "full_attention_interval": _LINEAR,
    "linear_num_value_heads": _LINEAR,
    "linear_attn_config": _LINEAR,
    "ssm_state_size": _LINEAR,
    "hybrid_override_pattern": _LINEAR,
    "block_configs": "layers that differ from each other",
    "index_topk": "sparse attention",
    "encoder_layers": "an encoder",
}


class UnsupportedArchitecture(UsageError):
    """The model is not a decoder of grouped-query attention, or its config.json lacks sizes."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A layer's experts.

    Attributes:
        count: The experts.
        chosen: How many of them a token passes.
        intermediate: The hidden units of an expert.
    """

    count: int
    chosen: int
    intermediate: int


@dataclass(frozen=True, slots=True)
class DecoderArchitecture:
    """The sizes of a decoder. Sizes are in elements.

    Attributes:
        name: The model's name.
        layers: The layers.
        hidden: The elements of a token between layers.
        heads: The heads of queries.
        kv_heads: The heads of keys and values.
        head_dim: The elements of a head.
        intermediate: The hidden units of a dense feed-forward layer. Models of experts do not use it.
        vocab: The tokens of the vocabulary.
        experts: The experts of each layer; None for a dense model.
        window: How many keys a query sees in a layer of sliding-window attention.
        windowed_layers: How many of the layers have that attention.
        tied: Whether the embedding is also the last product (LM head).
        qk_norm: Whether queries and keys have norms of their own.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    experts: Experts | None = None
    window: int = 0
    windowed_layers: int = 0
    tied: bool = False
    qk_norm: bool = False

    def __post_init__(self) -> None:
        for size in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab"):
            if getattr(self, size) < 1:
                raise UnsupportedArchitecture(f"{self.name}: {size} is {getattr(self, size)}; give 1 or more")
        if self.heads % self.kv_heads:
            raise UnsupportedArchitecture(
                f"{self.name}: {self.heads} heads of queries do not share {self.kv_heads} heads of keys equally; "
                "give a number of heads that kv_heads divides"
            )

    @property
    def attention_parameters(self) -> int:
        """Return the weights of one layer's projections of queries, keys, values and outputs."""
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def feed_forward_parameters(self) -> int:
        """Return the weights of one layer's feed-forward part: those of all experts and the router, or the dense."""
        if self.experts is None:
            return 3 * self.hidden * self.intermediate
        return self.experts.count * 3 * self.hidden * self.experts.intermediate

    @property
    def parameters(self) -> int:
        """Return all weights of products and embeddings. Norms and biases are left out."""
        router = self.hidden * self.experts.count if self.experts else 0
        embeddings = (1 if self.tied else 2) * self.vocab * self.hidden
        return embeddings + self.layers * (self.attention_parameters + self.feed_forward_parameters + router)

    def weight_bytes(self, products: Precision = "bf16", experts: Precision | None = None) -> float:
        """Return the bytes of all weights. Embeddings, LM head and router are bf16.

        Args:
            products: The precision of the layers' products.
            experts: The precision of experts; None for that of the products.
        """
        own = WEIGHT_BYTES[experts or products] if self.experts else WEIGHT_BYTES[products]
        layers = self.layers * (self.attention_parameters * WEIGHT_BYTES[products] + self.feed_forward_parameters * own)
        rest = self.parameters - self.layers * (self.attention_parameters + self.feed_forward_parameters)
        return layers + rest * WEIGHT_BYTES["bf16"]

    def kv_bytes(self, keys: str = "bf16", tp: int = 1) -> float:
        """Return the bytes of a token's keys and values on one of `tp` GPUs, in the precision bf16 or fp8.

        Each GPU holds at least one head. Layers with a window count as the others do."""
        return 2 * self.layers * -(-self.kv_heads // tp) * self.head_dim * KEY_BYTES[keys]


_NAMED: Final = (
    DecoderArchitecture("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256),
    DecoderArchitecture("llama-3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256),
    DecoderArchitecture("qwen3-32b", 64, 5120, 64, 8, 128, 25600, 151936, qk_norm=True),
    DecoderArchitecture("qwen3-235b-a22b", 94, 4096, 64, 4, 128, 12288, 151936, Experts(128, 8, 1536), qk_norm=True),
    DecoderArchitecture("minimax-m2.5", 62, 3072, 48, 8, 128, 1536, 200064, Experts(256, 8, 1536), qk_norm=True),
    DecoderArchitecture("gpt-oss-120b", 36, 2880, 64, 8, 64, 2880, 201088, Experts(128, 4, 2880), 128, 18),
)
ARCHITECTURES: Final[Mapping[str, DecoderArchitecture]] = {each.name: each for each in _NAMED}


def named(name: str) -> DecoderArchitecture:
    """Return the architecture of this name, one of ARCHITECTURES. Raises UsageError."""
    if name not in ARCHITECTURES:
        raise UsageError(
            f"there is no decoder {name!r}; choose from {', '.join(ARCHITECTURES)}, or give the path of a config.json"
        )
    return ARCHITECTURES[name]


def architecture_of(model: str) -> DecoderArchitecture:
    """Return the architecture of a name, or of the path of a config.json, which ends in .json. Raises UsageError."""
    return from_config(model) if model.endswith(CONFIG) else named(model)


def from_config(path: str | Path, name: str | None = None) -> DecoderArchitecture:
    """Return the architecture that a config.json of Hugging Face describes.

    The text part of a vision-language model is taken. Raises UnsupportedArchitecture for other models, and UsageError
    if the file is missing or no JSON object.

    Args:
        path: The file.
        name: The model's name; None for that of the file's folder.
    """
    file = Path(path)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read as JSON ({error}); give a config.json of Hugging Face") from None
    if not isinstance(config, dict):
        raise UsageError(f"{file}: has no JSON object; give a config.json of Hugging Face")
    return _Config(file, config).architecture(name or file.resolve().parent.name)


class _Config:
    """The sizes in a config.json; of a model with a vision or audio part, those of its text part."""

    def __init__(self, file: Path, fields: Mapping[str, Any]) -> None:
        self.file = file
        inner = fields.get("text_config")
        self.fields: Mapping[str, Any] = inner if isinstance(inner, dict) else fields

    def architecture(self, name: str) -> DecoderArchitecture:
        """Return the architecture, under this name. Raises UnsupportedArchitecture."""
        for field, attention in _REFUSED.items():
            if self.fields.get(field):
                raise self._refused(
                    f"has {attention} ({field}), which the measured operators do not cover",
                    "choose a decoder of grouped-query attention",
                )
        kinds = self.fields.get("layer_types") or []
        if not isinstance(kinds, list):
            raise self._refused("has layer_types that are no list", "give the kind of each layer")
        if strange := sorted({str(kind) for kind in kinds} - {"full_attention", "sliding_attention"}):
            raise self._refused(
                f"has layers of {', '.join(strange)}", "choose a decoder whose layers have grouped-query attention"
            )
        heads, hidden, layers = map(self._size, ("num_attention_heads", "hidden_size", "num_hidden_layers"))
        window = self._size("sliding_window", 0) if self.fields.get("use_sliding_window", True) else 0
        windowed = kinds.count("sliding_attention") if kinds else layers if window else 0
        return DecoderArchitecture(
            name,
            layers,
            hidden,
            heads,
            self._size("num_key_value_heads", heads),
            self._size("head_dim", hidden // heads),
            self._size("intermediate_size"),
            self._size("vocab_size"),
            self._experts(),
            window if windowed else 0,
            windowed if window else 0,
            bool(self.fields.get("tie_word_embeddings", False)),
            bool(self.fields.get("use_qk_norm", str(self.fields.get("model_type", "")).startswith("qwen3"))),
        )

    def _experts(self) -> Experts | None:
        names = ("num_experts", "num_local_experts", "n_routed_experts")
        count = self._size(next((name for name in names if name in self.fields), names[0]), 0)
        if count < 2:
            return None
        if any(self.fields.get(field) for field in _SHARED_EXPERTS):
            raise self._refused(
                "has shared experts or dense layers beside its experts, which are not covered",
                "choose a model all of whose layers have routed experts alone",
            )
        intermediate = self._size("moe_intermediate_size", 0) or self._size("intermediate_size")
        return Experts(count, self._size("num_experts_per_tok"), intermediate)

    def _size(self, field: str, default: int | None = None) -> int:
        """Return a size, or the default where the file has none or 0. Raises UnsupportedArchitecture."""
        found = self.fields.get(field)
        if default is not None and (found is None or found == 0):
            return default
        if found is None:
            raise self._refused(f"has no {field}", "add it")
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= _MAX_SIZE:
            raise self._refused(f"has {field} {str(found)[:40]}", f"give a whole number from 1 to {_MAX_SIZE}")
        return found

    def _refused(self, what: str, change: str) -> UnsupportedArchitecture:
        return UnsupportedArchitecture(f"{self.file}: {what}; {change}")
