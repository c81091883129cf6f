"""This program writes a small Qwen2-VL with random weights: python examples/tiny_qwen2_vl.py FOLDER.

It has the processor, the chat template and the architecture of Qwen2-VL, and 4 million parameters. Its answers mean
nothing, but they depend on every token and every pixel. So it shows whether a server is set up as it should be.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import headrace.host.workers.networks.zoo.torchvision_operators  # noqa: F401 (for a torchvision built for CUDA)

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|>\
<|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def byte_tokenizer(
    special: Sequence[str], template: str | None, end: str = "<|im_end|>", **named: str
) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are bytes, and special tokens.

    Args:
        special: Special tokens. The first is for padding.
        template: The chat template, if the model has one.
        end: The special token that ends an answer.
        named: Further special tokens, by the names that they have as attributes.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={each: number for number, each in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*special, *named.values()])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=end,
        pad_token=special[0],
        additional_special_tokens=[*special[1:]],
        extra_special_tokens=named,
        chat_template=template,
    )


def randomize(network: torch.nn.Module) -> None:
    """Give a network random weights with which its answers depend on all of its inputs."""
    with torch.no_grad():
        for name, values in network.named_parameters():
            if values.ndim > 1:
                of_tokens = "embed" in name or "head" in name
                values.normal_(0, 0.25 if of_tokens else 2 / values[0].numel() ** 0.5)


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return the tokenizer of the small Qwen2-VL."""
    return byte_tokenizer((*SPECIAL, "<|video_pad|>"), TEMPLATE)


def language_model(tokens: transformers.PreTrainedTokenizerFast) -> dict[str, object]:
    """Return the settings of a small language model of Qwen2."""
    return {
        "vocab_size": 512,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
        "bos_token_id": tokens.convert_tokens_to_ids("<|endoftext|>"),
        "eos_token_id": tokens.convert_tokens_to_ids("<|im_end|>"),
    }


def qwen2_vl(folder: Path, weights: bool = False, **settings: object) -> Path:
    """Write a Qwen2-VL to a folder: its processor, and a small random network if vLLM is to run it."""
    tokens = tokenizer()
    number = tokens.convert_tokens_to_ids
    processor = transformers.Qwen2VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(**settings),
        tokenizer=tokens,
        video_processor=transformers.Qwen2VLVideoProcessor(),
        chat_template=TEMPLATE,
    )
    processor.save_pretrained(folder)
    config = transformers.Qwen2VLConfig(
        text_config=language_model(tokens),
        vision_config={
            "depth": 4,
            "embed_dim": 128,
            "hidden_size": 256,
            "num_heads": 2,
            "mlp_ratio": 4,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
        dtype="float32",
    )
    if not weights:
        config.save_pretrained(folder)
        return folder
    torch.manual_seed(0)
    network = transformers.Qwen2VLForConditionalGeneration(config).float()
    randomize(network)
    network.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    qwen2_vl(Path(sys.argv[1]), weights=True)
