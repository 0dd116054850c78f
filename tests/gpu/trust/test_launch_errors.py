"""Errors of CUDA: a launch that fails is told by the call that made it; one that another library
left behind is not taken for ours, and none of ours is left for others."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from python_process import run_python

from build_system.paths import ROOT
from cutlass_fused import functional

pytestmark = pytest.mark.gpu

BEFORE = """
    import ctypes, torch, cutlass_fused
    from cutlass_fused import functional
    x, weight = torch.randn(64, 96, device="cuda"), torch.randn(40, 96, device="cuda")
    expected = functional.linear(x, weight)
    torch.cuda.synchronize()
"""


def test_context_that_is_lost():
    """A kernel of somebody else has faulted. Our next call raises, and gives no result."""
    code = """
    source = 'extern "C" __global__ void fault(int* x) { *(int*)16 = 1; }'
    kernel = torch.cuda._compile_kernel(source, "fault")
    kernel((1, 1, 1), (1, 1, 1), (x,))
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        pass
    for call in (
        lambda: functional.linear(x, weight),
        lambda: functional.softmax(x),
        lambda: functional.linear_scale_leaky_relu(x, weight),
    ):
        try:
            call()
            print("a result")
        except RuntimeError as error:
            print("CUDA error" in str(error) or "illegal" in str(error) or str(error))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BEFORE + code)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout.splitlines() == ["True"] * 3, done.stdout + done.stderr


def test_error_of_somebody_else_is_not_ours():
    """The last error of the runtime that PyTorch uses is theirs who made it."""
    code = (
        BEFORE
        + """
    try:
        torch.empty(2**50, device="cuda")
    except torch.OutOfMemoryError:
        pass
    assert torch.equal(functional.linear(x, weight), expected)
    torch.cuda.synchronize()
    print("right")
    """
    )
    assert run_python(code) == "right\n"


def test_nothing_is_left_behind_a_refusal(device):
    """What checks refuse was never launched."""
    x = torch.randn(64, 96, device=device)
    with pytest.raises(RuntimeError):
        functional.linear(x, torch.randn(40, 95, device=device))
    with pytest.raises(RuntimeError):
        functional.linear(x, torch.randn(40, 96))
    torch.cuda.synchronize()
    assert torch.isfinite(functional.softmax(x)).all()
