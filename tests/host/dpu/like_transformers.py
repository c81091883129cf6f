"""The tensors of an image processor of transformers, for a comparison with ours."""

import numpy as np
import PIL
import torch
import transformers
from PIL import Image

import headrace.host.workers.networks.models  # noqa: F401 (defines operators that torchvision needs)
from headrace.host.dpu.hugging_face.reading import CLASSES, from_hf
from headrace.host.dpu.processors import BFLOAT16, Engine
from headrace.host.dpu.reference.processor import process

PILLOW = Engine.PILLOW13 if int(PIL.__version__.partition(".")[0]) >= 13 else Engine.PILLOW12
ENGINES = {Engine.TORCHVISION: "", PILLOW: "Pil"}  # with the ending of the class


def engines(name):
    """Return the engines for which transformers has a class."""
    return tuple(ENGINES) if CLASSES[name].pillow else (Engine.TORCHVISION,)


def picture(width, height, seed=0):
    """Return smooth colours with noise, as photos have."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 7, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    return np.clip(smooth + rng.integers(-30, 31, smooth.shape), 0, 255).astype(np.uint8)


def theirs(name, settings, engine):
    """Return the image processor that transformers makes of a file."""
    return getattr(transformers, name + ENGINES[engine]).from_dict(settings)


def tensors(processor, image):
    """Return what a processor makes of an array of pixels, or of an image of Pillow."""
    found = processor(Image.fromarray(image) if isinstance(image, np.ndarray) else image, return_tensors="pt")
    return {key: _bits(value) for key, value in found.items()}


def check(name, settings, engine, images):
    """Compare the tensors of each image with those of transformers, to the bit."""
    expected_of, spec = theirs(name, settings, engine), from_hf({"image_processor_type": name, **settings}, engine)
    for image in images:
        assert_equal(process(image, spec), tensors(expected_of, image), image.shape)


def assert_equal(found, expected, about):
    assert set(found) == set(expected), about
    for key, values in found.items():
        assert (values.dtype, values.shape) == (expected[key].dtype, expected[key].shape), (about, key)
        assert np.array_equal(values, expected[key]), (about, key)


def _bits(tensor):
    """Return a tensor as an array, and bfloat16 as its bits."""
    if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(BFLOAT16)
    return np.asarray(tensor)
