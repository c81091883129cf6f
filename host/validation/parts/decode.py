"""JPEG files to pixels: the GPU's decoders by torchvision, and OpenCV on the CPU."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from headrace.host.validation.parts.torch_runs import seconds_of
from headrace.host.validation.plan import Check, Row, failed
from headrace.host.validation.prediction import model_of
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.hardware.nvjpg import ENGINE_IMAGES_S

IMAGE_FILE = Path("examples", "chelsea.jpg")  # in the checkout, which is the part's folder
NO_GPU = "nvJPEG needs a GPU"


def rows(check: Check) -> Iterator[Row]:
    data = IMAGE_FILE.read_bytes()
    host = torch.device("cpu")
    pixels = None
    try:
        import cv2

        given = np.frombuffer(data, np.uint8)
        found = cv2.imdecode(given, cv2.IMREAD_COLOR)
        assert found is not None, f"OpenCV cannot read {IMAGE_FILE}"
        pixels = found[:, :, ::-1]  # BGR to RGB
        took = seconds_of(lambda: cv2.imdecode(given, cv2.IMREAD_COLOR), host, check.sizes.point_s)
        case = f"OpenCV, one core, {pixels.shape[1]}x{pixels.shape[0]}"
        yield Row(case, "images", "1/s", None, 1 / took, details={"pixels": pixels.shape[0] * pixels.shape[1]})
    except Exception as error:
        yield failed("OpenCV, one core", "images", "1/s", error)
    case = f"nvJPEG, {check.sizes.images} images at once"
    if check.device != "cuda":
        yield Row(case, "images", "1/s", None, None, NO_GPU)
        return
    from torchvision.io import ImageReadMode, decode_jpeg  # without CUDA operators this raises, and ends the part

    files = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for _ in range(check.sizes.images)]
    device = torch.device("cuda")

    def decode() -> list[torch.Tensor]:
        images: list[torch.Tensor] = decode_jpeg(files, mode=ImageReadMode.RGB, device=device)
        return images

    decoded = decode()[0].permute(1, 2, 0).cpu().numpy()
    took = seconds_of(decode, device, check.sizes.point_s)
    count = decoded.shape[0] * decoded.shape[1]
    gpu = model_of(check.gpu)
    engines = 0 if gpu is None else max(profile.jpeg_engines for profile in gpu.profiles.values())
    expected = engines * ENGINE_IMAGES_S * TYPICAL_PIXELS / count or None
    details: dict[str, object] = {"pixels": count, "engines": engines}
    note = f"{engines} engines by the model"
    if pixels is not None:
        difference = np.abs(decoded.astype(int) - pixels.astype(int))
        details |= {"largest_difference": int(difference.max()), "mean_difference": float(difference.mean())}
        note += f"; pixels differ from OpenCV's by {difference.max()} at most, {difference.mean():.2f} in the mean"
    yield Row(case, "images", "1/s", expected, check.sizes.images / took, note, details)
