"""Simulate a network of your own, which is described layer by layer and need not exist yet.

Usage: python 04_own_model_graph.py [REQUESTS]

my_graphs.py, beside this file, has the description: a function that returns a `headrace.ModelGraph`. It is named as
`module:function`, here and on the command line: `headrace simulate --model my_graphs:two_layers`.
"""

import sys

import my_graphs

import headrace

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

graph = my_graphs.two_layers()
for node in graph.nodes:
    print(f"{node.name}: {node.parameters / 1e6:.1f} million parameters")
print(f"{graph.macs() / 1e6:.1f} million multiplications for each request")

# The larger the batches, the fewer times the accelerator reads all these parameters from its memory.
for policy in ("serial", "graph"):
    result = headrace.simulate("my_graphs:two_layers", rate_rps=8500, requests=requests, policy=policy)
    print(
        f"{policy:6} p99 {result.latency_ms['p99']:9.3f} ms, mean batch {result.batch_size_mean:5.2f}, "
        f"busy {result.utilization:.0%} of the time"
    )
