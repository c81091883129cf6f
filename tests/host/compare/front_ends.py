"""Front ends for tests, as users write them: each takes the bytes of an image for CLIP, and one thing is its own."""

import io

import cv2
import numpy as np
import torch
from PIL import Image, ImageOps

import headrace.host.workers.networks.models  # noqa: F401 (defines operators that torchvision needs)

MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
OF_IMAGENET = (np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32))


def clip(data, *, turn=True, bgr=False, filter_="BICUBIC", mean=MEAN, std=STD, by_opencv=False):
    """Return the tensor of CLIP by torchvision, written anew, for images whose sides are at least 224."""
    from torchvision.transforms.v2 import functional

    image = Image.open(io.BytesIO(data))
    image = (ImageOps.exif_transpose(image) if turn else image).convert("RGB")
    width, height = image.size
    size = (224, int(224 * height / width)) if width <= height else (int(224 * width / height), 224)
    if by_opencv:
        pixels = torch.from_numpy(cv2.resize(np.asarray(image), size, interpolation=cv2.INTER_CUBIC)).permute(2, 0, 1)
    else:
        mode = getattr(functional.InterpolationMode, filter_)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        pixels = functional.resize(pixels, [size[1], size[0]], mode, antialias=True)
    values = functional.center_crop(pixels, [224, 224]).permute(1, 2, 0).numpy().astype(np.float32)
    values = (values[..., ::-1] if bgr else values) / 255
    return np.ascontiguousarray(((values - mean) / std).transpose(2, 0, 1))[None]


def same(data):
    return clip(data)


def by_names(data):
    return {"pixel_values": torch.from_numpy(clip(data))}


def without_exif(data):
    return clip(data, turn=False)


def bgr(data):
    return clip(data, bgr=True)


def bilinear(data):
    return clip(data, filter_="BILINEAR")


def by_opencv(data):
    return clip(data, by_opencv=True)


def imagenet(data):
    return clip(data, mean=OF_IMAGENET[0], std=OF_IMAGENET[1])


def channels_last(data):
    return clip(data).transpose(0, 2, 3, 1)


def without_batch(data):
    return clip(data)[0]


def halves(data):
    return clip(data).astype(np.float16)


def noise(data):
    return np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)


class Net(torch.nn.Module):
    """A network whose first class changes if red and blue are exchanged."""

    def forward(self, pixel_values):
        means = pixel_values.mean((2, 3))
        return torch.stack([means[:, 0] - means[:, 2], means[:, 2] - means[:, 0]], 1)
