"""A model graph to simulate. Example 04 names it as `my_graphs:two_layers`."""

import headrace


def two_layers() -> headrace.ModelGraph:
    """Return a network of two fully connected layers, 4096 inputs to 8192 and to 1000 outputs.

    One node is one step of the network: a policy may change the batch between two nodes. Each node says which matrix
    products it computes, from which the simulator derives how long the node takes."""
    return headrace.ModelGraph(
        "two_layers",
        (
            headrace.Node("hidden", operators=(headrace.MatMul(m=1, k=4096, n=8192),), parameters=4097 * 8192),
            headrace.Node("output", operators=(headrace.MatMul(m=1, k=8192, n=1000),), parameters=8193 * 1000),
        ),
    )
