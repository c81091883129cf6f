"""`headrace profile --nodes` cuts networks as users have them: of timm, of transformers, of torchvision."""

import json
from pathlib import Path

import pytest
from command import headrace

NETWORKS = """
def vit():
    import timm

    return timm.create_model("test_vit", num_classes=10)


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32,
    )
    network = BertModel(config)
    network.input_shape = "input_ids=16:int64"
    return network


def mobilenet():
    import torchvision

    network = torchvision.models.mobilenet_v3_small().eval()
    network.input_shape = (3, 64, 64)
    return network
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "products"),
    [
        # Linear layers and convolutions by the architecture, and one node for each attention.
        ("vit", {"conv2d": 1, "linear": 6 * 4 + 1, "scaled": 6}),
        pytest.param("bert", {"linear": 2 * 6 + 1, "scaled": 2}, marks=pytest.mark.slow),
        pytest.param("mobilenet", {"conv2d": 52, "linear": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_function_of_a_users_file_is_profiled_node_by_node(function, products, tmp_path, monkeypatch):
    (tmp_path / "mynets.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    file = Path("net.json")
    done = headrace(
        "profile", "--model", f"mynets:{function}", "--nodes", "--workers", 1, "--max-batch", 2, "-o", file, "--json"
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(file.read_text())["nodes"]
    assert measured["batches"] == [1, 2] and len(measured["latency_s"]) == len(measured["names"])
    kinds = [name.partition("_")[0] for name in measured["names"]]
    assert {kind: kinds.count(kind) for kind in kinds} == products
