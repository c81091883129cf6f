"""A plugin of vLLM, by which a server of a model that only transcribes takes tokens and features, too.

vLLM 0.32 has the call /inference/v1/generate for models that chat alone. Its engine takes the features of Whisper as
well, but the call would refuse them: a sound has more places than the prompt has tokens, because they are those of the
encoder. The plugin adds the call without this check, and a call that renders a transcription, as vLLM has one that
renders a chat. vLLM loads it where the environment variable VLLM_PLUGINS names `headrace`, and the calls are there only
with the option `--enable-scale-out`.
"""

import io
from argparse import Namespace
from typing import Any, Final

GENERATE: Final = "/inference/v1/generate"
RENDER: Final = "/v1/audio/transcriptions/render"


class TranscriptionEndpoints:
    """The plugin, as vLLM wants it."""

    name: Final = "headrace"
    required_tasks: Final = ("transcription",)

    def attach_router(self, app: Any) -> None:
        """Add the calls to a server, a FastAPI application. A server of a model that chats stays as it is."""
        routes = {getattr(route, "path", None) for route in app.routes}
        if app.state.args.enable_scale_out and GENERATE not in routes:
            app.add_api_route(GENERATE, _generate(), methods=["POST"])
            app.add_api_route(RENDER, _render(app), methods=["POST"])

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Add to the server's state what GENERATE needs. Models that chat have it."""
        from vllm.entrypoints.scale_out.token_in_token_out.serving import ServingTokens

        if args.enable_scale_out and getattr(state, "serving_tokens", None) is None:
            state.serving_tokens = ServingTokens(
                engine_client,
                state.openai_serving_models,
                state.online_renderer,
                request_logger=None,
                return_tokens_as_token_ids=args.return_tokens_as_token_ids,
                enable_prompt_tokens_details=args.enable_prompt_tokens_details,
                enable_log_outputs=args.enable_log_outputs,
                force_no_detokenize=args.tokens_only,
            )


def _of_encoder() -> Any:
    """Return the class of a request whose features are for the encoder, and have no place among the tokens."""
    from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest

    class EncoderRequest(GenerateRequest):  # type: ignore[misc]
        def _validate_multimodal_feature_bounds(self) -> "EncoderRequest":
            return self

    return EncoderRequest


def _generate() -> Any:
    """Return the function that generates from tokens and features."""
    from fastapi import Request
    from vllm.entrypoints.scale_out.token_in_token_out import api_router

    request_class = _of_encoder()

    async def generate(request: request_class, raw_request: Request) -> Any:  # type: ignore[valid-type]
        return await api_router.generate(request, raw_request)

    return generate


def _render(app: Any) -> Any:
    """Return the function that answers a transcription with its tokens and features in place of its text.

    It takes one piece of a sound, in a language that the request names."""
    from fastapi import Form
    from vllm.entrypoints.scale_out.token_in_token_out.mm_features import extract_mm_features
    from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
    from vllm.entrypoints.speech_to_text.transcription.protocol import TranscriptionRequest
    from vllm.multimodal.media.audio import load_audio
    from vllm.renderers.inputs.preprocess import parse_model_prompt

    request_class = _of_encoder()

    async def render(request: TranscriptionRequest = Form()) -> Any:  # noqa: B008 (as FastAPI wants it)
        serving = app.state.openai_serving_transcription
        samples, _ = load_audio(io.BytesIO(await request.file.read()), sr=serving.asr_config.sample_rate, mono=True)
        settings = request.build_stt_params(
            audio=samples,
            stt_config=serving.asr_config,
            model_config=serving.model_config,
            task_type=serving.task_type,
        )
        prompt = parse_model_prompt(serving.model_config, serving.model_cls.get_generation_prompt(settings))
        (made,) = await serving.renderer.render_cmpl_async([prompt], skip_mm_cache=True)
        decoder = made["decoder_prompt"] if made["type"] == "enc_dec" else made
        limit = get_max_tokens(serving.model_config.max_model_len, None, 0, serving.default_sampling_params)
        return request_class(
            token_ids=decoder["prompt_token_ids"],
            features=extract_mm_features(decoder),
            sampling_params=request.to_sampling_params(limit, serving.default_sampling_params),
        ).model_dump()

    return render
