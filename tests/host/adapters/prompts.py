"""Small processors of whole models for images, for audio and for both, whose tokens are bytes, and inputs of them."""

import numpy as np
import transformers
from like_transformers import picture
from PIL import Image
from tiny_qwen2_vl import TEMPLATE, tokenizer

SMALL, LARGE = Image.fromarray(picture(90, 70)), Image.fromarray(picture(300, 200))
SOUND = np.sin(np.arange(16_000) / 20).astype(np.float32) / 4
ONE_IMAGE = "look <|vision_start|><|image_pad|><|vision_end|> what?"
TWO_IMAGES = "first <|vision_start|><|image_pad|><|vision_end|><|vision_start|><|image_pad|><|vision_end|>"
ONE_SOUND = "hear <|audio_bos|><|AUDIO|><|audio_eos|> what?"
OMNI = {"image": "<|image_pad|>", "video": "<|video_pad|>", "vision_bos": "<|vision_start|>"} | {
    "vision_eos": "<|vision_end|>",
    "audio": "<|AUDIO|>",
    "audio_bos": "<|audio_bos|>",
    "audio_eos": "<|audio_eos|>",
}


def with_audio_tokens() -> transformers.PreTrainedTokenizerFast:
    made = tokenizer()
    made.add_special_tokens({"additional_special_tokens": ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]})
    return made


def qwen2_vl() -> transformers.Qwen2VLProcessor:
    return transformers.Qwen2VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(),
        tokenizer=tokenizer(),
        video_processor=transformers.Qwen2VLVideoProcessor(),
        chat_template=TEMPLATE,
    )


def qwen2_audio() -> transformers.Qwen2AudioProcessor:
    return transformers.Qwen2AudioProcessor(transformers.WhisperFeatureExtractor(feature_size=128), with_audio_tokens())


def qwen2_5_omni() -> transformers.Qwen2_5OmniProcessor:
    tokens = transformers.PreTrainedTokenizerFast(
        tokenizer_object=with_audio_tokens()._tokenizer,
        pad_token="<|endoftext|>",
        extra_special_tokens={f"{name}_token": text for name, text in OMNI.items()},
    )
    return transformers.Qwen2_5OmniProcessor(
        transformers.Qwen2VLImageProcessor(),
        transformers.Qwen2VLVideoProcessor(),
        transformers.WhisperFeatureExtractor(feature_size=128),
        tokens,
    )
