"""Whether two results of transformers are the same: names, types, shapes and values."""

import json

import numpy as np
import torch

import headrace.host.workers.networks.models  # noqa: F401 (defines operators that torchvision needs)
from headrace.host.dpu.hugging_face.names import FILE


def assert_same(found, expected, bound=0.0, at="result"):
    """Compare values of any nesting. Floating-point tensors may differ by `bound`."""
    assert type(found) is type(expected), at
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.device) == (expected.dtype, expected.device), at
        if expected.dtype == torch.bfloat16:
            found, expected = found.float(), expected.float()
        found, expected = found.numpy(), expected.numpy()
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), at
        if bound and expected.dtype.kind == "f":
            assert np.abs(found - expected).max(initial=0) < bound, at
        else:
            assert np.array_equal(found, expected), at
    elif hasattr(expected, "keys"):
        assert list(found) == list(expected), at
        for key in expected:
            assert_same(found[key], expected[key], bound, f"{at}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), at
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, bound, f"{at}[{place}]")
    else:
        assert found == expected, at


def outcome(call):
    """Return what a call returns, or the class and the text of its error."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def model(folder, settings):
    """Write the settings of a model into its folder, which is returned."""
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(json.dumps(dict(settings)))
    return folder
