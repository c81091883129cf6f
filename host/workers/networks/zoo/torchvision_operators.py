"""Define two operators of torchvision, so that its import works with a torch without CUDA.

The compiled operators in its wheel are built for a CUDA torch and do not load with a CPU one. The import then fails on
the fake kernels of these two operators, which no network here uses. To define them is enough. After the import of this
module, torchvision, timm and transformers can be imported in any order.
"""

import torch

_NAMES = ("nms", "qnms")
_library: torch.library.Library | None = None  # an operator lives as long as its library object

if torch.version.cuda is None:
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _name in _NAMES:
        if not hasattr(torch.ops.torchvision, _name):
            _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
