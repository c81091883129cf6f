"""Turn image files into tensors with the DPU, and check them against OpenCV: both are equal in every bit.

Usage: python 06_dpu_on_images.py [IMAGE ...]

Without a card, the DPU is emulated: the C++ of its compute units runs behind the API of a real card. The first run
compiles it, in about a minute. This needs: pip install "headrace[image,emulation]".
"""

import asyncio
import sys
from pathlib import Path

import cv2
import numpy as np

import headrace

SPEC = headrace.ImageSpec(resize_short=256, crop_width=224, crop_height=224)  # as ImageNet's networks want it


def with_opencv(data):
    """Decode, resize, crop and normalize an image, as the DPU does, on the CPU."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    height, width = image.shape[:2]
    short = min(height, width)
    size = (width * 256 // short, height * 256 // short)
    image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR_EXACT)
    x, y = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
    pixels = cv2.cvtColor(image[y : y + 224, x : x + 224], cv2.COLOR_BGR2RGB).astype(np.float32) / np.float32(255)
    return ((pixels - np.float32(SPEC.mean)) / np.float32(SPEC.std)).transpose(2, 0, 1)


async def main(files):
    # The container has four compute units for images, each of which takes one file at a time.
    async with headrace.Dpu(headrace.build(), SPEC) as dpu:
        inputs = [file.read_bytes() for file in files]
        tensors = await asyncio.gather(*(dpu.preprocess(data) for data in inputs))
        for file, data, tensor in zip(files, inputs, tensors, strict=True):
            equal = np.array_equal(tensor, with_opencv(data))
            print(f"{file.name}: {tensor.dtype} {tensor.shape}, {'equal to' if equal else 'differs from'} OpenCV's")
        print(
            f"the DPU did {dpu.counters.done}, the CPU {dpu.counters.on_cpu}"
        )  # what the DPU cannot take, the CPU does


asyncio.run(main([Path(name) for name in sys.argv[1:]] or [Path(__file__).parent / "chelsea.jpg"]))
