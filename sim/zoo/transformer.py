"""Transformers. Every sub-layer is a node.

An encoder sees all input tokens at once, so its nodes are STATIC, with as many rows as the input is long. A decoder
makes one token a step. It keeps the keys and values of earlier steps or, without a cache, makes them again for all
tokens so far.
"""

from dataclasses import replace

from headrace.batching.graphs.model_graph import HALF_LENGTH, LENGTH, Dim, MatMul, ModelGraph, Node, NodeKind


def _norm(width: int) -> int:
    return 2 * width


def _dense(name: str, kind: NodeKind, rows: Dim, into: int, out: int, *, norm: int = 0) -> Node:
    return Node(name, kind, (MatMul(rows, into, out),), (into + 1) * out + norm)


def _attend(name: str, kind: NodeKind, rows: Dim, width: int, heads: int) -> Node:
    """Return scores and weighted sum of `rows` queries over LENGTH keys and values, by head."""
    head = width // heads
    scores = MatMul(rows, head, LENGTH, groups=heads, weights=False)
    return Node(name, kind, (scores, MatMul(rows, LENGTH, head, groups=heads, weights=False)))


def _self_attention(name: str, kind: NodeKind, rows: Dim, width: int, heads: int) -> list[Node]:
    return [
        _dense(f"{name}.qkv", kind, rows, width, 3 * width),
        _attend(f"{name}.attend", kind, rows, width, heads),
        _dense(f"{name}.out", kind, rows, width, width, norm=_norm(width)),
    ]


def _feed_forward(name: str, kind: NodeKind, rows: Dim, width: int, inner: int) -> list[Node]:
    return [
        _dense(f"{name}.ffn1", kind, rows, width, inner),
        _dense(f"{name}.ffn2", kind, rows, inner, width, norm=_norm(width)),
    ]


def transformer(
    vocabulary: int = 33708, width: int = 512, heads: int = 8, inner: int = 2048, *, cached: bool = True
) -> ModelGraph:
    """Return Transformer, base model (Vaswani et al. 2017, Table 3).

    It has 6 + 6 layers and one embedding shared by source, target and output. The vocabulary is MLPerf's; Table 3 of
    the paper has 37000.

    A decoder step attends to all input tokens and to the steps before it. For an output as long as its input, the
    average number of these is half of that. It is taken for all of it, which is on the safe side and changes almost
    nothing.

    Without `cached`, a step runs the decoder again on all tokens so far, as a plain implementation does, and the output
    on the last of them. Each step has as many tokens as there are on average: half the input's."""
    static, decoder = NodeKind.STATIC, NodeKind.DECODER
    rows: Dim = 1 if cached else HALF_LENGTH
    nodes = [Node("embedding", static, (), vocabulary * width)]
    for layer in range(1, 7):
        nodes += _self_attention(f"encoder{layer}", static, LENGTH, width, heads)
        nodes += _feed_forward(f"encoder{layer}", static, LENGTH, width, inner)
    # The keys and values of the input for all decoder layers are made once.
    nodes.append(Node("memory", static, (MatMul(LENGTH, width, 12 * width),), 6 * 2 * width * (width + 1)))
    for layer in range(1, 7):
        name = f"decoder{layer}"
        nodes += _self_attention(name, decoder, rows, width, heads)
        nodes.append(_dense(f"{name}.cross.query", decoder, rows, width, width))
        nodes.append(_attend(f"{name}.cross.attend", decoder, rows, width, heads))
        nodes.append(_dense(f"{name}.cross.out", decoder, rows, width, width, norm=_norm(width)))
        nodes += _feed_forward(name, decoder, rows, width, inner)
    nodes.append(Node("output", decoder, (MatMul(1, width, vocabulary),)))  # the embedding's weights
    return ModelGraph("transformer" if cached else "transformer_uncached", tuple(nodes))


def bert_base(vocabulary: int = 30522, positions: int = 512, width: int = 768) -> ModelGraph:
    """Return BERT, base model, uncased (Devlin et al. 2019): 12 encoder layers and the pooler, without a task."""
    static, heads, inner = NodeKind.STATIC, 12, 3072
    embeddings = (vocabulary + positions + 2) * width + _norm(width)
    nodes = [Node("embedding", static, (), embeddings)]
    for layer in range(1, 13):
        nodes += _self_attention(f"encoder{layer}", static, LENGTH, width, heads)
        nodes += _feed_forward(f"encoder{layer}", static, LENGTH, width, inner)
    nodes.append(_dense("pooler", static, 1, width, width))
    return ModelGraph("bert_base", tuple(nodes))


def conformer(layers: int = 17, width: int = 512, heads: int = 8, kernel: int = 31, classes: int = 129) -> ModelGraph:
    """Return the blocks of Conformer, L (Gulati et al. 2020, Table 1), and its classes.

    They are those of host/workers/networks/zoo/conformer.py. A step is 40 ms of audio: four frames of 10 ms, which the
    convolutions before the blocks make one. These convolutions are left out, because they have another number of rows.
    There are 2 LENGTH - 1 distances, and their keys are the same for the whole batch. They are taken for LENGTH of each
    request."""
    static, head = NodeKind.STATIC, width // heads
    nodes = []
    for layer in range(1, layers + 1):
        name = f"block{layer}"
        by_place = MatMul(LENGTH, head, LENGTH, groups=3 * heads, weights=False)  # keys, and twice as many distances
        weighted = MatMul(LENGTH, LENGTH, head, groups=heads, weights=False)
        nodes += [
            *_feed_forward(f"{name}.before", static, LENGTH, width, 4 * width),
            _dense(f"{name}.qkv", static, LENGTH, width, 3 * width, norm=_norm(width)),
            Node(f"{name}.distances", static, (MatMul(LENGTH, width, width),), width * width),
            Node(f"{name}.attend", static, (by_place, weighted), 2 * width),
            _dense(f"{name}.out", static, LENGTH, width, width),
            _dense(f"{name}.gated", static, LENGTH, width, 2 * width, norm=_norm(width)),
            Node(f"{name}.depthwise", static, (MatMul(LENGTH, kernel, 1, groups=width),), (kernel + 3) * width),
            _dense(f"{name}.pointwise", static, LENGTH, width, width),
            *_feed_forward(f"{name}.behind", static, LENGTH, width, 4 * width),
        ]
        nodes[-1] = replace(nodes[-1], parameters=nodes[-1].parameters + _norm(width))
    nodes.append(_dense("classes", static, LENGTH, width, classes))
    return ModelGraph("conformer", tuple(nodes))
