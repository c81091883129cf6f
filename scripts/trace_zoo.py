#!/usr/bin/env python3
"""Write sim/zoo/graphs/: the operators of each network as PyTorch runs it eagerly.

The networks are torchvision's, this project's own, and some of transformers, all with random weights:

- clip_vit_b_32 takes an image and its text of 77 tokens.
- whisper_small_encoder takes 30 s of audio as a spectrogram, as Whisper pads all sounds.
- whisper_small_decoder makes one token. The length is the number of tokens before it.
- gpt2 reads a prompt, whose tokens are the length. gpt2_step makes one token after so many.

    .venv/bin/python -m scripts.trace_zoo [NAME ...]

--check writes nothing. The exit status is then 1 if a file would change.
"""

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache

from benchmarks.networks import bert_base, bert_large
from headrace.batching.graphs.torch_graph import from_torch
from headrace.batching.graphs.traced import Traced, to_json
from headrace.host.workers.networks.zoo.citrinet import citrinet
from headrace.host.workers.networks.zoo.conformer import conformer_ctc
from headrace.host.workers.networks.zoo.efficientnet_lite0 import EfficientNetLite0
from headrace.sim.zoo.traced import TRACED

FOLDER = Path(__file__).parents[1] / "sim" / "zoo" / "graphs"
SECONDS = (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 35.0)
TOKENS = (32, 64, 128, 256, 384, 512)
PROMPTS = (16, 32, 64, 128, 256, 512, 1024)
BEFORE = {"whisper_small_decoder": (15, 31, 63, 127, 255, 447), "gpt2_step": (15, 31, 63, 127, 255, 511, 1023)}
HOP_S = 0.01  # from one audio frame to the next
STEP_S = {
    "conformer": 0.04,
    "conformer_small": 0.04,
    "citrinet": 0.08,
    "whisper_small_encoder": 0.02,
}  # from one output step to the next


class Prompt(torch.nn.Module):
    """GPT-2 that reads a prompt and gives the logits after its last token.

    It runs the blocks without a mask, as transformers does eagerly. Under torch.export transformers would make one."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="sdpa"))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.run(tokens, 0, None)[:, -1:]

    def run(self, tokens: torch.Tensor, before: int, cache: Any) -> torch.Tensor:
        body = self.model.transformer
        places = torch.arange(before, before + tokens.shape[1])
        states = body.wte(tokens) + body.wpe(places)
        for block in body.h:
            states = block(states, past_key_values=cache)
        return self.model.lm_head(body.ln_f(states[:, -1:]))


class PromptStep(Prompt):
    """GPT-2 that makes one token. `keys` and `values` are those of the tokens before: 1, layers, heads, tokens, 64."""

    def forward(self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return self.run(token, keys.shape[3], cache_of(keys, values))


class WhisperEncoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = transformers.WhisperModel(whisper_small()).encoder

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        return self.encoder(spectrogram).last_hidden_state


class WhisperStep(torch.nn.Module):
    """Whisper's decoder that makes one token. The last two inputs are the keys and values of the audio."""

    def __init__(self) -> None:
        super().__init__()
        model = transformers.WhisperForConditionalGeneration(whisper_small())
        self.decoder, self.head = model.model.decoder, model.proj_out

    def forward(
        self,
        token: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        audio_keys: torch.Tensor,
        audio_values: torch.Tensor,
    ) -> torch.Tensor:
        cache = EncoderDecoderCache(cache_of(keys, values), cache_of(audio_keys, audio_values))
        places = torch.full((1,), keys.shape[3])
        states = self.decoder.embed_tokens(token) + self.decoder.embed_positions.weight[places]
        for layer in self.decoder.layers:
            found = layer(states, encoder_hidden_states=states, past_key_values=cache)
            states = found[0] if isinstance(found, tuple) else found
        return self.head(self.decoder.layer_norm(states))


class Clip(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.CLIPModel(transformers.CLIPConfig())

    def forward(self, tokens: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(input_ids=tokens, pixel_values=image)
        return found.image_embeds, found.text_embeds


def whisper_small() -> Any:
    return transformers.WhisperConfig(
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
    )


def cache_of(keys: torch.Tensor, values: torch.Tensor) -> Any:
    """Return a cache that holds these keys and values, of 1, layers, heads, tokens and elements."""
    cache = DynamicCache()
    for layer in range(keys.shape[1]):
        held = DynamicLayer()
        held.lazy_initialization(keys[:, layer], values[:, layer])
        held.keys, held.values = keys[:, layer], values[:, layer]
        cache.layers.append(held)
    return cache


def cached(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values of 12 layers of 12 heads of 64 elements."""
    return torch.zeros(1, 12, 12, tokens, 64), torch.zeros(1, 12, 12, tokens, 64)


def of_transformers(name: str) -> tuple[torch.nn.Module, dict[float, tuple[torch.Tensor, ...]]]:
    """Return a network of transformers, and its inputs by length."""
    token = torch.zeros(1, 1, dtype=torch.long)
    match name:
        case "clip_vit_b_32":
            return Clip(), {1.0: (torch.zeros(1, 77, dtype=torch.long), torch.zeros(1, 3, 224, 224))}
        case "whisper_small_encoder":
            return WhisperEncoder(), {1500.0: (torch.zeros(1, 80, 3000),)}
        case "whisper_small_decoder":
            audio = cached(1500)
            return WhisperStep(), {float(before): (token, *cached(before), *audio) for before in BEFORE[name]}
        case "gpt2":
            return Prompt(), {float(tokens): (torch.zeros(1, tokens, dtype=torch.long),) for tokens in PROMPTS}
        case _:
            return PromptStep(), {float(before): (token, *cached(before)) for before in BEFORE[name]}


def trace(name: str) -> Traced:
    """Trace a network at each of its input lengths."""
    module: torch.nn.Module
    inputs: dict[float, tuple[torch.Tensor, ...]] = {}
    if name in OF_TRANSFORMERS:
        module, inputs = of_transformers(name)
    elif name in STEP_S:
        module = (
            citrinet()
            if name == "citrinet"
            else conformer_ctc("conformer_ctc_small" if name == "conformer_small" else "conformer_ctc_large")
        )
        for seconds in SECONDS:
            frames = round(seconds / HOP_S) + 1
            inputs[seconds / STEP_S[name]] = (torch.zeros(1, 80, frames), torch.tensor([frames]))
    elif name in ("bert_base", "bert_large"):
        module = bert_base() if name == "bert_base" else bert_large()
        inputs = {float(tokens): (torch.zeros(1, tokens, dtype=torch.long),) for tokens in TOKENS}
    elif name == "efficientnet_lite0":
        module, inputs = EfficientNetLite0(), {1.0: (torch.zeros(1, 3, 224, 224),)}
    else:
        from headrace.host.workers.networks.zoo.torchvision_networks import torchvision

        module = getattr(torchvision.models, name)(
            weights=None, **({"init_weights": False} if name == "inception_v3" else {})
        )
        pixels = 299 if name == "inception_v3" else 224
        inputs = {1.0: (torch.zeros(1, 3, pixels, pixels),)}
    elements = {length: sum(tensor.numel() for tensor in tensors) for length, tensors in inputs.items()}
    # BERT-large is compared with measurements of an older torch, in which attention is several operators.
    with sdpa_kernel(SDPBackend.MATH) if name == "bert_large" else contextlib.nullcontext():
        graphs = {length: from_torch(module, tensors, name=name) for length, tensors in inputs.items()}
    return Traced(name, STEP_S.get(name), elements, graphs)


OF_TRANSFORMERS = ("clip_vit_b_32", "whisper_small_encoder", "whisper_small_decoder", "gpt2", "gpt2_step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=TRACED, metavar="NAME", help=", ".join(TRACED))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    stale = []
    for name in options.names:
        text, path = to_json(trace(name)), FOLDER / f"{name}.json"
        if options.check:
            stale += [] if path.exists() and path.read_text() == text else [name]
        else:
            path.write_text(text)
            print(f"{path.relative_to(Path.cwd())}: {len(text):,} bytes", flush=True)
    if stale:
        sys.exit(f"these files differ from a new trace: {', '.join(stale)}; run scripts/trace_zoo.py without --check")


if __name__ == "__main__":
    main()
