"""Hold the target of a plan for a model that decodes: its requests, two target latencies, and the kind of server."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from headrace.batching.errors import UsageError
from headrace.batching.settings import setting, settings
from headrace.batching.steps.settings import MAX_TOKENS
from headrace.sim.decoding.architecture import ARCHITECTURES, PRECISIONS, DecoderArchitecture, from_config, named
from headrace.sim.decoding.latency import GPUS
from headrace.sim.decoding.multimodal import CROSS_ATTENTION, MULTIMODAL, MultimodalArchitecture, multimodal
from headrace.sim.hardware.gpu.power import GPU_PARTS
from headrace.sim.hardware.gpu.tables import BACKENDS, FOLDERS, VLLM
from headrace.sim.planner.target import MAX_GPUS, QUANTILES
from headrace.sim.system.cost import PRICES_USD, given_prices
from headrace.sim.workload.images import ImageSizes, parse_sizes

PLANNED_GPUS: Final = tuple(gpu for gpu in FOLDERS if gpu in GPU_PARTS and gpu in PRICES_USD)
IMAGES: Final = re.compile(r"([0-9]{1,3}):(.+)", re.ASCII)
MAX_IMAGES: Final = 64


PLANNED_MODELS: Final = (*MULTIMODAL, *ARCHITECTURES)


def decodes(model: str) -> bool:
    """Return whether a plan for this --model is one of a model that decodes."""
    return model in PLANNED_MODELS or model in CROSS_ATTENTION or model.endswith(".json")


@settings()
class DecodingTarget:
    """The target of a plan for a model that decodes."""

    model: str = setting(default="", help="The model: a name, or the config.json of a decoder.")
    gpu: str = setting(default="h100", help="The kind of GPU.", choices=PLANNED_GPUS)
    rate_rps: float = setting(default=1.0, help="Arrival rate (requests/s), a Poisson process.", gt=0)
    slo_ttft_ms: float = setting(
        default=1000.0, help="Target (ms) for the time to first token, preprocessing included.", gt=0
    )
    slo_tpot_ms: float = setting(default=50.0, help="Target (ms) for each output token after the first.", gt=0)
    quantile: float = setting(
        default=0.99, help="Share of requests that must meet both targets.", ge=QUANTILES[0], le=QUANTILES[1]
    )
    gpus: int = setting(default=MAX_GPUS, help="Largest number of GPUs.", ge=1, le=MAX_GPUS)
    node_gpus: int | None = setting(
        default=None, help="GPUs of a node, which share its cores and its DPUs [those of one replica].", ge=1, le=16
    )
    budget_usd: float | None = setting(default=None, help="Largest cost (dollars) of servers and their energy.", gt=0)
    prices: str | None = setting(default=None, help="Prices of parts, such as node=6000,kwh=0.2.")
    images: str | None = setting(
        default=None, help="Images of each request: COUNT:SIZE[,SIZE...], such as 1:2048x2048 or 2:640x427,1024x768:3."
    )
    audio_s: float | None = setting(default=None, help="Seconds of audio of each request.", gt=0, le=30)
    prompt_tokens: int = setting(default=64, help="Tokens of text in each prompt.", ge=1, le=MAX_TOKENS)
    system_tokens: int = setting(
        default=0, help="Tokens of a system prompt, with which all prompts begin.", ge=0, le=MAX_TOKENS
    )
    prefix_caching: bool = setting(default=True, help="Keep the system prompt in the KV cache.")
    output_tokens: int = setting(default=128, help="Output tokens of each request.", ge=1, le=MAX_TOKENS)
    kernels: str = setting(default=VLLM, help="Server whose kernels run.", choices=tuple(BACKENDS))
    tp: int = setting(default=1, help=f"GPUs that share each layer: {', '.join(map(str, GPUS))}.", ge=1, le=max(GPUS))
    weight_precision: str = setting(default="bf16", help="Number format of the layers' products.", choices=PRECISIONS)
    kv_precision: str = setting(default="bf16", help="Number format of the KV cache.", choices=("bf16", "fp8"))
    library: str | None = setting(
        default=None, help="Library that preprocesses on the CPU [the one with the least measured time]."
    )
    trial_requests: int = setting(default=2000, help="Requests of each simulation, at least.", ge=100, le=1_000_000)

    def check(self) -> None:
        """Refuse values that contradict each other."""
        try:
            given_prices(self.prices)
        except UsageError as error:
            raise UsageError(f"--prices: {error}") from error
        if self.tp > self.gpus:
            raise UsageError(f"--tp {self.tp} needs {self.tp} GPUs, and --gpus allows {self.gpus}; allow more")
        if self.node_gpus is not None and self.node_gpus % self.tp:
            raise UsageError(
                f"--node-gpus {self.node_gpus} does not hold whole replicas of --tp {self.tp} GPUs; give a multiple of "
                f"{self.tp}"
            )
        kind = self.kind
        if kind == "image" and self.images is None:
            raise UsageError(f"--images is missing: {self.model} takes images; give some such as 1:2048x2048")
        if kind == "audio" and self.audio_s is None:
            raise UsageError(f"--audio-s is missing: {self.model} takes audio; give its seconds, 30 at most")
        for option, given, wants in (("--images", self.images, "image"), ("--audio-s", self.audio_s, "audio")):
            if given is not None and kind != wants:
                takes = f"takes {kind if kind == 'audio' else 'images'}" if kind else "takes text alone"
                raise UsageError(f"{option}: {self.model} {takes}; leave it out, or choose another model")
        if self.library is not None and kind is None:
            raise UsageError(f"--library: {self.model} takes text alone, which is not preprocessed; leave it out")
        if self.images is not None:
            parse_images(self.images)

    @property
    def multimodal(self) -> MultimodalArchitecture | None:
        """Return the model with its encoder; None for one that takes text alone."""
        return multimodal(self.model) if self.model in (*MULTIMODAL, *CROSS_ATTENTION) else None

    @property
    def decoder(self) -> DecoderArchitecture:
        """Return the decoder. Raises UsageError if there is none of this name."""
        if (both := self.multimodal) is not None:
            return both.decoder
        return from_config(self.model) if self.model.endswith(".json") else named(self.model)

    @property
    def kind(self) -> str | None:
        """Return "image" or "audio"; None for a model that takes text alone. Raises UsageError for no model."""
        both = self.multimodal
        if both is None:
            self.decoder  # noqa: B018  an unknown name is an error
            return None
        return both.kind

    @property
    def node_replicas(self) -> int:
        """Return how many replicas a node has room for."""
        return 1 if self.node_gpus is None else self.node_gpus // self.tp

    @property
    def late(self) -> float:
        """Return the share of requests that may miss a target."""
        return 1 - self.quantile


@dataclass(frozen=True, slots=True)
class RequestImages:
    """The images of each request: how many, and the sizes from which each is drawn."""

    count: int
    sizes: ImageSizes


@lru_cache(maxsize=4)
def parse_images(text: str) -> RequestImages:
    """Return the images that a text such as "1:2048x2048" or "2:640x427,1024x768:3" describes. Raises UsageError."""
    found = IMAGES.fullmatch(text.strip())
    if found is None or not 1 <= int(found[1]) <= MAX_IMAGES:
        raise UsageError(
            f"--images {text[:60]}: give COUNT:WIDTHxHEIGHT with 1 to {MAX_IMAGES} images, such as 1:2048x2048"
        )
    try:
        return RequestImages(int(found[1]), parse_sizes(found[2]))
    except UsageError as error:
        raise UsageError(f"--images {text[:60]}: {error}") from error
