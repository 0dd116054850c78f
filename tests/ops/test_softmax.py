"""softmax on the CPU: the op against PyTorch's own and by the judge, the function, the module."""

import warnings

import pytest
import torch
from accuracy import Rejected
from accuracy_statistics import StatisticsJudge
from calls import SOFTMAX
from cases import BF16, FP16, IEEE, Shape
from cases_statistics import (
    LAYOUT_SHAPE,
    OPS_AND_NUMERICS,
    make_special_statistics_call,
    make_statistics_call,
)
from check_call import check_call
from recorded_ops import RecordOps
from torch.autograd import gradcheck
from torch.nn import functional as F

from cutlass_fused import functional, nn

NUMERICS = [numerics for op, numerics in OPS_AND_NUMERICS if op == SOFTMAX]
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Around the widths of a warp, of an access, of what a block holds, and far beyond.
WIDTHS = (1, 2, 3, 31, 32, 33, 127, 1000, 1001, 4097, 65537)


# ---- the op ----


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("numerics", [FP16, BF16, IEEE], ids=str)
def test_widths(numerics, width):
    check_call(make_statistics_call(SOFTMAX, Shape(3, width, 0, "one width"), numerics))


@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_special_values(numerics):
    call = make_special_statistics_call(SOFTMAX, numerics)
    check_call(call)
    y = call.run()
    assert y[:2].isnan().all() and y[3:5].isnan().all()
    assert y[2, 7] == 0 and y[2].isfinite().all()
    assert y[5, 0] == 1 and not y[5, 1:].any()
    assert y[6:].isfinite().all()


@pytest.mark.parametrize("offset", [0.0, 100.0, -1e4, 1e30])
@pytest.mark.parametrize("numerics", [BF16, IEEE], ids=str)
def test_offsets_of_rows(numerics, offset):
    """A constant drops out, however large: the maximum is subtracted first."""
    call = make_statistics_call(SOFTMAX, LAYOUT_SHAPE, numerics)
    check_call(call.change(x=call.x + offset))


@pytest.mark.parametrize("spread", [0.0, 1e-3, 30.0, 1e4])
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_spreads(numerics, spread):
    """From equal elements to rows of which one element takes all."""
    call = make_statistics_call(SOFTMAX, LAYOUT_SHAPE, numerics)
    check_call(call.change(x=call.x * spread))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_is_nn_softmax(dtype):
    x = (3 * torch.randn(5, 3, 41)).to(dtype)
    wide = x if dtype == torch.float64 else x.float()
    expected = torch.nn.Softmax(dim=-1)(wide)
    ours = torch.ops.cutlass_fused.softmax(x)
    assert ours.dtype == dtype
    tolerance = {8: 1e-14, 4: 1e-6, 2: 0.5001 * torch.finfo(dtype).eps}[dtype.itemsize]
    torch.testing.assert_close(ours.to(wide.dtype), expected, rtol=tolerance, atol=1e-7)


def test_judge_is_relative():
    """What an absolute tolerance of 1e-2 passes: all ones over N."""
    call = make_statistics_call(SOFTMAX, Shape(4, 1000, 0, "wide"), IEEE)
    with pytest.raises(Rejected):
        StatisticsJudge(call).check({"y": torch.full((4, 1000), 1e-3)})


# ---- the function ----


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (0, 7), (3, 0), (2, 1, 3, 5)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_functional(shape, dtype):
    x = torch.randn(shape).to(dtype)
    for dim in range(-len(shape), len(shape)):
        ours, expected = functional.softmax(x, dim), F.softmax(x, dim)
        assert ours.dtype == dtype and ours.shape == expected.shape
        step = torch.finfo(dtype).eps
        torch.testing.assert_close(ours, expected, rtol=4 * step, atol=step)


def test_only_the_last_dimension_is_ours():
    x = torch.randn(3, 4, 5)
    for dim, expected in ((-1, True), (2, True), (1, False), (0, False), (-2, False)):
        with torch.no_grad(), RecordOps() as record:
            functional.softmax(x, dim)
            nn.Softmax(dim)(x)
        assert [name for name, _ in record.calls] == [SOFTMAX, SOFTMAX] * expected


def test_without_gradients_a_call_is_one_op():
    x = torch.randn(3, 4)
    with RecordOps() as record:
        functional.softmax(x)
        with torch.no_grad():
            functional.softmax(x.clone().requires_grad_())
    assert [name for name in record.names if name != "clone"] == [SOFTMAX, SOFTMAX]


@pytest.mark.parametrize("out_dtype", [None, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_out_dtype(dtype, out_dtype):
    x = torch.randn(3, 40).to(dtype).requires_grad_()
    for asking in (x, x.detach()):
        y = functional.softmax(asking, out_dtype=out_dtype)
        assert y.dtype == (out_dtype or dtype)
    y = functional.softmax(x, out_dtype=out_dtype)
    y.backward(torch.randn(3, 40).to(y.dtype))
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_autocast_gives_the_plain_dtype(dtype):
    x = torch.randn(3, 40).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert functional.softmax(x).dtype == F.softmax(x, -1).dtype
        assert functional.softmax(x, 0).dtype == F.softmax(x, 0).dtype


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4), (3, 1), (0, 4)], ids=str)
def test_gradcheck(shape):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert gradcheck(functional.softmax, (x,))
    assert gradcheck(functional.softmax, (x, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradient_is_that_of_pytorch(dtype):
    x = torch.randn(4, 60).to(dtype).requires_grad_()
    for grad_y in (torch.randn(4, 60).to(dtype), torch.ones((), dtype=dtype).expand(4, 60)):
        (ours,) = torch.autograd.grad(functional.softmax(x), x, grad_y)
        (expected,) = torch.autograd.grad(F.softmax(x, -1), x, grad_y)
        step = torch.finfo(dtype).eps
        torch.testing.assert_close(ours, expected, rtol=2 * step, atol=2 * step)


def test_changed_result_is_noticed():
    """The gradient reads y, as PyTorch's does."""
    x = torch.randn(3, 4, requires_grad=True)
    y = functional.softmax(x)
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_bad_input():
    with pytest.raises(TypeError, match="softmax: x must be a tensor, got list"):
        functional.softmax([1.0])
    with pytest.raises(RuntimeError, match="softmax: x must be float16, bfloat16, float32 or"):
        functional.softmax(torch.ones(3, dtype=torch.int32))
    with pytest.raises(IndexError):
        functional.softmax(torch.ones(3, 4), 2)
    with pytest.raises(TypeError, match="softmax: x must be a tensor, got list"):
        nn.Softmax(dim=-1)([1.0])


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_bad_out_dtype(dim, grad):
    """Also where PyTorch's own softmax runs."""
    x = torch.ones(3, 4, requires_grad=grad)
    with pytest.raises(RuntimeError, match="^softmax: out_dtype must be float32 .*, got float64$"):
        functional.softmax(x, dim, out_dtype=torch.float64)


# ---- the module ----


@pytest.mark.parametrize("dim", [-1, 0, 1, 2])
def test_module_is_that_of_pytorch(dim):
    plain = torch.nn.Softmax(dim).eval()
    module = nn.Softmax.from_eager(plain)
    assert isinstance(module, torch.nn.Softmax) and not module.training
    assert repr(module) == f"cutlass_fused.{plain!r}" and not module.state_dict()
    x = torch.randn(3, 4, 5)
    torch.testing.assert_close(module(x), plain(x))


@pytest.mark.parametrize(
    "x",
    [torch.tensor(1.0), torch.randn(4, dtype=torch.float64), torch.randn(2, 3, 4).long()],
    ids=["no dimension", "float64", "integers"],
)
def test_module_leaves_the_rest_to_pytorch(x):
    plain, module = torch.nn.Softmax(-1), nn.Softmax(-1)
    with RecordOps() as record:
        try:
            expected = plain(x)
        except (RuntimeError, NotImplementedError) as error:
            with pytest.raises(type(error)):
                module(x)
        else:
            torch.testing.assert_close(module(x), expected)
    assert not record.calls


def test_module_without_a_dimension():
    """PyTorch chooses one, and warns."""
    x = torch.randn(3, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.testing.assert_close(nn.Softmax()(x), torch.nn.Softmax()(x))
    assert len(caught) == 2


def test_module_takes_a_softmax_only():
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Softmax, got LogSoftmax"):
        nn.Softmax.from_eager(torch.nn.LogSoftmax(dim=1))
