"""Gradients that kernels add up over the rows, to the second order, in Python and in C++."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cutlass_fused
from cutlass_fused.functional._derived import native as native_calls
from cutlass_fused.programs import native

M, N, K = 6, 5, 4
# Of rows, of an operand that is a row, and of one that is a scalar: as PyTorch broadcasts them.
SHAPES = (
    ((M,), (N,), ()),
    ((M,), (1, N), (1,)),
    ((M,), (N,), (1, 1)),
    ((2, 3), (N,), ()),
    ((2, 3), (1, 1, N), (1, 1)),
    ((), (N,), (1,)),
)


def function(acc, bias, scale, slope):
    """Two operands with one gradient, one with its own, one with a sum of all elements."""
    z = acc + bias
    return torch.nn.functional.silu(z) * scale + torch.tanh(z) * slope


gated = cutlass_fused.epilogue(function)


def plain(x, weight, bias, scale, slope):
    return function(x @ weight.t(), bias, scale, slope)


def ours(x, weight, bias, scale, slope):
    return gated(x, weight, bias=bias, scale=scale, slope=slope)


@pytest.fixture(params=["python", "c++"])
def path(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(native, "takes", lambda: False)
        yield
        return
    if not native_calls.is_defined():
        pytest.skip("the library of the switch is not built")
    made, run = [], native.run
    monkeypatch.setattr(native, "run", lambda *given: made.append(given) or run(*given))
    yield
    assert made


def make(leading=(M,), row=(N,), scalar=(), dtype=torch.float64):
    torch.manual_seed(4)
    shapes = (*leading, K), (N, K), row, row, scalar
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def find_all_orders(function, leaves):
    """Gradients, and gradients of each gradient alone: of sums alone too."""
    y = function(*leaves)
    first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
    second = []
    for each in first:
        second += torch.autograd.grad(each.sin().sum(), leaves, retain_graph=True)
    everything = sum(each.pow(3).sum() for each in first)
    third = torch.autograd.grad(everything, leaves, create_graph=True)
    return [*first, *second, *third, *torch.autograd.grad(third[2].square().sum(), leaves)]


@pytest.mark.parametrize("leading, row, scalar", SHAPES)
def test_orders(leading, row, scalar, path):
    leaves = make(leading, row, scalar)
    expected = find_all_orders(plain, leaves)
    for one, other in zip(find_all_orders(ours, leaves), expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("frozen", range(5))
def test_some_gradients(frozen, path):
    """One of all, and all but one."""
    for needs in ([i == frozen for i in range(5)], [i != frozen for i in range(5)]):
        leaves = [leaf.requires_grad_(need) for leaf, need in zip(make(), needs, strict=True)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = []
        for function in (ours, plain):
            first = torch.autograd.grad(function(*leaves).pow(2).sum(), wanted, create_graph=True)
            loss = sum(each.square().sum() for each in first)
            found.append([*first, *torch.autograd.grad(loss, wanted, allow_unused=True)])
        for one, other in zip(*found, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(dtype, path):
    """The sums are those of what is not rounded: their error is that of one rounding, and not that
    of one for each row."""
    rows = 4096
    leaves = make((rows,), dtype=dtype)
    with torch.no_grad():
        leaves[0].mul_(0.02)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    grad = 1 + torch.rand(rows, N).to(dtype)
    found = torch.autograd.grad(ours(*leaves), leaves[2:], grad)
    expected = torch.autograd.grad(plain(*exact), exact[2:], grad.double())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert (one.double() - other).norm() <= torch.finfo(dtype).eps * other.norm()


def test_a_batch_of_gradients(path):
    leaves = make()
    y = ours(*leaves)
    grads = torch.randn(3, *y.shape, dtype=y.dtype)
    found = torch.autograd.grad(y, leaves, grads, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(y, leaves, grad, retain_graph=True) for grad in grads]
    for one, *others in zip(found, *each, strict=True):
        torch.testing.assert_close(one, torch.stack(others))


def test_transforms():
    leaves = [leaf.detach() for leaf in make()]

    def loss(function):
        return lambda *leaves: function(*leaves).sin().sum()

    every = tuple(range(5))
    for one, other in zip(
        torch.func.grad(loss(ours), every)(*leaves),
        torch.func.grad(loss(plain), every)(*leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    ours_twice, twice = (
        torch.func.hessian(loss(function), (2, 4))(*leaves) for function in (ours, plain)
    )
    torch.testing.assert_close(ours_twice, twice)


class Written(TorchDispatchMode):
    """The dtypes that apply_program is asked for, and the names of ops that add up."""

    def __enter__(self):
        self.outs, self.sums = [], []
        return super().__enter__()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is torch.ops.cutlass_fused.apply_program.default:
            self.outs.append(args[3])
        if op.name().startswith("aten::sum"):
            self.sums.append(op.name())
        return op(*args, **(kwargs or {}))


def test_one_kernel():
    """Beside grad_z nothing of that size is written, and nothing is read again to be added up but
    the sums of a scalar."""
    leaves = make(dtype=torch.bfloat16)
    y = ours(*leaves)
    with Written() as written:
        torch.autograd.grad(y, leaves, torch.ones_like(y))
    (out,) = written.outs
    assert sorted(out.split(",")) == ["bfloat16", *["sum:bfloat16"] * 2, "sum:float32"]
    assert len(written.sums) == 1


def test_compiled():
    leaves = make(dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for one, other in zip(
        torch.autograd.grad(compiled(*leaves).square().sum(), leaves),
        torch.autograd.grad(plain(*leaves).square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
