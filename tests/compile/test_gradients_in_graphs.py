"""torch.autograd.grad within what torch.compile takes into its graph: gradients of gradients."""

import pytest
import torch

from cutlass_fused import functional, nn

FUNCTIONS = {
    "linear": lambda x, w: functional.linear(x, w, precision="ieee"),
    "leaky_relu": lambda x, w: functional.linear_scale_leaky_relu(x, w, None, 1.5, 0.2),
}


@pytest.fixture(autouse=True)
def graphs_with_gradients():
    if not hasattr(torch._dynamo.config, "trace_autograd_ops"):
        pytest.skip("this PyTorch takes no torch.autograd.grad into a graph")
    torch.compiler.reset()
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        yield


@pytest.mark.parametrize("activation", [torch.tanh, torch.square, lambda y: y], ids="tsi")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_loss_of_a_gradient(name, activation):
    """As a potential that is trained on forces has it: no term is lost."""
    torch.manual_seed(0)
    w = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)

    def compute_force(x, w):
        y = activation(FUNCTIONS[name](x, w))
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return slope

    def differentiate(compute):
        return torch.autograd.grad((compute(x, w) - 1).square().sum(), w)[0]

    compiled = torch.compile(compute_force, backend="aot_eager", fullgraph=True)
    expected = differentiate(compute_force)
    assert expected.abs().max() > 0
    torch.testing.assert_close(differentiate(compiled), expected)


def test_a_gradient_alone():
    w, x = torch.randn(8, 6, requires_grad=True), torch.randn(4, 6, requires_grad=True)

    def run(x, w):
        y = functional.linear_scale_leaky_relu(x, w, None, 1.5, 0.2)
        return torch.autograd.grad(y.sum(), (x, w))

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, w), run(x, w))


def train_batch_norm(x, w, scale):
    return functional.linear_scale_batch_norm(x, w, None, scale, None, None, training=True)


def train_softmax(x, w, scale):
    run = functional.linear_batch_norm_scale_softmax
    return run(x, w, None, scale, None, None, training=True)


OF_A_SCALE = {
    "leaky_relu": lambda x, w, scale: functional.linear_scale_leaky_relu(x, w, None, scale, 0.2),
    "batch_norm": train_batch_norm,
    "softmax": train_softmax,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", OF_A_SCALE)
def test_functions_that_keep_what_is_in_front_of_their_tail(name, dynamic):
    """Their composed gradients go through an output of their own."""
    torch.manual_seed(0)
    shapes = (7, 5), (6, 5), (6,)
    leaves = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]

    def compute(x, w, scale):
        y = OF_A_SCALE[name](x, w, scale)
        (slope,) = torch.autograd.grad(y.sin().sum(), scale, create_graph=True)
        return slope

    compiled = torch.compile(compute, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    expected = torch.autograd.grad(compute(*leaves).square().sum(), leaves[:2])
    found = torch.autograd.grad(compiled(*leaves).square().sum(), leaves[:2])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_step_of_training_is_as_ever(dynamic):
    model, x = nn.LinearScaleBatchNorm1d(5, 6, (6,)), torch.randn(7, 5)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    expected = torch.autograd.grad(model(x).sin().sum(), list(model.parameters()))
    found = torch.autograd.grad(compiled(x).sin().sum(), list(model.parameters()))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
