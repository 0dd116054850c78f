"""The paragraphs that docstrings of several functions have, written once."""

import re
from collections.abc import Callable
from typing import TypeVar

PARAGRAPHS = {
    "x": """\
x: (..., K), float16, bfloat16 or float32 (on the CPU also float64); any strides, any number
    of leading dimensions, also none. A sparse x is multiplied by PyTorch, and the result is
    dense. A nested x of jagged layout and its result have the same offsets.""",
    "weight": """\
weight: (N, K), dtype of x, or float32 beside x of 16 bits, which then loses no digit; any
    strides.""",
    "weight_of_x": "weight: (N, K), dtype of x; any strides.",
    "weight_of_x_in_training": """\
weight: (N, K), dtype of x, or without training float32 beside x of 16 bits, which then
    loses no digit; any strides.""",
    "bias": "bias: (N,), dtype of x or float32, any stride.",
    "scale": """\
scale: a number, or a tensor with one element or of shape (N,) or (1, N), dtype of x,
    float32, narrower than x or of integers; one of shape (M, 1) or (M, N) multiplies z in
    PyTorch, which what follows it then reads; None is 1. A tensor stays on its device:
    nothing is read back. One of no dimension on the CPU is copied to x on each call, which a
    CUDA graph cannot capture.""",
    "running": """\
running_mean, running_var: (N,), dtype of x or float32, any stride. In training each is
    updated in place, for which the stride must not be 0, or may be None.""",
    "affine": """\
gamma, beta: (N,), dtype of x or float32, any stride; None is 1 and 0.""",
    "training": """\
training: whether the statistics are those of the batch.
momentum: a number; None is 1 / num_batches_tracked, for the mean over all batches.
eps: a number that is positive in fp32.
num_batches_tracked: one int64 number, which training counts up first, on its device. It
    must be given where momentum is None.""",
    "process_group": """\
process_group: a torch.distributed.ProcessGroup, over whose processes training finds the
    statistics: each of them has rows of the batch, some or none, and has to call this. The
    gradients of gamma and beta are those of its own rows. None is this process alone.""",
    "precision": """\
precision: what a float32 weight gets. "ieee": an error no larger than that of cuBLAS in
    fp32; "tf32": that of TF32 (cutlass_fused.precision has the bounds); None follows
    torch.backends.cuda.matmul.fp32_precision (torch.compile recompiles when that changes,
    torch.export keeps what it found).""",
    "precision_of_linear": """\
precision: what a float32 weight gets; see cutlass_fused.functional.linear.""",
    "out_dtype": "out_dtype: dtype of x or float32; None is the dtype of x.",
    "promoted_out_dtype": """\
out_dtype: dtype of x or float32. None is the dtype of the same expression in PyTorch: that
    of x, but float32 where a float32 scale of shape (1,) or (N,) stands beside 16-bit x.""",
    "weight_split": """\
weight_split: what torch.ops.cutlass_fused.split_weight returned for this weight and
    precision, if the weight has not changed since: used where no gradient is asked for. See
    cutlass_fused.prepare, which keeps one with a module.""",
    "returns": "(..., N), contiguous, of `out_dtype`.",
    "backward": """\
The backward pass uses the same precision; each gradient has the dtype of its input.""",
    "errors": """\
ValueError: unknown precision.
RuntimeError: shapes, dtypes, layouts or devices that do not fit; torch.jit.trace with a
    gradient to record; CUDA tensors where the library is not built or the GPU is not
    supported.""",
    "tensor_errors_of_batch_norm": """\
TypeError: x or weight is not a tensor, another argument neither that nor None, scale
    neither that nor a number, momentum or eps no number, or process_group no group of
    processes.
ValueError: unknown precision, a batch of one in training, no running statistics otherwise,
    eps not positive.""",
    "errors_of_statistics": """\
RuntimeError: shapes, dtypes, layouts, strides or devices that do not fit; running
    statistics that require a gradient, where gradients are enabled; on the CPU, those of
    torch.inference_mode in training outside it; torch.jit.trace with a gradient to record;
    CUDA tensors where the library is not built or the GPU is not supported.""",
    "nothing_updated": """\
A call that raises has updated nothing, unless the GPU failed or its memory was full.""",
}


def fill(text: str) -> str:
    """The text with the paragraph of that name in place of each line {name}."""

    def indent(line: re.Match) -> str:
        return "\n".join(line[1] + part for part in PARAGRAPHS[line[2]].splitlines())

    return re.sub(r"^( *)\{(\w+)\}$", indent, text, flags=re.MULTILINE)


Function = TypeVar("Function", bound=Callable)


def document(function: Function) -> Function:
    """The function itself, with its docstring filled."""
    if function.__doc__ is not None:  # as under python -OO
        function.__doc__ = fill(function.__doc__)
    return function
