"""Front ends before engines of test doubles, and what they answer."""

import asyncio
import contextlib
import json

import aiohttp
from engine_double import EngineDouble, values_of

from headrace.host.adapters.render import server
from headrace.host.adapters.render.front import Limits
from headrace.host.adapters.render.server import RenderOptions

BOUND_OF_SOUNDS = 1e-4  # of the features of Whisper


@contextlib.asynccontextmanager
async def front_of(folder, double, xclbin=None, limits=None, **options):
    """Serve the front end for an engine, and give its address."""
    async with double.running() as url:
        settings = RenderOptions(url, folder, xclbin, port=0, limits=limits or Limits(), **options)
        async with server.running(settings) as (host, port, _):
            yield f"http://{host}:{port}"


def with_front(folder, body, double=None, **settings):
    """Run `body(post, double)` on a front end. `post` sends a chat, and returns the status and the answer."""
    double = double or EngineDouble(folder)

    async def run():
        async with front_of(folder, double, **settings) as url, aiohttp.ClientSession(url) as session:

            async def post(request, headers=None):
                given = request if isinstance(request, bytes) else json.dumps(request).encode()
                async with session.post("/v1/chat/completions", data=given, headers=headers) as response:
                    return response.status, await response.text()

            post.session = session
            async with asyncio.timeout(60):
                return await body(post, double)

    return asyncio.run(run())


def openais_client(url, **settings):
    """Return OpenAI's client for an address. To import it takes a second, and few tests use it."""
    import openai

    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, **settings)


def answered(found):
    status, text = found
    assert status == 200, text
    return json.loads(text)


def refused(found, status, text):
    assert found[0] == status, found
    error = json.loads(found[1])["error"]
    assert text in error["message"] and error["code"] == status and set(error) == {"message", "type", "param", "code"}


async def counts(session, noun="images"):
    """Return how many items each unit has made."""
    async with session.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {unit: int(values[f'headrace_render_{noun}_total{{unit="{unit}"}}']) for unit in ("dpu", "cpu")}


def assert_same_features(given, expected):
    """Compare a request to the engine with what the engine makes itself."""
    assert given["token_ids"] == expected["token_ids"]
    found, theirs = given["features"], expected["features"]
    assert found["mm_placeholders"] == theirs["mm_placeholders"]
    for kind, items in theirs["kwargs_data"].items():
        for mine, item in zip(found["kwargs_data"][kind], items, strict=True):
            mine, item = values_of(mine), values_of(item)
            assert mine.keys() == item.keys()
            for name, values in item.items():
                assert (mine[name].dtype, mine[name].shape) == (values.dtype, values.shape)
                bound = BOUND_OF_SOUNDS if kind == "audio" and values.is_floating_point() else 0
                assert (mine[name].double() - values.double()).abs().max() <= bound, name
