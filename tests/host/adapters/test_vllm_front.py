"""The front end for vLLM gives it the tokens and features that it would make, and serves what it answers."""

import asyncio
import base64
import contextlib
import json

import aiohttp
import garbage
import numpy as np
import pytest
import virtual_time
from aiohttp import web
from chats import FILES, MODEL, chat, picture
from engine_double import WORDS, EngineDouble, digest
from fronts import answered, counts, front_of, openais_client, refused, with_front
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from tiny_qwen2_vl import qwen2_vl

from headrace.batching import BadInput, UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.host.adapters.render import server
from headrace.host.adapters.render.audio import FRAMES
from headrace.host.adapters.render.chat import read_chat
from headrace.host.adapters.render.engine import Engine, EngineGone
from headrace.host.adapters.render.front import Front, Limits, together
from headrace.host.adapters.render.items import BadItem, Form, read_item, write_item
from headrace.host.adapters.render.prompt import Placeholder, Places, expanded, learned, learned_of_frames
from headrace.host.adapters.render.server import RenderOptions
from headrace.host.dpu.processors import BFLOAT16
from headrace.host.network.access import Access
from headrace.host.xrt import emulation


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return qwen2_vl(tmp_path_factory.mktemp("model"))


# ---- Tokens and features


@pytest.mark.parametrize("normalizes", [True, False], ids=["bytes", "floats"])
def test_the_engine_gets_the_tokens_and_features_that_it_would_make(folder, normalizes):
    requests = [chat("a", data, "b") for data in FILES.values()]
    requests += [chat(*FILES.values(), "What are these?"), chat("no image")]
    requests.append({"messages": [{"role": "system", "content": "Be brief."}, *chat("Hi", FILES["PNG"])["messages"]]})

    async def body(post, double):
        for request in requests:
            expected = double.rendered(request["messages"])
            found = answered(await post(request))
            assert found["choices"][0]["message"]["content"] == "".join(WORDS) + digest(expected)
            assert found["usage"]["prompt_tokens"] == len(expected["token_ids"])
            assert double.requests[-1]["token_ids"] == expected["token_ids"]

    with_front(folder, body, EngineDouble(folder, normalizes=normalizes))


def test_the_emulated_dpu_makes_the_features_of_jpeg_files(folder, tmp_path):
    build_sw_emu(tmp_path / "dpu.xclbin", image_cus=1, mel_cus=0, norm_cus=0)

    async def run():
        double = EngineDouble(folder)
        async with front_of(folder, double, tmp_path / "dpu.xclbin") as url, aiohttp.ClientSession(url) as session:
            before = await counts(session)
            request = chat(FILES["JPEG"], FILES["JPEG on its side"], FILES["PNG"], "?")
            async with session.post("/v1/chat/completions", json=request) as response:
                found = await response.json()
            expected = double.rendered(request["messages"])
            assert found["choices"][0]["message"]["content"].endswith(digest(expected))
            made = {unit: number - before[unit] for unit, number in (await counts(session)).items()}
            assert made == {"dpu": 2, "cpu": 1}

    asyncio.run(run())
    garbage.collect()
    assert not emulation._cards  # the next test may open another container


# ---- The protocol


def test_openais_client_gets_the_same_streamed_and_whole(folder):
    async def run():
        async with (
            front_of(folder, EngineDouble(folder)) as url,
            openais_client(url) as client,
        ):
            request = chat("Two:", FILES["JPEG"], FILES["PNG with alpha"])
            whole = await client.chat.completions.create(**request)
            parts = await client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True})
            chunks = [chunk async for chunk in parts]
            assert [each.id for each in (await client.models.list()).data] == [MODEL]
            return whole, chunks

    whole, chunks = asyncio.run(run())
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices]
    assert "".join(texts) == whole.choices[0].message.content and len(texts) > len(WORDS)
    assert chunks[0].choices[0].delta.role == whole.choices[0].message.role == "assistant"
    assert [each.finish_reason for chunk in chunks for each in chunk.choices][-1] == "stop"
    assert chunks[-1].usage == whole.usage and not chunks[-1].choices
    assert len({chunk.id for chunk in chunks}) == 1


def test_settings_of_the_sampling_come_over_the_engines_own(folder):
    given_ = {"max_completion_tokens": 9, "top_p": 0.5, "logprobs": True, "top_logprobs": 3, "logit_bias": {"7": -1}}

    async def body(post, double):
        answered(await post(chat("a")))
        answered(await post(chat("a", temperature=0, seed=None, user="me", **given_)))
        return [each["sampling_params"] for each in double.requests]

    plain, set_ = with_front(folder, body)
    assert plain == {"temperature": 0.7}
    assert set_ == {"temperature": 0, "max_tokens": 9, "top_p": 0.5, "logprobs": 3, "logit_bias": {"7": -1}}


# ---- What is wrong at the start


def test_an_engine_of_another_processor_is_refused(folder, tmp_path):
    with pytest.raises(UsageError, match=r"100.0% of pixel_values differ from the engine's; name the folder"):
        with_front(qwen2_vl(tmp_path, image_mean=[0.1] * 3), None, EngineDouble(folder, normalizes=False))


def test_an_engine_with_another_template_is_refused(folder):
    double = EngineDouble(folder)
    double.processor.chat_template = double.processor.chat_template.replace("assistant", "model")
    with pytest.raises(UsageError, match="its chat template gives other tokens than the engine's"):
        with_front(folder, None, double)


def test_an_engine_that_takes_no_features_is_refused(folder):
    with pytest.raises(UsageError, match="start vLLM with --enable-scale-out"):
        with_front(folder, None, EngineDouble(folder, scale_out=False))


def test_a_folder_without_a_tokenizer_is_refused(folder, tmp_path):
    with pytest.raises(UsageError, match=f"--model {tmp_path}: transformers loads no tokenizer"):
        with_front(tmp_path, None, EngineDouble(folder))


def test_an_engine_that_is_not_there_is_told(folder):
    async def run():
        async with Engine("http://127.0.0.1:1", 5) as engine, Front(engine, folder, None, Limits()):
            pass

    with pytest.raises(EngineGone, match=r"the engine at http://127\.0\.0\.1:1 does not answer"):
        asyncio.run(run())


# ---- Bad requests

BAD = {
    "no JSON": (b"{", "the body is no JSON"),
    "no object": (b"[]", "no JSON object"),
    "no messages": ({"model": MODEL}, "messages is no list"),
    "a role": ({"messages": [{"role": "king", "content": "a"}]}, "messages[0]: give an object with the role"),
    "a tool": (chat("a", tools=[{"type": "function"}]), "'tools' is not possible here"),
    "an unknown part": (
        {"messages": [{"role": "user", "content": [{"type": "video_url"}]}]},
        "messages[0].content[0]: there is no part 'video_url'",
    ),
    "no base64": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,a"}}]}]},
        "messages[0].content[0]: the data URL has no base64",
    ),
    "bad base64": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:a;base64,!"}]}]},
        "messages[0].content[0]: this is no base64",
    ),
    "a URL": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/"}}]}]},
        "messages[0].content[0]: files are not fetched here",
    ),
    "no image": (chat(FILES["PNG"], b"text"), "messages[0].content[1]: it is no image file of a known format"),
    "a damaged image": (chat("a", FILES["JPEG"][:-300]), "messages[0].content[1]: "),
    "an extreme image": (chat(picture("PNG", size=(3000, 3))), "messages[0].content[0]: "),
    "a sound": (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]}]},
        "messages[0].content[0]: the model tiny takes no sounds",
    ),
    "a placeholder": (chat("<|image_pad|>", FILES["PNG"]), "2 places for 1 images; leave <|image_pad|> out"),
    "too many tokens": (chat(*[picture("JPEG", size=(900, 900))] * 5), "more than the 4096 tokens"),
    "too many images": (chat(*[FILES["PNG"]] * 9), "the chat has 9 images and sounds; send at most 8"),
    "what the engine refuses": (chat("a", temperature=-1), "temperature must be non-negative"),
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_has_one_clear_error_and_the_rest_is_served(folder, stream):
    async def body(post, double):
        for request, text in BAD.values():
            sent = {**request, "stream": stream} if isinstance(request, dict) else request
            refused(await post(sent), 400, text)
            answered(await post(chat("a", FILES["PNG"])))
        refused(await post(chat("a", model="other") | {"stream": stream}), 404, "there is no model 'other'")
        refused(await post(b" " * (3 << 20)), 413, "more than 2097152 bytes")

    with_front(folder, body, limits=Limits(max_items=8), max_body_bytes=2 << 20)


def test_a_client_without_the_token_is_refused(folder):
    async def body(post, double):
        refused(await post(chat("a")), 401, "send Authorization: Bearer TOKEN")
        refused(await post(chat("a"), {"Authorization": "Bearer other"}), 401, "the token is missing or wrong")
        answered(await post(chat("a"), {"Authorization": "Bearer secret"}))
        async with post.session.get("/metrics", headers={"Authorization": "Bearer secret"}) as response:
            assert 'headrace_render_answers_total{status="401"} 2' in await response.text()

    with_front(folder, body, access=Access(token="secret"))


def test_a_page_of_another_site_is_refused(folder):
    async def body(post, double):
        refused(await post(chat("a"), {"Sec-Fetch-Site": "cross-site"}), 403, "start it with --token-file")
        refused(await post(chat("a"), {"Host": "evil.example"}), 421, "start it with --allow-host")
        async with post.session.get("/metrics", headers={"Host": "evil.example"}) as response:
            assert response.status == 421
        answered(await post(chat("a"), {"Host": "gpu.example"}))
        assert len(double.requests) == 1

    with_front(folder, body, access=Access(hosts=("gpu.example",)))


def test_files_of_other_servers_are_fetched_where_that_is_allowed(folder):
    async def run():
        async def file(request):
            names = {"jpeg": FILES["JPEG"], "large": bytes(5000)}
            if request.match_info["name"] not in names:
                raise web.HTTPNotFound
            return web.Response(body=names[request.match_info["name"]])

        app = web.Application()
        app.router.add_get("/{name}", file)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        double = EngineDouble(folder)
        limits = Limits(fetch=True, max_file_bytes=4000)
        async with front_of(folder, double, limits=limits) as url, aiohttp.ClientSession(url) as session:

            async def ask(name):
                part = {"type": "image_url", "image_url": {"url": f"http://127.0.0.1:{port}/{name}"}}
                request = {"messages": [{"role": "user", "content": [part]}]}
                async with session.post("/v1/chat/completions", json=request) as response:
                    return response.status, await response.text()

            found = answered(await ask("jpeg"))
            expected = double.rendered(chat(FILES["JPEG"])["messages"])
            assert found["choices"][0]["message"]["content"].endswith(digest(expected))
            refused(await ask("none"), 400, "its server answered with the status 404")
            refused(await ask("large"), 400, "the file has more than 4000 bytes")
        await runner.cleanup()

    asyncio.run(run())


# ---- Failures


def test_an_engine_that_leaves_is_told_and_the_next_answers_come(folder):
    async def body(post, double):
        double.fault = "gone"
        status, text = await post(chat("a", stream=True))
        events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
        assert status == 200 and "does not answer" in events[-1]["error"]["message"]
        assert events[-1]["error"]["code"] == 503 and "[DONE]" not in text
        assert [each["choices"][0]["delta"]["content"] for each in events[1:-1]] == WORDS[:3]
        double.fault = None
        answered(await post(chat("a")))

    with_front(folder, body)


def test_an_engine_that_is_gone_gives_503(folder):
    async def run():
        async with contextlib.AsyncExitStack() as stack:
            address = await stack.enter_async_context(EngineDouble(folder).running())
            async with server.running(RenderOptions(address, folder, port=0)) as (host, port, _):
                await stack.aclose()
                async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
                    for stream in (False, True):
                        async with session.post("/v1/chat/completions", json=chat("a", stream=stream)) as response:
                            refused(
                                (response.status, await response.text()), 503, "start it, or send the request again"
                            )
                    async with session.get("/health") as response:
                        assert response.status == 503

    asyncio.run(run())


def test_an_address_that_is_taken_is_told(folder):
    async def run():
        async with EngineDouble(folder).running() as url:
            taken = int(url.rpartition(":")[2])
            async with server.running(RenderOptions(url, folder, port=taken)):
                pass

    with pytest.raises(UsageError, match=r"--http 127\.0\.0\.1:\d+: .*; choose another port"):
        asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_engines_work(folder, stream):
    async def body(post, double):
        double.fault = "slow"
        request = asyncio.create_task(post(chat("a", FILES["PNG"], stream=stream)))
        while not double.requests:
            await asyncio.sleep(0.01)
        request.cancel()
        await double.cancelled.wait()
        double.fault = None
        answered(await post(chat("a")))

    with_front(folder, body)


def test_a_fault_of_the_front_end_is_one_error_in_the_protocols_form(folder, monkeypatch, caplog):
    async def body(post, double):
        with monkeypatch.context() as patch:
            patch.setattr(Front, "prompt", None)
            refused(await post(chat("a")), 500, "the front end failed; its log has the reason")
        assert "TypeError" in caplog.text
        answered(await post(chat("a")))

    with_front(folder, body)


def test_a_request_that_does_not_arrive_is_ended(folder, monkeypatch):
    monkeypatch.setattr(server, "BODY_S", 0.1)

    async def run():
        async with front_of(folder, EngineDouble(folder)) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            async with asyncio.timeout(60):
                assert b" 408 " in await reader.readline()
            writer.close()

    asyncio.run(run())


def test_the_first_error_ends_the_work_on_other_images():
    ended = []

    async def fails():
        raise BadInput("first")

    async def waits():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    with pytest.raises(BadInput, match="first"):
        virtual_time.run(together([waits(), fails()]))
    assert ended == [True]


def test_a_chat_of_many_images_does_not_block_another(folder):
    """The small chat is answered while most images of the large one still wait."""
    many = chat(*[FILES["PNG"]] * 120)

    async def body(post, double):
        before = (await counts(post.session))["cpu"]
        large = asyncio.create_task(post(many))
        while (await counts(post.session))["cpu"] == before:
            await asyncio.sleep(0)
        answered(await post(chat("a", FILES["PNG"])))
        assert not large.done() and (await counts(post.session))["cpu"] - before < 100
        answered(await large)
        assert (await counts(post.session))["cpu"] - before == 121

    with_front(folder, body)


# ---- Items, placeholders and parsers


def test_an_item_of_vllm_is_read_and_written_again():
    """The text is what vLLM 0.32 gave for the grid of an image of 4x4 patches."""
    text = (
        "ga5pbWFnZV9ncmlkX3Rod4KkZGF0YZOlaW50NjSRA8cYAwEAAAAAAAAABAAAAAAAAAAEAAAAAAAAAKVmaWVs"
        "ZJKnYmF0Y2hlZIGra2VlcF9vbl9jcHXD"
    )
    tensors, forms = read_item(text)
    assert forms == {"image_grid_thw": Form("int64", "batched", keep_on_cpu=True)}
    assert tensors["image_grid_thw"].tolist() == [1, 4, 4]
    assert write_item(tensors, forms).decode() == text


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64", "bfloat16"])
@pytest.mark.parametrize("form", [("flat",), ("batched",), ("flat", True, 1)])
def test_what_is_written_is_read(dtype, form):
    values = np.arange(24, dtype=np.uint16).reshape(2, 3, 4)
    values = values.view(BFLOAT16) if dtype == "bfloat16" else values.astype(dtype)
    forms = {"x": Form(dtype, *form)}
    tensors, found = read_item(write_item({"x": values}, forms).decode())
    assert found == forms and tensors["x"].dtype == values.dtype and np.array_equal(tensors["x"], values)


def test_a_number_is_written_without_an_axis():
    forms = {"x": Form("int64", "batched")}
    assert read_item(write_item({"x": np.array(7)}, forms).decode())[0]["x"].shape == ()


@given(st.binary(max_size=60) | st.text(max_size=20).map(str.encode))
@examples(100, 1000)
def test_any_text_is_an_item_or_bad(data):
    text = base64.b64encode(data).decode()
    with pytest.raises(BadItem):
        read_item(text)
        raise BadItem


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "image_url", "url"]), inner, max_size=4)
    ),
    max_leaves=9,
)


@given(
    st.dictionaries(
        st.sampled_from(["messages", "model", "stream", "stream_options", "logit_bias", "response_format", "stop"]),
        JSON,
    )
)
@examples(200, 3000)
def test_any_request_is_read_or_bad(request):
    try:
        read_chat(json.dumps(request).encode())
    except BadInput as error:
        assert "\n" not in str(error)


def test_the_number_of_tokens_is_learned():
    forms = {"pixel_values": Form("uint8", "flat"), "image_grid_thw": Form("int64", "batched")}
    rows = [
        ({"pixel_values": np.zeros((number, 3)), "image_grid_thw": np.zeros(3)}, number // 4) for number in (16, 40)
    ]
    assert learned(rows, forms, 7) == Placeholder(7, rows_of=("pixel_values", 4))
    whole = {"pixel_values": Form("float32", "batched")}
    same = [({"pixel_values": np.zeros((3, 9, 9))}, 81)] * 2
    assert learned(same, whole, 7) == Placeholder(7, constant=81)
    with pytest.raises(UsageError, match="follows no rule"):
        learned([(rows[0][0], 5), (rows[1][0], 4)], forms, 7)


@given(st.integers(1, 8), st.data())
def test_the_number_of_tokens_of_a_sound_is_learned(per_token, data):
    added = data.draw(st.integers(0, per_token - 1))
    samples = [(frames, (frames + added) // per_token) for frames in FRAMES]
    found = learned_of_frames(samples, 7)
    assert all(found.length({}, frames) == (frames + added) // per_token for frames in range(3001))
    with pytest.raises(UsageError, match="of a sound follows no rule"):
        learned_of_frames([*samples[:-1], (997, samples[-1][1] + 1)], 7)


@given(st.lists(st.integers(0, 4), max_size=12), st.data())
def test_placeholders_are_as_long_as_their_items_and_nothing_else_changes(tokens, data):
    lengths = {
        token: data.draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
        for token in (3, 4)
        for count in [tokens.count(token)]
    }
    media = [Places(3, "<image>", "images", lengths[3]), Places(4, "<sound>", "sounds", lengths[4])]
    found, (images, sounds) = expanded(tokens, media)
    shorter = list(found)
    ranges = sorted([*((each, 3) for each in images), *((each, 4) for each in sounds)], key=lambda it: it[0]["offset"])
    for each, token in reversed(ranges):
        part = slice(each["offset"], each["offset"] + each["length"])
        assert set(shorter[part]) == {token}
        shorter[part] = [token]
    assert shorter == tokens
    assert [[each["length"] for each in of] for of in (images, sounds)] == [lengths[3], lengths[4]]
    with pytest.raises(BadInput, match="leave <sound> out of the messages"):
        expanded(tokens, [media[0], Places(4, "<sound>", "sounds", [*lengths[4], 2])])
