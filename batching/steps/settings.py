"""This module holds the settings that several step policies share."""

from headrace.batching.settings import setting, settings

MAX_TOKENS = 1 << 20


@settings(tasks="steps")
class StepLimits:
    """The limits of a step. The names and the rules are those of vLLM."""

    max_num_batched_tokens: int = setting(
        default=8192, help="Largest number of tokens of a step, prefill and decoding together.", ge=1, le=MAX_TOKENS
    )
    max_num_seqs: int = setting(default=256, help="Largest number of requests in the KV cache.", ge=1, le=1 << 16)
    max_encoder_tokens: int | None = setting(
        default=None,
        help="Largest number of tokens of images or audio that a step encodes [as max-num-batched-tokens].",
        ge=1,
        le=MAX_TOKENS,
        kw_only=True,
    )

    reserved_output: float = setting(
        default=0.0,
        help="Share of its largest output for which a request reserves blocks when it is admitted.",
        ge=0,
        le=1,
        kw_only=True,
        advanced=True,
    )

    @property
    def encoder_limit(self) -> int:
        """Return the largest number of tokens that a step encodes, as policies take it."""
        return self.max_num_batched_tokens if self.max_encoder_tokens is None else self.max_encoder_tokens


@settings()
class AssumedOutput:
    """The setting of policies that predict how long a request decodes."""

    dec_timesteps: int | None = setting(
        default=None, help="Output tokens that are assumed for every request [the most that it may have].", ge=1
    )
