"""Longer chains behind one product: how far a site reaches, and that it computes the same."""

import copy

import pytest
import torch
from linear_tails import Behind, K, N
from torch import nn
from torch.nn import functional as F

import cutlass_fused

PROGRAM = "linear_epilogue, a program"


def _row():
    return nn.Parameter(torch.randn(N))


def _scaled_residual(m, z, x):
    kept = z.clone().detach()
    return z * 0.5 + kept


def _instance_norm(m, z, x):
    y = m.norm(z.unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1)
    return (y + m.b) * m.b


def _rows_of_rows(m, z, x):
    y = torch.sum(z, dim=1, keepdim=True)
    y = torch.max(y, dim=1, keepdim=True)[0]
    y = torch.mean(y, dim=1, keepdim=True)
    y = torch.logsumexp(y, dim=1, keepdim=True)
    return torch.logsumexp(y, dim=1, keepdim=True)


def _energy(m, z, x):
    y = z * 2.0
    y = torch.clamp(y + y, -1.5, 1.5)
    y = torch.logsumexp(y, dim=1, keepdim=True)
    return y * F.mish(y)


# A tail, the parts that it reads, and the names of what one call computes of it.
CHAINS = {
    "half of a sum": (
        lambda m, z, x: torch.sum(z / 2, dim=1, keepdim=True) * 1.5,
        {},
        ["Linear", "truediv", "sum", "mul"],
    ),
    "residual without a gradient": (
        _scaled_residual,
        {},
        ["Linear", "clone", "detach", "mul", "add"],
    ),
    "instance norm": (
        _instance_norm,
        {"norm": lambda: nn.InstanceNorm2d(N), "b": _row},
        ["Linear", "unsqueeze", "unsqueeze", "InstanceNorm2d", "squeeze", "squeeze", "add", "mul"],
    ),
    "rows of rows": (
        _rows_of_rows,
        {},
        ["Linear", "sum", "max", "getitem", "mean", "logsumexp", "logsumexp"],
    ),
    "clamped energy": (
        _energy,
        {},
        ["Linear", "mul", "add", "clamp", "logsumexp", "mish", "mul"],
    ),
    "least of a parameter": (
        lambda m, z, x: torch.min(z, m.c) - m.c,
        {"c": lambda: nn.Parameter(torch.tensor(0.1))},
        ["Linear", "min", "sub"],
    ),
    "swish, bias, group norm": (
        lambda m, z, x: m.norm(torch.sigmoid(z) * z + m.b),
        {"norm": lambda: nn.GroupNorm(4, N), "b": _row},
        ["Linear", "sigmoid", "mul", "add", "GroupNorm"],
    ),
    "windows, sums": (
        lambda m, z, x: m.pool(z.unsqueeze(1)).squeeze(1).sum(dim=1) * 0.5,
        {"pool": lambda: nn.MaxPool1d(2)},
        ["Linear", "unsqueeze", "MaxPool1d", "squeeze", "sum", "mul"],
    ),
    "windows, gelu, largest": (
        lambda m, z, x: torch.max(F.gelu(m.pool(z.unsqueeze(1)).squeeze(1)) * 2.0, dim=1).values,
        {"pool": lambda: nn.AvgPool1d(4)},
        ["Linear", "unsqueeze", "AvgPool1d", "squeeze", "gelu", "mul", "max", "values"],
    ),
    "group norm, swish, scale, swish": (
        lambda m, z, x: _swish(_swish(m.norm(z)) * m.s),
        {"norm": lambda: nn.GroupNorm(3, N), "s": _row},
        ["Linear", "GroupNorm", "sigmoid", "mul", "mul", "sigmoid", "mul"],
    ),
    "bias, hardtanh, mish, group norm": (
        lambda m, z, x: m.norm(F.mish(m.act(z + m.b))),
        {"norm": lambda: nn.GroupNorm(3, N), "b": _row, "act": nn.Hardtanh},
        ["Linear", "add", "Hardtanh", "mish", "GroupNorm"],
    ),
    "swish, tanh, gelu, hardtanh": (
        lambda m, z, x: F.hardtanh(F.gelu(torch.tanh(_swish(z + m.b))), -0.3, 0.3),
        {"b": _row},
        ["Linear", "add", "sigmoid", "mul", "tanh", "gelu", "hardtanh"],
    ),
    "a bias that broadcasts": (
        lambda m, z, x: torch.min(m.norm(z), dim=1, keepdim=True)[0] + m.b,
        {"norm": lambda: nn.GroupNorm(3, N), "b": lambda: nn.Parameter(torch.randn(1, N, 1, 1))},
        ["Linear", "GroupNorm", "min", "getitem"],
    ),
    "a shifted row of x": (
        lambda m, z, x: F.gelu(torch.logsumexp(z - m.b, dim=1, keepdim=True)) + x[:, :1].detach(),
        {"b": _row},
        ["Linear", "sub", "logsumexp", "gelu", "add"],
    ),
    "powers of a negative number": (
        # PyTorch's are NaN, but where the exponent is whole.
        lambda m, z, x: (-2.0) ** torch.round(z) + z,
        {},
        ["Linear", "round", "pow", "add"],
    ),
    "celu of a negative alpha": (
        lambda m, z, x: F.celu(z, -2.0) * 0.5,
        {},
        ["Linear", "celu", "mul"],
    ),
    "batch norm, bias, divide, swish": (
        lambda m, z, x: _swish((m.bn(z) + m.b) / 2.0),
        {"bn": lambda: nn.BatchNorm1d(N), "b": _row},
        ["Linear", "BatchNorm1d"],
    ),
}


def _swish(y):
    return torch.sigmoid(y) * y


@pytest.mark.parametrize("name", CHAINS)
def test_reaches_as_far(name):
    tail, parts, names = CHAINS[name]
    model = Behind(tail, **{key: part() for key, part in parts.items()})
    plain = copy.deepcopy(model)
    x = torch.randn(6, K, requires_grad=True)
    report = cutlass_fused.fuse(model, verify=x)
    (site,) = report.sites
    assert site.names == names
    assert site.obstacle or names[-1] != "getitem"
    ours, theirs = model(x), plain(x)
    assert site.last.why is None
    torch.testing.assert_close(ours, theirs)
    weight = torch.randn_like(theirs)
    inputs = [[x, *each.parameters()] for each in (model, plain)]
    options = {"allow_unused": True, "materialize_grads": True}
    grads = [
        torch.autograd.grad((y * weight).sum(), given, **options)
        for y, given in zip((ours, theirs), inputs, strict=True)
    ]
    for each in zip(*grads, strict=True):
        torch.testing.assert_close(*each, rtol=1e-5, atol=2e-5)
