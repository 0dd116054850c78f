"""LinearActivation in the hands of others: changed, compiled, exported, cast and differentiated."""

import copy
import functools
import io
import operator

import pytest
import torch
from activations import IN, OTHERS, OUT, M, Scaled, cube, make_pair
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused import nn, prepare

# ---- what follows changes of a module ----


# Of which each makes a function that has no program yet.
NEVER_CALLED = {
    "function": lambda: lambda z: z.sigmoid() * z,
    "composite": lambda: lambda z: F.relu6(F.selu(z)),
    "module": torch.nn.SELU,
    "module of rows": lambda: torch.nn.Softmax(-1),
}


def test_what_training_decides():
    """Python that a module reads is read once in each mode."""
    ours, linear, plain = make_pair(torch.nn.Dropout(0.5))
    x = torch.randn(M, IN)
    torch.testing.assert_close(ours.eval()(x), linear(x))
    with pytest.raises(RuntimeError, match="Dropout: .* calls aten"):
        ours.train()(x)
    torch.testing.assert_close(ours.eval()(x), linear(x))


def test_another_activation():
    ours, x = nn.LinearActivation(IN, OUT, cube), torch.randn(M, IN)
    for activation in (torch.nn.Tanh(), torch.nn.SELU(), Scaled(), torch.nn.PReLU()):
        del ours.activation
        ours.activation = activation
        torch.testing.assert_close(ours(x), activation(F.linear(x, ours.weight, ours.bias)))


def test_hooks():
    """Of the activation they run, as a part with hooks is called."""
    activation, called = torch.nn.SELU(), []
    ours, x = nn.LinearActivation(IN, OUT, activation), torch.randn(M, IN)
    expected = ours(x)
    activation.register_forward_hook(lambda m, args, y: called.append(m) or y + 1)
    torch.testing.assert_close(ours(x), expected + 1)
    assert called == [activation]


def test_other_layouts():
    ours, linear, plain = make_pair(torch.nn.GELU())
    x = torch.randn(M, IN)
    torch.testing.assert_close(ours(x.to_sparse()), plain(linear(x)))
    nested = torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged)
    torch.testing.assert_close(ours(nested).values(), plain(linear(torch.cat([x, x[:2]]))))


def test_of_an_epilogue():
    """Its function, which is one of elements."""
    ours, linear, plain = make_pair(cutlass_fused.epilogue(cube), plain=cube)
    x = torch.randn(M, IN)
    torch.testing.assert_close(ours(x), plain(linear(x)))
    torch.testing.assert_close(ours(x.to_sparse()), plain(linear(x)))
    assert "activation=cube)" in repr(ours)

    @functools.wraps(cube)
    def twice(z):
        return 2 * cube(z)

    ours.activation = twice  # which is not what it wraps
    torch.testing.assert_close(ours(x), 2 * plain(linear(x)))
    torch.testing.assert_close(ours(x.to_sparse()), 2 * plain(linear(x)))


def test_computed_weights():
    """Of a parametrization, and of another library."""
    ours, linear, plain = make_pair(torch.nn.SELU())
    for module in (ours, linear):
        torch.nn.utils.parametrizations.weight_norm(module)
    x = torch.randn(M, IN)
    torch.testing.assert_close(ours(x), plain(linear(x)))
    torch.testing.assert_close(copy.deepcopy(ours)(x), plain(linear(x)))


# ---- what PyTorch does around it ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["GELU", "Softplus", "PReLU", "Tanh"])
def test_autocast(name, dtype):
    """The dtype of the plain model; parameters stay, and get their gradients, in fp32."""
    ours, linear, plain = make_pair(getattr(torch.nn, name)())
    x = torch.randn(M, IN, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        expected, y = plain(linear(x)), ours(x)
    assert y.dtype == expected.dtype == dtype
    torch.testing.assert_close(y, expected, rtol=0.03, atol=0.03)
    y.sum().backward()
    assert {each.grad.dtype for each in (x, *ours.parameters())} == {torch.float32}


def test_mixed():
    ours, x = nn.LinearActivation(IN, OUT, "silu"), torch.randn(M, IN).bfloat16()
    y = ours(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, ours(x.float()).bfloat16())


@pytest.mark.parametrize("name", ["prelu", "leaky_relu", "Sequential", "ours"])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiled(name, backend):
    torch._dynamo.reset()
    activation, given = OTHERS.get(name, name), {"negative_slope": 0.3} if "leaky" in name else {}
    ours = copy.deepcopy(nn.LinearActivation(IN, OUT, activation, **given))
    compiled = torch.compile(ours, fullgraph=True, backend=backend, dynamic=True)
    for m in (M, 9):
        x = torch.randn(m, IN, requires_grad=True)
        found = [y.square().sum() for y in (ours(x), compiled(x))]
        leaves = [x, *ours.parameters()]
        grads = [torch.autograd.grad(each, leaves) for each in found]
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), ours(x))


def test_export_and_trace():
    ours, x = nn.LinearActivation(IN, OUT, "prelu").eval(), torch.randn(M, IN)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(ours, (x,), dynamic_shapes=({0: rows},)).module()
    torch.testing.assert_close(program(x[:3]), ours(x[:3]))
    with torch.no_grad():
        traced = torch.jit.trace(ours, (x,))
        torch.testing.assert_close(traced(x[:3]), ours(x[:3]))


@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("name", NEVER_CALLED)
def test_export_before_a_call(name, is_trained):
    """Where a function is traced for the first time, nothing of that is exported, and the program
    can be saved."""
    ours, x = nn.LinearActivation(IN, OUT, NEVER_CALLED[name]()), torch.randn(M, IN)
    with torch.set_grad_enabled(is_trained):
        exported = torch.export.export(ours, (x,))
    calls = [each.target for each in exported.graph.nodes if each.op == "call_function"]
    assert calls == [torch.ops.cutlass_fused.linear_epilogue.default, operator.getitem]
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(x), ours(x))


def test_second_derivatives():
    ours = nn.LinearActivation(IN, OUT, "tanh", dtype=torch.float64)
    x = torch.randn(2, IN, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(ours, (x,))
    hessian = torch.func.hessian(lambda x: ours(x).sum())(x.detach()[0])
    assert hessian.shape == (IN, IN)


def test_prepare_finds_it():
    """Weights that are on no GPU stay as they are."""
    from cutlass_fused.weights.prepared import _find_gemms

    ours = nn.LinearActivation(IN, OUT, "gelu", precision="tf32")
    assert prepare(ours) is ours
    assert list(_find_gemms(torch.nn.Sequential(ours))) == [(ours, "tf32")]
