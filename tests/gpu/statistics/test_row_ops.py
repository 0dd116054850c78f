"""Every op along rows that is described: shapes, widths, layouts, vectors, special values."""

import pytest
import torch
from cases import BF16, IEEE, Shape
from cases_statistics import (
    LAYOUT_SHAPE,
    OPS_AND_NUMERICS,
    SHAPES,
    make_special_statistics_call,
    make_statistics_call,
)
from check_call import check_call
from judge_call import assert_same_bits, judge_call
from layouts import MATRIX_LAYOUTS, RANK_LAYOUTS, VECTOR_KINDS

from cutlass_fused import functional
from cutlass_fused.epilogues._description import Number
from cutlass_fused.row_ops import ROW_OPS

pytestmark = pytest.mark.gpu

each_op = pytest.mark.parametrize("op", ROW_OPS)
each_op_and_numerics = pytest.mark.parametrize(
    ("op", "numerics"), [pair for pair in OPS_AND_NUMERICS if pair[0] in ROW_OPS], ids=str
)
# On both sides of a warp, of a block's first pass over the row, and of alignment; and far beyond.
WIDTHS = (1, 7, 32, 33, 256, 1024, 1032, 2048, 8200, 50257)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@each_op_and_numerics
def test_shapes(device, op, numerics, shape):
    check_call(make_statistics_call(op, shape, numerics, device))


@pytest.mark.parametrize("width", WIDTHS)
@each_op_and_numerics
def test_widths(device, op, numerics, width):
    """More rows than blocks, so that these go on to a second row; twice, with the same bits.

    Numbers close together: else a wide softmax in fp16 holds little but zeros.
    """
    shape = Shape(min(6401, 2**22 // width + 1), width, 0, "many rows")
    call = make_statistics_call(op, shape, numerics, device)
    call = call.change(x=call.x * (1.0 if width <= 2048 else 0.2))
    assert_same_bits(judge_call(call), call.run_all())


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS + RANK_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
@each_op
def test_layouts(device, op, numerics, layout):
    call = make_statistics_call(op, LAYOUT_SHAPE, numerics, device)
    judge_call(call.change(x=layout(call.x)))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@each_op_and_numerics
def test_vectors(device, op, numerics, kind):
    judge_call(make_statistics_call(op, LAYOUT_SHAPE, numerics, device, vectors=kind))


@each_op_and_numerics
def test_special_values(device, op, numerics):
    judge_call(make_special_statistics_call(op, numerics, device))


@each_op
def test_gradients(device, op):
    """In fp32, beside those of the function on the CPU in float64."""
    x, rows = torch.randn(33, 136), [torch.randn(136) for _ in ROW_OPS[op].vectors]
    vectors = iter(rows)
    arguments = [x]
    for operand in ROW_OPS[op].operands:
        arguments.append(0.5 if isinstance(operand, Number) else next(vectors))
    grads = []
    for place in ({"device": device}, {"dtype": torch.float64}):
        moved = [t.to(**place) if isinstance(t, torch.Tensor) else t for t in arguments]
        leaves = [t.requires_grad_() for t in moved if isinstance(t, torch.Tensor)]
        y = getattr(functional, op)(*moved)
        grads.append(torch.autograd.grad(y.square().sum(), leaves))
    for ours, expected in zip(*grads, strict=True):
        torch.testing.assert_close(ours.cpu().double(), expected, rtol=1e-4, atol=1e-4)
