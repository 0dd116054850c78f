"""Gradients in C++ on the GPU: their values, the precision of their products, their kernel."""

import pytest
import torch
from accuracy import matmul_settings
from judge_gradients import differentiate, judge_norms
from layouts import misalign_rows, transpose
from plain import run_plain
from recorded_ops import RecordOps

from cutlass_fused import functional
from cutlass_fused.matmul import _native

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(isinstance(_native.load(), str), reason=f"{_native.load()}"),
]

leaky_relu_gradient = torch.ops.cutlass_fused.leaky_relu_gradient
LEAKY = {"scale": 1.5, "negative_slope": 0.1}
RUNS = {
    "linear": (functional.linear, torch.nn.functional.linear),
    "leaky_relu": (
        lambda *leaves, **options: functional.linear_scale_leaky_relu(*leaves, **LEAKY, **options),
        lambda *leaves: run_plain(*leaves, **LEAKY),
    ),
}
each_run = pytest.mark.parametrize("name", RUNS)
SHAPES = [((70, 64), 72), ((3, 33, 100), 130), ((1, 512), 8), ((300, 1000), 1001), ((64, 16), 24)]


def draw(shape, n, dtype):
    """Integers, and a bias of a half: z is exact, and of the same sign in every precision."""
    generator = torch.Generator("cuda").manual_seed(0)

    def integers(*size):
        drawn = torch.randint(-2, 3, size, generator=generator, device="cuda")
        return drawn.to(dtype).requires_grad_()

    bias = (integers(n).detach() + 0.5).requires_grad_()
    return {"x": integers(*shape), "weight": integers(n, shape[-1]), "bias": bias}


def is_native(y):
    return type(y.grad_fn).__name__ == "CppFunction"


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "n"), SHAPES, ids=str)
@each_run
def test_gradients(name, shape, n, dtype, precision):
    ours, plain = RUNS[name]
    leaves = draw(shape, n, dtype)
    grad_y = torch.randn((*shape[:-1], n), device="cuda")
    with matmul_settings("tf32" if precision == "ieee" else "ieee"):
        assert is_native(ours(*leaves.values(), precision=precision))
        mine = differentiate(lambda: ours(*leaves.values(), precision=precision), leaves, grad_y)
    with matmul_settings(precision):
        eager = differentiate(lambda: plain(*leaves.values()), leaves, grad_y)
    wide = {key: leaf.detach().double().requires_grad_() for key, leaf in leaves.items()}
    truth = differentiate(lambda: plain(*wide.values()), wide, grad_y.to(dtype).double())
    judge_norms(mine, eager, truth)


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize(("shape", "n"), [((2, 3, 16), 24), ((16, 16), 24), ((3, 300, 512), 512)])
@each_run
def test_result_may_be_written_in_place(name, shape, n, precision):
    """As an in-place activation does; also where PyTorch multiplies, whose product is reshaped."""
    ours, _ = RUNS[name]
    leaves = draw(shape, n, torch.float32)
    with matmul_settings(precision):
        y = ours(*leaves.values(), precision=precision)
        assert not y._is_view() and y.is_contiguous()
        twice = torch.autograd.grad(y.mul_(2.0).sum(), leaves.values())
        once = torch.autograd.grad(
            ours(*leaves.values(), precision=precision).sum(), leaves.values()
        )
    torch.testing.assert_close(twice, tuple(2 * grad for grad in once))


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("order", [1, 2])
@each_run
def test_precision_of_all_products(name, order, precision):
    leaves = draw((96, 64), 72, torch.float32)
    y = RUNS[name][0](*leaves.values(), precision=precision)
    with matmul_settings("tf32" if precision == "ieee" else "ieee"), RecordOps() as record:
        grads = torch.autograd.grad(y.square().sum(), leaves.values(), create_graph=order > 1)
        if order > 1:
            torch.autograd.grad(sum(grad.square().sum() for grad in grads), leaves.values())
    assert not {"mm", "addmm", "bmm", "matmul"} & set(record.names)
    products = [options for op, options in record.calls if op == "linear"]
    assert len(products) >= 2 * order
    assert {options.get("precision", "ieee") for options in products} == {precision}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "shape",
    [(1, 1), (5, 7), (64, 256), (1024, 8192), (4097, 130), (33, 1001), (16384, 8), (3, 70000)],
    ids=str,
)
def test_kernel(shape, dtype):
    x = torch.randn(shape, device="cuda").to(dtype)
    positive = torch.rand(shape, device="cuda") > 0.5
    other = torch.empty_like(positive[..., :1]).expand(shape)  # strides of 0
    other = torch.zeros_like(other)
    for each, mask in (
        (x, positive),
        (misalign_rows(x), positive),
        (transpose(x), transpose(positive)),
        (x, misalign_rows(positive)),
        (x[:1].expand(shape), other),
    ):
        grad, sums = leaky_relu_gradient(each, mask, 1.7, -0.3)
        wide = torch.where(mask, each.float() * 1.7, each.float() * -0.3)
        assert torch.equal(grad, wide.to(dtype)) and grad.is_contiguous()
        exact = wide.double().sum(0)
        size = wide.double().abs().sum(0)
        assert ((sums.double() - exact).abs() <= 1e-6 * size).all()
        again = leaky_relu_gradient(each, mask, 1.7, -0.3)
        assert torch.equal(again[0], grad) and torch.equal(again[1], sums)


def test_special_values():
    x = torch.tensor([[torch.inf, torch.nan, 1.0, -0.0]], device="cuda").repeat(40, 1)
    positive = torch.tensor([[False, True, True, False]], device="cuda").repeat(40, 1)
    grad, sums = leaky_relu_gradient(x, positive, 2.0, 0.0)
    torch.testing.assert_close(
        grad, torch.where(positive, x * 2.0, x * 0.0), rtol=0, atol=0, equal_nan=True
    )
    assert sums.isnan().tolist() == [True, True, False, False]
    assert sums[2] == 80


@pytest.mark.parametrize("shape", [(0, 16), (16, 0)])
def test_empty(shape):
    x = torch.ones(shape, device="cuda")
    grad, sums = leaky_relu_gradient(x, x > 0, 2.0, 1.0)
    assert grad.shape == shape and torch.equal(sums, torch.zeros(shape[1], device="cuda"))


def test_bad_input():
    x = torch.ones(5, 7, device="cuda")
    for positive, message in (
        (x, "positive must be bool, got float32"),
        (x.t() > 0, r"positive must have the shape of x, \(5, 7\), got shape \(7, 5\)"),
        (torch.ones(5, 7, dtype=torch.bool), "positive must be on the device of x, cuda:0"),
    ):
        with pytest.raises(RuntimeError, match=f"leaky_relu_gradient: {message}"):
            leaky_relu_gradient(x, positive, 1.0, 0.1)
