"""A small engine with the calls of vLLM that the front end uses.

It renders with the processors of transformers, and reads features by code of its own. What it generates depends on
each token and each value that it is given. test_vllm_server.py runs the same front end before a real vLLM.
"""

import asyncio
import base64
import contextlib
import hashlib
import io
import json

import msgpack
import numpy as np
import soundfile
import torch
import transformers
from aiohttp import web
from chats import MODEL
from PIL import Image, ImageOps

MAX_TOKENS = 4096
KINDS = {"image_url": "image", "audio_url": "audio", "input_audio": "audio"}  # by the type of a part
WORDS = ["one ", "two ", "thr", "ee ", "\N{SNOWMAN}", "."]


class EngineDouble:
    """The engine. `normalizes` makes it want bytes, as vLLM does for Qwen2-VL.

    `requests` holds what `generate` was given. `fault` makes it fail: "gone" in the middle of an answer, "slow", or an
    error before it."""

    render_path = "/v1/chat/completions/render"

    def __init__(self, folder, processor=transformers.Qwen2VLProcessor, normalizes=True, scale_out=True):
        self.processor = processor.from_pretrained(folder)
        self.normalizes, self.scale_out = normalizes, scale_out
        self.requests, self.fault, self.cancelled = [], None, asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self):
        """Serve it, and give its address."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        if self.scale_out:
            app.router.add_post(self.render_path, self.render)
            app.router.add_post("/inference/v1/generate", self.generate)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield "http://127.0.0.1:{1}".format(*runner.addresses[0])
        finally:
            await runner.cleanup()

    async def models(self, request):
        return web.json_response({"data": [{"id": MODEL, "max_model_len": MAX_TOKENS}]})

    async def health(self, request):
        return web.Response()

    async def render(self, request):
        body = await request.json()
        if self.takes(body["messages"]):
            return web.json_response(self.rendered(body["messages"]))
        error = {"message": "At most 0 audio(s) may be provided in one prompt.", "type": "BadRequestError", "code": 400}
        return web.json_response({"error": error}, status=400)

    def takes(self, messages):
        """Tell whether the model takes the kinds of input of a chat."""
        return all(kind == "image" for kind, _ in parts_of(messages))

    def rendered(self, messages):
        """Return tokens and features of a chat, as vLLM's renderer does."""
        given = parts_of(messages)
        inputs = {
            "images": [read(data) for kind, data in given if kind == "image"],
            "audio": [
                soundfile.read(io.BytesIO(data), always_2d=True)[0].mean(1) for kind, data in given if kind == "audio"
            ],
        }
        of_template = [
            {
                "role": message["role"],
                "content": [
                    {"type": KINDS.get(part["type"])} if part["type"] in KINDS else part for part in message["content"]
                ]
                if isinstance(message["content"], list)
                else [{"type": "text", "text": message["content"]}],
            }
            for message in messages
        ]
        text = self.processor.apply_chat_template(of_template, tokenize=False, add_generation_prompt=True)
        as_bytes = {"images_kwargs": {"do_rescale": False, "do_normalize": False}} if self.normalizes else {}
        made = self.processor(
            text=text, return_tensors="pt", **as_bytes, **{name: each for name, each in inputs.items() if each}
        )
        tokens = made["input_ids"][0].tolist()
        answer = {"token_ids": tokens, "features": None}
        answer["sampling_params"] = {"temperature": 0.7, "top_k": None, "max_tokens": 4000, "output_kind": 2}
        if given:
            answer["features"] = self.features(made, tokens)
        return answer

    def features(self, made, tokens):
        """Return features in vLLM's form."""
        return in_form({"image": images_of(made, tokens, self.processor.image_token_id)})

    async def generate(self, request):
        body = await request.json()
        self.requests.append(body)
        if body["sampling_params"].get("temperature", 1) < 0:
            error = {"message": "temperature must be non-negative", "type": "BadRequestError", "code": 400}
            return web.json_response({"error": error}, status=400)
        words = [*WORDS, digest(body)]
        usage = {"prompt_tokens": len(body["token_ids"]), "completion_tokens": len(words)}
        usage["total_tokens"] = sum(usage.values())
        if not body["stream"]:
            if self.fault == "slow":
                try:
                    await asyncio.sleep(3600)
                finally:
                    self.cancelled.set()
            tokens = body["sampling_params"].get("allowed_token_ids", [1, 2])
            choice = {"index": 0, "text": "".join(words), "finish_reason": "stop", "token_ids": tokens[-1:]}
            return web.json_response({"choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, word in enumerate(words):
            if number == 3 and self.fault == "gone":
                request.transport.abort()
                return response
            if number == 3 and self.fault == "slow":
                try:
                    await asyncio.sleep(3600)
                finally:
                    self.cancelled.set()
            last = "stop" if number == len(words) - 1 else None
            await send(response, {"choices": [{"index": 0, "text": word, "finish_reason": last, "token_ids": [1]}]})
        if body.get("stream_options", {}).get("include_usage"):
            await send(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response


class OmniDouble(EngineDouble):
    """An engine of Qwen2.5-Omni, which takes images and sounds. It wants the form that vLLM has for this model."""

    def __init__(self, folder, **settings):
        super().__init__(folder, transformers.Qwen2_5OmniProcessor, normalizes=False, **settings)

    def takes(self, messages):
        return True

    def features(self, made, tokens):
        return in_form(
            {
                "image": images_of(made, tokens, self.processor.image_token_id),
                "audio": sounds_of(made, tokens, self.processor.audio_token_id),
            }
        )


class WhisperDouble(EngineDouble):
    """An engine of Whisper with Headrace's plugin. It takes the last language for that of each sound."""

    render_path = "/v1/audio/transcriptions/render"

    def __init__(self, folder, **settings):
        super().__init__(folder, transformers.WhisperProcessor, **settings)

    async def render(self, request):
        form = await request.post()
        return web.json_response(self.rendered(form["file"].file.read(), form["language"]))

    def rendered(self, data, language, task="transcribe", before=""):
        """Return tokens and features of one piece of a sound."""
        start = "<|startoftranscript|>"
        text = f"{start}<|{language}|><|{task}|><|notimestamps|>"
        text = f"{start}<|prev|>{before}{text}" if before else text
        tokens = self.processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        samples = soundfile.read(io.BytesIO(data), always_2d=True)[0].mean(1)
        made = self.processor(audio=samples, sampling_rate=16000, return_tensors="pt")["input_features"][0]
        elements = {"input_features": {"data": tensor(made), "field": ["batched", {"keep_on_cpu": False}]}}
        features = in_form({"audio": [(elements, {"offset": 0, "length": 1500})]})
        return {"token_ids": tokens, "features": features, "sampling_params": {"top_k": 0, "max_tokens": 440}}


async def send(response, event):
    """Send an event in two pieces, as a network may."""
    data = b"data: " + json.dumps(event).encode() + b"\n\n"
    await response.write(data[:9])
    await response.write(data[9:])


def read(data):
    """Return an image as vLLM reads it."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode == "RGB":
        return image
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image.convert("RGB")


def parts_of(messages):
    """Return the images and sounds of a chat: pairs of the kind and the file."""
    found = []
    for message in messages:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "input_audio":
                found.append(("audio", base64.b64decode(part["input_audio"]["data"])))
            elif part["type"] in KINDS:
                url = part[part["type"]]["url"]
                found.append((KINDS[part["type"]], base64.b64decode(url.partition(",")[2])))
    return found


def images_of(made, tokens, placeholder):
    """Return the features of each image, and the range of its tokens."""
    items, at, row = [], 0, 0
    for grid in made.get("image_grid_thw", []):
        rows = int(grid.prod())
        at = tokens.index(placeholder, at)
        patches = made["pixel_values"][row : row + rows]
        flat = ["flat", {"keep_on_cpu": False, "slices": [[[0, rows, None]]], "dim": 0}]
        elements = {
            "pixel_values": {"data": tensor(patches), "field": flat},
            "image_grid_thw": {"data": tensor(grid), "field": ["batched", {"keep_on_cpu": True}]},
        }
        items.append((elements, {"offset": at, "length": rows // 4}))
        at += rows // 4
        row += rows
    return items


def sounds_of(made, tokens, placeholder):
    """Return the features of each sound, and the range of its tokens."""
    items, at = [], 0
    for values, mask in zip(made.get("input_features", []), made.get("feature_attention_mask", []), strict=True):
        frames = mask.sum()
        length = int((frames + 1) // 4)
        at = tokens.index(placeholder, at)
        flat = ["flat", {"keep_on_cpu": False, "slices": [[[None, None, None], [0, int(frames), None]]], "dim": 1}]
        on_cpu = ["batched", {"keep_on_cpu": True}]
        elements = {
            "feature_attention_mask": {"data": tensor(mask), "field": on_cpu},
            "input_audio_features": {"data": tensor(values[:, mask.bool()]), "field": flat},
            "audio_feature_lengths": {"data": tensor(frames), "field": on_cpu},
        }
        items.append((elements, {"offset": at, "length": length}))
        at += length
    return items


def in_form(media):
    """Return the features of items by their kind, in vLLM's form."""
    media = {kind: items for kind, items in media.items() if items}
    texts = {
        kind: [base64.b64encode(msgpack.packb(elements)).decode() for elements, _ in items]
        for kind, items in media.items()
    }
    return {
        "mm_hashes": {kind: [hashlib.sha256(each.encode()).hexdigest() for each in of] for kind, of in texts.items()},
        "mm_placeholders": {kind: [place for _, place in items] for kind, items in media.items()},
        "kwargs_data": texts,
    }


def tensor(values):
    kept = values.contiguous()
    return [str(values.dtype).removeprefix("torch."), list(values.shape), msgpack.ExtType(3, kept.numpy().tobytes())]


def values_of(item):
    """Return the tensors of an item."""
    read_ = msgpack.unpackb(base64.b64decode(item))
    made = {}
    for name, element in read_.items():
        dtype, shape, data = element["data"]
        made[name] = torch.from_numpy(np.frombuffer(data.data, dtype).copy()).reshape(shape)
    return made


def digest(body):
    """Return a text that is another one for any other token or value."""
    found = hashlib.sha256(repr(body["token_ids"]).encode())
    given = body.get("features") or {"kwargs_data": {"image": []}, "mm_placeholders": {}}
    found.update(json.dumps(given["mm_placeholders"], sort_keys=True).encode())
    for item in given["kwargs_data"].get("image", []):
        for name, values in sorted(values_of(item).items()):
            found.update(f"{name} {values.dtype} {tuple(values.shape)}".encode() + values.numpy().tobytes())
    return found.hexdigest()
