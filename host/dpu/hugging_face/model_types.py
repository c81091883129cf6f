"""This module tells the class of a model's image processor by the type in its `config.json`.

A file of an older release may name no class. `AutoImageProcessor` of transformers 5.23 then chooses it by this type.
"""

from collections.abc import Mapping
from typing import Final

_TYPES: Final = {
    "CLIP": "aimv2 aimv2_vision_model altclip clip florence2 git groupvit kosmos-2 metaclip_2 mlcd vipllava xclip",
    "Llava": "llava",
    "Bit": "bit dinov2 focalnet hiera pixio",
    "Siglip": "colpali gemma3n paligemma siglip",
    "ViT": "clipseg dinat ijepa mgp-str swiftformer swin swinv2 trocr vit vit_mae vit_msn",
    "Gemma3": "gemma3 shieldgemma2 t5gemma2 t5gemma2_encoder",
    "DeiT": "deit",
    "Chameleon": "chameleon",
    "ConvNext": "convnext convnextv2 cvt regnet resnet",
    "Pixtral": "lighton_ocr mistral3 mistral_large4 pixtral",
    "DeepseekVL": "deepseek_vl",
    "Janus": "janus",
    "Aria": "aria",
    "Donut": "donut-swin",
    "Qwen2VL": "colqwen2 cosmos3_omni dots3_note exaone4_5 hyperclovax_vision_v2 lfm3_vl qwen2_5_omni qwen2_5_vl "
    "qwen2_vl qwen3_5 qwen3_5_moe qwen3_omni_moe qwen3_vl qwen4_exp",
    "Glm4v": "glm4v",
    "Glm46V": "glm46v",
    "PaddleOCRVL": "paddleocr_vl",
    "Siglip2": "siglip2",
    "Gemma4": "embedding_gemma2 gemma4",
    "LlavaNext": "granite4_vision llava_next llava_next_video",
    "LlavaOnevision": "llava_onevision",
    "GotOcr2": "aya_vision got_ocr2 internvl qianfan_ocr",
    "Cohere2Vision": "cohere2_vision",
    "Ovis2": "ovis2",
    "Idefics3": "idefics3",
    "SmolVLM": "smolvlm",
    "Mllama": "mllama",
    "Llama4": "llama4",
}

MODEL_TYPES: Final[Mapping[str, str]] = {
    each: f"{name}ImageProcessor" for name, types in _TYPES.items() for each in types.split()
}
