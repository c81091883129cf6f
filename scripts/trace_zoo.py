#!/usr/bin/env python3
"""Write sim/zoo/graphs/: the operators of each network as PyTorch runs it eagerly.

The networks are torchvision's and this project's own.

    .venv/bin/python -m scripts.trace_zoo [NAME ...]

--check writes nothing. The exit status is then 1 if a file would change.
"""

import argparse
import contextlib
import sys
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.networks import bert_base, bert_large
from headrace.batching.graphs.torch_graph import from_torch
from headrace.batching.graphs.traced import Traced, to_json
from headrace.host.workers.networks.zoo.citrinet import citrinet
from headrace.host.workers.networks.zoo.conformer import conformer_ctc
from headrace.sim.zoo.traced import TRACED

FOLDER = Path(__file__).parents[1] / "sim" / "zoo" / "graphs"
SECONDS = (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 35.0)
TOKENS = (32, 64, 128, 256, 384, 512)
HOP_S = 0.01  # from one audio frame to the next
STEP_S = {"conformer": 0.04, "conformer_small": 0.04, "citrinet": 0.08}  # from one output step to the next


def trace(name: str) -> Traced:
    """Trace a network at each of its input lengths."""
    inputs: dict[float, tuple[torch.Tensor, ...]] = {}
    if name in STEP_S:
        module: torch.nn.Module = (
            citrinet()
            if name == "citrinet"
            else conformer_ctc("conformer_ctc_small" if name == "conformer_small" else "conformer_ctc_large")
        )
        for seconds in SECONDS:
            frames = round(seconds / HOP_S) + 1
            inputs[seconds / STEP_S[name]] = (torch.zeros(1, 80, frames), torch.tensor([frames]))
    elif name in ("bert_base", "bert_large"):
        module = bert_base() if name == "bert_base" else bert_large()
        inputs = {float(tokens): (torch.zeros(1, tokens, dtype=torch.long),) for tokens in TOKENS}
    else:
        from headrace.host.workers.networks.zoo.torchvision_networks import torchvision

        module = getattr(torchvision.models, name)(
            weights=None, **({"init_weights": False} if name == "inception_v3" else {})
        )
        pixels = 299 if name == "inception_v3" else 224
        inputs = {1.0: (torch.zeros(1, 3, pixels, pixels),)}
    elements = {length: sum(tensor.numel() for tensor in tensors) for length, tensors in inputs.items()}
    # BERT-large is compared with measurements of an older torch, in which attention is several operators.
    with sdpa_kernel(SDPBackend.MATH) if name == "bert_large" else contextlib.nullcontext():
        graphs = {length: from_torch(module, tensors, name=name) for length, tensors in inputs.items()}
    return Traced(name, STEP_S.get(name), elements, graphs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=TRACED, metavar="NAME", help=", ".join(TRACED))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    stale = []
    for name in options.names:
        text, path = to_json(trace(name)), FOLDER / f"{name}.json"
        if options.check:
            stale += [] if path.exists() and path.read_text() == text else [name]
        else:
            path.write_text(text)
            print(f"{path.relative_to(Path.cwd())}: {len(text):,} bytes", flush=True)
    if stale:
        sys.exit(f"these files differ from a new trace: {', '.join(stale)}; run scripts/trace_zoo.py without --check")


if __name__ == "__main__":
    main()
