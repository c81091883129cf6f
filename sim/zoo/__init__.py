"""The networks of the papers as model graphs with operator shapes: one node for each layer, inputs of 224 x 224 for
images.
"""

import difflib
from collections.abc import Callable
from functools import cache, partial

from headrace.batching.errors import UnknownModel
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.sim.zoo import cnn, recurrent, transformer

_BUILDERS: dict[str, Callable[[], ModelGraph]] = {
    "resnet50": cnn.resnet50,
    "vgg16": cnn.vgg16,
    "mobilenet_v1": cnn.mobilenet_v1,
    "googlenet": cnn.googlenet,
    "gnmt": recurrent.gnmt,
    "las": recurrent.las,
    "transformer": transformer.transformer,
    "transformer_uncached": partial(transformer.transformer, cached=False),
    "bert_base": transformer.bert_base,
    "conformer": transformer.conformer,
}
MODELS = tuple(_BUILDERS)


@cache
def model_graph(name: str) -> ModelGraph:
    """Return the graph of one of `MODELS`. Raises UnknownModel for any other name."""
    if name not in _BUILDERS:
        close = difflib.get_close_matches(name, MODELS, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"choose from {', '.join(MODELS)}"
        raise UnknownModel(f"there is no model graph {name!r}; {hint}")
    return _BUILDERS[name]()
