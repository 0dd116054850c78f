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
    # x and three results are there anyway, beside which all but a ReLU keep something.
    assert eager >= 4
    more = {
        "LeakyReLU": 3 * (1 / dtype.itemsize - 1),  # masks in place of what LeakyReLU gets
        "BatchNorm": -3,  # the gradient of scale reads no z
        "Softmax": -3,
        "ReLU": 3,  # z beside y
    }
    assert found - eager == more.get(name, 0)
