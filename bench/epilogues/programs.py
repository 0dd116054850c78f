"""The epilogues that are timed: each as a program of ours, and as people write it in PyTorch."""

import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cutlass_fused.comparison.models import MULTIPLIER, NEGATIVE_SLOPE
from cutlass_fused.programs.epilogue import Epilogue, epilogue

Result = Tensor | tuple[Tensor, ...]


@epilogue
def identity(acc):
    return acc


@epilogue
def affine(acc, bias, scale, shift, gain):
    return torch.relu(((acc + bias) * scale + shift) * gain)


@epilogue
def scale_leaky_relu(acc, bias):
    return F.leaky_relu((acc + bias) * MULTIPLIER, NEGATIVE_SLOPE)


@epilogue
def gelu(acc, bias):
    return F.gelu(acc + bias)


@epilogue
def gelu_tanh(acc, bias):
    return F.gelu(acc + bias, approximate="tanh")


@epilogue
def silu(acc, bias):
    return F.silu(acc + bias)


@epilogue
def residual(acc, bias, skipped):
    return acc + bias + skipped


@epilogue
def gate(acc, bias, other):
    return F.silu(acc + bias) * other


@epilogue
def two_outputs(acc, bias):
    z = acc + bias
    return F.gelu(z), z


@epilogue
def logsumexp(acc, bias):
    return torch.logsumexp(acc + bias, 1)


@epilogue
def softmax(acc, bias):
    return torch.softmax(acc + bias, 1)


@epilogue
def layer_norm(acc, bias):
    return F.layer_norm(acc + bias, acc.shape[1:])


@epilogue
def group_norm(acc, bias):
    return F.group_norm(acc + bias, find_groups(acc))


def find_groups(z: Tensor) -> int:
    """32, where they divide the columns."""
    return math.gcd(32, z.shape[1])


class Program(NamedTuple):
    label: str
    ours: Epilogue
    tail: Callable[..., Result]  # what stands behind a torch.nn.Linear, which adds the bias
    transcendental: bool = False  # erf, tanh or exp in it
    adds_along_rows: bool = False

    @property
    def has_bias(self) -> bool:
        return "bias" in inspect.signature(self.ours).parameters

    @property
    def operands(self) -> list[str]:
        """Those that the tail takes, by name."""
        return list(inspect.signature(self.ours).parameters)[1 + self.has_bias :]

    @property
    def has_matrix(self) -> bool:
        """Whether an operand is M x N."""
        return any(KINDS[name] == "matrix" for name in self.operands)


# Of each operand beside the bias.
KINDS = {
    "scale": "column",
    "shift": "row",
    "gain": "scalar",
    "skipped": "matrix",
    "other": "matrix",
}

PROGRAMS = {
    "identity": Program("none", identity, lambda z: z),
    "affine": Program(
        "bias, scale of rows, shift, gain, ReLU",
        affine,
        lambda z, scale, shift, gain: torch.relu((z * scale + shift) * gain),
    ),
    "scale_leaky_relu": Program(
        "bias, scale, LeakyReLU",
        scale_leaky_relu,
        lambda z: F.leaky_relu(z * MULTIPLIER, NEGATIVE_SLOPE),
    ),
    "gelu": Program("bias, GELU", gelu, F.gelu, True),
    "gelu_tanh": Program(
        "bias, GELU by tanh", gelu_tanh, lambda z: F.gelu(z, approximate="tanh"), True
    ),
    "silu": Program("bias, SiLU", silu, F.silu, True),
    "residual": Program("bias, residual", residual, lambda z, skipped: z + skipped),
    "gate": Program("bias, SiLU, gate", gate, lambda z, other: F.silu(z) * other, True),
    "two_outputs": Program(
        "bias, GELU, and what it is of", two_outputs, lambda z: (F.gelu(z), z), True
    ),
}

PROGRAMS |= {
    "logsumexp": Program("bias, log-sum-exp", logsumexp, lambda z: z.logsumexp(1), True, True),
    "softmax": Program("bias, softmax", softmax, lambda z: z.softmax(1), True, True),
    "layer_norm": Program(
        "bias, layer norm", layer_norm, lambda z: F.layer_norm(z, z.shape[1:]), False, True
    ),
    "group_norm": Program(
        "bias, group norm", group_norm, lambda z: F.group_norm(z, find_groups(z)), False, True
    ),
}
# What is drawn for an operand of this kind, of an M x N product.
DRAW = {
    "row": lambda m, n: 0.1 * torch.randn(n),
    "column": lambda m, n: 0.5 + torch.rand(m, 1),
    "scalar": lambda m, n: torch.tensor(1.5),
    "matrix": torch.randn,
}


class Plain(torch.nn.Module):
    """A Linear and what stands behind it, in plain PyTorch; all operands are parameters."""

    def __init__(self, name: str, m: int, n: int, k: int) -> None:
        super().__init__()
        self.program = PROGRAMS[name]
        self.gemm = torch.nn.Linear(k, n, bias=self.program.has_bias)
        drawn = {name: DRAW[KINDS[name]](m, n) for name in self.program.operands}
        self.operands = torch.nn.ParameterDict(drawn)

    def forward(self, x: Tensor) -> Result:
        return self.program.tail(self.gemm(x), **dict(self.operands.items()))


class Ours(torch.nn.Module):
    """The same in one call, over the same parameters."""

    def __init__(self, plain: Plain, precision: str) -> None:
        super().__init__()
        self.plain, self.precision = plain, precision

    def forward(self, x: Tensor) -> Result:
        plain = self.plain
        operands = dict(plain.operands.items())
        if plain.gemm.bias is not None:
            operands["bias"] = plain.gemm.bias
        weight = plain.gemm.weight
        return plain.program.ours(x, weight, precision=self.precision, **operands)
