"""Encoders of images and audio: their sizes and tokens by transformers, and latencies added up from the tables."""

import numpy as np
import pytest
from pyarrow import parquet

from headrace.batching.errors import UsageError
from headrace.sim.decoding.multimodal import EncoderLatency, audio_tokens, multimodal
from headrace.sim.decoding.operators import FITTED, MEMORY, NoMeasurement, Operators
from headrace.sim.hardware.gpu.tables import BACKENDS, ENCODER, GENERATION, table_file
from headrace.sim.system.processors import work_of

# Tokens by width and height, by smart_resize of transformers 5.23. Sides become multiples of 28 pixels, and a token has
# 28 x 28.
TOKENS = {
    (2048, 2048): 5329,
    (640, 427): 345,
    (500, 375): 234,
    (1024, 768): 999,
    (28, 28): 4,
    (31, 911): 33,
    (5000, 4000): 16302,
}


def test_images_have_the_tokens_of_the_library():
    work = work_of(multimodal("qwen2-vl-7b").processor)
    assert {size: work(*size).tokens for size in TOKENS} == TOKENS
    assert work_of("clip-vit-base-patch32")(640, 427).tokens is None


@pytest.mark.slow
def test_the_tokens_above_are_those_of_the_library():
    library = pytest.importorskip("transformers.models.qwen2_vl.image_processing_qwen2_vl")
    for (width, height), tokens in TOKENS.items():
        rows, columns = library.smart_resize(height, width, factor=28, min_pixels=56 * 56, max_pixels=12845056)
        assert rows * columns // 28**2 == tokens


SOUNDS = {0.1: 2, 1.0: 25, 2.5: 62, 9.99: 250, 10.0: 250, 29.97: 749, 30.0: 750}


def test_sounds_have_the_tokens_of_the_library():
    """By the lengths that Qwen2AudioEncoder of transformers 5.23 computes from frames of 10 ms."""
    assert {seconds: audio_tokens(seconds) for seconds in SOUNDS} == SOUNDS


@pytest.mark.slow
def test_the_tokens_of_sounds_above_are_those_of_the_library():
    qwen2_audio = pytest.importorskip("transformers.models.qwen2_audio.modeling_qwen2_audio")
    torch = pytest.importorskip("torch")
    lengths = qwen2_audio.Qwen2AudioEncoder._get_feat_extract_output_lengths
    for seconds, tokens in SOUNDS.items():
        frames = round(seconds * 16000) // 160
        assert int(lengths(None, torch.tensor(frames))[1]) == tokens


@pytest.mark.slow
def test_encoders_have_the_sizes_of_the_library():
    transformers = pytest.importorskip("transformers")
    vision = transformers.Qwen2VLConfig().vision_config
    own = multimodal("qwen2-vl-7b").encoder
    assert (own.layers, own.hidden, own.heads) == (vision.depth, vision.embed_dim, vision.num_heads)
    assert own.intermediate == vision.mlp_ratio * vision.embed_dim
    assert own.merged == vision.spatial_merge_size**2
    assert own.outside[0][1] == vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    audio = transformers.Qwen2AudioConfig().audio_config
    own = multimodal("qwen2-audio-7b").encoder
    assert (own.layers, own.hidden, own.heads) == (audio.encoder_layers, audio.d_model, audio.encoder_attention_heads)
    assert (own.intermediate, own.padded) == (audio.encoder_ffn_dim, audio.max_source_positions)
    assert own.outside[0][1] == 3 * audio.num_mel_bins


def test_parameters_are_those_that_the_models_cards_have():
    """Qwen2-VL has 675 M in its encoder, and Qwen2-7B 7.6 B. The encoder of Whisper large has 637 M."""
    images, audio = multimodal("qwen2-vl-7b"), multimodal("qwen2-audio-7b")
    assert images.encoder.parameters == pytest.approx(675e6, rel=0.01)
    assert images.decoder.parameters == pytest.approx(7.6e9, rel=0.01)
    assert audio.encoder.parameters == pytest.approx(637e6, rel=0.01)


def test_a_latency_is_the_sum_of_the_rows_of_the_tables():
    """1,024 tokens of Qwen2-VL have 4,096 patches. Rows are read by pyarrow, and lie between no sizes for attention."""
    operators = Operators("h100", "vllm")
    path = table_file("h100", "encoder_attention", "encoder_attention", "vllm")
    where = [("num_heads", "==", 16), ("head_dim", "==", 80), ("isl", "==", 4096), ("batch_size", "==", 1)]
    rows = parquet.read_table(path, filters=where)["latency"].to_numpy() / 1e3
    latency = EncoderLatency(multimodal("qwen2-vl-7b").encoder, "h100", "vllm")
    products = ((3840, 1280, 32, 4096), (1280, 1280, 32, 4096), (5120, 1280, 32, 4096), (1280, 5120, 32, 4096))
    products += ((1280, 1176, 1, 4096), (5120, 5120, 1, 1024), (3584, 5120, 1, 1024))
    expected = sum(count * float(operators.products("bf16", n, k).at(np.array([m]))[0]) for n, k, count, m in products)
    moved = 2 * (2 * 4 * 1280 + 2 * 5120 + 4 * 1280) * 4096
    expected += 32 * (4 * FITTED.kernel_s + moved / (FITTED.memory * MEMORY["h100"].bandwidth))
    # Other rows of as many heads in all count with it, in the mean of logarithms.
    assert latency.seconds([1024]) == pytest.approx(expected + 32 * rows.mean(), rel=0.05)


def test_items_together_take_longer_than_one_and_not_longer_than_one_after_another():
    latency = EncoderLatency(multimodal("qwen2-vl-7b").encoder, "h100", "vllm")
    one, eight = latency.seconds([345]), latency.seconds([345] * 8)
    assert one < eight < 8 * one
    assert latency.seconds([345, 1000]) > latency.seconds([1000])
    padded = EncoderLatency(multimodal("qwen2-audio-7b").encoder, "h100", "sglang")
    assert padded.seconds([10]) == padded.seconds([750])  # every sound is padded to 30 s


def test_models_and_sizes_that_were_not_measured_are_refused():
    with pytest.raises(UsageError, match="whisper-large-v3: each layer of its decoder also attends"):
        multimodal("whisper-large-v3")
    with pytest.raises(UsageError, match="there is no model 'llava' of images or audio; choose from qwen2-vl-7b"):
        multimodal("llava")
    with pytest.raises(NoMeasurement, match="a100-80gb: attention of encoders with heads of 80 was not measured"):
        EncoderLatency(multimodal("qwen2-vl-7b").encoder, "a100-80gb", "vllm")
    latency = EncoderLatency(multimodal("qwen2-vl-7b").encoder, "h100", "vllm")
    with pytest.raises(NoMeasurement, match="attention over 80000 positions of an encoder was not measured; give sm"):
        latency.seconds([20000])


@pytest.mark.parametrize("server", BACKENDS)
def test_the_tables_lack_the_decoder_of_whisper_and_have_its_encoder(server):
    """The message about Whisper says so: 20 heads of queries and of keys with 64 elements."""
    counts = []
    for kind, folder in ((GENERATION, "attention"), (ENCODER, "encoder_attention")):
        filters = [("num_heads", "==", 20), ("head_dim", "==", 64)]
        path = table_file("h100", folder, f"{kind}_attention", server)
        if kind == GENERATION:
            filters.append(("num_key_value_heads", "==", 20))
        counts.append(len(parquet.read_table(path, filters=filters)))
    assert counts[0] == 0 < counts[1]
