"""Recurrent encoder-decoders. Every layer is a node, which runs once for each input or output step.

The backward direction of a bidirectional layer needs the whole input before its first step. A scheduler sees it as one
more node of the input step, as LazyBatching does: the number of times that its weights are used is the same.
"""

from headrace.batching.graphs.model_graph import LENGTH, MatMul, ModelGraph, Node, NodeKind


def _lstm(name: str, kind: NodeKind, into: int, hidden: int, *, times: int = 1, directions: int = 1) -> Node:
    """Return one step of an LSTM layer: 4 gates from input and state.

    A layer that makes `times` steps for one step of the node does so one after the other. Parameters are counted as in
    torch.nn.LSTM, with two biases."""
    step = MatMul(1, into + hidden, 4 * hidden)
    return Node(name, kind, (step,) * (times * directions), directions * 4 * hidden * (into + hidden + 2))


def _attention(name: str, kind: NodeKind, query: int, keys: int, hidden: int) -> Node:
    """Return normalized additive attention over as many keys as the input has steps.

    The projection of the keys is made once and not in each step. It is counted among the parameters, as are the score
    vector and the normalization."""
    project = MatMul(1, query, hidden)
    scores, context = MatMul(1, hidden, LENGTH, weights=False), MatMul(1, LENGTH, keys, weights=False)
    return Node(name, kind, (project, scores, context), query * hidden + keys * hidden + 2 * hidden + 1)


def _linear(name: str, kind: NodeKind, into: int, out: int) -> Node:
    return Node(name, kind, (MatMul(1, into, out),), (into + 1) * out)


def gnmt(vocabulary: int = 32320, hidden: int = 1024) -> ModelGraph:
    """Return Google's neural machine translation (Wu et al. 2016) in the size of MLPerf Inference.

    It has 4 encoder layers, the first bidirectional, and 4 decoder layers. The last three of these also take in the
    attention's context. Source and target share one embedding."""
    encoder, decoder = NodeKind.ENCODER, NodeKind.DECODER
    nodes = [Node("embedding", encoder, (), vocabulary * hidden)]  # a step reads one row, without a product
    nodes += [_lstm(f"encoder1.{way}", encoder, hidden, hidden) for way in ("forward", "backward")]
    nodes += [_lstm(f"encoder{n}", encoder, 2 * hidden if n == 2 else hidden, hidden) for n in (2, 3, 4)]
    nodes += [_lstm("decoder1", decoder, hidden, hidden), _attention("attention", decoder, hidden, hidden, hidden)]
    nodes += [_lstm(f"decoder{n}", decoder, 2 * hidden, hidden) for n in (2, 3, 4)]
    nodes.append(_linear("classifier", decoder, hidden, vocabulary))
    return ModelGraph("gnmt", tuple(nodes))


def las(filters: int = 40, characters: int = 30) -> ModelGraph:
    """Return Listen, Attend and Spell (Chan et al. 2016, Section 4).

    The listener has a bidirectional LSTM and three pyramid layers of 256 in each direction, each of which halves the
    time. The speller has two LSTM layers of 512.

    One input step is one step of the top layer, that is 8 frames of audio; the layers below make 2, 4 and 8 steps in
    it. One output step is a character."""
    encoder, decoder, width = NodeKind.ENCODER, NodeKind.DECODER, 512  # both directions of 256, concatenated
    nodes = [_lstm("listener1", encoder, filters, 256, times=8, directions=2)]
    nodes += [
        _lstm(f"listener{n}", encoder, 2 * width, 256, times=times, directions=2)
        for n, times in ((2, 4), (3, 2), (4, 1))
    ]
    nodes += [
        _lstm("speller1", decoder, characters + width, 512),
        _lstm("speller2", decoder, 512, 512),
        _attention("attention", decoder, 512, width, 512),
        _linear("characters", decoder, 512 + width, characters),
    ]
    return ModelGraph("las", tuple(nodes))
