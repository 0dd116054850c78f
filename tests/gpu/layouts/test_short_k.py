"""Sums of a K of up to 32 in fp32, in either order of operands: their kernel on CUDA cores, alone
and with an epilogue."""

import itertools

import pytest
import torch
from accuracy import Judge
from calls import BATCH_NORM, LEAKY, LINEAR
from cases import IEEE, Shape, make_call, make_special_call
from check_call import run_poisoned
from layouts import MAJORS, cut_block, lay, misalign_rows, name_majors, offset_storage, widen_rows
from tiles import force_tile

pytestmark = pytest.mark.gpu

DEPTHS = (1, 2, 5, 8, 17, 30, 31, 32)
SIZES = (
    (1, 1, "one number"),
    (33, 65, "a row and a column more than a block has"),
    (130, 20, "few columns"),
    (31, 130, "rows of y that are stored a number at a time"),
    (70, 264, "whole pieces"),
)


def check(call):
    """In memory that held NaN. What is forced leaves short sums to CUDA cores."""
    with force_tile("sm80"):
        y = run_poisoned(call)
        Judge(call).check(y)
        torch.testing.assert_close(y, call.run(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("k", DEPTHS)
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_every_depth_and_order(device, majors, k):
    for m, n, reason in SIZES:
        shape = Shape(m, n, k, reason)
        check(lay(make_call(LINEAR, shape, IEEE, device, bias="none"), majors))
        for op in (LINEAR, LEAKY, BATCH_NORM):
            check(lay(make_call(op, shape, IEEE, device), majors))


@pytest.mark.parametrize(
    "layout", [widen_rows, misalign_rows, offset_storage, cut_block], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_strided_lines(device, majors, layout):
    """Among NaN."""
    for k, bias in itertools.product((12, 16, 27), ("none", "own")):
        call = make_call(LINEAR, Shape(70, 136, k, "lines"), IEEE, device, bias=bias)
        x, weight = (
            layout(matrix.t().contiguous()).t() if along_mn else layout(matrix)
            for matrix, along_mn in zip((call.x, call.weight), majors, strict=True)
        )
        check(call.change(x=x, weight=weight))


@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_special_values(device, majors):
    for op in (LINEAR, LEAKY):
        call = make_special_call(op, IEEE, device)
        x, weight = call.x[:, :24].contiguous(), call.weight[:, :24].contiguous()
        check(lay(call.change(x=x, weight=weight), majors))


def test_behind_the_kernel_that_writes_its_operands(device):
    """It is launched while that one ends."""
    x, weight = (torch.randn(rows, 16, device=device) for rows in (512, 640))
    expected = torch.ops.cutlass_fused.linear(x, weight)
    late = torch.full_like(x, torch.nan)
    for _ in range(20):
        late.copy_(x)
        assert torch.equal(torch.ops.cutlass_fused.linear(late, weight), expected)
        late.fill_(torch.nan)
