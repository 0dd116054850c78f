"""torch.autograd.grad within what torch.compile takes into its graph: gradients of gradients."""

import pytest
import torch

from cutlass_fused import functional

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
