"""Calls under the switch of PyTorch's fp32 products, beside the same calls without it.

CPU tests put its kernels over PyTorch's for CPU tensors, and so go through them. There the ops of
this package are their definitions, and within them PyTorch's own products run.
"""

import contextlib
import copy

import torch
from accuracy import matmul_settings

import cutlass_fused
from cutlass_fused.matmul import _install, _left, _state
from cutlass_fused.matmul._seen import SEEN


def install_on_cpu():
    """Put the kernels over PyTorch's for CPU tensors; off, they call what they cover."""
    _install.install("CPU")
    _install.put_over("seen", "CPU", SEEN)


@contextlib.contextmanager
def count_under(word="ieee"):
    """A report of what is computed within, under this word."""
    with cutlass_fused.matmul_report() as report, cutlass_fused.fp32_matmul(word):
        yield report


def outcomes(report, *ops):
    """What became of the calls of these ops, or of all: a set of "served" and reasons."""
    return {outcome for op, _, outcome in report.rows if not ops or op in ops}


def was_served(report):
    """Whether all calls were: by us, or by PyTorch where our own plan is cuBLAS."""
    found = outcomes(report)
    return bool(found) and found <= {"served", _left.CUBLAS}


def check_like_eager(function, *inputs, served=(), word="ieee", allowed="ieee", spelt_out=None):
    """function(*inputs) under the switch beside eager PyTorch, and that all of `served` were.

    The truth is the function of float64 inputs; the error may be twice that of PyTorch in the same
    precision, and one eps. `allowed` is PyTorch's own setting beside the switch; `spelt_out` the
    function with TF32 spelt out, since cuBLAS serves some shapes in fp32.
    """
    doubles = [x.double() if isinstance(x, torch.Tensor) else x for x in inputs]
    with matmul_settings(word):
        truth, eager = function(*doubles), function(*inputs)
    with matmul_settings(allowed), count_under(word) as report:
        y = function(*inputs)
    # Without a report the kernels in C++ serve what is plain: by the same ops, so the bits agree.
    with matmul_settings(allowed), cutlass_fused.fp32_matmul(word):
        assert torch.equal(function(*inputs), y)
    assert y.dtype == eager.dtype and y.shape == eager.shape and y.stride() == eager.stride()
    error = (eager - truth).abs().max()
    if spelt_out:
        error = torch.maximum(error, (spelt_out(*inputs) - truth).abs().max())
    tolerance = 2 * error + torch.finfo(y.dtype).eps * truth.abs().max()
    assert (y - truth).abs().max() <= tolerance
    for op in served:
        assert outcomes(report, op) == {"served"}, f"{op}: {dict(report.rows)}"
    return report


def call_module(module):
    """The module as a function of tensors, for float64 ones of its parameters in float64."""
    modules = {torch.float32: module, torch.float64: copy.deepcopy(module).double()}

    def call(*inputs):
        return modules[inputs[0].dtype](*inputs)

    call.parameters = lambda dtype: list(modules[dtype].parameters())
    return call


def assert_off():
    assert _state.word is None and _state.report is None
