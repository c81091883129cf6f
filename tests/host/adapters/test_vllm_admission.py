"""Prompts go to the engine as a policy says, and answers are those that they have without one."""

import asyncio
import json
import re

import pytest
from chats import FILES, chat
from command import headrace_here
from engine_double import EngineDouble, WhisperDouble
from fronts import answered, front_of, refused, with_front
from tiny_qwen2_vl import qwen2_vl
from tiny_whisper import whisper

from headrace.batching import UsageError
from headrace.batching.registry import policy_settings
from headrace.host.adapters.render.admission import Admission, AdmissionSettings, Turns, check_policy, joined
from headrace.host.adapters.render.chat import read_chat
from headrace.host.adapters.render.engine import Engine
from headrace.host.adapters.render.front import Front, Limits
from headrace.host.adapters.render.request import MeasuredPrompts
from headrace.host.live.results import TooLate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return qwen2_vl(tmp_path_factory.mktemp("model"))


class Gated(EngineDouble):
    """An engine that begins as many answers as `open` lets it. It counts the prompts that it has, and those of them
    without a first token. A prompt of `endless` gets only a few tokens."""

    def __init__(self, folder):
        super().__init__(folder)
        self.gate, self.endless = asyncio.Semaphore(0), False
        self.taken, self.waiting, self.most = [], 0, 0

    def open(self, count=1000):
        for _ in range(count):
            self.gate.release()

    async def generate(self, request):
        body = await request.json()
        if body["stream"]:
            self.taken.append(body["token_ids"])
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            try:
                await self.gate.acquire()
                await asyncio.sleep(0)
            finally:
                self.waiting -= 1
            self.fault = "slow" if self.endless else None
        return await super().generate(request)


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def by(policy, places=1, given=None, **settings):
    return AdmissionSettings(policy_settings(policy, given), places, **settings)


@pytest.mark.quick(6)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("policy", ["serial", "graph", "work-conserving", "preba", "deferred", "earliest-deadline"])
def test_answers_are_those_without_a_policy(folder, policy, stream):
    requests = [chat("a"), chat("b", FILES["PNG"]), chat(FILES["JPEG"], "c", FILES["PNG"])]
    requests = [{**each, "stream": stream, "return_token_ids": stream} for each in requests]  # the double has others

    async def body(post, double):
        found = await asyncio.gather(*(post(each) for each in requests))
        assert {status for status, _ in found} == {200}
        return [re.sub(r'"(id|created)": ?[^,]*,', "", text) for _, text in found]

    assert with_front(folder, body, admission=by(policy)) == with_front(folder, body)


@pytest.mark.parametrize(("places", "batch"), [(1, 1), (1, 3), (2, 2)])
def test_the_engine_has_no_more_prompts_than_the_places_hold(folder, places, batch):
    async def body(post, double):
        asked = [asyncio.create_task(post(chat(f"number {number}"))) for number in range(12)]
        await until(lambda: double.waiting == places * batch)
        double.open()
        for found in await asyncio.gather(*asked):
            answered(found)
        assert double.most == places * batch and len(double.taken) == 12

    policy = by("static", places, {"max_batch": batch})  # a batch leaves when it is full
    with_front(folder, body, Gated(folder), admission=policy)


def test_a_batch_waits_until_it_is_full(folder):
    async def body(post, double):
        asked = [asyncio.create_task(post(chat(f"number {number}"))) for number in range(2)]
        async with post.session.get("/health"):
            pass  # time for the two to arrive
        assert not double.taken
        asked.append(asyncio.create_task(post(chat("the third"))))
        await until(lambda: double.waiting == 3)
        double.open()
        for found in await asyncio.gather(*asked):
            answered(found)

    with_front(folder, body, Gated(folder), admission=by("static", given={"max_batch": 3}))


def test_a_place_is_taken_until_each_prompt_of_its_batch_is_answered(folder):
    async def body(post, double):
        asked = [asyncio.create_task(post(chat(f"number {number}"))) for number in range(4)]
        await until(lambda: double.waiting == 2)
        double.open(1)
        (first,), _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        answered(first.result())
        async with post.session.get("/health"):
            pass  # time for the next batch to come, which must not
        assert len(double.taken) == 2
        double.open(1)
        await until(lambda: len(double.taken) == 4)
        double.open()
        for found in await asyncio.gather(*asked):
            answered(found)

    with_front(folder, body, Gated(folder), admission=by("static", given={"max_batch": 2}))


@pytest.mark.parametrize("stream", [False, True])
def test_a_place_is_free_at_the_first_token(folder, stream):
    async def body(post, double):
        double.endless = True
        double.open()
        asked = [asyncio.create_task(post({**chat(f"number {number}"), "stream": stream})) for number in range(3)]
        await until(lambda: len(double.taken) == 3)
        assert not any(each.done() for each in asked)
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    with_front(folder, body, Gated(folder), admission=by("serial"))


def test_a_client_that_leaves_before_its_turn_takes_its_prompt_along(folder, monkeypatch):
    seen = []
    monkeypatch.setattr(Admission, "turns", lambda self: seen.append(self) or Turns(self, self._runtime.now()))

    def waiting():
        return sum(seen[0]._runtime.statistics().waiting.values())

    async def body(post, double):
        first = asyncio.create_task(post(chat("first")))
        await until(lambda: double.taken)
        for _ in range(3):
            leaves = asyncio.create_task(post(chat("leaves")))
            await until(lambda: waiting() == 1)
            leaves.cancel()
            await until(lambda: waiting() == 0)
        last = asyncio.create_task(post(chat("last")))
        await until(lambda: waiting() == 1)
        double.open()
        answered(await first)
        answered(await last)
        assert len(double.taken) == 2

    with_front(folder, body, Gated(folder), admission=by("serial"))


def test_a_prompt_that_the_engine_refuses_makes_room(folder):
    async def body(post, double):
        for stream in (False, True):
            refused(await post({**chat("a"), "temperature": -1, "stream": stream}), 400, "must be non-negative")
            answered(await post(chat("b")))

    with_front(folder, body, admission=by("serial"))


def test_too_many_prompts_are_refused(folder):
    async def body(post, double):
        first = asyncio.create_task(post(chat("first")))
        await until(lambda: double.taken)
        refused(await post(chat("second")), 503, "1 prompts wait for the engine; send fewer at a time")
        double.open()
        answered(await first)
        answered(await post(chat("third")))

    with_front(folder, body, Gated(folder), admission=by("serial", max_waiting=1))


def test_a_prompt_that_would_be_late_is_dropped(folder, monkeypatch):
    async def body(post, double):
        first = asyncio.create_task(post(chat("first")))
        await until(lambda: double.taken)
        monkeypatch.setattr(Admission, "turns", lambda self: Turns(self, self._runtime.now() - 61))
        status, text = await post(chat("second"))
        assert status == 503 and "deadline" in json.loads(text)["error"]["message"], text
        double.open()
        answered(await first)
        assert len(double.taken) == 1

    with_front(folder, body, Gated(folder), admission=by("serial", first_token_s=60.0, drop_late=True))


def test_the_first_token_is_due_after_the_arrival_of_the_request(folder):
    """The time in which features were made counts."""

    async def run():
        double = EngineDouble(folder)
        async with double.running() as url, Engine(url, 10.0) as engine, Front(engine, folder, None, Limits()) as front:
            settings = by("serial", first_token_s=60.0, drop_late=True)
            made = await Admission.measured(engine, settings, front.measured_prompts())
            async with made as admission:
                prompt = await front.prompt(read_chat(json.dumps({**chat("a"), "stream": True}).encode()))
                now = admission.turns()
                assert (await now.generate(prompt))["choices"][0]["text"]
                with pytest.raises(TooLate):
                    await Turns(admission, now._arrival - 61).generate(prompt)

    asyncio.run(run())


def test_prompts_that_measure_the_engine_are_all_different():
    prompts = MeasuredPrompts("tiny", [5, 6, 5, 7, 6], {"temperature": 0.5}, 100)
    made = [json.loads(b"".join(prompts.of(64).pieces)) for _ in range(500)]
    assert len({tuple(each["token_ids"]) for each in made}) == 500
    assert {len(each["token_ids"]) for each in made} == {64}
    assert made[0]["sampling_params"] == {"temperature": 0.5, "max_tokens": 1} and prompts.max_tokens == 99


def test_an_engine_that_only_transcribes_has_no_policy(tmp_path):
    model = whisper(tmp_path / "whisper")

    async def run():
        async with front_of(model, WhisperDouble(model), admission=by("serial")):
            pass

    with pytest.raises(UsageError, match="--policy is for models that chat"):
        asyncio.run(run())


@pytest.mark.parametrize("policy", ["lazy", "cellular", "smdp"])
def test_a_policy_of_other_tasks_is_refused(policy):
    with pytest.raises(UsageError, match=f"--policy {policy}: .*choose from serial, graph, static"):
        check_policy(policy)


def test_parts_are_joined():
    parts = [
        {"choices": [{"index": 1, "text": "b", "token_ids": [3], "logprobs": {"content": [{"token": "b"}]}}]},
        {"choices": [{"index": 0, "text": "a", "token_ids": [1], "logprobs": None}]},
        {"choices": [{"index": 1, "text": "c", "token_ids": [4], "logprobs": {"content": [{"token": "c"}]}}]},
        {"choices": [{"index": 0, "text": "", "token_ids": [], "finish_reason": "stop", "stop_reason": 7}]},
        {"choices": [{"index": 1, "text": "", "finish_reason": "length"}]},
        {"choices": [], "usage": {"total_tokens": 5}},
    ]
    first, second = joined(parts)["choices"]
    assert first == {
        "index": 0,
        "text": "a",
        "token_ids": [1],
        "finish_reason": "stop",
        "stop_reason": 7,
        "logprobs": None,
    }
    assert second["text"] == "bc" and second["token_ids"] == [3, 4] and second["finish_reason"] == "length"
    assert second["logprobs"] == {"content": [{"token": "b"}, {"token": "c"}]}
    assert joined(parts)["usage"] == {"total_tokens": 5}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--policy", "lazy"], "it does not batch whole prompts; choose from serial, graph"),
        (["--slo-ms", "100"], "are for a policy; give --policy NAME"),
        (["--set", "max_batch=4"], "are for a policy; give --policy NAME"),
        (["--policy", "graph", "--drop-late"], "give --slo-ms"),
        (["--policy", "graph", "--set", "window=4"], "graph has no setting 'window'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, text):
    done = headrace_here("render", "--engine", "http://127.0.0.1:1", "--model", ".", *options)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
