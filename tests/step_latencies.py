"""Small analytic latencies of steps and encoders, for tests of models that decode. Times are in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """A step takes `step` and so much more for each token, each token of attention, and each request that decodes.

    The defaults are sums of powers of two, so that sums of them are exact."""

    step: float = 2**-7
    token: float = 2**-15
    attended: float = 2**-24
    decode: float = 2**-16

    def seconds(self, prefill, decode_requests, decode_context_tokens):
        attended = decode_context_tokens + sum(tokens * past + tokens * (tokens + 1) // 2 for tokens, past in prefill)
        tokens = sum(tokens for tokens, _ in prefill)
        return self.step + self.token * tokens + self.decode * decode_requests + self.attended * attended


@dataclass(frozen=True)
class LinearEncoder:
    """An encoder takes `call`, and so much more for each token."""

    call: float = 2**-8
    token: float = 2**-16

    def seconds(self, items):
        return self.call + self.token * sum(items)


class OneSecond:
    """Every step takes one second, whatever it holds."""

    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 1.0


class QuarterSecondAnItem:
    """An encoder takes a quarter of a second for each item."""

    def seconds(self, items):
        return 0.25 * len(items)
