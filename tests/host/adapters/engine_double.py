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
import torch
import transformers
from aiohttp import web
from chats import MODEL
from PIL import Image, ImageOps

MAX_TOKENS = 4096
WORDS = ["one ", "two ", "thr", "ee ", "\N{SNOWMAN}", "."]


class EngineDouble:
    """The engine. `normalizes` makes it want bytes, as vLLM does for Qwen2-VL.

    `requests` holds what `generate` was given. `fault` makes it fail: "gone" in the middle of an answer, "slow", or an
    error before it."""

    def __init__(self, folder, normalizes=True, scale_out=True):
        self.processor = transformers.Qwen2VLProcessor.from_pretrained(folder)
        self.normalizes, self.scale_out = normalizes, scale_out
        self.requests, self.fault, self.cancelled = [], None, asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self):
        """Serve it, and give its address."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        if self.scale_out:
            app.router.add_post("/v1/chat/completions/render", self.render)
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
        return web.json_response(self.rendered(body["messages"]))

    def rendered(self, messages):
        """Return tokens and features of a chat, as vLLM's renderer does."""
        images = [
            read(base64.b64decode(part["image_url"]["url"].partition(",")[2]))
            for message in messages
            for part in (message["content"] if isinstance(message["content"], list) else [])
            if part["type"] == "image_url"
        ]
        of_template = [
            {
                "role": message["role"],
                "content": [{"type": "image"} if part["type"] == "image_url" else part for part in message["content"]]
                if isinstance(message["content"], list)
                else [{"type": "text", "text": message["content"]}],
            }
            for message in messages
        ]
        text = self.processor.apply_chat_template(of_template, tokenize=False, add_generation_prompt=True)
        as_bytes = {"do_rescale": False, "do_normalize": False} if self.normalizes else {}
        made = self.processor(text=text, images=images or None, return_tensors="pt", **as_bytes)
        tokens = made["input_ids"][0].tolist()
        answer = {"token_ids": tokens, "features": None}
        answer["sampling_params"] = {"temperature": 0.7, "top_k": None, "max_tokens": 4000, "output_kind": 2}
        if images:
            answer["features"] = features(made, tokens, self.processor.image_token_id)
        return answer

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
            choice = {"index": 0, "text": "".join(words), "finish_reason": "stop", "token_ids": [1, 2]}
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
        if body["stream_options"]["include_usage"]:
            await send(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response


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


def features(made, tokens, placeholder):
    """Return the features of images in vLLM's form."""
    items, places, at, row = [], [], 0, 0
    for grid in made["image_grid_thw"]:
        rows = int(grid.prod())
        at = tokens.index(placeholder, at)
        places.append({"offset": at, "length": rows // 4})
        at += rows // 4
        patches = made["pixel_values"][row : row + rows]
        row += rows
        flat = ["flat", {"keep_on_cpu": False, "slices": [[[0, rows, None]]], "dim": 0}]
        elements = {
            "pixel_values": {"data": tensor(patches), "field": flat},
            "image_grid_thw": {"data": tensor(grid), "field": ["batched", {"keep_on_cpu": True}]},
        }
        items.append(base64.b64encode(msgpack.packb(elements)).decode())
    hashes = [hashlib.sha256(item.encode()).hexdigest() for item in items]
    return {"mm_hashes": {"image": hashes}, "mm_placeholders": {"image": places}, "kwargs_data": {"image": items}}


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
    for item in given["kwargs_data"]["image"]:
        for name, values in sorted(values_of(item).items()):
            found.update(f"{name} {values.dtype} {tuple(values.shape)}".encode() + values.numpy().tobytes())
    return found.hexdigest()
