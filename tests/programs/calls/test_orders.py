"""Gradients of gradients: each order is a program of its own, and one kernel."""

import pytest
import torch
from program_cases import CASES
from torch.utils._python_dispatch import TorchDispatchMode

import cutlass_fused
from cutlass_fused import functional
from cutlass_fused.programs import differentiable
from cutlass_fused.programs.epilogue import epilogue

M, N, K = 4, 3, 5
SMOOTH = ("silu", "gelu", "gelu_tanh", "tanh", "sigmoid", "softplus", "mish", "elu")


def make(dtype=torch.float64):
    torch.manual_seed(7)
    shapes = (M, K), (N, K), (N,)
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def call(name, x, weight, bias, **numbers):
    return functional.linear_epilogue(x, weight, name, bias=bias, **numbers)


class Ops(TorchDispatchMode):
    """Counts what is dispatched, by name."""

    def __enter__(self):
        self.counts = {}
        return super().__enter__()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        name = op.name().removesuffix(".default")
        self.counts[name] = self.counts.get(name, 0) + 1
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", SMOOTH)
def test_checks_of_gradients(name):
    leaves = make()
    assert torch.autograd.gradcheck(lambda *leaves: call(name, *leaves), leaves)
    assert torch.autograd.gradgradcheck(lambda *leaves: call(name, *leaves), leaves)


def of_pytorch(name):
    if name == "gelu_tanh":
        return lambda z: torch.nn.functional.gelu(z, approximate="tanh")
    return getattr(torch.nn.functional, name)


@pytest.mark.parametrize("name", SMOOTH)
def test_third_derivatives(name):
    """Hessian-vector products of a loss of a gradient."""
    leaves, found = make(), []
    for compute in (
        lambda: call(name, *leaves),
        lambda: of_pytorch(name)(torch.nn.functional.linear(*leaves)),
    ):
        first = torch.autograd.grad(compute().square().sum(), leaves[0], create_graph=True)[0]
        second = torch.autograd.grad(first.pow(3).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(each.square().sum() for each in second), leaves))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_each_order_is_one_kernel():
    """Of a step on forces: the gradient, its derivative, and the gradient again with what comes
    back through it."""
    leaves = make(torch.float32)
    loss_of = torch.ones(M, K)

    def step():
        energy = call("silu", *leaves).square()
        with Ops() as first:
            grads = torch.ones_like(energy)
            (slope,) = torch.autograd.grad(energy, leaves[0], grads, create_graph=True)
        with Ops() as second:
            torch.autograd.grad(slope, leaves, loss_of)
        return first.counts, second.counts

    step()  # which traces
    first, second = step()
    assert first.pop("cutlass_fused::apply_program") == 1
    assert second.pop("cutlass_fused::apply_program") == 2
    words = {"silu", "sigmoid", "add", "sub", "rsub", "neg", "silu_backward"}
    called = {name.partition("::")[2].partition(".")[0] for name in (*first, *second)}
    # Of the weight two gradients are added up, by PyTorch.
    assert called & words <= {"add"} and second.get("aten::add.Tensor", 0) <= 1
    # Those of the bias too, whose sums over the rows the kernels have.
    assert not any(name.startswith("aten::sum") for name in (*first, *second))


def test_what_nobody_reads_is_not_computed():
    """Forces leave the gradient of weight; a step on a loss does not."""
    leaves = make(torch.float32)
    middle = call("silu", *leaves)
    with Ops() as ops:
        torch.autograd.grad(middle.sum(), leaves[0], create_graph=True)
    assert ops.counts["aten::mm"] == 1
    with Ops() as ops:
        call("silu", *leaves).sum().backward()
    assert ops.counts["aten::mm"] == 2 and "aten::sum.dim_IntList" not in ops.counts
    assert all(leaf.grad is not None for leaf in leaves)


@pytest.mark.parametrize("name", ["swiglu", "geglu", "film", "rbf", "norm_relu"])
def test_kinds_of_operands(name):
    """What is for a row, a column or all gets a gradient of that shape in each order."""
    case = CASES[name]
    torch.manual_seed(1)
    shapes = {"row": (N,), "column": (M, 1), "scalar": (), "tile": (M, N)}
    leaves = make()[:2] + [
        (torch.rand(shapes[kind], dtype=torch.float64) + 0.5).requires_grad_()
        for kind in case.operands.values()
    ]
    made = epilogue(case.function)

    def ours(x, weight, *operands):
        return made(x, weight, **dict(zip(case.operands, operands, strict=True)))

    assert torch.autograd.gradgradcheck(ours, leaves)


def test_without_a_program(monkeypatch):
    """What no program is differentiates by PyTorch's ops."""
    leaves = make()
    expected = twice(leaves)
    monkeypatch.setattr(differentiable, "find_derivative", lambda *_: None)
    for one, other in zip(twice(leaves), expected, strict=True):
        torch.testing.assert_close(one, other)


def twice(leaves, **options):
    y = call("silu", *leaves)
    (slope,) = torch.autograd.grad(y.sum(), leaves[0], create_graph=True)
    return torch.autograd.grad(slope.square().sum(), leaves, **options)


def test_batches_of_gradients():
    """is_grads_batched over a gradient that was recorded."""
    leaves, grads = make(), torch.randn(2, M, K, dtype=torch.float64)
    y = call("silu", *leaves)
    (slope,) = torch.autograd.grad(y.sum(), leaves[0], create_graph=True)
    found = torch.autograd.grad(slope, leaves, grads, is_grads_batched=True, retain_graph=True)
    for index in range(2):
        expected = torch.autograd.grad(slope, leaves, grads[index], retain_graph=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[index], other)


def test_kept_and_freed():
    leaves = make()
    y = call("tanh", *leaves)
    (slope,) = torch.autograd.grad(y.sum(), leaves[0], create_graph=True)
    first = torch.autograd.grad(slope.sum(), leaves, retain_graph=True)
    for one, other in zip(torch.autograd.grad(slope.sum(), leaves), first, strict=True):
        assert torch.equal(one, other)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(slope.sum(), leaves)


def test_hooks():
    """See one gradient a backward pass, and may change it."""
    leaves, seen = make(), []
    handle = leaves[1].register_hook(lambda grad: seen.append(grad) or 2 * grad)
    doubled = twice(leaves)
    handle.remove()
    plain = twice(leaves)
    assert len(seen) == 1
    torch.testing.assert_close(doubled[1], 2 * plain[1])
    torch.testing.assert_close(doubled[0], plain[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(dtype):
    leaves = make(dtype)
    found = twice(leaves)
    assert [each.dtype for each in found] == [dtype] * 3
    exact = twice([each.detach().double().requires_grad_() for each in leaves])
    for one, other in zip(found, exact, strict=True):
        assert (one.double() - other).norm() <= 8 * torch.finfo(dtype).eps * other.norm()


def test_two_results():
    """Of which one has a gradient: then the other's counts for nothing, not for NaN."""

    @cutlass_fused.epilogue
    def both(acc, bias):
        return acc + bias, (acc + bias).exp()

    x = torch.full((M, K), 1000.0, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.ones(N, K, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    z, _ = both(x, weight, bias=bias)
    (slope,) = torch.autograd.grad(z.square().sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(found, torch.full_like(x, 2.0 * N * K))
