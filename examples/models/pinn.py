"""A physics-informed network: Raissi et al., "Physics-informed neural networks: A deep learning
framework for solving forward and inverse problems involving nonlinear partial differential
equations", 2019."""

import torch
from torch import Tensor
from torch.nn import Tanh

from .parts import build_mlp

VISCOSITY = 0.01 / torch.pi


def build_pinn(k: int = 2, n: int = 1) -> torch.nn.Sequential:
    """Points (x, t) -> u: 8 hidden layers of 20, for Burgers' equation."""
    return build_mlp((k, *[20] * 8, n), Tanh)


def compute_residual(model: torch.nn.Module, x: Tensor) -> Tensor:
    """That of Burgers' equation, u_t + u u_x - viscosity u_xx, at the points (x, t). Its square is
    the loss: a step takes third derivatives."""
    u = model(x)
    (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
    return first[:, 1:] + u * first[:, :1] - VISCOSITY * second[:, :1]
