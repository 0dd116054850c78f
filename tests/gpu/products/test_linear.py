"""linear: every dtype, shape and layout; sizes past 2^31; accuracy at the size of the models."""

import pytest
import torch
from accuracy import Judge
from calls import LINEAR
from cases import (
    BF16,
    FP16,
    IEEE,
    LAYOUT_SHAPE,
    NUMERICS,
    ONE_OUTPUT,
    SHAPES,
    TF32,
    Shape,
    make_call,
)
from check_call import check_call, run_poisoned
from large_shapes import BEYOND, LARGE_SHAPES, pick_rows
from layouts import (
    MATRIX_LAYOUTS,
    RANK_LAYOUTS,
    VECTOR_KINDS,
    misalign_rows,
    transpose,
    widen_rows,
)

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_shapes(device, numerics, shape):
    check_call(make_call(LINEAR, shape, numerics, device))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_bias(device, numerics, kind):
    check_call(make_call(LINEAR, LAYOUT_SHAPE, numerics, device, bias=kind))


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS + RANK_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_layouts(device, numerics, layout):
    call = make_call(LINEAR, LAYOUT_SHAPE, numerics, device)
    check_call(call.change(x=layout(call.x)))
    if layout in MATRIX_LAYOUTS:
        check_call(call.change(weight=layout(call.weight)))


@pytest.mark.parametrize(
    ("layout_x", "layout_weight"),
    [(transpose, transpose), (widen_rows, misalign_rows), (misalign_rows, transpose)],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_both_layouts(device, numerics, layout_x, layout_weight):
    call = make_call(LINEAR, LAYOUT_SHAPE, numerics, device)
    check_call(call.change(x=layout_x(call.x), weight=layout_weight(call.weight)))


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_single_rows_and_columns_of_any_stride(device, numerics):
    """Dimensions of size 1 have meaningless strides; they must not decide anything."""
    call = make_call(LINEAR, Shape(1, 1, 64, "M = N = 1"), numerics, device)
    for stride in ((1, 1), (7, 1), (0, 1)):
        x = torch.as_strided(call.x, (1, 64), stride)
        weight = torch.as_strided(call.weight, (1, 64), stride)
        check_call(call.change(x=x, weight=weight))
    thin = make_call(LINEAR, Shape(70, 136, 1, "K = 1"), numerics, device)
    x, weight = (
        torch.as_strided(thin.x, (70, 1), (1, 9)),
        torch.as_strided(thin.weight, (136, 1), (1, 0)),
    )
    check_call(thin.change(x=x, weight=weight))


# ---- sizes past 2^31 elements, and grids past 2^16 tiles ----


@pytest.mark.parametrize("numerics", [BF16, IEEE, TF32], ids=str)
@pytest.mark.parametrize("shape", LARGE_SHAPES, ids=lambda s: s.reason.replace(" ", "_"))
def test_large(device, shape, numerics):
    call = make_call(LINEAR, shape, numerics, device)
    if numerics is not BF16 and shape.k > 8:
        call.x[-2:, 5] = 1e30  # rows that a split cannot hold, also behind 2^31 elements
        call.weight[:, 5] = 0
    check_call(call, pick_rows(shape.m, shape.n, shape.k).to(device))


@pytest.mark.parametrize("numerics", [BF16, IEEE], ids=str)
def test_large_weight(device, numerics):
    """weight beyond 2^31 elements; judged by columns, since all of it would be 17 GB in float64."""
    shape = Shape(2, 262152, 8192, "weight beyond 2^31 elements")
    call = make_call(LINEAR, shape, numerics, device)
    result = run_poisoned(call)
    assert not result.isnan().any()
    columns = pick_rows(shape.n, shape.m, shape.k).to(device)
    part = call.change(weight=call.weight[columns], bias=call.bias[columns])
    Judge(part).check(result[:, columns])


def test_large_rows_that_are_unaligned(device):
    """y beyond 2^31 elements, odd N and odd K: rows of 2 bytes, copied or stored one by one."""
    shape = Shape(65551, 32769, 9, "odd")
    call = make_call(LINEAR, shape, FP16, device)
    check_call(call, pick_rows(shape.m, shape.n, shape.k).to(device))


@pytest.mark.parametrize("k", [8, 40])
def test_many_columns_in_fp32(device, k):
    """N beyond 65535 tiles, on CUDA cores (K = 8) and with the repair of infinities (K = 40)."""
    call = make_call(LINEAR, Shape(2, 2**23 + 8, k, "many columns"), IEEE, device)
    call.weight[-3, -1] = torch.inf
    check_call(call)


def test_large_stride(device):
    """Rows further apart than 2^31 elements."""
    memory = torch.full((BEYOND + 2**20,), torch.nan, dtype=torch.bfloat16, device=device)
    x = torch.as_strided(memory, (2, 72), (BEYOND + 16, 1))
    x.copy_(torch.randn(2, 72, device=device))
    check_call(make_call(LINEAR, Shape(2, 136, 72, "two rows"), BF16, device).change(x=x))
