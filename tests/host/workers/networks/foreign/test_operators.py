"""The operators that a program from a file may call follow from rules.

So an operator of a later torch is refused if it does more than compute tensors from tensors.
"""

import pytest
import torch

from headrace.host.workers.networks.foreign.operators import is_allowed

PLACES = ("filename", "path", "url", "library", "command")
COMPUTES = """aten.add.Tensor aten.conv2d.default aten.linear.default aten.batch_norm.default aten.layer_norm.default
    aten.scaled_dot_product_attention.default aten.gelu.default aten.einsum.default aten.pad.default aten.stft.center
    aten.lstm.input aten.gru.input aten.embedding.default aten.upsample_bilinear2d.vec aten.grid_sampler.default
    aten.dropout.default aten.relu_.default aten.copy_.default aten.detach_.default aten.item.default
    aten.__and__.Tensor aten._assert_scalar.default aten._softmax.default aten.sym_size.int aten.as_strided.default
    prims.convert_element_type.default higher_order.cond higher_order.while_loop higher_order.map_impl
    higher_order.scan higher_order.wrap_with_set_grad_enabled"""
DOES_MORE = """torch.ops.aten.from_file.default torch.ops.aten.set_.source_Tensor torch.ops.aten.resize_.default
    torch.ops.aten.add.out torch.ops.aten.set_data.default torch.ops.aten.pin_memory.default
    torch.ops.aten._print.default torch.ops.aten._debug_has_internal_overlap.default
    torch.ops.aten._reshape_alias.default torch.ops.aten._cufft_set_plan_cache_max_size.default
    torch.ops.aten.fbgemm_linear_fp16_weight.default torch.ops.aten.record_stream.default torch.ops.aten.add.missing
    torch.ops.aten.missing.default torch.ops.aten.add torch.ops.aten torch.ops.aten.__class__.default
    torch.ops.aten.hash.str torch.ops.aten.warn.default torch.ops.prims.resize.default
    torch.ops.prims._make_token.default torch.ops.profiler._record_function_enter.default
    torch.ops.torchvision.nms.default torch.ops.quantized.linear.default torch.ops.mine.run.default
    torch.ops.inductor._alloc_from_pool.default torch.ops.higher_order.print torch.ops.higher_order.with_effects
    torch.ops.higher_order.aoti_call_delegate torch.ops.higher_order.call_torchbind
    torch.ops.higher_order.run_with_rng_state torch.ops.higher_order.inductor_compiled_code
    torch.ops.load_library torch.load torch.os.system torch.hub.load torch.sym_max.__class__ math.factorial
    _operator.methodcaller _operator.attrgetter operator.add builtins.eval #mine:run"""


@pytest.mark.parametrize(
    "name",
    COMPUTES.split(),
)
def test_what_computes_is_allowed(name):
    assert is_allowed(f"torch.ops.{name}")


@pytest.mark.parametrize(
    "name", ["_operator.add", "_operator.floordiv", "math.trunc", "torch.sym_max", "torch.sym_not"]
)
def test_what_computes_sizes_is_allowed(name):
    assert is_allowed(name)


@pytest.mark.parametrize(
    "name",
    [
        *DOES_MORE.split(),
        "",
        " torch.ops.aten.add.Tensor",
        "torch.ops.aten.add.Tensor\n",
        "torch.ops.aten.add.Tensor; x",
    ],
)
def test_what_does_more_is_refused(name):
    assert not is_allowed(name)


def test_no_operator_with_the_name_of_a_file_or_a_memory_is_allowed():
    """The test takes all operators of this torch, whatever their tags say."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if is_allowed(f"torch.ops.{namespace}.{base}.{overload or 'default'}"):
            assert namespace in ("aten", "prims")
            (schema,) = [
                each
                for each in torch._C._jit_get_schemas_for_operator(f"{namespace}::{base}")
                if each.overload_name == overload
            ]
            for argument in schema.arguments:
                assert not argument.is_out and str(argument.type) not in ("Storage", "Stream", "Any")
                assert str(argument.type) not in ("str", "Optional[str]") or argument.name not in PLACES, name


def test_a_new_operator_of_aten_with_another_text_is_refused():
    library = torch.library.Library("aten", "FRAGMENT")
    try:
        library.define("headrace_test_reads(Tensor x, str source) -> Tensor", tags=(torch.Tag.core,))
        library.define("headrace_test_computes(Tensor x, int source) -> Tensor", tags=(torch.Tag.core,))
        for name in ("reads", "computes"):
            library.impl(f"headrace_test_{name}", lambda x, source: x, "CompositeImplicitAutograd")
        assert is_allowed("torch.ops.aten.headrace_test_computes.default")
        assert not is_allowed("torch.ops.aten.headrace_test_reads.default")
    finally:
        library._destroy()
