"""Calls of epilogues: shapes, dtypes, derivatives, and what PyTorch does around them."""

import pytest
import torch
import traced
from program_cases import CASES
from torch.nn import functional

from cutlass_fused.programs.epilogue import epilogue

M, N, K = 6, 5, 8


@epilogue
def gated(acc, bias, gate, slope=0.1, residual=None):
    """An activation, and a gate."""
    y = functional.leaky_relu(acc + bias, slope) * gate
    return y if residual is None else y + residual


@epilogue
def both(acc, bias):
    y = acc + bias
    return y, functional.gelu(y)


def make(dtype=torch.float64, m=M, **more):
    torch.manual_seed(3)
    options = {"dtype": dtype} | more
    return torch.randn(m, K, **options), torch.randn(N, K, **options)


def compose(function, x, weight, /, **operands):
    """The definition."""
    operands = {
        name: each.to(x.dtype) if isinstance(each, torch.Tensor) else each
        for name, each in operands.items()
    }
    return function(x @ weight.t(), **operands)


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    case = CASES[name]
    operands = dict(zip(case.operands, traced.make_tensors(case, shape=(M, N))[1:], strict=True))
    x, weight = make()
    expected = compose(case.function, x, weight, **operands)
    torch.testing.assert_close(epilogue(case.function)(x, weight, **operands), expected)


@pytest.mark.parametrize(
    "function", [torch.tanh, torch.nn.SiLU(), functional.silu, torch.Tensor.exp]
)
def test_what_functions_are(function):
    x, weight = make()
    torch.testing.assert_close(epilogue(function)(x, weight), function(x @ weight.t()))


def test_names():
    assert gated.__name__ == "gated" and gated.__doc__ == "An activation, and a gate."
    assert repr(gated) == "<epilogue gated(acc, bias, gate, slope, residual)>"


@pytest.mark.parametrize("leading", [(), (1,), (7,), (2, 3), (0,), (2, 0, 3), (2, 3, 4, 1)])
def test_leading_dimensions(leading):
    torch.manual_seed(3)
    x, weight = torch.randn(*leading, K), torch.randn(N, K)
    bias, gate, residual = torch.randn(N), torch.randn(*leading, 1), torch.randn(*leading, N)
    y = gated(x, weight, bias=bias, gate=gate, residual=residual)
    expected = functional.leaky_relu(x @ weight.t() + bias, 0.1) * gate + residual
    assert y.shape == (*leading, N)
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("gate", [(), (1,), (1, 1), (N,), (1, N), (M, 1), (M, N)])
def test_kinds(gate):
    x, weight = make()
    bias, gate = torch.randn(N), torch.randn(gate)
    expected = compose(gated.__wrapped__, x, weight, bias=bias, gate=gate)
    torch.testing.assert_close(gated(x, weight, bias=bias, gate=gate), expected)


def test_square():
    """Where M = N one value for each column is what PyTorch broadcasts (N,) to."""
    x, weight = make(m=N)
    vector = torch.randn(N, dtype=torch.float64)
    scaled = epilogue(lambda acc, s: acc * s)
    torch.testing.assert_close(scaled(x, weight, s=vector), x @ weight.t() * vector)
    column = vector[:, None]
    torch.testing.assert_close(scaled(x, weight, s=column), x @ weight.t() * column)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("operand_dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(dtype, operand_dtype):
    """In fp32, and rounded once."""
    x, weight = make(dtype)
    bias, gate = torch.randn(N).to(operand_dtype), torch.randn(M, 1).to(operand_dtype)
    expected = compose(gated.__wrapped__, x.float(), weight.float(), bias=bias, gate=gate)
    y = gated(x, weight, bias=bias, gate=gate)
    # As of x + bias.
    assert y.dtype == torch.promote_types(dtype, operand_dtype)
    y = gated(x, weight, bias=bias, gate=gate, out_dtype=dtype)
    rtol = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(y, expected.to(dtype), rtol=rtol, atol=1e-5)
    wide = gated(x, weight, bias=bias, gate=gate, out_dtype=torch.float32)
    torch.testing.assert_close(wide, expected)


def test_mixed():
    x, weight = make(torch.float32)
    y = gated(x.bfloat16(), weight, bias=weight[:, 0], gate=x[:, :1], out_dtype=torch.float32)
    expected = gated(x.bfloat16().float(), weight, bias=weight[:, 0], gate=x[:, :1])
    torch.testing.assert_close(y, expected)


def test_two_results():
    x, weight = make()
    bias = torch.randn(N, dtype=torch.float64)
    first, second = both(x.view(2, 3, K), weight, bias=bias)
    assert first.shape == second.shape == (2, 3, N)
    torch.testing.assert_close(second.view(M, N), functional.gelu(x @ weight.t() + bias))


def test_numbers_and_none():
    x, weight = make()
    for slope in (0.1, 2, True, -0.5):
        expected = functional.leaky_relu(x @ weight.t() + 1.5, slope) * 2
        torch.testing.assert_close(gated(x, weight, bias=1.5, gate=2, slope=slope), expected)
    without = gated(x, weight, bias=1.5, gate=2, residual=None)
    torch.testing.assert_close(without, gated(x, weight, bias=1.5, gate=2))


def test_views():
    x, weight = make()
    x, weight = x.t().contiguous().t(), weight.t().contiguous().t()
    bias = torch.randn(2 * N, dtype=torch.float64)[::2]
    gate = torch.randn(1, dtype=torch.float64).expand(M, 1)
    expected = compose(gated.__wrapped__, x, weight, bias=bias, gate=gate)
    torch.testing.assert_close(gated(x, weight, bias=bias, gate=gate), expected)


def make_leaves():
    x, weight = make(requires_grad=True)
    bias = torch.randn(N, dtype=torch.float64, requires_grad=True)
    gate = torch.randn(M, 1, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(M, N, dtype=torch.float64, requires_grad=True)
    return x, weight, bias, gate, residual


def call_gated(x, weight, bias, gate, residual):
    return gated(x, weight, bias=bias, gate=gate, residual=residual)


def test_derivatives():
    torch.autograd.gradcheck(call_gated, make_leaves(), check_forward_ad=True)
    smooth = epilogue(lambda acc, b: (torch.tanh(acc + b), acc * b))
    x, weight, bias, *_ = make_leaves()
    torch.autograd.gradgradcheck(lambda x, w, b: smooth(x, w, b=b), (x, weight, bias))


def test_transforms():
    x, weight, bias, gate, residual = (each.detach() for each in make_leaves())

    def loss(x, weight):
        return call_gated(x, weight, bias, gate, residual).square().sum()

    leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
    expected = torch.autograd.grad(loss(*leaves), leaves)
    for found, each in zip(torch.func.grad(loss, (0, 1))(x, weight), expected, strict=True):
        torch.testing.assert_close(found, each)
    xs = torch.stack([x, 2 * x])
    found = torch.func.vmap(lambda x: call_gated(x, weight, bias, gate, residual))(xs)
    expected = torch.stack([call_gated(x, weight, bias, gate, residual) for x in xs])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled(backend):
    """In one graph, for sizes that vary, with gradients."""
    torch._dynamo.reset()
    compiled = torch.compile(call_gated, fullgraph=True, backend=backend, dynamic=True)
    for m in (M, 9):
        x, weight = make(torch.float32, m, requires_grad=True)
        rest = torch.randn(N), torch.randn(m, 1), torch.randn(m, N)
        expected, found = call_gated(x, weight, *rest), compiled(x, weight, *rest)
        torch.testing.assert_close(found, expected)
        grads = (torch.autograd.grad(y.square().sum(), (x, weight)) for y in (expected, found))
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)


def test_compiled_once_for_numbers():
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, w, slope: gated(x, w, bias=0.5, gate=1.0, slope=slope),
        fullgraph=True,
        backend="eager",
    )
    x, weight = make()
    with torch._dynamo.config.patch(recompile_limit=3, fail_on_recompile_limit_hit=True):
        for slope in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
            expected = gated(x, weight, bias=0.5, gate=1.0, slope=slope)
            torch.testing.assert_close(compiled(x, weight, slope), expected)


def test_refused_while_compiled():
    torch._dynamo.reset()
    summed = epilogue(lambda acc: acc - acc.cumsum(1))
    with pytest.raises(Exception, match="calls aten.cumsum, which no word"):
        torch.compile(lambda x, w: summed(x, w), fullgraph=True, backend="eager")(*make())


def test_export():
    class Layer(torch.nn.Module):
        def forward(self, x, weight, bias):
            return both(x, weight, bias=bias)

    x, weight = make(torch.float32)
    arguments = (x, weight, torch.randn(N))
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(Layer(), arguments, dynamic_shapes=({0: rows}, {}, {}))
    x = torch.randn(11, K)
    for found, each in zip(
        exported.module()(x, *arguments[1:]), both(x, weight, bias=arguments[2]), strict=True
    ):
        torch.testing.assert_close(found, each)


def test_autocast():
    x, weight = make(torch.float32)
    bias, gate = torch.randn(N), torch.randn(M, 1)
    with torch.autocast("cpu", torch.bfloat16):
        y = gated(x, weight, bias=bias, gate=gate)
        plain = torch.nn.functional.linear(x, weight) + bias
    assert y.dtype == plain.dtype == torch.float32
    expected = gated(x.bfloat16(), weight.bfloat16(), bias=bias, gate=gate)
    torch.testing.assert_close(y, expected)


def test_parameters():
    """Operands that a module owns get their gradients, each of its shape."""
    x, weight = make(torch.float32)
    bias = torch.nn.Parameter(torch.randn(N, dtype=torch.bfloat16))
    gate = torch.nn.Parameter(torch.randn(()))
    gated(x, weight, bias=bias, gate=gate).sum().backward()
    assert bias.grad.shape == (N,) and bias.grad.dtype == torch.bfloat16
    assert gate.grad.shape == ()
    assert weight.grad is None
