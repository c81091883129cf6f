"""The latency of a server's step: the sum of its operators, checked against the tables and against the hardware."""

import itertools

import numpy as np
import pytest

from headrace.batching.errors import UsageError
from headrace.sim.decoding.architecture import DecoderArchitecture, named
from headrace.sim.decoding.latency import StepLatency
from headrace.sim.decoding.operators import NoMeasurement, Operators

LLAMA = named("llama-3.1-8b")


@pytest.fixture(scope="module")
def llama():
    return StepLatency(LLAMA, "h100", "trtllm")


def one(curve, size):
    return float(curve.at(np.array([float(size)]))[0])


def test_a_step_is_the_sum_of_its_operators(llama):
    """A step of 64 requests with 1,024 tokens each, added up from the tables by hand."""
    h100 = Operators("h100", "trtllm")
    shapes = ((6144, 4096), (4096, 4096), (2 * 14336, 4096), (4096, 14336))
    layer = sum(one(h100.products("bf16", n, k), 64) for n, k in shapes)
    generation = h100.generation(32, 8, 128, "bf16")
    layer += generation.row(64)[generation.lengths.index(1024)]
    layer += one(h100.moved(2 * (8 * 4096 + 3 * 14336), 3), 64)
    head = one(h100.products("bf16", 128256, 4096), 64)
    assert llama.seconds([], 64, 64 * 1024) == pytest.approx(32 * layer + head)


def test_prompts_add_their_attention_and_share_the_products(llama):
    context = Operators("h100", "trtllm").context(32, 8, 128, "bf16")
    attention = 32 * context.row(2)[context.lengths.index(1024)]
    tokens = sum(one(curve, 2048) for curve in llama.parts.values())
    head = one(Operators("h100", "trtllm").products("bf16", 128256, 4096), 2)
    assert llama.seconds([(1024, 0), (1024, 0)], 0, 0) == pytest.approx(attention + tokens + head)


def test_decoding_requests_in_a_step_with_a_prompt_cost_less_than_in_a_step_of_their_own(llama):
    prompt, decode = llama.seconds([(1024, 0)], 0, 0), llama.seconds([], 32, 32 * 1024)
    both = llama.seconds([(1024, 0)], 32, 32 * 1024)
    assert max(prompt, decode) < both < prompt + decode


def test_chunks_of_a_prompt_have_the_attention_of_the_whole(llama):
    """The pairs of queries and keys of all chunks are those of the prompt, and so is their time."""
    cuts = [(1024, 0), (2048, 1024), (1024, 3072)]
    whole = llama._prefill_s([(4096, 0)])
    shares = [llama._prefill_s([(4096 - before, before)]) for _, before in cuts]
    assert shares[0] == whole
    assert shares[1] == pytest.approx(whole * (1 - (1 / 4) ** 2))
    assert shares[2] == pytest.approx(whole * (1 - (3 / 4) ** 2))
    assert whole < sum(llama._prefill_s([cut]) for cut in cuts) < 1.3 * whole  # short ones use the GPU less well


def test_prompts_of_several_lengths_count_as_parts_of_equal_ones(llama):
    mixed = llama._prefill_s([(512, 0), (4096, 1024)])
    equal = llama._prefill_s([(512, 0)] * 2), llama._prefill_s([(4096, 1024)] * 2)
    assert mixed == pytest.approx(sum(equal) / 2)


def test_an_empty_step_takes_no_time(llama):
    assert llama.seconds([], 0, 0) == 0


def test_a_step_takes_longer_with_more_requests_tokens_and_context(llama):
    for few, many in itertools.pairwise(1e3 * llama.seconds([], n, n * 2048) for n in (1, 8, 64, 256)):
        assert few < many
    for short, long in itertools.pairwise(llama.seconds([], 16, 16 * n) for n in (256, 1024, 4096, 16384)):
        assert short < long
    for short, long in itertools.pairwise(llama.seconds([(n, 0)], 0, 0) for n in (128, 1024, 8192, 32768)):
        assert short < long


def test_one_request_takes_at_least_the_time_to_read_the_weights(llama):
    read_s = 2 * (LLAMA.parameters - LLAMA.vocab * LLAMA.hidden) / 3.35e12
    assert read_s < llama.seconds([], 1, 128) < 2 * read_s


def test_more_gpus_shorten_a_step_by_less_than_their_number():
    steps = [StepLatency(LLAMA, "h100", "trtllm", tp=tp).seconds([], 64, 64 * 2048) for tp in (1, 2, 4, 8)]
    for before, after in itertools.pairwise(steps):
        assert before / 2 < after < before


def test_smaller_precisions_shorten_a_step():
    model = named("llama-3.1-70b")
    slow, fast = (
        StepLatency(model, "b200", "trtllm", tp=4, products=products, keys=keys).seconds([(512, 0)], 32, 32 * 8192)
        for products, keys in (("bf16", "bf16"), ("fp8_static", "fp8"))
    )
    assert fast < 0.8 * slow


def test_the_host_adds_its_time_to_every_step():
    own, host = (StepLatency(LLAMA, "h100", "trtllm", host_s=s) for s in (0.0, 1e-3))
    for step in (([], 8, 800), ([(100, 0)], 0, 0), ([(100, 0)], 8, 800)):
        assert host.seconds(*step) == pytest.approx(own.seconds(*step) + 1e-3)
    for_each = StepLatency(LLAMA, "h100", "trtllm", host_request_s=1e-5)
    assert for_each.seconds([], 8, 800) == pytest.approx(own.seconds([], 8, 800) + 8e-5)
    assert for_each.seconds([(100, 0)], 8, 800) == pytest.approx(own.seconds([(100, 0)], 8, 800) + 9e-5)


def test_sglang_alone_has_a_time_of_the_host_for_each_request():
    for backend, expected in (("sglang", 20e-6), ("trtllm", 0.0), ("vllm", 0.0)):
        default, without = (StepLatency(LLAMA, "h100", backend, host_request_s=s) for s in (None, 0.0))
        assert default.seconds([], 8, 800) - without.seconds([], 8, 800) == pytest.approx(8 * expected, abs=1e-12)


def test_layers_with_a_window_do_not_grow_with_the_context():
    model = named("gpt-oss-120b")
    steps = StepLatency(model, "h200", "vllm", tp=2, experts="mxfp4")
    near, far = (steps.seconds([], 64, 64 * n) for n in (4096, 8192))
    full = Operators("h200", "vllm").generation(32, 4, 64, "bf16")
    rows = dict(zip(full.lengths, full.row(64), strict=True))
    assert far - near == pytest.approx(18 * (rows[8192] - rows[4096]), rel=0.05)


def test_experts_in_groups_and_shared_ones_are_both_measured():
    model = named("qwen3-235b-a22b")
    times = [
        StepLatency(model, "h100", "trtllm", tp=4, products="fp8_block", ep=ep).seconds([], 64, 64) for ep in (1, 4)
    ]
    assert times[0] != times[1]
    assert 0.5 < times[0] / times[1] < 2


def test_the_cache_holds_what_the_weights_leave(llama):
    left = 0.9 * (80 * 2**30 - 2 * LLAMA.parameters)
    assert llama.kv_tokens() == left // (128 * 1024)
    assert StepLatency(named("llama-3.1-70b"), "h100", "trtllm").kv_tokens() == 0  # 141 GB of weights


def test_each_server_gives_the_kv_cache_its_own_part_of_the_memory():
    """SGLang keeps 512 + 1.5 x 8192 + 2 x 256 + 128 MiB free on one GPU, and has graphs of 512 requests on four."""
    size, mib = 80 * 2**30, 2**20
    model = StepLatency(named("qwen3-32b"), "h100", "sglang")
    token = 64 * 2 * 8 * 128 * 2
    assert model.kv_tokens() == int((size - 13440 * mib - model.weight_bytes) / token)
    four = StepLatency(named("qwen3-32b"), "h100", "sglang", tp=4)
    assert four.kv_tokens() == int((size - (512 + 12288 + 1024 + 512) * mib - four.weight_bytes) / (token / 4))
    large = StepLatency(named("qwen3-32b"), "b200", "sglang")
    kept = (512 + 1.5 * 16384 + 1024 + 128) * mib
    assert large.kv_tokens() == int((large.operators.memory.size - kept - large.weight_bytes) / token)
    vllm = StepLatency(named("qwen3-32b"), "h100", "vllm")
    assert vllm.kv_tokens() == int((0.9 * size - vllm.weight_bytes) / token)
    for each in (model, vllm):
        assert each.kv_tokens(0.5) == int(0.5 * (size - each.weight_bytes) / token)


def test_as_many_results_are_kept_as_a_bound_says(llama):
    for count in range(1, 4200):
        llama.seconds([], count, count)
    assert len(llama._decoding) <= 4096


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tp": 3}, "tp: 3 GPUs cannot share a model; choose from 1, 2, 4, 8"),
        ({"ep": 2}, "ep: 2 groups do not divide 1 GPUs"),
        ({"tp": 2, "ep": 2}, "ep: llama-3.1-8b has no experts"),
        ({"products": "fp7"}, "products: there is no precision 'fp7'"),
        ({"products": "mxfp4"}, "no products in mxfp4"),
        ({"experts": "fp7"}, "experts: there is no precision 'fp7'"),
        ({"keys": "int8"}, "no KV cache in 'int8'"),
        ({"host_s": -1.0}, "host_s: -1.0 is not a time"),
        ({"host_request_s": float("nan")}, "host_request_s: nan is not a time"),
        ({"version": "0.0"}, "no kernels of trtllm 0.0 on h100"),
    ],
)
def test_choices_that_are_not_there_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        StepLatency(LLAMA, "h100", "trtllm", **settings)


def test_a_model_that_the_tables_do_not_cover_is_refused():
    small = DecoderArchitecture("small", 2, 16, 8, 8, 2, 64, 100)
    with pytest.raises(NoMeasurement, match="attention of 8 and 8 heads of 2"):
        StepLatency(small, "h100", "trtllm")
    odd = DecoderArchitecture("odd", 2, 4096, 12, 12, 128, 4096, 32000)
    with pytest.raises(UsageError, match="8 GPUs cannot share the 12 heads of odd equally; choose fewer"):
        StepLatency(odd, "h100", "trtllm", tp=8)
