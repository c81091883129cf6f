"""Image files of many kinds, and chats with them, as OpenAI's protocol has them."""

import base64
import io

import numpy as np
from PIL import Image

MODEL = "tiny"


def picture(kind, mode="RGB", size=(90, 70), exif=None):
    rng = np.random.default_rng(size[0])
    pixels = rng.integers(0, 256, (7, 7, len(mode) if mode != "P" else 3), np.uint8)
    image = Image.fromarray(pixels.squeeze(), "RGB" if mode == "P" else mode).resize(size, Image.Resampling.BICUBIC)
    file = io.BytesIO()
    options = {} if exif is None else {"exif": exif}
    if mode == "P":
        image, options = image.quantize(20), {"transparency": 3}
    image.save(file, kind, **options)
    return file.getvalue()


def on_its_side():
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


FILES = {
    "JPEG": picture("JPEG"),
    "JPEG on its side": picture("JPEG", size=(150, 60), exif=on_its_side()),
    "PNG": picture("PNG", size=(200, 31)),
    "PNG with alpha": picture("PNG", "RGBA", size=(64, 91)),
    "PNG, gray with alpha": picture("PNG", "LA"),
    "PNG with a palette and a transparent colour": picture("PNG", "P"),
    "WebP with alpha": picture("WEBP", "RGBA"),
}


def image(data):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def chat(*content, **more):
    parts = [{"type": "text", "text": each} if isinstance(each, str) else image(each) for each in content]
    return {"model": MODEL, "messages": [{"role": "user", "content": parts}], **more}
