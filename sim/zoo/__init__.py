"""The networks of the papers as model graphs with operator shapes: one node for each layer, inputs of 224 x 224 for
images.
"""

import difflib
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

from headrace.batching.errors import UnknownModel, UsageError, one_line
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.named import installed, is_own, own
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
GROUP = "headrace.models"  # the group of entry points


@cache
def model_graph(name: str) -> ModelGraph:
    """Return the graph of one of `MODELS`, of an entry point, or of `module:function`.

    The last two are functions that return a ModelGraph.

    Raises UnknownModel and UsageError."""
    if name not in _BUILDERS and is_own(name, GROUP):
        return _own(name)
    if name not in _BUILDERS:
        known = (*MODELS, *installed(GROUP))
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"choose from {', '.join(known)}"
        raise UnknownModel(f"there is no model graph {name!r}; {hint}")
    return _BUILDERS[name]()


def _own(name: str) -> ModelGraph:
    function = own("--model", name, GROUP)
    try:
        graph = function()
    except Exception as error:
        raise UsageError(f"--model {name}: calling it failed: {one_line(error)}") from error
    if not isinstance(graph, ModelGraph):
        raise UsageError(f"--model {name} returns {type(graph).__name__}; it must return a headrace.ModelGraph")
    return replace(graph, name=name)
