"""Two operators of torchvision, so that it can be imported beside a torch without CUDA.

Its wheel's compiled operators are built against a CUDA torch and do not load beside a CPU one. The import then fails on
the fake kernels of these two, which no network here uses. To define them is enough. Whoever imports this module may
import torchvision, timm or transformers afterwards, in any order."""

import torch

_NAMES = ("nms", "qnms")
_library: torch.library.Library | None = None  # an operator lives as long as its library object

if torch.version.cuda is None:
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _name in _NAMES:
        if not hasattr(torch.ops.torchvision, _name):
            _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
