"""Which networks of torchvision, timm and transformers are split into nodes, and which are refused and why.

    .venv/bin/python -m pytest -m slow -rP tests/host/workers/networks/zoo/test_split_zoo.py

prints a line for each. A network that is split gives the bits of the network run whole."""

import re
import sys
from pathlib import Path

import pytest
import torch
import zoo_nets

from headrace.batching import UsageError
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.split.network import one_thread, split

sys.path.insert(0, str(Path(__file__).parents[2]))

# nn.TransformerEncoderLayer, run whole, may take one fused operator for all of it, which rounds otherwise.
torch.backends.mha.set_fastpath_enabled(False)

REFUSED = {  # why, as the user is told
    "transformers_xlnet": r"output 'mems' is a tuple; return tensors alone",
}
# Networks that ask whether they are traced, and then compute in another order. The exported network rounds otherwise
# than the module, split or not.
ROUNDED = {"transformers_beit"}
QUICK = ("transformers_deberta",)  # it makes positions in forward


def two_requests(specs):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(2, *spec.shape, generator=generator)
        if getattr(torch, spec.dtype).is_floating_point
        else torch.randint(1, 50, (2, *spec.shape), generator=generator, dtype=getattr(torch, spec.dtype))
        for spec in specs
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in zoo_nets.NETWORKS]
)
def test_a_network_is_split_with_its_own_bits_or_refused_with_the_true_reason(name):
    if name in REFUSED:
        with pytest.raises(UsageError, match=REFUSED[name]) as refused:
            split(load_model(f"zoo_nets:{name}"))
        print(f"{name}: refused: {re.sub(r'^model .*?: ', '', str(refused.value))}")
        return
    loaded = load_model(f"zoo_nets:{name}")
    cut, graph = split(loaded)
    assert len(cut.nodes) == len(graph.nodes) >= 2
    given = two_requests(loaded.inputs)
    with one_thread(), torch.no_grad():
        expected = loaded.forward([tensor.clone() for tensor in given])
        found = cut.whole([tensor.clone() for tensor in given])
    for own, other in zip(found, expected, strict=True):
        if name in ROUNDED:
            torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(own, other)
    print(f"{name}: {len(cut.nodes)} nodes, {'bits as exported' if name in ROUNDED else 'own bits'}")


def test_the_table_has_all_families_of_torchvision():
    """A family is a module of torchvision.models with networks for classification."""
    import torchvision

    def family(name):
        return torchvision.models.get_model_builder(name).__module__.split(".")[2]

    all_of_them = {family(name) for name in torchvision.models.list_models(torchvision.models)}
    assert all_of_them == {family(name) for name in zoo_nets.TORCHVISION}
