"""The latency of one step of an inference server: the sum of the operators of a decoder, measured one by one.

A step takes the new tokens of some prompts (prefill) and one token of each request that decodes, all in one batch:

- Products, experts, norms, activations and sums over GPUs by all tokens of the step, layer by layer.
- Attention of prompts by their tokens. Where tokens of the prompt are in the cache already, the part of the square of
  all tokens that is new counts.
- Attention of decoding requests by their number and their mean context.
- The last product (LM head) by the requests.
- The host's time, where it is not hidden: for each step, and for each request of a step (HOST_REQUEST_S).

The host's time for a request is the only number that is chosen by measured servers. All other time is that of the
tables (operators.py), and of bytes for norms and activations. Overlap of operators, sampling, and the quantization of
activations that is not in the tables are not counted.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from headrace.batching.errors import UsageError
from headrace.sim.decoding.architecture import PRECISIONS, DecoderArchitecture, Precision, architecture_of
from headrace.sim.decoding.operators import Curve, NoMeasurement, Operators, Surface, total
from headrace.sim.hardware.gpu.tables import SGLANG, TENSORRT_LLM

GPUS: Final = (1, 2, 4, 8)  # that may share a model
# The host's time for each request of a step, where a server has one. The rows of measured servers choose it
# (sim/experiments/aiconfigurator/host_time.py): each model and each GPU that is held out leaves SGLang 15 or 20 us, and
# leaves TensorRT-LLM no common time. vLLM's rows are too far off to choose any.
HOST_REQUEST_S: Final[Mapping[str, float]] = {SGLANG: 20e-6}
_MAX_KEPT: Final = 4096  # entries of a table of results that is kept
_BF16_BYTES: Final = 2
_SHARE: Final = 0.9  # of the memory for weights and KV cache
_MIB: Final = 1 << 20


class StepLatency:
    """The seconds of a server's step, on `tp` GPUs that share every layer of a model.

    Args:
        architecture: The model: its sizes, its name, or the path of a config.json of Hugging Face.
        gpu: The GPU: a100-80gb, h100, h200, b200, b300, gb200 or gb300.
        backend: The server whose kernels run: trtllm, sglang or vllm.
        tp: The GPUs that share each layer (tensor parallel): 1, 2, 4 or 8.
        products: The precision of the layers' products: bf16, fp8, fp8_static, fp8_block or nvfp4.
        keys: The precision of the KV cache: bf16 or fp8.
        experts: The precision of experts; None for that of the products.
        ep: The groups into which the GPUs share the experts (expert parallel); it divides `tp`. 1 shares each expert.
        host_s: The host's time in each step that the GPUs wait for.
        host_request_s: The same for each request of a step; None for that of the server, of HOST_REQUEST_S or 0.
        version: The release of the server whose tables are taken; None for the current ones.
        experts_version: The release whose tables of experts are taken; None for `version`.

    Raises UsageError for a choice that is not there, and NoMeasurement if the tables do not cover it."""

    def __init__(
        self,
        architecture: DecoderArchitecture | str,
        gpu: str,
        backend: str,
        *,
        tp: int = 1,
        products: Precision = "bf16",
        keys: str = "bf16",
        experts: Precision | None = None,
        ep: int = 1,
        host_s: float = 0.0,
        host_request_s: float | None = None,
        version: str | None = None,
        experts_version: str | None = None,
    ) -> None:
        if isinstance(architecture, str):
            architecture = architecture_of(architecture)
        if host_request_s is None:
            host_request_s = HOST_REQUEST_S.get(backend, 0.0)
        _check(architecture, tp, products, experts, ep, {"host_s": host_s, "host_request_s": host_request_s})
        operators = Operators(gpu, backend, version, experts_version)
        self.architecture = architecture
        self.operators = operators
        self.tp = tp
        self.products: Precision = products
        self.keys = keys
        self.experts: Precision = experts or products
        self.ep = ep
        self.host_s = host_s
        self.host_request_s = host_request_s
        heads, kv_heads = architecture.heads // tp, -(-architecture.kv_heads // tp)
        attention = heads, kv_heads, architecture.head_dim, keys
        full, windowed = architecture.layers - architecture.windowed_layers, architecture.windowed_layers
        self._context: list[tuple[int, Surface, int]] = []  # layers, latency, window
        self._generation: list[tuple[int, Surface]] = []
        for layers, window in ((full, 0), (windowed, architecture.window)):
            if layers:
                self._context.append((layers, operators.context(*attention, window), window))
                self._generation.append((layers, operators.generation(*attention, window)))
        self.parts = self._by_tokens(heads, kv_heads)
        self._tokens = _Line(total((1.0, curve) for curve in self.parts.values()))
        self._head = _Line(operators.products("bf16", -(-architecture.vocab // tp), architecture.hidden))
        # By the number of requests: what a step takes without attention, lengths, and attention by length.
        self._decoding: dict[int, tuple[float, list[float], list[float]]] = {}
        # By the number of prompts: lengths, the attention of one of them by length, and the window.
        self._prompts: dict[int, list[tuple[list[float], list[float], int]]] = {}

    def _by_tokens(self, heads: int, kv_heads: int) -> dict[str, Curve]:
        """Return the latency of all layers by the tokens of a step, in parts."""
        model, operators, tp = self.architecture, self.operators, self.tp
        layers, hidden = model.layers, model.hidden
        width = model.head_dim
        shapes = [((heads + 2 * kv_heads) * width, hidden), (hidden, heads * width)]
        inner = 0
        if model.experts is None:
            inner = model.intermediate // tp
            shapes += [(2 * inner, hidden), (hidden, inner)]
        parts = {
            "products": total((layers, operators.products(self.products, n, k)) for n, k in shapes),
            "bytes": self._moved(heads, kv_heads, inner),
        }
        if model.experts is not None:
            router = operators.products("bf16", model.experts.count, hidden)
            own = operators.experts(self.experts, hidden, model.experts, tp // self.ep, self.ep)
            parts["experts"] = total(((layers, router), (layers, own)))
        if tp > 1:
            sums = operators.all_reduce(tp)
            parts["sums"] = Curve(sums.sizes / hidden, 2 * layers * sums.seconds)
        return parts

    def _moved(self, heads: int, kv_heads: int, inner: int) -> Curve:
        """Return the latency of kernels that only move bytes, in all layers, by tokens.

        There are two norms, which read and write the residual too, and the activation of a dense layer. Rotary
        positions are a kernel of their own where attention does not include them, and norms of queries and keys are
        one or two."""
        model, fused = self.architecture, self.operators.backend == TENSORRT_LLM
        moved, kernels = 2 * 4 * model.hidden + 3 * inner, 3 if inner else 2
        rotated = 2 * (heads + kv_heads) * model.head_dim
        turns = (0 if fused else 1) + (model.qk_norm if fused else 2 * model.qk_norm)
        passes = (0 if fused else 1) + model.qk_norm
        moved, kernels = moved + passes * rotated, kernels + turns
        return self.operators.moved(model.layers * _BF16_BYTES * moved, model.layers * kernels)

    @property
    def weight_bytes(self) -> float:
        """Return the bytes of weights on each GPU."""
        return self.architecture.weight_bytes(self.products, self.experts) / self.tp

    def kv_tokens(self, share: float | None = None, encoder_bytes: float = 0.0) -> int:
        """Return how many tokens the KV cache holds if it takes a share of the memory that the weights leave.

        The weights of an encoder on the same GPU count, too. Without a share, it is the server's default.
        TensorRT-LLM gives it 0.9 of what the weights leave (`free_gpu_memory_fraction`), and vLLM what the
        weights leave of 0.9 of the memory (`gpu_memory_utilization`). SGLang keeps some memory free, and the
        cache takes what the weights leave of the rest (`mem_fraction_static`)."""
        size, weights = self.operators.memory.size, self.weight_bytes + encoder_bytes
        backend = self.operators.backend
        if share is not None or backend == TENSORRT_LLM:
            left = (_SHARE if share is None else share) * (size - weights)
        elif backend == SGLANG:
            left = size - _kept_free(size, self.tp) - weights
        else:
            left = _SHARE * size - weights
        return max(0, int(left / self.architecture.kv_bytes(self.keys, self.tp)))

    def seconds(self, prefill: Sequence[tuple[int, int]], decode_requests: int, decode_context_tokens: int) -> float:
        """Return the seconds of a step.

        Args:
            prefill: For each chunk of a prompt, its tokens (1 or more) and the tokens of its request that are in the
                cache before it.
            decode_requests: The requests that decode one token each.
            decode_context_tokens: The sum of their contexts, in tokens.
        """
        if not prefill:
            return self._decode_s(decode_requests, decode_context_tokens) if decode_requests else 0.0
        tokens = decode_requests
        for new, _ in prefill:
            tokens += new
        found = self._tokens.at(tokens) + self._of_requests(decode_requests + len(prefill))
        found += self._prefill_s(prefill)
        if decode_requests:
            _, lengths, row = self._row(decode_requests)
            found += _between(lengths, row, decode_context_tokens / decode_requests)
        return found

    def _of_requests(self, requests: int) -> float:
        return self.host_s + self.host_request_s * requests + self._head.at(requests)

    def _decode_s(self, requests: int, context: int) -> float:
        base, lengths, row = self._row(requests)
        # The same as _between, in place: a call costs as much as the search.
        at = context / requests
        place = bisect_right(lengths, at, 1, len(lengths) - 1)
        low, before = lengths[place - 1], row[place - 1]
        return base + before + (row[place] - before) * (at - low) / (lengths[place] - low)

    def _row(self, requests: int) -> tuple[float, list[float], list[float]]:
        """Return what a step of so many decoding requests takes without attention, and attention by context."""
        found = self._decoding.get(requests)
        if found is None:
            base = self._tokens.at(requests) + self._of_requests(requests)
            lengths = sorted({length for _, surface in self._generation for length in surface.lengths})
            row = np.zeros(len(lengths))
            for layers, surface in self._generation:
                own = surface.row(requests)
                row += layers * np.array([_between(list(surface.lengths), own, length) for length in lengths])
            found = base, lengths, row.tolist()
            if len(self._decoding) >= _MAX_KEPT:
                self._decoding.clear()
            self._decoding[requests] = found
        return found

    def _prefill_s(self, prefill: Sequence[tuple[int, int]]) -> float:
        """Return the attention of prompts. Each counts as one of as many equal ones, divided by their number."""
        rows = self._prompts.get(len(prefill))
        if rows is None:
            rows = [
                (list(surface.lengths), [layers * each / len(prefill) for each in surface.row(len(prefill))], window)
                for layers, surface, window in self._context
            ]
            if len(self._prompts) >= _MAX_KEPT:
                self._prompts.clear()
            self._prompts[len(prefill)] = rows
        found = 0.0
        for new, before in prefill:
            for lengths, row, window in rows:
                seconds = _between(lengths, row, new + before)
                found += seconds * _new_share(new, before, window) if before else seconds
        return found


def _kept_free(size: float, tp: int) -> float:
    """Return the bytes that SGLang keeps free of weights and KV cache on a GPU of 60 to 300 GB.

    Source: SGLang, `ServerArgs._handle_gpu_memory_settings` in `server_args.py`, as aiconfigurator quotes it: 512 MiB,
    1.5 MiB for each token of a chunk, 2 MiB for each request of the largest captured graph, and 128 MiB for each
    GPU."""
    large = size >= 160 * 1024 * _MIB
    chunk, largest_graph = (16384, 512) if large else (8192, 256 if tp < 4 else 512)
    return (512 + 1.5 * chunk + 2 * largest_graph + 128 * tp) * _MIB


class _Line:
    """A curve whose values are found one at a time."""

    __slots__ = ("_last", "_seconds", "_sizes")

    def __init__(self, curve: Curve) -> None:
        self._sizes: list[float] = curve.sizes.tolist()
        self._seconds: list[float] = curve.seconds.tolist()
        self._last: float = self._sizes[-1]

    def at(self, size: float) -> float:
        if size >= self._last:
            return self._seconds[-1] * (size / self._last)
        if size <= self._sizes[0]:
            return self._seconds[0]
        return _between(self._sizes, self._seconds, size)


def _between(sizes: list[float], seconds: list[float], at: float) -> float:
    """Return the value at `at` on lines; the first and the last line go on beyond the ends."""
    place = bisect_right(sizes, at, 1, len(sizes) - 1)
    low, before = sizes[place - 1], seconds[place - 1]
    found: float = before + (seconds[place] - before) * (at - low) / (sizes[place] - low)
    return found


def _new_share(new: int, before: int, window: int) -> float:
    """Return the share of pairs of query and key that a chunk adds to those of its whole prompt until then."""

    def pairs(tokens: int) -> float:
        if window and tokens > window:
            return window * window / 2 + (tokens - window) * window
        return tokens * tokens / 2

    return 1 - pairs(before) / pairs(new + before)


def _check(
    architecture: DecoderArchitecture, tp: int, products: str, experts: str | None, ep: int, host: Mapping[str, float]
) -> None:
    if tp not in GPUS:
        raise UsageError(f"tp: {tp} GPUs cannot share a model; choose from {', '.join(map(str, GPUS))}")
    if architecture.heads % tp or (architecture.experts is None and architecture.intermediate % tp):
        raise UsageError(
            f"tp: {tp} GPUs cannot share the {architecture.heads} heads of {architecture.name} equally; choose fewer"
        )
    if ep < 1 or tp % ep:
        raise UsageError(f"ep: {ep} groups do not divide {tp} GPUs; choose a divisor of tp")
    if ep > 1 and architecture.experts is None:
        raise UsageError(f"ep: {architecture.name} has no experts; leave ep at 1")
    for name, precision in (("products", products), ("experts", experts)):
        if precision is not None and precision not in PRECISIONS:
            raise NoMeasurement(f"{name}: there is no precision {precision!r}; choose from {', '.join(PRECISIONS)}")
    for name, seconds in host.items():
        if not 0 <= seconds < math.inf:
            raise UsageError(f"{name}: {seconds} is not a time in seconds; give 0 or more")
