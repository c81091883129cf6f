"""The sizes of decoders: the models by name, those of a config.json, and what is refused."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from headrace.batching.errors import UsageError
from headrace.sim.decoding.architecture import (
    ARCHITECTURES,
    DecoderArchitecture,
    Experts,
    UnsupportedArchitecture,
    from_config,
    named,
)
from headrace.sim.hardware.gpu.tables import package_file

# Files of the package that has the tables, which are those of the models on the hub.
CONFIGS = {
    "llama-3.1-8b": "meta-llama--Meta-Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama--Meta-Llama-3.1-70B",
    "qwen3-32b": "Qwen--Qwen3-32B",
    "qwen3-235b-a22b": "Qwen--Qwen3-235B-A22B-FP8",
    "minimax-m2.5": "MiniMaxAI--MiniMax-M2.5",
    "gpt-oss-120b": "openai--gpt-oss-120b",
}
DENSE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 256,
}

OPTIONAL = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "sliding_window": 32,
    "layer_types": ["full_attention"],
    "text_config": {},
}


def config(name):
    return package_file("").parent / "model_configs" / f"{name}_config.json"


def written(tmp_path, **fields):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**DENSE, **fields}))
    return path


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_by_name_has_the_sizes_of_its_config(name):
    assert from_config(config(CONFIGS[name]), name) == named(name)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-70b", 70.6),
        ("qwen3-32b", 32.8),
        ("qwen3-235b-a22b", 235),
        ("gpt-oss-120b", 117),
    ],
)
def test_the_weights_are_as_many_as_the_models_makers_say(name, billions):
    assert named(name).parameters == pytest.approx(billions * 1e9, rel=0.01)


def test_bytes_follow_from_the_precision():
    model = named("llama-3.1-8b")
    embeddings = 2 * 128256 * 4096
    assert model.weight_bytes() == 2 * model.parameters
    assert model.weight_bytes("fp8_static") == model.parameters + embeddings
    assert model.weight_bytes("nvfp4") < 0.6 * model.parameters + 2 * embeddings
    assert model.kv_bytes() == 2 * 32 * 8 * 128 * 2  # 128 KiB a token
    assert model.kv_bytes("fp8", tp=4) == model.kv_bytes() / 8
    assert model.kv_bytes(tp=16) == model.kv_bytes(tp=8)  # a GPU has one head or more


def test_experts_have_a_precision_of_their_own():
    model = named("gpt-oss-120b")
    assert model.weight_bytes("bf16", "mxfp4") == pytest.approx(65e9, rel=0.05)  # the checkpoint has 65 GB
    assert model.weight_bytes("bf16") > 3 * model.weight_bytes("bf16", "mxfp4")


def test_defaults_of_a_config_are_those_of_hugging_face(tmp_path):
    assert from_config(written(tmp_path), "own") == DecoderArchitecture("own", 2, 64, 4, 4, 16, 128, 256)
    assert from_config(written(tmp_path)).name == tmp_path.name
    assert from_config(written(tmp_path, tie_word_embeddings=True)).tied
    of_text = tmp_path / "config.json"
    of_text.write_text(json.dumps({"text_config": DENSE, "vision_config": {}}))
    assert from_config(of_text, "own").hidden == 64


def test_experts_and_windows_of_a_config(tmp_path):
    found = from_config(written(tmp_path, num_local_experts=8, num_experts_per_tok=2))
    assert found.experts == Experts(8, 2, 128)
    windowed = {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"]}
    assert from_config(written(tmp_path, **windowed)).windowed_layers == 1
    assert from_config(written(tmp_path, sliding_window=32)).windowed_layers == 2
    assert from_config(written(tmp_path, sliding_window=32, use_sliding_window=False)).windowed_layers == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kv_lora_rank": 512}, "multi-head latent attention .kv_lora_rank."),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layers of linear_attention"),
        ({"num_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1}, "shared experts"),
        ({"hidden_size": 0}, "config.json: has hidden_size 0; give a whole number from 1 to"),
        ({"num_hidden_layers": 10**30}, "config.json: has num_hidden_layers 1000.*; give a whole number from 1 to"),
        ({"vocab_size": "many"}, "config.json: has vocab_size many; give"),
        ({"vocab_size": None}, "config.json: has no vocab_size; add it"),
        ({"head_dim": 1.5}, "config.json: has head_dim 1.5; give"),
        ({"layer_types": 2}, "config.json: has layer_types that are no list"),
        ({"num_key_value_heads": 3}, "4 heads of queries do not share 3"),
    ],
)
def test_other_architectures_are_refused(tmp_path, fields, message):
    with pytest.raises(UnsupportedArchitecture, match=message):
        from_config(written(tmp_path, **fields), "own")


@pytest.mark.parametrize(
    "name", ["deepseek-ai--DeepSeek-R1", "Qwen--Qwen3.5-397B-A17B", "nvidia--Nemotron-H-56B-Base-8K"]
)
def test_known_models_of_other_attention_are_refused(name):
    with pytest.raises(UnsupportedArchitecture, match=r"choose a (decoder|model)"):
        from_config(config(name))


def test_a_file_that_is_no_config_is_refused(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        from_config(path)
    path.write_text("[1]")
    with pytest.raises(UsageError, match="has no JSON object"):
        from_config(path)


@given(
    st.dictionaries(
        st.sampled_from([*DENSE, *OPTIONAL]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()) | st.just({}),
        min_size=1,
    )
)
@examples(200, 2000)
def test_any_value_of_a_field_gives_sizes_or_a_refusal(tmp_path_factory, fields):
    path = written(tmp_path_factory.mktemp("config"), **fields)
    try:
        found = from_config(path)
    except UnsupportedArchitecture as error:
        assert re.search("; (give|add|choose) ", str(error))  # it says what to change
    else:
        assert found.parameters > 0


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(UsageError, match=r"choose from llama-3\.1-8b, "):
        named("llama-9")
