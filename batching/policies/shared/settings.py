"""Settings that several policies share."""

import math

from headrace.batching.settings import setting, settings

MAX_BATCH = 64  # LazyBatching, Section V
LARGEST_BATCH = 4096


@settings()
class MaxBatch:
    """The setting of all policies that limit the batch size. A batch of cells has one token of each entry."""

    max_batch: int = setting(default=MAX_BATCH, help="Largest batch, in requests.", ge=1, le=LARGEST_BATCH)


@settings()
class TokenLimit:
    """The setting of all policies that batch whole requests of different lengths."""

    max_batch_tokens: int | None = setting(
        default=None,
        help="Largest number of tokens of a batch: the sum of its input lengths, such as patches of images [no limit].",
        ge=1,
        le=1 << 40,
        kw_only=True,
    )

    @property
    def token_limit(self) -> float:
        """Return the most tokens of a batch, as policies take it."""
        return math.inf if self.max_batch_tokens is None else float(self.max_batch_tokens)


@settings()
class BatchLimit(MaxBatch, TokenLimit):
    """Settings of policies that limit the batch size."""


@settings()
class PaperStrict:
    """The setting of policies that extend their paper, and that can be had without the extensions."""

    strict: bool = setting(default=False, help="Keep to the paper, without this project's extensions.", advanced=True)


@settings()
class Prediction:
    """Settings of policies that predict how long a request takes."""

    coverage: float = setting(
        default=0.9, help="Share of the outputs that is as short as the assumed decoder steps, or shorter.", gt=0, le=1
    )
    dec_timesteps: int | None = setting(
        default=None, help="Decoder steps that are assumed for every request, instead of those by coverage.", ge=1
    )


@settings()
class LimitAndPrediction(BatchLimit, Prediction):
    """Settings of policies that predict times and limit the batch size."""
