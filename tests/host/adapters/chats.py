"""Image and sound files of many kinds, and chats with them, as OpenAI's protocol has them."""

import base64
import io

import numpy as np
import soundfile
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


def voice(seconds, kind="WAV", subtype="PCM_16", rate=16000, channels=1):
    """Return a sound file: a tone that rises, and noise."""
    time = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(len(time)).standard_normal((channels, len(time)))
    values = 0.3 * np.sin(2 * np.pi * (150 + 400 * time) * time) + 0.1 * noise
    file = io.BytesIO()
    soundfile.write(file, values.T, rate, subtype, format=kind)
    return file.getvalue()


SOUNDS = {
    "WAV": voice(1.3),
    "WAV of two channels": voice(0.9, channels=2),
    "WAV of floats": voice(0.7, subtype="FLOAT"),
    "FLAC": voice(2.1, "FLAC"),
    "MP3": voice(1.7, "MP3", "MPEG_LAYER_III"),
}


def image(data):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def sound(data):
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


def sound_url(data):
    return {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{base64.b64encode(data).decode()}"}}


def chat(*content, **more):
    """Return a request of texts, image files as bytes, and parts of a message as they are."""
    parts = [
        {"type": "text", "text": each} if isinstance(each, str) else image(each) if isinstance(each, bytes) else each
        for each in content
    ]
    return {"model": MODEL, "messages": [{"role": "user", "content": parts}], **more}
