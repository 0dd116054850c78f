"""The kernels for the gradient of a softmax, and where the function calls them."""

import pytest
import torch
from layouts import misalign_rows, offset_storage, transpose
from recorded_ops import RecordOps

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

softmax_gradient = torch.ops.cutlass_fused.softmax_gradient
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
# Rows of some lanes of a warp, of a warp, of two and of all warps of a block, on both sides of
# each bound and of alignment, and rows that a block reads twice; one row, and more than are
# resident at once.
WIDTHS = (1, 2, 3, 4, 8, 31, 32, 33, 100, 128, 129, 256, 264, 512, 513, 1000, 1032, 4096, 8192)
LONGER = (8193, 8200, 16384, 16392, 20000, 50257, 131072)
SHAPES = [(1, 1), (5, 7), (1000, 1000), (64, 8192), (3, 20000), (100000, 3), (1, 500000)]
SHAPES += [(2**22 // width + 1, width) for width in WIDTHS if width > 2]
SHAPES += [(300, width) for width in LONGER] + [(1000001, 1), (1000001, 2), (7, 3, 40), (9,)]


def make(shape, dtype):
    torch.manual_seed(0)
    x, v = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    return x.to(dtype), torch.softmax(v, -1).to(dtype)


def check(grad, x, y):
    """One rounding of the truth, but for what fp32 loses of it."""
    dtype, x, y = x.dtype, x.double(), y.double()
    assert grad.dtype == dtype and grad.is_contiguous()
    exact = y * (x - (x * y).sum(-1, keepdim=True))
    size = y * (x.abs() + (x * y).abs().sum(-1, keepdim=True))
    finfo = torch.finfo(dtype)
    rounding = finfo.eps / 2 * exact.abs() + finfo.smallest_normal * finfo.eps
    assert ((grad.double() - exact).abs() <= 1e-6 * size + rounding).all()


@each_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype):
    x, y = make(shape, dtype)
    grad = softmax_gradient(x, y)
    check(grad, x, y)
    assert torch.equal(softmax_gradient(x, y), grad)


@each_dtype
@pytest.mark.parametrize("shape", [(5, 8), (64, 256), (1000, 1000), (33, 8192), (3, 20000)])
def test_layouts(shape, dtype):
    x, y = make(shape, dtype)
    expected = softmax_gradient(x, y)
    for each in (
        (misalign_rows(x), y),
        (x, misalign_rows(y)),
        (offset_storage(x), y),
        (offset_storage(x), offset_storage(y)),
        (transpose(x), transpose(y)),
        (x.reshape(1, *shape), y.reshape(1, *shape)),
    ):
        grad = softmax_gradient(*each)
        check(grad, *each)
        assert grad.shape == each[0].shape
    assert torch.equal(softmax_gradient(misalign_rows(x), transpose(y)), expected)  # copied
    repeated = (x[:1].expand(shape), y)
    check(softmax_gradient(*repeated), *repeated)


@pytest.mark.parametrize("shape", [(2, 0), (0, 5), (0,), (3, 0, 4)])
def test_empty(shape):
    x = torch.ones(shape, device="cuda")
    assert softmax_gradient(x, x).shape == shape


@pytest.mark.parametrize("width", [3, 4, 40, 264, 1000, 1001, 9000])
def test_what_is_not_finite(width):
    x, y = torch.ones(5, width, device="cuda"), torch.full((5, width), 0.25, device="cuda")
    x[0, 0], x[1, 1], x[2, 2], y[3, 0] = torch.inf, torch.nan, -torch.inf, torch.nan
    expected = softmax_gradient(x.cpu(), y.cpu())
    torch.testing.assert_close(softmax_gradient(x, y).cpu(), expected, equal_nan=True)


def differentiate(run, x, **options):
    x = x.detach().requires_grad_()
    grad_y = torch.randn(x.shape, generator=torch.Generator("cuda").manual_seed(0), device="cuda")
    y = run(x)
    with RecordOps() as record:
        (grad,) = torch.autograd.grad(y, x, grad_y.to(y.dtype), **options)
    return grad, record.names


@each_dtype
@pytest.mark.parametrize("shape", [(33, 1000), (64, 8192), (1000, 3), (2, 5, 40)], ids=str)
def test_the_function_calls_it(shape, dtype):
    x = torch.randn(shape, device="cuda").to(dtype)
    grad, names = differentiate(functional.softmax, x)
    assert "softmax_gradient" in names and "_softmax_backward_data" not in names
    expected, _ = differentiate(lambda x: torch.softmax(x, -1), x)
    # y of the two kernels differs in its last digits.
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(grad, expected, rtol=8 * eps, atol=4 * eps * expected.abs().max())
    assert grad.dtype == dtype


def test_the_function_gets_a_gradient_in_fp32():
    x = torch.randn(33, 1000, device="cuda").bfloat16()
    grad, names = differentiate(lambda x: functional.softmax(x, out_dtype=torch.float32), x)
    assert "softmax_gradient" in names and grad.dtype == torch.bfloat16
    exact, _ = differentiate(lambda x: torch.softmax(x.double(), -1), x)
    torch.testing.assert_close(grad, exact, rtol=1e-2, atol=1e-5)


def test_pytorch_differentiates_gradients():
    x = torch.randn(9, 40, device="cuda", requires_grad=True)
    results = []
    for run in (functional.softmax, lambda x: torch.softmax(x, -1)):
        with RecordOps() as record:
            (grad,) = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
        assert "softmax_gradient" not in record.names
        results.append((grad, *torch.autograd.grad(grad.square().sum(), x)))
    torch.testing.assert_close(*results)


@pytest.mark.filterwarnings("ignore:.*batching rule")
def test_transforms_and_batches_of_gradients():
    x, grads = torch.randn(4, 9, 40, device="cuda"), torch.randn(3, 9, 40, device="cuda")

    def run(softmax):
        def loss(x):
            return softmax(x).square().sum()

        leaf = x[0].clone().requires_grad_()
        y = softmax(leaf)
        return (
            torch.func.grad(loss)(x[0]),
            torch.func.vmap(torch.func.grad(loss))(x),
            torch.func.hessian(loss)(x[0, :2, :5]),
            torch.autograd.grad(y, leaf, grads, is_grads_batched=True, retain_graph=True)[0],
            torch.stack([torch.autograd.grad(y, leaf, g, retain_graph=True)[0] for g in grads]),
        )

    torch.testing.assert_close(run(functional.softmax), run(lambda x: torch.softmax(x, -1)))


def test_compiled_graphs_hold_what_they_held():
    x = torch.randn(33, 72, device="cuda", requires_grad=True)
    compiled = torch.compile(functional.softmax, backend="aot_eager", fullgraph=True)
    torch.autograd.grad(compiled(x).square().sum(), x)
    y = compiled(x)
    with RecordOps() as record:
        (grad,) = torch.autograd.grad(y.square().sum(), x)
    assert "softmax_gradient" not in record.names
    (expected,) = torch.autograd.grad(functional.softmax(x).square().sum(), x)
    torch.testing.assert_close(grad, expected)


def test_bad_input():
    x, y = make((6, 5), torch.float32)
    for arguments, message in (
        ((x, y.half()), "y must have the dtype of x, float32, got float16"),
        ((x, y.t()), r"y must have the shape of x, \(6, 5\), got shape \(5, 6\)"),
        ((x, y[None]), r"y must have the shape of x, \(6, 5\), got shape \(1, 6, 5\)"),
        ((x, y.cpu()), "y must be on the device of x, cuda:0"),
        ((x.double(), y.double()), "x must be float16, bfloat16 or float32, got float64"),
        ((x.sum(), x.sum()), "x must have at least 1 dimension"),
    ):
        with pytest.raises(RuntimeError, match=f"softmax_gradient: {message}"):
            softmax_gradient(*arguments)
