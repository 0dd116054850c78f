"""Ops that multiply and are not served, which a report counts; and what no report can count."""

from collections.abc import Callable

from torch import Tensor

from . import _left, _state

NOT_SERVED = "seen, not served"

NEVER = (
    "  graphs of max-autotune, cpp_wrapper and AOTInductor that were compiled before",
    "  CUDA graphs that were captured before: they replay what was recorded",
    "  other libraries: cuSOLVER, cuDNN, FlashAttention, bitsandbytes, your own CUDA and Triton",
)

# No op is here that only calls others which arrive by themselves, as addbmm does.
_NAMES = (
    "convolution",
    "convolution_backward",
    "cudnn_convolution_relu",
    "cudnn_convolution_add_relu",
    "_cudnn_rnn",
    "_cudnn_rnn_backward",
    "mkldnn_rnn_layer",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_cudnn_attention_backward",
    "_flash_attention_forward",
    "_flash_attention_backward",
    "_efficient_attention_forward",
    "_efficient_attention_backward",
    "mv",
    "addmv",
    "addmv_",
    "addmv.out",
    "dot",
    "vdot",
    "mm.dtype",
    "mm.dtype_out",
    "addmm.dtype",
    "addmm.dtype_out",
    "bmm.dtype",
    "bmm.dtype_out",
    "baddbmm.dtype",
    "baddbmm.dtype_out",
    "_int_mm",
    "_scaled_mm",
    "_grouped_mm",
    "_scaled_grouped_mm",
    "_cdist_forward",
    "_cdist_backward",
    "linalg_cholesky_ex",
    "_linalg_solve_ex",
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_lu_solve",
    "linalg_ldl_factor_ex",
    "linalg_ldl_solve",
    "_linalg_det",
    "_linalg_slogdet",
    "linalg_inv_ex",
    "linalg_inv_ex.inverse",
    "linalg_qr",
    "linalg_householder_product",
    "geqrf",
    "ormqr",
    "_linalg_svd",
    "_linalg_eigh",
    "linalg_eig",
    "linalg_lstsq",
    "linalg_solve_triangular",
    "linalg_solve_triangular.out",
    "triangular_solve",
    "cholesky_solve",
    "cholesky_inverse",
)


# These do so for fp32, and have kernels of their own for other dtypes.
_PRODUCTS_IN_FLOAT32 = ("_grouped_mm",)


def _make(name: str, original: Callable) -> Callable:
    def arrives(first: Tensor) -> bool:
        return name in _PRODUCTS_IN_FLOAT32 and first.dtype is _left.FLOAT32

    def kernel(keyset, *args, **options):
        report = _state.report  # once: another thread may change it meanwhile
        if report is not None and not arrives(args[0]):
            report.count(name, args, NOT_SERVED)
        return original(keyset, *args, **options)

    return kernel


SEEN = {name: _make for name in _NAMES}
