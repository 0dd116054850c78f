"""Activations behind a Linear: by names, as modules and functions, beside PyTorch's own."""

import copy
import functools

import torch
from torch.nn import functional as F

from cutlass_fused import nn

M, IN, OUT = 6, 12, 20
# Name -> the same in PyTorch, and numbers.
NAMES = {
    "identity": (torch.nn.Identity(), {}),
    "relu": (torch.nn.ReLU(), {}),
    "leaky_relu": (torch.nn.LeakyReLU(0.2), {"negative_slope": 0.2}),
    "prelu": (torch.nn.PReLU(OUT, 0.3), {"num_parameters": OUT, "init": 0.3}),
    "gelu": (torch.nn.GELU(), {}),
    "gelu_tanh": (torch.nn.GELU(approximate="tanh"), {}),
    "silu": (torch.nn.SiLU(), {}),
    "sigmoid": (torch.nn.Sigmoid(), {}),
    "tanh": (torch.nn.Tanh(), {}),
    "clamp": (lambda z: z.clamp(-0.5, 1), {"min": -0.5, "max": 1}),
    "hardtanh": (torch.nn.Hardtanh(-0.25, 0.75), {"min_val": -0.25, "max_val": 0.75}),
    "hardswish": (torch.nn.Hardswish(), {}),
    "mish": (torch.nn.Mish(), {}),
    "softplus": (torch.nn.Softplus(2, 10), {"beta": 2, "threshold": 10}),
    "elu": (torch.nn.ELU(0.7), {"alpha": 0.7}),
}
MODULES = {name: plain for name, (plain, _) in NAMES.items() if isinstance(plain, torch.nn.Module)}


def cube(z):
    return z**3 + z


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, z):
        return z * self.scale


OTHERS = {
    "SELU": torch.nn.SELU(),
    "ReLU6": torch.nn.ReLU6(),
    "in place": torch.nn.SiLU(inplace=True),
    "Sequential": torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Softsign()),
    "silu": F.silu,
    "tanh": torch.tanh,
    "a partial": functools.partial(F.leaky_relu, negative_slope=0.3),
    "ours": cube,
}


def make_pair(activation, dtype=torch.float32, bias=True, given=(), plain=None):
    """Ours, and PyTorch's with the same parameters."""
    torch.manual_seed(4)
    ours = nn.LinearActivation(IN, OUT, activation, bias, dtype=dtype, **dict(given))
    linear = torch.nn.Linear(IN, OUT, bias, dtype=dtype)
    linear.load_state_dict({k: v for k, v in ours.state_dict().items() if "." not in k})
    plain = copy.deepcopy(activation if plain is None else plain)
    plain = plain.to(dtype) if isinstance(plain, torch.nn.Module) else plain
    return ours, linear, plain
