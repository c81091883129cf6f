"""This module reads the requests of OpenAI's chat protocol, and writes the answers.

It takes what vLLM takes, except tools, reasoning and beams: these need the engine's own front end.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from headrace.batching import BadInput
from headrace.host.adapters.render.media import Source, source_of

# Settings of the sampling that have the same name in vLLM.
SAMPLING: Final = (
    *("temperature", "top_p", "top_k", "min_p", "n", "seed", "stop", "stop_token_ids", "bad_words", "min_tokens"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos", "allowed_token_ids"),
    *("skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output"),
)
PASSED_ON: Final = ("cache_salt", "priority")  # to the engine, as they are
READ: Final = (
    *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "logprobs"),
    *("top_logprobs", "logit_bias", "response_format", "add_generation_prompt", "continue_final_message"),
    *("chat_template_kwargs", "return_token_ids"),
)
# They change no token of an answer.
IGNORED: Final = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "modalities")
KNOWN: Final = frozenset((*READ, *SAMPLING, *PASSED_ON, *IGNORED))
ROLES: Final = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Chat:
    """A request: the messages as chat templates take them, with their images and sounds in order.

    Attributes:
        model: The name of the model that the client asks for, or None.
        sampling: Settings for vLLM's sampling that the client gave.
        template: Arguments for the chat template.
        token_ids: Whether the answer has the numbers of its tokens, too.
        more: What is passed on to the engine as it is.
    """

    messages: list[dict[str, Any]]
    sources: list[Source]
    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)
    token_ids: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


def read_chat(body: bytes) -> Chat:
    """Return the request in a body of JSON. Raises BadInput."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the body is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadInput("the body is no JSON object; give model and messages")
    given = {key: value for key, value in given.items() if value is not None}
    for key in given:
        if key not in KNOWN:
            raise BadInput(f"{key!r} is not possible here; leave it out, or ask the engine itself")
    messages, sources = _messages(given.get("messages"))
    options = given.get("stream_options", {})
    if not isinstance(options, dict):
        raise BadInput("stream_options is no object")
    template = given.get("chat_template_kwargs", {})
    if not isinstance(template, dict):
        raise BadInput("chat_template_kwargs is no object")
    last = given.get("continue_final_message", False)
    return Chat(
        messages,
        sources,
        model=_typed(given, "model", str),
        stream=bool(_typed(given, "stream", bool)),
        include_usage=bool(options.get("include_usage", False)),
        sampling=_sampling(given),
        template={"add_generation_prompt": given.get("add_generation_prompt", not last)}
        | {"continue_final_message": last}
        | template,
        token_ids=bool(_typed(given, "return_token_ids", bool)),
        more={key: given[key] for key in PASSED_ON if key in given},
    )


def _typed(given: Mapping[str, Any], key: str, kind: type) -> Any:
    value = given.get(key)
    if value is not None and not isinstance(value, kind):
        raise BadInput(f"{key} is {type(value).__name__}; give {kind.__name__}")
    return value


def _messages(given: Any) -> tuple[list[dict[str, Any]], list[Source]]:
    if not isinstance(given, list) or not given:
        raise BadInput("messages is no list of messages; give at least one")
    messages: list[dict[str, Any]] = []
    sources: list[Source] = []
    for number, message in enumerate(given):
        place = f"messages[{number}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise BadInput(f"{place}: give an object with the role {', '.join(ROLES)}")
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, list):
            raise BadInput(f"{place}: content is neither a text nor a list of parts")
        made: list[dict[str, Any]] = []
        for at, part in enumerate(parts):
            there = f"{place}.content[{at}]"
            if not isinstance(part, dict):
                raise BadInput(f"{there}: give an object with a type")
            if part.get("type") == "text" and isinstance(part.get("text"), str):
                made.append({"type": "text", "text": part["text"]})
            elif (source := source_of(part, there)) is not None:
                sources.append(source)
                made.append({"type": source.kind})
            else:
                raise BadInput(
                    f"{there}: there is no part {part.get('type')!r}; give text, image_url, audio_url or input_audio"
                )
        messages.append({"role": message["role"], "content": made})
    return messages, sources


def _sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    made = {key: given[key] for key in SAMPLING if key in given}
    limit = given.get("max_completion_tokens", given.get("max_tokens"))
    if limit is not None:
        made["max_tokens"] = limit
    if given.get("logprobs"):
        made["logprobs"] = given.get("top_logprobs", 0)
    elif "top_logprobs" in given:
        raise BadInput("top_logprobs needs logprobs: true")
    if "logit_bias" in given:
        bias = _typed(given, "logit_bias", dict)
        if not all(key.lstrip("-").isdigit() for key in bias):
            raise BadInput("logit_bias has a key that is no token's number")
        made["logit_bias"] = {int(key): value for key, value in bias.items()}
    if "response_format" in given:
        made |= _structure(given["response_format"])
    return made


def _structure(form: Any) -> dict[str, Any]:
    match form:
        case {"type": "text"}:
            return {}
        case {"type": "json_object"}:
            return {"structured_outputs": {"json_object": True}}
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return {"structured_outputs": {"json": schema}}
    raise BadInput("response_format has no type text, json_object or json_schema with a schema")


class Answer:
    """Writes the answer to a chat, from what the engine generates."""

    def __init__(self, model: str, token_ids: bool = False) -> None:
        """Begin an answer of a model, with the numbers of its tokens or without."""
        self._with_token_ids = token_ids
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._begun: set[int] = set()

    def whole(self, generated: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer as one object."""
        choices = [
            {
                "index": choice["index"],
                "message": {"role": "assistant", "content": choice["text"], "refusal": None},
                "logprobs": choice.get("logprobs"),
                "finish_reason": choice.get("finish_reason"),
                "stop_reason": choice.get("stop_reason"),
                **self._token_ids(choice),
            }
            for choice in generated["choices"]
        ]
        return self._of("chat.completion", choices) | {"usage": generated.get("usage")}

    def chunks(self, part: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the chunks for a part of a streamed answer."""
        made: list[dict[str, Any]] = []
        for choice in part["choices"]:
            if choice["index"] not in self._begun:
                self._begun.add(choice["index"])
                made.append(self._chunk(choice["index"], {"role": "assistant", "content": ""}))
            made.append(
                self._chunk(choice["index"], {"content": choice["text"]}, choice.get("finish_reason")) | {"usage": None}
            )
            made[-1]["choices"][0] |= {"logprobs": choice.get("logprobs")} | self._token_ids(choice)
        if not part["choices"] and part.get("usage"):
            made.append(self._of("chat.completion.chunk", []) | {"usage": part["usage"]})
        return made

    def _chunk(self, index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return self._of("chat.completion.chunk", [{"index": index, "delta": delta, "finish_reason": finish_reason}])

    def _of(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": kind, "choices": choices}

    def _token_ids(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        return {"token_ids": choice["token_ids"]} if self._with_token_ids else {}


def error_of(message: str, kind: str, status: int) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}
