"""This module reads the images and sounds of a chat: from data URLs, and, where it is allowed, from other servers."""

import base64
import binascii
import io
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import soundfile
from PIL import Image

from headrace.batching import BadInput, CorruptInput
from headrace.host.dpu.reference import pillow_file

IMAGE: Final = "image"
AUDIO: Final = "audio"
NOUNS: Final = {IMAGE: "images", AUDIO: "sounds"}
JPEG: Final = b"\xff\xd8\xff"
WHITE: Final = (255, 255, 255)


@dataclass(frozen=True, slots=True)
class Source:
    """An image or a sound of a chat: its file, or the URL from which it comes. `place` names it in errors."""

    kind: str
    place: str
    data: bytes | None = None
    url: str | None = None


def source_of(part: dict[str, Any], place: str) -> Source | None:
    """Return the image or sound of a part of a message, or None for a part that has none.

    Raises BadInput for a part that is not in the form of OpenAI's protocol."""
    match part.get("type"):
        case "image_url":
            return _of_url(IMAGE, part.get("image_url"), place)
        case "audio_url":
            return _of_url(AUDIO, part.get("audio_url"), place)
        case "input_audio":
            given = part.get("input_audio")
            if not isinstance(given, dict) or not isinstance(given.get("data"), str):
                raise BadInput(f'{place}: give {{"type": "input_audio", "input_audio": {{"data": BASE64, ...}}}}')
            return Source(AUDIO, place, data=_decoded(given["data"], place))
    return None


def _of_url(kind: str, given: Any, place: str) -> Source:
    url = given.get("url") if isinstance(given, dict) else given
    if not isinstance(url, str):
        raise BadInput(f'{place}: give {{"type": "{kind}_url", "{kind}_url": {{"url": ...}}}}')
    if url.startswith("data:"):
        head, comma, body = url.partition(",")
        if not comma or not head.endswith(";base64"):
            raise BadInput(f"{place}: the data URL has no base64; give data:{kind}/...;base64,...")
        return Source(kind, place, data=_decoded(body, place))
    if url.startswith(("http://", "https://")):
        return Source(kind, place, url=url)
    raise BadInput(f"{place}: the URL begins with neither data: nor http; give one of these")


def _decoded(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"{place}: this is no base64: {error}") from None


async def fetched(source: Source, session: aiohttp.ClientSession, max_bytes: int) -> bytes:
    """Return the file of a source, and fetch it if it has a URL only. Raises BadInput."""
    if source.data is not None:
        return source.data
    assert source.url is not None
    held = bytearray()
    try:
        async with session.get(source.url) as response:
            if response.status != 200:
                raise BadInput(f"{source.place}: its server answered with the status {response.status}")
            async for piece in response.content.iter_any():
                held += piece
                if len(held) > max_bytes:
                    raise BadInput(f"{source.place}: the file has more than {max_bytes} bytes; give a smaller one")
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise BadInput(f"{source.place}: cannot fetch it: {error or type(error).__name__}") from None
    return bytes(held)


def image_as_vllm_reads(data: bytes, max_megapixels: int) -> bytes:
    """Return an image file with the pixels that vLLM sees in it: white is behind an alpha channel.

    A file without transparency is returned as it is. So is one in RGB that names a transparent colour, which vLLM
    leaves to the image processor. Raises CorruptInput."""
    if data.startswith(JPEG):
        return data
    with pillow_file.opened(data, max_megapixels) as image:
        if image.mode == "RGB" or not pillow_file.is_transparent(image):
            return data
        try:
            seen = pillow_file.upright(image).convert("RGBA")
        except Exception as error:  # the readers of Pillow raise errors of many classes
            raise CorruptInput(f"Pillow cannot decode this file: {error or type(error).__name__}") from error
    flat = Image.new("RGB", seen.size, WHITE)
    flat.paste(seen, mask=seen.getchannel("A"))
    file = io.BytesIO()
    flat.save(file, "BMP")
    return file.getvalue()


def audio_as_vllm_reads(data: bytes, longest_s: float) -> bytes:
    """Return a WAV file with the samples of an MP3 file, and any other file as it is.

    Raises CorruptInput, and BadInput for an MP3 file of more than `longest_s` seconds."""
    if not (data.startswith(b"ID3") or (data[:1] == b"\xff" and data[1:2] >= b"\xe0")):
        return data
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.frames > longest_s * file.samplerate:
                raise BadInput(
                    f"the audio is {file.frames / file.samplerate:.1f} s long; cut it into pieces of at most "
                    f"{longest_s:g} s"
                )
            samples, rate = file.read(dtype="float32"), file.samplerate
    except soundfile.LibsndfileError as error:
        raise CorruptInput(f"libsndfile cannot decode it: {error.error_string}") from error
    made = io.BytesIO()
    soundfile.write(made, samples, rate, "FLOAT", format="WAV")
    return made.getvalue()
