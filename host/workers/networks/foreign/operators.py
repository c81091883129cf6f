"""The operators that a program from a file may call: those that compute tensors from tensors, and nothing else.

An operator of ATen is allowed if it fulfils all of these:
- torch's core set has it (`torch.Tag.core`), or torch describes it by other operators: it is CompositeImplicit, or has
  a registered decomposition. Few others are named in `_OTHERS`.
- Its name has no leading underscore, unless the core set has it or `_OTHERS` names it.
- It writes no `out=` tensor, and does not replace a tensor's memory or a property of it (`_REFUSED`).
- It belongs to no single backend, whose packed tensors may hold addresses (`_BACKENDS`).
- Its arguments are tensors, numbers, types and devices. A text is allowed only as one of the modes in `_MODES`.

So an operator that opens a file, prints, loads code or starts anything is refused, also one of a later torch."""

import re

import torch
from torch._decomp import decomposition_table
from torch._export.serde.serialize import _SYM_OPS

_ATEN = re.compile(r"torch\.ops\.(aten|prims)\.(\w+)\.(\w+)", re.ASCII)
_PLAIN = re.compile(
    r"(Optional\[)?(List\[)?(Optional\[)?(Tensor|int|number|bool|float|Device|Generator|SymInt|SymBool)\]*"
)
_MODES_TEXT = """
    UPLO approximate assert_msg driver equation indexing interpolation mode norm ord p pad_mode padding
    padding_side reduce rounding_mode side
"""
_OTHERS_TEXT = """
    _assert_async _assert_scalar _assert_tensor_metadata _convolution _fft_c2c _fused_rms_norm
    _native_batch_norm_legit_functional _pad_circular _pad_enum _safe_softmax _scaled_dot_product_attention_math
    _scaled_dot_product_flash_attention_for_cpu _shape_as_tensor _thnn_fused_gru_cell _thnn_fused_lstm_cell
    _trilinear _unique2 _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm
    _weight_norm_interface addbmm addr_ allclose angle bartlett_window bernoulli bernoulli_ bincount
    blackman_window bmm copy_ cummax cummin detach_ empty_permuted equal fft_fftfreq fft_rfftfreq
    fractional_max_pool2d grid_sampler_3d hamming_window histc index_reduce kaiser_window kthvalue
    lift_fresh_copy linalg_cholesky_ex linalg_eig linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex
    linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_pinv linalg_qr
    linalg_solve_triangular logcumsumexp lu_unpack masked_scatter_ masked_select max median min mode multinomial
    nanmedian nonzero_static normal_functional ormqr polygamma put put_ rand rand_like randint randint_like
    randn randn_like random random_ randperm range repeat_interleave scatter searchsorted select_copy slice_copy
    sort split_copy squeeze_ sym_constrain_range sym_constrain_range_for_size t_ transpose_ unique_consecutive
    unique_dim unsqueeze_ view view_as_complex view_as_real
"""
_REFUSED_TEXT = """
    backward data get_gradients pin_memory record_stream rename requires_grad_ resize resize_ resize_as
    resize_as_ retain_grad retains_grad set_ set_data
"""
_MODES, _OTHERS, _REFUSED = (frozenset(text.split()) for text in (_MODES_TEXT, _OTHERS_TEXT, _REFUSED_TEXT))
_BACKENDS = ("cudnn", "fbgemm", "miopen", "mkldnn", "quantized", "sparse", "to_mkldnn", "to_sparse")
_HIGHER_ORDER = frozenset(
    f"torch.ops.higher_order.{name}"
    for name in (
        "associative_scan",
        "cond",
        "map_impl",
        "scan",
        "while_loop",
        "wrap_with_autocast",
        "wrap_with_set_grad_enabled",
    )
)
_SIZES = frozenset(f"{function.__module__}.{function.__name__}" for function in _SYM_OPS)
_VMAP = frozenset(
    f"torch._functorch.predispatch.{name}"
    for name in (
        "_add_batch_dim",
        "_remove_batch_dim",
        "_vmap_decrement_nesting",
        "_vmap_increment_nesting",
        "lazy_load_decompositions",
    )
)


def is_allowed(target: str) -> bool:
    """Return whether a program from a file may call the operator, which is named as torch.export.save names it."""
    if target in _HIGHER_ORDER or target in _SIZES or target in _VMAP:
        return True
    named = _ATEN.fullmatch(target)
    if named is None:
        return False
    namespace, name, overload = named.groups()
    if not torch._C._jit_get_schemas_for_operator(f"{namespace}::{name}"):
        return False
    packet = getattr(getattr(torch.ops, namespace), name)
    if overload not in packet.overloads():
        return False
    return _computes(namespace, name, getattr(packet, overload))


def _computes(namespace: str, name: str, operator: torch._ops.OpOverload) -> bool:
    if not torch._C._dispatch_has_kernel(operator.name()):  # TorchScript's own, which works on Python's values
        return False
    if name in _REFUSED or name.startswith(_BACKENDS) or not all(map(_is_plain, operator._schema.arguments)):
        return False
    if torch.Tag.core in operator.tags or name in _OTHERS:
        return True
    if name.startswith("_") and not name.startswith("__"):
        return False
    if namespace == "prims":  # torch describes ATen's operators by these
        return True
    implicit = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
    return implicit or operator in decomposition_table


def _is_plain(argument: torch._C.Argument) -> bool:
    if argument.is_out:
        return False
    kind = str(argument.type)
    if "str" in kind:
        return argument.name in _MODES
    return _PLAIN.fullmatch(kind) is not None
