"""Networks as PyTorch runs them eagerly: every node with its matrix products and all kernels that are launched for it.

scripts/trace_zoo.py traces torchvision's networks, this project's own and some of transformers. The traces are kept as
data (graphs/), so that the simulator needs no torch.
"""

import difflib
from functools import cache
from importlib import resources

from headrace.batching.errors import UnknownModel
from headrace.batching.graphs.traced import Traced, from_json
from headrace.batching.named import is_own
from headrace.sim.zoo import GROUP

TRACED = (
    "mobilenet_v3_small",
    "efficientnet_lite0",
    "squeezenet1_1",
    "swin_t",
    "conformer",
    "conformer_small",
    "citrinet",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg16",
    "vgg19",
    "mobilenet_v2",
    "densenet121",
    "densenet169",
    "densenet201",
    "inception_v3",
    "bert_base",
    "bert_large",
    "vit_b_16",
    "clip_vit_b_32",
    "whisper_small_encoder",
    "whisper_small_decoder",
    "gpt2",
    "gpt2_step",
)


@cache
def traced(name: str) -> Traced:
    """Return one of `TRACED`. Raises UnknownModel for any other name."""
    if name not in TRACED and is_own(name, GROUP):
        raise UnknownModel(f"there is no traced network {name!r}; a graph of your own runs on --accelerator npu")
    if name not in TRACED:
        close = difflib.get_close_matches(name, TRACED, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"choose from {', '.join(TRACED)}"
        raise UnknownModel(f"there is no traced network {name!r}; {hint}")
    return from_json(resources.files(__package__).joinpath("graphs", f"{name}.json").read_text(encoding="utf-8"))
