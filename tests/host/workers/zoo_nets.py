"""Networks of torchvision, timm and transformers as users have them, one of each family, with random weights.

Each name is a function without arguments, for `--model zoo_nets:NAME`. Images are as small as the networks allow.
"""

from functools import partial

TORCHVISION = {
    "alexnet": (3, 96, 96),
    "convnext_tiny": (3, 64, 64),
    "densenet121": (3, 64, 64),
    "efficientnet_b0": (3, 64, 64),
    "efficientnet_v2_s": (3, 64, 64),
    "googlenet": (3, 64, 64),
    "inception_v3": (3, 96, 96),
    "maxvit_t": (3, 224, 224),
    "mnasnet0_5": (3, 64, 64),
    "mobilenet_v2": (3, 64, 64),
    "mobilenet_v3_small": (3, 64, 64),
    "regnet_y_400mf": (3, 64, 64),
    "resnet18": (3, 64, 64),
    "resnext50_32x4d": (3, 64, 64),
    "shufflenet_v2_x0_5": (3, 64, 64),
    "squeezenet1_1": (3, 64, 64),
    "swin_t": (3, 64, 64),
    "swin_v2_t": (3, 64, 64),
    "vgg11": (3, 32, 32),
    "vit_b_32": (3, 224, 224),
    "wide_resnet50_2": (3, 64, 64),
}
TIMM = (
    "xcit_nano_12_p16_224",
    "cait_xxs24_224",
    "coat_tiny",
    "crossvit_tiny_240",
    "davit_tiny",
    "deit_tiny_patch16_224",
    "dpn48b",
    "edgenext_xx_small",
    "efficientformer_l1",
    "eva02_tiny_patch14_224",
    "fastvit_t8",
    "focalnet_tiny_srf",
    "ghostnet_050",
    "hiera_tiny_224",
    "hrnet_w18_small",
    "levit_128s",
    "mixer_s32_224",
    "mobilevit_xxs",
    "mvitv2_tiny",
    "nest_tiny",
    "nfnet_f0",
    "pvt_v2_b0",
    "repvit_m0_9",
    "swinv2_tiny_window8_256",
    "tnt_s_patch16_224",
    "twins_svt_small",
    "volo_d1_224",
    "convit_tiny",
    "halonet26t",
    "vit_relpos_small_patch16_224",
    "efficientvit_b0",
    "res2net50_14w_8s",
    "coatnet_nano_rw_224",
    "maxvit_nano_rw_256",
    "poolformer_s12",
    "lambda_resnet26t",
)

_TEXT = dict(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
)
_IMAGE = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8
)
_STAGES = dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1])
_IDS, _PIXELS = "input_ids=16:int64", (3, 32, 32)
# Configuration, network, input, and what the configuration is given.
TRANSFORMERS = {
    "bert": ("BertConfig", "BertModel", _IDS, _TEXT),
    "bert_classifier": (
        "BertConfig",
        "BertForSequenceClassification",
        f"{_IDS},attention_mask=16:int64",
        _TEXT,
    ),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        _IDS,
        dict(vocab_size=100, dim=32, n_layers=2, n_heads=2, hidden_dim=64),
    ),
    "roberta": ("RobertaConfig", "RobertaModel", _IDS, _TEXT),
    "electra": ("ElectraConfig", "ElectraModel", _IDS, _TEXT | dict(embedding_size=16)),
    "albert": ("AlbertConfig", "AlbertModel", _IDS, _TEXT | dict(embedding_size=16)),
    "mpnet": ("MPNetConfig", "MPNetModel", _IDS, _TEXT),
    "deberta": (
        "DebertaV2Config",
        "DebertaV2Model",
        _IDS,
        _TEXT | dict(relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"]),
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2Model",
        _IDS,
        dict(
            vocab_size=100,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            use_cache=False,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "llama": ("LlamaConfig", "LlamaModel", _IDS, _TEXT | dict(num_key_value_heads=1, use_cache=False)),
    "modernbert": ("ModernBertConfig", "ModernBertModel", _IDS, _TEXT | dict(pad_token_id=0)),
    "t5": (
        "T5Config",
        "T5EncoderModel",
        _IDS,
        dict(vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2),
    ),
    "fnet": (
        "FNetConfig",
        "FNetModel",
        _IDS,
        dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, intermediate_size=64, max_position_embeddings=64),
    ),
    "funnel": (
        "FunnelConfig",
        "FunnelModel",
        _IDS,
        dict(vocab_size=100, d_model=32, block_sizes=[1, 1], num_decoder_layers=1, n_head=2, d_head=16, d_inner=64),
    ),
    "mamba": (
        "MambaConfig",
        "MambaModel",
        _IDS,
        dict(vocab_size=100, hidden_size=32, num_hidden_layers=1, use_cache=False),
    ),
    "vit": ("ViTConfig", "ViTModel", _PIXELS, _IMAGE),
    "deit": ("DeiTConfig", "DeiTModel", _PIXELS, _IMAGE),
    "beit": ("BeitConfig", "BeitModel", _PIXELS, _IMAGE | dict(use_relative_position_bias=True)),
    "dinov2": ("Dinov2Config", "Dinov2Model", _PIXELS, _IMAGE),
    "clip_vision": ("CLIPVisionConfig", "CLIPVisionModel", _PIXELS, _IMAGE),
    "siglip_vision": ("SiglipVisionConfig", "SiglipVisionModel", _PIXELS, _IMAGE),
    "convnext": ("ConvNextConfig", "ConvNextModel", _PIXELS, _STAGES),
    "swin": (
        "SwinConfig",
        "SwinModel",
        _PIXELS,
        dict(image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4),
    ),
    "resnet": ("ResNetConfig", "ResNetModel", _PIXELS, dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
    "segformer": (
        "SegformerConfig",
        "SegformerModel",
        _PIXELS,
        _STAGES | dict(num_attention_heads=[1, 2, 2, 4]),
    ),
    "wav2vec2": (
        "Wav2Vec2Config",
        "Wav2Vec2Model",
        "input_values=4000",
        dict(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            conv_dim=[16, 16, 16],
            conv_stride=[5, 4, 4],
            conv_kernel=[10, 4, 4],
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            vocab_size=20,
        ),
    ),
    "whisper": (
        "WhisperConfig",
        "WhisperModel",
        "input_features=80x64,decoder_input_ids=4:int64",
        dict(
            vocab_size=100,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=32,
            max_target_positions=16,
            use_cache=False,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
    ),
    "xlnet": ("XLNetConfig", "XLNetModel", _IDS, dict(vocab_size=100, d_model=32, n_layer=2, n_head=2, d_inner=64)),
}


def _torchvision(name):
    import torchvision

    options = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    network = torchvision.models.get_model(name, weights=None, **options)
    network.input_shape = TORCHVISION[name]
    return network


def _timm(name):
    import timm

    return timm.create_model(name, num_classes=10)


def _transformers(name):
    import transformers

    configuration, network, shape, options = TRANSFORMERS[name]
    made = getattr(transformers, network)(getattr(transformers, configuration)(**options))
    made.input_shape = shape
    return made


FAMILIES = {
    "torchvision": (_torchvision, TORCHVISION),
    "timm": (_timm, TIMM),
    "transformers": (_transformers, TRANSFORMERS),
}
NETWORKS = {f"{library}_{name}": partial(make, name) for library, (make, names) in FAMILIES.items() for name in names}
globals().update(NETWORKS)
