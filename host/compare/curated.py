"""The curated inputs: 60 small images and 20 sounds, each with something that front ends treat differently.

They are made by formulas and by seeded noise, so every machine makes the same pixels and samples. The bytes of a file
may change with the release of the library that encodes it.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from headrace.host.dpu.reference.orientation import ORIENTATION_TAG

NAME: Final = "curated"  # what stands for these inputs in place of a folder
SUBSAMPLINGS: Final = ("444", "422", "420", "440", "411")


# ---- Pictures ----


def picture(width: int, height: int, seed: int = 1) -> NDArray[np.uint8]:
    """Return smooth colours with noise, saturated bars, and fine black and red lines, as photos and text have them."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    u, v = x / max(1, width - 1), y / max(1, height - 1)
    waves = np.stack([np.sin(2 * np.pi * (a * u + b * v + c)) for a, b, c in rng.uniform(0.3, 2.5, (3, 3))], -1)
    pixels = 128 + 100 * waves + rng.integers(-20, 21, (height, width, 3))
    bars = (v > 0.4) & (v < 0.6)
    colours = np.array([(255, 0, 0), (0, 0, 255), (0, 255, 0), (255, 0, 255), (255, 255, 0), (0, 255, 255)])
    which = np.minimum((u * 6).astype(int), 5)
    pixels[bars] = colours[which[bars]]
    lines = (v > 0.75) & (v < 0.95)
    pixels[lines & (x % 4 < 1)] = (0, 0, 0)
    pixels[lines & (x % 4 >= 1)] = (250, 250, 250)
    pixels[lines & (x % 12 < 1)] = (220, 0, 0)
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def _jpeg(pixels: NDArray[np.uint8], subsampling: str, quality: int = 90) -> bytes:
    made: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels), quality=quality, colorspace="RGB", colorsubsampling=subsampling
    )
    return made


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _image(width: int, height: int, seed: int = 1, mode: str = "RGB") -> Image.Image:
    return Image.fromarray(picture(width, height, seed)).convert(mode)


def _turned(orientation: int, kind: str = "JPEG", **options: Any) -> bytes:
    """Return a file whose Exif data have an orientation."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    return _saved(_image(240, 160, orientation), kind, exif=exif.tobytes(), **options)


def _soft(width: int, height: int) -> Image.Image:
    """Return an image whose opacity grows from left to right."""
    image = _image(width, height, 5, "RGBA")
    image.putalpha(Image.fromarray(np.tile(np.linspace(0, 255, width).astype(np.uint8), (height, 1))))
    return image


def _gray16(low: int, high: int) -> bytes:
    ramp = np.linspace(low, high, 200 * 120).astype(np.uint16).reshape(120, 200)
    return _saved(Image.fromarray(ramp), "PNG")


def _rgb16() -> bytes:
    pixels = picture(200, 120, 7).astype(np.uint16) * 257
    return bytes(cv2.imencode(".png", pixels[..., ::-1])[1])


def _palette(colours: int, kind: str, **options: Any) -> bytes:
    return _saved(_image(200, 150, 3).quantize(colours, dither=Image.Dither.NONE), kind, **options)


def _cmyk(width: int, height: int) -> bytes:
    return _saved(_image(width, height, 4, "CMYK"), "JPEG", quality=92)


Make = Callable[[], bytes]


def _subsampled() -> dict[str, Make]:
    made: dict[str, Make] = {}
    for kind in SUBSAMPLINGS:
        made[f"jpeg-{kind}.jpg"] = lambda kind=kind: _jpeg(picture(320, 240), kind)  # type: ignore[misc]
        made[f"jpeg-{kind}-odd.jpg"] = lambda kind=kind: _jpeg(picture(319, 241, 2), kind)  # type: ignore[misc]
    return made


IMAGES: Final[Mapping[str, Make]] = {
    **_subsampled(),  # 10
    "jpeg-gray.jpg": lambda: _saved(_image(320, 240, 1, "L"), "JPEG", quality=90),
    "jpeg-gray-odd.jpg": lambda: _saved(_image(127, 203, 2, "L"), "JPEG", quality=90),
    "jpeg-progressive-420.jpg": lambda: _saved(_image(320, 240), "JPEG", progressive=True, subsampling="4:2:0"),
    "jpeg-progressive-444.jpg": lambda: _saved(_image(320, 240), "JPEG", progressive=True, subsampling="4:4:4"),
    "jpeg-progressive-gray.jpg": lambda: _saved(_image(320, 240, 1, "L"), "JPEG", progressive=True),
    "jpeg-progressive-odd.jpg": lambda: _saved(_image(163, 97), "JPEG", progressive=True),
    "jpeg-quality-10.jpg": lambda: _jpeg(picture(320, 240), "420", 10),
    "jpeg-quality-100.jpg": lambda: _jpeg(picture(320, 240), "444", 100),
    "jpeg-restarts.jpg": lambda: _saved(_image(320, 240), "JPEG", restart_marker_blocks=3),
    "jpeg-large.jpg": lambda: _jpeg(picture(1280, 960, 8), "420", 75),
    "jpeg-large-tall.jpg": lambda: _jpeg(picture(600, 1400, 9), "420", 75),
    **{f"exif-{turn}.jpg": lambda turn=turn: _turned(turn, quality=90) for turn in range(1, 9)},  # type: ignore[misc]
    "exif-6.png": lambda: _turned(6, "PNG"),
    "exif-8.webp": lambda: _turned(8, "WEBP", quality=90),
    "cmyk.jpg": lambda: _cmyk(240, 160),
    "cmyk-odd.jpg": lambda: _cmyk(77, 131),
    "palette-16.png": lambda: _palette(16, "PNG"),
    "palette-transparent.png": lambda: _palette(16, "PNG", transparency=3),
    "palette.gif": lambda: _palette(128, "GIF"),
    "bilevel.png": lambda: _saved(_image(200, 150, 3, "1"), "PNG"),
    "alpha-soft.png": lambda: _saved(_soft(240, 160), "PNG"),
    "alpha-none-seen.png": lambda: _saved(Image.new("RGBA", (120, 120), (200, 30, 60, 0)), "PNG"),
    "alpha-gray.png": lambda: _saved(_soft(160, 120).convert("LA"), "PNG"),
    "alpha-key.png": lambda: _saved(_image(160, 120, 3), "PNG", transparency=(255, 0, 0)),
    "alpha-soft.webp": lambda: _saved(_soft(240, 160), "WEBP", lossless=True),
    "gray.png": lambda: _saved(_image(200, 150, 3, "L"), "PNG"),
    "gray-16-dark.png": lambda: _gray16(0, 255),
    "gray-16.png": lambda: _gray16(0, 65535),
    "rgb-16.png": _rgb16,
    "rgb.png": lambda: _saved(_image(320, 240, 6), "PNG"),
    "rgb-224.png": lambda: _saved(_image(224, 224, 6), "PNG"),
    "ratio-40-to-1.png": lambda: _saved(_image(800, 20, 3), "PNG"),
    "ratio-1-to-40.png": lambda: _saved(_image(20, 800, 3), "PNG"),
    "ratio-150-to-1.jpg": lambda: _jpeg(picture(600, 4, 3), "420"),
    "ratio-1-to-150.jpg": lambda: _jpeg(picture(4, 600, 3), "420"),
    "pixel-1x1.png": lambda: _saved(_image(1, 1), "PNG"),
    "pixel-1x64.png": lambda: _saved(_image(64, 1), "PNG"),
    "pixel-64x1.jpg": lambda: _jpeg(picture(1, 64), "420"),
    "pixel-2x2.jpg": lambda: _jpeg(picture(2, 2), "420"),
    "lossy.webp": lambda: _saved(_image(320, 240), "WEBP", quality=80),
    "lossless.webp": lambda: _saved(_image(320, 240), "WEBP", lossless=True),
    "pages.tiff": lambda: _saved(
        _image(200, 150), "TIFF", compression="tiff_lzw", save_all=True, append_images=[_image(90, 60, 2)]
    ),
    "plain.bmp": lambda: _saved(_image(163, 97), "BMP"),
}


# ---- Sounds ----


def _file(samples: NDArray[Any], rate: int, subtype: str = "PCM_16", form: str = "WAV") -> bytes:
    import soundfile  # here, as images need no libsndfile

    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    data = bytearray(file.getvalue())
    if subtype == "FLOAT":  # libsndfile writes the time of day into the chunk PEAK, after its size and version
        at = data.index(b"PEAK") + 12
        data[at : at + 4] = bytes(4)
    return bytes(data)


def _time(seconds: float, rate: int) -> NDArray[np.float64]:
    return np.arange(round(seconds * rate)) / rate


def _tone(hz: float, seconds: float, rate: int, height: float = 0.5) -> NDArray[np.float64]:
    return height * np.sin(2 * np.pi * hz * _time(seconds, rate))


def _square(hz: float, seconds: float, rate: int, height: float) -> NDArray[np.float64]:
    return height * np.where((_time(seconds, rate) * hz) % 1 < 0.5, 1.0, -1.0)


def _noise(seconds: float, rate: int, height: float, seed: int = 1) -> NDArray[np.float64]:
    return height * np.random.default_rng(seed).uniform(-1, 1, round(seconds * rate))


def _clicks(seconds: float, rate: int, every_s: float) -> NDArray[np.float64]:
    samples = np.zeros(round(seconds * rate))
    samples[rate // 10 :: round(every_s * rate)] = 0.9
    return samples


def _voice(seconds: float, rate: int, seed: int = 1) -> NDArray[np.float64]:
    """Return a buzz with a moving pitch and pauses between its parts, which resembles speech."""
    time = _time(seconds, rate)
    pitch = 2 * np.pi * np.cumsum(130 + 40 * np.sin(2 * np.pi * 1.5 * time)) / rate
    harmonics = range(1, min(25, int(0.45 * rate / 170)))
    buzz = np.stack([np.sin(k * pitch) / k for k in harmonics]).sum(0)
    envelope = np.clip(np.sin(2 * np.pi * 2.3 * time), 0, 1)
    made: NDArray[np.float64] = 0.2 * envelope * buzz + _noise(seconds, rate, 0.01, seed)
    return made


def _stereo(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([left, right], 1)


AUDIO: Final[Mapping[str, Make]] = {
    "silence.wav": lambda: _file(np.zeros(16000), 16000),
    "tone-440.wav": lambda: _file(_tone(440, 1, 16000), 16000),
    "tone-7500.wav": lambda: _file(_tone(7500, 1, 16000), 16000),
    "tone-above-the-band.wav": lambda: _file(_tone(10000, 1, 44100), 44100),
    "click.wav": lambda: _file(_clicks(0.6, 16000, 1.0), 16000),
    "clicks.wav": lambda: _file(_clicks(1.0, 16000, 0.0531), 16000),
    "noise.wav": lambda: _file(_noise(1, 16000, 0.5), 16000),
    "noise-quiet.wav": lambda: _file(_noise(1, 16000, 0.001), 16000),
    "square-200-full.wav": lambda: _file(_square(200, 1, 16000, 0.99), 16000),
    "square-3000-48k.wav": lambda: _file(_square(3000, 0.7, 48000, 0.5), 48000),
    "short-25ms.wav": lambda: _file(_voice(0.025, 16000), 16000),
    "short-100ms.wav": lambda: _file(_voice(0.1, 16000), 16000),
    "voice-8k.wav": lambda: _file(_voice(1.2, 8000), 8000),
    "voice-22k.wav": lambda: _file(_voice(1.2, 22050), 22050),
    "voice-44k-stereo.wav": lambda: _file(_stereo(_voice(1, 44100), _voice(1, 44100, 2)[::-1]), 44100),
    "voice-48k-24bit.wav": lambda: _file(_voice(1, 48000), 48000, "PCM_24"),
    "voice-8bit.wav": lambda: _file(_voice(1, 16000), 16000, "PCM_U8"),
    "voice-float-loud.wav": lambda: _file(4 * _voice(1, 16000), 16000, "FLOAT"),
    "stereo-one-side.wav": lambda: _file(_stereo(_voice(1, 16000), np.zeros(16000)), 16000),
    "voice-32k.flac": lambda: _file(_voice(1, 32000), 32000, "PCM_24", "FLAC"),
}


def files(audio: bool) -> dict[str, bytes]:
    """Return the curated images, or the curated sounds, by their names."""
    return {name: make() for name, make in (AUDIO if audio else IMAGES).items()}


def write(folder: Path) -> list[Path]:
    """Write all curated inputs to the folders `images` and `sounds` of a folder, and return their paths."""
    paths = []
    for name, made in (("images", files(audio=False)), ("sounds", files(audio=True))):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, data in made.items():
            path = folder / name / file
            path.write_bytes(data)
            paths.append(path)
    return paths
