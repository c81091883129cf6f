import subprocess
import sys
from pathlib import Path

import pytest

from headrace.batching.errors import UnknownModel
from headrace.batching.graphs.model_graph import ATTENTION, CAUSAL, LENGTH, Kernel
from headrace.batching.graphs.traced import from_json, to_json
from headrace.sim.zoo.traced import TRACED, traced

ROOT = Path(__file__).parents[3]
QUICK = ("squeezenet1_1", "mobilenet_v3_small")
# Parameters and multiply-accumulates (1e9) that torchvision's documentation gives with each network's weights.
TORCHVISION = {
    "mobilenet_v3_small": (2_542_856, 0.06),
    "squeezenet1_1": (1_235_496, 0.35),
    "swin_t": (28_288_354, 4.49),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.8),
    "resnet152": (60_192_808, 11.51),
    "vgg16": (138_357_544, 15.47),
    "vgg19": (143_667_240, 19.63),
    "mobilenet_v2": (3_504_872, 0.3),
    "densenet121": (7_978_856, 2.83),
    "densenet169": (14_149_480, 3.36),
    "densenet201": (20_013_928, 4.29),
    "inception_v3": (27_161_264, 5.71),
    "vit_b_16": (86_567_656, 17.56),
}
# Parameters (millions). Conformer L, with a decoder that CTC has not: Gulati et al., Interspeech 2020, Table 1. The
# small one with CTC: NeMo's documentation. CitriNet-512: Majumdar et al., 2021, Table 1. BERT: Devlin et al., NAACL
# 2019, Section 3, with a pooler that these have not. CLIP and GPT-2: their cards on Hugging Face. Whisper small has 244
# in both parts: Radford et al., 2022, Table 1. EfficientNet-Lite0: Google's tpu repository, efficientnet/lite.
PUBLISHED = {
    "conformer": 118.8,
    "conformer_small": 13,
    "citrinet": 37,
    "bert_base": 110,
    "bert_large": 340,
    "clip_vit_b_32": 151,
    "gpt2": 124,
    "gpt2_step": 124,
    "efficientnet_lite0": 4.7,
}
WHISPER = ("whisper_small_encoder", "whisper_small_decoder")


def test_every_traced_network_is_compared_with_published_figures():
    assert {*TORCHVISION, *PUBLISHED, *WHISPER} == set(TRACED)


@pytest.mark.parametrize("name", TORCHVISION)
def test_a_network_of_torchvision_has_its_documented_parameters_and_work(name):
    graph = traced(name).graphs[1.0]
    parameters, billions = TORCHVISION[name]
    assert graph.parameters() == parameters
    assert graph.macs() / 1e9 == pytest.approx(billions, abs=0.006)


@pytest.mark.parametrize("name", PUBLISHED)
def test_other_networks_have_their_published_parameters(name):
    sizes = {graph.parameters() for graph in traced(name).graphs.values()}
    assert len(sizes) == 1
    assert sizes.pop() / 1e6 == pytest.approx(PUBLISHED[name], rel=0.04)


def test_both_parts_of_whisper_have_the_published_parameters():
    parts = [next(iter(traced(name).graphs.values())).parameters() for name in WHISPER]
    assert sum(parts) / 1e6 == pytest.approx(244, rel=0.02)


def test_a_prompt_is_read_causally_and_a_step_has_one_query():
    names = {
        network: {kernel.name for kernel in _kernels(traced(network).graphs[length])}
        for network, length in (("gpt2", 64.0), ("vit_b_16", 1.0))
    }
    assert any(name.endswith(CAUSAL) for name in names["gpt2"])
    assert not any(name.endswith(CAUSAL) for name in names["vit_b_16"])
    step = [kernel for kernel in _kernels(traced("gpt2_step").graphs[63.0]) if kernel.name.startswith(ATTENTION)]
    assert [(op.m, op.k, op.n, op.groups) for op in step[0].products] == [(1, 64, 64, 12), (1, 64, 64, 12)]


@pytest.mark.parametrize("name", TRACED)
def test_nodes_are_the_same_at_all_lengths_and_their_work_rises_with_it(name):
    graphs = list(traced(name).graphs.values())
    assert len({tuple(node.name for node in graph.nodes) for graph in graphs}) == 1
    work = [graph.macs() for graph in graphs]
    moved = [sum(kernel.read + kernel.written for kernel in _kernels(graph)) for graph in graphs]
    assert work == sorted(set(work))
    assert moved == sorted(set(moved))


@pytest.mark.parametrize("name", TRACED)
def test_every_product_belongs_to_a_kernel_and_kernels_read_all_weights(name):
    graph = next(iter(traced(name).graphs.values()))
    for node in graph.nodes:
        assert node.operators == tuple(product for kernel in node.kernels for product in kernel.products)
        assert not any(LENGTH in (op.m, op.k, op.n) for op in node.operators)
    read = sum(kernel.weights for kernel in _kernels(graph))
    assert read >= 0.9 * graph.parameters() or name.startswith("inception")  # whose second head is for training


@pytest.mark.parametrize("name", TRACED)
def test_a_network_survives_its_file(name):
    network = traced(name)
    again = from_json(to_json(network))
    assert (again.name, again.step_s, dict(again.graphs)) == (network.name, network.step_s, dict(network.graphs))


def test_an_unknown_network_names_its_like():
    with pytest.raises(UnknownModel, match=r"did you mean.*resnet50"):
        traced("resnet5")


@pytest.mark.slow
def test_the_files_of_quick_networks_are_what_is_traced_now():
    check(QUICK)


@pytest.mark.slow
def test_all_files_are_what_is_traced_now():
    check(TRACED)


def check(names: tuple[str, ...]) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "scripts.trace_zoo", "--check", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _kernels(graph) -> list[Kernel]:
    return [kernel for node in graph.nodes for kernel in node.kernels]
