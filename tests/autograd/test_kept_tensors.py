"""What a forward pass keeps for the backward pass, beside what the plain model keeps."""

import pytest
import torch
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)

from cutlass_fused import nn

# So many rows that vectors are small beside a matrix.
ROWS, SIZE = 512, 32
LEAKY, SCALED, SOFTMAX = (SIZE, SIZE, 2.0, 0.1), (SIZE, SIZE, (SIZE,)), (SIZE, SIZE)


def pair_activation(name, plain):
    def build_plain(k, n):
        return torch.nn.Sequential(torch.nn.Linear(k, n), plain())

    return lambda k, n: nn.LinearActivation(k, n, name), build_plain, (SIZE, SIZE)


KINDS = {
    "Linear": (nn.Linear, torch.nn.Linear, (SIZE, SIZE)),
    "LeakyReLU": (nn.LinearScaleLeakyReLU, PlainLinearScaleLeakyReLU, LEAKY),
    "BatchNorm": (nn.LinearScaleBatchNorm1d, PlainLinearScaleBatchNorm1d, SCALED),
    "Softmax": (nn.LinearBatchNorm1dScaleSoftmax, PlainLinearBatchNorm1dScaleSoftmax, SOFTMAX),
    "GELU": pair_activation("gelu", torch.nn.GELU),
    "SiLU": pair_activation("silu", torch.nn.SiLU),
    "ReLU": pair_activation("relu", torch.nn.ReLU),
    "Tanh": pair_activation("tanh", torch.nn.Tanh),
}


def count_matrices(build, arguments, dtype):
    """What three layers keep, with the result, in matrices of x."""
    model = torch.nn.Sequential(*(build(*arguments) for _ in range(3))).to(dtype)
    x = torch.randn(ROWS, SIZE).to(dtype).requires_grad_()
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = tensor, storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = model(x)
    keep(y)
    rows = [size for tensor, size in kept.values() if tensor.dim() == 2 and len(tensor) == ROWS]
    return sum(rows) / (x.numel() * x.element_size())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", KINDS)
def test_in_training(name, dtype):
    ours, plain, arguments = KINDS[name]
    found, eager = (count_matrices(kind, arguments, dtype) for kind in (ours, plain))
    # x and three results are there anyway.
    assert eager >= 4
    more = {
        "LeakyReLU": 3 * (1 / dtype.itemsize - 1),  # masks in place of what LeakyReLU gets
        "BatchNorm": -3,  # the gradient of scale reads no z
        "Softmax": -3,
        "Tanh": 3,  # z beside y
    }
    assert found - eager == more.get(name, 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_result_of_a_relu_in_place_of_what_it_gets(dtype, bias):
    """Its gradients, those of its gradient, and what else reads the result."""
    x = torch.randint(-2, 3, (6, 5)).to(dtype).requires_grad_()
    layer = nn.LinearActivation(5, 4, "relu", bias=bias, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    leaves = [x, *layer.parameters()]

    def differentiate(run):
        y = run(x)
        first = torch.autograd.grad((y * y).sum(), leaves, create_graph=True)
        total = sum((grad * grad).sum() for grad in first) + y.sum()
        return y, first, torch.autograd.grad(total, leaves)

    def run_plain(x):
        return torch.relu(torch.nn.functional.linear(x, layer.weight, layer.bias))

    torch.testing.assert_close(differentiate(layer), differentiate(run_plain))


def test_result_of_a_relu_that_is_written_to():
    """As PyTorch refuses it."""
    x = torch.randn(6, 5, requires_grad=True)
    y = nn.LinearActivation(5, 4, "relu")(x)
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
