"""The switch of fp32 products on CPU tensors, so that tests without a GPU go through its kernels.

There the ops of this package are their definitions, and within them PyTorch's own products run.
"""

import contextlib

import torch

import cutlass_fused
from cutlass_fused.matmul import _install, _state
from cutlass_fused.matmul._seen import SEEN


def install_on_cpu():
    """Put the kernels over PyTorch's for CPU tensors; off, they call what they cover."""
    _install.install("CPU")
    _install.put_over("seen", "CPU", SEEN)


@contextlib.contextmanager
def count_under(word="ieee"):
    """A report of what is computed within, under this word."""
    install_on_cpu()
    with cutlass_fused.matmul_report() as report, cutlass_fused.fp32_matmul(word):
        yield report


def outcomes(report, *ops):
    """What became of the calls of these ops, or of all: a set of "served" and reasons."""
    return {outcome for op, _, outcome in report.rows if not ops or op in ops}


def check_like_eager(function, *inputs, served=(), word="ieee"):
    """function(*inputs) under the switch beside eager PyTorch, and that all of `served` were.

    The truth is the function of float64 inputs; the error may be twice PyTorch's own and one eps.
    """
    doubles = [x.double() if isinstance(x, torch.Tensor) else x for x in inputs]
    truth, eager = function(*doubles), function(*inputs)
    with count_under(word) as report:
        y = function(*inputs)
    assert y.dtype == eager.dtype and y.shape == eager.shape and y.stride() == eager.stride()
    allowed = 2 * (eager - truth).abs().max() + torch.finfo(y.dtype).eps * truth.abs().max()
    assert (y - truth).abs().max() <= allowed
    for op in served:
        assert outcomes(report, op) == {"served"}, f"{op}: {dict(report.rows)}"
    return report


def assert_off():
    assert _state.word is None and _state.report is None
