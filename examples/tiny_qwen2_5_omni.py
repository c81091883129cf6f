"""This program writes a small Qwen2.5-Omni with random weights: python examples/tiny_qwen2_5_omni.py FOLDER.

It has the processor, the chat template and the architecture of the part of Qwen2.5-Omni that reads text, images and
sounds, and 5 million parameters. Its answers mean nothing, but they depend on every token, pixel and sample.
"""

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from tiny_qwen2_vl import byte_tokenizer, language_model, randomize

SPECIAL = {
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' %}<|vision_bos|>\
<|IMAGE|><|vision_eos|>{% elif c.type == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>{% else %}{{ c.text }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
MERGED = 28 * 28  # pixels of a token


def qwen2_5_omni(folder: Path, weights: bool = False, **settings: object) -> Path:
    """Write a Qwen2.5-Omni to a folder: its processor, and a small random network if vLLM is to run it.

    `settings` are those of the feature extractor."""
    tokens = byte_tokenizer(("<|endoftext|>", "<|im_start|>", "<|im_end|>"), TEMPLATE, **SPECIAL)
    processor = transformers.Qwen2_5OmniProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(
            size={"shortest_edge": 4 * MERGED, "longest_edge": 256 * MERGED}
        ),
        video_processor=transformers.Qwen2VLVideoProcessor(),
        feature_extractor=transformers.WhisperFeatureExtractor(
            feature_size=128, return_attention_mask=True, **settings
        ),
        tokenizer=tokens,
        chat_template=TEMPLATE,
    )
    processor.save_pretrained(folder)
    number = tokens.convert_tokens_to_ids
    thinker = transformers.Qwen2_5OmniThinkerConfig(
        text_config={**language_model(tokens), "tie_word_embeddings": False},
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 2,
            "out_hidden_size": 256,
            "fullatt_block_indexes": [1, 3],
        },
        audio_config={
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 256,
            "d_model": 128,
            "output_dim": 256,
        },
        image_token_index=number(SPECIAL["image_token"]),
        audio_token_index=number(SPECIAL["audio_token"]),
        video_token_index=number(SPECIAL["video_token"]),
        audio_start_token_id=number(SPECIAL["audio_bos_token"]),
        audio_end_token_id=number(SPECIAL["audio_eos_token"]),
        vision_start_token_id=number(SPECIAL["vision_bos_token"]),
        vision_end_token_id=number(SPECIAL["vision_eos_token"]),
        dtype="float32",
    )
    config = transformers.Qwen2_5OmniConfig(
        thinker_config=thinker.to_dict(),
        enable_audio_output=False,
        architectures=["Qwen2_5OmniModel"],
        dtype="float32",
    )
    config.save_pretrained(folder)
    if weights:
        torch.manual_seed(0)
        network = transformers.Qwen2_5OmniThinkerForConditionalGeneration(thinker).float()
        randomize(network)
        save(network, folder)
    return folder


def save(network: torch.nn.Module, folder: Path) -> None:
    """Write the weights with the names that they have in the published files of the whole model."""
    weights = {
        "thinker." + name.removeprefix("model.").replace("language_model.", "model."): values.contiguous()
        for name, values in network.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()  # it warns of the talker, which this model does not use
    qwen2_5_omni(Path(sys.argv[1]), weights=True)
